//! How generalized values are written in place of the hierarchy's labels: as intervals, or as a statistic of a block.
//!
//! Either way a column gets one text per published code, so the classes are those of the labels: the partition stays, its
//! names change. Losses measure the partition and are the same for every rendering. `interval` follows from the hierarchy and
//! the recoding alone: the smallest interval that holds every leaf the value allows. Statistics follow from the people of a
//! block; [`statistic`] says how exact they may be. The top keeps its label: "anything" is no interval, and a statistic of it
//! would tell something of a value that the loss calls lost.

mod statistic;

use std::sync::Arc;

use rust_decimal::Decimal;

use crate::generalize::{GeneralizedBatch, Labels};
use crate::model::domain::Code;
use crate::model::hierarchy::Hierarchy;
use crate::model::lattice::Level;
use crate::model::policy::{Policy, Render};
use crate::model::recoding::Column;

/// Writes the cells of a batch that was made by `columns` as the policy's quasi-identifiers wish.
pub fn render(batch: &mut GeneralizedBatch, columns: &[Arc<Column>], policy: &Policy) {
    for (attribute, (column, quasi)) in columns.iter().zip(&policy.quasi).enumerate() {
        let texts = match quasi.render {
            Render::Label => continue,
            Render::Interval => intervals(column, &quasi.hierarchy),
            Render::Mean | Render::Median | Render::Mode => statistic::texts(batch, attribute, column, policy),
        };
        let text = |(code, text): (Code, Option<String>)| text.unwrap_or_else(|| column.label(code).to_owned());
        batch.quasi[attribute] = Labels::Table((0..).zip(texts).map(text).collect());
    }
}

/// The interval of every published code that is one.
fn intervals(column: &Column, hierarchy: &Hierarchy) -> Vec<Option<String>> {
    match hierarchy.leaves() {
        Some(_) => {
            let text = |Range { low, high, .. }: Range| format!("[{},{}]", low.normalize(), high.normalize());
            ranges(column, hierarchy).into_iter().map(|range| range.map(text)).collect()
        }
        None => by_any_leaf(column, |leaf, level| hierarchy.interval(leaf, level)),
    }
}

/// The numbers that a published value allows.
#[derive(Debug, Clone, Copy)]
struct Range {
    low: Decimal,
    high: Decimal,
    /// True if `high` is allowed.
    closed: bool,
}

impl Range {
    fn width(&self) -> Option<Decimal> {
        self.high.checked_sub(self.low)
    }

    fn allows(&self, number: Decimal) -> bool {
        self.low <= number && (number < self.high || self.closed && number == self.high)
    }
}

/// The range of every published code between the leaves and the top, where the leaves are numbers.
fn ranges(column: &Column, hierarchy: &Hierarchy) -> Vec<Option<Range>> {
    let Some(leaves) = hierarchy.leaves() else {
        let range = |(low, high): (Decimal, Decimal)| Range { low, high, closed: false };
        return by_any_leaf(column, |leaf, level| hierarchy.ends(leaf, level).map(range));
    };
    let mut ranges: Vec<Option<Range>> = vec![None; column.len()];
    // Leaves that are listed have the first codes, in their order; what else has a code is outside the hierarchy.
    let numbers: Vec<Option<Decimal>> = leaves.map(number).collect();
    for (leaf, code) in column.leaves() {
        let number = numbers.get(leaf as usize).copied().flatten();
        if let Some(number) = number.filter(|_| (1..hierarchy.height()).contains(&column.value(code).level)) {
            let range = ranges[code as usize].get_or_insert(Range { low: number, high: number, closed: true });
            (range.low, range.high) = (range.low.min(number), range.high.max(number));
        }
    }
    ranges
}

/// For every published code the answer of `of` about one of its leaves; it has to be the same for all of them.
fn by_any_leaf<T>(column: &Column, of: impl Fn(&str, Level) -> Option<T>) -> Vec<Option<T>> {
    let leaves = column.view().level(0);
    let mut answers: Vec<Option<T>> = (0..column.len()).map(|_| None).collect();
    for (leaf, code) in column.leaves() {
        let answer = &mut answers[code as usize];
        if answer.is_none() {
            *answer = of(leaves.label(leaf), column.value(code).level);
        }
    }
    answers
}

/// A leaf as a number; `None` if it has more digits than can be computed with, or is outside the hierarchy's range.
fn number(leaf: &str) -> Option<Decimal> {
    Decimal::from_str_exact(leaf).ok()
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use crate::gate;
    use crate::generalize::RowRef;
    use crate::model::hierarchy::{DateSpec, DateUnit, IntervalSpec, Measure, PrefixSpec};
    use crate::model::lattice::Node;
    use crate::model::recoding::Recoding;
    use crate::model::schema::Role;
    use crate::privacy::Rules;
    use crate::search::fixture::{Table, policy};

    fn intervals(widths: &[i64], min: i64, max: i64) -> Hierarchy {
        let widths: Vec<Decimal> = widths.iter().copied().map(Decimal::from).collect();
        Hierarchy::intervals(IntervalSpec::new(widths, min.into(), max.into())).unwrap()
    }

    /// The table with every attribute written that way.
    fn written(table: &Table, how: fn(Measure) -> Render) -> Table {
        let mut policy = (*table.policy).clone();
        policy.quasi.iter_mut().for_each(|quasi| quasi.render = how(quasi.hierarchy.measure()));
        let (rows, dictionaries) = (Arc::clone(&table.rows), table.dictionaries.clone());
        Table { rules: Rules::new(&policy), policy: Arc::new(policy), rows, dictionaries }
    }

    fn by_label(_: Measure) -> Render {
        Render::Label
    }

    fn by_interval(_: Measure) -> Render {
        Render::Interval
    }

    fn by_statistic(measure: Measure) -> Render {
        match measure {
            Measure::Number => Render::Mean,
            Measure::Date | Measure::Code => Render::Median,
            Measure::Category => Render::Mode,
        }
    }

    /// All rows at `node`, before the gate.
    fn batch(table: &Table, node: &Node) -> GeneralizedBatch {
        let columns: Vec<Arc<Column>> =
            Recoding::from(node.clone()).columns(&table.dictionaries.quasi).into_iter().map(Arc::new).collect();
        let held = Arc::new(table.rows.filtered(|_| false));
        let order = (0..table.rows.len() as u32).map(RowRef::Fresh).collect();
        let rows = Arc::clone(&table.rows);
        let dictionaries = &table.dictionaries;
        let mut batch = GeneralizedBatch::at(rows, held, order, &columns, dictionaries);
        render(&mut batch, &columns, &table.policy);
        batch
    }

    /// The rows that leave the gate at `node`.
    fn published(table: &Table, node: &Node) -> Vec<Vec<String>> {
        let release = gate::verify(batch(table, node), &table.rules).unwrap();
        let mut rows = Vec::new();
        let show = |quasi: &[&str], _: &[&str]| {
            rows.push(quasi.iter().map(|cell| (*cell).to_owned()).collect());
            Ok::<(), ()>(())
        };
        release.rows(show).unwrap();
        rows
    }

    fn eleven() -> Table {
        let people = [
            "24/09/56 24126 161",
            "06/09/56 24129 167",
            "30/09/56 24133 163",
            "23/03/56 10427 160",
            "18/03/56 10431 165",
            "05/03/56 10466 168",
            "20/04/55 26015 175",
            "18/04/55 26032 170",
            "09/04/55 26617 173",
            "01/04/55 26628 171",
            "23/04/55 26328 176",
        ];
        let born = DateSpec {
            formats: vec!["%d/%m/%y".into()],
            max: Some(crate::model::hierarchy::Date::constant(1999, 12, 31)),
            ..DateSpec::new([DateUnit::Day, DateUnit::Month, DateUnit::Year])
        };
        let quasi = vec![
            ("born", Hierarchy::dates(born).unwrap()),
            ("zip", Hierarchy::prefix(PrefixSpec::new(5)).unwrap()),
            ("height", intervals(&[5, 10], 100, 220)),
        ];
        let records: Vec<Vec<&str>> = people.iter().map(|line| line.split(' ').collect()).collect();
        Table::new(policy(quasi, &[], 3), &records)
    }

    fn counted(rows: Vec<Vec<String>>) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        rows.into_iter().for_each(|row| *counts.entry(row.join(" ")).or_default() += 1);
        counts
    }

    /// (mm/yy, d1d2***, width 10) of Wang, Liao and Hsu's table.
    #[test]
    fn the_eleven_people_by_interval() {
        let table = written(&eleven(), by_interval);
        let rows = published(&table, &Node::new([1, 3, 2]));
        let expected = [
            ("[1955-04-01,1955-04-30] 26*** [170,180)", 5),
            ("[1956-03-01,1956-03-31] 10*** [160,170)", 3),
            ("[1956-09-01,1956-09-30] 24*** [160,170)", 3),
        ];
        assert_eq!(counted(rows), expected.map(|(class, n)| (class.to_owned(), n)).into());
        // The top is not an interval.
        let rows = published(&table, &Node::new([3, 5, 3]));
        assert_eq!(counted(rows), BTreeMap::from([("* ***** *".to_owned(), 11)]));
    }

    #[test]
    fn an_interval_says_what_is_allowed_and_not_who_is_there() {
        // Listed leaves 1 to 9; only 2 and 3 occur in the lower group, which allows 1 to 4.
        let listed: String = (1..=9).map(|i| format!("{i};{};*\n", if i < 5 { "low" } else { "high" })).collect();
        let quasi = || vec![("n", Hierarchy::parse_csv(listed.as_bytes()).unwrap()), ("a", intervals(&[50], 0, 120))];
        let records = vec![vec!["2", "101"], vec!["3", "119"], vec!["7", "0"], vec!["7", "49"]];
        let table = written(&Table::new(policy(quasi(), &[], 2), &records), by_interval);
        let rows = published(&table, &Node::new([1, 1]));
        let expected = [("[1,4] [100,120]", 2), ("[5,9] [0,50)", 2)];
        assert_eq!(counted(rows), expected.map(|(class, n)| (class.to_owned(), n)).into());
    }

    #[test]
    fn the_gate_counts_what_is_written() {
        // Two classes of two: too few at k = 3, unless they are written alike; then they are one class of four.
        let records = vec![vec!["11"], vec!["13"], vec!["21"], vec!["23"]];
        let table = Table::new(policy(vec![("n", intervals(&[10], 0, 99))], &[], 3), &records);
        for how in [by_label, by_interval, by_statistic] {
            let table = written(&table, how);
            let refusal = gate::verify(batch(&table, &Node::new([1])), &table.rules).unwrap_err();
            assert_eq!(refusal.size, 2);
            let mut alike = batch(&table, &Node::new([1]));
            alike.quasi[0] = Labels::Table(vec!["17".to_owned(); 2].into());
            assert_eq!(gate::verify(alike, &table.rules).unwrap().manifest().k_achieved, Some(4));
        }
    }

    /// People whose zips, birthdays and ages come in clusters; some have several records.
    fn town() -> Table {
        let mut records = Vec::new();
        for i in 0u32..900 {
            let die =
                |n: u32, sides: u32| i.wrapping_mul(2_654_435_761).rotate_left(n).wrapping_mul(40_503) / 7 % sides;
            let zip = [10_115, 10_117, 20_095, 24_103][die(3, 4) as usize] + die(9, 40) * die(11, 12);
            let born = format!("{}-{:02}-{:02}", 1940 + die(5, 8) * die(7, 9), 1 + die(13, 12), 1 + die(17, 28));
            let age = 18 + die(19, 30) + die(23, 41);
            for _ in 0..=u32::from(i % 17 == 0) * 6 {
                records.push(vec![format!("{zip:05}"), born.clone(), age.to_string(), i.to_string()]);
            }
        }
        let quasi = vec![
            ("zip", Hierarchy::prefix(PrefixSpec::new(5)).unwrap()),
            ("born", Hierarchy::dates(DateSpec::new([DateUnit::Day, DateUnit::Month, DateUnit::Year])).unwrap()),
            ("age", intervals(&[5, 10, 40], 0, 120)),
        ];
        written(&Table::new(policy(quasi, &[("who", Role::Subject)], 5), &records), by_statistic)
    }

    /// The rows of classes of at least k people at `node`, and what is written for them.
    fn safe(table: &Table, node: &Node) -> GeneralizedBatch {
        let columns = Recoding::from(node.clone()).columns(&table.dictionaries.quasi);
        let class = |i: usize| -> Vec<Code> {
            table.rows.quasi(i).iter().zip(&columns).map(|(&leaf, column)| column.map()[leaf as usize]).collect()
        };
        let mut people: BTreeMap<Vec<Code>, BTreeSet<u64>> = BTreeMap::new();
        for i in 0..table.rows.len() {
            people.entry(class(i)).or_default().insert(table.rows.subject(i));
        }
        let rows = Arc::new(table.rows.filtered(|i| people[&class(i)].len() >= 5));
        let policy = Arc::clone(&table.policy);
        batch(&Table { rows, rules: Rules::new(&policy), policy, dictionaries: table.dictionaries.clone() }, node)
    }

    /// T24: no cell above level 0 is the raw value of fewer than k people of its block.
    #[test]
    fn no_cell_is_the_value_of_few_people() {
        let table = town();
        let (mut cells, mut exposed) = (0, 0);
        for node in table.policy.lattice().nodes() {
            let batch = safe(&table, &node);
            for (attribute, view) in table.dictionaries.quasi.iter().enumerate().filter(|(a, _)| node.levels()[*a] > 0)
            {
                let map = view.between(0, node.levels()[attribute]);
                let mut people: BTreeMap<(Code, &str), BTreeSet<u64>> = BTreeMap::new();
                let row = |at: usize| {
                    let (rows, i) = batch.source(batch.order[at]);
                    (rows.quasi(i)[attribute], rows.subject(i))
                };
                for at in 0..batch.len() {
                    let (leaf, who) = row(at);
                    people.entry((map[leaf as usize], view.level(0).label(leaf))).or_default().insert(who);
                }
                for at in 0..batch.len() {
                    let text = batch.quasi[attribute].text(batch.cells(at)[attribute]);
                    let have = people.get(&(map[row(at).0 as usize], text)).map_or(0, |people| people.len());
                    cells += 1;
                    exposed += usize::from((1..5).contains(&have));
                }
            }
        }
        assert!(cells > 50_000, "{cells} cells");
        assert_eq!(exposed, 0, "of {cells} cells");
    }

    #[test]
    fn the_top_keeps_its_label() {
        let table = town();
        let batch = safe(&table, &Node::new([5, 3, 2]));
        for at in 0..batch.len() {
            let text = |attribute: usize| batch.quasi[attribute].text(batch.cells(at)[attribute]);
            assert_eq!((text(0), text(1)), ("*****", "*"));
        }
    }

    /// With `min_level` 2, 1 and 1 no cell says more of a zip than three digits, of a birthday than the month, and of an
    /// age than the fives.
    #[test]
    fn no_cell_says_more_than_min_level_allows() {
        let mut table = town();
        let mut policy = (*table.policy).clone();
        policy.quasi.iter_mut().zip([2, 1, 1]).for_each(|(quasi, level)| quasi.min_level = level);
        table.policy = Arc::new(policy);
        for node in table.policy.lattice().nodes() {
            let batch = safe(&table, &node);
            for at in 0..batch.len() {
                let text = |attribute: usize| batch.quasi[attribute].text(batch.cells(at)[attribute]);
                assert!(text(0).ends_with("**"), "{}", text(0));
                assert!(text(1).len() <= "1956-09".len(), "{}", text(1));
                assert!(text(2).parse::<f64>().map_or(true, |age| age % 5.0 == 0.5), "{}", text(2));
            }
        }
    }
}
