//! A whole file as one window, for the commands that make one release.
//!
//! They use the encoder, window, search and gate of the service. There is no later release, so no record can be held:
//! records that the release cannot protect are suppressed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use indicatif::ProgressBar;

use super::{Failure, InputArgs, max_record_bytes, now, reading, spinning, working, writing};
use crate::anonymizer::{Anonymizer, Closing};
use crate::codec::RecordReader;
use crate::config::Config;
use crate::encode::Encoder;
use crate::gate::Release;
use crate::model::event::{Event, Reject, RejectCode};
use crate::model::policy::{Policy, RecodingKind, SuppressionAction};
use crate::model::record::Record;
use crate::model::schema::Schema;
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
        Self::gather(config, progress, |schema, each| {
            Ok(file::for_each_message(read, input, schema, |event, reader| each(event, reader).is_ok())?)
        })
    }

    /// Takes events that are in memory already.
    pub(in crate::cli) fn of_events(config: &Config, preamble: &Preamble, events: &[Event]) -> Result<Self, Failure> {
        Self::gather(config, spinning(), |schema, each| {
            let mut reader = preamble.reader(schema, max_record_bytes(config))?;
            events.iter().try_for_each(|event| each(event, &mut reader))?;
            Ok(preamble.clone())
        })
    }

    /// Encodes and counts the records of the messages that `read` hands out.
    fn gather(
        config: &Config,
        progress: ProgressBar,
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
                Some(payload) => reader.each(payload, |record, _| each(record)),
                None => Err(Reject::record(RejectCode::Tombstone)),
            };
            let add = |encoder: &Encoder, encoded| -> Result<(), TooWide> {
                window.add(encoder, *position, at, encoded);
                Ok(())
            };
            wide = encoder.message(None, None, records, add);
            wide
        });
        wide?;
        let preamble = preamble?;
        working(&progress, "counting".into());
        let window = window.close(at, CloseReason::Drained, &encoder)?;
        Ok(Self { policy, window, preamble, progress })
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

    /// The display for writing so many rows.
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
            eprintln!("{} records were rejected:", rejected.len());
        }
        for ((code, field), (count, first)) in reasons {
            let field = field.map_or(String::new(), |slot| format!(" in `{}`", self.policy.schema.name(slot)));
            eprintln!("  {count} x {}{field}, first in record {first}{}", code.as_str(), remedy(code));
        }
    }
}

fn remedy(code: RejectCode) -> &'static str {
    match code {
        RejectCode::UnknownValue => ": extend the hierarchy, or write `unknown_value: suppress` or `top`",
        RejectCode::MissingField => ": check its name with `validate --sample FILE`",
        RejectCode::NotAnObject => {
            ": a path leads through objects only; keep a whole array, take it apart with `explode`, or name another field"
        }
        RejectCode::NotAnArray => ": `explode` names an array of objects",
        RejectCode::NullField => ": or write `null_value: suppress` or `top`",
        RejectCode::InvalidUtf8 => ": give the encoding of the file, such as `--encoding latin-1`",
        RejectCode::Malformed => ": check quotes, the number of fields, and the delimiter",
        RejectCode::TooLarge => ": or raise `limits.max_record_bytes`",
        RejectCode::NoSubject => ": each record needs a subject to be counted",
        _ => "",
    }
}
