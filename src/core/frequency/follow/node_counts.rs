//! [`NodeCounts`]: the classes of one node with all that is counted in them, kept up to date by changes, and which of them may be
//! shown.
//!
//! Invariant: after any changes it equals one made of the set of that moment. A class is judged again only after it has changed, so
//! the work is proportional to the changes and not to the classes. It does not say who straddles classes, so nothing is rolled up
//! from it where subjects are counted.

use smallvec::SmallVec;

use super::histograms::Histograms;
use crate::frequency::counts::{Changes, KeyIndex};
use crate::frequency::key::{ClassKey, KeyField};
use crate::frequency::set::{Classes, FacetCounts, Facets, FrequencySet, People, Question, SmallClasses, cells};
use crate::model::counting::{Counting, Histogram};
use crate::model::domain::Code;
use crate::model::lattice::Node;

/// Starts over once there were so many times as many classes as there are. More holds what has gone, less starts over often.
const GONE_BY: usize = 2;

/// The classes of one node.
#[derive(Debug)]
pub(crate) struct NodeCounts<K> {
    node: Node,
    fields: Vec<KeyField>,
    keys: KeyIndex<K>,
    classes: Vec<Class>,
    /// Classes that have records.
    present: usize,
    facets: Vec<Histograms>,
    small: Option<SmallClasses>,
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

impl<K: ClassKey> NodeCounts<K> {
    /// The classes of a set.
    pub(crate) fn of(set: &FrequencySet<K>) -> Self {
        let class = |(&rows, &size): (&u32, &u32)| Class { rows, size, ..Class::default() };
        Self {
            node: set.node.clone(),
            fields: set.fields.clone(),
            keys: KeyIndex::of(set.keys.clone()),
            classes: set.rows.iter().zip(set.sizes()).map(class).collect(),
            present: set.keys.len(),
            facets: set.facets.get().iter().map(Histograms::of).collect(),
            small: None,
            pending: Vec::new(),
            numbers: Vec::new(),
            asked: false,
        }
    }

    /// Notes that somebody asks.
    pub(crate) fn ask(&mut self) {
        self.asked = true;
    }

    /// True if somebody has asked since the last time.
    pub(crate) fn take_asked(&mut self) -> bool {
        std::mem::take(&mut self.asked)
    }

    /// The node.
    pub(crate) fn node(&self) -> &Node {
        &self.node
    }

    /// About how many bytes it holds.
    pub(crate) fn bytes(&self) -> usize {
        let facets: usize = self.facets.iter().map(Histograms::bytes).sum();
        self.classes.len() * (4 * size_of::<K>() + size_of::<Class>()) + facets
    }

    /// Follows changes, whose keys at this node are `keys`.
    pub(crate) fn follow(&mut self, changes: &Changes<K>, keys: &[K], counting: &Counting) {
        let mut numbers = std::mem::take(&mut self.numbers);
        self.keys.numbers(keys, &mut numbers);
        self.classes.resize(self.keys.keys().len(), Class::default());
        for (f, histograms) in self.facets.iter_mut().enumerate() {
            histograms.grow(self.keys.keys().len(), changes.codes(f));
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
        for (f, (histograms, facet)) in self.facets.iter_mut().zip(&counting.facets).enumerate() {
            if counting.counts_subjects_in(*facet) {
                continue;
            }
            for (at, &class) in numbers.iter().enumerate() {
                histograms.change(class as usize, changes.code(at, f), changes.by(at));
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
        for (f, (histograms, _)) in facets.filter(|(_, (_, facet))| counting.counts_subjects_in(**facet)) {
            slots.clear();
            let slot = |at: usize| u64::from(numbers[at]) << u32::BITS | u64::from(changes.code(at, f));
            slots.extend(parts.clone().map(|at| (slot(at), presence(at))));
            moved(&mut slots, |slot, by| histograms.change((slot >> u32::BITS) as usize, slot as Code, by));
        }
    }

    fn touch(&mut self, at: u32) {
        let class = &mut self.classes[at as usize];
        if self.small.is_some() && !class.pending {
            class.pending = true;
            self.pending.push((at, class.rows));
        }
    }

    /// The classes that are left out. One store after the other asks the same question; `None` if the least size is another.
    pub(crate) fn small_classes(&mut self, question: &Question<'_>) -> Option<SmallClasses> {
        let Self { fields, keys, classes, facets, small, pending, .. } = self;
        let may_be_shown = |at: usize, class: &Class| {
            class.rows > 0 && seen(facets, at, &mut |facets| question.shows(class.size, facets))
        };
        match small {
            Some(small) if small.least() == question.least => {
                let mut followed = small.follow();
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
                *small = Some(SmallClasses::counted(question.least, left_out, count));
            }
        }
        let small = small.as_ref()?;
        if question.wants_cells(small.left_out()) {
            let all = keys.keys().iter().zip(classes.iter());
            let left_out = || all.filter(|(_, class)| !class.shown && class.rows > 0);
            small.cells(|| cells(fields, left_out().map(|(key, class)| (*key, class.rows))));
        }
        Some(small.clone())
    }

    /// The classes that have records, as a set. Where subjects are counted, it does not say who straddles classes.
    pub(crate) fn set(&self) -> FrequencySet<K> {
        let present: Vec<usize> = (0..self.classes.len()).filter(|&at| self.classes[at].rows > 0).collect();
        let of = |what: &dyn Fn(&Class) -> u32| present.iter().map(|&at| what(&self.classes[at])).collect();
        let facet = |histograms: &Histograms| {
            let mut counts = FacetCounts { starts: vec![0], ..FacetCounts::default() };
            for &at in &present {
                histograms.with(at, |histogram| {
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
            people: Some(People::of_sizes(of(&|class| class.size))),
            facets: Facets::counted(self.facets.iter().map(facet).collect()),
            ..FrequencySet::of_records(node, fields, keys, of(&|class| class.rows))
        }
    }
}

/// Shows the histograms of a class, one per facet, to `see`.
fn seen(facets: &[Histograms], class: usize, see: &mut dyn FnMut(&[Histogram<'_>]) -> bool) -> bool {
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
