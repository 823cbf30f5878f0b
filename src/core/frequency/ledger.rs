//! A ledger: the classes of one node with all that is counted in them, kept up to date by changes, and which of them may be
//! shown.
//!
//! Invariant: after any changes it equals one made of the set of that moment. What may be shown is asked again only of
//! classes that have changed, so the work is in what changed, not in the classes. Who straddles classes is absent: a ledger is not
//! rolled up from where subjects are counted.

use smallvec::SmallVec;

use super::changes::Changes;
use super::index::Index;
use super::key::{Field, Key};
use super::outline::{self, Outline, Shown};
use super::set::{Classes, FacetCounts, Facets, FrequencySet};
use super::tallies::Tallies;
use crate::model::counting::{Counting, Histogram};
use crate::model::domain::Code;
use crate::model::lattice::Node;

/// Starts over once there were so many times as many classes as there are. More holds what has gone, less starts over often.
const GONE_BY: usize = 2;

/// The classes of one node.
#[derive(Debug)]
pub(super) struct Ledger<K> {
    node: Node,
    fields: Vec<Field>,
    keys: Index<K>,
    classes: Vec<Class>,
    /// Classes that have records.
    present: usize,
    facets: Vec<Tallies>,
    outline: Option<Outline>,
    /// Classes that have changed since they were judged, and their records then.
    pending: Vec<(u32, u32)>,
    numbers: Vec<u32>,
    asked: bool,
}

#[derive(Debug, Clone, Copy, Default)]
struct Class {
    rows: u32,
    /// Distinct subjects, where they are counted.
    size: u32,
    shown: bool,
    pending: bool,
}

impl<K: Key> Ledger<K> {
    /// The classes of a set.
    pub(super) fn of(set: &FrequencySet<K>) -> Self {
        let class = |(&rows, &size): (&u32, &u32)| Class { rows, size, ..Class::default() };
        Self {
            node: set.node.clone(),
            fields: set.fields.clone(),
            keys: Index::of(set.keys.clone()),
            classes: set.rows.iter().zip(set.sizes()).map(class).collect(),
            present: set.keys.len(),
            facets: set.facets.get().iter().map(Tallies::of).collect(),
            outline: None,
            pending: Vec::new(),
            numbers: Vec::new(),
            asked: false,
        }
    }

    /// Notes that somebody asks.
    pub(super) fn ask(&mut self) {
        self.asked = true;
    }

    /// True if somebody has asked since the last time.
    pub(super) fn take_asked(&mut self) -> bool {
        std::mem::take(&mut self.asked)
    }

    /// The node.
    pub(super) fn node(&self) -> &Node {
        &self.node
    }

    /// About how many bytes it holds.
    pub(super) fn bytes(&self) -> usize {
        let facets: usize = self.facets.iter().map(Tallies::bytes).sum();
        self.classes.len() * (4 * size_of::<K>() + size_of::<Class>()) + facets
    }

    /// Follows changes, whose keys at this node are `keys`.
    pub(super) fn follow(&mut self, changes: &Changes<K>, keys: &[K], counting: &Counting) {
        let mut numbers = std::mem::take(&mut self.numbers);
        self.keys.numbers(keys, &mut numbers);
        self.classes.resize(self.keys.keys().len(), Class::default());
        for (f, tallies) in self.facets.iter_mut().enumerate() {
            tallies.grow(self.keys.keys().len(), changes.codes(f));
        }
        // Records first, then one facet after the other, so that each loop looks at one table.
        for (at, &class) in numbers.iter().enumerate() {
            let by = changes.by(at);
            if by != 0 {
                self.touch(class);
                let class = &mut self.classes[class as usize];
                self.present -= usize::from(class.rows > 0);
                class.rows = class.rows.wrapping_add_signed(by);
                self.present += usize::from(class.rows > 0);
                class.size = if counting.subjects { class.size } else { class.rows };
            }
        }
        for (f, (tallies, facet)) in self.facets.iter_mut().zip(&counting.facets).enumerate() {
            if counting.subjects && facet.of_subjects() {
                continue;
            }
            for (at, &class) in numbers.iter().enumerate() {
                tallies.change(class as usize, changes.code(at, f), changes.by(at));
            }
        }
        if counting.subjects {
            changes.people().for_each(|(_, parts)| self.follow_person(changes, parts, &numbers, counting));
        }
        self.numbers = numbers;
        if self.classes.len() > GONE_BY * self.present + 64 {
            *self = Self::of(&self.set());
        }
    }

    /// Which classes, and which values in them, somebody is in and was in.
    fn follow_person(
        &mut self,
        changes: &Changes<K>,
        parts: std::ops::Range<usize>,
        numbers: &[u32],
        counting: &Counting,
    ) {
        let mut slots: SmallVec<[(u64, [bool; 2]); 8]> = SmallVec::new();
        let presence = |at: usize| changes.counts(at).map(|rows| rows > 0);
        slots.extend(parts.clone().map(|at| (u64::from(numbers[at]), presence(at))));
        moved(&mut slots, |slot, by| {
            let size = &mut self.classes[slot as usize].size;
            *size = size.wrapping_add_signed(by);
        });
        let facets = self.facets.iter_mut().zip(&counting.facets).enumerate();
        for (f, (tallies, _)) in facets.filter(|(_, (_, facet))| facet.of_subjects()) {
            slots.clear();
            let slot = |at: usize| u64::from(numbers[at]) << u32::BITS | u64::from(changes.code(at, f));
            slots.extend(parts.clone().map(|at| (slot(at), presence(at))));
            moved(&mut slots, |slot, by| tallies.change((slot >> u32::BITS) as usize, slot as Code, by));
        }
    }

    fn touch(&mut self, at: u32) {
        let class = &mut self.classes[at as usize];
        if self.outline.is_some() && !class.pending {
            class.pending = true;
            self.pending.push((at, class.rows));
        }
    }

    /// What may be shown, and what is left out, with its cells if it is of at most `most` records. Always asked with the same
    /// rule, which `least` stands for.
    pub(super) fn outline(&mut self, least: u32, shown: Shown<'_>, most: u64) -> Option<Outline> {
        let Self { fields, keys, classes, facets, outline, pending, .. } = self;
        let may_be_shown = |at: usize, class: &Class| class.rows > 0 && seen(facets, at, &mut |h| shown(class.size, h));
        match outline {
            Some(outline) if outline.least() == least => {
                let mut followed = outline.follow();
                for (at, before) in pending.drain(..) {
                    let key = &keys.keys()[at as usize];
                    let class = &mut classes[at as usize];
                    let is_shown = may_be_shown(at as usize, class);
                    followed.judged(key, fields, (before, class.shown), (class.rows, is_shown));
                    (class.shown, class.pending) = (is_shown, false);
                }
            }
            Some(_) => return None,
            None => {
                let (mut left_out, mut count) = (0, 0);
                for (at, class) in classes.iter_mut().enumerate() {
                    class.shown = may_be_shown(at, class);
                    count += u64::from(class.shown);
                    left_out += if class.shown { 0 } else { u64::from(class.rows) };
                }
                *outline = Some(Outline::counted(least, left_out, count));
            }
        }
        let outline = outline.as_ref()?;
        if outline.left_out() <= most {
            let all = keys.keys().iter().zip(classes.iter());
            let small = || all.filter(|(_, class)| !class.shown && class.rows > 0);
            outline.cells(|| outline::cells(fields, small().map(|(key, class)| (*key, class.rows))));
        }
        Some(outline.clone())
    }

    /// The classes that have records, as a set. Where subjects are counted, it does not say who straddles classes.
    pub(super) fn set(&self) -> FrequencySet<K> {
        let present: Vec<usize> = (0..self.classes.len()).filter(|&at| self.classes[at].rows > 0).collect();
        let of = |what: &dyn Fn(&Class) -> u32| present.iter().map(|&at| what(&self.classes[at])).collect();
        let facet = |tallies: &Tallies| {
            let mut counts = FacetCounts { starts: vec![0], ..FacetCounts::default() };
            for &at in &present {
                tallies.with(at, |histogram| {
                    counts.codes.extend_from_slice(histogram.codes);
                    counts.counts.extend_from_slice(histogram.counts);
                });
                counts.starts.push(counts.codes.len() as u32);
            }
            counts
        };
        let keys = present.iter().map(|&at| self.keys.keys()[at]).collect();
        let (node, fields) = (self.node.clone(), self.fields.clone());
        FrequencySet {
            sizes: Some(of(&|class| class.size)),
            facets: Facets::Now(self.facets.iter().map(facet).collect()),
            ..FrequencySet::of_records(node, super::set::Origin::RolledUp, fields, keys, of(&|class| class.rows))
        }
    }
}

/// Shows the histograms of a class, one per facet, to `see`.
fn seen(facets: &[Tallies], class: usize, see: &mut dyn FnMut(&[Histogram<'_>]) -> bool) -> bool {
    match facets {
        [] => see(&[]),
        [one] => one.with(class, |histogram| see(&[histogram])),
        [first, rest @ ..] => first.with(class, |first| seen(rest, class, &mut |rest| see(&[&[first], rest].concat()))),
    }
}

/// Tells of each slot whether somebody came to it or went from it: parts in the same slot are one.
fn moved(slots: &mut [(u64, [bool; 2])], mut tell: impl FnMut(u64, i32)) {
    slots.sort_unstable_by_key(|(slot, _)| *slot);
    for same in slots.chunk_by(|a, b| a.0 == b.0) {
        let any = |when: usize| i32::from(same.iter().any(|(_, presence)| presence[when]));
        let by = any(1) - any(0);
        if by != 0 {
            tell(same[0].0, by);
        }
    }
}
