//! A whole file as one window, for the commands that make one release.
//!
//! They use the encoder, window, search and gate of the service. There is no later release, so no record can be held:
//! records that the release cannot protect are suppressed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use indicatif::ProgressBar;

use super::{Failure, InputArgs, max_record_bytes, now, reading, spinning, tell, working, writing};
use crate::anonymizer::{Anonymizer, Closing};
use crate::codec::RecordReader;
use crate::codec::survey::{Survey, remedy};
use crate::config::Config;
use crate::encode::{Encoded, Encoder};
use crate::gate::Release;
use crate::model::event::{Event, Reject, RejectCode};
use crate::model::policy::{Policy, RecodingKind, SuppressionAction};
use crate::model::record::Record;
use crate::model::schema::Schema;
use crate::pipeline::PipelineError;
use crate::search::choose::Choice;
use crate::search::insight::Insight;
use crate::source::{Preamble, file};
use crate::window::{CloseReason, ClosedWindow, OpenWindow, TooWide, WindowId};

/// Takes a message with the reader for it.
type Take<'a> = dyn FnMut(&Event, &mut RecordReader) -> Result<(), TooWide> + 'a;

/// The records of a file, encoded and counted.
pub(in crate::cli) struct Batch {
    /// The policy without holding.
    pub(in crate::cli) policy: Arc<Policy>,
    /// All records in one window.
    pub(in crate::cli) window: ClosedWindow,
    /// The header or schema of the file.
    pub(in crate::cli) preamble: Preamble,
    /// Drawn on a terminal, nothing in a pipe.
    progress: ProgressBar,
}

impl Batch {
    /// Reads the whole file.
    pub(in crate::cli) fn read(config: &Config, args: &InputArgs) -> Result<Self, Failure> {
        let (read, input) = args.open(config)?;
        let (progress, read) = reading(&args.input, read);
        let mut survey = Survey::new(&config.policy.schema);
        let batch = Self::gather(config, progress, &mut survey, |schema, each| {
            Ok(file::for_each_message(read, input, schema, |event, reader| each(event, reader).is_ok())?)
        })?;
        batch.check(&survey).inspect_err(|_| batch.finish())?;
        Ok(batch)
    }

    /// Takes events that are in memory already.
    pub(in crate::cli) fn of_events(config: &Config, preamble: &Preamble, events: &[Event]) -> Result<Self, Failure> {
        Self::gather(config, spinning(), &mut Survey::new(&config.policy.schema), |schema, each| {
            let mut reader = preamble.reader(schema, max_record_bytes(config))?;
            events.iter().try_for_each(|event| each(event, &mut reader))?;
            Ok(preamble.clone())
        })
    }

    /// Encodes and counts the records of the messages that `read` hands out.
    fn gather(
        config: &Config,
        progress: ProgressBar,
        survey: &mut Survey,
        read: impl FnOnce(&Schema, &mut Take<'_>) -> Result<Preamble, Failure>,
    ) -> Result<Self, Failure> {
        let policy = Arc::new(Policy { action: SuppressionAction::Drop, ..config.policy.clone() });
        let mut encoder = Encoder::new(Arc::clone(&policy));
        let counting = Arc::new(config.choice.rules(&policy).counting());
        let at = now();
        let mut window = OpenWindow::new(WindowId(0), at, &encoder, counting)?;
        let mut wide = Ok(());
        let preamble = read(&policy.schema, &mut |Event { position, payload, .. }, reader| {
            let records = |each: &mut dyn FnMut(&Record<'_>)| match payload {
                Some(payload) => reader.each(payload, |record, fields| {
                    survey.add(record, fields);
                    each(record);
                }),
                None => Err(Reject::record(RejectCode::Tombstone)),
            };
            let mut refused = None;
            let add = |encoder: &Encoder, encoded: Encoded| -> Result<(), TooWide> {
                refused = if let Encoded::Rejected(reject) = &encoded { Some(reject.clone()) } else { None };
                window.add(encoder, *position, at, encoded);
                Ok(())
            };
            wide = encoder.message(None, None, records, add);
            survey.message(refused.as_ref().map_or(Ok(()), Err), || {
                payload.as_deref().map_or_else(Vec::new, |payload| reader.fields(payload))
            });
            wide
        });
        wide?;
        let preamble = preamble?;
        working(&progress, "counting".into());
        let window = window.close(at, CloseReason::Drained, &encoder)?;
        Ok(Self { policy, window, preamble, progress })
    }

    /// Refuses records of which nothing useful can be published.
    fn check(&self, survey: &Survey) -> Result<(), Failure> {
        if let Some(absent) = Some(survey.absent()).filter(|absent| !absent.is_empty()) {
            return Err(PipelineError::NoSuchField(survey.told(&absent)).into());
        }
        match survey.all_rejected(1) {
            Some(told) => Err(PipelineError::AllRejected(told).into()),
            None if self.window.rows.is_empty() && survey.messages() == 0 => {
                self.progress.finish_and_clear();
                tell!("the input has no record");
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Names the work that follows the reading.
    pub(in crate::cli) fn working(&self, what: String) {
        working(&self.progress, what);
    }

    /// Makes the release of all its records with another recoding than the policy's; it may be empty. Each call counts anew,
    /// so that searches and recodings can be compared.
    pub(in crate::cli) fn release_as(
        &self,
        recoding: RecodingKind,
        choice: Choice,
        seed: u64,
    ) -> Result<Release, Failure> {
        self.release_under(&Policy { recoding, ..(*self.policy).clone() }, choice, seed)
    }

    /// Makes the release of all its records under a policy that differs in what it asks, not in what it reads; it may be empty.
    pub(in crate::cli) fn release_under(&self, policy: &Policy, choice: Choice, seed: u64) -> Result<Release, Failure> {
        self.release_by(Arc::new(policy.clone()), choice, seed, None).map(|(release, _)| release)
    }

    /// The same with a description of the search, without a trade-off.
    pub(in crate::cli) fn searched(
        &self,
        recoding: RecodingKind,
        choice: Choice,
        seed: u64,
    ) -> Result<(Release, Option<Insight>), Failure> {
        let policy = Arc::new(Policy { recoding, ..(*self.policy).clone() });
        self.release_by(policy, choice, seed, Some(Duration::ZERO))
    }

    /// Makes the release of all its records; it may be empty. Spends `time` on a description of the search, if it is given
    /// and there is anything to search.
    pub(in crate::cli) fn release_with_insight(
        &self,
        choice: Choice,
        seed: u64,
        time: Option<Duration>,
    ) -> Result<(Release, Option<Insight>), Failure> {
        self.release_by(Arc::clone(&self.policy), choice, seed, time)
    }

    fn release_by(
        &self,
        policy: Arc<Policy>,
        choice: Choice,
        seed: u64,
        time: Option<Duration>,
    ) -> Result<(Release, Option<Insight>), Failure> {
        let mut anonymizer = Anonymizer::new(policy, choice, "file", seed);
        let window = self.window.recounted(anonymizer.rules().counting())?;
        if let Some(time) = time {
            anonymizer.look(time);
        }
        let progress = self.progress.clone();
        anonymizer.watch(move |step| working(&progress, step.as_str().into()));
        match anonymizer.release(window)? {
            Closing::Release(release) => Ok((*release, anonymizer.take_insight())),
            Closing::Refused(refusal) => Err(Failure::NotMet(format!("the gate refused the release: {refusal}"))),
        }
    }

    /// The display for writing a number of rows.
    pub(in crate::cli) fn writing(&self, rows: usize) -> ProgressBar {
        writing(&self.progress, rows);
        self.progress.clone()
    }

    /// Ends the display of progress.
    pub(in crate::cli) fn quiet(&self) {
        self.progress.finish_and_clear();
    }

    /// Ends the display of progress and reports the records that were rejected.
    pub(in crate::cli) fn finish(&self) {
        self.progress.finish_and_clear();
        let rejected = &self.window.rejected;
        let mut reasons: BTreeMap<(RejectCode, Option<usize>), (u64, i64)> = BTreeMap::new();
        for (position, reject) in rejected {
            reasons.entry((reject.code, reject.field)).or_insert((0, position.offset.0 + 1)).0 += 1;
        }
        if !rejected.is_empty() {
            tell!("{} records were rejected:", rejected.len());
        }
        for ((code, field), (count, first)) in reasons {
            let field = field.map_or(String::new(), |slot| format!(" in `{}`", self.policy.schema.name(slot)));
            tell!("  {count} x {}{field}, first in record {first}{}", code.as_str(), remedy(code));
        }
    }
}
