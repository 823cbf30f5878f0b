//! What one field holds: kinds of values, gaps, lengths, notations, and the values of a small domain.
//!
//! Notations (dates, addresses, codes) are looked for in the first [`LOOKED_AT`] values; the rest only needs counting.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::Range;
use std::sync::LazyLock;

use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;

use super::distinct::DistinctCounter;
use super::names;
use super::sample::hash;
use crate::model::hierarchy::{DateSpec, DateUnit, GeohashSpec, Hierarchy};
use crate::model::record::{Value, canonical_number};

/// Larger: slower. Smaller: a notation that begins late is missed.
const LOOKED_AT: u64 = 10_000;
/// The values of a field that are remembered as text. Larger: more memory. Smaller: fewer fields get groups by frequency.
const LISTED: usize = 200;
/// Numbers kept for bounds of intervals. Larger: more memory. Smaller: worse bounds.
const NUMBERS: usize = 8192;
/// A notation counts if this share of the values has it.
const NEARLY_ALL: f64 = 0.98;

/// Notations of dates that are recognised; the first is ISO 8601 and needs no `format`.
pub(crate) const DATE_FORMATS: [Option<&str>; 17] = [
    None,
    Some("%d.%m.%Y"),
    Some("%d/%m/%Y"),
    Some("%m/%d/%Y"),
    Some("%Y/%m/%d"),
    Some("%d.%m.%Y %H:%M"),
    Some("%d.%m.%Y %H:%M:%S"),
    Some("%d/%m/%Y %H:%M"),
    Some("%d/%m/%Y %H:%M:%S"),
    Some("%m/%d/%Y %H:%M"),
    Some("%m/%d/%Y %H:%M:%S"),
    Some("%Y/%m/%d %H:%M"),
    Some("%Y/%m/%d %H:%M:%S"),
    Some(MILLIS),
    Some("epoch-days"),
    Some("epoch-seconds"),
    Some("epoch-micros"),
];
/// Milliseconds since 1970, as programs write a time.
const MILLIS: &str = "epoch-millis";
/// The seconds of the years 2000 to 2100. Of other numbers nobody knows whether they are times.
const SECONDS_OF_TODAY: Range<f64> = 946_684_800.0..4_102_444_800.0;
/// The days of the years 1880 to 2100.
const DAYS_OF_PEOPLE: Range<f64> = -32_872.0..47_482.0;
/// Numbers that are rather years than days since 1970.
const YEARS: Range<f64> = 1850.0..2101.0;
/// Days since 1970 of people or of events of years lie further apart than this; counts and days of a month do not.
const DAYS_APART: f64 = 1000.0;

static DATES: LazyLock<Vec<Hierarchy>> = LazyLock::new(|| {
    let spec = |format: &Option<&str>| DateSpec {
        formats: format.iter().map(|format| (*format).to_owned()).collect(),
        ..DateSpec::new([DateUnit::Day])
    };
    DATE_FORMATS.iter().filter_map(|format| Hierarchy::dates(spec(format)).ok()).collect()
});

static PLACES: LazyLock<Option<Hierarchy>> = LazyLock::new(|| Hierarchy::geohash(GeohashSpec::default()).ok());

/// Notations of dates, one or several of [`DATE_FORMATS`] by their places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Notations(u32);

/// The most notations of one field. More: text that is no date passes for one. Fewer: fields of several sources are hidden altogether.
const MOST_NOTATIONS: usize = 3;
/// A further notation has at least this share of the values. Larger: the dates of a small source are lost. Smaller: mistakes count as
/// a notation.
const FURTHER: f64 = 0.01;

impl Notations {
    /// As `formats` of a hierarchy names them.
    pub(crate) fn formats(self) -> impl Iterator<Item = &'static str> {
        let named = move |(at, format): (usize, Option<&'static str>)| self.has(at).then_some(format.unwrap_or("iso"));
        DATE_FORMATS.into_iter().enumerate().filter_map(named)
    }

    /// True if nothing has to be said of them: ISO 8601 alone.
    pub(crate) fn are_usual(self) -> bool {
        self == Self(1)
    }

    fn has(self, at: usize) -> bool {
        self.0 & (1 << at) != 0
    }
}

/// What most values of a field are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FieldKind {
    /// No record has a value.
    Empty,
    /// true and false.
    Boolean,
    /// Whole numbers.
    Integer,
    /// Numbers.
    Number {
        /// True if a comma stands before the fraction, and perhaps points between thousands.
        comma: bool,
    },
    /// Dates or timestamps.
    Date(Notations),
    /// Addresses of the internet.
    Ip,
    /// Addresses of electronic mail.
    Email,
    /// UUIDs.
    Uuid,
    /// Telephone numbers in international notation.
    Phone,
    /// Places: geohashes, or latitude and longitude in degrees.
    Place,
    /// Codes of letters and digits.
    Code {
        /// Their length in characters; of several lengths the largest.
        length: u32,
        /// The least length, if they have several. Then blanks and hyphens do not count.
        min_length: Option<u32>,
        /// True if they have digits only.
        digits: bool,
    },
    /// Sentences.
    FreeText,
    /// Other text.
    Text,
    /// Objects or lists.
    Nested,
}

impl FieldKind {
    /// The name in tables and JSON.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Empty => "empty",
            Self::Boolean => "boolean",
            Self::Integer => "integer",
            Self::Number { .. } => "number",
            Self::Date(_) => "date",
            Self::Ip => "ip address",
            Self::Email => "email",
            Self::Uuid => "uuid",
            Self::Phone => "phone",
            Self::Place => "place",
            Self::Code { .. } => "code",
            Self::FreeText => "free text",
            Self::Text => "text",
            Self::Nested => "object or list",
        }
    }
}

impl FieldKind {
    /// True of whole and other numbers.
    pub(crate) fn is_number(self) -> bool {
        matches!(self, Self::Integer | Self::Number { .. })
    }
}

/// The values of one field, counted.
#[derive(Default)]
pub(crate) struct FieldValues {
    /// Records without a value: absent, null or blank.
    pub(crate) missing: u64,
    /// Records with a value.
    pub(crate) present: u64,
    nested: u64,
    looked_at: u64,
    booleans: u64,
    integers: u64,
    numbers: u64,
    zero_led: u64,
    comma_numbers: u64,
    /// Those that no program writes in another sense.
    sure_commas: u64,
    /// Years and months in ISO 8601.
    partial_dates: u64,
    /// How many values have which notations of dates.
    dates: BTreeMap<u32, u64>,
    ips: u64,
    emails: u64,
    uuids: u64,
    phones: u64,
    sentences: u64,
    places: u64,
    codes: u64,
    spaced_codes: u64,
    spaced_lengths: Option<(usize, usize)>,
    digit_codes: u64,
    with_digit: u64,
    lengths: HashMap<usize, u64, FxBuildHasher>,
    distinct: DistinctCounter,
    /// Values with their number of records; `None` once there are too many.
    listed: Option<HashMap<String, u64, FxBuildHasher>>,
    sampled: Vec<f64>,
}

impl FieldValues {
    /// A field without records.
    pub(crate) fn new() -> Self {
        Self { listed: Some(HashMap::default()), ..Self::default() }
    }

    /// Counts the value of one record; returns the hash by which it is compared.
    pub(crate) fn add(&mut self, value: &Value<'_>) -> u64 {
        let text = match value {
            Value::Nested(text) => {
                self.nested += 1;
                self.present += 1;
                let hash = hash(text);
                self.distinct.add(hash);
                return hash;
            }
            other => other.canonical().unwrap_or_default(),
        };
        let hash = hash(&text);
        self.distinct.add(hash);
        if text.is_empty() {
            self.missing += 1;
            return hash;
        }
        self.present += 1;
        if self.looked_at < LOOKED_AT {
            self.looked_at += 1;
            self.look(&text, matches!(value, Value::Bool(_)));
        }
        self.sample_number(&text);
        if let Some(listed) = &mut self.listed {
            let full = listed.len() >= LISTED;
            match listed.get_mut(&*text) {
                Some(records) => *records += 1,
                None if full => self.listed = None,
                None => drop(listed.insert(text.into_owned(), 1)),
            }
        }
        hash
    }

    fn look(&mut self, text: &str, boolean: bool) {
        let lower = text.to_ascii_lowercase();
        self.booleans += u64::from(boolean || matches!(&*lower, "true" | "false"));
        if let Some(number) = canonical_number(text) {
            self.numbers += 1;
            self.integers += u64::from(!number.contains('.'));
            self.zero_led += u64::from(text.len() > 1 && text.starts_with('0') && !text.starts_with("0."));
        }
        if let Some(sure) = comma_number(text) {
            self.comma_numbers += 1;
            self.sure_commas += u64::from(sure);
        }
        self.partial_dates += u64::from(is_partial_date(text));
        let number = text.parse::<i64>();
        let mut notations = 0;
        for (at, (dates, format)) in DATES.iter().zip(DATE_FORMATS).enumerate() {
            // A bare number is rarely a date, though some years read as one.
            let likely = match &number {
                Ok(number) => format == Some(MILLIS) && SECONDS_OF_TODAY.contains(&(*number as f64 / 1e3)),
                Err(_) => true,
            };
            notations |= u32::from(likely && dates.canonical(text).is_some()) << at;
        }
        *self.dates.entry(notations).or_default() += 1;
        self.ips += u64::from(text.parse::<IpAddr>().is_ok());
        self.emails += u64::from(is_email(text));
        self.uuids += u64::from(is_uuid(text));
        self.phones += u64::from(is_phone(text));
        self.sentences += u64::from(text.split_whitespace().count() >= 5);
        let digits = text.bytes().all(|b| b.is_ascii_digit());
        let pair = text.contains(|c: char| c == ',' || c == ';' || c.is_whitespace());
        self.places += u64::from(pair && PLACES.as_ref().is_some_and(|places| places.canonical(text).is_some()));
        if let Some(length) = spaced_code(text) {
            self.spaced_codes += 1;
            let (least, most) = self.spaced_lengths.unwrap_or((length, length));
            self.spaced_lengths = Some((least.min(length), most.max(length)));
        }
        self.codes += u64::from(text.bytes().all(|b| b.is_ascii_alphanumeric()));
        self.digit_codes += u64::from(digits);
        self.with_digit += u64::from(text.bytes().any(|b| b.is_ascii_digit()));
        *self.lengths.entry(text.chars().count()).or_default() += 1;
    }

    /// Keeps every number at first, then every other one, and so on: a spread over the whole input.
    fn sample_number(&mut self, text: &str) {
        let step = (self.present / NUMBERS as u64 + 1).next_power_of_two();
        if !self.present.is_multiple_of(step) {
            return;
        }
        let with_comma = || comma_number(text).and_then(|_| text.replace('.', "").replace(',', ".").parse().ok());
        if let Some(number) = text.parse::<f64>().ok().or_else(with_comma).filter(|number| number.is_finite()) {
            self.sampled.push(number);
            if self.sampled.len() >= 2 * NUMBERS {
                let mut odd = false;
                self.sampled.retain(|_| {
                    odd = !odd;
                    odd
                });
            }
        }
    }

    /// What most of the values are.
    pub(crate) fn kind(&self) -> FieldKind {
        let nearly_all = |count: u64| count as f64 >= NEARLY_ALL * self.looked_at as f64;
        if self.present == 0 {
            return FieldKind::Empty;
        }
        if self.nested * 2 > self.present {
            return FieldKind::Nested;
        }
        if let Some(notations) = self.notations() {
            return FieldKind::Date(notations);
        }
        if nearly_all(self.comma_numbers) && self.sure_commas * 100 >= self.looked_at {
            return FieldKind::Number { comma: true };
        }
        let named = [
            (self.ips, FieldKind::Ip),
            (self.places, FieldKind::Place),
            (self.emails, FieldKind::Email),
            (self.uuids, FieldKind::Uuid),
            (self.phones, FieldKind::Phone),
            (self.booleans, FieldKind::Boolean),
        ];
        if let Some((_, kind)) = named.into_iter().find(|(count, _)| nearly_all(*count)) {
            return kind;
        }
        // Numbers do not begin with a zero; codes do.
        if nearly_all(self.numbers) && self.zero_led * 100 < self.looked_at {
            return if nearly_all(self.integers) { FieldKind::Integer } else { FieldKind::Number { comma: false } };
        }
        match self.code_length() {
            Some(length) if nearly_all(self.codes) && self.with_digit * 2 > self.looked_at => {
                FieldKind::Code { length, min_length: None, digits: nearly_all(self.digit_codes) }
            }
            _ if nearly_all(self.spaced_codes) && self.with_digit * 2 > self.looked_at => {
                let (least, length) = self.spaced_lengths.map_or((2, 2), |(least, most)| (least as u32, most as u32));
                FieldKind::Code { length, min_length: Some(least), digits: nearly_all(self.digit_codes) }
            }
            _ if self.sentences * 2 > self.looked_at => FieldKind::FreeText,
            _ => FieldKind::Text,
        }
    }

    /// The fewest notations in which nearly all values are dates, if no value reads in two of them: of day and month the notation that
    /// reads the most, on a tie the first.
    fn notations(&self) -> Option<Notations> {
        // Some dates may lack their day, as in medical records: a hierarchy hides these.
        let whole = self.looked_at - self.partial_dates;
        if self.partial_dates > whole {
            return None;
        }
        let (mut chosen, mut left) = (Notations(0), whole as f64);
        for _ in 0..MOST_NOTATIONS {
            let unread = || self.dates.iter().filter(|(own, _)| **own & chosen.0 == 0);
            let reads = |at: usize| unread().filter(|(own, _)| Notations(**own).has(at)).map(|(_, n)| n).sum::<u64>();
            let (at, more) = (0..DATE_FORMATS.len()).rev().map(|at| (at, reads(at))).max_by_key(|(_, reads)| *reads)?;
            if more == 0 || (more as f64) < FURTHER * self.looked_at as f64 {
                return None;
            }
            chosen.0 |= 1 << at;
            left -= more as f64;
            if left <= (1.0 - NEARLY_ALL) * self.looked_at as f64 {
                let ambiguous = self.dates.keys().any(|own| (own & chosen.0).count_ones() > 1);
                return (!ambiguous).then_some(chosen);
            }
        }
        None
    }

    /// The notation of times as whole numbers, if the name says that they are times and their size in which unit.
    pub(crate) fn since_1970(&self, name: &str) -> Option<Notations> {
        let leaf = names::parts(name).into_iter().next()?;
        let (low, high) = self.bounds()?;
        let within = |range: &Range<f64>, unit: f64| range.contains(&(low / unit)) && range.contains(&(high / unit));
        let far_apart = high - low > DAYS_APART && !within(&YEARS, 1.0);
        let format = match () {
            () if names::find(&leaf, names::TIMES).is_none() => return None,
            () if within(&SECONDS_OF_TODAY, 1.0) => "epoch-seconds",
            () if within(&SECONDS_OF_TODAY, 1e6) => "epoch-micros",
            () if names::find(&leaf, names::DAYS).is_some() && within(&DAYS_OF_PEOPLE, 1.0) && far_apart => {
                "epoch-days"
            }
            () => return None,
        };
        DATE_FORMATS.iter().position(|known| *known == Some(format)).map(|at| Notations(1 << at))
    }

    /// The length in characters of nearly all values, if there is one.
    pub(crate) fn code_length(&self) -> Option<u32> {
        let (length, count) = self.lengths.iter().max_by_key(|(_, count)| **count)?;
        let all = *count as f64 >= NEARLY_ALL * self.looked_at as f64;
        (all && (2..=12).contains(length)).then_some(*length as u32)
    }

    /// The number of distinct values, a missing one included, and whether it is exact.
    pub(crate) fn distinct(&self) -> (u64, bool) {
        self.distinct.count()
    }

    /// Values with their number of records, the most frequent first; `None` if there are too many to list.
    pub(crate) fn listed(&self) -> Option<Vec<(&str, u64)>> {
        let mut listed: Vec<_> = self.listed.as_ref()?.iter().map(|(value, count)| (value.as_str(), *count)).collect();
        listed.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
        Some(listed)
    }

    /// Two numbers between which nearly all values lie; at least five values of the sample lie at or beyond each.
    pub(crate) fn bounds(&self) -> Option<(f64, f64)> {
        let mut numbers = self.sampled.clone();
        numbers.sort_by(f64::total_cmp);
        let out = (numbers.len() / 100).max(5).min(numbers.len().saturating_sub(1) / 2);
        Some((*numbers.get(out)?, *numbers.get(numbers.len() - 1 - out)?))
    }
}

/// The length of a code of capital letters and digits, without blanks and hyphens.
fn spaced_code(text: &str) -> Option<usize> {
    let length = text.bytes().filter(|b| b.is_ascii_uppercase() || b.is_ascii_digit()).count();
    let gaps = text.bytes().filter(|b| matches!(b, b' ' | b'-')).count();
    ((2..=12).contains(&length) && gaps <= 1 && length + gaps == text.len()).then_some(length)
}

/// Whether a text is a number with a comma before its fraction and points, if any, between thousands; true if it can be nothing else.
fn comma_number(text: &str) -> Option<bool> {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let (whole, fraction) = match text.strip_prefix('-').unwrap_or(text).split_once(',') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (text.strip_prefix('-').unwrap_or(text), None),
    };
    let mut groups = whole.split('.');
    let first = groups.next().unwrap_or_default();
    let rest: Vec<&str> = groups.collect();
    let grouped = digits(first) && rest.iter().all(|group| group.len() == 3 && digits(group));
    if !grouped || (!rest.is_empty() && first.len() > 3) || fraction.is_some_and(|fraction| !digits(fraction)) {
        return None;
    }
    // Elsewhere 1,234 has a comma between thousands.
    Some(fraction.is_some_and(|fraction| fraction.len() != 3 || !rest.is_empty() || whole.len() > 3))
}

/// A year of our time, or a month of it.
fn is_partial_date(text: &str) -> bool {
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    let (year, month) = text.split_once('-').unwrap_or((text, "01"));
    year.len() == 4 && digits(year) && ("1850".."2101").contains(&year) && month.len() == 2 && digits(month)
}

fn is_email(text: &str) -> bool {
    text.split_once('@').is_some_and(|(local, host)| !local.is_empty() && host.contains('.') && !text.contains(' '))
}

fn is_uuid(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let hex = |part: &&str| part.bytes().all(|b| b.is_ascii_hexdigit());
    matches!(parts[..], [a, b, c, d, e] if [a.len(), b.len(), c.len(), d.len(), e.len()] == [8, 4, 4, 4, 12])
        && parts.iter().all(hex)
}

fn is_phone(text: &str) -> bool {
    let digits = text.bytes().filter(u8::is_ascii_digit).count();
    text.starts_with('+')
        && (8..=16).contains(&digits)
        && text[1..].bytes().all(|b| b.is_ascii_digit() || b" -()/".contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(values: &[&str]) -> FieldValues {
        let mut column = FieldValues::new();
        for value in values {
            column.add(&Value::Text((*value).into()));
        }
        column
    }

    fn date(formats: &[&str]) -> FieldKind {
        let at = |name: &&str| DATE_FORMATS.iter().position(|format| format.unwrap_or("iso") == *name).unwrap();
        FieldKind::Date(Notations(formats.iter().map(|name| 1 << at(name)).sum()))
    }

    #[test]
    fn kinds_follow_from_the_values() {
        for (values, kind) in [
            (&["", " "][..], FieldKind::Empty),
            (&["12", "7", ""], FieldKind::Integer),
            (&["12", "7.5"], FieldKind::Number { comma: false }),
            (&["52,5200", "13,4", "7"], FieldKind::Number { comma: true }),
            (&["1.234,50", "1.234", "-0,5"], FieldKind::Number { comma: true }),
            (&["1,234", "1,234,567"], FieldKind::Text),
            (&["1985-03-31", "1985-04-01", "1985", "1985-03"], date(&["iso"])),
            (&["1985", "1990", "1985-03-31"], FieldKind::Text),
            (&["01067", "10115"], FieldKind::Code { length: 5, min_length: None, digits: true }),
            (&["SW1A", "EC1A"], FieldKind::Code { length: 4, min_length: None, digits: false }),
            (&["AB2 5AB", "EH12 1AA"], FieldKind::Code { length: 7, min_length: Some(6), digits: false }),
            (&["11.07.2024 06:42", "01.02.2024 23:59"], date(&["%d.%m.%Y %H:%M"])),
            (&["1700000000620", "1700000001406"], date(&["epoch-millis"])),
            (&["4917012345678", "17"], FieldKind::Integer),
            (&["52.52,13.405", "48.1, 11.6"], FieldKind::Place),
            (&["1985-03-31", "2024-01-01T10:00:00Z"], date(&["iso"])),
            (&["31/12/1985", "01/02/1990"], date(&["%d/%m/%Y"])),
            (&["12/31/1985", "01/02/1990"], date(&["%m/%d/%Y"])),
            (&["1985-03-31", "31.03.1985", "01.02.1990"], date(&["iso", "%d.%m.%Y"])),
            (&["31/12/1985", "12/31/1985", "01/02/1990"], FieldKind::Text),
            (&["1985-03-31", "born in spring"], FieldKind::Text),
            (&["10.0.0.1", "2001:db8::1"], FieldKind::Ip),
            (&["a@b.example"], FieldKind::Email),
            (&["+49 170 1234567"], FieldKind::Phone),
            (&["true", "FALSE"], FieldKind::Boolean),
            (&["the patient feels well today"], FieldKind::FreeText),
            (&["Berlin", "Rome"], FieldKind::Text),
        ] {
            assert_eq!(column(values).kind(), kind, "{values:?}");
        }
        let gaps = column(&["12", "7", ""]);
        assert_eq!((gaps.missing, gaps.present, gaps.distinct()), (1, 2, (3, true)));
    }

    #[test]
    fn numbers_are_times_if_name_and_size_say_so() {
        let numbers = |from: i64, step: i64| {
            let texts: Vec<String> = (0..100).map(|i| (from + i * step).to_string()).collect();
            column(&texts.iter().map(String::as_str).collect::<Vec<_>>())
        };
        let days = numbers(-9000, 200);
        for (name, values, format) in [
            ("born", &days, Some("epoch-days")),
            ("patient.birthDate", &days, Some("epoch-days")),
            ("balance", &days, None),
            ("response_time", &numbers(0, 50), None),
            ("born", &numbers(1920, 1), None),
            ("birth_day", &numbers(1, 0), None),
            ("event.time", &numbers(1_700_000_000, 60), Some("epoch-seconds")),
            ("number", &numbers(1_700_000_000, 60), None),
            ("created_at", &numbers(1_700_000_000_000_000, 60), Some("epoch-micros")),
        ] {
            let found: Option<Vec<&str>> = values.since_1970(name).map(|notations| notations.formats().collect());
            assert_eq!(found, format.map(|format| vec![format]), "{name}");
        }
    }

    #[test]
    fn bounds_leave_the_extremes_out() {
        let numbers: Vec<String> = (0..1000).map(|i| i.to_string()).collect();
        let column = column(&numbers.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(column.bounds(), Some((10.0, 989.0)));
        assert!(column.listed().is_none(), "too many to list");
    }
}
