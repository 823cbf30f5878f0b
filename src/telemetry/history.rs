//! The memory of the console: a bounded ring of figures, the last manifests, the last look at a search.
//!
//! One entry per release, nothing per record. Small enough to be copied whenever somebody asks, so that no page is drawn
//! under a lock.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::gate::Release;
use crate::model::event::Millis;
use crate::model::policy::Policy;
use crate::model::release::manifest::{AttributeLevel, Manifest, Unmet, UnmetBound};
use crate::model::release::spread::Spread;
use crate::model::schedule::Schedule;
use crate::search::insight::Insight;

/// Releases in the pictures. More is finer than a picture shows and is copied for every page; fewer hides the trend.
const MOMENTS: usize = 240;
/// Releases whose manifest can be read. More makes the page long, for a manifest can have kilobytes of offsets.
const RECENT: usize = 12;
/// How often a search is looked at while somebody watches. More often costs the stream more than one part in a hundred.
const LOOK_WATCHED: Duration = Duration::from_secs(20);
/// How often it is looked at otherwise, so that a page shows something when it is first opened.
const LOOK_UNWATCHED: Duration = Duration::from_secs(60);
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
    /// What is said about it.
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
    /// What was seen.
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

/// The ring.
#[derive(Debug, Clone, Default)]
pub(super) struct History {
    pub(super) moments: VecDeque<Moment>,
    /// Newest first.
    pub(super) recent: VecDeque<Arc<RecentRelease>>,
    pub(super) look: Option<Arc<Look>>,
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
        let within = |since: Millis, time: Duration| now.0.saturating_sub(since.0) < time.as_millis() as i64;
        let watched = self.asked.is_some_and(|asked| within(asked, WATCHED));
        let every = if watched { LOOK_WATCHED } else { LOOK_UNWATCHED };
        self.look.as_ref().is_none_or(|look| !within(look.at, every))
    }
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
}
