//! The provenance of a release for its manifest: the source of its rows, the outcomes of the other records, and the work of the
//! search.

use std::collections::BTreeMap;

use super::Draft;
use super::left_out;
use super::outcomes::source;
use crate::frequency::store::Origins;
use crate::generalize::RowRef;
use crate::model::lattice::Node;
use crate::model::policy::RecodingKind;
use crate::model::recoding::Recoding;
use crate::model::release::manifest::{
    AttributeLevel, OffsetRange, Provenance, ScheduleName, SnapshotNote, Work, rounded,
};
use crate::search::choose::Chosen;
use crate::window::ClosedWindow;

impl Draft {
    /// The provenance of the rows to publish; losses are added when the rows are generalized.
    pub(in crate::anonymizer) fn provenance(&self) -> Provenance {
        let Self { window, outcomes, chosen, .. } = self;
        let chosen = chosen.as_ref();
        let released_held = outcomes.published.iter().filter(|row| matches!(row, RowRef::Held(_))).count();
        let expired = outcomes.expired.len() + self.expired.len();
        Provenance {
            release_id: self.release_id(self.id),
            window_id: window.id.0,
            close_reason: window.reason.as_str().into(),
            offsets: if self.changes.is_some() { Vec::new() } else { ranges(window) },
            recoding: chosen.map_or_else(Vec::new, |chosen| self.attribute_levels(chosen)),
            schedule: chosen.and_then(|chosen| self.schedule_name(&chosen.recoding)),
            snapshot: self.snapshot_note(),
            losses: Vec::new(),
            records_in: (window.rows.len() + window.rejected.len() + window.suppressed.len()) as u64,
            records_published: outcomes.published.len() as u64,
            records_suppressed: (outcomes.suppressed.len() + expired + window.suppressed.len()) as u64,
            records_held: (self.held.len() - released_held - outcomes.expired.len() + outcomes.held.len()) as u64,
            records_rejected: window.rejected.len() as u64,
            algorithm: chosen.map_or("none", algorithm).into(),
            nodes_checked: chosen.map_or(0, |c| c.checks),
            nodes_total: chosen.map_or(0, |c| u64::try_from(c.nodes).unwrap_or(u64::MAX)),
            nodes_predicted: chosen.map_or(0, |c| c.predicted),
            stop: chosen.map_or("none", |c| c.stop.as_str()).into(),
            search_ms: chosen.map_or(0.0, |c| rounded(c.elapsed.as_secs_f64() * 1e3)),
            unmet_bounds: chosen.map_or_else(Vec::new, |c| c.unmet_bounds.clone()),
            policy_fingerprint: self.policy.fingerprint.clone(),
            closed_at: window.closed.0,
            work: self.work(),
        }
    }

    /// What the release does to the snapshot of a reader, where releases are a changelog.
    fn snapshot_note(&self) -> Option<SnapshotNote> {
        let changes = self.changes.as_ref()?;
        Some(SnapshotNote {
            kind: if changes.base.is_some() { "changes" } else { "whole" }.into(),
            base: changes.base.map(|base| self.release_id(base)),
            rows: if changes.base.is_some() { changes.rows } else { self.outcomes.published.len() as u64 },
        })
    }

    fn release_id(&self, id: u64) -> String {
        format!("{}-{id:016x}", self.name)
    }

    /// The level of each attribute, and its cut or its finest level where it has several levels.
    fn attribute_levels(&self, chosen: &Chosen) -> Vec<AttributeLevel> {
        let level = |(attribute, &level): (usize, &u8)| {
            let (column, name) = (&self.grouping.columns[attribute], self.policy.quasi[attribute].name.to_string());
            if column.is_mixed() {
                let [finest, typical, coarsest] = self.level_range(attribute).unwrap_or([level; 3]);
                let (finest, typical) = (Some(finest), Some(typical));
                return AttributeLevel { attribute: name, level: coarsest, finest, typical, cut: None };
            }
            let cut = column.values().map(|_| self.cut_labels(attribute));
            AttributeLevel { attribute: name, level, finest: None, typical: None, cut }
        };
        chosen.recoding.coarsest().levels().iter().enumerate().map(level).collect()
    }

    /// The finest level of an attribute among the published rows, that of the row in the middle, and the coarsest.
    fn level_range(&self, attribute: usize) -> Option<[u8; 3]> {
        let column = &self.grouping.columns[attribute];
        let mut rows = [0; 256];
        for &row in &self.outcomes.published {
            let value = column.value(self.grouping.code(self.grouping.number(row), attribute));
            rows[usize::from(value.level)] += 1;
        }
        let mut left = self.outcomes.published.len().div_ceil(2);
        let typical = (0..=u8::MAX).find(|&level| {
            left = left.saturating_sub(rows[usize::from(level)]);
            left == 0
        });
        let mut levels = (0..=u8::MAX).filter(|&level| rows[usize::from(level)] > 0);
        let finest = levels.next()?;
        Some([finest, typical?, levels.next_back().unwrap_or(finest)])
    }

    /// The schedule of a local recoding, with its steps if no manifest of this run has named it yet.
    fn schedule_name(&self, recoding: &Recoding) -> Option<ScheduleName> {
        let Recoding::Local(schedule) = recoding else { return None };
        let step = |node: &Node| node.levels().iter().map(|&level| i32::from(level)).collect();
        let steps = || schedule.steps().iter().map(step).collect();
        Some(ScheduleName { id: schedule.id(), steps: self.introduces_schedule.then(steps) })
    }

    /// The operator's figures.
    fn work(&self) -> Work {
        let arrived = |&row: &RowRef| {
            let (rows, i) = source(row, &self.rows, &self.held);
            rows.arrived(i).0
        };
        let sentences = self.policy.sentences().next().is_some() && self.policy.recoding != RecodingKind::Local;
        let chosen = self.chosen.as_ref().filter(|_| !self.outcomes.published.is_empty());
        let origins = self.chosen.as_ref().map_or_else(Origins::default, |chosen| chosen.origins);
        let (counted, fallbacks) = left_out::fallbacks(&self.policy, &self.window);
        Work {
            losses: self.search_losses.clone(),
            security: chosen.filter(|_| sentences).map(|chosen| chosen.evaluation.security),
            minimal: chosen.map_or_else(Vec::new, |chosen| chosen.minimal.clone()),
            oldest_arrival: self.outcomes.published.iter().map(arrived).min(),
            sets_scanned: origins.scanned,
            sets_rolled_up: origins.rolled_up,
            sets_cached: origins.cached,
            waiting_elsewhere: self.elsewhere,
            tombstones: self.window.tombstones.len() as u64,
            retracted: self.window.retracted + self.retracted.len() as u64,
            unplaced: self.window.unplaced(),
            counted,
            fallbacks,
            ..Work::default()
        }
    }

    /// The labels of one attribute that occur among the published rows, by level and text: codes follow the order of reading.
    fn cut_labels(&self, attribute: usize) -> Vec<String> {
        let column = &self.grouping.columns[attribute];
        let mut occurs = vec![false; column.len()];
        for &row in &self.outcomes.published {
            occurs[self.grouping.code(self.grouping.number(row), attribute) as usize] = true;
        }
        let codes = (0..column.len() as u32).filter(|&code| occurs[code as usize]);
        let mut labels: Vec<(u8, &str)> = codes.map(|code| (column.value(code).level, column.label(code))).collect();
        labels.sort_unstable();
        labels.into_iter().map(|(_, label)| label.to_owned()).collect()
    }
}

fn algorithm(chosen: &Chosen) -> &'static str {
    match chosen.recoding {
        Recoding::Local(_) => RecodingKind::Local.as_str(),
        Recoding::Node(_) | Recoding::Cuts(_) => chosen.algorithm.as_str(),
    }
}

/// The first and last offset that was read into the window, by partition. They do not depend on the outcome of a record.
fn ranges(window: &ClosedWindow) -> Vec<OffsetRange> {
    let rejected = window.rejected.iter().map(|(position, _)| *position);
    let others = window.suppressed.iter().copied().chain(rejected).map(|position| (position, 1));
    let mut ranges: BTreeMap<u64, (i64, i64)> = BTreeMap::new();
    for (position, count) in window.rows.position_runs().chain(others) {
        let (from, to) = (position.offset.0, position.offset.0 + (count as i64 - 1));
        let (first, last) = ranges.entry(position.partition.0).or_insert((from, to));
        (*first, *last) = ((*first).min(from), (*last).max(to));
    }
    ranges.into_iter().map(|(partition, (first, last))| OffsetRange { partition, first, last }).collect()
}
