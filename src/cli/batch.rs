//! A whole file as one window, for the commands that make one release.
//!
//! The same encoder, window, search and gate as in the service. There is no later release, so nothing can be held: what
//! the release cannot protect is suppressed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use indicatif::ProgressBar;

use super::{Failure, InputArgs, now};
use crate::anonymizer::{Anonymizer, Closing};
use crate::config::Config;
use crate::encode::{Encoded, Encoder};
use crate::gate::Release;
use crate::model::event::{Position, Reject, RejectCode};
use crate::model::policy::{Policy, SuppressionAction};
use crate::model::schema::Schema;
use crate::privacy::Rules;
use crate::search::choose::Choice;
use crate::search::insight::Insight;
use crate::source::{Preamble, file};
use crate::window::{CloseReason, ClosedWindow, OpenWindow, TooWide, WindowId};

/// The records of a file, encoded and counted.
pub(super) struct Batch {
    /// The policy without holding.
    pub(super) policy: Arc<Policy>,
    /// All records in one window.
    pub(super) window: ClosedWindow,
    /// What the file says about itself.
    pub(super) preamble: Preamble,
}

impl Batch {
    /// Reads the whole file.
    pub(super) fn read(config: &Config, args: &InputArgs, progress: &ProgressBar) -> Result<Self, Failure> {
        let policy = Arc::new(Policy { action: SuppressionAction::Drop, ..config.policy.clone() });
        let (read, input) = args.open(config)?;
        let mut encoder = Encoder::new(Arc::clone(&policy));
        let counting = Arc::new(Rules::new(&policy).counting());
        let mut window = OpenWindow::new(WindowId(0), now(), &encoder, counting)?;
        let mut wide: Option<TooWide> = None;
        let at = now();
        progress.set_message("reading");
        let preamble = file::for_each_record_in(read, input, &policy.schema, |position, record| {
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
        Ok(Self { policy, window, preamble })
    }

    /// Makes the release of all its records; it may be empty. Each call counts anew, so that searches can be compared.
    pub(super) fn release(&self, choice: Choice, seed: u64) -> Result<Release, Failure> {
        self.release_and_look(choice, seed, None).map(|(release, _)| release)
    }

    /// The same, with a look at the search if there is `time` for one and anything to search.
    pub(super) fn release_and_look(
        &self,
        choice: Choice,
        seed: u64,
        time: Option<Duration>,
    ) -> Result<(Release, Option<Insight>), Failure> {
        let mut anonymizer = Anonymizer::new(Arc::clone(&self.policy), choice, "file", seed);
        let window = self.window.recounted(anonymizer.rules().counting())?;
        if let Some(time) = time {
            anonymizer.look(time);
        }
        match anonymizer.release(window)? {
            Closing::Release(release) => Ok((*release, anonymizer.take_insight())),
            Closing::Refused(refusal) => Err(Failure::NotMet(format!("the gate refused the release: {refusal}"))),
        }
    }

    /// What to tell about records that were turned away; nothing if none was.
    pub(super) fn rejections(&self) -> Option<String> {
        rejections(&self.window.rejected, &self.policy.schema)
    }
}

/// A spinner on a terminal, nothing in a pipe.
pub(super) fn progress() -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = indicatif::ProgressStyle::with_template("{spinner} {msg}: {human_pos} records, {elapsed}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}

fn rejections(rejected: &[(Position, Reject)], schema: &Schema) -> Option<String> {
    let mut reasons: BTreeMap<(RejectCode, Option<usize>), (u64, i64)> = BTreeMap::new();
    for (position, reject) in rejected {
        reasons.entry((reject.code, reject.field)).or_insert((0, position.offset.0 + 1)).0 += 1;
    }
    let reason = |((code, field), (count, first)): (&(RejectCode, Option<usize>), &(u64, i64))| {
        let field = field.map_or(String::new(), |slot| format!(" in `{}`", schema.name(slot)));
        format!("  {count} x {}{field}, first in record {first}{}", code.as_str(), remedy(*code))
    };
    let lines: Vec<String> = reasons.iter().map(reason).collect();
    (!lines.is_empty()).then(|| format!("{} records were rejected:\n{}", rejected.len(), lines.join("\n")))
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
