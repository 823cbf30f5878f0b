//! Dates by calendar units: 1985-03-31, 1985-03, 1985-Q1, 1985, 1980s, 1900-1999.
//!
//! Read are ISO dates and timestamps (the date as it is written, in the writer's own offset; `Z` is UTC), or what a list of
//! formats describes, and nothing else then: the first format that reads a value decides. The first unit is level 0, and its own labels can be read as well.
//! Centuries run from 1900 to 1999 and not from 1901 to 2000, because decades have to nest in them.

use std::borrow::Cow;

use jiff::civil::{Date, ISOWeekDate, Weekday};
use jiff::fmt::strtime::BrokenDownTime;
use jiff::fmt::temporal::DateTimeParser;
use jiff::tz::TimeZone;

use super::closed::loss_of;
use super::{Errors, HierarchyError, TOP};
use crate::model::lattice::Level;
use crate::model::words;

words! {
    /// A calendar unit, fine to coarse.
    pub enum DateUnit {
        /// `1985-03-31`
        Day = "day",
        /// ISO week, `1985-W13`. Weeks nest in nothing coarser, so they come last, or beside months in another alternative of `any_of`.
        Week = "week",
        /// `1985-03`
        Month = "month",
        /// `1985-Q1`
        Quarter = "quarter",
        /// `1985`
        Year = "year",
        /// `1980s`
        Decade = "decade",
        /// `1900-1999`
        Century = "century",
    }
}

impl DateUnit {
    /// True if each of these units lies in one of the other.
    pub(super) fn nests_in(self, coarse: Self) -> bool {
        self == coarse || self < coarse && (self == Self::Day || (self != Self::Week && coarse != Self::Week))
    }

    fn label(self, date: Date) -> String {
        let (year, month) = (date.year(), date.month());
        match self {
            Self::Day => format!("{year:04}-{month:02}-{:02}", date.day()),
            Self::Week => {
                let week = date.iso_week_date();
                format!("{:04}-W{:02}", week.year(), week.week())
            }
            Self::Month => format!("{year:04}-{month:02}"),
            Self::Quarter => format!("{year:04}-Q{}", (month + 2) / 3),
            Self::Year => format!("{year:04}"),
            Self::Decade => format!("{:04}s", year - year % 10),
            Self::Century => format!("{:04}-{:04}", year - year % 100, year - year % 100 + 99),
        }
    }

    /// The first day of the unit that has this label.
    fn read(self, label: &str) -> Option<Date> {
        let digits = |from: usize, to: usize| -> Option<i16> {
            let part = label.get(from..to)?;
            part.bytes().all(|b| b.is_ascii_digit()).then(|| part.parse().ok())?
        };
        let year = digits(0, 4)?;
        let small = |from: usize, to: usize| digits(from, to).map(|n| n as i8);
        let date = match self {
            Self::Day => Date::new(year, small(5, 7)?, small(8, 10)?),
            Self::Week => ISOWeekDate::new(year, small(6, 8)?, Weekday::Monday).map(ISOWeekDate::date),
            Self::Month => Date::new(year, small(5, 7)?, 1),
            Self::Quarter => Date::new(year, small(6, 7).filter(|q| (1..=4).contains(q))? * 3 - 2, 1),
            Self::Year | Self::Decade | Self::Century => Date::new(year, 1, 1),
        };
        // Whatever stands between the digits has to be right as well.
        date.ok().filter(|&date| self.label(date) == label)
    }

    /// The number of the unit that holds `date`; the next unit has the next number.
    fn number(self, date: Date) -> f64 {
        let (year, month) = (f64::from(date.year()), f64::from(date.month() - 1));
        // A Monday before every date that is read, so that weeks begin where they should.
        let day = days(Date::constant(-1, 12, 27), date) - 1.0;
        match self {
            Self::Day => day,
            Self::Week => (day / 7.0).floor(),
            Self::Month => year * 12.0 + month,
            Self::Quarter => year * 4.0 + (month / 3.0).floor(),
            Self::Year => year,
            Self::Decade => (year / 10.0).floor(),
            Self::Century => (year / 100.0).floor(),
        }
    }

    /// The first and the last day of the unit that holds `date`.
    fn span(self, date: Date) -> Option<(Date, Date)> {
        let years = |length: i16| {
            let first = date.year() - date.year() % length;
            Some((Date::new(first, 1, 1).ok()?, Date::new(first + length - 1, 12, 31).ok()?))
        };
        match self {
            Self::Day => Some((date, date)),
            Self::Week => {
                let week = date.iso_week_date();
                let day = |weekday| ISOWeekDate::new(week.year(), week.week(), weekday).map(ISOWeekDate::date).ok();
                Some((day(Weekday::Monday)?, day(Weekday::Sunday)?))
            }
            Self::Month => Some((date.first_of_month(), date.last_of_month())),
            Self::Quarter => {
                let first = (date.month() - 1) / 3 * 3 + 1;
                let last = Date::new(date.year(), first + 2, 1).ok()?.last_of_month();
                Some((Date::new(date.year(), first, 1).ok()?, last))
            }
            Self::Year => years(1),
            Self::Decade => years(10),
            Self::Century => years(100),
        }
    }
}

/// How dates generalize.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DateSpec {
    /// Fine to coarse; the first is level 0. `*` is put on top.
    pub units: Vec<DateUnit>,
    /// The first date inside the hierarchy; without it every early date is, and losses are counted from 1900-01-01.
    pub min: Option<Date>,
    /// The last date inside the hierarchy; without it every late date is, and losses are counted to 2099-12-31.
    pub max: Option<Date>,
    /// How values are written, instead of ISO; the first format that reads a value decides. `strptime` formats such as
    /// `%d/%m/%Y`, `iso`, or a number since 1970 in UTC: `epoch-days`, `epoch-seconds`, `epoch-millis`, `epoch-micros`. With a year of two
    /// digits, a date after `max` is read a century earlier: 24/09/56 was 1956 if `max` is before 2056.
    pub formats: Vec<String>,
}

impl DateSpec {
    /// ISO dates in these units, of any time.
    pub fn new(units: impl Into<Vec<DateUnit>>) -> Self {
        Self { units: units.into(), min: None, max: None, formats: Vec::new() }
    }
}

/// Years outside are not written with four digits.
const YEARS: std::ops::RangeInclusive<i16> = 0..=9999;
/// The years that losses count where no range is given: large enough for any living person and any contract.
const COUNTED: (i16, i16) = (1900, 2099);

#[derive(Hash)]
pub(super) struct Dates {
    units: Vec<DateUnit>,
    min: Option<Date>,
    max: Option<Date>,
    /// At least one.
    formats: Vec<DateFormat>,
    /// The range that losses count.
    counted: (Date, Date),
}

impl Dates {
    pub(super) fn new(spec: DateSpec) -> Result<Self, Vec<HierarchyError>> {
        let mut errors = Errors::default();
        if spec.units.is_empty() {
            errors.push(None, "no date units; write some, such as [day, month, year]");
        }
        for pair in spec.units.windows(2) {
            let (fine, coarse) = (pair[0].as_str(), pair[1].as_str());
            if pair[0] >= pair[1] {
                errors.push(None, format!("`{coarse}` after `{fine}`; write date units fine to coarse, each once"));
            } else if !pair[0].nests_in(pair[1]) {
                let remedy = format!(
                    "leave one of the two out, or write alternatives: `any_of: [date: [day, week], date: [day, {coarse}]]`"
                );
                errors.push(None, format!("a week can lie in two of `{coarse}`; {remedy}"));
            }
        }
        if spec.min.zip(spec.max).is_some_and(|(min, max)| min > max) {
            errors.push(None, "the earliest date is after the latest; exchange min and max");
        }
        if spec.min.iter().chain(&spec.max).any(|date| !YEARS.contains(&date.year())) {
            errors.push(None, "a date before the year 0; write a year of four digits");
        }
        let unit = spec.units.first().copied().unwrap_or(DateUnit::Day);
        let formats: Vec<_> = spec.formats.iter().map(|format| DateFormat::of(format)).collect();
        for (format, read) in spec.formats.iter().zip(&formats) {
            if let DateFormat::Letters { .. } = read
                && let Err(problem) = check_format(format, unit)
            {
                let remedy =
                    "write one such as `%d/%m/%Y`, or iso, epoch-days, epoch-seconds, epoch-millis or epoch-micros";
                errors.push(None, format!("date format `{format}` {problem}; {remedy}"));
            }
        }
        errors.into_result()?;
        let first = spec.min.or(spec.max.filter(|d| d.year() < COUNTED.0)).map_or(COUNTED.0, Date::year);
        let last = spec.max.or(spec.min.filter(|d| d.year() > COUNTED.1)).map_or(COUNTED.1, Date::year);
        let counted =
            (spec.min.unwrap_or(Date::constant(first, 1, 1)), spec.max.unwrap_or(Date::constant(last, 12, 31)));
        let formats = if formats.is_empty() { vec![DateFormat::Iso] } else { formats };
        Ok(Self { units: spec.units, min: spec.min, max: spec.max, formats, counted })
    }

    pub(super) fn height(&self) -> Level {
        self.units.len() as Level
    }

    /// True if both read the same values as the same leaves.
    pub(super) fn reads_as(&self, other: &Self) -> bool {
        let unit = |of: &Self| of.units.first().copied();
        unit(self) == unit(other)
            && (self.min, self.max) == (other.min, other.max)
            && (self.counted, &self.formats) == (other.counted, &other.formats)
    }

    /// The unit of a level; `None` at the top.
    pub(super) fn unit(&self, level: Level) -> Option<DateUnit> {
        self.units.get(usize::from(level)).copied()
    }

    /// A day as somebody's birthday, or the first one of the range.
    pub(super) fn example(&self) -> String {
        self.units[0].label(Date::constant(1987, 5, 14).clamp(self.counted.0, self.counted.1))
    }

    /// With a format of its own, a value can be spelled like the label of another date.
    pub(super) fn reads_its_labels(&self) -> bool {
        self.formats.first() == Some(&DateFormat::Iso)
    }

    pub(super) fn canonical<'a>(&self, text: &'a str) -> Option<Cow<'a, str>> {
        let unit = self.units[0];
        let (first, last) = self.formats.iter().find_map(|format| self.parse(format, text))?;
        let inside = self.min.is_none_or(|min| last >= min) && self.max.is_none_or(|max| first <= max);
        if !inside || !YEARS.contains(&first.year()) {
            return None;
        }
        let label = unit.label(first);
        Some(if label == text { Cow::Borrowed(text) } else { Cow::Owned(label) })
    }

    pub(super) fn label<'a>(&self, leaf: &'a str, level: Level) -> Option<Cow<'a, str>> {
        let date = self.units[0].read(leaf)?;
        match self.units.get(usize::from(level)) {
            Some(_) if level == 0 => Some(Cow::Borrowed(leaf)),
            Some(unit) => Some(Cow::Owned(unit.label(date))),
            None => (level == self.height()).then_some(Cow::Borrowed(TOP)),
        }
    }

    /// Days of the unit, as far as they lie in the counted range, over all days of that range.
    pub(super) fn loss(&self, leaf: &str, level: Level) -> f64 {
        let span = |unit: &DateUnit| unit.span(self.units[0].read(leaf)?);
        let Some((first, last)) = self.units.get(usize::from(level)).and_then(span) else {
            return 1.0;
        };
        let (from, to) = (first.max(self.counted.0), last.min(self.counted.1));
        // A unit wholly outside can only be met where that end of the range was not given; it counts as it is.
        let below = if from <= to { days(from, to) } else { days(first, last) };
        loss_of(below, days(self.counted.0, self.counted.1), false)
    }

    /// How many units of level 0 the counted range has.
    pub(super) fn size(&self) -> f64 {
        self.units_between(self.counted.0, self.counted.1)
    }

    /// How many of them the leaf's ancestor at a level below the top stands for.
    pub(super) fn leaves(&self, leaf: &str, level: Level) -> f64 {
        let span = |unit: &DateUnit| unit.span(self.units[0].read(leaf)?);
        let Some((first, last)) = self.units.get(usize::from(level)).and_then(span) else {
            return 0.0;
        };
        let (from, to) = (first.max(self.counted.0), last.min(self.counted.1));
        if from <= to { self.units_between(from, to) } else { 0.0 }
    }

    /// The sizes of the units of a level below the top, over the counted range.
    pub(super) fn blocks(&self, level: Level) -> Vec<(f64, f64)> {
        let mut blocks = Vec::new();
        let mut from = Some(self.counted.0);
        while let (Some(first), Some(unit)) = (from, self.units.get(usize::from(level)))
            && first <= self.counted.1
        {
            let last = unit.span(first).map_or(self.counted.1, |(_, last)| last.min(self.counted.1));
            blocks.push((self.units_between(first, last), 1.0));
            from = last.tomorrow().ok();
        }
        blocks
    }

    fn units_between(&self, first: Date, last: Date) -> f64 {
        self.units[0].number(last) - self.units[0].number(first) + 1.0
    }

    /// The first and the last day of the level's unit around a leaf, cut off at the range.
    pub(super) fn interval_text(&self, leaf: &str, level: Level) -> Option<String> {
        let (first, last) = self.units.get(usize::from(level))?.span(self.units[0].read(leaf)?)?;
        let first = self.min.map_or(first, |min| min.max(first));
        let last = self.max.map_or(last, |max| max.min(last));
        Some(format!("[{},{}]", DateUnit::Day.label(first), DateUnit::Day.label(last)))
    }

    /// The first and the last day that a value can mean.
    fn parse(&self, format: &DateFormat, text: &str) -> Option<(Date, Date)> {
        let unit = self.units[0];
        let date = match format {
            DateFormat::Iso => match unit.read(text) {
                Some(date) => return unit.span(date),
                None => iso(text)?,
            },
            DateFormat::Epoch(length) => epoch(text.parse::<i64>().ok()?.checked_mul(*length)?)?,
            DateFormat::EpochMicros => epoch(text.parse::<i64>().ok()?.div_euclid(1000))?,
            DateFormat::Letters { format, short_year } => {
                let date = parse(format, text, unit)?;
                match self.max {
                    Some(max) if *short_year && date > max => {
                        Date::new(date.year() - 100, date.month(), date.day()).ok()?
                    }
                    _ => date,
                }
            }
        };
        Some((date, date))
    }
}

/// One way in which dates are written.
#[derive(Debug, PartialEq, Eq, Hash)]
enum DateFormat {
    Iso,
    /// A whole number since 1970 in UTC, in steps of this number of milliseconds.
    Epoch(i64),
    Letters {
        format: String,
        /// It has a year of two digits.
        short_year: bool,
    },
    /// A whole number of microseconds since 1970 in UTC.
    EpochMicros,
}

impl DateFormat {
    fn of(format: &str) -> Self {
        match format {
            "iso" => Self::Iso,
            "epoch-days" => Self::Epoch(86_400_000),
            "epoch-seconds" => Self::Epoch(1000),
            "epoch-millis" => Self::Epoch(1),
            "epoch-micros" => Self::EpochMicros,
            _ => Self::Letters { format: format.to_owned(), short_year: has_short_year(format) },
        }
    }
}

/// The day of a number of milliseconds since 1970, in UTC.
fn epoch(millis: i64) -> Option<Date> {
    let instant = jiff::Timestamp::from_millisecond(millis).ok()?;
    Some(instant.to_zoned(TimeZone::UTC).date())
}

/// How many days lie between two dates, both included.
fn days(first: Date, last: Date) -> f64 {
    last.duration_since(first).as_secs_f64() / 86_400.0 + 1.0
}

/// The date of an ISO date or timestamp, as it is written.
fn iso(text: &str) -> Option<Date> {
    static PARSER: DateTimeParser = DateTimeParser::new();
    // The parser refuses to read the date out of a UTC instant; here that is what is asked for.
    let civil = match text.strip_suffix(['Z', 'z']) {
        Some(instant) if instant.len() > 10 => instant,
        _ => text,
    };
    PARSER.parse_datetime(civil).ok().map(|at| at.date())
}

/// Reads by format. What is finer than `unit` may be missing in it.
fn parse(format: &str, text: &str, unit: DateUnit) -> Option<Date> {
    let mut read = BrokenDownTime::parse(format, text).ok()?;
    if read.day().is_none() && unit >= DateUnit::Month && read.day_of_year().is_none() {
        read.set_day(Some(1)).ok()?;
        if read.month().is_none() && unit >= DateUnit::Year {
            read.set_month(Some(1)).ok()?;
        }
    }
    match read.timestamp() {
        Some(instant) => Some(instant.to_zoned(TimeZone::UTC).date()),
        None => read.to_date().ok(),
    }
}

/// A format is good if a date written with it is read back.
fn check_format(format: &str, unit: DateUnit) -> Result<(), &'static str> {
    let sample = Date::constant(2001, 2, 3);
    let zoned = sample.to_zoned(TimeZone::UTC).map_err(|_| "cannot be used")?;
    let written = BrokenDownTime::from(&zoned).to_string(format).map_err(|_| "has an unknown directive")?;
    match parse(format, &written, unit) {
        Some(date) if unit.label(date) == unit.label(sample) => Ok(()),
        _ => Err("does not hold a whole date"),
    }
}

fn has_short_year(format: &str) -> bool {
    let directive = |rest: &str| rest.trim_start_matches(|c: char| !c.is_ascii_alphabetic() && c != '%').chars().next();
    format.replace("%%", "").split('%').skip(1).any(|rest| matches!(directive(rest), Some('y' | 'D')))
}

#[cfg(test)]
mod tests {
    use super::super::Hierarchy;
    use super::*;

    fn all_units() -> Hierarchy {
        let units = DateUnit::ALL.into_iter().filter(|&unit| unit != DateUnit::Week).collect::<Vec<_>>();
        Hierarchy::dates(DateSpec::new(units)).unwrap()
    }

    fn with_format(format: &str, max: Option<Date>) -> Hierarchy {
        let units = vec![DateUnit::Day, DateUnit::Month, DateUnit::Year];
        Hierarchy::dates(DateSpec { max, formats: vec![format.into()], ..DateSpec::new(units) }).unwrap()
    }

    #[test]
    fn labels() {
        let h = all_units();
        let labels: Vec<_> = (0..=h.height()).map(|l| h.label("1985-03-31", l).unwrap().into_owned()).collect();
        assert_eq!(labels, ["1985-03-31", "1985-03", "1985-Q1", "1985", "1980s", "1900-1999", "*"]);
        assert_eq!(h.label("1985-03-31", 7), None);
        assert_eq!(h.label("2000-01-01", 4).as_deref(), Some("2000s"));
        assert_eq!(h.label("2000-12-31", 5).as_deref(), Some("2000-2099"));
        let weeks = Hierarchy::dates(DateSpec::new([DateUnit::Day, DateUnit::Week])).unwrap();
        assert_eq!(weeks.label("2024-12-30", 1).as_deref(), Some("2025-W01"));
    }

    #[test]
    fn iso_dates_and_timestamps_are_read() {
        let h = all_units();
        for text in [
            "1985-03-31",
            "1985-03-31T23:30:00Z",
            "1985-03-31T23:30:00.123456+02:00",
            "1985-03-31T00:30:00-08:00",
            "1985-03-31 12:00:00",
            "1985-03-31t12:00:00z",
        ] {
            assert_eq!(h.canonical(text).as_deref(), Some("1985-03-31"), "{text}");
        }
        for text in [
            "",
            "1985",
            "1985-03",
            "1985-02-30",
            "31/03/1985",
            "1985-03-31Z",
            "1985-03-31Tx",
            "-1985-03-31",
            "today",
            "*",
        ] {
            assert_eq!(h.canonical(text), None, "{text}");
        }
    }

    #[test]
    fn the_first_unit_is_the_leaf_and_can_be_read() {
        for (unit, label) in [
            (DateUnit::Day, "1985-03-31"),
            (DateUnit::Week, "1985-W13"),
            (DateUnit::Month, "1985-03"),
            (DateUnit::Quarter, "1985-Q1"),
            (DateUnit::Year, "1985"),
            (DateUnit::Decade, "1980s"),
            (DateUnit::Century, "1900-1999"),
        ] {
            let h = Hierarchy::dates(DateSpec::new([unit])).unwrap();
            assert_eq!(h.canonical("1985-03-31").as_deref(), Some(label));
            assert_eq!(h.canonical(label).as_deref(), Some(label));
            assert_eq!(h.label(label, 1).as_deref(), Some("*"));
        }
    }

    #[test]
    fn a_range_keeps_others_out() {
        let spec = DateSpec {
            min: Some(Date::constant(1950, 6, 15)),
            max: Some(Date::constant(2020, 12, 31)),
            ..DateSpec::new([DateUnit::Month, DateUnit::Year])
        };
        let h = Hierarchy::dates(spec).unwrap();
        assert_eq!(h.canonical("1950-06-14"), None);
        assert_eq!(h.canonical("1950-06-15").as_deref(), Some("1950-06"));
        assert_eq!(h.canonical("1950-06").as_deref(), Some("1950-06"));
        assert_eq!(h.canonical("1950-05"), None);
        assert_eq!(h.canonical("2021-01-01"), None);
    }

    #[test]
    fn other_formats() {
        let h = with_format("%d/%m/%Y", None);
        assert_eq!(h.canonical("24/09/1956").as_deref(), Some("1956-09-24"));
        assert_eq!(h.canonical("1956-09-24"), None);
        let swapped = with_format("%Y-%d-%m", None);
        assert_eq!(swapped.canonical("1956-03-04").as_deref(), Some("1956-04-03"));
        let short = with_format("%d/%m/%y", Some(Date::constant(2026, 1, 1)));
        assert_eq!(short.canonical("24/09/56").as_deref(), Some("1956-09-24"));
        assert_eq!(short.canonical("24/09/05").as_deref(), Some("2005-09-24"));
        assert_eq!(with_format("%s", None).canonical("86400").as_deref(), Some("1970-01-02"));
        let months = DateSpec { formats: vec!["%m/%Y".into()], ..DateSpec::new([DateUnit::Month]) };
        assert_eq!(Hierarchy::dates(months).unwrap().canonical("09/1956").as_deref(), Some("1956-09"));
    }

    #[test]
    fn one_field_can_hold_several_formats() {
        let formats = ["%d.%m.%Y", "iso", "epoch-millis"].map(String::from).to_vec();
        let h = Hierarchy::dates(DateSpec { formats, ..DateSpec::new([DateUnit::Day, DateUnit::Year]) }).unwrap();
        for text in ["24.09.1956", "1956-09-24", "1956-09-24T11:00:00Z", "-418700000000"] {
            assert_eq!(h.canonical(text).as_deref(), Some("1956-09-24"), "{text}");
        }
        assert_eq!(h.canonical("24/09/1956"), None);
        for (format, text) in
            [("epoch-days", "-4847"), ("epoch-seconds", "-418700000"), ("epoch-micros", "-418700000000001")]
        {
            assert_eq!(with_format(format, None).canonical(text).as_deref(), Some("1956-09-24"), "{format}");
        }
        for text in ["1.5", "", "9223372036854775807", "1956-09-24"] {
            assert_eq!(with_format("epoch-days", None).canonical(text), None, "{text}");
        }
        let year = DateSpec { formats: vec!["epoch-days".into()], ..DateSpec::new([DateUnit::Year]) };
        assert_eq!(Hierarchy::dates(year).unwrap().canonical("7300").as_deref(), Some("1989"), "a number is no year");
    }

    #[test]
    fn units_have_to_nest() {
        use DateUnit::{Day, Month, Week, Year};
        for units in [vec![], vec![Month, Day], vec![Day, Day], vec![Day, Week, Year], vec![Week, Month]] {
            assert!(Hierarchy::dates(DateSpec::new(units.clone())).is_err(), "{units:?}");
        }
        for format in ["%Q%", "%H:%M", "%m/%Y"] {
            let spec = DateSpec { formats: vec!["iso".into(), format.into()], ..DateSpec::new([Day]) };
            assert!(Hierarchy::dates(spec).is_err(), "{format}");
        }
        let (min, max) = (Some(Date::constant(2000, 1, 1)), Some(Date::constant(1999, 1, 1)));
        assert!(Hierarchy::dates(DateSpec { min, max, ..DateSpec::new([Day]) }).is_err());
    }

    #[test]
    fn losses_count_days() {
        let h = all_units();
        let all = 73_049.0;
        assert_eq!(h.open_loss("1985-03-31", 0), 0.0);
        assert_eq!(h.open_loss("1985-03-31", 1), 30.0 / (all - 1.0));
        assert_eq!(h.open_loss("1985-03-31", 3), 364.0 / (all - 1.0));
        assert_eq!(h.open_loss("1985-03-31", 6), 1.0);
        assert_eq!(h.open_loss("1850-03-31", 1), 30.0 / (all - 1.0));
    }
}
