//! The last records, and the cuts that lose least among them.
//!
//! A node of the map is cut where the two parts are in proportion to their outlets. Of all quasi-identifiers and levels that allow that, the
//! cut is taken whose parts lose least, each searched as the window of a release would be. So a sketch should be as large as what all open
//! windows together hold: fewer records lose more, and another cut may be the best one for them.

use std::collections::BTreeMap;
use std::sync::Arc;

use rand::SeedableRng as _;
use rand_chacha::ChaCha8Rng;

use super::{District, DistrictCut, DistrictMap, Rank};
use crate::encode::{Dictionaries, Encoded, Encoder};
use crate::frequency::counter::{self, DEFAULT_WARM_MEMORY};
use crate::model::batch::Rows;
use crate::model::domain::Code;
use crate::model::event::{Millis, Position};
use crate::model::lattice::Level;
use crate::model::policy::{Policy, RecodingKind};
use crate::privacy::Rules;
use crate::search::evaluator::Evaluator;
use crate::search::{Algorithm, Budget};

/// The most records of a sketch. Larger: costs memory and time. Smaller: cuts are chosen for windows smaller than those that are published.
pub const MOST: usize = 1 << 16;
/// The fewest records of a full sketch. Larger: drift is noticed late. Smaller: the parts of many outlets hold too few records to be cut.
pub const FEWEST: usize = 1 << 12;
/// A part of a cut holds so many records, and so many times k. Smaller: a map tells of few people. Larger: many outlets share a district.
const LEAST: usize = 128;
const LEAST_K: usize = 10;
/// By how much of all its records the parts of a cut may miss their proportion. Larger: outlets are less even. Smaller: fewer cuts are
/// possible, and worse ones are taken.
const OFF: f64 = 0.06;
/// How many of the best cuts of a node are followed to the end, from the root down. More: a map takes longer. Fewer: it loses more,
/// because the cut that spares most now need not be the best one for those below it.
const TRIED: [usize; 2] = [3, 2];
/// The checks of one search. More: a map takes longer. Fewer: wide policies are cut at less good places.
const CHECKS: u64 = 400;

/// The records that a map is made of.
pub struct Sketch {
    policy: Arc<Policy>,
    encoder: Encoder,
    rows: Rows,
}

/// Some neighbouring outlets that are to be divided.
#[derive(Clone, Copy)]
struct Place {
    from: u32,
    outlets: u32,
    depth: usize,
}

impl Place {
    fn halves(self) -> (Self, Self) {
        let (half, depth) = (self.outlets / 2, self.depth + 1);
        (Self { outlets: half, depth, ..self }, Self { from: self.from + half, outlets: self.outlets - half, depth })
    }
}

/// A cut that is possible.
struct Candidate {
    quasi: usize,
    level: Level,
    /// By code at the level, whether it is in the first part.
    first: Vec<bool>,
    to: String,
    off: f64,
}

/// Everything about the rows that does not change while they are divided.
struct Ground<'s> {
    policy: &'s Policy,
    rows: &'s Rows,
    dictionaries: Dictionaries,
    /// By quasi-identifier and level, the code of each leaf.
    codes: Vec<Vec<Vec<Code>>>,
    least: usize,
}

impl Sketch {
    /// An empty one.
    pub fn new(policy: &Arc<Policy>) -> Self {
        // As `optimal` searches, whatever else the policy wants: the cuts are compared with one another.
        let plain = Policy { recoding: RecodingKind::FullDomain, sequential: None, ..Policy::clone(policy) };
        let (encoder, rows) = Self::empty(&plain);
        Self { policy: Arc::new(plain), encoder, rows }
    }

    fn empty(policy: &Policy) -> (Encoder, Rows) {
        (Encoder::new(Arc::new(policy.clone())), Rows::new(policy.quasi.len(), policy.schema.sensitive.len()))
    }

    /// Takes a record in; false if the policy has no place for it.
    pub fn add(&mut self, record: &crate::model::record::Record<'_>) -> bool {
        let taken = self.encoder.encode(record, None) == Encoded::Row;
        if taken {
            let position = Position::new(0, self.rows.len() as i64);
            self.rows.push(position, Millis(0), self.encoder.row());
        }
        taken
    }

    /// How many records it has.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// True before the first one.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Forgets all records.
    pub fn clear(&mut self) {
        (self.encoder, self.rows) = Self::empty(&self.policy);
    }

    /// The map for so many outlets. Cuts of `last`, the map before, are kept by their attribute and only moved, where that divides the
    /// records evenly.
    pub fn divide(&self, outlets: u32, last: Option<&DistrictMap>) -> DistrictMap {
        let dictionaries = self.encoder.dictionaries();
        let levels =
            |view: &Arc<crate::model::domain::DomainView>| (0..=view.height()).map(|to| view.between(0, to)).collect();
        let codes = dictionaries.quasi.iter().map(levels).collect();
        let k = self.policy.k().0 as usize;
        let least = LEAST.max(LEAST_K * k);
        let ground = Ground { policy: &self.policy, rows: &self.rows, dictionaries, codes, least };
        let all: Vec<usize> = (0..self.rows.len()).collect();
        let last = last.filter(|last| last.outlets == outlets).map(|last| &last.districts);
        let whole = Place { from: 0, outlets, depth: 0 };
        DistrictMap { outlets, districts: ground.divide(&all, whole, f64::INFINITY, last).0 }
    }
}

impl Ground<'_> {
    /// The best division that was found, and what it loses. `known` is what the rows lose together.
    fn divide(&self, rows: &[usize], at: Place, known: f64, last: Option<&District>) -> (District, f64) {
        let (first_outlets, rest_outlets) = at.halves();
        if at.outlets < 2 || rows.len() < 2 * self.least {
            return (District::Outlets(at.from, at.outlets), known);
        }
        let last = match last {
            Some(District::Cut(cut)) => Some(cut),
            _ => None,
        };
        let mut candidates = self.candidates(rows, f64::from(first_outlets.outlets) / f64::from(at.outlets));
        let is_kept = |candidate: &Candidate| {
            last.is_some_and(|cut| {
                cut.level == candidate.level && *self.policy.quasi[candidate.quasi].name == *cut.attribute
            })
        };
        if candidates.iter().any(is_kept) {
            candidates.retain(is_kept);
        }
        let judge = |candidate: Candidate| {
            let (first, rest): (Vec<usize>, Vec<usize>) = rows
                .iter()
                .partition(|&&row| candidate.first[self.code(row, candidate.quasi, candidate.level) as usize]);
            let costs = (self.cost(&first), self.cost(&rest));
            (candidate, first, rest, costs)
        };
        let mut judged: Vec<_> = candidates.into_iter().map(judge).collect();
        judged.sort_by(|a, b| (a.3.0 + a.3.1).total_cmp(&(b.3.0 + b.3.1)));
        judged.truncate(TRIED.get(at.depth).copied().unwrap_or(1));
        let go_on = |(candidate, first, rest, costs): (Candidate, Vec<usize>, Vec<usize>, (f64, f64))| {
            let (first, one) = self.divide(&first, first_outlets, costs.0, last.map(|cut| &cut.first));
            let (rest, other) = self.divide(&rest, rest_outlets, costs.1, last.map(|cut| &cut.rest));
            let attribute = self.policy.quasi[candidate.quasi].name.to_string();
            let cut = DistrictCut { attribute, level: candidate.level, to: candidate.to, first, rest };
            (District::Cut(Box::new(cut)), one + other)
        };
        let best = judged.into_iter().map(go_on).min_by(|a, b| a.1.total_cmp(&b.1));
        best.unwrap_or((District::Outlets(at.from, at.outlets), known))
    }

    /// For each quasi-identifier and level the cut that divides the rows in about this proportion.
    fn candidates(&self, rows: &[usize], share: f64) -> Vec<Candidate> {
        let levels = |quasi: usize| {
            let attribute = &self.policy.quasi[quasi];
            (attribute.min_level..attribute.hierarchy.height()).map(move |level| (quasi, level))
        };
        let places = (0..self.policy.quasi.len()).flat_map(levels);
        let mut candidates: Vec<Candidate> =
            places.filter_map(|(quasi, level)| self.cut(rows, share, quasi, level)).collect();
        let nearest = candidates.iter().map(|candidate| candidate.off).fold(f64::INFINITY, f64::min);
        candidates.retain(|candidate| candidate.off <= OFF.max(nearest));
        candidates
    }

    /// The cut between the values of one level that comes nearest to the share; both parts have enough records.
    fn cut(&self, rows: &[usize], share: f64, quasi: usize, level: Level) -> Option<Candidate> {
        let mut counts: BTreeMap<Code, usize> = BTreeMap::new();
        for &row in rows {
            *counts.entry(self.code(row, quasi, level)).or_default() += 1;
        }
        let table = self.dictionaries.quasi[quasi].level(level);
        let listed = self.policy.quasi[quasi].hierarchy.leaves().is_some();
        let rank = |code: Code| if listed { Rank::listed(code) } else { Rank::of(table.label(code)) };
        let mut order: Vec<(Code, usize)> = counts.into_iter().collect();
        order.sort_by(|a, b| rank(a.0).partial_cmp(&rank(b.0)).unwrap_or(std::cmp::Ordering::Equal));
        let (mut before, mut best) = (0, None);
        for (place, &(code, count)) in order.iter().enumerate() {
            before += count;
            let off = (before as f64 / rows.len() as f64 - share).abs();
            let enough = before >= self.least && rows.len() - before >= self.least;
            // The value that is named is one of many records.
            let named = count >= self.policy.k().0 as usize;
            if enough && named && best.is_none_or(|(least, _, _)| off < least) {
                best = Some((off, place, code));
            }
        }
        let (off, place, code) = best?;
        let mut first = vec![false; table.len()];
        order[..=place].iter().for_each(|(code, _)| first[*code as usize] = true);
        Some(Candidate { quasi, level, first, to: table.label(code).to_owned(), off })
    }

    /// What a release of these rows would lose, in records.
    fn cost(&self, rows: &[usize]) -> f64 {
        let mut chosen = vec![false; self.rows.len()];
        rows.iter().for_each(|&row| chosen[row] = true);
        let own = self.rows.filtered(|row| chosen[row]);
        let rules = Rules::new(self.policy).bind(&self.dictionaries.values());
        let worst = rows.len() as f64;
        let Some(sets) = counter::count(&own, &rules.counting(), &self.dictionaries.quasi, DEFAULT_WARM_MEMORY) else {
            return worst;
        };
        let evaluator = Evaluator::new(self.policy, &rules, sets);
        let budget = Budget { max_checks: CHECKS, ..Budget::unlimited() };
        let mut rng = ChaCha8Rng::seed_from_u64(0);
        let outcome = Algorithm::Optimal.search().run(&self.policy.lattice(), &evaluator, &budget, &mut rng);
        outcome.best.map_or(worst, |best| best.evaluation.loss * worst)
    }

    fn code(&self, row: usize, quasi: usize, level: Level) -> Code {
        self.codes[quasi][usize::from(level)][self.rows.quasi(row)[quasi] as usize]
    }
}
