//! The recodings side by side on a window of the running service: what each would publish of the same records.
//!
//! A [`WindowSample`] is copied from a window before its release is made. [`compare`] makes one release in memory per recoding, all
//! under the same criteria, suppression limit and levels, by the anonymizer and the gate of the service, measures each with
//! [`usefulness`] and drops it: nothing of it is sent or kept. The releases know of no other windows, so a schedule is learnt from the
//! sample itself. The figures compare with raw records: they are shares of at least [`FEWEST`] records, for the holder of the data.

use std::sync::Arc;
use std::time::Duration;

use super::{Usefulness, usefulness};
use crate::anonymizer::{Anonymizer, Closing};
use crate::encode::Dictionaries;
use crate::model::batch::Rows;
use crate::model::event::Millis;
use crate::model::policy::{Loss, Policy, RecodingKind, SuppressionAction};
use crate::search::StopReason;
use crate::search::choose::Choice;
use crate::window::{ClosedWindow, WindowKind};

/// From the one that loses the most to the one that loses the least.
pub const RECODINGS: [RecodingKind; 3] = [RecodingKind::FullDomain, RecodingKind::Subtree, RecodingKind::Local];
/// The fewest records that are compared. Fewer: a share in percent would move with one person.
pub const FEWEST: usize = 200;
/// The most records that are copied. More: the window waits for the copy, and memory is held beside it. Fewer: rare records look
/// rarer than they are, and every recoding loses more.
const MOST: usize = 20_000;
/// The time limit of each search, whatever the service's own is: no release waits for it. Longer: the processor is taken for figures
/// that change slowly. Shorter: cuts of wide tables come out worse than they are.
const TIME: Duration = Duration::from_secs(5);

/// The first records of a window, to compare what could be made of them.
pub struct WindowSample {
    rows: Rows,
    dictionaries: Dictionaries,
    closed: Millis,
}

/// What one recoding would publish of a sample.
#[derive(Debug, Clone, PartialEq)]
pub struct RecodingFigures {
    /// The levels in words.
    pub words: String,
    /// Classes of the release.
    pub classes: u64,
    /// Records that it leaves out.
    pub left_out: u64,
    /// Its loss by `glm`: the share of the detail that it gives up.
    pub loss: f64,
    /// True if its search was out of time, so that there may be a better one.
    pub late: bool,
    /// What it is still good for.
    pub usefulness: Usefulness,
}

/// All recodings of one sample.
#[derive(Debug, Clone, PartialEq)]
pub struct Recodings {
    /// The records that were compared.
    pub records: u64,
    /// What each would publish, or why it is left out.
    pub made: Vec<(RecodingKind, Result<RecodingFigures, String>)>,
}

impl WindowSample {
    /// The first records of a window, so many at most; `None` if they are too few, or if the window repeats an earlier one.
    pub fn of(window: &ClosedWindow, most: usize) -> Option<Self> {
        let again = matches!(window.kind, WindowKind::Replay(_) | WindowKind::Expiry);
        (!again && window.rows.len().min(most) >= FEWEST).then(|| Self {
            rows: window.rows.filtered(|row| row < MOST.min(most)),
            dictionaries: window.dictionaries.clone(),
            closed: window.closed,
        })
    }
}

/// Makes and measures a release by each recoding, on one core and no more.
pub fn compare(policy: &Policy, choice: &Choice, sample: WindowSample, seed: u64) -> Option<Recodings> {
    let alone = rayon::ThreadPoolBuilder::new().num_threads(1).build().ok()?;
    alone.install(|| {
        let records = sample.rows.len() as u64;
        let counting = choice.rules(policy).counting();
        let window = ClosedWindow::alone(sample.rows, sample.dictionaries, counting, sample.closed).ok()?;
        let made = |recoding| (recoding, make(policy, choice, recoding, &window, seed));
        Some(Recodings { records, made: RECODINGS.map(made).into() })
    })
}

fn make(
    policy: &Policy,
    choice: &Choice,
    recoding: RecodingKind,
    window: &ClosedWindow,
    seed: u64,
) -> Result<RecodingFigures, String> {
    if let Some(reason) = choice.ruled_out(recoding, policy) {
        return Err(reason);
    }
    let policy = Arc::new(Policy { recoding, action: SuppressionAction::Drop, ..policy.clone() });
    let choice = Choice { time_budget: TIME, ..choice.for_recoding(recoding, TIME) };
    let mut anonymizer = Anonymizer::new(Arc::clone(&policy), choice, "compared", seed);
    let counting = anonymizer.rules().counting();
    let wide = |_| "its classes cannot be counted".to_owned();
    let release = match window.recounted(counting).and_then(|window| anonymizer.release(window)).map_err(wide)? {
        Closing::Release(release) => release,
        Closing::Refused(_) => return Err("the gate refuses its release".into()),
    };
    let Some(usefulness) = usefulness(&policy, &release, &window.dictionaries) else {
        return Err("nothing that it can make satisfies the policy".into());
    };
    let from = &release.manifest().provenance;
    Ok(RecodingFigures {
        words: policy.recoding_words(&from.recoding),
        classes: release.manifest().classes,
        left_out: from.records_suppressed,
        loss: from.loss(Loss::Glm.as_str()).unwrap_or(1.0),
        late: from.stop == StopReason::Deadline.as_str(),
        usefulness,
    })
}
