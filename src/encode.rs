//! Record -> Row: values become dictionary codes, the subject becomes a keyed hash, kept values become JSON text.
//!
//! Invariant: a value outside its hierarchy never becomes a code of its own; what happens to its record is the policy's
//! choice. Dictionaries only grow, so codes stay valid from window to window.

mod recent;

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use recent::Recent;
use smallvec::SmallVec;

use crate::model::batch::Row;
use crate::model::confidential::{Field, Profile, Profiler};
use crate::model::counting::Values;
use crate::model::domain::{Domain, DomainView};
use crate::model::event::{Millis, Reject, RejectCode};
use crate::model::hierarchy::Hierarchy;
use crate::model::policy::{Fallback, Policy};
use crate::model::record::{Record, Value, canonical_text, write_json_string};
use crate::model::tombstone::Retracts;

/// What became of a record.
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
#[derive(Clone)]
pub struct Dictionaries {
    /// One per quasi-identifier.
    pub quasi: Vec<Arc<DomainView>>,
    /// One per sensitive field; labels are JSON text.
    pub sensitive: Vec<Arc<DomainView>>,
    /// What the profile codes mean.
    pub profiles: Arc<Vec<Profile>>,
}

impl Dictionaries {
    /// What the codes mean, for the criteria.
    pub fn values(&self) -> Values<'_> {
        Values { sensitive: &self.sensitive, profiles: &self.profiles }
    }
}

/// Turns records into rows.
pub struct Encoder {
    policy: Arc<Policy>,
    quasi: Vec<(Domain, Recent)>,
    sensitive: Vec<(Domain, Recent)>,
    label: (Domain, Recent),
    profiler: Profiler,
    hasher: RandomState,
    row: Row,
    scratch: String,
}

impl Encoder {
    /// An encoder with empty dictionaries (closed hierarchies are known in full).
    pub fn new(policy: Arc<Policy>) -> Self {
        let domain = |hierarchy: &Arc<Hierarchy>| (Domain::new(Arc::clone(hierarchy)), Recent::new());
        let trivial = Arc::new(Hierarchy::trivial());
        let open = || domain(&trivial);
        Self {
            quasi: policy.quasi.iter().map(|q| domain(&q.hierarchy)).collect(),
            sensitive: policy.schema.sensitive.iter().map(|_| open()).collect(),
            label: open(),
            profiler: Profiler::new(policy.sentences()),
            hasher: RandomState::new(),
            row: Row::default(),
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

    /// Gives the row that was encoded last its message's key.
    #[inline]
    pub fn set_key(&mut self, key: Option<&[u8]>) {
        self.row.key = key.map_or(0, |key| self.key(key));
    }

    /// What becomes of a message with this key and no payload.
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
        let name = value.canonical().filter(|name| !name.is_empty())?;
        Some(self.hasher.hash_one(&*name))
    }

    /// The row that was encoded last.
    pub fn row(&self) -> &Row {
        &self.row
    }

    /// The dictionaries as they are now.
    pub fn dictionaries(&self) -> Dictionaries {
        Dictionaries {
            quasi: self.quasi.iter().map(|(domain, _)| domain.view()).collect(),
            sensitive: self.sensitive.iter().map(|(domain, _)| domain.view()).collect(),
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
        self.row.kept.clear();
        self.row.key = 0;
        for ((domain, recent), &slot) in self.quasi.iter_mut().zip(&schema.quasi) {
            let value = &record.values[slot];
            let code = match value {
                // Numbers are canonical already.
                Value::Number(text) => recent.code(text, || domain.code(text)),
                Value::Text(text) => recent.code(text, || domain.code(&canonical_text(text))),
                other => other.canonical().and_then(|text| domain.code(&text)),
            };
            let Some(code) = code else {
                let (fallback, reason) = match value {
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
        for (domain, &slot) in self.sensitive.iter_mut().zip(&schema.sensitive) {
            self.row.sensitive.push(carried(domain, &record.values[slot], slot, &mut self.scratch)?);
        }
        if let Some(slot) = schema.label {
            self.row.label = carried(&mut self.label, &record.values[slot], slot, &mut self.scratch)?;
        }
        for &slot in &schema.keep {
            record.values[slot].write_json(&mut self.row.kept);
            self.row.kept.push('\n');
        }
        if !self.profiler.is_empty() {
            let views: SmallVec<[Arc<DomainView>; 4]> =
                self.sensitive.iter().map(|(domain, _)| domain.view()).collect();
            let json = |field: Field| match field {
                Field::Sensitive(i) => Some(views[i].level(0).label(self.row.sensitive[i])),
                Field::Kept(i) => self.row.kept.split_terminator('\n').nth(i),
            };
            self.row.profile = self.profiler.code(&self.row.sensitive, json);
        }
        if let Some(slot) = schema.subject {
            let subject = self.subject(&record.values[slot]);
            self.row.subject = subject.ok_or(Reject::field(RejectCode::NoSubject, slot))?;
        }
        self.row.event_time = match schema.event_time {
            Some(slot) => Some(event_time(&record.values[slot]).ok_or(Reject::field(RejectCode::BadEventTime, slot))?),
            None => timestamp,
        };
        Ok(true)
    }
}

/// The code of a value that is published as it is. Spellings that cannot be told apart by eye are one value.
fn carried(
    (domain, recent): &mut (Domain, Recent),
    value: &Value<'_>,
    slot: usize,
    json: &mut String,
) -> Result<u32, Reject> {
    json.clear();
    let code = match value {
        Value::Missing => return Err(Reject::field(RejectCode::MissingField, slot)),
        Value::Nested(_) => return Err(Reject::field(RejectCode::NotScalar, slot)),
        // Only texts are at hand: the number 7 is another value than the text "7".
        Value::Text(text) => recent.code(text, || {
            write_json_string(&canonical_text(text), json);
            domain.code(json)
        }),
        other => {
            other.write_json(json);
            domain.code(json)
        }
    };
    code.ok_or(Reject::field(RejectCode::UnknownValue, slot))
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
