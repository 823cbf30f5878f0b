//! Which fields records have, against those that the policy names, and what keeps messages from being read: found before anything is
//! published.
//!
//! A survey counts, per field of the policy, how often it is missing or null, and which other fields there are. Their names are the
//! input's own: an object that serves as a map has people's names for keys. So a name is told only if at least half of the records
//! have it and not fewer than [`ENOUGH`], and only the names of so many fields are counted at all.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use strsim::osa_distance;

use crate::model::event::{Reject, RejectCode};
use crate::model::record::{Record, Value};
use crate::model::schema::{Path, Role, Schema};

/// The fewest messages that are judged, and the fewest records that have a name before it is told. Larger: mistakes in short inputs show
/// only in what is published. Smaller: keys that are people's names are told, and a few bad messages stop a service.
pub(crate) const ENOUGH: u64 = 20;
/// A field that every record needs is a mistake if fewer than one in so many has it. Larger: a stray field of the misspelt name hides it.
/// Smaller: inputs stop of which one percent could be published.
const SELDOM: u64 = 100;
/// The most records whose names are listed. Larger: the first records of a stream are read slowly for longer. Smaller: rare fields
/// weigh more.
const LISTED: u64 = 1000;
/// The most different names that are counted. Larger: records with keys of their own take memory. Smaller: the later fields of wide
/// records are not told.
const MAX_NAMES: usize = 4096;

/// Counts of one field of the policy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FieldCounts {
    /// Records without it.
    pub missing: u64,
    /// Records in which it is null.
    pub null: u64,
}

/// The fields of some records.
pub struct Survey {
    fields: Vec<(Arc<str>, Path, Vec<Role>)>,
    /// The array that is taken apart.
    array: Option<Path>,
    counts: Vec<FieldCounts>,
    messages: u64,
    records: u64,
    /// Those of earlier messages.
    earlier: u64,
    rejected: BTreeMap<(Option<usize>, RejectCode), u64>,
    listed: u64,
    names: HashMap<Path, u64>,
}

impl Survey {
    /// No record yet.
    pub fn new(schema: &Schema) -> Self {
        let fields: Vec<_> =
            schema.attributes().iter().map(|a| (Arc::clone(&a.name), a.path.clone(), a.roles.clone())).collect();
        let counts = vec![FieldCounts::default(); fields.len()];
        let (rejected, names) = (BTreeMap::new(), HashMap::new());
        Self {
            fields,
            array: schema.array.clone(),
            counts,
            messages: 0,
            records: 0,
            earlier: 0,
            rejected,
            listed: 0,
            names,
        }
    }

    /// Takes in a record, and the places of all values that it was read from.
    pub fn add(&mut self, record: &Record<'_>, fields: impl FnOnce() -> Vec<Path>) {
        self.records += 1;
        for (counts, value) in self.counts.iter_mut().zip(&record.values) {
            match value {
                Value::Missing => counts.missing += 1,
                Value::Null => counts.null += 1,
                _ => {}
            }
        }
        self.list(fields);
    }

    /// Takes in that a message was read whole, with all its records, or why it was turned away; then `fields` gives the places of its
    /// values, as far as they can be told. A message about no row is none.
    pub fn message(&mut self, read: Result<(), &Reject>, fields: impl FnOnce() -> Vec<Path>) {
        let earlier = std::mem::replace(&mut self.earlier, self.records);
        match read {
            Err(reject) if reject.code.is_passed_over() => {}
            Err(reject) => {
                self.messages += 1;
                *self.rejected.entry((reject.field, reject.code)).or_default() += 1;
                if self.records == earlier {
                    self.list(fields);
                }
            }
            Ok(()) => self.messages += 1,
        }
    }

    /// True while it lists the fields of the records that it takes in.
    pub fn lists_fields(&self) -> bool {
        self.listed < LISTED
    }

    fn list(&mut self, fields: impl FnOnce() -> Vec<Path>) {
        if !self.lists_fields() {
            return;
        }
        self.listed += 1;
        for name in fields() {
            if self.names.len() < MAX_NAMES || self.names.contains_key(&name) {
                *self.names.entry(name).or_default() += 1;
            }
        }
    }

    /// How many messages were taken in, those about no row left aside.
    pub fn messages(&self) -> u64 {
        self.messages
    }

    /// How many records were decoded.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// How many messages were turned away.
    pub fn rejected(&self) -> u64 {
        self.rejected.values().sum()
    }

    /// The counts of each field of the policy, in slot order.
    pub fn counts(&self) -> &[FieldCounts] {
        &self.counts
    }

    /// The shares of messages that were turned away, by reason and field, the largest first.
    pub fn reasons(&self) -> Vec<(RejectCode, String)> {
        let mut reasons: Vec<_> = self.rejected.iter().collect();
        reasons.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let told = |((slot, code), count): (&(Option<usize>, RejectCode), &u64)| {
            let share = share(*count, self.messages);
            (*code, format!("{share} rejected as {}{}", code.as_str(), self.within(*slot)))
        };
        reasons.into_iter().map(told).collect()
    }

    /// What to tell about messages that were turned away, and about null values: shares by field; `None` if there is nothing to tell.
    pub fn troubles(&self) -> Option<String> {
        let null = self.counts.iter().enumerate().filter(|(_, counts)| counts.null > 0);
        let null =
            null.map(|(slot, counts)| format!("{} null{}", share(counts.null, self.records), self.within(Some(slot))));
        let told: Vec<String> = self.reasons().into_iter().map(|(_, told)| told).chain(null).collect();
        (!told.is_empty()).then(|| told.join(", "))
    }

    fn within(&self, slot: Option<usize>) -> String {
        slot.map_or(String::new(), |slot| format!(" in `{}`", self.fields[slot].0))
    }

    /// The fields that may be told: at least half of the records have them, and not only a few.
    pub fn present(&self) -> Vec<&Path> {
        let common = |count: &u64| *count >= ENOUGH && *count * 2 >= self.listed;
        let mut present: Vec<&Path> =
            self.names.iter().filter(|(_, count)| common(count)).map(|(path, _)| path).collect();
        present.sort();
        present
    }

    /// True if the policy names a field at `path`, or one around it.
    pub fn knows(&self, path: &Path) -> bool {
        self.fields.iter().any(|(_, field, _)| field.contains(path))
    }

    /// The slots of fields that no record has, or nearly none if it needs them.
    pub fn absent(&self) -> Vec<usize> {
        let absent = |slot: &usize| {
            let there = self.records - self.counts[*slot].missing;
            there == 0 || there * SELDOM < self.records && !self.is_optional(*slot)
        };
        (0..self.fields.len()).filter(|slot| self.records > 0 && absent(slot)).collect()
    }

    /// Those of the absent fields that are surely a mistake, and those that later records may well have: optional ones whose names are
    /// like no other.
    pub fn mistaken(&self) -> (Vec<usize>, Vec<usize>) {
        let present = self.present();
        let like_none = |slot: &usize| nearest(&self.fields[*slot].1, present.iter().copied()).is_none();
        let later = |slot: &usize| self.is_optional(*slot) && !self.is_read(*slot) && like_none(slot);
        self.absent().into_iter().partition(|slot| !later(slot))
    }

    /// True if a record can do without the field.
    fn is_optional(&self, slot: usize) -> bool {
        !self.fields[slot].2.iter().any(|role| role.is_needed())
    }

    /// True if conditions of the policy read the field.
    fn is_read(&self, slot: usize) -> bool {
        self.fields[slot].2.contains(&Role::Private)
    }

    /// What to tell about absent fields: what there is instead.
    pub fn told(&self, absent: &[usize]) -> String {
        let present = self.present();
        let missing = absent.iter().map(|slot| {
            let (name, path, _) = &self.fields[*slot];
            let who = if self.counts[*slot].missing == self.records { "no record has" } else { "hardly a record has" };
            let name = if name == path.text() { name.to_string() } else { format!("{path}` for `{name}") };
            format!("{who} `{name}`{}", meant(path, &present))
        });
        let missing = missing.collect::<Vec<_>>().join(", ").replace("?, ", "? ");
        format!("{missing}{}", self.there(&present))
    }

    /// What to tell if every message was turned away, of at least so many: the reasons, and what there is.
    pub fn all_rejected(&self, least: u64) -> Option<String> {
        if self.messages < least.max(1) || self.rejected() < self.messages {
            return None;
        }
        let reasons = self.reasons();
        let told: Vec<&str> = reasons.iter().map(|(_, told)| told.as_str()).collect();
        let told = told.join(", ");
        let present = self.present();
        let remedy = reasons.first().map_or("", |(code, _)| remedy(*code));
        let array =
            self.array.as_ref().filter(|_| self.records == 0).map_or(String::new(), |array| meant(array, &present));
        Some(format!("{told}{remedy}{array}{}", self.there(&present)))
    }

    /// What there is.
    fn there(&self, present: &[&Path]) -> String {
        match present.is_empty() {
            true if self.messages == 1 => {
                "; the input is one object: if the records stand in an array of it, name that with `explode`, or write one object per line"
                    .into()
            }
            true => String::new(),
            false => {
                let names: Vec<String> = present.iter().map(ToString::to_string).collect();
                format!("; most records have {}", names.join(", "))
            }
        }
    }
}

fn share(count: u64, of: u64) -> String {
    format!("{:.1} %", 100.0 * count as f64 / of.max(count).max(1) as f64)
}

/// What was probably meant by `path`.
fn meant(path: &Path, present: &[&Path]) -> String {
    nearest(path, present.iter().copied()).map_or(String::new(), |near| format!(": did you mean `{near}`?"))
}

/// What to do about messages that are turned away for this reason, to be put behind it.
pub(crate) fn remedy(code: RejectCode) -> &'static str {
    match code {
        RejectCode::UnknownValue => ": extend the hierarchy, or write `unknown_value: suppress` or `top`",
        RejectCode::MissingField => ": check its name with `validate --sample FILE`",
        RejectCode::NotAnObject => {
            ": a path leads through objects only; keep a whole array, take it apart with `explode`, or name another field"
        }
        RejectCode::NotScalar => {
            ": a hierarchy reads single values; name a field inside, or take an array apart with `explode`"
        }
        RejectCode::DuplicateKey => ": an object has one key twice, and which value is meant cannot be told",
        RejectCode::NotAnArray => ": `explode` names an array of objects",
        RejectCode::NullField => ": write `null_value: suppress`",
        RejectCode::InvalidUtf8 => {
            ": give the encoding of the file, such as `--encoding latin-1` (`encoding: latin-1` under `source.file`)"
        }
        RejectCode::Malformed => {
            ": check the format; JSON is one object per line, or one array of objects, and a line of CSV has as many fields as the \
             first one, with quotes in pairs"
        }
        RejectCode::TooLarge => ": raise `limits.max_record_bytes`",
        RejectCode::NoSubject => ": each record needs a subject to be counted",
        RejectCode::NotAChange => ": remove `envelope: debezium`, or name a topic of change events",
        _ => "",
    }
}

/// The field that was probably meant: one of the same name elsewhere, or one that is spelt alike.
pub(super) fn nearest<'a>(path: &Path, present: impl Iterator<Item = &'a Path> + Clone) -> Option<&'a Path> {
    let last = |path: &Path| path.names().last().map(|name| name.to_lowercase());
    let elsewhere = present.clone().find(|other| last(other) == last(path));
    let text = path.text().to_lowercase();
    let most = text.chars().count() / 3;
    let by_distance = present.map(|other| (osa_distance(&text, &other.text().to_lowercase()), other));
    let alike = by_distance.filter(|(distance, _)| *distance <= most).min_by_key(|(distance, _)| *distance);
    elsewhere.or(alike.map(|(_, other)| other))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::Decode as _;
    use crate::codec::json::JsonDecoder;

    fn survey(fields: &[(&str, Role)], texts: &[&str]) -> Survey {
        let schema = Schema::new(fields.iter().copied());
        let mut decoder = JsonDecoder::new(&schema, 10_000);
        let mut survey = Survey::new(&schema);
        for text in texts {
            let read = decoder.decode(text.as_bytes());
            let fields = || JsonDecoder::new(&schema, 10_000).fields(text.as_bytes());
            if let Ok(record) = &read {
                survey.add(record, fields);
            }
            survey.message(read.as_ref().map(|_| ()), fields);
        }
        survey
    }

    #[test]
    fn a_misspelt_field_is_told_with_the_one_that_is_meant() {
        let fields = [("agee", Role::Quasi), ("zip", Role::Quasi), ("job", Role::Sensitive)];
        let survey = survey(&fields, &[r#"{"age":1,"home":{"zip":"1"},"tags":[{"x":1}],"job":null}"#; 20]);
        assert_eq!(
            survey.told(&survey.absent()),
            "no record has `agee`: did you mean `age`? no record has `zip`: did you mean `home.zip`?; most records have age, \
             home.zip, job, tags"
        );
        assert_eq!(survey.counts()[2], FieldCounts { missing: 0, null: 20 }, "null is a value that is there");
    }

    #[test]
    fn a_needed_field_of_one_record_in_a_hundred_is_there() {
        let fields = [("age", Role::Quasi), ("note", Role::Insensitive), ("seen", Role::Private)];
        let texts = |n: usize| [vec!["{}"; n], vec![r#"{"age":1,"note":2,"seen":3}"#; 2]].concat();
        assert_eq!(survey(&fields, &texts(198)).absent(), [0; 0]);
        assert_eq!(survey(&fields, &texts(199)).absent(), [0], "others may be in a few records");
        assert_eq!(survey(&fields, &["{}"; 30]).mistaken(), (vec![0, 2], vec![1]));
        assert_eq!(survey(&fields, &[r#"{"age":1,"notes":2,"seen":3}"#; 30]).mistaken(), (vec![1], vec![]));
        assert_eq!(survey(&fields, &[r#"{"age":1,"notes":2,"seen":3}"#; 19]).mistaken(), (vec![], vec![1]));
    }

    #[test]
    fn values_that_are_not_as_expected_are_told_by_field() {
        let mut survey = survey(&[("age", Role::Quasi), ("job", Role::Sensitive)], &[r#"{"age":1,"job":null}"#; 3]);
        survey.message(Err(&Reject::field(RejectCode::UnknownValue, 0)), Vec::new);
        assert_eq!(
            survey.troubles().as_deref(),
            Some("25.0 % rejected as unknown_value in `age`, 100.0 % null in `job`")
        );
        assert_eq!(survey.all_rejected(1), None);
    }

    #[test]
    fn messages_that_are_all_turned_away_are_told_with_their_reasons() {
        let fields = [("age", Role::Quasi)];
        let mut survey = survey(&fields, &[["x"; 15], ["{"; 15]].concat());
        survey.message(Err(&Reject::record(RejectCode::NoRow)), Vec::new);
        assert_eq!(survey.messages(), 30, "a message about no row is none");
        assert!(survey.all_rejected(20).unwrap().starts_with("100.0 % rejected as malformed"));
        assert_eq!(survey.all_rejected(31), None);
    }

    #[test]
    fn names_that_few_records_have_are_not_told() {
        let some = [
            [r#"{"friends":{"Ada Lovelace":1},"x":1}"#; 19].as_slice(),
            &[r#"{"friends":{"Alan Turing":1},"x":1}"#; 15],
            &[r#"{"x":1}"#; 9],
        ];
        let told = |texts: &[&str]| {
            let survey = survey(&[("q", Role::Quasi)], texts);
            survey.told(&survey.absent())
        };
        assert_eq!(told(&some.concat()), "no record has `q`; most records have x");
        assert_eq!(told(some[0]), "no record has `q`", "a few records tell no name at all");
    }
}
