//! Events in, a profile out: learns the fields from the first records, then counts every record once.

use bytes::Bytes;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use super::column::{FieldKind, FieldValues};
use super::fields::{self, LOOKED_FOR};
use super::sample::{RowCodes, RowSample, SinglingOut, hash, measure};
use crate::codec::{CodecError, Decode};
use crate::model::event::Event;
use crate::model::schema::{Envelope, Role, Schema};
use crate::source::Preamble;

/// The most fields whose pairs and triples are counted. Larger: the number of triples grows with the third power. Smaller:
/// combinations are missed.
const COMBINED: usize = 14;
/// The rows that are looked at for all combinations together. Larger: slower. Smaller: combinations of large inputs are counted
/// on fewer rows.
const LOOKS: usize = 60_000_000;
/// A field that this share of people are alone with says nothing about the others that it stands with.
const EVERYBODY: f64 = 0.98;
/// The fewest people who share a value before it may be shown.
pub(crate) const SHARED_BY: u64 = 5;

/// Takes the events of one input.
pub(crate) struct Intake {
    preamble: Preamble,
    subject: Option<String>,
    max_record_bytes: usize,
    waiting: Vec<Event>,
    begun: Option<(Box<dyn Decode>, TableProfile)>,
    raw: RawSample,
}

impl Intake {
    /// An intake that knows the person of a record by `subject`, and keeps up to `raw` whole records in memory.
    pub(crate) fn new(preamble: Preamble, subject: Option<String>, max_record_bytes: usize, raw: usize) -> Self {
        let raw = RawSample { events: Vec::new(), seen: 0, most: raw, rng: StdRng::seed_from_u64(7) };
        Self { preamble, subject, max_record_bytes, waiting: Vec::new(), begun: None, raw }
    }

    /// Counts some events.
    ///
    /// # Errors
    /// If there is no decoder for the input.
    pub(crate) fn take(&mut self, events: Vec<Event>) -> Result<(), CodecError> {
        if self.begun.is_some() {
            self.count(&events);
            return Ok(());
        }
        self.waiting.extend(events);
        if self.waiting.len() >= LOOKED_FOR { self.begin() } else { Ok(()) }
    }

    fn begin(&mut self) -> Result<(), CodecError> {
        let waiting = std::mem::take(&mut self.waiting);
        let mut none = Schema::new([]);
        let format = self.preamble.format();
        let mut found = fields::discover(&*self.preamble.decoder(&none, self.max_record_bytes)?, format, &waiting);
        if fields::is_change_event(&found) {
            none.envelope = Envelope::Debezium;
            found = fields::discover(&*self.preamble.decoder(&none, self.max_record_bytes)?, format, &waiting);
        }
        let names: Vec<String> = found.iter().map(ToString::to_string).collect();
        let subject = names.iter().position(|known| self.subject.as_ref() == Some(known));
        // As quasi-identifiers, so that dates of Avro and Parquet are read as a hierarchy will read them.
        let mut schema = Schema::new(names.iter().map(|name| (name.as_str(), Role::Quasi)));
        schema.envelope = none.envelope;
        let decoder = self.preamble.decoder(&schema, self.max_record_bytes)?;
        let columns = names.iter().map(|_| FieldValues::new()).collect();
        let sample = RowSample::new(names.len());
        self.begun = Some((
            decoder,
            TableProfile { names, columns, sample, records: 0, rejected: 0, subject, envelope: none.envelope },
        ));
        self.count(&waiting);
        Ok(())
    }

    fn count(&mut self, events: &[Event]) {
        let Some((decoder, profile)) = &mut self.begun else { return };
        let mut row = vec![0u64; profile.names.len()];
        for event in events {
            profile.records += 1;
            let Some(Ok(record)) = event.payload.as_deref().map(|payload| decoder.decode(payload)) else {
                profile.rejected += 1;
                continue;
            };
            for ((cell, column), value) in row.iter_mut().zip(&mut profile.columns).zip(&record.values) {
                *cell = column.add(value);
            }
            let person = match profile.subject {
                Some(subject) => row[subject],
                None => RowSample::lone_person(profile.records),
            };
            profile.sample.add(person, &row);
            self.raw.offer(event);
        }
    }

    /// The profile, and the raw sample with the preamble that it is decoded with.
    ///
    /// # Errors
    /// As [`Intake::take`].
    pub(crate) fn finish(mut self) -> Result<(TableProfile, Preamble, Vec<Event>), CodecError> {
        if self.begun.is_none() {
            self.begin()?;
        }
        let begun = self.begun.map(|(_, profile)| profile);
        begun.map(|profile| (profile, self.preamble, self.raw.events)).ok_or(CodecError::BadHeader("empty"))
    }
}

/// A uniform sample of whole records; never printed, never written.
struct RawSample {
    events: Vec<Event>,
    seen: usize,
    most: usize,
    rng: StdRng,
}

impl RawSample {
    fn offer(&mut self, event: &Event) {
        self.seen += 1;
        let place = if self.events.len() < self.most { self.events.len() } else { self.rng.random_range(0..self.seen) };
        if place >= self.most {
            return;
        }
        // A slice would keep the whole buffer that was read.
        let payload = event.payload.as_deref().map(Bytes::copy_from_slice);
        let event = Event { position: event.position, placement: 0, timestamp: None, key: None, payload };
        match self.events.get_mut(place) {
            Some(old) => *old = event,
            None => self.events.push(event),
        }
    }
}

/// All that is known of an input.
pub(crate) struct TableProfile {
    /// The names of the fields.
    pub(crate) names: Vec<String>,
    /// Per field, its values.
    pub(crate) columns: Vec<FieldValues>,
    sample: RowSample,
    /// Records read.
    pub(crate) records: u64,
    /// Those of them that could not be decoded.
    pub(crate) rejected: u64,
    /// The field that says whose a record is, if it is given and there is one of that name.
    pub(crate) subject: Option<usize>,
    /// What stands around the row in a record.
    pub(crate) envelope: Envelope,
}

/// Two or three fields and how far they single people out together.
pub(crate) struct Combination {
    /// The fields.
    pub(crate) fields: Vec<usize>,
    /// Together.
    pub(crate) measure: SinglingOut,
}

impl TableProfile {
    /// True if every figure is of all records.
    pub(crate) fn whole(&self) -> bool {
        self.sample.whole()
    }

    /// The rows that figures about combinations and uniqueness are counted on.
    pub(crate) fn rows(&self) -> usize {
        self.sample.rows()
    }

    /// The number of people in those rows.
    pub(crate) fn people(&self) -> u64 {
        let people = self.sample.people(self.subject);
        measure(&[&people], &people, 1).distinct
    }

    /// Every field by itself.
    pub(crate) fn alone(&self) -> Vec<SinglingOut> {
        let people = self.sample.people(self.subject);
        let one = |field: usize| measure(&[&self.sample.codes(field)], &people, 1);
        (0..self.names.len()).map(one).collect()
    }

    /// What most values of a field are. Whole numbers are dates if the name says that they are times.
    pub(crate) fn kind(&self, field: usize) -> FieldKind {
        let (name, column) = (&self.names[field], &self.columns[field]);
        match column.kind() {
            FieldKind::Integer => column.since_1970(name).map_or(FieldKind::Integer, FieldKind::Date),
            kind => kind,
        }
    }

    /// All these fields together.
    pub(crate) fn together(&self, fields: &[usize]) -> SinglingOut {
        let people = self.sample.people(self.subject);
        let codes = fields.iter().map(|field| self.sample.codes(*field));
        measure(&[&RowCodes::combined(self.rows(), codes)], &people, 1)
    }

    /// Pairs and triples, the most telling first, and the number of rows that they were counted on. Left out are identifiers, fields
    /// that tell nobody or everybody apart alone, and, of many, those that separate the least.
    pub(crate) fn combinations(&self, alone: &[SinglingOut], identifiers: &[bool]) -> (Vec<Combination>, usize) {
        let useful =
            |field: &usize| !identifiers[*field] && alone[*field].distinct > 1 && alone[*field].uniqueness < EVERYBODY;
        let mut fields: Vec<usize> = (0..self.names.len()).filter(useful).collect();
        fields.sort_by(|a, b| alone[*b].separation.total_cmp(&alone[*a].separation));
        fields.truncate(COMBINED);
        fields.sort_unstable();
        let people = self.sample.people(self.subject);
        let codes: Vec<RowCodes> = fields.iter().map(|field| self.sample.codes(*field)).collect();
        let sets = pairs_and_triples(fields.len());
        let step = (self.rows() * sets.len()).div_ceil(LOOKS).max(1);
        let one = |set: Vec<usize>| {
            let chosen: Vec<&RowCodes> = set.iter().map(|place| &codes[*place]).collect();
            Combination {
                measure: measure(&chosen, &people, step),
                fields: set.iter().map(|place| fields[*place]).collect(),
            }
        };
        let mut found: Vec<Combination> = sets.into_iter().map(one).collect();
        let weight = |found: &Combination| (found.measure.uniqueness, found.measure.separation);
        found.sort_by(|a, b| {
            let ((a, a2), (b, b2)) = (weight(a), weight(b));
            b.total_cmp(&a).then(b2.total_cmp(&a2))
        });
        (found, self.rows().div_ceil(step))
    }

    /// The values of a field with a small domain that at least `least` people have, each with its share of the records, the most
    /// frequent first; `None` if the domain is large.
    pub(crate) fn shared_values(&self, field: usize, least: u64, subject: Option<usize>) -> Option<Vec<(String, f64)>> {
        let column = &self.columns[field];
        let enough = |value: &str| self.sample.people_with(field, hash(value), subject) >= least.max(SHARED_BY);
        let listed = column.listed()?.into_iter().filter(|(value, _)| enough(value));
        Some(listed.map(|(value, records)| (value.to_owned(), records as f64 / column.present as f64)).collect())
    }
}

fn pairs_and_triples(fields: usize) -> Vec<Vec<usize>> {
    let mut sets = Vec::new();
    for a in 0..fields {
        for b in a + 1..fields {
            sets.push(vec![a, b]);
            (b + 1..fields).for_each(|c| sets.push(vec![a, b, c]));
        }
    }
    sets
}
