//! Microaggregation (Wang, Liao and Hsu 2007): all cells of a block show one statistic of its people.
//!
//! A block is all published rows whose value of this one attribute is generalized to the same code, whatever their class.
//! A person counts once, by the mean (median, mode) of their own records in the block. A statistic must not tell the value of
//! one person, so it is rounded:
//! - A mean becomes the nearest of points that are a step apart: the width of the block's range over its people, at most five
//!   of them, rounded up to 1, 2 or 5 times a power of ten. The people and the step make up at least the width of the range, so
//!   that a reader who knows everybody but one is mostly left with all values that the label allows. The points lie half a
//!   unit beside the numbers that the hierarchy is made of, 24.5 for ages: they are nobody's value. To pass over values that
//!   somebody has would tell that reader who has them; it is done for those alone that are finer than the hierarchy.
//! - A median or mode becomes the finest ancestor that at least k people of the block share, below the block's own value.
//!
//! `min_level` bounds both: steps are no finer than the widths of that level, ancestors no finer than its labels. Without a
//! statistic that keeps to these rules, at level 0 and at the top, the cell keeps its label; so do two blocks that would
//! read alike. k is [`Policy::block_k`].
//!
//! Invariant: the texts are a function of the multiset of (person, value), independent of the order of rows, of dictionary codes
//! and of the hashes of subjects, so that a replay in another process writes the same bytes.

use std::collections::{HashMap, HashSet};

use rust_decimal::Decimal;
use rustc_hash::FxHashMap;

use super::{Range, number, ranges};
use crate::generalize::GeneralizedBatch;
use crate::model::domain::{Code, DomainView, LevelTable};
use crate::model::hierarchy::Measure;
use crate::model::lattice::Level;
use crate::model::policy::{Policy, QuasiIdentifier, Render};
use crate::model::recoding::Column;

/// Larger: means of large blocks are more exact, and a reader who knows everybody but one learns more. Smaller: the reverse.
const MOST_STEPS: usize = 5;

/// The statistic of every published code that has one.
pub(super) fn texts(
    batch: &GeneralizedBatch,
    attribute: usize,
    column: &Column,
    policy: &Policy,
) -> Vec<Option<String>> {
    let quasi = &policy.quasi[attribute];
    let leaves = Leaves::of(batch, attribute, column.view(), quasi.hierarchy.measure() == Measure::Number);
    let rules = Rules::new(quasi, column, policy.block_k().0 as usize);
    let mut blocks: Vec<Vec<(u64, u32)>> = vec![Vec::new(); column.len()];
    for (at, &row) in (0..).zip(&batch.order) {
        let (rows, i) = batch.source(row);
        let leaf = rows.quasi(i)[attribute];
        let person = if policy.schema.subject.is_some() { rows.subject(i) } else { at };
        blocks[batch.cells(at as usize)[attribute] as usize].push((person, leaves.ranks[leaf as usize]));
    }
    let labels: HashSet<&str> =
        (0..).zip(&blocks).filter(|(_, block)| !block.is_empty()).map(|(code, _)| column.label(code)).collect();
    let shown =
        |code: Code| quasi.min_level < column.value(code).level && column.value(code).level < column.view().height();
    let text = |(code, members): (Code, Vec<(u64, u32)>)| {
        let text = Block::new(members, &leaves).filter(|_| shown(code))?.text(&rules, column, code)?;
        (!labels.contains(text.as_str())).then_some(text)
    };
    let mut texts: Vec<Option<String>> = (0..).zip(blocks).map(text).collect();
    tell_apart(&mut texts);
    texts
}

/// Takes the texts away that several blocks would have.
fn tell_apart(texts: &mut [Option<String>]) {
    let mut blocks: HashMap<String, usize> = HashMap::new();
    texts.iter().flatten().for_each(|text| *blocks.entry(text.clone()).or_default() += 1);
    texts.iter_mut().for_each(|text| *text = text.take().filter(|text| blocks[text] == 1));
}

/// How exact the statistics of one column may be.
struct Rules {
    how: Render,
    min_level: Level,
    k: usize,
    /// By published code; for means.
    ranges: Vec<Option<Range>>,
    /// The finest step of a mean.
    step: Decimal,
    /// How many decimal places the hierarchy's numbers have.
    places: u32,
}

impl Rules {
    fn new(quasi: &QuasiIdentifier, column: &Column, k: usize) -> Self {
        let (mut known, mut step, mut places) = (Vec::new(), Decimal::ZERO, 0);
        if quasi.render == Render::Mean {
            known = ranges(column, &quasi.hierarchy);
            let finest = ranges(&Column::at_level(column.view(), quasi.min_level), &quasi.hierarchy);
            step = finest.iter().flatten().filter_map(Range::width).max().unwrap_or_default();
            let scale = |range: &Range| range.low.scale().max(range.high.scale());
            places = known.iter().flatten().map(scale).max().unwrap_or_default();
        }
        Self { how: quasi.render, min_level: quasi.min_level, k, ranges: known, step, places }
    }
}

/// The published leaves of a column in the order of their values: a rank has a meaning that codes do not have.
struct Leaves<'a> {
    /// True if the values are numbers.
    numbers: bool,
    /// By rank.
    values: Vec<Leaf<'a>>,
    /// By leaf code.
    ranks: Vec<u32>,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Leaf<'a> {
    /// Numbers come in their own order, other values in that of their texts: ISO dates, and codes of one length.
    number: Option<Decimal>,
    text: &'a str,
    code: Code,
}

impl<'a> Leaves<'a> {
    fn of(batch: &GeneralizedBatch, attribute: usize, view: &'a DomainView, numbers: bool) -> Self {
        let mut published = vec![false; view.leaf_count()];
        for &row in &batch.order {
            let (rows, i) = batch.source(row);
            published[rows.quasi(i)[attribute] as usize] = true;
        }
        let leaf = |code: Code| {
            let text = view.level(0).label(code);
            Leaf { number: numbers.then(|| number(text)).flatten(), text, code }
        };
        let codes = (0..).zip(&published).filter(|(_, published)| **published).map(|(code, _)| code);
        let mut values: Vec<Leaf<'a>> = codes.map(leaf).collect();
        values.sort_unstable();
        let mut ranks = vec![0; published.len()];
        (0..).zip(&values).for_each(|(rank, leaf)| ranks[leaf.code as usize] = rank);
        Self { numbers, values, ranks }
    }
}

/// The people of a block and the ranks of their values, ascending.
struct Block<'a> {
    members: Vec<(u64, u32)>,
    leaves: &'a Leaves<'a>,
}

impl<'a> Block<'a> {
    fn new(mut members: Vec<(u64, u32)>, leaves: &'a Leaves<'a>) -> Option<Self> {
        members.sort_unstable();
        (!members.is_empty()).then_some(Self { members, leaves })
    }

    fn text(&self, rules: &Rules, column: &Column, code: Code) -> Option<String> {
        let people = people(&self.members).count();
        match rules.how {
            _ if people < rules.k || !self.is_ordered() => None,
            Render::Mean => self.mean(rules, rules.ranges[code as usize]?, people),
            _ => self.shared(rules, column.view(), column.value(code).level),
        }
    }

    /// False with numbers of more digits than can be computed with.
    fn is_ordered(&self) -> bool {
        !self.leaves.numbers || self.members.iter().all(|&(_, rank)| self.leaves.values[rank as usize].number.is_some())
    }

    /// The point nearest to the mean that is not the value of fewer than k people; the lower one of two.
    fn mean(&self, rules: &Rules, range: Range, count: usize) -> Option<String> {
        let own =
            |person: &[(u64, u32)]| mean(person.iter().map(|&(_, rank)| self.leaves.values[rank as usize].number));
        let mut means = people(&self.members).map(own).collect::<Option<Vec<Decimal>>>()?;
        // A sum of decimals of many places depends on their order.
        means.sort_unstable();
        let mean = mean(means.into_iter().map(Some))?;
        let width = range.width()?;
        let step = round_up(width.checked_div(count.min(MOST_STEPS).into())?.max(rules.step))?;
        let beside = Decimal::try_new(5, rules.places + 1).ok()?.min(step / Decimal::TWO);
        let first = range.low.checked_div(step)?.ceil().checked_mul(step)?.checked_add(beside)?;
        let point = |i: usize| step.checked_mul(i.into())?.checked_add(first);
        let few: HashSet<Decimal> = self.few(rules.k).filter_map(|leaf| leaf.number).collect();
        let points = (0..=MOST_STEPS).map_while(point).filter(|point| range.allows(*point) && !few.contains(point));
        let nearest = points.min_by_key(|point| ((point - mean).abs(), *point))?;
        (step < width).then(|| nearest.normalize().to_string())
    }

    /// The finest label below `level` of the median or mode that at least k people share.
    fn shared(&self, rules: &Rules, view: &DomainView, level: Level) -> Option<String> {
        let leaf = |rank: u32| self.leaves.values[rank as usize].code;
        let few: HashSet<&str> = self.few(rules.k).map(|leaf| leaf.text).collect();
        let mut median = leaf(self.median());
        let mut members: Vec<(u64, Code)> = self.members.iter().map(|&(person, rank)| (person, leaf(rank))).collect();
        for finer in 0..level {
            let table = view.level(finer);
            if finer >= rules.min_level {
                let value = if rules.how == Render::Median { median } else { mode(&members, table)? };
                let sharing = people(&members).filter(|person| person.iter().any(|(_, code)| *code == value)).count();
                let label = table.label(value);
                if sharing >= rules.k && !few.contains(label) {
                    return Some(label.to_owned());
                }
            }
            members.iter_mut().for_each(|(_, code)| *code = table.parent()[*code as usize]);
            median = table.parent()[median as usize];
        }
        None
    }

    /// The rank of the median of everybody's median; the lower one of two.
    fn median(&self) -> u32 {
        let mut medians: Vec<u32> = people(&self.members).map(|person| person[(person.len() - 1) / 2].1).collect();
        let middle = (medians.len() - 1) / 2;
        *medians.select_nth_unstable(middle).1
    }

    /// The values that fewer than k people have.
    fn few(&self, k: usize) -> impl Iterator<Item = &Leaf<'a>> {
        let mut people: FxHashMap<u32, usize> = FxHashMap::default();
        // Members are sorted, so the same value of the same person comes in a row.
        self.members.chunk_by(|a, b| a == b).for_each(|same| *people.entry(same[0].1).or_default() += 1);
        people.into_iter().filter(move |(_, people)| *people < k).map(|(rank, _)| &self.leaves.values[rank as usize])
    }
}

/// The members of each person.
fn people<T>(members: &[(u64, T)]) -> impl Iterator<Item = &[(u64, T)]> {
    members.chunk_by(|a, b| a.0 == b.0)
}

fn mean(numbers: impl Iterator<Item = Option<Decimal>>) -> Option<Decimal> {
    let (mut sum, mut count) = (Decimal::ZERO, 0_u64);
    for number in numbers {
        sum = sum.checked_add(number?)?;
        count += 1;
    }
    sum.checked_div(count.into())
}

/// The value that most people have most often; the one with the least label of several.
fn mode(members: &[(u64, Code)], table: &LevelTable) -> Option<Code> {
    let most = |counts: FxHashMap<Code, usize>| {
        let order = |&(code, count): &(Code, usize)| (count, std::cmp::Reverse(table.label(code)));
        counts.into_iter().max_by_key(order).map(|(code, _)| code)
    };
    let mut counts = FxHashMap::default();
    for person in people(members) {
        let mut own = FxHashMap::default();
        person.iter().for_each(|(_, code)| *own.entry(*code).or_default() += 1);
        *counts.entry(most(own)?).or_default() += 1;
    }
    most(counts)
}

/// The least of 1, 2 and 5 times a power of ten that is not below `least`; `None` where that cannot be computed.
fn round_up(least: Decimal) -> Option<Decimal> {
    if least <= Decimal::ZERO {
        return None;
    }
    let mut power = Decimal::ONE;
    while power < least {
        power = power.checked_mul(Decimal::TEN)?;
    }
    while power / Decimal::TEN >= least {
        power /= Decimal::TEN;
    }
    [5, 2, 1].into_iter().map(|part| power / Decimal::from(part)).find(|step| *step >= least)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use proptest::prelude::*;
    use rand::SeedableRng as _;
    use rand_chacha::ChaCha8Rng;

    use super::*;
    use crate::generalize::RowRef;
    use crate::model::hierarchy::{DateSpec, DateUnit, Hierarchy, IntervalSpec, PrefixSpec};
    use crate::model::lattice::Node;
    use crate::model::recoding::{Cut, Recoding};
    use crate::model::schema::Role;
    use crate::render::render;
    use crate::search::fixture::{Table, policy};

    fn tens() -> Hierarchy {
        Hierarchy::intervals(IntervalSpec::new([10, 50].map(Decimal::from), 0.into(), 120.into())).unwrap()
    }

    fn with(quasi: Vec<(&str, Hierarchy, Render)>, others: &[(&str, Role)], k: u32) -> Policy {
        let renders: Vec<Render> = quasi.iter().map(|(_, _, render)| *render).collect();
        let mut policy = policy(quasi.into_iter().map(|(name, hierarchy, _)| (name, hierarchy)).collect(), others, k);
        policy.quasi.iter_mut().zip(renders).for_each(|(quasi, render)| quasi.render = render);
        policy
    }

    fn made(table: &Table, rows: Vec<u32>, recoding: &Recoding) -> GeneralizedBatch {
        let columns: Vec<_> = recoding.columns(&table.dictionaries.quasi).into_iter().map(Arc::new).collect();
        let held = Arc::new(table.rows.filtered(|_| false));
        let (order, all) = (rows.into_iter().map(RowRef::Fresh).collect(), Arc::clone(&table.rows));
        let mut batch = GeneralizedBatch::at(all, held, order, &columns, &table.dictionaries);
        render(&mut batch, &columns, &table.policy);
        batch
    }

    /// The cells of every row at these levels, in the order of the records.
    fn cells<S: AsRef<str>>(policy: Policy, records: &[Vec<S>], levels: &[Level]) -> Vec<Vec<String>> {
        let table = Table::new(policy, records);
        let recoding = Recoding::Node(Node::new(levels.iter().copied()));
        let batch = made(&table, (0..records.len() as u32).collect(), &recoding);
        in_order(&batch)
    }

    fn in_order(batch: &GeneralizedBatch) -> Vec<Vec<String>> {
        let mut rows: Vec<_> = (0..batch.len()).map(|at| (batch.source(batch.order[at]).1, at)).collect();
        rows.sort_unstable();
        let cells = |at: usize| batch.quasi.iter().zip(batch.cells(at)).map(|(q, &code)| q.text(code).to_owned());
        rows.into_iter().map(|(_, at)| cells(at).collect()).collect()
    }

    fn one_column(hierarchy: Hierarchy, render: Render, k: u32, values: &[&str], level: Level) -> BTreeSet<String> {
        let records: Vec<Vec<&str>> = values.iter().map(|value| vec![*value]).collect();
        cells(with(vec![("q", hierarchy, render)], &[], k), &records, &[level]).into_iter().flatten().collect()
    }

    fn set(texts: &[&str]) -> BTreeSet<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn a_statistic_is_of_the_block_and_not_of_the_class() {
        let quasi = vec![("age", tens(), Render::Mean), ("sex", Hierarchy::trivial(), Render::Label)];
        let records = [["1", "f"], ["1", "f"], ["1", "f"], ["9", "m"], ["9", "m"], ["9", "m"]].map(Vec::from);
        let cells = cells(with(quasi, &[], 3), &records, &[1, 0]);
        // The classes have means of 1 and 9; the block that both belong to has 5.
        assert_eq!(cells.iter().map(|row| row.join(" ")).collect::<BTreeSet<_>>(), set(&["4.5 f", "4.5 m"]));
    }

    #[test]
    fn a_person_counts_once() {
        let record = |age: &str, who: &str| vec![age.to_owned(), who.to_owned()];
        let mut records: Vec<Vec<String>> = (0..9).map(|i| record("21", &i.to_string())).collect();
        // Means of 21.8 by person, and of 25 by record; half of this person's records are of 30, another block.
        (0..9).for_each(|i| records.push(record(if i % 2 == 0 { "29" } else { "30" }, "many")));
        for (render, text) in [(Render::Mean, "22.5"), (Render::Median, "21"), (Render::Mode, "21")] {
            let cells = cells(with(vec![("age", tens(), render)], &[("who", Role::Subject)], 3), &records, &[1]);
            assert_eq!(cells[0], [text], "{render:?}");
            assert_eq!(cells[10], ["[30,40)"], "one person is no block of three");
        }
    }

    #[test]
    fn medians_and_modes_are_shared_by_k_people() {
        let born = || Hierarchy::dates(DateSpec::new([DateUnit::Day, DateUnit::Month, DateUnit::Year])).unwrap();
        let of = |render, k, level| {
            let days = ["1956-03-01", "1956-09-06", "1956-09-24", "1956-09-24", "1956-09-30"];
            one_column(born(), render, k, &days, level)
        };
        assert_eq!(of(Render::Median, 2, 2), set(&["1956-09-24"]));
        assert_eq!(of(Render::Median, 3, 2), set(&["1956-09"]));
        assert_eq!(of(Render::Mode, 4, 2), set(&["1956-09"]));
        assert_eq!(of(Render::Median, 5, 2), set(&["1956"]));
        assert_eq!(of(Render::Median, 2, 3), set(&["*"]));
        assert_eq!(of(Render::Mode, 2, 0).len(), 4);
        let names = Hierarchy::parse_csv(b"a;x;*\nb;x;*\nc;y;*\n").unwrap();
        assert_eq!(one_column(names, Render::Mode, 2, &["a", "b", "b", "c", "c"], 1), set(&["b", "c"]));
        let zip = Hierarchy::prefix(PrefixSpec::new(3)).unwrap();
        assert_eq!(one_column(zip, Render::Median, 3, &["101", "107", "111", "112", "119"], 2), set(&["11*"]));
    }

    #[test]
    fn numbers_too_long_to_compute_with_keep_their_label() {
        let long = "3.14159265358979323846264338327950288";
        for render in [Render::Mean, Render::Median] {
            assert_eq!(one_column(tens(), render, 1, &["1", "2", long], 1), set(&["[0,10)"]));
        }
    }

    #[test]
    fn a_label_that_is_a_rare_value_is_passed_over() {
        let names = || Hierarchy::parse_csv(b"a;a;x;*\nb;a;x;*\nc;c;x;*\n").unwrap();
        assert_eq!(one_column(names(), Render::Mode, 3, &["a", "b", "b", "c"], 2), set(&["x"]));
        assert_eq!(one_column(names(), Render::Mode, 2, &["a", "a", "b", "c"], 2), set(&["a"]));
    }

    #[test]
    fn blocks_that_would_read_alike_keep_their_labels() {
        let means = |label: &str, values: &[&str]| {
            let text = format!("1;far;*\n9;far;*\n2;near;*\n8;near;*\n20;{label};*\n30;{label};*\n");
            one_column(Hierarchy::parse_csv(text.as_bytes()).unwrap(), Render::Mean, 2, values, 1)
        };
        assert_eq!(means("x", &["1", "9", "20", "30"]), set(&["5.5", "25.5"]));
        assert_eq!(means("x", &["1", "9", "20", "30", "2", "8"]), set(&["far", "near", "25.5"]), "both have 5.5");
        assert_eq!(means("5.5", &["1", "9", "20", "30"]), set(&["far", "25.5"]), "5.5 is a label");
    }

    #[test]
    fn in_a_cut_every_value_has_its_own_rule() {
        let values = ["11", "12", "18", "21", "37", "52", "58", "71", "101"];
        let records: Vec<Vec<&str>> = values.iter().map(|value| vec![*value]).collect();
        let table = Table::new(with(vec![("age", tens(), Render::Mean)], &[], 2), &records);
        let cut = Cut::new(&table.dictionaries.quasi[0], [1, 1, 1, 0, 1, 2, 2, 2, 2]).unwrap();
        let batch = made(&table, (0..9).collect(), &Recoding::Cuts(vec![cut]));
        let cells = in_order(&batch).concat();
        assert_eq!(cells, ["15.5", "15.5", "15.5", "21", "[30,40)", "60.5", "60.5", "60.5", "[100,150)"]);
    }

    #[test]
    fn values_finer_than_the_hierarchy_are_passed_over() {
        let of = |values: &[&str]| one_column(tens(), Render::Mean, 3, values, 1);
        assert_eq!(of(&["2", "5", "7", "5", "6"]), set(&["4.5"]));
        assert_eq!(of(&["2", "4.5", "7", "5", "6.5"]), set(&["2.5"]));
        assert_eq!(of(&["4.5", "4.5", "4.5", "4.5", "4.5"]), set(&["4.5"]), "all have it");
    }

    #[test]
    fn steps_are_round() {
        let steps =
            [("0.3", "0.5"), ("1", "1"), ("1.01", "2"), ("2.5", "5"), ("7", "10"), ("36.5", "50"), ("100", "100")];
        for (least, step) in steps {
            assert_eq!(round_up(number(least).unwrap()), number(step), "{least}");
        }
        assert_eq!(round_up(Decimal::ZERO), None);
        assert_eq!(round_up(Decimal::MAX), None);
        assert!(round_up(Decimal::new(1, 28)).is_some());
    }

    proptest! {
        /// Another process has other codes, other hashes of subjects and another order of rows, and writes the same.
        #[test]
        fn a_replay_writes_the_same(
            people in prop::collection::vec((0u32..1_000, 0u32..8), 1..60),
            render in prop::sample::select(vec![Render::Mean, Render::Median, Render::Mode]),
            turn in 0usize..60,
            level in 1u8..3,
        ) {
            let record = |(age, who): &(u32, u32)| vec![format!("{}.{}", age / 10, age % 10), who.to_string()];
            let records: Vec<Vec<String>> = people.iter().map(record).collect();
            let others: Vec<Vec<String>> = (0..40).rev().map(|i| record(&(i * 31 % 1_000, i))).collect();
            let quasi = || with(vec![("age", tens(), render)], &[("who", Role::Subject)], 2);
            let first = cells(quasi(), &records, &[level]);
            let mut turned = records.clone();
            turned.rotate_left(turn % records.len());
            let table = Table::after(quasi(), &others, &turned);
            let batch = made(&table, (0..records.len() as u32).rev().collect(), &Recoding::Node(Node::new([level])));
            let mut again = in_order(&batch);
            again.rotate_right(turn % records.len());
            prop_assert_eq!(first, again);
        }
    }

    /// The share of people whose value a reader finds who knows the values of everybody else in the block, and the mean
    /// number of values that are left of the ten that the label allows.
    fn found_by_all_but_one(render: Render, people: usize) -> (f64, f64) {
        // Row 10 * i + v is person i with the value v.
        let records: Vec<Vec<String>> = (0..10 * people).map(|row| vec![(20 + row % 10).to_string()]).collect();
        let table = Table::new(with(vec![("age", tens(), render)], &[], 5), &records);
        let recoding = Recoding::Node(Node::new([1]));
        let text = |values: &[u32]| {
            let rows = (0..).zip(values).map(|(i, value)| 10 * i + value).collect();
            let batch = made(&table, rows, &recoding);
            batch.quasi[0].text(batch.cells(0)[0]).to_owned()
        };
        let mut rng = ChaCha8Rng::seed_from_u64(people as u64);
        let (mut found, mut left, mut all) = (0, 0, 0);
        for _ in 0..100 {
            let mut values: Vec<u32> = (0..people).map(|_| rng.random_range(0..10)).collect();
            let published = text(&values);
            for person in 0..5 {
                let own = values[person];
                let mut alike = |value| {
                    values[person] = value;
                    text(&values) == published
                };
                let candidates = (0..10).filter(|&value| alike(value)).count();
                values[person] = own;
                (found, left, all) = (found + usize::from(candidates == 1), left + candidates, all + 1);
            }
        }
        (f64::from(found as u32) / f64::from(all), left as f64 / f64::from(all))
    }

    /// The exact mean tells everybody's value to such a reader. Rounded, it tells 2 in 100 in a block of k, and less in larger
    /// ones. A median or mode tells that at least k people share it, so it is worst where hardly more do.
    #[test]
    fn a_reader_who_knows_all_but_one_rarely_finds_the_last() {
        let bounds = [
            (Render::Mean, [(5, 0.04, 6.0), (12, 0.02, 8.0), (30, 0.01, 9.0)]),
            (Render::Median, [(5, 0.01, 9.0), (12, 0.04, 9.0), (30, 0.04, 8.5)]),
            (Render::Mode, [(5, 0.01, 9.0), (12, 0.05, 9.0), (30, 0.15, 7.5)]),
        ];
        for (render, bounds) in bounds {
            for (people, most, least) in bounds {
                let (found, left) = found_by_all_but_one(render, people);
                assert!(found <= most && left >= least, "{render:?} of {people}: {found} found, {left} values left");
            }
        }
    }
}
