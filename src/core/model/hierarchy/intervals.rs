//! Numbers by intervals of growing width: 17, [15,20), [10,20), [0,20), *.
//!
//! Arithmetic is exact: bounds are whole multiples of one decimal unit, and a value is placed by its decimal text, however
//! long, never through a float.

use std::borrow::Cow;

use rust_decimal::Decimal;
use schemars::JsonSchema;
use serde::Deserialize;

use super::closed::loss_of;
use super::{Errors, HierarchyError, TOP};
use crate::model::lattice::Level;
use crate::model::record::canonical_number;

/// Which ends of the range take values from beyond. Such values are coded `<MIN` or `>MAX` at every level below the top.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Open {
    /// Both ends are closed: a value outside the range is unknown.
    #[default]
    None,
    /// Values below `min` are one value.
    Low,
    /// Values above `max` are one value.
    High,
    /// Both ends are open.
    Both,
}

/// How numbers generalize. Values from `min` to `max`, both included, are inside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IntervalSpec {
    /// One level each, ascending; each a multiple of the one before, so that intervals nest.
    pub widths: Vec<Decimal>,
    /// The smallest value.
    pub min: Decimal,
    /// The largest value.
    pub max: Decimal,
    /// A number at which intervals of all widths begin; 0 by default.
    pub origin: Decimal,
    /// The treatment of numbers beyond `min` and `max`.
    pub open: Open,
    /// Values are written with a comma before their fraction, and perhaps with points between thousands: `1.234,5`.
    pub decimal_comma: bool,
}

impl IntervalSpec {
    /// Intervals from 0 on, closed at both ends of the range.
    pub fn new(widths: impl Into<Vec<Decimal>>, min: Decimal, max: Decimal) -> Self {
        Self { widths: widths.into(), min, max, origin: Decimal::ZERO, open: Open::None, decimal_comma: false }
    }
}

/// More widths cannot be numbered as levels.
const MAX_WIDTHS: usize = Level::MAX as usize - 1;

/// Everything is counted in units of 10^-scale, the coarsest unit of which all bounds are multiples.
#[derive(Hash)]
pub(super) struct Intervals {
    scale: u32,
    widths: Vec<i128>,
    min: i128,
    max: i128,
    origin: i128,
    /// The labels of what lies beyond the range, where it is open.
    low: Option<String>,
    high: Option<String>,
    decimal_comma: bool,
}

/// Where a number lies.
enum Place {
    Low,
    /// In the range, rounded down to a whole unit.
    Inside(i128),
    High,
}

impl Intervals {
    pub(super) fn new(spec: &IntervalSpec) -> Result<Self, Vec<HierarchyError>> {
        let mut errors = Errors::default();
        if spec.min >= spec.max {
            errors
                .push(None, format!("min {} is not below max {}; write the smaller number as min", spec.min, spec.max));
        }
        for width in spec.widths.iter().filter(|&&width| width <= Decimal::ZERO) {
            errors.push(None, format!("width {width} is not positive; write widths above 0"));
        }
        if spec.widths.len() > MAX_WIDTHS {
            errors.push(None, format!("{} widths; write at most {MAX_WIDTHS}", spec.widths.len()));
        }
        let numbers = || spec.widths.iter().chain([&spec.min, &spec.max, &spec.origin]);
        let scale = numbers().map(|number| number.normalize().scale()).max().unwrap_or(0);
        let Some(units) = numbers().map(|number| units_of(number, scale)).collect::<Option<Vec<_>>>() else {
            errors.push(None, "the bounds and widths are too far apart in size; write fewer digits");
            return Err(errors.into_list());
        };
        let (widths, ends) = units.split_at(spec.widths.len());
        for (pair, number) in widths.windows(2).zip(spec.widths.windows(2)) {
            if pair[0] > 0 && (pair[1] <= pair[0] || pair[1] % pair[0] != 0) {
                let (fine, coarse) = (number[0], number[1]);
                errors.push(
                    None,
                    format!(
                        "width {coarse} after {fine}; write a larger multiple of {fine}, such as {}, or widths that do not nest as \
                         alternatives: `any_of: [intervals: .., intervals: ..]`",
                        fine + fine
                    ),
                );
            }
        }
        errors.into_result()?;
        let bound = |label: char, end: i128| format!("{label}{}", text_of(end, scale));
        Ok(Self {
            scale,
            widths: widths.to_vec(),
            min: ends[0],
            max: ends[1],
            origin: ends[2],
            low: matches!(spec.open, Open::Low | Open::Both).then(|| bound('<', ends[0])),
            high: matches!(spec.open, Open::High | Open::Both).then(|| bound('>', ends[1])),
            decimal_comma: spec.decimal_comma,
        })
    }

    pub(super) fn height(&self) -> Level {
        self.widths.len() as Level + 1
    }

    /// The number of this many units.
    fn number(&self, units: i128) -> Option<Decimal> {
        Decimal::try_from_i128_with_scale(units, self.scale).ok()
    }

    /// True if both read the same values as the same leaves, and their intervals begin at the same number.
    pub(super) fn reads_as(&self, other: &Self) -> bool {
        let bounds = |of: &Self| [of.min, of.max, of.origin].map(|units| of.number(units));
        let ends = |of: &Self| (of.low.clone(), of.high.clone(), of.decimal_comma);
        bounds(self) == bounds(other) && ends(self) == ends(other)
    }

    /// True if the intervals of a level lie in those of a level of the other, which [`Self::reads_as`] this one.
    pub(super) fn level_refines(&self, level: Level, other: &Self, coarse: Level) -> bool {
        let width = |of: &Self, level: Level| of.number(of.widths[usize::from(level) - 1]);
        let widths = width(self, level).zip(width(other, coarse));
        widths.and_then(|(fine, coarse)| coarse.checked_rem(fine)).is_some_and(|rest| rest.is_zero())
    }

    pub(super) fn canonical<'a>(&self, text: &'a str) -> Option<Cow<'a, str>> {
        if self.beyond(text) {
            return Some(Cow::Borrowed(text));
        }
        let number = match self.decimal_comma {
            true => Cow::Owned(canonical_number(&with_point(text))?.into_owned()),
            false => canonical_number(text)?,
        };
        match self.place(&number)? {
            Place::Low => self.low.clone().map(Cow::Owned),
            Place::Inside(_) => Some(number),
            Place::High => self.high.clone().map(Cow::Owned),
        }
    }

    pub(super) fn label<'a>(&self, leaf: &'a str, level: Level) -> Option<Cow<'a, str>> {
        if level > self.height() {
            return None;
        }
        let inside = match self.beyond(leaf) {
            true => None,
            false if canonical_number(leaf)? != leaf => return None,
            false => Some(self.inside(leaf)?),
        };
        if level == self.height() {
            return Some(Cow::Borrowed(TOP));
        }
        match inside.filter(|_| level > 0) {
            None => Some(Cow::Borrowed(leaf)),
            Some(units) => {
                let (from, to) = self.interval(units, level);
                Some(Cow::Owned(format!("[{},{})", text_of(from, self.scale), text_of(to, self.scale))))
            }
        }
    }

    /// With a decimal comma, a value can be spelled like the label of another number: `1.234`.
    pub(super) fn reads_its_labels(&self) -> bool {
        !self.decimal_comma
    }

    /// The width of the intervals of a level between the leaves and the top.
    pub(super) fn width(&self, level: Level) -> String {
        text_of(self.widths[usize::from(level) - 1], self.scale)
    }

    /// A number that is neither of its ends and looks like no bound.
    pub(super) fn example(&self) -> String {
        text_of(self.min + (self.max - self.min) * 31 / 100, self.scale)
    }

    /// Integers below over all integers of the range, or the share of the range where bounds are not whole. What lies beyond the
    /// range is one leaf each.
    pub(super) fn loss(&self, leaf: &str, level: Level) -> f64 {
        let Some(units) = self.inside(leaf).filter(|_| level > 0 && !self.beyond(leaf)) else {
            return 0.0;
        };
        let (from, to) = self.interval(units, level);
        if self.scale > 0 {
            return (to.min(self.max) - from.max(self.min)) as f64 / (self.max - self.min) as f64;
        }
        let below = (to - 1).min(self.max) - from.max(self.min) + 1;
        loss_of(below as f64, self.size(), false)
    }

    /// How many numbers are declared, in the unit of which all bounds are multiples; what lies beyond the range is one each.
    pub(super) fn size(&self) -> f64 {
        (self.max - self.min + 1) as f64 + self.beyond_count() as f64
    }

    /// How many of them the leaf's ancestor at a level below the top stands for.
    pub(super) fn leaves(&self, leaf: &str, level: Level) -> f64 {
        let Some(units) = self.inside(leaf).filter(|_| level > 0 && !self.beyond(leaf)) else {
            return 1.0;
        };
        let (from, to) = self.interval(units, level);
        (to.min(self.max + 1) - from.max(self.min)) as f64
    }

    /// The sizes of the intervals of a level between the leaves and the top, each with how many there are of it.
    pub(super) fn blocks(&self, level: Level) -> Vec<(f64, f64)> {
        let (first, last) = (self.interval(self.min, level), self.interval(self.max, level));
        let mut blocks = vec![(1.0, self.beyond_count() as f64)];
        if first == last {
            blocks.push(((self.max - self.min + 1) as f64, 1.0));
        } else {
            let width = first.1 - first.0;
            blocks.push(((first.1 - self.min) as f64, 1.0));
            blocks.push((width as f64, ((last.0 - first.1) / width) as f64));
            blocks.push(((self.max - last.0 + 1) as f64, 1.0));
        }
        blocks
    }

    fn beyond_count(&self) -> usize {
        [&self.low, &self.high].into_iter().flatten().count()
    }

    /// The interval of the level around a leaf, cut off at the range; closed where the range ends, else half open.
    pub(super) fn interval_text(&self, leaf: &str, level: Level) -> Option<String> {
        let units = self.inside(leaf).filter(|_| !self.beyond(leaf))?;
        let (from, to) = self.interval(units, level);
        let text = |units: i128| text_of(units, self.scale);
        Some(match to > self.max {
            true => format!("[{},{}]", text(from.max(self.min)), text(self.max)),
            false => format!("[{},{})", text(from.max(self.min)), text(to)),
        })
    }

    /// The ends of the interval that the label at `level` names: the lower one belongs to it, the upper one does not.
    pub(super) fn ends(&self, leaf: &str, level: Level) -> Option<(Decimal, Decimal)> {
        let units = self.inside(leaf).filter(|_| !self.beyond(leaf))?;
        let (from, to) = self.interval(units, level);
        Some((self.number(from)?, self.number(to)?))
    }

    /// True for the label of what lies beyond an open end.
    fn beyond(&self, leaf: &str) -> bool {
        [&self.low, &self.high].into_iter().flatten().any(|label| label == leaf)
    }

    fn inside(&self, leaf: &str) -> Option<i128> {
        match self.place(leaf)? {
            Place::Inside(units) => Some(units),
            Place::Low | Place::High => None,
        }
    }

    /// The interval of the level around a place inside the range.
    fn interval(&self, units: i128, level: Level) -> (i128, i128) {
        let width = self.widths[usize::from(level) - 1];
        let from = units - (units - self.origin).rem_euclid(width);
        (from, from + width)
    }

    /// Places a number in canonical decimal text.
    fn place(&self, number: &str) -> Option<Place> {
        let (negative, digits) = match number.strip_prefix('-') {
            Some(digits) => (true, digits),
            None => (false, number),
        };
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let scale = self.scale as usize;
        let (kept, rest) = fraction.split_at_checked(scale).unwrap_or((fraction, ""));
        let mut units: i128 = 0;
        for digit in
            whole.bytes().chain(kept.bytes()).chain(std::iter::repeat_n(b'0', scale.saturating_sub(kept.len())))
        {
            if !digit.is_ascii_digit() {
                return None;
            }
            units = units.saturating_mul(10).saturating_add(i128::from(digit - b'0'));
        }
        // A canonical fraction does not end in zeros, so any rest is more than nothing.
        let exact = rest.is_empty();
        let units = match negative {
            true => (-units).saturating_sub(i128::from(!exact)),
            false => units,
        };
        Some(match () {
            () if units < self.min => Place::Low,
            () if units > self.max || (units == self.max && !exact) => Place::High,
            () => Place::Inside(units),
        })
    }
}

/// A number with a decimal comma as one with a decimal point. Points are left out where they divide thousands; a number
/// without a comma whose points do not is taken as it is.
fn with_point(text: &str) -> Cow<'_, str> {
    let (whole, fraction) = text.split_once(',').unwrap_or((text, ""));
    let mut groups = whole.trim_start_matches(['-', '+']).split('.');
    let digits = |group: &str| !group.is_empty() && group.bytes().all(|b| b.is_ascii_digit());
    let thousands = whole.contains('.')
        && groups.next().is_some_and(|first| digits(first) && first.len() <= 3)
        && groups.all(|group| digits(group) && group.len() == 3);
    let whole = if thousands { Cow::Owned(whole.replace('.', "")) } else { Cow::Borrowed(whole) };
    match text.contains(',') {
        true => Cow::Owned(format!("{whole}.{fraction}")),
        false => whole,
    }
}

/// The number in units of 10^-scale. `None` if it leaves no room to compute with: sums of four must not overflow.
fn units_of(number: &Decimal, scale: u32) -> Option<i128> {
    let number = number.normalize();
    let factor = 10_i128.checked_pow(scale.checked_sub(number.scale())?)?;
    number.mantissa().checked_mul(factor).filter(|units| units.unsigned_abs() < 1 << 124)
}

fn text_of(units: i128, scale: u32) -> String {
    let digits = format!("{:0width$}", units.unsigned_abs(), width = scale as usize + 1);
    let (whole, fraction) = digits.split_at(digits.len() - scale as usize);
    let fraction = fraction.trim_end_matches('0');
    let sign = if units < 0 { "-" } else { "" };
    if fraction.is_empty() { format!("{sign}{whole}") } else { format!("{sign}{whole}.{fraction}") }
}

#[cfg(test)]
mod tests {
    use super::super::Hierarchy;
    use super::*;

    fn number(text: &str) -> Decimal {
        Decimal::from_str_exact(text).unwrap()
    }

    fn spec(widths: &[&str], min: &str, max: &str, open: Open) -> IntervalSpec {
        let widths: Vec<_> = widths.iter().map(|w| number(w)).collect();
        IntervalSpec { open, ..IntervalSpec::new(widths, number(min), number(max)) }
    }

    fn intervals(widths: &[&str], min: &str, max: &str, open: Open) -> Hierarchy {
        Hierarchy::intervals(spec(widths, min, max, open)).unwrap()
    }

    fn labels(h: &Hierarchy, text: &str) -> Vec<String> {
        let leaf = h.canonical(text).unwrap();
        (0..=h.height()).map(|l| h.label(&leaf, l).unwrap().into_owned()).collect()
    }

    #[test]
    fn integers() {
        let h = intervals(&["5", "10", "20"], "0", "120", Open::None);
        assert_eq!(labels(&h, "17"), ["17", "[15,20)", "[10,20)", "[0,20)", "*"]);
        assert_eq!(labels(&h, "20")[1], "[20,25)");
        assert_eq!(labels(&h, "120")[1], "[120,125)");
        assert_eq!(labels(&h, "17.5")[1], "[15,20)");
        for text in ["7", "007", "7.0", "7.000", "70e-1", "+7"] {
            assert_eq!(h.canonical(text).as_deref(), Some("7"), "{text}");
        }
        for text in ["-1", "121", "120.0001", "NaN", "", "inf", "x", "1e300", "-0.5", "[15,20)"] {
            assert_eq!(h.canonical(text), None, "{text}");
        }
        assert_eq!(h.canonical("-0.0").as_deref(), Some("0"));
        for text in ["007", "7.0", ".é", "1.é", "-", "121"] {
            assert_eq!(h.label(text, 1), None, "{text}");
        }
    }

    #[test]
    fn negative_numbers_and_another_origin() {
        let h = intervals(&["5"], "-20", "20", Open::None);
        assert_eq!(labels(&h, "-1")[1], "[-5,0)");
        assert_eq!(labels(&h, "-5")[1], "[-5,0)");
        assert_eq!(labels(&h, "-5.00000000000000000000000000000000000000000001")[1], "[-10,-5)");
        let shifted = IntervalSpec { origin: number("1"), ..spec(&["10"], "1", "100", Open::None) };
        assert_eq!(labels(&Hierarchy::intervals(shifted).unwrap(), "10")[1], "[1,11)");
    }

    #[test]
    fn decimals_are_exact() {
        let h = intervals(&["0.1", "0.3"], "0", "1.2", Open::None);
        assert_eq!(labels(&h, "0.3"), ["0.3", "[0.3,0.4)", "[0.3,0.6)", "*"]);
        assert_eq!(labels(&h, "0.29999999999999999999999999999999999")[1], "[0.2,0.3)");
        assert_eq!(labels(&h, "1.2")[1], "[1.2,1.3)");
        assert_eq!(h.label(".é", 1), None);
        assert!((h.open_loss("0.35", 1) - 0.1 / 1.2).abs() < 1e-12);
        assert!((h.open_loss("0.35", 2) - 0.25).abs() < 1e-12);
    }

    #[test]
    fn numbers_with_a_decimal_comma() {
        let spec =
            IntervalSpec { decimal_comma: true, ..IntervalSpec::new([Decimal::new(5, 1)], 0.into(), 9999.into()) };
        let h = Hierarchy::intervals(spec).unwrap();
        for (text, leaf) in
            [("3,75", "3.75"), ("1.234,5", "1234.5"), ("1.234", "1234"), ("12.5", "12.5"), ("7", "7"), ("7,0", "7")]
        {
            assert_eq!(h.canonical(text).as_deref(), Some(leaf), "{text}");
        }
        assert_eq!(h.label("3.75", 1).as_deref(), Some("[3.5,4)"));
        for text in ["1,2,3", "12.34,5", ",", "1.2345,6", ""] {
            assert_eq!(h.canonical(text), None, "{text}");
        }
    }

    #[test]
    fn open_ends() {
        let h = intervals(&["5", "10"], "18", "90", Open::Both);
        assert_eq!(labels(&h, "99"), [">90", ">90", ">90", "*"]);
        assert_eq!(labels(&h, "17.9"), ["<18", "<18", "<18", "*"]);
        assert_eq!(labels(&h, "1e300"), [">90", ">90", ">90", "*"]);
        assert_eq!(labels(&h, ">90")[0], ">90");
        assert_eq!(labels(&h, "90")[0], "90");
        assert_eq!(h.open_loss(">90", 2), 0.0);
        // 18 and 19 of 73 integers and two ends.
        assert_eq!(h.open_loss("18", 1), 1.0 / 74.0);
        let low = intervals(&["5"], "18", "90", Open::Low);
        assert_eq!(low.canonical("91"), None);
        assert_eq!(low.canonical(">90"), None);
    }

    #[test]
    fn wrong_definitions_are_all_told() {
        let errors = Hierarchy::intervals(spec(&["10", "5", "-1"], "9", "3", Open::None)).unwrap_err();
        let text: Vec<_> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(text.len(), 4, "{text:?}");
        assert!(text[0].starts_with("min 9 is not below max 3"));
        assert!(text[2].contains("write a larger multiple of 10, such as 20"));
        assert!(Hierarchy::intervals(spec(&["2", "5"], "0", "9", Open::None)).is_err());
        assert!(
            Hierarchy::intervals(spec(
                &["0.0000000000000000000000000001"],
                "0",
                "9999999999999999999999999999",
                Open::None
            ))
            .is_err()
        );
    }
}
