//! Slides that publish only what changes: `window.sliding.publish: changes`.
//!
//! While the recoding stays, a snapshot differs from the last one by the groups that come and the groups that leave, and these are
//! what the release has. Everything here works on the rows that wait, on those that have left the window and are still shown, and on
//! the cells of the latter: the gate remembers the other rows ([`Accepted`]).
//!
//! ```text
//! rows that came ─▶ waiting ─ classes that satisfy the policy ─▶ "+" ┐
//! rows that left ─▶ due ───── parts of cells that may leave ────▶ "-" ┴─▶ batch ─ gate ─▶ release of changes
//! ```
//! A whole snapshot is sent where there is nothing to change yet, where the recoding moves, where the gate refuses the changes, when
//! the stream ends, and once the changes since the last one are [`WHOLE_AGAIN`] times its rows, for readers who start late. The
//! recoding is searched again when a part of the window ([`LOOK_AGAIN`]) has been replaced, because every move costs a whole snapshot;
//! after twice as many rows each time that the search finds it again, or sooner if more rows wait than after the last search. That is at
//! most [`WHOLE_AGAIN`] windows: a whole snapshot, for which the recoding is searched too, mostly comes before.

use std::sync::Arc;

use rustc_hash::FxHashSet;

use super::difference::Standing;
use super::local::{Patience, recode};
use super::unseen::Unseen;
use super::{Account, Pool, Snapshots};
use crate::anonymizer::draft::{Draft, Grouping, Outcomes};
use crate::anonymizer::sliding::tally;
use crate::anonymizer::{Anonymizer, Closing};
use crate::gate::{self, Accepted, Release, Snapshot};
use crate::generalize::{Lineage, RowRef};
use crate::local::{Table, Terms};
use crate::model::batch::Rows;
use crate::model::event::Position;
use crate::model::policy::RecodingKind;
use crate::model::recoding::{GeneralizedValue, Recoding};
use crate::model::release::plan::{PlannedChanges, ReleasePlan};
use crate::model::release::spans::{Runs, Spans};
use crate::model::schedule::Schedule;
use crate::privacy::Rules;
use crate::search::choose::{Chosen, choose};
use crate::search::evaluator::Evaluator;
use crate::window::{CloseReason, ClosedWindow, Slide};

/// A whole snapshot is sent again after changes of so many times its rows. More: a reader who starts late waits for longer. Fewer:
/// whole snapshots cost more than the changes between them.
const WHOLE_AGAIN: u64 = 4;
/// The recoding is searched again once one in so many rows of the window has been replaced, at the soonest. More: the search costs more
/// than the rest of a slide. Fewer: a recoding that has become too fine stays for longer.
const LOOK_AGAIN: u64 = 10;
/// The stream has drifted if so many times as many rows wait as after the last search. More: a recoding that has become too fine stays
/// for longer. Fewer: chance starts searches.
const MORE_WAIT: f64 = 1.5;
/// How many rows of a group are counted first. More are counted in vain where fewer would do; fewer are tried in vain.
const FEW: usize = 64;

/// What is known of the snapshot that the next slide changes.
pub(super) struct Changelog {
    accepted: Accepted,
    /// The rows of the window that no snapshot has shown.
    waiting: Unseen,
    /// The release that gave the snapshot.
    base: u64,
    chosen: Chosen,
    /// Rows of changes since the last whole snapshot.
    sent: u64,
}

/// When the recoding is searched again.
#[derive(Default)]
pub(super) struct Pace {
    /// Rows that came since the last search.
    unsearched: u64,
    /// How many may come before the next.
    patience: u64,
    /// Rows that waited after the last search.
    waited: usize,
}

impl Pace {
    /// True if it is time to search, in a window of so many rows.
    fn is_due(&self, window: u64, waiting: usize) -> bool {
        let drifts = waiting > FEW && waiting as f64 > MORE_WAIT * self.waited as f64;
        self.unsearched * LOOK_AGAIN >= window && (drifts || self.unsearched >= self.patience)
    }

    /// The search has found the recoding again.
    fn found_again(&mut self, window: u64, waiting: usize) {
        let patience = (2 * self.unsearched.max(self.patience)).min(WHOLE_AGAIN * window);
        *self = Self { unsearched: 0, patience, waited: waiting };
    }
}

/// The rows that a slide changes: numbers of waiting rows, and of accepted ones.
struct Changing {
    came: Vec<u32>,
    left: Vec<u32>,
    /// The labels of those that came, with local recoding.
    labels: Vec<Arc<[GeneralizedValue]>>,
    /// The waiting rows and what they lose, with local recoding.
    table: Option<(Table, f64)>,
}

impl Changelog {
    /// Starts from a whole snapshot that was published.
    pub(super) fn new(snapshot: &Snapshot, rules: &Rules, waiting: Rows, base: u64, chosen: Chosen) -> Option<Self> {
        let accepted = snapshot.accepted(rules)?;
        Some(Self { accepted, waiting: Unseen::new(waiting), base, chosen, sent: 0 })
    }

    /// What a whole snapshot is compared with.
    pub(super) fn snapshot(&self) -> Snapshot {
        self.accepted.snapshot()
    }

    /// Takes in the rows that came and lets those go that left the window unseen.
    fn take_in(&mut self, window: &ClosedWindow, slide: &Slide) {
        let left: FxHashSet<Position> = slide.left.iter().copied().collect();
        // Rows leave in the order in which they came, unless they are retracted.
        self.waiting.remove_where(!window.tombstones.is_empty(), |position| left.contains(&position));
        let rows = &window.rows;
        (rows.len() - slide.came..rows.len()).for_each(|i| self.waiting.push_from(rows, i));
    }

    /// The numbers of the rows that may leave their cells, or have to.
    fn leaving(&self, snapshots: &Snapshots, max_hold: u64, rules: &Rules) -> Vec<u32> {
        let is_overdue =
            |at: &Position, since: u64| snapshots.slides - since >= max_hold || snapshots.retracted.contains(at);
        let due =
            snapshots.left.iter().filter_map(|(at, since)| Some((self.accepted.place(*at)?, is_overdue(at, *since))));
        let mut due: Vec<(u32, u32, bool)> =
            due.map(|(row, overdue)| (self.accepted.cell(row), row, overdue)).collect();
        due.sort_unstable();
        let rows = self.accepted.rows();
        let of_cell = |due: &[(u32, u32, bool)]| -> Vec<u32> {
            let members = self.accepted.members(due[0].0);
            let goes: Vec<u32> = due.iter().map(|(_, row, _)| *row).collect();
            if goes.len() == members.len() {
                return goes;
            }
            let stays = || members.iter().copied().filter(|row| goes.binary_search(row).is_err());
            let may_wait = !due.iter().any(|(_, _, overdue)| *overdue);
            // Of many who stay a few decide mostly.
            let few_stay = || rules.monotone(true) && hold(rows, &stays().take(FEW).collect::<Vec<u32>>(), rules);
            let stay = || few_stay() || hold(rows, &stays().collect::<Vec<u32>>(), rules);
            match (hold(rows, &goes, rules) && stay(), may_wait) {
                (true, _) => goes,
                (false, true) => Vec::new(),
                (false, false) => members.to_vec(),
            }
        };
        due.chunk_by(|a, b| a.0 == b.0).flat_map(of_cell).collect()
    }

    /// The records before all that may come later.
    fn oldest(&self, in_window: &Spans) -> Spans {
        let before = |runs: &Runs| runs.first().filter(|&first| first > 0).map(|first| (0, first - 1));
        let runs = |(first, last): (i64, i64)| {
            let mut runs = Runs::default();
            runs.insert(first, last);
            runs
        };
        Spans::from_runs(in_window.iter().filter_map(|(partition, of)| Some((partition, runs(before(of)?)))))
    }
}

/// True if the rows satisfy the policy together.
fn hold(rows: &Rows, which: &[u32], rules: &Rules) -> bool {
    let all_hold = |which: &[u32]| {
        let counts = tally(rows, which, rules);
        rules.hold_alone(&counts.class(&counts.histograms()))
    };
    let few = which.len() > FEW && rules.monotone(true) && all_hold(&which[..FEW]);
    !which.is_empty() && (few || all_hold(which))
}

impl Anonymizer {
    /// Notes what the next slide changes, after a whole snapshot.
    pub(super) fn follow_changes(&mut self, draft: &Draft, pool: &Pool, release: &Release) {
        // The search may find finer levels over and over that would leave out too many rows which were shown as one.
        match self.last.as_ref() == Some(&draft.recoding) {
            true => self.snapshots.pace.found_again(pool.window as u64, self.snapshots.waiting),
            false => self.snapshots.pace = Pace { waited: self.snapshots.waiting, ..Pace::default() },
        }
        let Snapshots { last: Some(last), shown, given_up, .. } = &self.snapshots else { return };
        let (mut is_shown, mut is_given_up) = (shown.finder(), given_up.finder());
        let waiting = pool.rows.filtered(|i| {
            let position = pool.rows.position(i);
            pool.standing[i] == Standing::New && !is_shown.contains(position) && !is_given_up.contains(position)
        });
        let Some(chosen) = draft.chosen.clone() else { return };
        let rules = self.rules.bind(&draft.window.dictionaries.values());
        self.snapshots.changelog = Changelog::new(last, &rules, waiting, release.lineage().plan.id, chosen);
        if self.snapshots.changelog.is_some() {
            self.snapshots.last = None;
        }
    }

    /// Makes the release of what changes; gives the window back where a whole snapshot has to be sent.
    pub(super) fn release_changes(
        &mut self,
        window: ClosedWindow,
        slide: &Slide,
    ) -> Result<Closing, Box<ClosedWindow>> {
        let Some(mut changelog) = self.snapshots.changelog.take() else { return Err(Box::new(window)) };
        let passed = self.change(&mut changelog, window, slide);
        match &passed {
            Ok(_) => self.snapshots.changelog = Some(changelog),
            Err(_) => self.snapshots.last = Some(changelog.snapshot()),
        }
        passed
    }

    fn change(
        &mut self,
        changelog: &mut Changelog,
        mut window: ClosedWindow,
        slide: &Slide,
    ) -> Result<Closing, Box<ClosedWindow>> {
        changelog.take_in(&window, slide);
        self.snapshots.pace.unsearched += slide.came as u64;
        let learnt = self.schedule().map(Recoding::Local);
        let chosen = &mut changelog.chosen;
        chosen.recoding = learnt.unwrap_or_else(|| chosen.recoding.clone());
        chosen.recoding = chosen.recoding.extended(&window.dictionaries.quasi, self.policy.lattice().top());
        self.last = Some(chosen.recoding.clone());
        let again = changelog.sent >= WHOLE_AGAIN * changelog.accepted.len() as u64;
        if again || window.reason == CloseReason::Drained || !self.stays(changelog, &window, slide) {
            return Err(Box::new(window));
        }
        self.note_due(changelog, &mut window, slide);
        let rules = self.rules.bind(&window.dictionaries.values());
        let left = changelog.leaving(&self.snapshots, slide.max_hold, &rules);
        let mut is_patient = true;
        let (changing, draft, given_up) = loop {
            let coming = self.coming(changelog, &window, &rules, is_patient.then_some(slide));
            let changing = Changing { left: left.clone(), ..coming };
            let mut draft = self.changing_draft(changelog, window, &changing);
            if draft.rows.is_empty() {
                draft.clear();
            }
            let given_up = |n: usize| self.changing_account(changelog, &draft, slide, n).lineage;
            match (self.uncommitted.excess(changelog.waiting.len(), given_up), changing.table.is_some()) {
                (Some(given_up), is_local) if given_up == 0 || !is_local || !is_patient => {
                    break (changing, draft, given_up);
                }
                (_, true) if is_patient => (is_patient, window) = (false, draft.window),
                _ => return Err(Box::new(draft.window)),
            }
        };
        let mut batch = self.changing_account(changelog, &draft, slide, given_up).of(draft.generalize());
        if self.uncommitted.is_bounded() && matches!(draft.recoding, Recoding::Local(_)) {
            batch.lineage.plan.row_levels = draft.shown_levels(&draft.outcomes);
        }
        self.add_losses(&mut batch);
        let passed = match draft.rows.is_empty() {
            true => gate::verify(batch, &self.rules),
            false => {
                let oldest = changelog.oldest(&self.snapshots.in_window);
                gate::verify_changes(batch, &self.rules, &mut changelog.accepted, &oldest)
            }
        };
        let Ok(release) = passed else { return Err(Box::new(draft.window)) };
        self.changed(changelog, &draft, &changing, &release);
        if let (Some((table, loss)), Recoding::Local(schedule)) = (changing.table, &draft.recoding) {
            if !release.is_empty() {
                self.introduce(schedule.clone());
            }
            self.learning.remember_slide(table, &draft.window.dictionaries, loss);
        }
        Ok(Closing::Release(Box::new(release)))
    }

    /// True if the recoding stays: it is not time to search again, or the search finds it again.
    fn stays(&mut self, changelog: &mut Changelog, window: &ClosedWindow, slide: &Slide) -> bool {
        let policy = Arc::clone(&self.policy);
        let (unplaced, records) = (slide.unplaced, window.rows.len() as u64);
        if policy.suppression.beside(unplaced, records).is_none() || window.rows.is_empty() {
            return false;
        }
        let due = self.snapshots.pace.is_due(records, changelog.waiting.len()) || self.look.is_some();
        if policy.recoding == RecodingKind::Local || !due {
            return true;
        }
        let rules = self.rules.bind(&window.dictionaries.values());
        let evaluator = Evaluator::beside(unplaced, &policy, &rules, Arc::clone(&window.sets));
        let evaluator = evaluator.warm(Arc::clone(&self.trail));
        let lattice = policy.lattice();
        let chosen = choose(&self.choice, &lattice, self.last.as_ref(), &evaluator, &mut self.seeds);
        let chosen = self.plannable(chosen, &[&window.rows], &evaluator);
        self.make_insight(&evaluator, &chosen);
        let stays = chosen.evaluation.satisfies && chosen.recoding == changelog.chosen.recoding;
        if stays {
            changelog.chosen = chosen;
            self.snapshots.pace.found_again(records, changelog.waiting.len());
        }
        stays
    }

    /// Notes since when rows of the snapshot are no longer in the window, and which of them are retracted.
    fn note_due(&mut self, changelog: &Changelog, window: &mut ClosedWindow, slide: &Slide) {
        let Snapshots { left, retracted, slides, in_window, .. } = &mut self.snapshots;
        let rows = &window.rows;
        let came = Spans::covering((rows.len() - slide.came..rows.len()).map(|i| rows.position(i)));
        let gone = Spans::covering(slide.left.iter().copied());
        *in_window = in_window.union(&came).without(&gone);
        if !window.tombstones.is_empty() {
            for position in left.keys() {
                let Some(row) = changelog.accepted.place(*position) else { continue };
                let is_retracted = window.tombstones.retracts(changelog.accepted.rows(), row as usize);
                window.retracted += u64::from(is_retracted && retracted.insert(*position));
            }
            let just_left = slide.left.iter().copied();
            retracted.extend(just_left.filter(|position| {
                let row = changelog.accepted.place(*position);
                row.is_some_and(|row| window.tombstones.retracts(changelog.accepted.rows(), row as usize))
            }));
        }
        let shown = slide.left.iter().filter(|position| changelog.accepted.place(**position).is_some());
        shown.for_each(|position| _ = left.entry(*position).or_insert(*slides));
    }

    /// The waiting rows that satisfy the policy class by class, and with a slide those that need not wait any longer.
    fn coming(
        &self,
        changelog: &mut Changelog,
        window: &ClosedWindow,
        rules: &Rules,
        slide: Option<&Slide>,
    ) -> Changing {
        if let Recoding::Local(schedule) = &changelog.chosen.recoding {
            changelog.waiting.forget_changes();
            return self.coming_locally(&changelog.waiting, schedule, window, rules, slide);
        }
        let mut classes = changelog.waiting.changed_classes(&changelog.chosen.recoding, &window.dictionaries);
        classes.retain(|members| hold(changelog.waiting.rows(), members, rules));
        Changing { came: classes.concat(), left: Vec::new(), labels: Vec::new(), table: None }
    }

    fn coming_locally(
        &self,
        unseen: &Unseen,
        schedule: &Schedule,
        window: &ClosedWindow,
        rules: &Rules,
        slide: Option<&Slide>,
    ) -> Changing {
        let numbers: Vec<u32> = unseen.numbers().collect();
        let mut waiting = unseen.rows().filtered(|_| false);
        numbers.iter().for_each(|&row| waiting.push_from(unseen.rows(), row as usize));
        let terms = Terms::new(&self.policy, rules, &window.dictionaries.quasi);
        let table = Table::new(&waiting, &waiting.filtered(|_| false), &self.rules.counting());
        let order = || window.rows.positions().collect::<Vec<Position>>();
        let mut patience = slide.map(|slide| Patience::new(&waiting, &order(), slide));
        let regions = recode(&terms, &table, schedule, 0, patience.as_mut());
        let classes = numbers.iter().enumerate().filter_map(|(i, &row)| Some((regions.fresh(i)?, row)));
        let mut rows: Vec<(u32, u32)> = classes.collect();
        rows.sort_unstable();
        let (mut came, mut labels) = (Vec::new(), Vec::new());
        for class in rows.chunk_by(|a, b| a.0 == b.0) {
            let members: Vec<u32> = class.iter().map(|(_, row)| *row).collect();
            if hold(unseen.rows(), &members, rules) {
                let own: Arc<[GeneralizedValue]> = regions.labels(class[0].0).into();
                labels.extend(members.iter().map(|_| Arc::clone(&own)));
                came.extend(members);
            }
        }
        Changing { came, left: Vec::new(), labels, table: Some((table, regions.loss())) }
    }

    /// A draft of the rows that come and of those that leave.
    fn changing_draft(&self, changelog: &Changelog, window: ClosedWindow, changing: &Changing) -> Draft {
        let (waiting, accepted) = (changelog.waiting.rows(), &changelog.accepted);
        let mut rows = waiting.filtered(|_| false);
        changing.came.iter().for_each(|&i| rows.push_from(waiting, i as usize));
        changing.left.iter().for_each(|&row| rows.push_from(accepted.rows(), row as usize));
        let recoding = changelog.chosen.recoding.clone();
        let grouping = match &recoding {
            Recoding::Local(_) => {
                let left = (changing.came.len()..rows.len()).map(|i| self.snapshots.labels.get(&rows.position(i)));
                let labels = changing.labels.iter().map(Some).chain(left).map(|labels| labels.map(|labels| &**labels));
                Grouping::of_labels(labels, &window.dictionaries)
            }
            Recoding::Node(_) | Recoding::Cuts(_) => {
                Grouping::of(&recoding, &rows, &rows.filtered(|_| false), &window.dictionaries)
            }
        };
        let sets = Arc::clone(&window.sets);
        let left = (changing.came.len()..rows.len()).map(|i| rows.position(i));
        let changes = PlannedChanges {
            base: Some(changelog.base),
            left: Spans::covering(left),
            rows: (accepted.len() + changing.came.len() - changing.left.len()) as u64,
        };
        let published = (0..rows.len() as u32).map(RowRef::Fresh).collect();
        let mut draft = Draft::new(self, window, Arc::new(rows), sets);
        draft.introduces_schedule = self.schedule().is_some_and(|schedule| !self.is_introduced(&schedule));
        draft.recode_grouped(Chosen { recoding, checks: 0, predicted: 0, ..changelog.chosen.clone() }, grouping);
        draft.outcomes = Outcomes { published, ..Outcomes::default() };
        draft.changes = Some(changes);
        draft
    }

    /// The account of a release of changes if the oldest `given_up` waiting rows are given up.
    fn changing_account(&self, changelog: &Changelog, draft: &Draft, slide: &Slide, given_up: usize) -> Account {
        let Snapshots { published, given_up: given_up_before, .. } = &self.snapshots;
        let (window, nothing) = (&draft.window, Spans::default());
        let left = draft.changes.as_ref().map_or(&nothing, |changes| &changes.left);
        let shown = Spans::covering(draft.rows.positions());
        let first = shown.without(left);
        let waiting = changelog.waiting.positions().filter(|position| !first.contains(*position));
        let unseen = slide.left.iter().copied();
        let unseen = unseen.filter(|position| !published.contains(*position) && !given_up_before.contains(*position));
        let waits = changelog.waiting.len() as u64 - first.count();
        let gone: Vec<Position> = unseen.chain(waiting.take(given_up)).collect();
        let given_up = waits.min(given_up as u64);
        let rejected = window.rejected.iter().map(|(position, _)| *position);
        let others = Spans::covering(gone.iter().chain(&window.suppressed).copied().chain(rejected));
        let finished = first.union(&others);
        let shown = (!shown.is_empty()).then_some(shown);
        let plan = ReleasePlan { fresh: finished.clone(), shown, ..draft.plan(true) };
        Account {
            read: slide.read + (window.rejected.len() + window.suppressed.len()) as u64,
            published: first.count(),
            suppressed: (gone.len() + window.suppressed.len()) as u64,
            waiting: waits - given_up,
            lineage: Lineage { epoch: window.epoch, plan, replayed: false, finished, since: None },
        }
    }

    /// Updates the state for the next slide.
    fn changed(&mut self, changelog: &mut Changelog, draft: &Draft, changing: &Changing, release: &Release) {
        let in_window = self.snapshots.in_window.clone();
        self.remember(draft.window.reason, &in_window, release);
        let Snapshots { shown, left, retracted, labels, given_up, .. } = &mut self.snapshots;
        left.retain(|position, _| shown.contains(*position));
        retracted.retain(|position| shown.contains(*position));
        if let Recoding::Local(_) = &draft.recoding {
            changing.left.iter().enumerate().for_each(|(i, _)| {
                labels.remove(&draft.rows.position(changing.came.len() + i));
            });
            let came = changing.labels.iter().enumerate();
            labels.extend(came.map(|(i, labels)| (draft.rows.position(i), Arc::clone(labels))));
        }
        changing.came.iter().for_each(|&row| changelog.waiting.remove(row));
        if !given_up.is_empty() {
            changelog.waiting.remove_where(true, |position| given_up.contains(position));
        }
        changelog.waiting.settle();
        changelog.sent += release.len() as u64;
        if !release.is_empty() {
            changelog.base = release.lineage().plan.id;
        }
    }
}
