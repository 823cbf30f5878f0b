//! What a release says of itself: where its rows come from, what became of the others, and what the search did.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Anonymizer, Plan, left_out};
use crate::frequency::store::Origins;
use crate::generalize::RowRef;
use crate::model::batch::Rows;
use crate::model::event::Position;
use crate::model::recoding::Column;
use crate::model::release::manifest::{AttributeLevel, Named, OffsetRange, Provenance, Work, rounded};
use crate::search::choose::Chosen;
use crate::window::ClosedWindow;

impl Anonymizer {
    #[allow(clippy::too_many_arguments)]
    pub(super) fn provenance(
        &self,
        window: &ClosedWindow,
        plan: &Plan,
        id: u64,
        expired: &[Position],
        chosen: Option<&Chosen>,
        losses: Vec<Named>,
        rows: &Rows,
        columns: &[Arc<Column>],
    ) -> Provenance {
        let levels = chosen.map(|c| c.recoding.coarsest());
        let level = |(attribute, &level): (usize, &u8)| AttributeLevel {
            attribute: self.policy.quasi[attribute].name.to_string(),
            level,
            cut: columns[attribute].values().map(|_| self.cut_labels(rows, plan, attribute, &columns[attribute])),
        };
        let released_held = plan.published.iter().filter(|r| matches!(r, RowRef::Held(_))).count();
        Provenance {
            release_id: format!("{}-{id:016x}", self.name),
            window_id: window.id.0,
            close_reason: window.reason.as_str().into(),
            offsets: ranges(window),
            recoding: levels.iter().flat_map(|node| node.levels().iter().enumerate().map(level)).collect(),
            losses: Vec::new(),
            records_in: (window.rows.len() + window.rejected.len() + window.suppressed.len()) as u64,
            records_published: plan.published.len() as u64,
            records_suppressed: (plan.suppressed.len() + plan.expired.len() + expired.len() + window.suppressed.len())
                as u64,
            records_held: (self.held.len() - released_held - plan.expired.len() + plan.held.len()) as u64,
            records_rejected: window.rejected.len() as u64,
            algorithm: chosen.map_or("none", |c| c.algorithm.as_str()).into(),
            nodes_checked: chosen.map_or(0, |c| c.checks),
            nodes_total: chosen.map_or(0, |c| u64::try_from(c.nodes).unwrap_or(u64::MAX)),
            nodes_predicted: chosen.map_or(0, |c| c.predicted),
            stop: chosen.map_or("none", |c| c.stop.as_str()).into(),
            search_ms: chosen.map_or(0.0, |c| rounded(c.elapsed.as_secs_f64() * 1e3)),
            unmet_bounds: chosen.map_or_else(Vec::new, |c| c.unmet_bounds.clone()),
            policy_fingerprint: self.policy.fingerprint.clone(),
            closed_at: window.closed.0,
            work: Work { losses, ..self.work(window, plan, rows, chosen) },
        }
    }

    fn work(&self, window: &ClosedWindow, plan: &Plan, rows: &Rows, chosen: Option<&Chosen>) -> Work {
        let arrived = |row: &RowRef| match row {
            RowRef::Fresh(i) => rows.arrived(*i as usize).0,
            RowRef::Held(i) => self.held.arrived(*i as usize).0,
        };
        let origins = chosen.map_or_else(Origins::default, |c| c.origins);
        let (counted, fallbacks) = left_out::fallbacks(&self.policy, window);
        Work {
            oldest_arrival: plan.published.iter().map(arrived).min(),
            sets_scanned: origins.scanned,
            sets_rolled_up: origins.rolled_up,
            sets_cached: origins.cached,
            waiting_elsewhere: self.elsewhere,
            tombstones: window.tombstones.len() as u64,
            retracted: window.retracted,
            unplaced: window.unplaced(),
            counted,
            fallbacks,
            ..Work::default()
        }
    }

    /// The labels of one attribute that occur among the published rows, in the order of the cut.
    fn cut_labels(&self, rows: &Rows, plan: &Plan, attribute: usize, column: &Column) -> Vec<String> {
        let mut occurs = vec![false; column.len()];
        for row in &plan.published {
            let leaf = match row {
                RowRef::Fresh(i) => rows.quasi(*i as usize)[attribute],
                RowRef::Held(i) => self.held.quasi(*i as usize)[attribute],
            };
            occurs[column.map()[leaf as usize] as usize] = true;
        }
        let codes = (0..column.len()).filter(|&code| occurs[code]);
        codes.map(|code| column.label(code as u32).to_owned()).collect()
    }
}

/// From the first to the last record that was read into the window, by partition. Nothing that depends on what became of one of
/// them.
fn ranges(window: &ClosedWindow) -> Vec<OffsetRange> {
    let rejected = window.rejected.iter().map(|(position, _)| position);
    let mut ranges: BTreeMap<u32, (i64, i64)> = BTreeMap::new();
    for position in window.rows.positions().iter().chain(&window.suppressed).chain(rejected) {
        let at = position.offset.0;
        let (first, last) = ranges.entry(position.partition.0).or_insert((at, at));
        (*first, *last) = ((*first).min(at), (*last).max(at));
    }
    ranges.into_iter().map(|(partition, (first, last))| OffsetRange { partition, first, last }).collect()
}
