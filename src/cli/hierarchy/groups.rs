//! Makes the levels of a hierarchy from values and how many people hold each. Pure: no files, no order of records.
//!
//! Every way keeps two promises: each level refines the next, and no value that fewer than `k` people hold is in the result.
//! Bounds of numbers are rounded, and lie between the k-th smallest and the k-th largest value.

use std::cmp::Ordering;

/// A value of the sample and the number of people who hold it.
pub(super) type Held = (String, u64);

/// More numbers than this are not listed one by one. Larger: a hierarchy that takes long to load. Smaller: amounts of money do
/// not fit.
const MAX_NUMBERS: i64 = 1_000_000;

/// One line per leaf: the value, its labels from fine to coarse, and `*`.
pub(super) type Paths = Vec<Vec<String>>;

/// By rank: the values in their order, `fan` neighbours together at level 1, `fan` of these groups at level 2, and so on.
pub(super) fn by_order(mut values: Vec<Held>, fan: usize) -> Paths {
    let numeric = values.iter().all(|(value, _)| value.parse::<f64>().is_ok_and(f64::is_finite));
    values.sort_by(|(a, _), (b, _)| if numeric { by_number(a, b) } else { a.cmp(b) });
    let mut paths: Paths = values.iter().map(|(value, _)| vec![value.clone()]).collect();
    let mut size = fan;
    while size < values.len() {
        for (at, path) in paths.iter_mut().enumerate() {
            let first = at / size * size;
            let last = (first + size - 1).min(values.len() - 1);
            path.push(match first == last {
                true => values[first].0.clone(),
                false => format!("{} .. {}", values[first].0, values[last].0),
            });
        }
        size = size.saturating_mul(fan);
    }
    topped(paths)
}

fn by_number(a: &str, b: &str) -> Ordering {
    let number = |text: &str| text.parse::<f64>().unwrap_or(0.0);
    number(a).total_cmp(&number(b)).then_with(|| a.cmp(b))
}

/// By frequency: at each level the values that fewer people hold than `fan` times as many as at the level before are one.
pub(super) fn by_frequency(mut values: Vec<Held>, k: u64, fan: usize) -> Paths {
    values.sort_by(|(a, held), (b, others)| others.cmp(held).then_with(|| a.cmp(b)));
    let mut other = "(other)".to_owned();
    while values.iter().any(|(value, _)| *value == other) {
        other = format!("({other})");
    }
    let mut paths: Paths = values.iter().map(|(value, _)| vec![value.clone()]).collect();
    let most = values.first().map_or(0, |(_, held)| *held);
    let mut floor = k.saturating_mul(fan as u64);
    let mut before = 0;
    while floor <= most {
        let rare = values.iter().filter(|(_, held)| *held < floor).count();
        // A level that changes nothing, or renames one value, is none.
        if rare > before.max(1) {
            before = rare;
            for ((value, held), path) in values.iter().zip(&mut paths) {
                path.push(if *held < floor { other.clone() } else { value.clone() });
            }
        }
        floor = floor.saturating_mul(fan as u64);
    }
    topped(paths)
}

/// By quantiles of whole numbers: `groups` intervals that about as many people lie in, then `fan` intervals together, and so on.
/// The leaves are all whole numbers of the range, whether or not the sample has them.
pub(super) fn by_quantile(values: &[Held], k: u64, groups: usize, fan: usize) -> Result<Paths, &'static str> {
    let numbers: Option<Vec<(i64, u64)>> =
        values.iter().map(|(value, held)| Some((value.parse::<i64>().ok()?, *held))).collect();
    let mut numbers =
        numbers.ok_or("holds values that are no whole numbers: write `intervals` for it, or take --by order")?;
    numbers.sort_unstable();
    let bounds =
        bounds(&numbers, k, groups).ok_or("is held by too few people for two intervals: write `intervals` for it")?;
    let (low, high) = (bounds[0], bounds[bounds.len() - 1]);
    if high - low > MAX_NUMBERS {
        return Err("has a range of more than a million numbers: write `intervals` for it");
    }
    let mut edges = vec![bounds];
    while let Some(last) = edges.last()
        && last.len() > fan + 1
    {
        let mut coarse: Vec<i64> = last.iter().copied().step_by(fan).collect();
        if coarse.last() != last.last() {
            coarse.extend(last.last());
        }
        edges.push(coarse);
    }
    let path = |number: i64| {
        let label = |edges: &Vec<i64>| {
            let above = edges.partition_point(|edge| *edge <= number).clamp(1, edges.len() - 1);
            format!("[{},{})", edges[above - 1], edges[above])
        };
        std::iter::once(number.to_string()).chain(edges.iter().map(label)).collect()
    };
    Ok(topped((low..high).map(path).collect()))
}

/// Rounded edges between which at least `k` people lie each; at least three of them. The last one is above every number inside.
fn bounds(numbers: &[(i64, u64)], k: u64, groups: usize) -> Option<Vec<i64>> {
    let people: u64 = numbers.iter().map(|(_, held)| held).sum();
    let at = |rank: u64| {
        let mut seen = 0;
        let found = numbers.iter().find(|(_, held)| {
            seen += held;
            seen > rank
        });
        found.map(|(number, _)| *number)
    };
    // Nobody's least and greatest value: so many people lie beyond, or at them.
    let (least, greatest) = (at(k.checked_sub(1)?)?, at(people.checked_sub(k)?)?);
    let step = rounding((greatest.checked_sub(least)?) / i64::try_from(groups).ok()?.max(1));
    let down = |number: i64| number - number.rem_euclid(step);
    let mut edges: Vec<i64> = (1..groups as u64).filter_map(|i| at(people * i / groups as u64)).map(down).collect();
    edges.insert(0, down(least));
    edges.push(down(greatest).checked_add(step)?);
    edges.sort_unstable();
    edges.dedup();
    let within = |low: i64, high: i64| -> u64 {
        numbers.iter().filter(|(number, _)| (low..high).contains(number)).map(|(_, held)| held).sum()
    };
    let mut kept = vec![*edges.first()?];
    let last = *edges.last()?;
    for edge in edges.iter().copied().skip(1) {
        if within(kept[kept.len() - 1], edge) >= k && (edge == last || within(edge, last) >= k) {
            kept.push(edge);
        }
    }
    (kept.len() > 2).then_some(kept)
}

/// The largest of 1, 2, 5, 10, 20, 50, ... that is at most a quarter of `width`.
fn rounding(width: i64) -> i64 {
    let mut step = 1;
    for factor in [2, 5, 10].into_iter().cycle().zip(0..50) {
        let next = 10_i64.saturating_pow(factor.1 / 3).saturating_mul(factor.0);
        if next > width / 4 {
            break;
        }
        step = next;
    }
    step
}

fn topped(mut paths: Paths) -> Paths {
    paths.iter_mut().for_each(|path| path.push("*".into()));
    paths
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::hierarchy::Hierarchy;

    fn held(values: &[(&str, u64)]) -> Vec<Held> {
        values.iter().map(|(value, held)| ((*value).to_owned(), *held)).collect()
    }

    fn lines(paths: &Paths) -> Vec<String> {
        paths.iter().map(|path| path.join(";")).collect()
    }

    #[test]
    fn order_puts_neighbours_together() {
        let paths = by_order(held(&[("10", 5), ("9", 5), ("1", 5), ("2", 5), ("30", 5)]), 2);
        let expected =
            ["1;1 .. 2;1 .. 10;*", "2;1 .. 2;1 .. 10;*", "9;9 .. 10;1 .. 10;*", "10;9 .. 10;1 .. 10;*", "30;30;30;*"];
        assert_eq!(lines(&paths), expected);
    }

    #[test]
    fn frequency_puts_rare_values_together() {
        let paths = by_frequency(held(&[("a", 100), ("b", 30), ("c", 12), ("(other)", 11)]), 10, 2);
        let expected = ["a;a;a;*", "b;b;((other));*", "c;((other));((other));*", "(other);((other));((other));*"];
        assert_eq!(lines(&paths), expected);
    }

    #[test]
    fn quantiles_are_rounded_and_never_an_extreme() {
        let values: Vec<Held> = (0..1000).map(|n| ((n * n / 1000).to_string(), 1)).collect();
        let mut counts = std::collections::BTreeMap::new();
        values.iter().for_each(|(value, held)| *counts.entry(value.clone()).or_insert(0) += held);
        let paths = by_quantile(&counts.into_iter().collect::<Vec<_>>(), 20, 4, 2).unwrap();
        let first = &paths[0];
        assert_eq!((first[0].as_str(), first.len()), ("0", 4), "{first:?}");
        assert!(paths.iter().all(|path| path[1].ends_with("0)") || path[1].ends_with("5)")), "{:?}", paths[500]);
        assert!(by_quantile(&held(&[("1.5", 50)]), 10, 4, 2).is_err());
        assert!(by_quantile(&held(&[("1", 50)]), 10, 4, 2).is_err());
        assert!(by_quantile(&held(&[("1", 50), ("90000000", 50)]), 10, 4, 2).is_err());
        assert_eq!([0, 8, 40, 100, 4000].map(rounding), [1, 2, 10, 20, 1000]);
    }

    proptest! {
        #[test]
        fn what_is_made_is_a_hierarchy(
            values in prop::collection::btree_map("[a-c0-9;\"]{1,3}|[0-9]{1,4}", 3u64..500, 1..40), fan in 2usize..5,
        ) {
            let values: Vec<Held> = values.into_iter().collect();
            let numbers: Vec<Held> = values.iter().filter(|(v, _)| v.parse::<i64>().is_ok()).cloned().collect();
            let made = [by_order(values.clone(), fan), by_frequency(values.clone(), 3, fan)];
            for paths in made.into_iter().chain(by_quantile(&numbers, 3, 6, fan)) {
                let bytes = super::super::written(&paths);
                let hierarchy = Hierarchy::parse_csv(&bytes);
                prop_assert!(hierarchy.is_ok(), "{:?}", hierarchy.err());
            }
        }

        #[test]
        fn every_interval_holds_enough_people(numbers in prop::collection::btree_map(-5000i64..5000, 1u64..30, 1..200), k in 1u64..20) {
            let numbers: Vec<(i64, u64)> = numbers.into_iter().collect();
            if let Some(edges) = bounds(&numbers, k, 8) {
                for pair in edges.windows(2) {
                    let held: u64 = numbers.iter().filter(|(n, _)| (pair[0]..pair[1]).contains(n)).map(|(_, h)| h).sum();
                    prop_assert!(pair[0] < pair[1] && held >= k);
                }
            }
        }
    }
}
