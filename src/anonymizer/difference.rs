//! Which rows the next snapshot may show, so that a reader who subtracts the last one learns of nobody.
//!
//! Every class at the join of the two recodings holds whole classes of both, so each is settled by itself: whoever is due
//! leaves and whoever is new comes, if those who do satisfy the policy together; else newcomers are held out, or leavers
//! kept in, and as a last resort the whole class goes. Only a plan: the gate counts for itself, and has the last word.

use std::sync::Arc;

use super::numbering::Numbering;
use crate::generalize::{ClassIndex, Numbers};
use crate::model::batch::Rows;
use crate::model::counting::{Facet, Histogram};
use crate::model::domain::Code;
use crate::model::recoding::Column;
use crate::privacy::{Class, Rules, Scope};

/// A row's standing between the last snapshot and the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// In the window, not in the last snapshot.
    New,
    /// In the window and in the last snapshot.
    Shown,
    /// In the last snapshot, no longer in the window.
    Due,
    /// The same, and for too long.
    Overdue,
}

/// The rows that could be shown, and by what they are judged.
pub(super) struct Candidates<'a> {
    pub(super) rows: &'a Arc<Rows>,
    pub(super) standing: &'a [Standing],
    pub(super) rules: &'a Rules,
}

/// How many rows are tried first, then four times as many. More are counted in vain where fewer would do; fewer are tried in vain.
const FEW: usize = 16;

/// Who leaves, of a class.
#[derive(Clone, Copy, PartialEq)]
enum Leave {
    Due,
    Nobody,
    Everybody,
}

impl Candidates<'_> {
    /// The rows to show by `columns`, where the comparison is made by `join`, or by the same columns, and the classes of all;
    /// `None` if some class cannot be settled. `again`: the last snapshot was made by the same columns, of classes that hold.
    pub(super) fn settle(
        &self,
        numbering: &mut Numbering,
        columns: &[Column],
        join: Option<&[Column]>,
        again: bool,
    ) -> Option<(Vec<u32>, Arc<Numbers>)> {
        let (numbers, leaves) = numbering.number(self.rows, columns);
        let classes = Classes::new(&numbers, leaves, join);
        // Whether a class holds that is what it was need not be asked again, unless it is judged by what is around it.
        let compares = self.rules.of(Scope::Within).next().is_some();
        let mut is_open = vec![!again || compares; classes.joined.len()];
        for (standing, &class) in self.standing.iter().zip(classes.of_row) {
            if *standing != Standing::Shown {
                is_open[classes.join_of[class as usize] as usize] = true;
            }
        }
        let is_open: Vec<bool> = classes.join_of.iter().map(|&joined| is_open[joined as usize]).collect();
        let mut shown: Vec<bool> = classes.of_row.iter().map(|&class| !is_open[class as usize]).collect();
        let everything: Vec<u32> = if compares { (0..self.rows.len() as u32).collect() } else { Vec::new() };
        let release = Counts::new(self.rows, &everything, self.rules);
        let members = classes.members(&is_open);
        for joined in &classes.joined {
            let parts = joined.iter().map(|&class| members.of(class)).filter(|part| !part.is_empty());
            let parts: Vec<&[u32]> = parts.collect();
            if !parts.is_empty() {
                self.settle_class(&parts, &release)?.into_iter().for_each(|i| shown[i as usize] = true);
            }
        }
        let mut rows = Vec::with_capacity(shown.len());
        rows.extend((0..).zip(shown).filter(|(_, shown)| *shown).map(|(i, _)| i));
        Some((rows, numbers))
    }

    /// What is shown of a class at the join, of which these are the classes by the columns.
    fn settle_class(&self, parts: &[&[u32]], release: &Counts) -> Option<Vec<u32>> {
        use Leave::{Due, Everybody, Nobody};
        let overdue = parts.iter().copied().flatten().any(|&i| self.standing[i as usize] == Standing::Overdue);
        let ways = [(Due, true), (Due, false), (Nobody, true), (Nobody, false), (Everybody, true), (Everybody, false)];
        let mut ways = ways.into_iter().filter(|(leave, _)| !(overdue && *leave == Nobody));
        ways.find_map(|(leave, come)| self.try_class(parts, leave, come, release))
    }

    /// What is shown of the class if these leave and come; `None` if that would tell of too few.
    fn try_class(&self, parts: &[&[u32]], leave: Leave, come: bool, release: &Counts) -> Option<Vec<u32>> {
        let was = |i: &u32| self.standing[*i as usize] != Standing::New;
        let stays = |i: &u32| match self.standing[*i as usize] {
            Standing::New => come,
            Standing::Shown => leave != Leave::Everybody,
            Standing::Due | Standing::Overdue => leave == Leave::Nobody,
        };
        let (mut left, mut came) = (Vec::new(), Vec::new());
        let mut shown = Vec::with_capacity(parts.iter().map(|part| part.len()).sum());
        for part in parts {
            let before = (shown.len(), left.len(), came.len());
            for i in *part {
                match (was(i), stays(i)) {
                    (true, true) => shown.push(*i),
                    (true, false) => left.push(*i),
                    (false, true) => {
                        shown.push(*i);
                        came.push(*i);
                    }
                    (false, false) => {}
                }
            }
            if !self.holds(&shown[before.0..], release) {
                shown.truncate(before.0);
                left.truncate(before.1);
                came.truncate(before.2);
                left.extend(part.iter().copied().filter(was));
            }
        }
        let safe = |rows: &[u32]| rows.is_empty() || self.holds(rows, release);
        (safe(&left) && safe(&came)).then_some(shown)
    }

    /// True if the rows satisfy what can be judged of them as a class.
    fn holds(&self, rows: &[u32], release: &Counts) -> bool {
        // Where rules hold whoever joins a class, a few that satisfy them do for all: most large classes are known soon.
        let mut few = (0..).map(|n| FEW << (2 * n)).take_while(|few| self.rules.monotone(true) && *few < rows.len());
        few.any(|few| self.all_hold(&rows[..few], release)) || self.all_hold(rows, release)
    }

    /// The same, with every row counted.
    fn all_hold(&self, rows: &[u32], release: &Counts) -> bool {
        let counts = Counts::new(self.rows, rows, self.rules);
        let (own, all) = (counts.histograms(), release.histograms());
        let (class, release) = (counts.class(&own), release.class(&all));
        self.rules.hold_alone(&class)
            && self.rules.of(Scope::Within).all(|rule| rule.meets(rule.measure(&class, &release)))
    }
}

/// The classes of the candidates, by the columns and at the join. Some have no rows any more.
struct Classes<'a> {
    /// The class of every row.
    of_row: &'a [u32],
    /// Which class at the join each class is part of.
    join_of: Vec<u32>,
    /// The classes that each class at the join consists of.
    joined: Vec<Vec<u32>>,
}

/// The rows of some classes, class by class.
struct Members {
    rows: Vec<u32>,
    /// Where each class ends, and the next one begins.
    ends: Vec<usize>,
}

impl<'a> Classes<'a> {
    /// `leaves` are those of some row of every class: at the join, all of its rows are alike.
    fn new(numbers: &'a Numbers, leaves: &[Code], join: Option<&[Column]>) -> Self {
        let count = numbers.count as u32;
        let of_row = &numbers.fresh;
        let Some(join) = join else {
            return Self {
                of_row,
                join_of: (0..count).collect(),
                joined: (0..count).map(|class| vec![class]).collect(),
            };
        };
        let mut joins = ClassIndex::new(join.iter().map(Column::len));
        let (mut join_of, mut joined) = (Vec::new(), Vec::<Vec<u32>>::new());
        for class in 0..count {
            let leaves = &leaves[class as usize * join.len()..(class as usize + 1) * join.len()];
            let codes = leaves.iter().zip(join).map(|(&leaf, column)| column.map()[leaf as usize]);
            let at = joins.number(codes);
            if at as usize == joined.len() {
                joined.push(Vec::new());
            }
            joined[at as usize].push(class);
            join_of.push(at);
        }
        Self { of_row, join_of, joined }
    }

    /// The rows of the classes that are asked for; of the others none.
    fn members(&self, asked: &[bool]) -> Members {
        let mut ends = vec![0; asked.len()];
        self.of_row.iter().filter(|&&class| asked[class as usize]).for_each(|&class| ends[class as usize] += 1);
        let mut start = 0;
        ends.iter_mut().for_each(|end| start += std::mem::replace(end, start));
        let mut rows = vec![0; start];
        for (i, &class) in (0..).zip(self.of_row).filter(|(_, class)| asked[**class as usize]) {
            rows[ends[class as usize]] = i;
            ends[class as usize] += 1;
        }
        Members { rows, ends }
    }
}

impl Members {
    fn of(&self, class: u32) -> &[u32] {
        let start = if class == 0 { 0 } else { self.ends[class as usize - 1] };
        &self.rows[start..self.ends[class as usize]]
    }
}

/// The counts of some rows.
pub(super) struct Counts {
    size: u32,
    facets: Vec<(Vec<Code>, Vec<u32>)>,
}

impl Counts {
    /// Of different rows.
    pub(super) fn new(rows: &Rows, which: &[u32], rules: &Rules) -> Self {
        let by_subject = rules.counting().subjects;
        let mut size = (!by_subject).then_some(which.len());
        let facet = |facet: &Facet| {
            let code = |i: u32| facet.code(rows, i as usize);
            let mut codes: Vec<Code> = if by_subject {
                // Whoever has a value counts once for it.
                let mut pairs: Vec<(u64, Code)> = which.iter().map(|&i| (rows.subject(i as usize), code(i))).collect();
                pairs.sort_unstable();
                pairs.dedup();
                size.get_or_insert_with(|| pairs.chunk_by(|a, b| a.0 == b.0).count());
                pairs.into_iter().map(|(_, code)| code).collect()
            } else {
                which.iter().map(|&i| code(i)).collect()
            };
            codes.sort_unstable();
            codes.chunk_by(|a, b| a == b).map(|run| (run[0], run.len() as u32)).unzip()
        };
        let facets = rules.facets().iter().map(facet).collect();
        let size = size.unwrap_or_else(|| {
            let mut members: Vec<u64> = which.iter().map(|&i| rows.subject(i as usize)).collect();
            members.sort_unstable();
            members.dedup();
            members.len()
        });
        Self { size: size as u32, facets }
    }

    pub(super) fn histograms(&self) -> Vec<Histogram<'_>> {
        self.facets.iter().map(|(codes, counts)| Histogram { codes, counts }).collect()
    }

    pub(super) fn class<'a>(&self, histograms: &'a [Histogram<'a>]) -> Class<'a> {
        Class { size: self.size, facets: histograms }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;
    use crate::model::hierarchy::{Hierarchy, PrefixSpec};
    use crate::model::lattice::Node;
    use crate::model::policy::{Criterion, Distance, Diversity, K, Policy};
    use crate::model::recoding::Recoding;
    use crate::model::schema::Role;
    use crate::search::fixture::{Table, policy};

    /// The slow twin: every class is counted, whoever left or came, row by row.
    fn slow(candidates: &Candidates<'_>, columns: &[Column], join: &[Column]) -> Option<Vec<u32>> {
        let groups = |rows: &[u32], columns: &[Column]| -> Vec<Vec<u32>> {
            let mut groups: BTreeMap<Vec<Code>, Vec<u32>> = BTreeMap::new();
            for &i in rows {
                let leaves = candidates.rows.quasi(i as usize).iter();
                let key = leaves.zip(columns).map(|(&leaf, column)| column.map()[leaf as usize]).collect();
                groups.entry(key).or_default().push(i);
            }
            groups.into_values().collect()
        };
        let everything: Vec<u32> = (0..candidates.rows.len() as u32).collect();
        let release = Counts::new(candidates.rows, &everything, candidates.rules);
        let standing = |i: &u32| candidates.standing[*i as usize];
        let mut all = BTreeSet::new();
        for class in groups(&everything, join) {
            let settled = [Leave::Due, Leave::Nobody, Leave::Everybody].into_iter().find_map(|leave| {
                if leave == Leave::Nobody && class.iter().any(|i| standing(i) == Standing::Overdue) {
                    return None;
                }
                [true, false].into_iter().find_map(|come| {
                    let stays = |i: &&u32| match standing(i) {
                        Standing::New => come,
                        Standing::Shown => leave != Leave::Everybody,
                        Standing::Due | Standing::Overdue => leave == Leave::Nobody,
                    };
                    let wanted: Vec<u32> = class.iter().filter(stays).copied().collect();
                    let good = groups(&wanted, columns).into_iter().filter(|rows| candidates.all_hold(rows, &release));
                    let shown: BTreeSet<u32> = good.flatten().collect();
                    let was = |i: &&u32| standing(i) != Standing::New;
                    let left: Vec<u32> = class.iter().filter(was).filter(|i| !shown.contains(i)).copied().collect();
                    let came: Vec<u32> = shown.iter().filter(|i| !was(i)).copied().collect();
                    let safe = |rows: &[u32]| rows.is_empty() || candidates.all_hold(rows, &release);
                    (safe(&left) && safe(&came)).then_some(shown)
                })
            })?;
            all.extend(settled);
        }
        Some(all.into_iter().collect())
    }

    fn zips(people: &[(u8, u8, u8)], criteria: Vec<Criterion>, subject: bool) -> Table {
        let zip = Hierarchy::prefix(PrefixSpec::new(2)).unwrap();
        let others = [("ill", Role::Sensitive), ("who", if subject { Role::Subject } else { Role::Insensitive })];
        let records: Vec<Vec<String>> = people
            .iter()
            .map(|(zip, ill, who)| vec![format!("{}{}", zip / 3, zip % 3), ill.to_string(), who.to_string()])
            .collect();
        Table::new(Policy { criteria, ..policy(vec![("zip", zip)], &others, 2) }, &records)
    }

    proptest! {
        /// Slide after slide, at levels that stay or change.
        #[test]
        fn what_is_shown_is_what_the_twin_shows(
            people in prop::collection::vec((0u8..9, 0u8..3, 0u8..20), 10..120),
            slides in prop::collection::vec((1usize..12, 0usize..12, 0u8..12), 1..12),
            rules in 0usize..3,
            subject in any::<bool>(),
        ) {
            let k = Criterion::KAnonymity(K(2));
            let criteria = [
                vec![k.clone()],
                vec![k.clone(), Criterion::LDiversity { field: 0, l: 2.0, variant: Diversity::Distinct }],
                vec![k, Criterion::TCloseness { field: 0, t: 0.4, distance: Distance::Equal }],
            ];
            let table = zips(&people, criteria[rules].clone(), subject);
            let rules = table.rules.bind(&table.dictionaries.values());
            let (mut first, mut end, mut level) = (0, 0, 0);
            let mut last: Option<(Vec<usize>, u8)> = None;
            let mut numbering = Numbering::default();
            for (come, leave, die) in slides {
                end = (end + come).min(people.len());
                first = (first + leave).min(end);
                // Mostly the level stays.
                level = if die < 3 { die } else { level };
                let was: Vec<usize> = last.iter().flat_map(|(shown, _)| shown.iter().copied()).collect();
                let gone = was.iter().copied().filter(|i| *i < first);
                let numbers: Vec<usize> = (first..end).chain(gone).collect();
                let standing: Vec<Standing> = numbers.iter().map(|i| match (was.contains(i), *i >= first) {
                    (false, _) => Standing::New,
                    (true, true) => Standing::Shown,
                    (true, false) if i % 5 == 0 => Standing::Overdue,
                    (true, false) => Standing::Due,
                }).collect();
                let mut rows = table.rows.filtered(|_| false);
                numbers.iter().for_each(|&i| rows.push_from(&table.rows, i));
                let rows = Arc::new(rows);
                let candidates = Candidates { rows: &rows, standing: &standing, rules: &rules };
                let at = |level: u8| Recoding::from(Node::new([level])).columns(&table.dictionaries.quasi);
                let join = at(last.as_ref().map_or(level, |(_, last)| level.max(*last)));
                let again = last.as_ref().is_some_and(|(_, last)| *last == level);
                let same = last.as_ref().is_none_or(|(_, last)| *last == level);
                let settled = candidates.settle(&mut numbering, &at(level), (!same).then_some(&join), again);
                let shown = settled.map(|(shown, _)| shown);
                prop_assert_eq!(&shown, &slow(&candidates, &at(level), &join));
                let Some(shown) = shown else { continue };
                if !shown.is_empty() {
                    last = Some((shown.into_iter().map(|i| numbers[i as usize]).collect(), level));
                }
            }
        }
    }
}
