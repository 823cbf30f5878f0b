//! A release beside the records it was made of: how far people stood out before and after, its smallest classes, and how each
//! attribute was and is distributed.
//!
//! For reports, which are handed on with the rows. So a value is named only if at least `floor` people have it; the other values
//! stand together, with so many of the others that `floor` people have them. Classes are named by their published labels.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::Published;
use crate::encode::Dictionaries;
use crate::gate::Release;
use crate::model::batch::Rows;
use crate::model::domain::{Code, DomainView, LevelTable};
use crate::model::lattice::Level;
use crate::model::policy::Policy;

/// Values of an attribute that are shown. More make a picture that nobody reads; fewer hide its shape.
const MOST_VALUES: usize = 10;

/// How far people stand out among others, counted over their classes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Exposure {
    /// People; somebody with several different records counts in each of their classes.
    pub people: u64,
    /// People who share their values with nobody.
    pub alone: u64,
    /// People in classes of fewer than k.
    pub below: u64,
    /// Classes.
    pub classes: u64,
    /// The smallest class; 0 if there is none.
    pub smallest: u32,
}

impl Exposure {
    /// The exposure in classes of these sizes, as (size, classes).
    pub fn of(sizes: &BTreeMap<u32, u32>, k: u32) -> Self {
        let people = |least: u32, most: u32| -> u64 {
            let classes = sizes.iter().filter(|(size, _)| (least..most).contains(*size));
            classes.map(|(&size, &classes)| u64::from(size) * u64::from(classes)).sum()
        };
        Self {
            people: people(0, u32::MAX),
            alone: people(1, 2),
            below: people(0, k),
            classes: sizes.values().map(|&classes| u64::from(classes)).sum(),
            smallest: sizes.keys().next().copied().unwrap_or(0),
        }
    }
}

/// How many classes of each size the rows would make if all their quasi-identifiers were published as they are; in people if
/// the policy names a subject.
pub fn raw_class_sizes(policy: &Policy, rows: &Rows) -> BTreeMap<u32, u32> {
    let mut numbers: FxHashMap<&[Code], u32> = FxHashMap::default();
    let class = |i: usize| {
        let next = numbers.len() as u32;
        *numbers.entry(rows.quasi(i)).or_insert(next)
    };
    let class_of_row: Vec<u32> = (0..rows.len()).map(class).collect();
    sizes_of(class_of_row.into_iter().enumerate().map(|(i, class)| (class, person(policy, rows, i))))
        .into_values()
        .fold(BTreeMap::new(), |mut sizes, size| {
            *sizes.entry(size).or_default() += 1;
            sizes
        })
}

/// A class of a release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishedClass {
    /// Its labels, in policy order.
    pub labels: Vec<String>,
    /// Its people; records, without a subject field.
    pub size: u32,
}

/// The smallest classes of a release, at most `most` of them, the smallest first.
pub fn smallest_classes(policy: &Policy, release: &Release, most: usize) -> Vec<PublishedClass> {
    let batch = release.batch();
    let mut numbers: FxHashMap<Vec<&str>, u32> = FxHashMap::default();
    // Classes of different codes can read alike; a reader sees one.
    let label = |class: usize| -> Vec<&str> {
        batch.quasi.iter().zip(batch.class_cells(class)).map(|(labels, &code)| labels.text(code)).collect()
    };
    let number = |class: usize| {
        let next = numbers.len() as u32;
        *numbers.entry(label(class)).or_insert(next)
    };
    let number_of: Vec<u32> = (0..batch.class_count).map(number).collect();
    let member = |(&class, &row)| {
        let (rows, i) = batch.source(row);
        (number_of[class as usize], person(policy, rows, i))
    };
    let sizes = sizes_of(batch.classes.iter().zip(&batch.order).map(member));
    let mut classes: Vec<(u32, Vec<&str>)> =
        numbers.into_iter().filter_map(|(labels, number)| Some((*sizes.get(&number)?, labels))).collect();
    classes.sort_unstable();
    let owned = |(size, labels): (u32, Vec<&str>)| PublishedClass {
        labels: labels.into_iter().map(str::to_owned).collect(),
        size,
    };
    classes.into_iter().take(most).map(owned).collect()
}

/// How an attribute was distributed in the window, and how the release shows it.
#[derive(Debug, Clone, PartialEq)]
pub struct Distribution {
    /// The field.
    pub field: Arc<str>,
    /// The level of its hierarchy whose values are compared; `None` for a sensitive field.
    pub level: Option<Level>,
    /// The values, in their order.
    pub values: Vec<ValueShare>,
    /// The share of the published records that show something coarser.
    pub coarser: f64,
}

/// A value, or the values that are not named.
#[derive(Debug, Clone, PartialEq)]
pub struct ValueShare {
    /// Its label; `None` for those that are not named.
    pub label: Option<String>,
    /// Its share of the window's records.
    pub before: f64,
    /// Its share of the published records.
    pub after: f64,
}

/// The distributions of all quasi-identifiers, then of all sensitive fields, where anything can be shown. Values of fewer than
/// `floor` people are not named.
pub fn distributions(policy: &Policy, release: &Release, dictionaries: &Dictionaries, floor: u64) -> Vec<Distribution> {
    let Some(published) = Published::of(release.batch()) else { return Vec::new() };
    let quasi = policy.quasi.iter().enumerate().map(|(at, quasi)| {
        let (level, counts, coarser) = published.told(policy, at);
        (Arc::clone(&quasi.name), Some(level), published.view(at).level(level), counts, coarser)
    });
    let sensitive =
        policy.schema.sensitive.iter().zip(&dictionaries.sensitive).enumerate().map(|(at, (&slot, view))| {
            let counts = published.sensitive(policy, at);
            (Arc::clone(policy.schema.name(slot)), None, view.level(0), counts, 0.0)
        });
    let spelled: Vec<FxHashMap<Code, String>> =
        (0..policy.schema.sensitive.len()).map(|at| published.spelled(dictionaries, at)).collect();
    let quasi_width = policy.quasi.len();
    let (before, after) = (published.batch.fresh.len().max(1) as f64, published.batch.len().max(1) as f64);
    let distribution =
        |(at, (field, level, table, counts, coarser)): (usize, (Arc<str>, _, &LevelTable, Counts, f64))| {
            let written = at.checked_sub(quasi_width).and_then(|at| spelled.get(at));
            let label = |code: Code| written.and_then(|written| written.get(&code)).cloned();
            let values = counts.named(floor, |code| label(code).unwrap_or_else(|| table.label(code).to_owned()));
            let share = |(label, count): (Option<String>, Count)| ValueShare {
                label,
                before: count.before as f64 / before,
                after: count.after as f64 / after,
            };
            let values: Vec<ValueShare> = values.into_iter().map(share).collect();
            Distribution { field, level, values, coarser: coarser / after }
        };
    quasi.chain(sensitive).enumerate().map(distribution).filter(|shown| shown.values.len() > 1).collect()
}

/// A number that two rows share if they are about one person.
fn person(policy: &Policy, rows: &Rows, i: usize) -> u64 {
    if policy.schema.subject.is_some() { rows.subject(i) } else { i as u64 }
}

/// How many different people each class has.
fn sizes_of(members: impl Iterator<Item = (u32, u64)>) -> FxHashMap<u32, u32> {
    let mut members: Vec<(u32, u64)> = members.collect();
    members.sort_unstable();
    members.dedup();
    let mut sizes = FxHashMap::default();
    members.into_iter().for_each(|(class, _)| *sizes.entry(class).or_default() += 1);
    sizes
}

#[derive(Clone, Copy, Default)]
struct Count {
    people: u64,
    before: u64,
    after: u64,
}

impl Count {
    fn and(self, other: Self) -> Self {
        let Self { people, before, after } = other;
        Self { people: self.people + people, before: self.before + before, after: self.after + after }
    }
}

/// The counts of each value of one attribute.
#[derive(Default)]
struct Counts(BTreeMap<Code, Count>);

impl Counts {
    fn before(policy: &Policy, rows: &Rows, code: impl Fn(usize) -> Code) -> Self {
        let mut counts = Self::default();
        (0..rows.len()).for_each(|i| counts.0.entry(code(i)).or_default().before += 1);
        for (code, people) in sizes_of((0..rows.len()).map(|i| (code(i), person(policy, rows, i)))) {
            counts.0.entry(code).or_default().people = u64::from(people);
        }
        counts
    }

    /// The values that may be named, in the order of their labels, and then the others together.
    fn named(self, floor: u64, label: impl Fn(Code) -> String) -> Vec<(Option<String>, Count)> {
        let mut named: Vec<(Count, String)> = self.0.into_iter().map(|(code, count)| (count, label(code))).collect();
        named.sort_by(|(a, one), (b, other)| b.people.cmp(&a.people).then_with(|| one.cmp(other)));
        let mut rest: Option<Count> = None;
        while let Some(&(last, _)) = named.last() {
            let few = last.people < floor || named.len() > MOST_VALUES;
            // Beside the total, a rest of few people would tell as much as their values.
            if !few && rest.is_none_or(|rest| rest.people >= floor) {
                break;
            }
            rest = Some(rest.unwrap_or_default().and(last));
            named.pop();
        }
        named.sort_by(|(_, one), (_, other)| number_in(one).total_cmp(&number_in(other)).then_with(|| one.cmp(other)));
        named.into_iter().map(|(count, label)| (Some(label), count)).chain(rest.map(|rest| (None, rest))).collect()
    }
}

/// The first number in a label, so that `[5, 10[` stands before `[10, 15[`; labels without one stand last.
fn number_in(label: &str) -> f64 {
    let start = label.find(|c: char| c.is_ascii_digit());
    let digits = start.map(|start| &label[start..]).unwrap_or_default();
    let end = digits.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(digits.len());
    digits[..end].parse().unwrap_or(f64::MAX)
}

impl Published<'_> {
    /// The level at which an attribute is compared, the counts of its values there, and the published records that show
    /// something coarser.
    fn told(&self, policy: &Policy, attribute: usize) -> (Level, Counts, f64) {
        let (view, rows) = (self.view(attribute), &self.batch.fresh);
        let levels = (0..self.sizes.len()).map(|class| self.value(class, attribute).level);
        let coarsest = levels.max().filter(|level| *level < view.height()).unwrap_or(0);
        let level = self.readable(view, attribute, coarsest);
        let up = view.between(0, level);
        let mut counts = Counts::before(policy, rows, |i| up[rows.quasi(i)[attribute] as usize]);
        let finer = |from: Level| view.refines(from, level).then(|| view.between(from, level));
        let above: Vec<Option<Vec<Code>>> = (0..=level).map(finer).collect();
        let mut coarser = 0.0;
        for (class, &rows) in self.sizes.iter().enumerate() {
            let value = self.value(class, attribute);
            match above.get(usize::from(value.level)).and_then(Option::as_ref) {
                Some(map) => counts.0.entry(map[value.code as usize]).or_default().after += rows,
                None => coarser += rows as f64,
            }
        }
        (level, counts, coarser)
    }

    /// The finest level from `least` on, below the top, at which few enough values occur; the last one below the top if none.
    fn readable(&self, view: &DomainView, attribute: usize, least: Level) -> Level {
        let rows = &self.batch.fresh;
        let mut leaves: Vec<Code> = (0..rows.len()).map(|i| rows.quasi(i)[attribute]).collect();
        leaves.sort_unstable();
        leaves.dedup();
        let values = |level: Level| {
            let up = view.between(0, level);
            let mut values: Vec<Code> = leaves.iter().map(|&leaf| up[leaf as usize]).collect();
            values.sort_unstable();
            values.dedup();
            values.len()
        };
        let last = view.height().saturating_sub(1);
        let levels = || (least..=last).filter(|level| view.refines(least, *level));
        levels().find(|level| values(*level) <= MOST_VALUES).or(levels().next_back()).unwrap_or(least)
    }

    /// How the values of a sensitive field are written in the release: they are counted by another spelling.
    fn spelled(&self, dictionaries: &Dictionaries, at: usize) -> FxHashMap<Code, String> {
        let mut spelled = FxHashMap::default();
        for &row in &self.batch.order {
            let (rows, i) = self.batch.source(row);
            let (counted, written) = (rows.sensitive(i)[at], rows.written(i)[at]);
            spelled.entry(counted).or_insert_with(|| {
                let json = dictionaries.written[at].level(0).label(written);
                serde_json::from_str::<String>(json).unwrap_or_else(|_| json.to_owned())
            });
        }
        spelled
    }

    /// The counts of a sensitive field.
    fn sensitive(&self, policy: &Policy, at: usize) -> Counts {
        let rows = &self.batch.fresh;
        let mut counts = Counts::before(policy, rows, |i| rows.sensitive(i)[at]);
        for &row in &self.batch.order {
            let (rows, i) = self.batch.source(row);
            counts.0.entry(rows.sensitive(i)[at]).or_default().after += 1;
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate;
    use crate::generalize::{GeneralizedBatch, RowRef};
    use crate::model::hierarchy::{Hierarchy, PrefixSpec};
    use crate::model::lattice::Node;
    use crate::model::recoding::Recoding;
    use crate::model::schema::Role;
    use crate::search::fixture::{Table, policy};

    /// Forty people with code 11, two with 12, one with 29; all published at one level, but for the last.
    fn table(level: u8) -> (Table, Release) {
        let people = |code: &str, many: usize| vec![vec![code.to_owned(), "cold".to_owned()]; many];
        let rows = [people("11", 40), people("12", 2), people("29", 1)].concat();
        let quasi = vec![("code", Hierarchy::prefix(PrefixSpec::new(2)).unwrap())];
        let table = Table::new(policy(quasi, &[("illness", Role::Sensitive)], 1), &rows);
        let columns: Vec<_> =
            Recoding::from(Node::new([level])).columns(&table.dictionaries.quasi).into_iter().map(Arc::new).collect();
        let held = Arc::new(table.rows.filtered(|_| false));
        let order = (0..42).map(RowRef::Fresh).collect();
        let batch = GeneralizedBatch::at(Arc::clone(&table.rows), held, order, &columns, &table.dictionaries);
        let release = gate::verify(batch, &table.rules).unwrap();
        (table, release)
    }

    #[test]
    fn people_stand_out_in_small_classes() {
        let (table, release) = table(1);
        let before = Exposure::of(&raw_class_sizes(&table.policy, &table.rows), 5);
        assert_eq!(before, Exposure { people: 43, alone: 1, below: 3, classes: 3, smallest: 1 });
        let after = Exposure::of(release.class_sizes(), 5);
        assert_eq!(after, Exposure { people: 42, alone: 0, below: 0, classes: 1, smallest: 42 });
        let smallest = smallest_classes(&table.policy, &release, 3);
        assert_eq!(smallest, [PublishedClass { labels: vec!["1*".into()], size: 42 }]);
    }

    #[test]
    fn values_of_few_people_are_not_named_and_nor_is_a_small_rest() {
        let (table, release) = table(0);
        let of = |floor| distributions(&table.policy, &release, &table.dictionaries, floor);
        let labels = |floor| -> Vec<Option<String>> {
            of(floor).iter().flat_map(|shown| shown.values.iter().map(|value| value.label.clone())).collect()
        };
        assert_eq!(labels(1), [Some("11".into()), Some("12".into()), Some("29".into())]);
        assert_eq!(labels(2), [Some("11".into()), None], "12 joins 29, who would be alone in the rest");
        assert_eq!(labels(4), [], "a rest of three would tell of three: nothing is left to compare");
        let shown = &of(2)[0];
        assert_eq!((shown.values[0].before, shown.values[1].after), (40.0 / 43.0, 2.0 / 42.0));
    }

    #[test]
    fn what_is_hidden_shows_something_coarser() {
        let (table, release) = table(2);
        let shown = &distributions(&table.policy, &release, &table.dictionaries, 1)[0];
        assert_eq!((shown.level, shown.coarser), (Some(0), 1.0));
        assert!(shown.values.iter().all(|value| value.after == 0.0));
    }

    #[test]
    fn numbers_order_labels() {
        let mut labels = ["[10, 15[", "*", "[5, 10["];
        labels.sort_by(|a, b| number_in(a).total_cmp(&number_in(b)));
        assert_eq!(labels, ["[5, 10[", "[10, 15[", "*"]);
    }
}
