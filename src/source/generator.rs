//! Synthetic events about a [`population`](super::population), for trying things out: `demo` and `generate`.
//!
//! The same seed gives the same bytes. Half way the population drifts: a younger cohort from elsewhere takes over, so
//! that a recoding that fitted the first half no longer fits the second.

use std::fmt::Write as _;
use std::time::Duration;

use bytes::Bytes;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use tokio::time::Instant;

use super::population::{COUNTRIES, DIAGNOSES, EDUCATION, MARITAL, OCCUPATIONS, Person, Population, SEXES, skewed};
use super::{BATCH, Source, SourceError, SourceItem};
use crate::codec::avro::container::{write_bytes, write_long};
use crate::model::event::{Event, Millis, Position};

/// The pipeline of `veilstream demo`: generator, policy with its hierarchies, window. It needs no other file.
pub fn demo_policy_yaml() -> &'static str {
    include_str!("demo.yaml")
}

/// The columns of a generated event, in order, as a CSV header.
pub const CSV_HEADER: &str = "user_id,age,sex,zip,country,education,marital_status,born,occupation,diagnosis,\
                              salary_class,score,ts\n";

/// The Avro schema of a generated event.
pub const AVRO_SCHEMA: &str = include_str!("generated.avsc");

/// 2026-01-01T00:00:00Z: when the first event happens. Fixed, so that a seed says everything.
const START: i64 = 1_767_225_600_000;

/// What to generate.
#[derive(Debug, Clone, Copy)]
pub struct GeneratorSettings {
    /// How many records; none: no end.
    pub records: Option<u64>,
    /// Records per second; 0: as fast as they are taken.
    pub rate: f64,
    /// Decides everything else.
    pub seed: u64,
    /// How many people; none: a tenth of the records, or 10,000 without an end.
    pub subjects: Option<u64>,
}

impl Default for GeneratorSettings {
    fn default() -> Self {
        Self { records: Some(10_000), rate: 0.0, seed: 0, subjects: None }
    }
}

impl GeneratorSettings {
    /// When the record after `emitted` others is due, since the start.
    pub fn due(&self, emitted: u64) -> Duration {
        let seconds = if self.rate > 0.0 { emitted as f64 / self.rate } else { 0.0 };
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
    }
}

/// The events themselves, without a clock.
pub struct Generator {
    population: Population,
    rng: ChaCha8Rng,
    records: Option<u64>,
    drift_at: u64,
    emitted: u64,
    millis: i64,
}

impl Generator {
    /// Without an end, the drift comes after this many records.
    const ENDLESS_DRIFT: u64 = 50_000;
    /// People without an end of records.
    const ENDLESS_SUBJECTS: u64 = 10_000;

    /// A generator of the events that `settings` describe.
    pub fn new(settings: &GeneratorSettings) -> Self {
        let default = settings.records.map_or(Self::ENDLESS_SUBJECTS, |records| records / 10);
        let subjects = usize::try_from(settings.subjects.unwrap_or(default)).unwrap_or(usize::MAX);
        let mut rng = ChaCha8Rng::seed_from_u64(settings.seed);
        // Another stream than the population's: people do not change with the number of events.
        rng.set_stream(1);
        Self {
            population: Population::new(settings.seed, subjects),
            rng,
            records: settings.records,
            drift_at: settings.records.map_or(Self::ENDLESS_DRIFT, |records| records / 2),
            emitted: 0,
            millis: START,
        }
    }

    /// How many events there were.
    pub fn emitted(&self) -> u64 {
        self.emitted
    }

    /// The next event.
    pub fn next_event(&mut self) -> Option<GeneratedEvent<'_>> {
        if self.records.is_some_and(|records| self.emitted >= records) {
            return None;
        }
        let drifted = self.emitted >= self.drift_at;
        self.emitted += 1;
        self.millis += self.rng.random_range(1..2000);
        let (number, person) = self.population.pick(&mut self.rng, drifted);
        // Later diagnoses come with age: the range to draw from grows with it.
        let reachable = (5 + usize::from(person.age) / 9).min(DIAGNOSES.len());
        let diagnosis = DIAGNOSES[skewed(&mut self.rng, reachable)];
        let score_tenths = self.rng.random_range(0..500) + 60 * u32::from(person.education);
        Some(GeneratedEvent { number, person, diagnosis, score_tenths, millis: self.millis })
    }
}

/// One synthetic event, not yet encoded.
pub struct GeneratedEvent<'g> {
    number: usize,
    person: &'g Person,
    diagnosis: &'static str,
    score_tenths: u32,
    millis: i64,
}

impl GeneratedEvent<'_> {
    /// When it happened.
    pub fn time(&self) -> Millis {
        Millis(self.millis)
    }

    fn salary_class(&self) -> &'static str {
        if self.person.earns_much { ">50K" } else { "<=50K" }
    }

    fn timestamp(&self) -> jiff::Timestamp {
        jiff::Timestamp::from_millisecond(self.millis).unwrap_or(jiff::Timestamp::MAX)
    }

    /// Appends the person's id.
    pub fn write_user(&self, out: &mut String) {
        let _ = write!(out, "u{:07}", self.number);
    }

    /// Appends it as a JSON object, without a newline.
    pub fn write_json(&self, out: &mut String) {
        let p = self.person;
        // Writing to a string cannot fail.
        let _ = write!(
            out,
            r#"{{"user_id":"u{:07}","age":{},"sex":"{}","zip":"{:05}","country":"{}","education":"{}","#,
            self.number,
            p.age,
            SEXES[usize::from(p.sex)],
            p.zip,
            COUNTRIES[usize::from(p.country)].0,
            EDUCATION[usize::from(p.education)],
        );
        let _ = write!(
            out,
            r#""marital_status":"{}","born":"{}","occupation":"{}","diagnosis":"{}","#,
            MARITAL[usize::from(p.marital)],
            p.born,
            OCCUPATIONS[usize::from(p.occupation)],
            self.diagnosis,
        );
        let (whole, tenth) = (self.score_tenths / 10, self.score_tenths % 10);
        let (salary, time) = (self.salary_class(), self.timestamp());
        let _ = write!(out, r#""salary_class":"{salary}","score":{whole}.{tenth},"ts":"{time}"}}"#);
    }

    /// Appends it as a CSV line in the order of [`CSV_HEADER`].
    pub fn write_csv(&self, out: &mut String) {
        let p = self.person;
        let _ = write!(
            out,
            "u{:07},{},{},{:05},{},{},{},{},{},{},{},{}.{},",
            self.number,
            p.age,
            SEXES[usize::from(p.sex)],
            p.zip,
            COUNTRIES[usize::from(p.country)].0,
            EDUCATION[usize::from(p.education)],
            MARITAL[usize::from(p.marital)],
            p.born,
            OCCUPATIONS[usize::from(p.occupation)],
            self.diagnosis,
            self.salary_class(),
            self.score_tenths / 10,
            self.score_tenths % 10,
        );
        let _ = writeln!(out, "{}", self.timestamp());
    }

    /// Appends it as a datum of [`AVRO_SCHEMA`].
    pub fn write_avro(&self, out: &mut Vec<u8>) {
        let p = self.person;
        let epoch = jiff::civil::date(1970, 1, 1);
        // In days by construction; the default cannot be reached.
        let born = p.born.since(epoch).map_or(0, |span| span.get_days());
        write_bytes(format!("u{:07}", self.number).as_bytes(), out);
        write_long(i64::from(p.age), out);
        write_long(i64::from(p.sex), out);
        write_bytes(format!("{:05}", p.zip).as_bytes(), out);
        write_bytes(COUNTRIES[usize::from(p.country)].0.as_bytes(), out);
        write_bytes(EDUCATION[usize::from(p.education)].as_bytes(), out);
        write_bytes(MARITAL[usize::from(p.marital)].as_bytes(), out);
        write_long(i64::from(born), out);
        write_bytes(OCCUPATIONS[usize::from(p.occupation)].as_bytes(), out);
        write_bytes(self.diagnosis.as_bytes(), out);
        write_bytes(self.salary_class().as_bytes(), out);
        out.extend_from_slice(&(f64::from(self.score_tenths) / 10.0).to_le_bytes());
        write_long(self.millis, out);
    }
}

/// The generator as a source of JSON events, at its own pace.
pub struct GeneratorSource {
    settings: GeneratorSettings,
    generator: Generator,
    started: Option<Instant>,
    text: String,
}

impl GeneratorSource {
    /// A source of the events that `settings` describe. The clock starts with the first `next`.
    pub fn new(settings: GeneratorSettings) -> Self {
        Self { generator: Generator::new(&settings), settings, started: None, text: String::new() }
    }

    /// How many records are due by now; all of them without a rate.
    fn due(&self, started: Instant) -> u64 {
        if self.settings.rate > 0.0 {
            (started.elapsed().as_secs_f64() * self.settings.rate) as u64 + 1
        } else {
            u64::MAX
        }
    }
}

impl Source for GeneratorSource {
    async fn next(&mut self) -> Result<SourceItem, SourceError> {
        let started = *self.started.get_or_insert_with(Instant::now);
        // Nothing changes before the last await, so a dropped future loses nothing. Without a rate this only lets
        // others run: a source that is always ready would not.
        tokio::task::yield_now().await;
        while self.due(started) <= self.generator.emitted() {
            let due = started.checked_add(self.settings.due(self.generator.emitted()));
            match due {
                Some(due) => tokio::time::sleep_until(due).await,
                None => std::future::pending().await,
            }
        }
        let due = self.due(started) - self.generator.emitted();
        let count = usize::try_from(due).unwrap_or(usize::MAX).min(BATCH);
        let mut events = Vec::with_capacity(count);
        while events.len() < count {
            let offset = self.generator.emitted() as i64;
            let Some(event) = self.generator.next_event() else { break };
            self.text.clear();
            event.write_json(&mut self.text);
            events.push(Event {
                position: Position::new(0, offset),
                placement: 0,
                timestamp: Some(event.time()),
                key: None,
                payload: Some(Bytes::copy_from_slice(self.text.as_bytes())),
            });
        }
        Ok(if events.is_empty() { SourceItem::End } else { SourceItem::Events(events) })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use super::*;
    use crate::codec::Decode as _;
    use crate::codec::avro::{AvroDecoder, parse_schema};
    use crate::codec::csv::{CsvDecoder, CsvHeader};
    use crate::codec::json::JsonDecoder;
    use crate::model::record::Value;
    use crate::model::schema::{Role, Schema};

    fn lines(settings: &GeneratorSettings) -> Vec<String> {
        let mut generator = Generator::new(settings);
        let mut lines = Vec::new();
        while let Some(event) = generator.next_event() {
            let mut text = String::new();
            event.write_json(&mut text);
            lines.push(text);
        }
        lines
    }

    fn column(lines: &[String], name: &str) -> Vec<String> {
        let schema = Schema::new([(name, Role::Quasi)]);
        let mut decoder = JsonDecoder::new(&schema, 1000);
        let value =
            |line: &String| decoder.decode(line.as_bytes()).unwrap().values[0].canonical().unwrap().into_owned();
        lines.iter().map(value).collect()
    }

    #[test]
    fn the_seed_decides_everything() {
        let settings = GeneratorSettings { records: Some(500), ..Default::default() };
        assert_eq!(lines(&settings), lines(&settings));
        assert_ne!(lines(&settings), lines(&GeneratorSettings { seed: 1, ..settings }));
        let first = &lines(&settings)[0];
        // Pins the bytes: a change here changes everybody's fixtures.
        assert!(first.starts_with(r#"{"user_id":"u"#) && first.ends_with(r#"Z"}"#), "{first}");
    }

    #[test]
    fn people_keep_their_attributes_and_return_unevenly() {
        let lines = lines(&GeneratorSettings { records: Some(5000), ..Default::default() });
        let ids = column(&lines, "user_id");
        let mut counts: HashMap<_, usize> = HashMap::new();
        let mut fixed: HashMap<_, HashSet<_>> = HashMap::new();
        let attributes: Vec<_> = ["age", "zip", "born", "country", "occupation"].map(|n| column(&lines, n)).into();
        for (i, id) in ids.iter().enumerate() {
            *counts.entry(id).or_default() += 1;
            fixed.entry(id).or_default().insert(attributes.iter().map(|a| a[i].clone()).collect::<Vec<_>>());
        }
        assert!(counts.len() <= 500 && counts.len() > 400, "{}", counts.len());
        assert!(counts.values().max() > Some(&40), "some come often");
        assert!(fixed.values().all(|different| different.len() == 1));
        let times = column(&lines, "ts");
        assert!(times.iter().zip(&times[1..]).all(|(a, b)| a.len() != b.len() || a < b));
    }

    #[test]
    fn ages_fit_birthdays() {
        let lines = lines(&GeneratorSettings { records: Some(2000), ..Default::default() });
        for (age, born) in column(&lines, "age").iter().zip(column(&lines, "born")) {
            let born: jiff::civil::Date = born.parse().unwrap();
            let years = born.until((jiff::Unit::Year, super::super::population::TODAY)).unwrap().get_years();
            assert_eq!(age.parse::<i16>().unwrap(), years);
        }
    }

    #[test]
    fn the_mix_drifts_half_way() {
        let lines = lines(&GeneratorSettings { records: Some(4000), ..Default::default() });
        let young =
            |lines: &[String]| column(lines, "age").iter().filter(|age| age.len() == 2 && age.as_str() < "30").count();
        assert!(young(&lines[2000..]) > young(&lines[..2000]) * 3 / 2);
    }

    #[test]
    fn formats_say_the_same() {
        let names = ["user_id", "age", "sex", "zip", "country", "education", "marital_status", "born", "occupation"];
        let names = names.into_iter().chain(["diagnosis", "salary_class", "score", "ts"]);
        let schema = Schema::new(names.map(|name| (name, Role::Quasi)));
        let mut json = JsonDecoder::new(&schema, 1000);
        let header = CsvHeader::parse(CSV_HEADER.as_bytes(), None).unwrap();
        let mut csv = CsvDecoder::new(&schema, &header, 1000).unwrap();
        let mut avro = AvroDecoder::new(&schema, &parse_schema(AVRO_SCHEMA).unwrap(), 1000).unwrap();
        let mut generator = Generator::new(&GeneratorSettings { records: Some(300), ..Default::default() });
        while let Some(event) = generator.next_event() {
            let (mut object, mut line, mut datum) = (String::new(), String::new(), Vec::new());
            event.write_json(&mut object);
            event.write_csv(&mut line);
            event.write_avro(&mut datum);
            let object = json.decode(object.as_bytes()).unwrap();
            let line = csv.decode(line.as_bytes()).unwrap();
            let datum = avro.decode(&datum).unwrap();
            for (slot, value) in object.values.iter().enumerate() {
                assert!(*value != Value::Missing);
                assert_eq!(value.canonical(), datum.values[slot].canonical(), "{slot}");
                let text = line.values[slot].canonical().unwrap();
                let number = matches!(value, Value::Number(_));
                let text = if number { crate::model::record::canonical_number(&text).unwrap() } else { text };
                assert_eq!(value.canonical().as_deref(), Some(&*text));
            }
        }
    }

    #[tokio::test]
    async fn no_record_comes_early_and_waiting_can_be_dropped() {
        let settings = GeneratorSettings { records: Some(100), rate: 1000.0, ..Default::default() };
        let mut source = GeneratorSource::new(settings);
        let started = Instant::now();
        let mut seen = 0;
        loop {
            // Most waits are dropped half way: nothing may be lost.
            match tokio::time::timeout(Duration::from_micros(300), source.next()).await {
                Ok(Ok(SourceItem::Events(events))) => {
                    for event in events {
                        assert_eq!(event.position.offset.0, seen);
                        assert!(started.elapsed() >= Duration::from_millis(seen as u64), "record {seen} came early");
                        seen += 1;
                    }
                }
                Ok(Ok(SourceItem::End)) => break,
                Ok(other) => panic!("{other:?}"),
                Err(_) => {}
            }
        }
        assert_eq!(seen, 100);
    }
}
