//! A set that is at hand, or made from what is kept when somebody asks for its classes.
//!
//! The finest set is made from an earlier copy and what came and went since; a rollup from the table that followed the changes.
//! Invariant: it equals the set counted at the moment of its store. What searches ask most, the records and how they spread
//! over the values of each attribute, or how many are in small classes, is known without making it.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use super::key::{Field, Key};
use super::outline::Outline;
use super::set::{Classes, FrequencySet, Origin, Seen};
use super::table::Table;
use super::tally::Tally;
use super::totals::Totals;
use crate::model::counting::Histogram;
use crate::model::domain::Code;
use crate::model::lattice::Node;

/// All tuples with their records, in the order of their numbers, as they once were.
#[derive(Debug)]
pub(super) struct Copied<K> {
    pub(super) keys: Vec<K>,
    pub(super) rows: Vec<u32>,
}

/// What the finest set is made from.
#[derive(Debug)]
pub(super) struct Since<K> {
    pub(super) copied: Arc<Copied<K>>,
    /// The tuples that came since.
    pub(super) fresh: Vec<K>,
    /// Records more or less, by the tuple's number.
    pub(super) changes: Vec<(u32, i32)>,
    pub(super) fields: Vec<Field>,
    pub(super) totals: Totals,
}

/// A finest set of which the totals are known, and how to make it.
pub(super) struct Later<K> {
    totals: Totals,
    make: Make<K>,
}

/// Makes the set of a node.
pub(super) type Make<K> = Box<dyn Fn(&Node) -> FrequencySet<K> + Send + Sync>;

impl<K> fmt::Debug for Later<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Later").field("totals", &self.totals).finish_non_exhaustive()
    }
}

/// What a set is made from.
#[derive(Debug)]
enum Source<K> {
    /// It is at hand.
    Made,
    Since(Since<K>),
    Later(Later<K>),
    Table(Table<K>),
}

/// A set, made when it is asked for.
#[derive(Debug)]
pub struct Deferred<K> {
    node: Node,
    source: Source<K>,
    set: OnceLock<Arc<FrequencySet<K>>>,
    /// How often something was rolled up from it since something in between was made.
    uses: AtomicU32,
}

impl<K: Key> Deferred<K> {
    /// At hand.
    pub(super) fn made(set: FrequencySet<K>) -> Self {
        Self {
            node: set.node.clone(),
            source: Source::Made,
            set: OnceLock::from(Arc::new(set)),
            uses: AtomicU32::new(0),
        }
    }

    /// The finest set, from an earlier copy.
    pub(super) fn since(node: Node, since: Since<K>) -> Self {
        Self { node, source: Source::Since(since), set: OnceLock::new(), uses: AtomicU32::new(0) }
    }

    /// The finest set, of which this much is known.
    pub(super) fn later(node: Node, totals: Totals, make: Make<K>) -> Self {
        let source = Source::Later(Later { totals, make });
        Self { node, source, set: OnceLock::new(), uses: AtomicU32::new(0) }
    }

    /// True if it is at hand.
    pub(super) fn is_made(&self) -> bool {
        self.set.get().is_some()
    }

    /// A rollup, from the table that followed it.
    pub(super) fn table(node: Node, table: Table<K>) -> Self {
        Self { node, source: Source::Table(table), set: OnceLock::new(), uses: AtomicU32::new(0) }
    }

    /// The set itself.
    pub(super) fn set(&self) -> &Arc<FrequencySet<K>> {
        self.set.get_or_init(|| Arc::new(self.make()))
    }

    /// Notes that something is rolled up from it; true once in so many times.
    pub(super) fn used(&self, many: u32) -> bool {
        self.uses.fetch_add(1, Ordering::Relaxed) % many == many - 1
    }

    /// How many classes it has at most.
    pub(super) fn most(&self) -> usize {
        match &self.source {
            Source::Since(since) => since.copied.keys.len() + since.fresh.len(),
            _ => self.len(),
        }
    }

    /// About how many bytes it holds.
    pub(super) fn bytes(&self) -> usize {
        let table = if let Source::Table(table) = &self.source { table.bytes() } else { 0 };
        table + self.set.get().map_or(0, |set| set.bytes())
    }

    /// About how many bytes it holds as long as it follows changes.
    pub(super) fn kept_bytes(&self) -> usize {
        match &self.source {
            Source::Table(table) => table.bytes(),
            _ => self.bytes().max(Table::<K>::bytes_for(self.len())),
        }
    }

    /// A table that is to follow changes; made, or copied, where somebody else holds the one there is.
    pub(super) fn into_table(self: Arc<Self>) -> Table<K> {
        match Arc::try_unwrap(self) {
            Ok(Self { source: Source::Table(table), .. }) => table,
            Ok(own) => Table::of(own.set()),
            Err(shared) => match &shared.source {
                Source::Table(table) => table.clone(),
                _ => Table::of(shared.set()),
            },
        }
    }

    /// What has changed since a set was right that knows the first `known` changes.
    pub(super) fn changes(&self, known: usize) -> (Vec<K>, Vec<i32>) {
        let Source::Since(since) = &self.source else { return Default::default() };
        let old = since.copied.keys.len();
        let key = |tuple: usize| if tuple < old { since.copied.keys[tuple] } else { since.fresh[tuple - old] };
        since.changes[known..].iter().map(|&(tuple, by)| (key(tuple as usize), by)).unzip()
    }

    fn make(&self) -> FrequencySet<K> {
        let (mut origin, mut fields) = (Origin::RolledUp, Vec::new());
        let (mut keys, mut rows) = (Vec::new(), Vec::new());
        match &self.source {
            Source::Made => {}
            Source::Later(later) => return (later.make)(&self.node),
            Source::Since(since) => {
                let mut counts = since.copied.rows.clone();
                counts.resize(counts.len() + since.fresh.len(), 0);
                for &(tuple, by) in &since.changes {
                    counts[tuple as usize] = counts[tuple as usize].wrapping_add_signed(by);
                }
                let all = since.copied.keys.iter().chain(&since.fresh);
                (keys, rows) = all.zip(counts).filter(|(_, rows)| *rows > 0).unzip();
                (origin, fields) = (Origin::Scanned, since.fields.clone());
            }
            Source::Table(table) => {
                (keys, rows) = table.iter().unzip();
                fields = table.fields().to_vec();
            }
        }
        FrequencySet::of_records(self.node.clone(), origin, fields, keys, rows)
    }
}

impl<K: Key> Classes for Deferred<K> {
    fn node(&self) -> &Node {
        &self.node
    }
    fn len(&self) -> usize {
        match &self.source {
            Source::Made => self.set().len(),
            Source::Since(Since { totals, .. }) | Source::Later(Later { totals, .. }) => totals.classes,
            Source::Table(table) => table.classes(),
        }
    }
    fn rows(&self) -> &[u32] {
        self.set().rows()
    }
    fn records(&self) -> u64 {
        match &self.source {
            Source::Since(Since { totals, .. }) | Source::Later(Later { totals, .. }) => totals.records,
            _ => self.set().records(),
        }
    }
    fn outline(&self, least: u32) -> Option<&Outline> {
        match &self.source {
            Source::Table(table) => table.outline(least),
            _ => self.set().outline(least),
        }
    }
    fn left_out(&self, least: u32) -> Option<&[Vec<u32>]> {
        match &self.source {
            Source::Table(table) => table.left_out(least),
            _ => self.set().left_out(least),
        }
    }
    fn sizes(&self) -> &[u32] {
        self.set().sizes()
    }
    fn code(&self, class: usize, attribute: usize) -> Code {
        self.set().code(class, attribute)
    }
    fn cells(&self, class: usize, tables: &[&[f64]]) -> f64 {
        self.set().cells(class, tables)
    }
    fn marginals(&self, codes: &[usize]) -> Vec<Vec<u64>> {
        match &self.source {
            Source::Since(Since { totals, .. }) | Source::Later(Later { totals, .. }) => totals.marginals(codes),
            _ => self.set().marginals(codes),
        }
    }
    fn histogram(&self, facet: usize, class: usize) -> Histogram<'_> {
        self.set().histogram(facet, class)
    }
    fn tallies(&self) -> Vec<Tally> {
        self.set().tallies()
    }
    fn origin(&self) -> Origin {
        if let Source::Since(_) | Source::Later(_) = self.source { Origin::Scanned } else { self.set().origin() }
    }
    fn seen_by(&self, published: &[bool], known: &[usize]) -> Seen {
        self.set().seen_by(published, known)
    }
}
