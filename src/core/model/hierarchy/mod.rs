//! Generalization hierarchies: what a value becomes at each level.
//!
//! A [`Hierarchy`] is an immutable definition: it says which values are inside ([`Hierarchy::canonical`]) and what each is
//! called at a level ([`Hierarchy::label`]). Level 0 is the value itself, the last level is one value for everything, and every
//! level refines the next, but for hierarchies with [`Alternatives`]. Dictionary codes, level tables and losses as the search uses them are in [`super::domain`].
//! Deliberately absent: reading files, and anything that depends on the data seen so far.

mod any_of;
mod closed;
mod csv;
mod date;
mod geohash;
mod intervals;
mod ip;
mod prefix;
pub(crate) mod table;
mod tree;
mod words;

use std::borrow::Cow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::OnceLock;

pub use jiff::civil::Date;
pub use rust_decimal::Decimal;
use thiserror::Error;

use super::lattice::Level;
pub use any_of::Alternatives;
use closed::Closed;
pub use date::{DateSpec, DateUnit};
pub use geohash::GeohashSpec;
pub use intervals::{IntervalSpec, Open};
pub use ip::IpSpec;
pub use prefix::PrefixSpec;
pub use tree::TreeNode;

/// The top of every hierarchy that does not name its own.
const TOP: &str = "*";

/// How one attribute's values generalize. `Hash` covers the whole definition, for a fingerprint.
pub struct Hierarchy(Kind, OnceLock<Vec<f64>>);

enum Kind {
    Closed(Closed),
    Intervals(intervals::Intervals),
    Prefix(prefix::Prefix),
    Dates(date::Dates),
    Networks(ip::Networks),
    Places(geohash::Geohash),
    Trivial,
    AnyOf(Alternatives),
}

/// The arithmetic that the leaves of a hierarchy allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Measure {
    /// They are numbers.
    Number,
    /// They are dates.
    Date,
    /// They are codes of one length, with an order.
    Code,
    /// They are names.
    Category,
}

impl Hierarchy {
    /// Reads a hierarchy in the format of ARX: one line per leaf, `value;level1;...;top`, separated by `;`, tab
    /// or `,`. An empty first cell is the leaf of the empty value. There is no header.
    ///
    /// # Errors
    /// Everything that is wrong with the file, in the order of its lines.
    pub fn parse_csv(bytes: &[u8]) -> Result<Self, Vec<HierarchyError>> {
        csv::parse(bytes).map(|closed| Self::of(Kind::Closed(closed)))
    }

    /// Numbers by intervals of growing width.
    ///
    /// # Errors
    /// Everything that is wrong with the widths and the range.
    pub fn intervals(spec: IntervalSpec) -> Result<Self, Vec<HierarchyError>> {
        intervals::Intervals::new(&spec).map(|intervals| Self::of(Kind::Intervals(intervals)))
    }

    /// Codes of a fixed length, or of several lengths, masked from the right.
    ///
    /// # Errors
    /// If the length or the alphabet is out of bounds.
    pub fn prefix(spec: PrefixSpec) -> Result<Self, Vec<HierarchyError>> {
        prefix::Prefix::new(&spec).map(|prefix| Self::of(Kind::Prefix(prefix)))
    }

    /// Dates by calendar units.
    ///
    /// # Errors
    /// If the units do not nest, the range is empty or the format cannot be read.
    pub fn dates(spec: DateSpec) -> Result<Self, Vec<HierarchyError>> {
        date::Dates::new(spec).map(|dates| Self::of(Kind::Dates(dates)))
    }

    /// IP addresses by networks.
    ///
    /// # Errors
    /// If the prefix lengths do not nest.
    pub fn ip(spec: IpSpec) -> Result<Self, Vec<HierarchyError>> {
        ip::Networks::new(spec).map(|networks| Self::of(Kind::Networks(networks)))
    }

    /// Places by geohash.
    ///
    /// # Errors
    /// If the lengths do not nest.
    pub fn geohash(spec: GeohashSpec) -> Result<Self, Vec<HierarchyError>> {
        geohash::Geohash::new(spec).map(|places| Self::of(Kind::Places(places)))
    }

    /// A categorical tree.
    ///
    /// # Errors
    /// If it is empty or too deep, or a value is in it twice.
    pub fn tree(roots: &[TreeNode]) -> Result<Self, Vec<HierarchyError>> {
        tree::build(roots).map(|closed| Self::of(Kind::Closed(closed)))
    }

    /// Several hierarchies of the same values, whose levels are partially ordered.
    ///
    /// # Errors
    /// If they do not read the same values.
    pub fn any_of(chains: Vec<Self>) -> Result<Self, Vec<HierarchyError>> {
        Alternatives::new(chains).map(|alternatives| Self::of(Kind::AnyOf(alternatives)))
    }

    fn of(kind: Kind) -> Self {
        Self(kind, OnceLock::new())
    }

    /// Any value as it is, or not at all: level 1 is `*`. The value `*` is the top already.
    pub fn trivial() -> Self {
        Self::of(Kind::Trivial)
    }

    /// The last level, at which all values are one; at least 1.
    pub fn height(&self) -> Level {
        match &self.0 {
            Kind::Closed(closed) => (closed.levels.len() - 1) as Level,
            Kind::Intervals(intervals) => intervals.height(),
            Kind::Prefix(prefix) => prefix.height(),
            Kind::Dates(dates) => dates.height(),
            Kind::Networks(networks) => networks.height(),
            Kind::Places(places) => places.height(),
            Kind::Trivial => 1,
            Kind::AnyOf(any) => any.height(),
        }
    }

    /// The alternatives, where it has some.
    pub fn alternatives(&self) -> Option<&Alternatives> {
        match &self.0 {
            Kind::AnyOf(any) => Some(any),
            _ => None,
        }
    }

    /// True if values that are alike at one level are alike at the other.
    pub fn refines(&self, fine: Level, coarse: Level) -> bool {
        self.alternatives().map_or(fine <= coarse, |any| any.refines(fine, coarse))
    }

    /// The leaf that a value is, given as canonical text (`Value::canonical`); `None` if it is outside the hierarchy.
    ///
    /// Intervals read any spelling of a number: `007`, `7` and `7.0` are one leaf. Listed leaves (CSV, tree) match exactly,
    /// and besides only across trailing fraction zeros and the sign of zero: `7.0` is the leaf `7` and `7` the leaf `7.0`, if
    /// there is no closer one; but `007` is not, for it may be a code.
    pub fn canonical<'a>(&self, text: &'a str) -> Option<Cow<'a, str>> {
        match &self.0 {
            Kind::Closed(closed) => closed.canonical(text),
            Kind::Intervals(intervals) => intervals.canonical(text),
            Kind::Prefix(prefix) => prefix.canonical(text),
            Kind::Dates(dates) => dates.canonical(text),
            Kind::Networks(networks) => networks.canonical(text),
            Kind::Places(places) => places.canonical(text),
            Kind::Trivial => Some(Cow::Borrowed(text)),
            Kind::AnyOf(any) => any.chains()[0].canonical(text),
        }
    }

    /// The label of a leaf, as [`Self::canonical`] returns it, at a level; `None` if there is no such leaf or level.
    pub fn label<'a>(&'a self, leaf: &'a str, level: Level) -> Option<Cow<'a, str>> {
        match &self.0 {
            Kind::Closed(closed) => closed.label(leaf, level).map(Cow::Borrowed),
            Kind::Intervals(intervals) => intervals.label(leaf, level),
            Kind::Prefix(prefix) => prefix.label(leaf, level),
            Kind::Dates(dates) => dates.label(leaf, level),
            Kind::Networks(networks) => networks.label(leaf, level),
            Kind::Places(places) => places.label(leaf, level),
            Kind::Trivial => match level {
                0 => Some(Cow::Borrowed(leaf)),
                1 => Some(Cow::Borrowed(TOP)),
                _ => None,
            },
            Kind::AnyOf(any) => any.at(level).and_then(|(chain, level)| chain.label(leaf, level)),
        }
    }

    /// The one value of the last level.
    pub fn top_label(&self) -> &str {
        match &self.0 {
            Kind::Closed(closed) => closed.levels.last().map_or(TOP, |top| top.label(0)),
            Kind::Prefix(prefix) => &prefix.top,
            Kind::Intervals(_) | Kind::Dates(_) | Kind::Networks(_) | Kind::Places(_) | Kind::Trivial => TOP,
            Kind::AnyOf(any) => any.chains()[0].top_label(),
        }
    }

    /// The leaves in the order they are written, where the hierarchy lists them (CSV, tree).
    pub fn leaves(&self) -> Option<impl Iterator<Item = &str>> {
        self.closed().map(|closed| closed.levels[0].labels())
    }

    /// The kind of its leaves. Leaves that are listed are numbers if every one of them is.
    pub fn measure(&self) -> Measure {
        match &self.0 {
            Kind::Closed(closed) if closed.is_numeric() => Measure::Number,
            Kind::Intervals(_) => Measure::Number,
            Kind::Dates(_) => Measure::Date,
            Kind::Prefix(_) => Measure::Code,
            Kind::Closed(_) | Kind::Networks(_) | Kind::Places(_) | Kind::Trivial => Measure::Category,
            Kind::AnyOf(any) => any.chains()[0].measure(),
        }
    }

    /// The interval of numbers or dates that a leaf's ancestor at `level` allows, within the range of the hierarchy; for
    /// hierarchies that do not list their leaves. `None` at level 0, at the top and where there is no order.
    pub fn interval(&self, leaf: &str, level: Level) -> Option<String> {
        match &self.0 {
            _ if level == 0 || level >= self.height() => None,
            Kind::Intervals(intervals) => intervals.interval_text(leaf, level),
            Kind::Dates(dates) => dates.interval_text(leaf, level),
            Kind::AnyOf(any) => any.at(level).and_then(|(chain, level)| chain.interval(leaf, level)),
            Kind::Closed(_) | Kind::Prefix(_) | Kind::Networks(_) | Kind::Places(_) | Kind::Trivial => None,
        }
    }

    /// The ends of the half-open interval of numbers that the label of a leaf's ancestor at `level` names; for intervals only.
    /// `None` at level 0, at the top and beyond an open end.
    pub fn ends(&self, leaf: &str, level: Level) -> Option<(Decimal, Decimal)> {
        match &self.0 {
            Kind::Intervals(intervals) if level > 0 && level < self.height() => intervals.ends(leaf, level),
            Kind::AnyOf(any) => any.at(level).and_then(|(chain, level)| chain.ends(leaf, level)),
            _ => None,
        }
    }

    /// The share of information lost in a cell published as the leaf's ancestor at `level`; for hierarchies that do not list
    /// their leaves.
    pub(super) fn open_loss(&self, leaf: &str, level: Level) -> f64 {
        match &self.0 {
            _ if level == 0 => 0.0,
            _ if level >= self.height() => 1.0,
            Kind::Intervals(intervals) => intervals.loss(leaf, level),
            Kind::Prefix(prefix) => prefix.loss(leaf, level),
            Kind::Dates(dates) => dates.loss(leaf, level),
            Kind::Networks(networks) => networks.loss(leaf, level),
            Kind::Places(places) => places.loss(level),
            Kind::AnyOf(any) => any.at(level).map_or(1.0, |(chain, level)| chain.open_loss(leaf, level)),
            Kind::Trivial | Kind::Closed(_) => 1.0,
        }
    }

    /// How many declared leaves the leaf's ancestor at `level` stands for; for hierarchies that do not list their leaves.
    pub(super) fn open_leaves(&self, leaf: &str, level: Level) -> f64 {
        match &self.0 {
            _ if level >= self.height() => self.size().unwrap_or(1.0),
            Kind::Intervals(intervals) => intervals.leaves(leaf, level),
            Kind::Prefix(prefix) => prefix.leaves(leaf, level),
            Kind::Dates(dates) => dates.leaves(leaf, level),
            Kind::Networks(networks) => networks.leaves(leaf, level),
            Kind::Places(places) => places.leaves(level),
            Kind::AnyOf(any) => any.at(level).map_or(1.0, |(chain, level)| chain.open_leaves(leaf, level)),
            Kind::Trivial | Kind::Closed(_) => 1.0,
        }
    }

    /// How many leaves it declares: those that it lists, the numbers of its range, the codes of its alphabet, the dates that
    /// losses count. `None` where any value is a leaf.
    pub fn size(&self) -> Option<f64> {
        match &self.0 {
            Kind::Closed(closed) => Some(closed.levels[0].len() as f64),
            Kind::Intervals(intervals) => Some(intervals.size()),
            Kind::Prefix(prefix) => Some(prefix.size()),
            Kind::Dates(dates) => Some(dates.size()),
            Kind::Networks(networks) => Some(networks.size()),
            Kind::Places(places) => Some(places.size()),
            Kind::AnyOf(any) => any.chains()[0].size(),
            Kind::Trivial => None,
        }
    }

    /// The share of what tells the declared leaves apart that a level keeps: the entropy of the partition that it makes of
    /// them, all leaves alike, over log(leaves). Depends on nothing that was read. Where any value is a leaf, level 0 keeps
    /// everything and the top nothing, however many leaves there are; one leaf alone has nothing to lose.
    pub fn quality(&self, level: Level) -> f64 {
        let of = |level: Level| match (&self.0, self.size()) {
            (_, Some(size)) if size < 2.0 => 1.0,
            _ if level == 0 => 1.0,
            _ if level >= self.height() => 0.0,
            (Kind::Closed(closed), Some(size)) => {
                entropy(closed.levels[usize::from(level)].leaves().iter().map(|&n| (n, 1.0)), size)
            }
            (Kind::Intervals(intervals), Some(size)) => entropy(intervals.blocks(level), size),
            (Kind::Dates(dates), Some(size)) => entropy(dates.blocks(level), size),
            (Kind::AnyOf(any), _) => any.at(level).map_or(0.0, |(chain, level)| chain.quality(level)),
            (Kind::Networks(networks), _) => networks.quality(level),
            (Kind::Places(places), _) => places.quality(level),
            (Kind::Prefix(prefix), Some(size)) if prefix.has_lengths() && size.is_finite() => {
                entropy(prefix.blocks(level), size)
            }
            // All codes are as many as their length, so that sums of powers are not needed.
            _ => 1.0 - f64::from(level) / f64::from(self.height()),
        };
        let qualities = self.1.get_or_init(|| (0..=self.height()).map(of).collect());
        qualities.get(usize::from(level)).copied().unwrap_or(0.0)
    }

    /// The complete tables, where the hierarchy lists its leaves.
    pub(super) fn closed(&self) -> Option<&Closed> {
        match &self.0 {
            Kind::Closed(closed) => Some(closed),
            Kind::AnyOf(any) => any.chains()[0].closed(),
            _ => None,
        }
    }

    /// True if a text that is the label of a leaf is always read as that leaf.
    pub(super) fn reads_its_labels(&self) -> bool {
        match &self.0 {
            Kind::Dates(dates) => dates.reads_its_labels(),
            Kind::Intervals(intervals) => intervals.reads_its_labels(),
            Kind::AnyOf(any) => any.chains()[0].reads_its_labels(),
            _ => true,
        }
    }
}

/// The entropy of blocks of these sizes, each with how many there are of it, over the most that `size` leaves could have.
fn entropy(blocks: impl IntoIterator<Item = (f64, f64)>, size: f64) -> f64 {
    let share = |(leaves, blocks): (f64, f64)| blocks * leaves / size * (size / leaves).ln();
    blocks.into_iter().map(share).sum::<f64>() / size.ln()
}

impl fmt::Debug for Hierarchy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match &self.0 {
            Kind::Closed(closed) => {
                return write!(f, "Hierarchy({} leaves, height {})", closed.levels[0].len(), self.height());
            }
            Kind::Intervals(_) => "intervals",
            Kind::Prefix(_) => "prefix",
            Kind::Dates(_) => "dates",
            Kind::Networks(_) => "ip",
            Kind::Places(_) => "geohash",
            Kind::Trivial => "trivial",
            Kind::AnyOf(_) => "any_of",
        };
        write!(f, "Hierarchy({kind}, height {})", self.height())
    }
}

impl Hash for Hierarchy {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::mem::discriminant(&self.0).hash(state);
        match &self.0 {
            Kind::Closed(closed) => closed.levels.hash(state),
            Kind::Intervals(intervals) => intervals.hash(state),
            Kind::Prefix(prefix) => prefix.hash(state),
            Kind::Dates(dates) => dates.hash(state),
            Kind::Networks(networks) => networks.hash(state),
            Kind::Places(places) => places.hash(state),
            Kind::AnyOf(any) => any.hash(state),
            Kind::Trivial => {}
        }
    }
}

/// One thing wrong with the definition of a hierarchy. Labels in it are configuration, not data.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}{message}", .line.map(|line| format!("line {line}: ")).unwrap_or_default())]
pub struct HierarchyError {
    /// The line of the CSV file, from 1.
    pub line: Option<usize>,
    /// The mistake and its remedy.
    pub message: String,
}

impl HierarchyError {
    fn at(line: usize, message: impl Into<String>) -> Self {
        Self { line: Some(line), message: message.into() }
    }
}

/// More errors than this are counted and no longer listed: nobody reads them, and a wrong file of a million lines has a million.
const MAX_ERRORS: usize = 100;

/// Collects errors up to the limit.
#[derive(Debug, Default)]
struct Errors {
    list: Vec<HierarchyError>,
    more: usize,
}

impl Errors {
    fn push(&mut self, line: Option<usize>, message: impl Into<String>) {
        if self.list.len() < MAX_ERRORS {
            self.list.push(HierarchyError { line, message: message.into() });
        } else {
            self.more += 1;
        }
    }

    fn into_list(mut self) -> Vec<HierarchyError> {
        if self.more > 0 {
            self.list.push(HierarchyError { line: None, message: format!("and {} more", self.more) });
        }
        self.list
    }

    fn into_result(self) -> Result<(), Vec<HierarchyError>> {
        if self.list.is_empty() { Ok(()) } else { Err(self.into_list()) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn kinds() -> Vec<Hierarchy> {
        let tenths = IntervalSpec { open: Open::High, ..IntervalSpec::new([Decimal::new(1, 1)], 0.into(), 9.into()) };
        let short = DateSpec {
            formats: vec!["%d/%m/%y".into(), "iso".into()],
            ..DateSpec::new([DateUnit::Day, DateUnit::Year])
        };
        vec![
            Hierarchy::parse_csv(b"1.0;x;*\n2;x;*\n;y;*\n").unwrap(),
            Hierarchy::intervals(tenths).unwrap(),
            Hierarchy::prefix(PrefixSpec::new(2)).unwrap(),
            Hierarchy::dates(DateSpec::new([DateUnit::Month, DateUnit::Quarter])).unwrap(),
            Hierarchy::dates(short).unwrap(),
            Hierarchy::prefix(PrefixSpec { min_length: Some(2), ..PrefixSpec::new(4) }).unwrap(),
            Hierarchy::ip(IpSpec::default()).unwrap(),
            Hierarchy::geohash(GeohashSpec { lengths: vec![3, 1] }).unwrap(),
            Hierarchy::trivial(),
        ]
    }

    #[test]
    fn every_hierarchy_hashes_to_something_else() {
        let hash = |h: &Hierarchy| std::hash::BuildHasher::hash_one(&rustc_hash::FxBuildHasher, h);
        let hashes: Vec<_> = kinds().iter().map(hash).collect();
        assert_eq!(hashes, kinds().iter().map(hash).collect::<Vec<_>>());
        let distinct: std::collections::HashSet<_> = hashes.iter().collect();
        assert_eq!(distinct.len(), hashes.len());
    }

    /// Its slow twin: every declared leaf by itself.
    fn naive_quality(h: &Hierarchy, leaves: &[String], level: Level) -> f64 {
        let mut blocks: std::collections::HashMap<String, f64> = std::collections::HashMap::new();
        for leaf in leaves {
            *blocks.entry(h.label(leaf, level).unwrap().into_owned()).or_default() += 1.0;
        }
        let n = leaves.len() as f64;
        blocks.values().map(|b| b / n * (n / b).ln()).sum::<f64>() / n.ln()
    }

    #[test]
    fn quality_is_the_entropy_of_every_declared_leaf() {
        let open = IntervalSpec {
            open: Open::Both,
            origin: 3.into(),
            ..IntervalSpec::new([5.into(), 20.into()], 1.into(), 64.into())
        };
        let tenths = IntervalSpec::new([Decimal::new(5, 1), 2.into()], 0.into(), 9.into());
        let date = |text: &str| Some(text.parse::<Date>().unwrap());
        let spec = |units: Vec<DateUnit>| DateSpec {
            min: date("1999-11-07"),
            max: date("2012-03-04"),
            ..DateSpec::new(units)
        };
        let days = || {
            let first = date("1999-11-07").unwrap();
            first
                .series(jiff::Span::new().days(1))
                .take_while(|d| Some(*d) <= date("2012-03-04"))
                .map(|d| d.to_string())
        };
        let months = || days().map(|day| day[..7].to_owned()).collect::<std::collections::BTreeSet<_>>().into_iter();
        let cases: Vec<(Hierarchy, Vec<String>)> = vec![
            (kinds().swap_remove(0), vec!["1.0".into(), "2".into(), String::new()]),
            (
                Hierarchy::intervals(open).unwrap(),
                (1..=64).map(|n| n.to_string()).chain(["<1".into(), ">64".into()]).collect(),
            ),
            (
                Hierarchy::intervals(tenths).unwrap(),
                (0..=90).map(|n| Decimal::new(n, 1).normalize().to_string()).collect(),
            ),
            (Hierarchy::prefix(PrefixSpec::new(3)).unwrap(), (0..1000).map(|n| format!("{n:03}")).collect()),
            (
                Hierarchy::prefix(PrefixSpec { min_length: Some(1), ..PrefixSpec::new(3) }).unwrap(),
                (0..1000)
                    .flat_map(|n| [format!("{n:03}"), format!("{n:02}"), n.to_string()])
                    .collect::<std::collections::BTreeSet<_>>()
                    .into_iter()
                    .collect(),
            ),
            (
                Hierarchy::dates(spec(vec![DateUnit::Day, DateUnit::Month, DateUnit::Quarter, DateUnit::Decade]))
                    .unwrap(),
                days().collect(),
            ),
            (Hierarchy::dates(spec(vec![DateUnit::Day, DateUnit::Week])).unwrap(), days().collect()),
            (
                Hierarchy::dates(spec(vec![DateUnit::Month, DateUnit::Year, DateUnit::Century])).unwrap(),
                months().collect(),
            ),
        ];
        for (h, leaves) in &cases {
            assert_eq!(h.size(), Some(leaves.len() as f64), "{h:?}");
            for level in 0..=h.height() {
                let naive = naive_quality(h, leaves, level);
                assert!((h.quality(level) - naive).abs() < 1e-9, "{h:?} {level}: {} {naive}", h.quality(level));
                let below = |leaf: &String| leaves.iter().filter(|l| h.label(l, level) == h.label(leaf, level)).count();
                let step = leaves.len().div_ceil(50);
                let agree = |leaf: &String| h.closed().is_some() || h.open_leaves(leaf, level) == below(leaf) as f64;
                assert!(leaves.iter().step_by(step).all(agree), "{h:?} {level}");
            }
        }
        assert_eq!([0, 1].map(|level| Hierarchy::trivial().quality(level)), [1.0, 0.0]);
        let one = Hierarchy::parse_csv(b"a;x;*\n").unwrap();
        assert_eq!([0, 1, 2].map(|level| one.quality(level)), [1.0; 3]);
        let endless = Hierarchy::prefix(PrefixSpec { alphabet: u32::MAX, ..PrefixSpec::new(64) }).unwrap();
        assert_eq!(endless.quality(16), 0.75);
    }

    proptest! {
        #[test]
        fn any_text_is_a_leaf_with_all_its_labels_or_outside(text in "\\PC{0,4}|-?[0-9é.]{0,6}|[0-9é]{4}-[0-9Qé]{1,3}|[0-9]{2}/[0-9]{2}/[0-9]{2}") {
            for h in kinds() {
                let _ = h.label(&text, 0);
                let _ = h.label(&text, 1);
                if let Some(leaf) = h.canonical(&text) {
                    for level in 0..=h.height() {
                        prop_assert!(h.label(&leaf, level).is_some());
                    }
                    prop_assert!(h.label(&leaf, 0).as_deref() == Some(leaf.as_ref()));
                    prop_assert!(h.label(&leaf, h.height()).as_deref() == Some(h.top_label()));
                    prop_assert!(!h.reads_its_labels() || h.canonical(&leaf).as_deref() == Some(leaf.as_ref()));
                }
            }
        }
    }
}
