//! How generalized values are written: `interval` and `microaggregate`, in place of the hierarchy's labels.
//!
//! `interval` follows from the hierarchy and the recoding alone: the smallest interval that holds every leaf the value
//! allows, whoever is in the class. `microaggregate` follows from the class: the mean of its numbers, the median of its
//! dates and codes. Either way the gate counts the text that is written, so classes that look alike are one.
//! What has no order keeps its label, as does the top: "anything" is not an interval.

use std::sync::Arc;

use rust_decimal::{Decimal, RoundingStrategy};

use crate::generalize::{GeneralizedBatch, Labels};
use crate::model::domain::Code;
use crate::model::hierarchy::Measure;
use crate::model::policy::{QuasiIdentifier, Render};
use crate::model::recoding::Column;

/// Rewrites the cells of a batch that was made by `columns`.
pub fn render(batch: &mut GeneralizedBatch, render: Render, columns: &[Arc<Column>], quasi: &[QuasiIdentifier]) {
    match render {
        Render::Label => {}
        Render::Interval => {
            for (attribute, (column, quasi)) in columns.iter().zip(quasi).enumerate() {
                if let Some(table) = intervals(column, quasi) {
                    batch.quasi[attribute] = Labels::Table(table.into());
                }
            }
        }
        Render::Microaggregate => microaggregate(batch, columns, quasi),
    }
}

/// The text of every published code of a column; `None` if its values have no order.
fn intervals(column: &Column, quasi: &QuasiIdentifier) -> Option<Vec<String>> {
    let hierarchy = &quasi.hierarchy;
    let measure = hierarchy.measure();
    if !matches!(measure, Measure::Number | Measure::Date) {
        return None;
    }
    let mut texts: Vec<Option<String>> = vec![None; column.len()];
    let inner = |code: Code| (1..hierarchy.height()).contains(&column.value(code).level);
    match hierarchy.leaves() {
        // Leaves that are listed have the first codes, in their order; what else has a code is outside the hierarchy.
        Some(leaves) => {
            let mut ends: Vec<Option<(Point, Point)>> = vec![None; column.len()];
            for (leaf, &code) in leaves.zip(column.map()) {
                if let Some(point) = Point::read(measure, leaf) {
                    let end = &mut ends[code as usize];
                    let (low, high) = end.clone().unwrap_or_else(|| (point.clone(), point.clone()));
                    *end = Some((low.min(point.clone()), high.max(point)));
                }
            }
            for (code, ends) in ends.into_iter().enumerate().filter(|(code, _)| inner(*code as Code)) {
                texts[code] = ends.map(|(low, high)| format!("[{},{}]", low.text(), high.text()));
            }
        }
        None => {
            let leaves = column.view().level(0);
            for (leaf, &code) in column.map().iter().enumerate().filter(|(_, code)| inner(**code)) {
                if texts[code as usize].is_none() {
                    texts[code as usize] = hierarchy.interval(leaves.label(leaf as Code), column.value(code).level);
                }
            }
        }
    }
    let text = |(code, text): (usize, Option<String>)| text.unwrap_or_else(|| column.label(code as Code).to_owned());
    Some(texts.into_iter().enumerate().map(text).collect())
}

/// Writes for every class the mean or median of its members in place of the generalized value.
fn microaggregate(batch: &mut GeneralizedBatch, columns: &[Arc<Column>], quasi: &[QuasiIdentifier]) {
    let mut members: Vec<Vec<usize>> = vec![Vec::new(); batch.class_count];
    for (at, &class) in batch.classes.iter().enumerate() {
        members[class as usize].push(at);
    }
    let width = columns.len();
    for (attribute, (column, quasi)) in columns.iter().zip(quasi).enumerate() {
        let measure = quasi.hierarchy.measure();
        if measure == Measure::Category {
            continue;
        }
        let leaves = column.view().level(0);
        let mut texts = Vec::with_capacity(members.len());
        for (class, rows) in members.iter().enumerate() {
            let leaf = |&at: &usize| {
                let (source, i) = batch.source(batch.order[at]);
                leaves.label(source.quasi(i)[attribute])
            };
            let points: Option<Vec<Point>> = rows.iter().map(leaf).map(|text| Point::read(measure, text)).collect();
            let text = points.and_then(|points| centre(measure, points));
            let cell = &mut batch.class_cells[class * width + attribute];
            texts.push(text.unwrap_or_else(|| column.label(*cell).to_owned()));
            *cell = class as Code;
        }
        batch.quasi[attribute] = Labels::Table(texts.into());
    }
}

/// One leaf as something that has an order.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Point {
    Number(Decimal),
    /// ISO dates, and codes of one length, are ordered by their text.
    Text(String),
}

impl Point {
    /// `None` for what is beyond the hierarchy's range, or outside it.
    fn read(measure: Measure, leaf: &str) -> Option<Self> {
        match measure {
            Measure::Number => Decimal::from_str_exact(leaf).ok().map(Self::Number),
            Measure::Date => leaf.starts_with(|c: char| c.is_ascii_digit()).then(|| Self::Text(leaf.to_owned())),
            Measure::Code => Some(Self::Text(leaf.to_owned())),
            Measure::Category => None,
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Number(number) => number.normalize().to_string(),
            Self::Text(text) => text.clone(),
        }
    }
}

/// The mean of numbers, to as many places as they have; the median of the rest, the lower one of two.
fn centre(measure: Measure, mut points: Vec<Point>) -> Option<String> {
    if measure != Measure::Number {
        points.sort_unstable();
        return points.get(points.len().checked_sub(1)? / 2).map(Point::text);
    }
    let (mut sum, mut scale) = (Decimal::ZERO, 0);
    for point in &points {
        let Point::Number(number) = point else { return None };
        sum = sum.checked_add(*number)?;
        scale = scale.max(number.normalize().scale());
    }
    let mean = sum.checked_div(Decimal::from(points.len()))?;
    Some(mean.round_dp_with_strategy(scale, RoundingStrategy::MidpointAwayFromZero).normalize().to_string())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::gate;
    use crate::generalize::RowRef;
    use crate::model::hierarchy::{DateSpec, DateUnit, Hierarchy, IntervalSpec, PrefixSpec};
    use crate::model::lattice::Node;
    use crate::model::recoding::Recoding;
    use crate::search::fixture::{Table, policy};

    fn intervals(widths: &[i64], min: i64, max: i64) -> Hierarchy {
        let widths: Vec<Decimal> = widths.iter().copied().map(Decimal::from).collect();
        Hierarchy::intervals(IntervalSpec::new(widths, min.into(), max.into())).unwrap()
    }

    /// All rows at `node`, written that way, before the gate.
    fn batch(table: &Table, node: &Node, how: Render) -> GeneralizedBatch {
        let columns: Vec<Arc<Column>> =
            Recoding::from(node.clone()).columns(&table.dictionaries.quasi).into_iter().map(Arc::new).collect();
        let held = Arc::new(table.rows.filtered(|_| false));
        let order = (0..table.rows.len() as u32).map(RowRef::Fresh).collect();
        let rows = Arc::clone(&table.rows);
        let dictionaries = &table.dictionaries;
        let mut batch = GeneralizedBatch::at(rows, held, order, &columns, dictionaries);
        render(&mut batch, how, &columns, &table.policy.quasi);
        batch
    }

    /// What leaves the gate at `node`, row by row.
    fn published(table: &Table, node: &Node, how: Render) -> Vec<Vec<String>> {
        let batch = batch(table, node, how);
        let release = gate::verify(batch, &table.rules).unwrap();
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
            format: Some("%d/%m/%y".into()),
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
    fn the_eleven_people_microaggregated() {
        let table = eleven();
        let rows = published(&table, &Node::new([1, 3, 2]), Render::Microaggregate);
        let expected = [("1955-04-18 26328 173", 5), ("1956-03-18 10431 164", 3), ("1956-09-24 24129 164", 3)];
        assert_eq!(counted(rows), expected.map(|(class, n)| (class.to_owned(), n)).into());
    }

    #[test]
    fn the_eleven_people_by_interval() {
        let table = eleven();
        let rows = published(&table, &Node::new([1, 3, 2]), Render::Interval);
        let expected = [
            ("[1955-04-01,1955-04-30] 26*** [170,180)", 5),
            ("[1956-03-01,1956-03-31] 10*** [160,170)", 3),
            ("[1956-09-01,1956-09-30] 24*** [160,170)", 3),
        ];
        assert_eq!(counted(rows), expected.map(|(class, n)| (class.to_owned(), n)).into());
        // The top is not an interval.
        let rows = published(&table, &Node::new([3, 5, 3]), Render::Interval);
        assert_eq!(counted(rows), BTreeMap::from([("* ***** *".to_owned(), 11)]));
    }

    #[test]
    fn an_interval_says_what_is_allowed_and_not_who_is_there() {
        // Listed leaves 1 to 9; only 2 and 3 occur in the lower group, which allows 1 to 4.
        let listed: String = (1..=9).map(|i| format!("{i};{};*\n", if i < 5 { "low" } else { "high" })).collect();
        let quasi = || vec![("n", Hierarchy::parse_csv(listed.as_bytes()).unwrap()), ("a", intervals(&[50], 0, 120))];
        let records = vec![vec!["2", "101"], vec!["3", "119"], vec!["7", "0"], vec!["7", "49"]];
        let table = Table::new(policy(quasi(), &[], 2), &records);
        let rows = published(&table, &Node::new([1, 1]), Render::Interval);
        let expected = [("[1,4] [100,120]", 2), ("[5,9] [0,50)", 2)];
        assert_eq!(counted(rows), expected.map(|(class, n)| (class.to_owned(), n)).into());
    }

    #[test]
    fn the_gate_counts_what_is_written() {
        // Two classes of two: too few at k = 3, unless they are written alike; then they are one class of four.
        let records = vec![vec!["11"], vec!["13"], vec!["21"], vec!["23"]];
        let table = Table::new(policy(vec![("n", intervals(&[10], 0, 99))], &[], 3), &records);
        for how in [Render::Label, Render::Interval, Render::Microaggregate] {
            let refusal = gate::verify(batch(&table, &Node::new([1]), how), &table.rules).unwrap_err();
            assert_eq!(refusal.size, 2);
            let mut alike = batch(&table, &Node::new([1]), how);
            alike.quasi[0] = Labels::Table(vec!["17".to_owned(); 2].into());
            assert_eq!(gate::verify(alike, &table.rules).unwrap().manifest().k_achieved, Some(4));
        }
    }

    #[test]
    fn a_mean_has_as_many_places_as_its_numbers() {
        let numbers =
            |list: &[(i64, u32)]| list.iter().map(|&(n, scale)| Point::Number(Decimal::new(n, scale))).collect();
        assert_eq!(centre(Measure::Number, numbers(&[(125, 1), (13, 0)])).as_deref(), Some("12.8"));
        assert_eq!(centre(Measure::Number, numbers(&[(1, 0), (2, 0)])).as_deref(), Some("2"));
        assert_eq!(centre(Measure::Code, Vec::new()), None);
    }
}
