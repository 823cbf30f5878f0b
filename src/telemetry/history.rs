//! The memory of the console: a bounded ring of figures, the last manifests, the last look at a search.
//!
//! One entry per release, nothing per record. Small enough to be copied whenever somebody asks, so that no page is drawn
//! under a lock.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::gate::Release;
use crate::model::event::Millis;
use crate::model::policy::{Loss, Policy};
use crate::model::release::manifest::{AttributeLevel, Manifest, Unmet, UnmetBound};
use crate::model::release::spread::Spread;
use crate::model::schedule::Schedule;
use crate::search::insight::Insight;
use crate::usefulness::recodings::Recodings;

/// Releases in the pictures. More is finer than a picture shows and is copied for every page; fewer hides the trend.
const MOMENTS: usize = 240;
/// Releases whose manifest can be read. More makes the page long, for a manifest can have kilobytes of offsets.
const RECENT: usize = 12;
/// How often a search is looked at while somebody watches. More often costs the stream more than one part in a hundred.
const LOOK_WATCHED: Duration = Duration::from_secs(20);
/// How often it is looked at otherwise, so that a page shows something when it is first opened.
const LOOK_UNWATCHED: Duration = Duration::from_secs(60);
/// How often recodings are compared while somebody watches. More often shows figures that hardly change, at the cost of a few searches.
const COMPARE_WATCHED: Duration = Duration::from_secs(600);
/// How often they are compared otherwise, so that a page has figures of this day when it is first opened.
const COMPARE_UNWATCHED: Duration = Duration::from_secs(3600);
/// Comparing takes at most this part of the time of one core. Larger: the stream feels it. Smaller: wide tables are hardly compared.
const COMPARE_PART: u32 = 100;
/// Somebody watches while a page was asked for in this time: a few refreshes of the page.
const WATCHED: Duration = Duration::from_secs(30);

/// The figures of one release.
#[derive(Debug, Clone, PartialEq)]
pub struct Moment {
    /// When it was published.
    pub at: Millis,
    /// Its id.
    pub id: String,
    /// Its rows; 0 if nothing of the window could be published.
    pub rows: u64,
    /// The records that it leaves out.
    pub suppressed: u64,
    /// Its smallest class.
    pub k: Option<u32>,
    /// Its loss by the policy's metric; none if it has no rows.
    pub loss: Option<f64>,
    /// The share of the detail that it gives up (`glm`), whatever the policy's metric; none if it has no rows.
    pub detail: Option<f64>,
    /// What each criterion's weakest class reached, in the order of the policy.
    pub achieved: Vec<Option<f64>>,
    /// Records read since the start.
    pub read: u64,
    /// Records not read yet.
    pub lag: u64,
}

/// A release that can be read about.
#[derive(Debug, Clone, PartialEq)]
pub struct RecentRelease {
    /// When it was published.
    pub at: Millis,
    /// Its manifest.
    pub manifest: Manifest,
    /// Classes by size.
    pub class_sizes: Vec<(u32, u32)>,
    /// How its properties are spread over people.
    pub spreads: Vec<(&'static str, Spread)>,
    /// Its part of the page, drawn when somebody first asks: it never changes.
    pub(super) drawn: OnceLock<String>,
}

/// A look at a search.
#[derive(Debug, Clone)]
pub struct Look {
    /// When it was taken.
    pub at: Millis,
    /// The insight.
    pub insight: Insight,
    /// Its parts of the page, trade-off and lattice, drawn when somebody first asks: they never change.
    pub(super) drawn: OnceLock<[String; 2]>,
}

impl Look {
    /// A look that nobody has drawn yet.
    pub fn new(at: Millis, insight: Insight) -> Self {
        Self { at, insight, drawn: OnceLock::new() }
    }
}

/// A comparison of the recodings.
#[derive(Debug, Clone)]
pub struct Compared {
    /// When the window closed whose records were compared.
    pub at: Millis,
    /// What was found; none if nothing could be compared.
    pub recodings: Option<Recodings>,
    took: Duration,
}

/// The ring.
#[derive(Debug, Clone, Default)]
pub(super) struct History {
    pub(super) moments: VecDeque<Moment>,
    /// Newest first.
    pub(super) recent: VecDeque<Arc<RecentRelease>>,
    pub(super) look: Option<Arc<Look>>,
    pub(super) comparison: Option<Arc<Compared>>,
    /// True while one is being made.
    comparing: bool,
    /// The recoding of the last release that had rows.
    pub(super) recoding: Vec<AttributeLevel>,
    /// How many windows since the last release could not be published at all, and why the last of them.
    pub(super) unmet: Option<(u64, Unmet)>,
    /// Its schedule, where the recoding is local.
    pub(super) schedule: Option<Schedule>,
    /// The bounds that it does not meet.
    pub(super) unmet_bounds: Vec<UnmetBound>,
    asked: Option<Millis>,
}

impl History {
    /// Remembers a release; true if it misses other bounds than the one before.
    pub(super) fn released(&mut self, release: &Release, policy: &Policy, read: u64, lag: u64, now: Millis) -> bool {
        let manifest = release.manifest();
        let from = &manifest.provenance;
        if self.moments.len() == MOMENTS {
            self.moments.pop_front();
        }
        self.moments.push_back(Moment {
            at: now,
            id: from.release_id.clone(),
            rows: manifest.rows,
            suppressed: from.records_suppressed,
            k: manifest.k_achieved,
            loss: from.loss(policy.loss.as_str()),
            detail: from.loss(Loss::Glm.as_str()),
            achieved: manifest.criteria.iter().map(|c| c.achieved).collect(),
            read,
            lag,
        });
        self.recent.truncate(RECENT - 1);
        self.recent.push_front(Arc::new(RecentRelease {
            at: now,
            manifest: manifest.clone(),
            class_sizes: release.class_sizes().iter().map(|(&size, &classes)| (size, classes)).collect(),
            spreads: release.spreads().collect(),
            drawn: OnceLock::new(),
        }));
        if let Some(unmet) = from.work.unmet {
            self.unmet = Some((self.unmet.map_or(1, |(windows, _)| windows + 1), unmet));
        }
        if release.is_empty() {
            return false;
        }
        self.unmet = None;
        self.recoding.clone_from(&from.recoding);
        let levels = from.schedule.as_ref().map(|_| &release.lineage().plan.levels);
        self.schedule = levels.and_then(|levels| Some(Schedule::from_plan(levels, &policy.lattice())?.0));
        let names = |bounds: &[UnmetBound]| bounds.iter().map(|bound| bound.objective.clone()).collect::<Vec<_>>();
        let changed = names(&self.unmet_bounds) != names(&from.unmet_bounds);
        self.unmet_bounds.clone_from(&from.unmet_bounds);
        changed
    }

    /// Somebody asked for a page.
    pub(super) fn asked(&mut self, now: Millis) {
        self.asked = Some(now);
    }

    /// True if the next search should be looked at.
    pub(super) fn look_due(&self, now: Millis) -> bool {
        let every = if self.is_watched(now) { LOOK_WATCHED } else { LOOK_UNWATCHED };
        self.look.as_ref().is_none_or(|look| !is_within(look.at, every, now))
    }

    /// True if the recodings should be compared on the next window.
    pub(super) fn comparison_due(&self, now: Millis) -> bool {
        let every = if self.is_watched(now) { COMPARE_WATCHED } else { COMPARE_UNWATCHED };
        let last = self.comparison.as_ref();
        !self.comparing && last.is_none_or(|last| !is_within(last.at, every.max(last.took * COMPARE_PART), now))
    }

    /// A comparison begins.
    pub(super) fn comparing(&mut self) {
        self.comparing = true;
    }

    /// A comparison of a window that closed then has ended after so long.
    pub(super) fn compared(&mut self, recodings: Option<Recodings>, at: Millis, took: Duration) {
        self.comparing = false;
        self.comparison = Some(Arc::new(Compared { at, recodings, took }));
    }

    fn is_watched(&self, now: Millis) -> bool {
        self.asked.is_some_and(|asked| is_within(asked, WATCHED, now))
    }
}

/// True for so long after `since`.
fn is_within(since: Millis, time: Duration, now: Millis) -> bool {
    now.0.saturating_sub(since.0) < time.as_millis() as i64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::lattice::{Lattice, Node};
    use crate::search::insight::Seen;

    fn look(at: i64) -> Option<Arc<Look>> {
        let insight = Insight {
            lattice: Lattice::new(Node::new([0]), Node::new([1])),
            seen: Seen::Nodes(Vec::new()),
            chosen: Node::new([1]),
            met: true,
            loss: 1.0,
            k: 2,
            checks: 2,
            front: None,
            attributes: Vec::new(),
            minimal: Vec::new(),
            superfluous: Vec::new(),
        };
        Some(Arc::new(Look::new(Millis(at), insight)))
    }

    #[test]
    fn searches_are_looked_at_more_often_while_somebody_watches() {
        let mut history = History::default();
        assert!(history.look_due(Millis(0)), "the first one, always");
        history.look = look(100_000);
        assert!(!history.look_due(Millis(130_000)), "nobody is there");
        assert!(history.look_due(Millis(160_000)));
        history.asked(Millis(105_000));
        assert!(!history.look_due(Millis(119_000)));
        assert!(history.look_due(Millis(120_000)));
    }

    #[test]
    fn recodings_are_compared_one_at_a_time_and_seldom() {
        let mut history = History::default();
        assert!(history.comparison_due(Millis(0)), "the first window, always");
        history.comparing();
        assert!(!history.comparison_due(Millis(1)), "one at a time");
        history.compared(None, Millis(0), Duration::from_secs(1));
        history.asked(Millis(599_000));
        assert!(!history.comparison_due(Millis(599_999)));
        assert!(history.comparison_due(Millis(600_000)), "somebody watches");
        assert!(!history.comparison_due(Millis(3_599_999)), "nobody does");
        assert!(history.comparison_due(Millis(3_600_000)));
        history.compared(None, Millis(4_000_000), Duration::from_secs(60));
        assert!(!history.comparison_due(Millis(9_999_999)), "a minute of work in a hundred minutes");
        assert!(history.comparison_due(Millis(10_000_000)));
    }
}
