//! Messages to rows: Event -> Record -> Row, with the reader of the event's placement.
//!
//! A message can hold several records. They are handed on one after the other, all or none of them, at the position of the message.
//! Until a window closes with enough messages of a placement, they are surveyed: a misspelt field, or messages of another kind, stop
//! the pipeline before anything of them is published or committed, unless the input may start badly. Later ones do not: bad messages in the middle of a stream are rejected one
//! by one.

use std::sync::Arc;

use super::decoded::Decoded;
use crate::codec::RecordReader;
use crate::codec::survey::{ENOUGH, Survey};
use crate::encode::{Encoded, Encoder};
use crate::model::event::{Event, Reject, RejectCode};
use crate::model::policy::Policy;
use crate::model::record::Record;
use crate::model::schema::Path;
use crate::telemetry::Telemetry;

use super::PipelineError;

/// Reads messages.
pub(super) struct RecordIntake {
    readers: Vec<RecordReader>,
    /// The messages so far, by placement, until they have been judged.
    surveys: Vec<Option<Survey>>,
    encoder: Encoder,
    telemetry: Arc<Telemetry>,
}

impl RecordIntake {
    /// Nothing read yet; a reader for each placement.
    pub(super) fn new(readers: Vec<RecordReader>, policy: &Arc<Policy>, telemetry: &Arc<Telemetry>) -> Self {
        let surveys = readers.iter().map(|reader| Some(reader.survey())).collect();
        Self { readers, surveys, encoder: Encoder::new(Arc::clone(policy)), telemetry: Arc::clone(telemetry) }
    }

    /// By placement, whether its next events have to be decoded here, because their fields are surveyed.
    pub(super) fn surveyed(&self) -> impl Iterator<Item = bool> + '_ {
        self.surveys.iter().map(|survey| survey.as_ref().is_some_and(Survey::lists_fields))
    }

    /// The dictionaries, and the row that was encoded last.
    pub(super) fn encoder(&self) -> &Encoder {
        &self.encoder
    }

    /// Hands on what became of each record of a message, as the row that was encoded last. A message that is not decoded yet is
    /// decoded here.
    pub(super) fn read<E>(
        &mut self,
        event: &Event,
        decoded: Option<Decoded<'_, '_>>,
        mut take: impl FnMut(&Encoder, Encoded) -> Result<(), E>,
    ) -> Result<(), E> {
        let key = event.key.as_deref();
        let telemetry = &self.telemetry;
        let mut tombstone = event.payload.is_none() && decoded.is_none();
        if !tombstone {
            let known = self.readers.get_mut(event.placement).zip(self.surveys.get_mut(event.placement));
            let Some((reader, survey)) = known else {
                return take(&self.encoder, Encoded::Rejected(Reject::record(RejectCode::Malformed)));
            };
            let payload = event.payload.as_deref().unwrap_or_default();
            let read = |each: &mut dyn FnMut(&Record<'_>)| {
                let mut surveyed = |record: &Record<'_>, fields: &dyn Fn() -> Vec<Path>| {
                    if let Some(survey) = survey {
                        survey.add(record, fields);
                    }
                    each(record);
                };
                match decoded {
                    Some(decoded) => decoded.each(|record| surveyed(record, &Vec::new)),
                    None => reader.each(payload, surveyed),
                }
            };
            let mut refused = None;
            self.encoder.message(event.timestamp, key, read, |encoder, encoded| match encoded {
                Encoded::Rejected(reject) if reject.code == RejectCode::Tombstone => {
                    (tombstone, refused) = (true, Some(reject));
                    Ok(())
                }
                encoded => {
                    if let Encoded::Rejected(reject) = &encoded {
                        telemetry.rejected(event.position, reject);
                        refused = Some(reject.clone());
                    }
                    take(encoder, encoded)
                }
            })?;
            if let Some(survey) = survey {
                survey.message(refused.as_ref().map_or(Ok(()), Err), || reader.fields(payload));
            }
        }
        if !tombstone {
            return Ok(());
        }
        let reject = Reject::record(RejectCode::Tombstone);
        telemetry.rejected(event.position, &reject);
        let encoded = key.map_or(Encoded::Rejected(reject), |key| self.encoder.tombstone(key));
        take(&self.encoder, encoded)
    }

    /// The row of a record that was read before: it is neither counted nor rejected again. False if this policy cannot read it.
    pub(super) fn read_again(&mut self, event: &Event) -> bool {
        let (Some(reader), Some(payload)) = (self.readers.get_mut(event.placement), &event.payload) else {
            return false;
        };
        let mut encoded = None;
        let read = reader.each(payload, |record, _| encoded = Some(self.encoder.encode(record, event.timestamp)));
        read.is_ok() && encoded == Some(Encoded::Row)
    }

    /// Refuses the first messages of a placement if nothing useful could be published of them: a field of the policy is in none of them,
    /// or all of them, `least` or more, are turned away.
    pub(super) fn check(&mut self, least: u64) -> Result<(), PipelineError> {
        for (of_placement, reader) in self.surveys.iter_mut().zip(&self.readers) {
            let Some(survey) = of_placement.as_ref().filter(|survey| survey.messages() > 0) else { continue };
            let (mistaken, later) = survey.mistaken();
            if !mistaken.is_empty() {
                return Err(PipelineError::NoSuchField(survey.told(&mistaken)));
            }
            if let Some(told) = survey.all_rejected(least) {
                if !reader.may_start_badly() {
                    return Err(PipelineError::AllRejected(told));
                }
                tracing::warn!(reasons = told, "every message so far is rejected");
                // A misspelt field shows when there is a record.
                continue;
            }
            if survey.messages() < ENOUGH {
                continue;
            }
            if let Some(values) = survey.troubles() {
                tracing::warn!(values, "values of the first window that are not as the policy expects");
            }
            if !later.is_empty() {
                tracing::warn!(
                    fields = survey.told(&later),
                    "fields of the policy that the first window does not have"
                );
            }
            *of_placement = None;
        }
        Ok(())
    }
}
