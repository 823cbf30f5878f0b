//! A whole file as one window, for the commands that make one release.
//!
//! They use the encoder, window, search and gate of the service. There is no later release, so no record can be held:
//! records that the release cannot protect are suppressed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use super::{Failure, InputArgs, now};
use crate::anonymizer::{Anonymizer, Closing};
use crate::config::Config;
use crate::encode::{Encoded, Encoder};
use crate::gate::Release;
use crate::model::event::RejectCode;
use crate::model::policy::{Policy, RecodingKind, SuppressionAction};
use crate::privacy::Rules;
use crate::search::choose::Choice;
use crate::search::insight::Insight;
use crate::source::{Preamble, file};
use crate::window::{CloseReason, ClosedWindow, OpenWindow, TooWide, WindowId};

/// The records of a file, encoded and counted.
pub(in crate::cli) struct Batch {
    /// The policy without holding.
    pub(in crate::cli) policy: Arc<Policy>,
    /// All records in one window.
    pub(in crate::cli) window: ClosedWindow,
    /// The header or schema of the file.
    pub(in crate::cli) preamble: Preamble,
    /// A spinner on a terminal, nothing in a pipe.
    progress: ProgressBar,
}

impl Batch {
    /// Reads the whole file.
    pub(in crate::cli) fn read(config: &Config, args: &InputArgs) -> Result<Self, Failure> {
        let policy = Arc::new(Policy { action: SuppressionAction::Drop, ..config.policy.clone() });
        let (read, input) = args.open(config)?;
        let mut encoder = Encoder::new(Arc::clone(&policy));
        let counting = Arc::new(Rules::new(&policy).counting());
        let at = now();
        let mut window = OpenWindow::new(WindowId(0), at, &encoder, counting)?;
        let mut wide: Option<TooWide> = None;
        let progress = progress();
        let preamble = file::for_each_record(read, input, &policy.schema, |position, record| {
            let encoded = match record {
                Ok(record) => encoder.encode(&record, None),
                Err(reject) => Encoded::Rejected(reject),
            };
            if wide.is_none() {
                wide = window.add(&encoder, position, at, encoded).err();
            }
            progress.inc(1);
        })?;
        if let Some(wide) = wide {
            return Err(wide.into());
        }
        let window = window.close(at, CloseReason::Drained, &encoder)?;
        Ok(Self { policy, window, preamble, progress })
    }

    /// Names the work that follows the reading.
    pub(in crate::cli) fn working(&self, what: String) {
        self.progress.set_message(what);
    }

    /// Makes the release of all its records with another recoding than the policy's; it may be empty. Each call counts anew,
    /// so that searches and recodings can be compared.
    pub(in crate::cli) fn release_as(
        &self,
        recoding: RecodingKind,
        choice: Choice,
        seed: u64,
    ) -> Result<Release, Failure> {
        let policy = Arc::new(Policy { recoding, ..(*self.policy).clone() });
        self.release_by(policy, choice, seed, None).map(|(release, _)| release)
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
        match anonymizer.release(window)? {
            Closing::Release(release) => Ok((*release, anonymizer.take_insight())),
            Closing::Refused(refusal) => Err(Failure::NotMet(format!("the gate refused the release: {refusal}"))),
        }
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

fn progress() -> ProgressBar {
    let bar = ProgressBar::new_spinner().with_message("reading");
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}: {human_pos} records, {elapsed}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}

fn remedy(code: RejectCode) -> &'static str {
    match code {
        RejectCode::UnknownValue => ": extend the hierarchy, or write `unknown_value: suppress` or `top`",
        RejectCode::MissingField => ": or write `missing_value: suppress` or `top`",
        RejectCode::NullField => ": or write `null_value: suppress` or `top`",
        RejectCode::Malformed => ": check quotes, the number of fields, and the delimiter",
        RejectCode::TooLarge => ": or raise `limits.max_record_bytes`",
        RejectCode::NoSubject => ": each record needs a subject to be counted",
        _ => "",
    }
}
