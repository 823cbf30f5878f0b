//! What a release says of itself: where its rows come from, what became of the others, and what the search did.

use std::sync::Arc;

use super::{Anonymizer, Plan};
use crate::frequency::store::Origins;
use crate::generalize::RowRef;
use crate::model::batch::{Rows, Span, Spans};
use crate::model::event::{Partition, Position};
use crate::model::manifest::{AttributeLevel, Named, PartitionSpans, Provenance, Work};
use crate::model::recoding::Column;
use crate::search::choose::Chosen;
use crate::window::ClosedWindow;

impl Anonymizer {
    #[allow(clippy::too_many_arguments)]
    pub(super) fn provenance(
        &self,
        window: &ClosedWindow,
        plan: &Plan,
        seed: u64,
        expired: &[Position],
        finished: &Spans,
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
            release_id: format!("{}-{seed:016x}", self.name),
            window_id: window.id.0,
            close_reason: window.reason.as_str().into(),
            offsets: Self::offsets(finished),
            recoding: levels.iter().flat_map(|node| node.levels().iter().enumerate().map(level)).collect(),
            losses,
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
            search_ms: chosen.map_or(0.0, |c| c.elapsed.as_secs_f64() * 1e3),
            unmet_bounds: chosen.map_or_else(Vec::new, |c| c.unmet_bounds.clone()),
            policy_fingerprint: self.policy.fingerprint.clone(),
            closed_at: window.closed.0,
            work: self.work(plan, rows, chosen),
        }
    }

    fn work(&self, plan: &Plan, rows: &Rows, chosen: Option<&Chosen>) -> Work {
        let arrived = |row: &RowRef| match row {
            RowRef::Fresh(i) => rows.arrived(*i as usize).0,
            RowRef::Held(i) => self.held.arrived(*i as usize).0,
        };
        let origins = chosen.map_or_else(Origins::default, |c| c.origins);
        Work {
            oldest_arrival: plan.published.iter().map(arrived).min(),
            sets_scanned: origins.scanned,
            sets_rolled_up: origins.rolled_up,
            sets_cached: origins.cached,
            skipped: false,
            waiting_elsewhere: self.elsewhere,
        }
    }

    pub(super) fn offsets(finished: &Spans) -> Vec<PartitionSpans> {
        let spans = |(partition, spans): (Partition, &[Span])| PartitionSpans {
            partition: partition.0,
            spans: spans.iter().map(|s| [s.first.0, s.last.0]).collect(),
        };
        finished.iter().map(spans).collect()
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
