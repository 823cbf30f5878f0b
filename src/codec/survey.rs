//! Which fields records have, against those that the policy names: found before anything is published.
//!
//! A survey counts, per field of the policy, how often it is missing or null, and which other fields there are. Their names are the
//! input's own: an object that serves as a map has people's names for keys, so a name is told only if at least half of the records
//! have it, and only the names of so many fields are counted at all.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use strsim::osa_distance;

use crate::model::event::{Reject, RejectCode};
use crate::model::record::{Record, Value};
use crate::model::schema::{Path, Role, Schema};

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
    counts: Vec<FieldCounts>,
    records: u64,
    unread: u64,
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
        Self { fields, counts, records: 0, unread: 0, rejected: BTreeMap::new(), listed: 0, names: HashMap::new() }
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

    /// Takes in a payload that could not be decoded, for this reason.
    pub fn add_unread(&mut self, code: RejectCode, fields: impl FnOnce() -> Vec<Path>) {
        if !matches!(code, RejectCode::Tombstone | RejectCode::NoRow) {
            self.unread += 1;
            self.list(fields);
        }
    }

    /// Notes why a message was turned away.
    pub fn reject(&mut self, reject: &Reject) {
        *self.rejected.entry((reject.field, reject.code)).or_default() += 1;
    }

    /// What to tell about messages that were turned away, and about null values: shares by field; `None` if there is nothing to tell.
    pub fn troubles(&self) -> Option<String> {
        let share = |count: u64| format!("{:.1} %", 100.0 * count as f64 / self.records.max(count) as f64);
        let name = |slot: Option<usize>| slot.map_or(String::new(), |slot| format!(" in `{}`", self.fields[slot].0));
        let rejected = self.rejected.iter();
        let rejected = rejected
            .map(|((slot, code), count)| format!("{} rejected as {}{}", share(*count), code.as_str(), name(*slot)));
        let null = self.counts.iter().enumerate().filter(|(_, counts)| counts.null > 0);
        let null = null.map(|(slot, counts)| format!("{} null{}", share(counts.null), name(Some(slot))));
        let told: Vec<String> = rejected.chain(null).collect();
        (!told.is_empty()).then(|| told.join(", "))
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

    /// How many records were decoded.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// How many payloads were not.
    pub fn unread(&self) -> u64 {
        self.unread
    }

    /// The counts of each field of the policy, in slot order.
    pub fn counts(&self) -> &[FieldCounts] {
        &self.counts
    }

    /// The fields that at least half of the records have, by name.
    pub fn present(&self) -> Vec<&Path> {
        let mut present: Vec<&Path> =
            self.names.iter().filter(|(_, count)| **count * 2 >= self.listed).map(|(path, _)| path).collect();
        present.sort();
        present
    }

    /// True if the policy names a field at `path`, or one around it.
    pub fn knows(&self, path: &Path) -> bool {
        self.fields.iter().any(|(_, field, _)| field.contains(path))
    }

    /// The slots of fields with one of these roles that no record has.
    pub fn absent(&self, of: impl Fn(Role) -> bool) -> Vec<usize> {
        let absent = |slot: &usize| self.counts[*slot].missing == self.records;
        let wanted = |slot: &usize| self.fields[*slot].2.iter().any(|role| of(*role));
        (0..self.fields.len()).filter(|slot| self.records > 0 && absent(slot) && wanted(slot)).collect()
    }

    /// What to tell about fields that no record has: what there is instead.
    pub fn told(&self, absent: &[usize]) -> String {
        let present = self.present();
        let missing = absent.iter().map(|slot| {
            let (name, path, _) = &self.fields[*slot];
            let name = if name == path.text() { name.to_string() } else { format!("{path}` for `{name}") };
            match nearest(path, present.iter().copied()) {
                Some(near) => format!("no record has `{name}`: did you mean `{near}`?"),
                None => format!("no record has `{name}`"),
            }
        });
        let missing = missing.collect::<Vec<_>>().join(" ");
        if present.is_empty() {
            return missing;
        }
        let names = present.iter().map(|path| path.to_string()).collect::<Vec<_>>().join(", ");
        format!("{missing}; most records have {names}")
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
            let record = decoder.decode(text.as_bytes()).map_err(|reject| reject.code);
            match record {
                Ok(record) => survey.add(&record, || JsonDecoder::new(&schema, 10_000).fields(text.as_bytes())),
                Err(code) => survey.add_unread(code, || decoder.fields(text.as_bytes())),
            }
        }
        survey
    }

    #[test]
    fn a_misspelt_field_is_told_with_the_one_that_is_meant() {
        let fields = [("agee", Role::Quasi), ("zip", Role::Quasi), ("job", Role::Sensitive)];
        let survey = survey(&fields, &[r#"{"age":1,"home":{"zip":"1"},"tags":[{"x":1}],"job":null}"#; 2]);
        let absent = survey.absent(|role| role == Role::Quasi);
        assert_eq!(
            survey.told(&absent),
            "no record has `agee`: did you mean `age`? no record has `zip`: did you mean `home.zip`?; most records have age, \
             home.zip, job, tags"
        );
        assert_eq!(survey.counts()[2], FieldCounts { missing: 0, null: 2 });
        assert!(survey.absent(|role| role == Role::Sensitive).is_empty(), "null is a value that is there");
    }

    #[test]
    fn values_that_are_not_as_expected_are_told_by_field() {
        let mut survey = survey(&[("age", Role::Quasi), ("job", Role::Sensitive)], &[r#"{"age":1,"job":null}"#; 4]);
        survey.reject(&Reject::field(RejectCode::UnknownValue, 0));
        assert_eq!(
            survey.troubles().as_deref(),
            Some("25.0 % rejected as unknown_value in `age`, 100.0 % null in `job`")
        );
    }

    #[test]
    fn names_that_few_records_have_are_not_told() {
        let survey = survey(
            &[("q", Role::Quasi)],
            &[r#"{"friends":{"Ada Lovelace":1},"x":1}"#, r#"{"friends":{"Alan Turing":1},"x":1}"#, r#"{"x":1}"#],
        );
        let told = survey.told(&survey.absent(|role| role == Role::Quasi));
        assert_eq!(told, "no record has `q`; most records have x");
    }
}
