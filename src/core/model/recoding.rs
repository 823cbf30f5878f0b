//! What a release does to the values: a [`Node`] (every value of an attribute at one level), a [`Cut`] per attribute (each
//! value at a level of its own), or a [`Schedule`] (each record at levels of its own).
//!
//! Invariant: a cut is valid. Leaves that share the ancestor at the level of one of them all have that level, so the
//! published values are disjoint and cover every leaf that was known when the cut was made.

mod planned;

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::domain::{Code, DomainView};
use super::lattice::{Level, Node};
use super::schedule::Schedule;

pub use planned::OccurringLeaves;

/// A way to publish every attribute.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Recoding {
    /// Full-domain: one level per attribute.
    Node(Node),
    /// Subtree: one cut per attribute.
    Cuts(Vec<Cut>),
    /// Local: the levels of a record depend on the records that look like it. Which class a row has is decided by
    /// [`local::apply`](crate::local::apply()).
    Local(Schedule),
}

/// A cut through one taxonomy: for every leaf code the level at which it is published.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Cut(Arc<[Level]>);

/// A published value: a code of some level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GeneralizedValue {
    /// The level.
    pub level: Level,
    /// The code at that level.
    pub code: Code,
}

/// How one attribute is published: what each leaf becomes, and what the published codes stand for.
#[derive(Debug, Clone)]
pub struct Column {
    view: Arc<DomainView>,
    map: Vec<Code>,
    kind: Kind,
}

#[derive(Debug, Clone)]
enum Kind {
    Level(Level),
    Cut(Arc<[GeneralizedValue]>),
    /// The codes of all levels, one level after the other: where each level begins, and the end.
    Mixed(Arc<[Code]>),
}

impl Cut {
    /// The cut that publishes every leaf of `view` at `level`.
    pub fn level(view: &DomainView, level: Level) -> Self {
        Self(vec![level; view.leaf_count()].into())
    }

    /// The cut with these levels; `None` if it is no cut of `view`.
    pub fn new(view: &DomainView, levels: impl Into<Arc<[Level]>>) -> Option<Self> {
        let cut = Self(levels.into());
        let fits = cut.0.len() == view.leaf_count() && cut.0.iter().all(|&level| level <= view.height());
        (fits && cut.is_disjoint(view)).then_some(cut)
    }

    /// The cut with these levels, made by raising whole subtrees of a cut, so known to be one.
    pub(crate) fn raised(levels: impl Iterator<Item = Level>) -> Self {
        Self(levels.collect())
    }

    /// The level of every leaf.
    pub fn levels(&self) -> &[Level] {
        &self.0
    }

    /// The level of all leaves, if they have one in common.
    pub fn uniform(&self) -> Option<Level> {
        let first = *self.0.first()?;
        self.0.iter().all(|&level| level == first).then_some(first)
    }

    /// The finest and the coarsest level it publishes; (0, 0) without leaves.
    pub fn range(&self) -> (Level, Level) {
        let min = self.0.iter().min().copied().unwrap_or(0);
        (min, self.0.iter().max().copied().unwrap_or(0))
    }

    /// The same cut for a domain that has grown since; see [`Cut::completed`].
    pub fn extended(&self, view: &DomainView, max_level: Level) -> Self {
        if self.0.len() >= view.leaf_count() {
            return self.clone();
        }
        let mut known: Vec<Option<Level>> = self.0.iter().copied().map(Some).collect();
        known.resize(view.leaf_count(), None);
        Self::completed(view, &known, max_level)
    }

    /// The cut that publishes some leaves at known levels, which are those of a cut. Another leaf below a published value becomes that
    /// value; any other one becomes its coarsest ancestor, up to `max_level`, that no known leaf shares.
    pub(super) fn completed(view: &DomainView, known: &[Option<Level>], max_level: Level) -> Self {
        // Level by level, what the known leaves make of each code: published as it is, split further, or not there.
        let mut levels: Vec<Level> = known.iter().map(|level| level.unwrap_or(max_level)).collect();
        let mut open: Vec<usize> = (0..known.len()).filter(|&leaf| known[leaf].is_none()).collect();
        for level in 0..=view.height() {
            if open.is_empty() {
                break;
            }
            let map = view.between(0, level);
            let pairs = map.iter().zip(known).filter_map(|(&code, known)| Some((code, (*known)?)));
            let seen: FxHashMap<Code, Level> = pairs.collect();
            open.retain(|&leaf| {
                let Some(&published) = seen.get(&map[leaf]) else { return true };
                levels[leaf] = if published >= level { published } else { level.saturating_sub(1).min(max_level) };
                false
            });
        }
        Self(levels.into())
    }

    /// The same cut with no value below `level`. Leaves that share an ancestor there are published as it, or as one above it.
    pub fn raised_to(&self, level: Level) -> Self {
        Self(self.0.iter().map(|&own| own.max(level)).collect())
    }

    /// True if every leaf's level is at most the other's.
    pub fn is_finer_or_equal(&self, other: &Self) -> bool {
        self.0.len() == other.0.len() && self.0.iter().zip(other.0.iter()).all(|(a, b)| a <= b)
    }

    fn is_disjoint(&self, view: &DomainView) -> bool {
        let (min, max) = self.range();
        (min..=max).all(|level| {
            let map = view.between(0, level);
            let published: std::collections::HashSet<Code> =
                (0..self.0.len()).filter(|&leaf| self.0[leaf] == level).map(|leaf| map[leaf]).collect();
            (0..self.0.len()).all(|leaf| self.0[leaf] == level || !published.contains(&map[leaf]))
        })
    }

    fn column(&self, view: &Arc<DomainView>) -> Column {
        if let Some(level) = self.uniform() {
            return Column::at_level(view, level);
        }
        let mut codes: FxHashMap<GeneralizedValue, Code> = FxHashMap::default();
        let mut values = Vec::new();
        let mut map = vec![0; self.0.len()];
        let (min, max) = self.range();
        for level in min..=max {
            let ancestors = view.between(0, level);
            for leaf in (0..self.0.len()).filter(|&leaf| self.0[leaf] == level) {
                let value = GeneralizedValue { level, code: ancestors[leaf] };
                map[leaf] = *codes.entry(value).or_insert_with(|| {
                    values.push(value);
                    values.len() as Code - 1
                });
            }
        }
        Column { view: Arc::clone(view), map, kind: Kind::Cut(values.into()) }
    }
}

impl Recoding {
    /// The level or cut of every attribute; `domains` hold at least the leaves it was made for.
    pub fn columns(&self, domains: &[Arc<DomainView>]) -> Vec<Column> {
        match self {
            Self::Node(node) => {
                domains.iter().zip(node.levels()).map(|(view, &level)| Column::at_level(view, level)).collect()
            }
            Self::Cuts(cuts) => domains.iter().zip(cuts).map(|(view, cut)| cut.column(view)).collect(),
            Self::Local(_) => domains.iter().map(Column::mixed).collect(),
        }
    }

    /// The node, where every attribute has one level.
    pub fn node(&self) -> Option<Node> {
        match self {
            Self::Node(node) => Some(node.clone()),
            Self::Cuts(cuts) => cuts.iter().map(Cut::uniform).collect::<Option<Vec<_>>>().map(Node::new),
            Self::Local(_) => None,
        }
    }

    /// The finest level per attribute.
    pub fn finest(&self) -> Node {
        match self {
            Self::Node(node) => node.clone(),
            Self::Cuts(cuts) => Node::new(cuts.iter().map(|cut| cut.range().0)),
            Self::Local(schedule) => schedule.finest(),
        }
    }

    /// The least node above it: the coarsest level per attribute.
    pub fn coarsest(&self) -> Node {
        match self {
            Self::Node(node) => node.clone(),
            Self::Cuts(cuts) => Node::new(cuts.iter().map(|cut| cut.range().1)),
            Self::Local(schedule) => schedule.coarsest().clone(),
        }
    }

    /// The same recoding after the domains have grown; see [`Cut::extended`].
    pub fn extended(&self, domains: &[Arc<DomainView>], top: &Node) -> Self {
        match self {
            Self::Node(_) | Self::Local(_) => self.clone(),
            Self::Cuts(cuts) => {
                let extended = |((cut, view), &max): ((&Cut, &Arc<DomainView>), &Level)| cut.extended(view, max);
                Self::Cuts(cuts.iter().zip(domains).zip(top.levels()).map(extended).collect())
            }
        }
    }

    /// The same recoding as cuts; of a schedule its coarsest levels, for no cut says what it does.
    pub fn cuts(&self, domains: &[Arc<DomainView>]) -> Vec<Cut> {
        match self {
            Self::Cuts(cuts) => cuts.clone(),
            Self::Node(_) | Self::Local(_) => {
                let node = self.coarsest();
                domains.iter().zip(node.levels()).map(|(view, &level)| Cut::level(view, level)).collect()
            }
        }
    }
}

impl From<Node> for Recoding {
    fn from(node: Node) -> Self {
        Self::Node(node)
    }
}

impl Column {
    /// Every value at one level.
    pub fn at_level(view: &Arc<DomainView>, level: Level) -> Self {
        Self { view: Arc::clone(view), map: view.between(0, level), kind: Kind::Level(level) }
    }

    /// Each value at any level: what a leaf becomes depends on the record it stands in, so there is no [`Column::map`].
    pub fn mixed(view: &Arc<DomainView>) -> Self {
        let mut starts = vec![0];
        for level in 0..=view.height() {
            starts.push(starts[usize::from(level)] + view.level(level).len() as Code);
        }
        Self { view: Arc::clone(view), map: Vec::new(), kind: Kind::Mixed(starts.into()) }
    }

    /// The same column with no value finer than `level`, and for each published code the one that it becomes.
    pub fn raised(&self, level: Level) -> (Self, Vec<Code>) {
        let same = || (0..self.len() as Code).collect();
        match &self.kind {
            Kind::Level(own) if self.view.refines(level, *own) => (self.clone(), same()),
            Kind::Level(own) => {
                // Where neither refines the other, only everything in one value shows no more than either.
                let level = if self.view.refines(*own, level) { level } else { self.view.height() };
                (Self::at_level(&self.view, level), self.view.between(*own, level))
            }
            Kind::Cut(_) | Kind::Mixed(_) if level == 0 => (self.clone(), same()),
            Kind::Cut(_) | Kind::Mixed(_) => {
                let mixed = Self::mixed(&self.view);
                let up = |code: Code, level: Level| self.view.level(level).parent()[code as usize];
                let raised = |code: Code| {
                    let GeneralizedValue { level: own, code } = self.value(code);
                    let value = GeneralizedValue { level: own.max(level), code: (own..level).fold(code, up) };
                    mixed.code(value).unwrap_or_default()
                };
                let codes = (0..self.len() as Code).map(raised).collect();
                (mixed, codes)
            }
        }
    }

    /// True if the codes are those of all levels.
    pub fn is_mixed(&self) -> bool {
        matches!(self.kind, Kind::Mixed(_))
    }

    /// For each leaf code its published code; empty where that depends on the record.
    pub fn map(&self) -> &[Code] {
        &self.map
    }

    /// The published code of a value of a [`Column::mixed`] column.
    pub fn code(&self, value: GeneralizedValue) -> Option<Code> {
        match &self.kind {
            Kind::Mixed(starts) => Some(starts[usize::from(value.level)] + value.code),
            Kind::Level(_) | Kind::Cut(_) => None,
        }
    }

    /// True if a leaf may be published as this code.
    pub fn shows(&self, leaf: Code, code: Code) -> bool {
        match &self.kind {
            Kind::Mixed(_) => {
                let GeneralizedValue { level, code } = self.value(code);
                self.view.between(0, level)[leaf as usize] == code
            }
            Kind::Level(_) | Kind::Cut(_) => self.map[leaf as usize] == code,
        }
    }

    /// Every leaf code with each published code that it may become.
    pub fn leaves(&self) -> impl Iterator<Item = (Code, Code)> {
        let mapped = (0..).zip(self.map.iter().copied());
        let starts = match &self.kind {
            Kind::Mixed(starts) => &starts[..starts.len() - 1],
            Kind::Level(_) | Kind::Cut(_) => &[],
        };
        let at_level = |(level, &start): (Level, &Code)| {
            (0..).zip(self.view.between(0, level)).map(move |(leaf, code)| (leaf, start + code))
        };
        mapped.chain((0..).zip(starts).flat_map(at_level))
    }

    /// The values behind the published codes; `None` where they are the codes of one level.
    pub fn values(&self) -> Option<Arc<[GeneralizedValue]>> {
        match &self.kind {
            Kind::Level(_) => None,
            Kind::Cut(values) => Some(Arc::clone(values)),
            Kind::Mixed(_) => Some((0..self.len() as Code).map(|code| self.value(code)).collect()),
        }
    }

    /// The meaning of a published code.
    pub fn value(&self, code: Code) -> GeneralizedValue {
        match &self.kind {
            Kind::Level(level) => GeneralizedValue { level: *level, code },
            Kind::Cut(values) => values[code as usize],
            Kind::Mixed(starts) => {
                let level = starts.partition_point(|&start| start <= code) - 1;
                GeneralizedValue { level: level as Level, code: code - starts[level] }
            }
        }
    }

    /// How many published codes there are.
    pub fn len(&self) -> usize {
        match &self.kind {
            Kind::Level(level) => self.view.level(*level).len(),
            Kind::Cut(values) => values.len(),
            Kind::Mixed(starts) => starts[starts.len() - 1] as usize,
        }
    }

    /// True if nothing can be published.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The text of a published code.
    pub fn label(&self, code: Code) -> &str {
        let GeneralizedValue { level, code } = self.value(code);
        self.view.level(level).label(code)
    }

    /// The GLM loss of a cell published as this code.
    pub fn loss(&self, code: Code) -> f64 {
        let GeneralizedValue { level, code } = self.value(code);
        self.view.level(level).loss()[code as usize]
    }

    /// The domain its codes belong to.
    pub fn view(&self) -> &Arc<DomainView> {
        &self.view
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::domain::Domain;
    use super::super::hierarchy::{Hierarchy, PrefixSpec};
    use super::*;

    pub(super) fn zips(values: &[&str]) -> (Domain, Arc<DomainView>) {
        let mut domain = Domain::new(Arc::new(Hierarchy::prefix(PrefixSpec::new(3)).unwrap()));
        values.iter().for_each(|value| {
            domain.code(value).unwrap();
        });
        let view = domain.view();
        (domain, view)
    }

    #[test]
    fn values_of_a_cut_must_not_overlap() {
        let (_, view) = zips(&["000", "001", "010", "100"]);
        assert!(Cut::new(&view, [1, 1, 0, 2]).is_some());
        assert!(Cut::new(&view, [1, 0, 0, 2]).is_none(), "00* and 001 overlap");
        assert!(Cut::new(&view, [0, 2, 0, 0]).is_none(), "0** and 000 overlap");
        assert!(Cut::new(&view, [3, 3, 3, 0]).is_none(), "the top is everything");
        assert!(Cut::new(&view, [0, 0, 0]).is_none());
        assert!(Cut::new(&view, [4, 4, 4, 4]).is_none());
    }

    #[test]
    fn columns_name_what_is_published() {
        let (_, view) = zips(&["000", "001", "010", "100"]);
        let column = Cut::new(&view, [1, 1, 0, 2]).unwrap().column(&view);
        let labels: Vec<&str> = column.map().iter().map(|&code| column.label(code)).collect();
        assert_eq!(labels, ["00*", "00*", "010", "1**"]);
        assert_eq!(column.len(), 3);
        assert_eq!(column.loss(column.map()[2]), 0.0);
        assert!((column.loss(column.map()[0]) - 9.0 / 999.0).abs() < 1e-12);
        assert!(Cut::level(&view, 2).column(&view).values().is_none());
    }

    #[test]
    fn a_mixed_column_names_every_value_of_every_level() {
        let (_, view) = zips(&["000", "001", "010", "100"]);
        let column = Column::mixed(&view);
        assert!(column.map().is_empty());
        assert_eq!(column.len(), 4 + 3 + 2 + 1);
        for code in 0..column.len() as Code {
            assert_eq!(column.code(column.value(code)), Some(code));
        }
        let of_first: Vec<&str> =
            column.leaves().filter(|(leaf, _)| *leaf == 0).map(|(_, code)| column.label(code)).collect();
        assert_eq!(of_first, ["000", "00*", "0**", "***"]);
        assert_eq!(Column::at_level(&view, 1).code(GeneralizedValue { level: 1, code: 0 }), None);
    }

    #[test]
    fn new_leaves_join_their_value_or_stand_apart() {
        let (mut domain, view) = zips(&["000", "010", "100"]);
        let cut = Cut::new(&view, [1, 0, 2]).unwrap();
        for value in ["001", "011", "020", "122", "500"] {
            domain.code(value).unwrap();
        }
        let view = domain.view();
        let extended = cut.extended(&view, 2);
        let column = extended.column(&view);
        let labels: Vec<&str> = column.map().iter().map(|&code| column.label(code)).collect();
        assert_eq!(labels, ["00*", "010", "1**", "00*", "011", "02*", "1**", "5**"]);
        assert!(Cut::new(&view, extended.levels()).is_some());
        assert_eq!(extended.extended(&view, 2), extended);
    }

    /// A random cut: from the top down, each value is published or split.
    pub(super) fn random_cut(view: &DomainView, seed: u64, max: Level) -> Cut {
        let maps: Vec<_> = (0..=view.height()).map(|level| view.between(0, level)).collect();
        let split = |level: Level, code: Code| {
            std::hash::BuildHasher::hash_one(&rustc_hash::FxBuildHasher, (seed, level, code))
                .count_ones()
                .is_multiple_of(2)
        };
        let level = |leaf: usize| {
            (0..=max).rev().find(|&level| level == 0 || !split(level, maps[usize::from(level)][leaf])).unwrap_or(0)
        };
        Cut::new(view, (0..view.leaf_count()).map(level).collect::<Vec<_>>()).unwrap()
    }

    proptest! {
        #[test]
        fn extensions_are_cuts(
            old in prop::collection::vec("[0-2]{3}", 1..12), new in prop::collection::vec("[0-3]{3}", 0..12),
            seed in any::<u64>(), max in 0_u8..=3,
        ) {
            let old: Vec<&str> = old.iter().map(String::as_str).collect();
            let (mut domain, view) = zips(&old);
            let cut = random_cut(&view, seed, max);
            new.iter().for_each(|value| { domain.code(value).unwrap(); });
            let view = domain.view();
            let extended = cut.extended(&view, max);
            prop_assert!(Cut::new(&view, extended.levels()).is_some(), "{:?} {:?}", cut, extended);
            prop_assert_eq!(&extended.levels()[..cut.levels().len()], cut.levels());
            prop_assert!(extended.range().1 <= max);
        }
    }
}
