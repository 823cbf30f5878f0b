//! The release of a tumbling window by local recoding (`sliding/local.rs` has that of a snapshot), and the schedule that it follows.
//!
//! A schedule is a list of lattice nodes ([`crate::local`]). The first window learns one from its own rows; later windows use
//! the schedule that was fixed before they were read, so what is published depends on a window only by which classes were large
//! enough. [`Anonymizer::learn`] learns another schedule from the windows of late. The pipeline calls it while a release is on
//! its way to the sink, so no release waits for it. How a schedule may be replaced follows `levels`: `free` takes the new one,
//! `sticky` takes it if the old one loses noticeably more, `monotone` and `fixed` stay with the first (a schedule coarsens
//! sparse regions by itself). Learning counts steps and no time, so that the same windows give the same schedules.
//!
//! Rules that look beyond a class (`t-closeness`, `lkc`, `min-security`) hold for a class by itself first. Whether they hold for what is
//! published together is left to the gate: where it refuses, or too many rows are left over, this release skips the finest steps, and
//! at last nothing is published. The plan holds the schedule and, where held rows or steps had to be left out of the classes, the step
//! at which the release starts, so a replay applies it once; the next window tries every step again.

use std::collections::VecDeque;
use std::time::Instant;

use super::draft::{Draft, Grouping, Outcomes};
use super::{Anonymizer, Closing};
use crate::encode::Dictionaries;
use crate::failpoint::defect;
use crate::frequency::store::Origins;
use crate::generalize::RowRef;
use crate::local::{Effort, Regions, Table, Terms, apply, apply_admitting, learn};
use crate::model::policy::{Fallback, RecodingKind};
use crate::model::recoding::Recoding;
use crate::model::schedule::Schedule;
use crate::search::choose::{Chosen, Levels};
use crate::search::evaluator::Evaluation;
use crate::search::{Algorithm, StopReason};

/// Past windows that a schedule is learnt from. More: steadier schedules, and more memory and time. Fewer: schedules follow the
/// accidents of single windows.
const WINDOWS: usize = 8;
/// Rows of all of them together; the newest window is kept in any case. Larger: learning takes seconds. Smaller: as fewer windows.
const ROWS: usize = 60_000;
/// So many newcomers of slides count as a window. More: a schedule from few records stays for longer. Fewer: chance starts learning.
const NEWCOMERS: usize = 1_000;
/// After how many windows learning is tried first: the schedule of the first window was learnt from it. More: a schedule from few records
/// stays for longer. Fewer: the same is learnt again.
const FIRST_WINDOWS: u64 = 2;
/// How many times as long the next attempt waits after one that found a better schedule, and after one that did not, up to the most
/// windows. Larger: a drift of the stream goes unnoticed for longer. Smaller: learning takes more of the processor than releases do.
const LONGER: u64 = 2;
const MUCH_LONGER: u64 = 4;
const MOST_WINDOWS_BETWEEN: u64 = 256;
/// Learning is tried at once where a window loses so many times what the schedule lost when it was learnt. Smaller: chance
/// alone starts it; larger: a drift costs readers more before it is noticed.
const DRIFT: f64 = 1.3;
/// Coarser starts that are tried where the gate refuses or too many rows are left over. More find a finer one, at the cost of a
/// count each.
const STARTS: usize = 12;
/// The most bits of a schedule where it must be committed with offsets (about 700 of 4,096 characters). Larger: no space for waiting
/// records. Smaller: coarser schedules.
const MAX_BITS: f64 = 4_000.0;

/// What is kept of past windows for learning.
#[derive(Default)]
pub(super) struct Learning {
    tables: VecDeque<Table>,
    dictionaries: Option<Dictionaries>,
    /// Windows since the last attempt, and how many there are before the next; 0 before the first.
    windows: u64,
    patience: u64,
    /// What the schedule lost in the window of the last attempt.
    expected: Option<f64>,
    drifted: bool,
    /// With slides, the newcomers since the last time that they were as many as a window, and what they lost in all.
    newcomers: Option<(f64, f64)>,
    /// The schedule that the last manifest named.
    introduced: Option<Schedule>,
}

impl Learning {
    fn remember(&mut self, table: Table, dictionaries: &Dictionaries, loss: f64) {
        self.keep(table, dictionaries, 0);
        self.note(loss);
    }

    /// The same for the newcomers of a slide, who may be few: their losses tell of a drift only many slides together.
    pub(super) fn remember_slide(&mut self, table: Table, dictionaries: &Dictionaries, loss: f64) {
        let records = table.records() as f64;
        if table.is_empty() {
            return;
        }
        self.keep(table, dictionaries, WINDOWS * NEWCOMERS);
        let (so_far, lost) = self.newcomers.unwrap_or_default();
        let (so_far, lost) = (so_far + records, lost + loss * records);
        let are_enough = so_far >= NEWCOMERS as f64;
        self.newcomers = Some(if are_enough { (0.0, 0.0) } else { (so_far, lost) });
        if are_enough {
            self.note(lost / so_far);
        }
    }

    /// Keeps the table, and of the earlier ones as many as learning takes, or as it takes to have `least` rows.
    fn keep(&mut self, table: Table, dictionaries: &Dictionaries, least: usize) {
        self.dictionaries = Some(dictionaries.clone());
        self.tables.push_back(table);
        let rows = |tables: &VecDeque<Table>| tables.iter().map(Table::records).sum::<usize>();
        let are_many = |tables: &VecDeque<Table>| tables.len() > WINDOWS && rows(tables) > least;
        while are_many(&self.tables) || self.tables.len() > 1 && rows(&self.tables) > ROWS {
            self.tables.pop_front();
        }
    }

    fn note(&mut self, loss: f64) {
        self.windows += 1;
        let expected = *self.expected.get_or_insert(loss);
        self.drifted = loss > expected * DRIFT;
    }

    fn is_due(&self) -> bool {
        !self.tables.is_empty()
            && (self.windows >= self.patience.max(FIRST_WINDOWS) || self.drifted && self.windows > 1)
    }
}

impl Anonymizer {
    /// Makes the release of a window by a schedule: the planned one, the last one, or one learnt from the window itself.
    pub(super) fn release_locally(&mut self, mut draft: Draft) -> Closing {
        let started = Instant::now();
        let rules = self.rules.bind(&draft.window.dictionaries.values());
        let domains = draft.window.dictionaries.quasi.clone();
        let terms = Terms::new(&self.policy, &rules, &domains);
        let mut table = Table::new(&draft.rows, &draft.held, &self.rules.counting());
        let (planned, mut first) =
            draft.planned_schedule().map_or((None, None), |(planned, first)| (Some(planned), first));
        if first.is_some() {
            table = Table::new(&draft.rows, &draft.held.filtered(|_| false), &self.rules.counting());
        }
        let schedule = planned.or_else(|| self.schedule());
        let schedule = schedule.unwrap_or_else(|| learn(&terms, &[&table], &self.effort()));
        let allowed = self.policy.suppression.beside(draft.unplaced, draft.rows.len() as u64).unwrap_or(0);
        let mut starts = later_starts(&schedule);
        draft.introduces_schedule = draft.planned.is_some() || !self.is_introduced(&schedule);
        loop {
            draft.first_step = first;
            let (mut regions, mut allowed) =
                (apply(&terms, &table, &schedule, first.unwrap_or(0), self.spare(allowed)), allowed);
            let loss = regions.loss();
            let is_met = regions.left() as u64 <= allowed && draft.planned.is_none();
            if let Some(mut returning) = self.returning(&draft).filter(|_| is_met) {
                // The limit is about who is too rare. Those who return and find no class do not count.
                regions = apply_admitting(&terms, &table, &schedule, (first.unwrap_or(0), 0), &mut returning);
                allowed = u64::MAX;
            }
            let chosen = self.chosen_locally(&schedule, &regions, allowed, started);
            if draft.recode_locally(chosen, &regions) {
                match draft.planned_to_show().cloned() {
                    Some(shown) => draft.show(&shown),
                    None => self.leave_recurring_out(&mut draft, &rules),
                }
                self.uncommitted.fit(&mut draft);
                let closing = self.pass_gate(&draft);
                if matches!(closing, Closing::Release(_)) {
                    if draft.planned.is_none() && !draft.outcomes.published.is_empty() {
                        self.learning.introduced = Some(schedule);
                        self.learning.remember(table, &draft.window.dictionaries, loss);
                    }
                    return closing;
                }
            }
            if draft.planned.is_some() {
                // Other bytes must not stand in for a planned release.
                return self.publish_none(draft);
            }
            // Held rows can break a rule about several classes: without them the classes are formed again, at the same step first.
            let again = first.is_none() && draft.outcomes.leave_held_out();
            let Some(next) = (if again { Some(0) } else { starts.pop() }) else { return self.publish_none(draft) };
            if first.replace(next).is_none() {
                table = Table::new(&draft.rows, &draft.held.filtered(|_| false), &self.rules.counting());
            }
        }
    }

    /// Releases nothing of a window for which even the coarsest levels do not satisfy every rule together.
    pub(super) fn publish_none(&mut self, mut draft: Draft) -> Closing {
        draft.outcomes = Outcomes::none_published(self.policy.action, draft.rows.len());
        self.release_unsearched(draft)
    }

    /// How many of the `allowed` records may be left out where that loses less. None, where the policy suppresses values without a
    /// place: how many of those count depends on earlier windows, which a replay does not know.
    fn spare(&self, allowed: u64) -> u64 {
        let policy = &self.policy;
        let suppresses = [policy.unknown_value, policy.missing_value, policy.null_value].contains(&Fallback::Suppress);
        if suppresses { 0 } else { allowed }
    }

    /// Learns a schedule from the windows of late, if it is time to, and takes it if `levels` says so. Takes long; call it when
    /// nobody waits for a release.
    pub fn learn(&mut self) {
        let moves = matches!(self.choice.levels, Levels::Free | Levels::Sticky);
        if self.policy.recoding != RecodingKind::Local || !moves || !self.learning.is_due() {
            return;
        }
        let (Some(old), Some(dictionaries)) = (self.schedule(), self.learning.dictionaries.clone()) else { return };
        let rules = self.rules.bind(&dictionaries.values());
        let terms = Terms::new(&self.policy, &rules, &dictionaries.quasi);
        let tables: Vec<&Table> = self.learning.tables.iter().collect();
        let new = learn(&terms, &tables, &self.effort());
        let loss = |schedule: &Schedule| -> f64 {
            let of = |table: &&Table| apply(&terms, table, schedule, 0, 0).loss() * table.records() as f64;
            let records: usize = tables.iter().map(|table| table.records()).sum();
            tables.iter().map(of).sum::<f64>() / records.max(1) as f64
        };
        let (old_loss, new_loss) = (loss(&old), loss(&new));
        let margin = if self.choice.levels == Levels::Sticky { self.choice.keep_within } else { 0.0 };
        let replace = old_loss > new_loss * (1.0 + margin);
        let learning = &mut self.learning;
        let longer = if replace { LONGER } else { MUCH_LONGER };
        learning.patience = (longer * learning.patience.max(FIRST_WINDOWS)).min(MOST_WINDOWS_BETWEEN);
        (learning.windows, learning.drifted) = (0, false);
        // Newcomers who wait lose otherwise than whole tables: the next ones tell what to expect.
        learning.expected = learning.newcomers.is_none().then_some(if replace { new_loss } else { old_loss });
        if replace {
            self.last = Some(Recoding::Local(new));
        }
    }

    /// True if the last manifest named this schedule.
    pub(super) fn is_introduced(&self, schedule: &Schedule) -> bool {
        self.learning.introduced.as_ref() == Some(schedule)
    }

    /// Notes that a manifest has named this schedule.
    pub(super) fn introduce(&mut self, schedule: Schedule) {
        self.learning.introduced = Some(schedule);
    }

    /// The schedule of the last release.
    pub(super) fn schedule(&self) -> Option<Schedule> {
        match &self.last {
            Some(Recoding::Local(schedule)) => Some(schedule.clone()),
            _ => None,
        }
    }

    pub(super) fn effort(&self) -> Effort {
        if !self.uncommitted.is_bounded() {
            return Effort::default();
        }
        let bits = (self.policy.lattice().size() as f64).log2().max(1.0);
        Effort { max_steps: ((MAX_BITS / bits) as usize).max(2), ..Effort::default() }
    }

    /// The schedule and its regions as the choice of a search. It satisfies if no more is left over than may be.
    pub(super) fn chosen_locally(
        &self,
        schedule: &Schedule,
        regions: &Regions,
        allowed: u64,
        started: Instant,
    ) -> Chosen {
        let (left, loss) = (regions.left() as u64, regions.loss());
        let satisfies = left <= allowed && !regions.is_empty();
        let evaluation = Evaluation {
            satisfies,
            loss: if satisfies { loss } else { f64::INFINITY },
            penalised: loss,
            bound_above: 0.0,
            suppressed: left,
            classes: regions.len() as u64,
            k: (0..regions.len() as u32).map(|class| regions.size(class)).min().unwrap_or(0),
            security: 1.0,
        };
        self.followed(schedule.clone(), evaluation, started)
    }

    /// A schedule as the choice of a search.
    pub(super) fn followed(&self, schedule: Schedule, evaluation: Evaluation, started: Instant) -> Chosen {
        Chosen {
            recoding: Recoding::Local(schedule),
            evaluation,
            algorithm: Algorithm::Auto,
            stop: StopReason::Exhausted,
            checks: 0,
            predicted: 0,
            nodes: self.policy.lattice().size(),
            elapsed: started.elapsed(),
            front: None,
            minimal: Vec::new(),
            unmet_bounds: Vec::new(),
            origins: Origins::default(),
        }
    }
}

/// The later steps to start at where the gate refuses or too many rows are left over, the coarsest first.
pub(super) fn later_starts(schedule: &Schedule) -> Vec<usize> {
    let last = schedule.steps().len() - 1;
    let mut starts: Vec<usize> = (1..=STARTS).map(|start| last * start / STARTS).filter(|&start| start > 0).collect();
    starts.dedup();
    starts.reverse();
    starts
}

impl Draft {
    /// The schedule of the plan and its first step, if this draft repeats one that has a schedule of this policy.
    pub(super) fn planned_schedule(&self) -> Option<(Schedule, Option<usize>)> {
        Schedule::from_plan(&self.planned.as_ref()?.levels, &self.policy.lattice())
    }

    /// Sets the recoding, the classes and the outcomes of all rows by the regions of a schedule; false if too many rows are left
    /// over, and then none is published.
    fn recode_locally(&mut self, chosen: Chosen, regions: &Regions) -> bool {
        let satisfies = chosen.evaluation.satisfies;
        let grouping = Grouping::of_regions(regions, &self.rows, &self.held, &self.window.dictionaries);
        self.recode_grouped(chosen, grouping);
        if !satisfies {
            self.outcomes = Outcomes::none_published(self.policy.action, self.rows.len());
            return false;
        }
        let mut outcomes = Outcomes::default();
        for i in 0..self.rows.len() {
            match regions.fresh(i).is_some() || defect("publish-all") {
                true => outcomes.published.push(RowRef::Fresh(i as u32)),
                false => outcomes.leave_out(self.policy.action, i as u32),
            }
        }
        let joins = (0..self.held.len()).filter(|&i| regions.held(i).is_some());
        outcomes.published.extend(joins.map(|i| RowRef::Held(i as u32)));
        self.outcomes = outcomes;
        true
    }
}
