//! Record -> Row: values become dictionary codes, the subject becomes a keyed hash, kept values become JSON text.
//!
//! A sensitive value has two codes: of the text that is published, and of what that text is counted as.
//!
//! Invariant: a value outside its hierarchy never becomes a code of its own; what happens to its record is the policy's
//! choice. Dictionaries only grow, so codes stay valid from window to window.

mod recent;

use std::borrow::Cow;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use recent::Recent;

use crate::model::batch::Row;
use crate::model::confidential::{Field, Profile, Profiler};
use crate::model::counting::{NO_VALUE, Values};
use crate::model::domain::{Code, Domain, DomainView};
use crate::model::event::{Millis, Reject, RejectCode};
use crate::model::hierarchy::Hierarchy;
use crate::model::policy::{Fallback, Policy};
use crate::model::record::{Record, Value, canonical_text, counted_json, write_json_set};
use crate::model::release::tombstone::Retracts;
use crate::model::schema::Schema;

/// The fate of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Encoded {
    /// It is on its way into a window, as [`Encoder::row`].
    Row,
    /// The policy suppresses it for a value it cannot place.
    Suppressed,
    /// It is turned away.
    Rejected(Reject),
    /// It is none, and is turned away; records that wait may be retracted by it.
    Tombstone(Retracts),
}

/// The dictionaries as they were when a window closed.
#[derive(Clone, Default)]
pub struct Dictionaries {
    /// One per quasi-identifier.
    pub quasi: Vec<Arc<DomainView>>,
    /// One per sensitive field: what values are counted as. Labels are
    /// [`counted_text`](crate::model::record::counted_text), and no value is [`NO_VALUE`].
    pub sensitive: Vec<Arc<DomainView>>,
    /// One per sensitive field: what is published, as JSON text.
    pub written: Vec<Arc<DomainView>>,
    /// The meaning of the profile codes.
    pub profiles: Arc<Vec<Profile>>,
}

impl Dictionaries {
    /// The meaning of the codes, for the criteria.
    pub fn values(&self) -> Values<'_> {
        Values { sensitive: &self.sensitive, written: &self.written, profiles: &self.profiles, shares: &[] }
    }
}

/// Turns records into rows.
pub struct Encoder {
    policy: Arc<Policy>,
    quasi: Vec<(Domain, Recent)>,
    sensitive: Vec<Carried>,
    label: Carried,
    profiler: Profiler,
    hasher: RandomState,
    row: Row,
    /// The rows before the last one of the message that is being read.
    earlier: Vec<(Encoded, Row)>,
    scratch: String,
}

impl Encoder {
    /// An encoder with empty dictionaries (closed hierarchies are known in full).
    pub fn new(policy: Arc<Policy>) -> Self {
        let domain = |hierarchy: &Arc<Hierarchy>| (Domain::new(Arc::clone(hierarchy)), Recent::new());
        Self {
            quasi: policy.quasi.iter().map(|q| domain(&q.hierarchy)).collect(),
            sensitive: policy.schema.sensitive.iter().map(|_| Carried::new()).collect(),
            label: Carried::new(),
            profiler: Profiler::new(policy.sentences()),
            hasher: RandomState::new(),
            row: Row::default(),
            earlier: Vec::new(),
            scratch: String::new(),
            policy,
        }
    }

    /// Encodes one record; `timestamp` is the source's own.
    pub fn encode(&mut self, record: &Record<'_>, timestamp: Option<Millis>) -> Encoded {
        match self.fill(record, timestamp) {
            Ok(true) => Encoded::Row,
            Ok(false) => Encoded::Suppressed,
            Err(reject) => Encoded::Rejected(reject),
        }
    }

    /// Encodes the records of a message and gives each to `take`, as the row that was encoded last. `read` hands the records out. A
    /// message has one outcome at one position: if a record of it is turned away, the whole message is.
    pub fn message<E>(
        &mut self,
        timestamp: Option<Millis>,
        key: Option<&[u8]>,
        read: impl FnOnce(&mut dyn FnMut(&Record<'_>)) -> Result<(), Reject>,
        mut take: impl FnMut(&Self, Encoded) -> Result<(), E>,
    ) -> Result<(), E> {
        let (mut last, mut refused) = (None, None);
        let read = read(&mut |record| {
            if refused.is_none() {
                self.earlier.extend(last.take().map(|encoded| (encoded, std::mem::take(&mut self.row))));
                match self.encode(record, timestamp) {
                    Encoded::Rejected(reject) => refused = Some(reject),
                    encoded => {
                        self.set_key(key);
                        last = Some(encoded);
                    }
                }
            }
        });
        let mut earlier = std::mem::take(&mut self.earlier);
        if let Some(reject) = read.err().or(refused) {
            return take(self, Encoded::Rejected(reject));
        }
        if !earlier.is_empty() {
            earlier.extend(last.take().map(|encoded| (encoded, std::mem::take(&mut self.row))));
        }
        for (encoded, row) in earlier {
            self.row = row;
            take(self, encoded)?;
        }
        last.map_or(Ok(()), |encoded| take(self, encoded))
    }

    /// Gives the row that was encoded last its message's key.
    #[inline]
    pub fn set_key(&mut self, key: Option<&[u8]>) {
        self.row.key = key.map_or(0, |key| self.key(key));
    }

    /// The fate of a message with this key and no payload.
    pub fn tombstone(&self, key: &[u8]) -> Encoded {
        let text = std::str::from_utf8(key).ok().filter(|_| self.policy.schema.subject.is_some());
        let subject = text.and_then(|text| self.subject(&Value::Text(text.into())));
        Encoded::Tombstone(Retracts { key: self.key(key), subject })
    }

    /// A keyed hash of a key; never 0.
    fn key(&self, key: &[u8]) -> u64 {
        self.hasher.hash_one(key).max(1)
    }

    /// A keyed hash of a subject's name, whatever it is written as.
    fn subject(&self, value: &Value<'_>) -> Option<u64> {
        let name = value.counted();
        (!name.is_empty()).then(|| self.hasher.hash_one(&*name))
    }

    /// The row that was encoded last.
    pub fn row(&self) -> &Row {
        &self.row
    }

    /// The dictionaries as they are now.
    pub fn dictionaries(&self) -> Dictionaries {
        Dictionaries {
            quasi: self.quasi.iter().map(|(domain, _)| domain.view()).collect(),
            sensitive: self.sensitive.iter().map(|field| field.counted.view()).collect(),
            written: self.sensitive.iter().map(|field| field.written.view()).collect(),
            profiles: self.profiler.profiles(),
        }
    }

    /// How many leaf codes each quasi-identifier has.
    pub fn sizes(&self) -> Vec<usize> {
        self.quasi.iter().map(|(domain, _)| domain.len()).collect()
    }

    /// Fills the row; false if the policy suppresses the record.
    fn fill(&mut self, record: &Record<'_>, timestamp: Option<Millis>) -> Result<bool, Reject> {
        let schema = &self.policy.schema;
        self.row.quasi.clear();
        self.row.sensitive.clear();
        self.row.written.clear();
        self.row.kept.clear();
        self.row.key = 0;
        for ((domain, recent), &slot) in self.quasi.iter_mut().zip(&schema.quasi) {
            let value = quasi_value(schema, record, slot);
            let code = match &*value {
                // Numbers are canonical already.
                Value::Number(text) => recent.code(text, || domain.code(text)),
                Value::Text(text) => recent.code(text, || domain.code(&canonical_text(text))),
                other => other.canonical().and_then(|text| domain.code(&text)),
            };
            let Some(code) = code else {
                let (fallback, reason) = match &*value {
                    Value::Missing => (self.policy.missing_value, RejectCode::MissingField),
                    Value::Null => (self.policy.null_value, RejectCode::NullField),
                    Value::Nested(_) => (Fallback::Reject, RejectCode::NotScalar),
                    _ => (self.policy.unknown_value, RejectCode::UnknownValue),
                };
                match fallback {
                    Fallback::Reject => return Err(Reject::field(reason, slot)),
                    Fallback::Suppress => return Ok(false),
                    Fallback::Top => {
                        self.row.quasi.push(domain.top_code().ok_or(Reject::field(reason, slot))?);
                    }
                }
                continue;
            };
            self.row.quasi.push(code);
        }
        for (field, &slot) in self.sensitive.iter_mut().zip(&schema.sensitive) {
            let (written, counted) = field.codes(&record.values[slot], slot, &mut self.scratch)?;
            self.row.written.push(written);
            self.row.sensitive.push(counted);
        }
        if let Some(slot) = schema.label {
            self.row.label = self.label.codes(&record.values[slot], slot, &mut self.scratch)?.1;
        }
        // Private ones last: what is sent of a row ends with the kept fields.
        for &slot in schema.keep.iter().chain(&schema.private) {
            record.values[slot].write_json(&mut self.row.kept);
            self.row.kept.push('\n');
        }
        if let Some(slot) = schema.subject {
            let subject = self.subject(&record.values[slot]);
            self.row.subject = subject.ok_or(Reject::field(RejectCode::NoSubject, slot))?;
        }
        self.row.event_time = match schema.event_time {
            Some(slot) => Some(event_time(&record.values[slot]).ok_or(Reject::field(RejectCode::BadEventTime, slot))?),
            None => timestamp,
        };
        self.profile();
        Ok(true)
    }

    /// Reads what the confidential sentences say of the row.
    fn profile(&mut self) {
        let (fields, row) = (&self.sensitive, &self.row);
        let text = |field: Field| match field {
            Field::Sensitive(i) => Cow::Borrowed(fields[i].counted.leaf_label(row.sensitive[i])),
            Field::Kept(i) => row.kept.split_terminator('\n').nth(i).map(counted_json).unwrap_or_default(),
        };
        let profile = self.profiler.code(&row.sensitive, text);
        self.row.profile = profile;
    }
}

/// The dictionaries of a field that is published as it is.
struct Carried {
    written: Domain,
    recent: Recent,
    counted: Domain,
    /// For each written text the code of what it is counted as, so that a text is read once.
    counted_as: Vec<Code>,
}

impl Carried {
    fn new() -> Self {
        let any = Arc::new(Hierarchy::trivial());
        let mut counted = Domain::new(Arc::clone(&any));
        let none = counted.code("");
        debug_assert_eq!(none, Some(NO_VALUE));
        Self { written: Domain::new(any), recent: Recent::new(), counted, counted_as: Vec::new() }
    }

    /// The codes of a value as it is written and as it is counted. `json` is a buffer.
    fn codes(&mut self, value: &Value<'_>, slot: usize, json: &mut String) -> Result<(Code, Code), Reject> {
        json.clear();
        let domain = &mut self.written;
        if let Value::Nested(array) = value {
            // An object is refused here as well: it is no array.
            write_json_set(array, json).ok_or(Reject::field(RejectCode::NotScalar, slot))?;
        }
        let mut look_up = || {
            if !matches!(value, Value::Nested(_)) {
                value.write_json(json);
            }
            domain.code(json)
        };
        let written = match value {
            Value::Missing => return Err(Reject::field(RejectCode::MissingField, slot)),
            // Only texts are at hand: the number 7 is written otherwise than the text "7".
            Value::Text(text) => self.recent.code(text, look_up),
            _ => look_up(),
        };
        let full = || Reject::field(RejectCode::UnknownValue, slot);
        let written = written.ok_or_else(full)?;
        while self.counted_as.len() <= written as usize {
            let text = counted_json(self.written.leaf_label(self.counted_as.len() as Code));
            self.counted_as.push(self.counted.code(&text).ok_or_else(full)?);
        }
        Ok((written, self.counted_as[written as usize]))
    }
}

/// The value of a quasi-identifier: that of its field, or of the two fields that it is made of.
pub fn quasi_value<'r, 'a>(schema: &Schema, record: &'r Record<'a>, slot: usize) -> Cow<'r, Value<'a>> {
    match schema.pairs.iter().find(|(quasi, _)| *quasi == slot) {
        Some(&(_, second)) => Cow::Owned(beside(&record.values[slot], &record.values[second])),
        None => Cow::Borrowed(&record.values[slot]),
    }
}

/// Two values as one text, with a semicolon between: they may have a comma before their fraction. What is wrong with one of them is
/// wrong with both.
fn beside(first: &Value<'_>, second: &Value<'_>) -> Value<'static> {
    match (first, second) {
        (Value::Missing, _) | (_, Value::Missing) => Value::Missing,
        (Value::Null, _) | (_, Value::Null) => Value::Null,
        _ => match (first.canonical(), second.canonical()) {
            (Some(first), Some(second)) => Value::Text(format!("{first};{second}").into()),
            _ => Value::Nested("[]".into()),
        },
    }
}

/// Milliseconds since the epoch as a number, or a date or timestamp in ISO 8601.
fn event_time(value: &Value<'_>) -> Option<Millis> {
    let text = value.canonical()?;
    if let Ok(millis) = text.parse::<i64>() {
        return Some(Millis(millis));
    }
    if let Ok(timestamp) = text.parse::<jiff::Timestamp>() {
        return Some(Millis(timestamp.as_millisecond()));
    }
    let civil = text.parse::<jiff::civil::DateTime>().ok()?;
    Some(Millis(civil.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp().as_millisecond()))
}
