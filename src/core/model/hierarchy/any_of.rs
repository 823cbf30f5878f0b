//! Alternatives: several hierarchies of the same values, such as weeks beside months, or widths of 5 beside widths of 7. Together
//! their levels are partially ordered (the admissible partitions of Wang, Liao and Hsu 2007).
//!
//! Each alternative is a *chain*. A level has one number, whatever the chain, so that recodings, plans and manifests name it as they
//! name any level. Numbers rise along every chain: 0 is the value itself, the last one is everything in one value. A level that
//! two chains share (the same widths, calendar unit or groups) has one number.
//! Invariant: [`Alternatives::refines`] is the refinement of the partitions themselves, on one chain or not.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use super::{Errors, Hierarchy, HierarchyError, Kind};
use crate::model::lattice::Level;

/// Hierarchies of the same values. At least two.
pub struct Alternatives {
    chains: Vec<Arc<Hierarchy>>,
    /// By chain: the number of each of its levels.
    numbers: Vec<Vec<Level>>,
    /// By number: the first chain that has it, and its level there.
    places: Vec<(usize, Level)>,
    /// By number, and by number: whether the one refines the other.
    order: Vec<Vec<bool>>,
}

impl Alternatives {
    pub(super) fn new(chains: Vec<Hierarchy>) -> Result<Self, Vec<HierarchyError>> {
        let mut errors = Errors::default();
        if chains.len() < 2 {
            errors.push(None, "`any_of` needs two hierarchies or more; write the one alone");
        }
        let mut same: Vec<Hierarchy> = Vec::new();
        for (at, chain) in chains.into_iter().enumerate() {
            match same.first() {
                None if chain.is_alternative() => same.push(chain),
                Some(first) => match first.with_the_same_values(chain) {
                    Ok(chain) => same.push(chain),
                    Err(why) => errors.push(None, format!("alternative {} {why}", at + 1)),
                },
                None => errors.push(None, "`any_of` takes `csv`, `tree`, `intervals` and `date`"),
            }
        }
        errors.into_result()?;
        let chains: Vec<Arc<Hierarchy>> = same.into_iter().map(Arc::new).collect();
        Self::of(chains).ok_or_else(|| {
            let mut errors = Errors::default();
            errors.push(None, "the alternatives have more than 255 levels together; write fewer");
            errors.into_list()
        })
    }

    /// Numbers the levels; `None` if there are too many.
    fn of(chains: Vec<Arc<Hierarchy>>) -> Option<Self> {
        let all: Vec<Vec<(usize, Level)>> =
            (0..chains.len()).map(|chain| (0..=chains[chain].height()).map(|level| (chain, level)).collect()).collect();
        let refines = |a: (usize, Level), b: (usize, Level)| {
            if a.0 == b.0 { a.1 <= b.1 } else { chains[a.0].level_refines(a.1, &chains[b.0], b.1) }
        };
        let same = |a: (usize, Level), b: (usize, Level)| a.0 != b.0 && refines(a, b) && refines(b, a);
        // One place per level that chains share: the first.
        let mut open: Vec<(usize, Level)> = Vec::new();
        for &place in all.iter().flatten() {
            if !open.iter().any(|&other| same(other, place)) {
                open.push(place);
            }
        }
        let mut places = Vec::new();
        while !open.is_empty() {
            let first = |place: &&(usize, Level)| {
                !open.iter().any(|&other| other != **place && refines(other, **place) && !same(**place, other))
            };
            let next = *open.iter().filter(first).min_by_key(|(chain, level)| (*level, *chain))?;
            open.retain(|place| *place != next);
            places.push(next);
        }
        Level::try_from(places.len()).ok()?;
        let number = |place: (usize, Level)| {
            let at = places.iter().position(|&known| known == place || same(known, place));
            at.map(|at| at as Level)
        };
        let numbers =
            all.iter().map(|chain| chain.iter().map(|&place| number(place)).collect()).collect::<Option<_>>()?;
        let order = places.iter().map(|&a| places.iter().map(|&b| refines(a, b)).collect()).collect();
        Some(Self { numbers, places, order, chains })
    }

    /// The hierarchies.
    pub fn chains(&self) -> &[Arc<Hierarchy>] {
        &self.chains
    }

    /// The numbers of the levels of a chain, from the value itself to everything in one value.
    pub fn numbers(&self, chain: usize) -> &[Level] {
        &self.numbers[chain]
    }

    /// A chain that has the level of this number, and its level there.
    pub fn place(&self, number: Level) -> Option<(usize, Level)> {
        self.places.get(usize::from(number)).copied()
    }

    /// The hierarchy and its level that have this number.
    pub(super) fn at(&self, number: Level) -> Option<(&Hierarchy, Level)> {
        self.place(number).map(|(chain, level)| (&*self.chains[chain], level))
    }

    /// The number of everything in one value.
    pub(super) fn height(&self) -> Level {
        (self.places.len() - 1) as Level
    }

    /// True if values that are alike at one level are alike at the other.
    pub fn refines(&self, fine: Level, coarse: Level) -> bool {
        self.order[usize::from(fine)][usize::from(coarse)]
    }
}

impl Hash for Alternatives {
    /// Everything else follows from the chains.
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.chains.hash(state);
    }
}

impl Hierarchy {
    /// True if it can be one of several alternatives.
    fn is_alternative(&self) -> bool {
        matches!(self.0, Kind::Closed(_) | Kind::Intervals(_) | Kind::Dates(_))
    }

    /// The other hierarchy, if it reads the same values as this one; its leaves come in the order of this one's.
    fn with_the_same_values(&self, other: Self) -> Result<Self, &'static str> {
        match (&self.0, &other.0) {
            (Kind::Closed(own), Kind::Closed(closed)) => match closed.in_order_of(own) {
                Some(closed) => Ok(Self::of(Kind::Closed(closed))),
                None => Err("lists other values than the first; list the same ones"),
            },
            (Kind::Intervals(own), Kind::Intervals(others)) if !own.reads_as(others) => {
                Err("reads other numbers than the first; write the same `min`, `max`, `origin`, `open` and `decimal`")
            }
            (Kind::Dates(own), Kind::Dates(others)) if !own.reads_as(others) => Err(
                "reads other dates than the first; begin with the same unit, and write the same `min`, `max` and `formats`",
            ),
            (Kind::Intervals(_), Kind::Intervals(_)) | (Kind::Dates(_), Kind::Dates(_)) => Ok(other),
            _ => Err(
                "is of another kind than the first; write alternatives of one kind: csv or tree, intervals, or date",
            ),
        }
    }

    /// True if values that are alike at a level are alike at that level of another hierarchy of the same values.
    fn level_refines(&self, level: Level, other: &Self, coarse: Level) -> bool {
        match (&self.0, &other.0) {
            _ if level == 0 || coarse == other.height() => true,
            _ if coarse == 0 || level == self.height() => false,
            (Kind::Closed(own), Kind::Closed(closed)) => own.level_refines(level, closed, coarse),
            (Kind::Intervals(own), Kind::Intervals(others)) => own.level_refines(level, others, coarse),
            (Kind::Dates(own), Kind::Dates(others)) => {
                own.unit(level).zip(others.unit(coarse)).is_some_and(|(fine, coarse)| fine.nests_in(coarse))
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{DateSpec, DateUnit, Decimal, IntervalSpec, Open};
    use super::*;

    fn ages(widths: &[i64]) -> Hierarchy {
        let widths: Vec<Decimal> = widths.iter().map(|&width| width.into()).collect();
        let spec = IntervalSpec { open: Open::High, ..IntervalSpec::new(widths, 0.into(), 104.into()) };
        Hierarchy::intervals(spec).unwrap()
    }

    fn dates(units: &[DateUnit]) -> Hierarchy {
        Hierarchy::dates(DateSpec::new(units)).unwrap()
    }

    fn jobs(text: &str) -> Hierarchy {
        Hierarchy::parse_csv(text.as_bytes()).unwrap()
    }

    fn words(hierarchy: &Hierarchy) -> Vec<String> {
        (0..=hierarchy.height()).map(|level| hierarchy.words(level).into_owned()).collect()
    }

    /// All pairs of different numbers of which the first refines the second.
    fn pairs(hierarchy: &Hierarchy) -> Vec<(Level, Level)> {
        let all = 0..=hierarchy.height();
        let of = |a: Level| {
            (a..=hierarchy.height()).filter(move |&b| a != b && hierarchy.refines(a, b)).map(move |b| (a, b))
        };
        all.flat_map(of).collect()
    }

    #[test]
    fn a_level_that_two_chains_share_has_one_number() {
        let any = Hierarchy::any_of(vec![ages(&[5, 35]), ages(&[7, 35])]).unwrap();
        assert_eq!(words(&any), ["as it is", "in steps of 5", "in steps of 7", "in steps of 35", "hidden"]);
        assert_eq!(any.alternatives().unwrap().numbers(1), [0, 2, 3, 4]);
        assert_eq!(
            (0..=4).map(|level| any.label("33", level).unwrap().into_owned()).collect::<Vec<_>>(),
            ["33", "[30,35)", "[28,35)", "[0,35)", "*"]
        );
        assert!(!any.refines(1, 2) && !any.refines(2, 1));
        assert_eq!(pairs(&any), [(0, 1), (0, 2), (0, 3), (0, 4), (1, 3), (1, 4), (2, 3), (2, 4), (3, 4)]);
    }

    #[test]
    fn weeks_stand_beside_months() {
        let any = Hierarchy::any_of(vec![
            dates(&[DateUnit::Day, DateUnit::Week]),
            dates(&[DateUnit::Day, DateUnit::Month, DateUnit::Year]),
        ])
        .unwrap();
        assert_eq!(words(&any), ["by day", "by week", "by month", "by year", "hidden"]);
        assert_eq!(pairs(&any), [(0, 1), (0, 2), (0, 3), (0, 4), (1, 4), (2, 3), (2, 4), (3, 4)]);
        assert_eq!(any.label("1985-03-31", 1).as_deref(), Some("1985-W13"));
    }

    #[test]
    fn levels_of_two_chains_are_compared_by_what_they_are() {
        let any = Hierarchy::any_of(vec![ages(&[5, 10]), ages(&[3, 30])]).unwrap();
        assert_eq!(
            words(&any),
            ["as it is", "in steps of 5", "in steps of 3", "in steps of 10", "in steps of 30", "hidden"]
        );
        assert!(any.refines(1, 4) && any.refines(3, 4) && !any.refines(2, 3));
    }

    #[test]
    fn listed_values_may_come_in_another_order() {
        let by_sector = jobs("cook;service;*\nnurse;health;*\nclerk;service;*\n");
        let by_hours = jobs("clerk;day;day;*\nnurse;night;any;*\ncook;night;any;*\n");
        let any = Hierarchy::any_of(vec![by_sector, by_hours]).unwrap();
        assert_eq!(any.leaves().unwrap().collect::<Vec<_>>(), ["cook", "nurse", "clerk"]);
        let labels =
            |leaf: &str| (0..=any.height()).map(|l| any.label(leaf, l).unwrap().into_owned()).collect::<Vec<_>>();
        assert_eq!(labels("cook"), ["cook", "service", "night", "any", "*"]);
        assert_eq!(labels("clerk"), ["clerk", "service", "day", "day", "*"]);
        assert_eq!(any.alternatives().unwrap().numbers(1), [0, 2, 3, 4]);
    }

    #[test]
    fn what_does_not_read_the_same_values_is_refused() {
        let refused = |chains| Hierarchy::any_of(chains).unwrap_err()[0].to_string();
        assert!(refused(vec![ages(&[5])]).contains("two hierarchies"));
        assert!(refused(vec![ages(&[5]), dates(&[DateUnit::Day])]).contains("another kind"));
        assert!(refused(vec![dates(&[DateUnit::Day]), dates(&[DateUnit::Week])]).contains("the same unit"));
        assert!(refused(vec![jobs("a;x;*\n"), jobs("b;x;*\n")]).contains("other values"));
        assert!(refused(vec![Hierarchy::trivial(), Hierarchy::trivial()]).contains("takes"));
        let spec = IntervalSpec::new([Decimal::from(5)], 0.into(), 90.into());
        assert!(refused(vec![ages(&[5]), Hierarchy::intervals(spec).unwrap()]).contains("other numbers"));
    }
}
