//! ClosedWindow -> Release: search, choose, generalize, gate. The room between the window and the sink, without I/O.
//!
//! Keeps what outlives a window: the last recoding, and the records that wait. Held records were left out of a release
//! and may later join only classes that satisfy the policy without them. Carried records come from windows of which
//! nothing at all was published (too small, say), so they start over with the next window. Both wait at most `max_hold`.

mod difference;
mod lanes;
mod left_out;
mod numbering;
mod provenance;
mod room;
mod sequential;
mod sliding;

use std::sync::Arc;
use std::time::Duration;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

use crate::encode::Dictionaries;
use crate::failpoint::defect;
use crate::frequency::counter;
use crate::frequency::store::FrequencySets;
use crate::gate::{self, Memory, Refusal, Release};
use crate::generalize::{ClassIndex, GeneralizedBatch, Numbers, RowRef};
use crate::loss::{self, RAW_GLM};
use crate::model::batch::Rows;
use crate::model::event::{Millis, Partition, Position};
use crate::model::lattice::Node;
use crate::model::policy::{Loss, Policy, SuppressionAction};
use crate::model::recoding::{Column, Recoding};
use crate::model::release::manifest::{Named, Unmet};
use crate::model::release::plan::CommitSpace;
use crate::privacy::Rules;
use crate::render::render;
use crate::search::choose::{Choice, Chosen, choose};
use crate::search::evaluator::{Evaluator, Trail};
use crate::search::insight::{self, Insight};
use crate::window::{ClosedWindow, TooWide};

pub use lanes::Anonymizers;
pub use sequential::Past;

/// Makes releases, window after window.
pub struct Anonymizer {
    policy: Arc<Policy>,
    rules: Rules,
    choice: Choice,
    name: String,
    seeds: ChaCha8Rng,
    last: Option<Recoding>,
    /// What the last search left for the next.
    trail: Arc<Trail>,
    held: Rows,
    carried: Rows,
    /// Records that were left out for a value that has no place, from the windows whose rows are carried.
    unplaced: u64,
    snapshots: sliding::Snapshots,
    memory: Option<Memory>,
    /// Records that wait in other lanes, for the operator's figures.
    elsewhere: u64,
    /// Those of the last window: what the codes of waiting records mean.
    dictionaries: Option<Dictionaries>,
    /// Whose waiting records are ours; all, if `None`.
    partitions: Option<Vec<Partition>>,
    /// How long the next release may be looked at, if it is to be.
    look: Option<Duration>,
    insight: Option<Insight>,
    /// How much can be written down, where that is bounded.
    ledgers: room::Ledgers,
}

/// What became of a window.
#[derive(Debug)]
pub enum Closing {
    /// Safe to send; possibly without rows, when it only accounts for records that were left out.
    Release(Box<Release>),
    /// The gate refused: nothing may be sent, and the records stay where they are.
    Refused(Refusal),
}

impl Anonymizer {
    /// `name` starts every release id; `seed` fixes searches.
    pub fn new(policy: Arc<Policy>, choice: Choice, name: impl Into<String>, seed: u64) -> Self {
        let empty = Rows::new(policy.quasi.len(), policy.schema.sensitive.len());
        Self {
            rules: choice.rules(&policy),
            memory: Memory::new(&policy),
            elsewhere: 0,
            policy,
            choice,
            name: name.into(),
            seeds: ChaCha8Rng::seed_from_u64(seed),
            last: None,
            trail: Arc::default(),
            held: empty.clone(),
            carried: empty,
            unplaced: 0,
            snapshots: sliding::Snapshots::default(),
            dictionaries: None,
            partitions: None,
            ledgers: room::Ledgers::default(),
            look: None,
            insight: None,
        }
    }

    /// Lets the operator look at the search of the next window, for which it may take `time`.
    pub fn look(&mut self, time: Duration) {
        self.look = Some(time);
    }

    /// What was seen since the last call, if anything.
    pub fn take_insight(&mut self) -> Option<Insight> {
        self.insight.take()
    }

    /// Lets no more wait than can be written down there.
    #[must_use]
    pub fn within(mut self, ledger: Option<Arc<dyn CommitSpace>>) -> Self {
        self.ledgers = ledger.map(room::Ledgers::new).unwrap_or_default();
        self
    }

    /// The rules of the policy.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Records that wait for a later release.
    pub fn waiting(&self) -> usize {
        self.held.len() + self.carried.len() + self.snapshots.waiting()
    }

    /// Lets go of waiting records of other instances' partitions: a planned release may have had some. Returns how many.
    pub fn retract_others(&mut self) -> u64 {
        let Some(partitions) = &self.partitions else { return 0 };
        let before = self.waiting();
        let stays = |rows: &Rows| rows.filtered(|i| partitions.contains(&rows.position(i).partition));
        (self.held, self.carried) = (stays(&self.held), stays(&self.carried));
        (before - self.waiting()) as u64
    }

    /// Forgets what waits: it belongs to others now, or is read again. The next release follows one at `last`.
    pub fn reset(&mut self, partitions: Option<Vec<Partition>>, last: Option<Node>) {
        self.partitions = partitions;
        self.ledgers.forget();
        self.held = Rows::new(self.policy.quasi.len(), self.policy.schema.sensitive.len());
        (self.carried, self.unplaced) = (self.held.clone(), 0);
        // What a snapshot has shown is finished, so the next window has none of it: there is nothing to compare.
        self.snapshots = sliding::Snapshots::default();
        if self.remembers() {
            // What others have published meanwhile counts too, so all of it is told anew.
            self.memory = Memory::new(&self.policy);
        }
        self.last = last.filter(|node| self.policy.lattice().contains(node)).map(Recoding::from);
    }

    /// Makes the release of a window.
    pub fn release(&mut self, mut window: ClosedWindow) -> Result<Closing, TooWide> {
        if let Some(slide) = window.slide.take() {
            return Ok(self.snapshot(&mut window, &slide));
        }
        let replay = window.replay.take();
        if let Some(replay) = &replay
            && let Some(shown) = replay.plan.shown.as_ref().filter(|_| !self.remembers())
            && replay.plan.fingerprint == self.policy.fingerprint
        {
            return Ok(self.snapshot_again(&window, &replay.plan, shown));
        }
        let mut expired = Vec::new();
        match &replay {
            Some(replay) => self.held = replay.held.clone(),
            None => expired = self.expire(window.closed),
        }
        (0..window.held.len()).for_each(|i| self.held.push_from(&window.held, i));
        if !window.tombstones.is_empty() {
            window.waited = self.take_waiting(|rows, i| window.tombstones.retracts(rows, i));
            window.retracted += window.waited.len() as u64;
            expired.extend_from_slice(&window.waited);
        }
        self.dictionaries = Some(window.dictionaries.clone());
        let (rows, sets) = self.with_carried(&window)?;
        let policy = Arc::clone(&self.policy);
        let lattice = policy.lattice();
        let planned = replay.as_ref().filter(|_| !defect("fresh-id")).map(|replay| replay.plan.id);
        let id = planned.unwrap_or_else(rand::random);
        // The policy has changed since the plan was made: the same bytes cannot be made again, and others must not be.
        let obsolete = replay.as_ref().is_some_and(|replay| replay.plan.fingerprint != policy.fingerprint);
        self.unplaced += window.unplaced();
        // What was left out for its value counts too. A planned release was within the limit.
        let within = replay.is_some() || policy.suppression.beside(self.unplaced, rows.len() as u64).is_some();
        let brought = !(window.rows.is_empty() && window.suppressed.is_empty());
        if rows.is_empty() || obsolete || !within {
            let mut plan = Plan::default();
            if !obsolete {
                (0..rows.len() as u32).for_each(|i| plan.leave_out(policy.action, i));
            } else {
                plan.suppressed = (0..rows.len() as u32).collect();
                expired.extend_from_slice(self.held.positions());
                self.held = Rows::new(policy.quasi.len(), policy.schema.sensitive.len());
            }
            let top = Recoding::from(lattice.top().clone());
            let lineage = |plan: &Plan| self.lineage(&window, &rows, plan, &top, id, &expired, replay.as_deref());
            let plan = self.ledgers.make_room(&rows, &self.held, plan, lineage);
            let lineage = lineage(&plan);
            let mut batch = self.batch(&window, &rows, &plan, &top, id, &expired, None, Vec::new());
            batch.lineage = lineage;
            batch.provenance.work.unmet = (!within && brought).then_some(Unmet::Unplaced);
            return Ok(self.pass(batch, &rows, &plan, &top));
        }
        let rules = self.rules.bind(&window.dictionaries.values());
        let evaluator = Evaluator::beside(self.unplaced, &policy, &rules, sets).warm(Arc::clone(&self.trail));
        let chosen = match &replay {
            Some(replay) => Chosen::given(Node::new(replay.plan.levels.iter().copied()), &self.choice, &evaluator),
            None => choose(&self.choice, &lattice, self.last.as_ref(), &evaluator, &mut self.seeds),
        };
        let lineage = |this: &Self, plan: &Plan| {
            this.lineage(&window, &rows, plan, &chosen.recoding, id, &expired, replay.as_deref())
        };
        let mut plan = self.plan(&evaluator, &chosen, &rows);
        let columns = chosen.recoding.columns(&window.dictionaries.quasi);
        match replay.as_ref().and_then(|replay| replay.plan.shown.as_ref()) {
            Some(shown) => plan = self.planned(&rows, shown),
            None => self.leave_recurring_out(&mut plan, &rows, &columns, &rules),
        }
        let fitting =
            |this: &Self, plan: Plan| this.ledgers.make_room(&rows, &this.held, plan, |plan| lineage(this, plan));
        plan = fitting(self, plan);
        let losses = self.losses(&evaluator, &chosen, &plan);
        if let Some(time) = self.look.take() {
            self.insight = Some(insight::look(&lattice, &evaluator, &chosen, time));
        }
        drop(evaluator);
        let batch = |this: &Self, plan: &Plan| {
            let lineage = lineage(this, plan);
            let (recoding, losses) = (&chosen.recoding, losses.clone());
            let mut batch = this.batch(&window, &rows, plan, recoding, id, &expired, Some(&chosen), losses);
            batch.lineage = lineage;
            let unmet = brought && plan.published.is_empty();
            batch.provenance.work.unmet = unmet.then(|| left_out::unmet(&chosen));
            batch.provenance.work.left_out = left_out::groups(&policy, &window, &rows, plan, &columns);
            batch
        };
        let mut closing = self.pass(batch(self, &plan), &rows, &plan, &chosen.recoding);
        if matches!(closing, Closing::Refused(_)) && plan.leave_held_out() {
            // Where a criterion is not monotone, held records can spoil a class that is good without them.
            self.leave_recurring_out(&mut plan, &rows, &columns, &rules);
            plan = fitting(self, plan);
            closing = self.pass(batch(self, &plan), &rows, &plan, &chosen.recoding);
        }
        let asked = policy.sequential.is_some();
        if matches!(closing, Closing::Refused(_)) && asked && plan.leave_all_out(policy.action) {
            // Who was left out for returning may have been needed by a rule about more than one class.
            plan = fitting(self, plan);
            return Ok(self.pass(batch(self, &plan), &rows, &plan, &chosen.recoding));
        }
        Ok(closing)
    }

    /// Accounts for records that have waited too long although no window closes. `None` if there are none.
    pub fn tick(&mut self, now: Millis) -> Result<Option<Closing>, TooWide> {
        match &self.dictionaries {
            Some(dictionaries) if self.overdue(now) => {
                let window = ClosedWindow::empty(now, dictionaries.clone(), self.rules.counting())?;
                self.release(window).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Sends the batch through the gate; only what passes changes what waits.
    fn pass(&mut self, mut batch: GeneralizedBatch, rows: &Rows, plan: &Plan, recoding: &Recoding) -> Closing {
        self.price(&mut batch);
        let open = defect("gate-open").then(|| Rules::new(&Policy { criteria: Vec::new(), ..(*self.policy).clone() }));
        let verdict = match (&open, &mut self.memory) {
            (Some(open), _) => gate::verify(batch, open),
            (None, Some(memory)) => {
                let planned = batch.lineage.plan.journal.is_some();
                gate::verify_recurring(batch, &self.rules, memory, planned)
            }
            (None, None) => gate::verify(batch, &self.rules),
        };
        match verdict {
            Ok(release) => {
                self.settle(rows, plan);
                self.ledgers.made(&release.lineage().finished);
                if !release.is_empty() {
                    self.last = Some(recoding.clone());
                }
                Closing::Release(Box::new(release))
            }
            Err(refusal) => Closing::Refused(refusal),
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn batch(
        &self,
        window: &ClosedWindow,
        rows: &Arc<Rows>,
        plan: &Plan,
        recoding: &Recoding,
        id: u64,
        expired: &[Position],
        chosen: Option<&Chosen>,
        losses: Vec<Named>,
    ) -> GeneralizedBatch {
        let columns: Vec<Arc<Column>> =
            recoding.columns(&window.dictionaries.quasi).into_iter().map(Arc::new).collect();
        let provenance = self.provenance(window, plan, id, expired, chosen, losses, rows, &columns);
        let looked_up = || Arc::new(Numbers::of(rows, &self.held, &plan.published, &columns));
        let mut batch = GeneralizedBatch::numbered(
            Arc::clone(rows),
            Arc::new(self.held.clone()),
            plan.published.clone(),
            &plan.numbers.clone().unwrap_or_else(looked_up),
            &columns,
            &window.dictionaries,
        );
        (batch.rejected, batch.provenance) = (window.rejected.clone(), provenance);
        render(&mut batch, &columns, &self.policy);
        batch
    }

    /// Puts down what the rows lose that are published.
    fn price(&self, batch: &mut GeneralizedBatch) {
        let suppressed = batch.provenance.records_suppressed;
        batch.provenance.losses = loss::published(&self.policy, batch, suppressed);
    }

    /// What the search knows about losses, for the operator's figures.
    fn losses(&self, evaluator: &Evaluator<'_>, chosen: &Chosen, plan: &Plan) -> Vec<Named> {
        if plan.published.is_empty() {
            return Vec::new();
        }
        let losses: Vec<Loss> = self.policy.losses().collect();
        let values = evaluator.losses_by(losses.iter().copied(), &chosen.recoding);
        let named = |(loss, value): (Loss, f64)| Named { name: loss.as_str().into(), value };
        let raw = Named { name: RAW_GLM.into(), value: evaluator.raw_glm(&chosen.recoding) };
        losses.into_iter().zip(values).map(named).chain([raw]).collect()
    }

    /// The window's rows behind those carried from windows that published nothing, with their frequency sets.
    fn with_carried(&self, window: &ClosedWindow) -> Result<(Arc<Rows>, Arc<dyn FrequencySets>), TooWide> {
        if self.carried.is_empty() {
            return Ok((Arc::clone(&window.rows), Arc::clone(&window.sets)));
        }
        let mut rows = self.carried.clone();
        (0..window.rows.len()).for_each(|i| rows.push_from(&window.rows, i));
        let sizes: Vec<usize> = window.dictionaries.quasi.iter().map(|view| view.level(0).len()).collect();
        let mut counter = counter::counter(&sizes, self.rules.counting()).ok_or(TooWide)?;
        counter.add(&rows, 0..rows.len());
        Ok((Arc::new(rows), counter.last_store(&window.dictionaries.quasi)))
    }

    /// Which rows are published, held and suppressed by the chosen recoding.
    fn plan(&self, evaluator: &Evaluator<'_>, chosen: &Chosen, rows: &Rows) -> Plan {
        let mut plan = Plan::default();
        if !chosen.evaluation.satisfies {
            (0..rows.len() as u32).for_each(|i| plan.leave_out(self.policy.action, i));
            return plan;
        }
        let mut classes = PublishedClasses::new(evaluator, &chosen.recoding);
        let mut number = |rows: &Rows| (0..rows.len()).map(|i| classes.number(rows.quasi(i))).collect::<Vec<u32>>();
        let (fresh, held) = (number(rows), number(&self.held));
        for (i, &class) in (0..).zip(&fresh) {
            if classes.is_published(class) || defect("publish-all") {
                plan.published.push(RowRef::Fresh(i));
            } else {
                plan.leave_out(self.policy.action, i);
            }
        }
        let joins = (0..).zip(&held).filter(|(_, class)| classes.is_published(**class));
        plan.published.extend(joins.map(|(i, _)| RowRef::Held(i)));
        let (cells, count) = classes.index.into_cells();
        plan.numbers = Some(Arc::new(Numbers { fresh, held, cells, count }));
        plan
    }

    fn overdue(&self, now: Millis) -> bool {
        let SuppressionAction::Hold { max_hold } = self.policy.action else { return false };
        let oldest = now.0.saturating_sub(max_hold.as_millis() as i64);
        [&self.held, &self.carried].iter().any(|rows| (0..rows.len()).any(|i| rows.arrived(i).0 < oldest))
    }

    /// Suppresses what has waited longer than `max_hold`; returns where it stood.
    fn expire(&mut self, now: Millis) -> Vec<Position> {
        let SuppressionAction::Hold { max_hold } = self.policy.action else { return Vec::new() };
        let oldest = now.0.saturating_sub(max_hold.as_millis() as i64);
        self.take_waiting(|rows, i| rows.arrived(i).0 < oldest)
    }

    /// Takes some of what waits out; returns where it stood.
    fn take_waiting(&mut self, goes: impl Fn(&Rows, usize) -> bool) -> Vec<Position> {
        let mut gone = Vec::new();
        for rows in [&mut self.held, &mut self.carried] {
            let before = gone.len();
            gone.extend((0..rows.len()).filter(|&i| goes(rows, i)).map(|i| rows.position(i)));
            if gone.len() > before {
                *rows = rows.filtered(|i| !goes(rows, i));
            }
        }
        gone
    }

    /// Moves the rows that wait to where they wait.
    fn settle(&mut self, rows: &Rows, plan: &Plan) {
        let mut still_held: Vec<bool> = vec![true; self.held.len()];
        for row in &plan.published {
            if let RowRef::Held(i) = row {
                still_held[*i as usize] = false;
            }
        }
        plan.expired.iter().for_each(|&i| still_held[i as usize] = false);
        if still_held.contains(&false) {
            self.held = self.held.filtered(|i| still_held[i]);
        }
        let mut carried = Rows::new(self.policy.quasi.len(), self.policy.schema.sensitive.len());
        // Nothing of the window was published: its rows start over. Otherwise those left out are known to be missing.
        let to = if plan.published.is_empty() { &mut carried } else { &mut self.held };
        plan.held.iter().for_each(|&i| to.push_from(rows, i as usize));
        if carried.is_empty() {
            self.unplaced = 0;
        }
        self.carried = carried;
    }
}

/// Row by row, what happens: indices into the window's rows, held rows only among the published.
#[derive(Clone, Default)]
struct Plan {
    published: Vec<RowRef>,
    held: Vec<u32>,
    suppressed: Vec<u32>,
    /// Indices into the held rows: those that are suppressed because there is no room for them.
    expired: Vec<u32>,
    /// The classes of all rows by the recoding, where they were looked up.
    numbers: Option<Arc<Numbers>>,
}

impl Plan {
    /// Leaves the held records where they are; false if none was to be published.
    fn leave_held_out(&mut self) -> bool {
        let before = self.published.len();
        self.published.retain(|row| matches!(row, RowRef::Fresh(_)));
        self.published.len() < before
    }
}

/// The classes of a recoding. Those that satisfy the policy have the first numbers; the others get theirs as they are looked up.
struct PublishedClasses {
    columns: Vec<Column>,
    index: ClassIndex,
    published: usize,
}

impl PublishedClasses {
    fn new(evaluator: &Evaluator<'_>, recoding: &Recoding) -> Self {
        let columns = recoding.columns(evaluator.sets().domains());
        let set = evaluator.sets().regroup(recoding, &columns);
        let published = evaluator.published(&*set);
        let mut index = ClassIndex::new(columns.iter().map(Column::len));
        for class in (0..set.len()).filter(|&class| published[class]) {
            index.number((0..columns.len()).map(|attribute| set.code(class, attribute)));
        }
        Self { columns, published: index.len(), index }
    }

    /// The class with these leaf codes.
    fn number(&mut self, leaves: &[u32]) -> u32 {
        self.index.number(leaves.iter().zip(&self.columns).map(|(&leaf, column)| column.map()[leaf as usize]))
    }

    fn is_published(&self, class: u32) -> bool {
        (class as usize) < self.published
    }
}
