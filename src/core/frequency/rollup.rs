//! Rollup: the frequency set of a coarser node as the sum of a finer one. Pure; never looks at a row.
//!
//! Histograms are merged when they are first asked for, not with the classes: most nodes that a search counts fail by the
//! size of their classes alone.

use std::sync::{Arc, OnceLock};

use super::dense::{Aim, Dense, places};
use super::key::{Field, Key};
use super::near::Near;
use super::probe;
use super::set::{FacetCounts, Facets, FrequencySet, GONE, Later, Origin, Seen};
use crate::model::domain::Code;
use crate::model::lattice::Node;

/// One attribute that changes: where its code lives, and the map from the finer level's codes to the coarser one's.
pub struct Step<'a, K> {
    /// The attribute's field.
    pub field: Field,
    /// The parent map, composed over all levels in between: by finer code the coarser one, already in its place in a key.
    /// Empty where all become code 0.
    pub map: &'a [K],
}

/// The map of a [`Step`] from one by codes.
pub fn in_place<K: Key>(field: Field, codes: &[Code]) -> Vec<K> {
    if codes.iter().all(|code| *code == 0) {
        return Vec::new();
    }
    codes.iter().map(|&code| K::of(field, code)).collect()
}

/// What classes are to be expected where keys are summed.
#[derive(Debug, Clone, Copy)]
pub enum Expected<'a> {
    /// At most about so many, which sizes the table.
    AtMost(usize),
    /// So few that each has its place in a flat table, of its own or among those that lie together: by attribute, how many codes there
    /// were and will be.
    Places {
        /// Codes of the finer set.
        from: &'a [usize],
        /// Codes of the coarser one.
        to: &'a [usize],
        /// From which bit on keys ascend, and none changes.
        below: u32,
    },
}

/// Rolls `finer` up to `node`; `steps` holds the attributes whose level differs.
pub fn rollup<K: Key>(
    finer: &Arc<FrequencySet<K>>,
    node: &Node,
    steps: &[Step<'_, K>],
    expected: Expected<'_>,
    groups: &mut Groups<K>,
) -> FrequencySet<K> {
    let plain = finer.subjects.is_none() && !finer.facets.any();
    let (keys, rows) = match expected {
        Expected::Places { from, to, below } => {
            let keys = finer.keys.len();
            let few = plain && places(to.iter().copied()) <= keys;
            let below = if few { u32::MAX } else { below };
            groups.dense.aim(&finer.fields, Aim { from, to, below, keys }, steps);
            match (few, plain) {
                (true, _) => groups.sum_few(&finer.keys, &finer.rows),
                (_, true) => groups.sum_near::<false>(finer, steps, below),
                (_, false) => groups.sum_near::<true>(finer, steps, below),
            }
        }
        Expected::AtMost(most) => {
            map_keys(&finer.keys, steps, &mut groups.mapped);
            let sum = if plain { Groups::sum::<false> } else { Groups::sum::<true> };
            sum(groups, &finer.rows, most)
        }
    };
    let class_of: Vec<u32> = if plain { Vec::new() } else { groups.class_of[..finer.keys.len()].to_vec() };
    let subjects = finer.subjects.as_ref().map(|s| s.merge(&class_of, rows.len()));
    let sizes = subjects.as_ref().map(|s| s.totals());
    let facets = match finer.facets.any() {
        true => {
            let classes = rows.len();
            Facets::Later(Box::new(Later { finer: Arc::clone(finer), class_of, classes, merged: OnceLock::new() }))
        }
        false => Facets::default(),
    };
    FrequencySet {
        node: node.clone(),
        values: Vec::new(),
        origin: Origin::RolledUp,
        fields: finer.fields.clone(),
        keys,
        rows,
        sizes,
        subjects,
        facets,
        outline: OnceLock::new(),
        marginals: OnceLock::new(),
        ascends: OnceLock::new(),
    }
}

/// Maps `keys`, attribute by attribute: one look-up each, and nothing else in the loop.
pub(super) fn map_keys<K: Key>(keys: &[K], steps: &[Step<'_, K>], into: &mut Vec<K>) {
    let mut stays = K::ONES;
    steps.iter().for_each(|step| stays.set(step.field, 0));
    into.clear();
    into.extend(keys.iter().map(|key| key.and(stays)));
    for Step { field, map } in steps.iter().filter(|step| !step.map.is_empty()) {
        for (mapped, key) in into.iter_mut().zip(keys) {
            *mapped = mapped.or(map[key.get(*field) as usize]);
        }
    }
}

/// The published classes with the attributes that are not `known` made one.
pub(super) fn seen_by<K: Key>(set: &FrequencySet<K>, published: &[bool], known: &[usize]) -> Seen {
    let mut groups = Groups::default();
    let is_shown = |at: &usize| published[*at];
    groups.mapped.extend((0..set.keys.len()).filter(is_shown).map(|at| {
        let mut seen = K::ZERO;
        known.iter().for_each(|&attribute| seen.set(set.fields[attribute], set.keys[at].get(set.fields[attribute])));
        seen
    }));
    let shown: Vec<u32> = (0..set.keys.len()).filter(is_shown).map(|at| set.rows[at]).collect();
    let (keys, rows) = groups.sum::<true>(&shown, if known.is_empty() { 1 } else { usize::MAX });
    let mut class_of = vec![GONE; set.keys.len()];
    let shown = class_of.iter_mut().zip(published).filter(|(_, p)| **p).map(|(class, _)| class);
    shown.zip(&groups.class_of).for_each(|(class, &of)| *class = of);
    let subjects = set.subjects.as_ref().map(|s| s.merge(&class_of, rows.len()));
    let sizes = subjects.as_ref().map(|s| s.totals());
    let facets = Facets::Now(merge_facets(set.facets.get(), &class_of, rows.len()));
    let (node, fields) = (set.node.clone(), set.fields.clone());
    let classes = FrequencySet {
        node,
        values: Vec::new(),
        origin: Origin::RolledUp,
        fields,
        keys,
        rows,
        sizes,
        subjects,
        facets,
        outline: OnceLock::new(),
        marginals: OnceLock::new(),
        ascends: OnceLock::new(),
    };
    Seen { classes: Box::new(classes), class_of }
}

/// Sums rows by key: a flat open-addressing table that is kept from one rollup to the next.
///
/// Whether a key is new cannot be foreseen, so nothing branches on it: each key is written behind the last class, and
/// counts as a class or is overwritten by the next. A table that is left clean costs nothing to start with.
#[derive(Debug)]
pub struct Groups<K> {
    /// The key, and its class plus one; zero where the slot is free.
    slots: Vec<(K, u32)>,
    /// Where each class lives.
    at: Vec<u32>,
    keys: Vec<K>,
    rows: Vec<u32>,
    class_of: Vec<u32>,
    /// The keys to sum by.
    mapped: Vec<K>,
    /// The places of classes where each has one of its own, and what is there. All zero between two uses.
    dense: Dense,
    places: Vec<u32>,
    near: Near<K>,
}

impl<K> Default for Groups<K> {
    fn default() -> Self {
        let (slots, keys, mapped, dense) = (Vec::new(), Vec::new(), Vec::new(), Dense::default());
        let (at, rows, class_of) = (Vec::new(), Vec::new(), Vec::new());
        let (places, near) = (Vec::new(), Near::default());
        Self { slots, at, keys, rows, class_of, mapped, dense, places, near }
    }
}

/// Slots per expected class. More are further apart in memory; fewer collide more often.
const ROOM: usize = 3;

/// How many times fewer classes are expected than there were. Larger makes the table grow on the way more often; smaller
/// spreads few classes over much memory.
const SHRINKS: usize = 6;

impl<K: Key> Groups<K> {
    /// Sums `rows` by the mapped keys, and with `CLASSES` notes the class of each. At most about `most` keys differ. Returns
    /// the classes in order of first appearance.
    fn sum<const CLASSES: bool>(&mut self, counts: &[u32], most: usize) -> (Vec<K>, Vec<u32>) {
        let inputs = counts.len();
        let grow = |list: &mut Vec<u32>| list.resize(inputs.max(list.len()), 0);
        self.keys.resize(inputs.max(self.keys.len()), K::ZERO);
        [&mut self.class_of, &mut self.rows, &mut self.at].into_iter().for_each(grow);
        let mut width = (most.min(inputs / SHRINKS + 16) * ROOM).next_power_of_two();
        let mut classes = 0;
        if self.slots.len() < width {
            self.slots.resize(width, (K::ZERO, 0));
        }
        // Slices of known length, so that the loop keeps them at hand.
        let (mut slots, mut shift) = (&mut self.slots[..width], probe::shift(width));
        let (keys, rows) = (&mut self.keys[..inputs], &mut self.rows[..inputs]);
        let (places, class_of) = (&mut self.at[..inputs], &mut self.class_of[..inputs]);
        for ((&key, &count), class_of) in self.mapped.iter().zip(counts).zip(class_of) {
            let at = probe::place(slots, shift, key);
            let fresh = slots[at].1 == 0;
            keys[classes] = key;
            places[classes] = at as u32;
            rows[classes] = 0;
            let class = if fresh { classes as u32 } else { slots[at].1 - 1 };
            slots[at] = (key, class + 1);
            // Changes go down as well.
            rows[class as usize] = rows[class as usize].wrapping_add(count);
            if CLASSES {
                *class_of = class;
            }
            classes += usize::from(fresh);
            if classes * 2 > width {
                places[..classes].iter().for_each(|&at| slots[at as usize].1 = 0);
                width *= 4;
                if self.slots.len() < width {
                    self.slots.resize(width, (K::ZERO, 0));
                }
                (slots, shift) = (&mut self.slots[..width], probe::shift(width));
                for class in 0..classes {
                    let at = probe::place(slots, shift, keys[class]);
                    slots[at] = (keys[class], class as u32 + 1);
                    places[class] = at as u32;
                }
            }
        }
        places[..classes].iter().for_each(|&at| slots[at as usize].1 = 0);
        (keys[..classes].to_vec(), rows[..classes].to_vec())
    }

    /// `keys` after some steps.
    pub(super) fn mapped(&mut self, keys: &[K], steps: &[Step<'_, K>]) -> &[K] {
        map_keys(keys, steps, &mut self.mapped);
        &self.mapped
    }

    /// Sums changes by their keys after some steps, and leaves out what comes to nothing.
    pub(super) fn changes(&mut self, keys: &[K], by: &[i32], steps: &[Step<'_, K>]) -> (Vec<K>, Vec<i32>) {
        map_keys(keys, steps, &mut self.mapped);
        let by: Vec<u32> = by.iter().map(|&by| by.cast_unsigned()).collect();
        let (keys, by) = self.sum::<false>(&by, usize::MAX);
        keys.into_iter().zip(by.into_iter().map(u32::cast_signed)).filter(|(_, by)| *by != 0).unzip()
    }

    /// The same where each class has a place of its own, and there are few: the classes in the order of their places.
    fn sum_few(&mut self, keys: &[K], counts: &[u32]) -> (Vec<K>, Vec<u32>) {
        let few = self.dense.places();
        let odd = if few <= BY_TURNS { few } else { 0 };
        self.places.resize((few + odd).max(self.places.len()), 0);
        let places = &mut self.places[..few + odd];
        let mut seen = 0;
        self.dense.each(keys, |indices| {
            let counts = &counts[seen..seen + indices.len()];
            for (indices, counts) in indices.chunks(2).zip(counts.chunks(2)) {
                places[indices[0] as usize] += counts[0];
                if let ([_, index], [_, count]) = (indices, counts) {
                    places[odd + *index as usize] += count;
                }
            }
            seen += indices.len();
        });
        let (places, others) = places.split_at_mut(few);
        places.iter_mut().zip(others.iter()).for_each(|(place, other)| *place += other);
        others.fill(0);
        let (low, high) = self.dense.keys::<K>();
        let most = keys.len().min(few);
        let (mut all, mut rows, mut classes) = (vec![K::ZERO; most + 1], vec![0; most + 1], 0);
        for (&high, places) in high.iter().zip(places.chunks(low.len())) {
            for (low, places) in low.chunks(STRIDE).zip(places.chunks(STRIDE)) {
                if places.iter().fold(0, |any, place| any | place) == 0 {
                    continue;
                }
                for (&low, &place) in low.iter().zip(places) {
                    all[classes] = low.or(high);
                    rows[classes] = place;
                    classes += usize::from(place != 0);
                }
            }
        }
        places.fill(0);
        all.truncate(classes);
        rows.truncate(classes);
        (all, rows)
    }

    /// The same of a set after some steps, where keys that agree from a bit on lie together.
    fn sum_near<const CLASSES: bool>(
        &mut self,
        finer: &FrequencySet<K>,
        steps: &[Step<'_, K>],
        below: u32,
    ) -> (Vec<K>, Vec<u32>) {
        let classes = if CLASSES { finer.keys.len() } else { 0 };
        self.class_of.resize(classes.max(self.class_of.len()), 0);
        let (first, rows) =
            self.near.sum::<CLASSES>(&self.dense, &finer.keys, &finer.rows, below, &mut self.class_of[..classes]);
        let mut keys = Vec::with_capacity(first.len());
        map_keys(first, steps, &mut keys);
        (keys, rows.to_vec())
    }
}

/// Up to how many places there are two tables, for keys by turns, so that the same place twice in a row does not wait for
/// itself. More do not stay in the nearest cache, and seldom are the same twice.
const BY_TURNS: usize = 1 << 11;

/// How many places are passed over at once if they are all empty. More are seldom all empty, fewer are asked about too often.
const STRIDE: usize = 8;

/// Merges the histograms of classes that became one.
pub(super) fn merge_facets(finer: &[FacetCounts], class_of: &[u32], classes: usize) -> Vec<FacetCounts> {
    if finer.is_empty() {
        return Vec::new();
    }
    let members = Members::new(class_of, classes);
    finer.iter().map(|facet| merge_facet(facet, &members, classes)).collect()
}

/// The finer classes of each class.
struct Members {
    starts: Vec<u32>,
    classes: Vec<u32>,
}

impl Members {
    fn new(class_of: &[u32], classes: usize) -> Self {
        let mut starts = vec![0u32; classes + 1];
        for &class in class_of.iter().filter(|class| **class != GONE) {
            starts[class as usize + 1] += 1;
        }
        (1..starts.len()).for_each(|i| starts[i] += starts[i - 1]);
        let mut next = starts.clone();
        let mut members = vec![0u32; starts[classes] as usize];
        for (finer, &class) in class_of.iter().enumerate().filter(|(_, class)| **class != GONE) {
            members[next[class as usize] as usize] = finer as u32;
            next[class as usize] += 1;
        }
        Self { starts, classes: members }
    }

    fn of(&self, class: usize) -> &[u32] {
        &self.classes[self.starts[class] as usize..self.starts[class + 1] as usize]
    }
}

/// With more codes than this a class has a few of very many, and they are sorted; with fewer they are read off a bit each.
/// Larger reads many empty words per class, smaller sorts what a few words would tell.
const WIDE: usize = 1 << 12;

fn merge_facet(finer: &FacetCounts, members: &Members, classes: usize) -> FacetCounts {
    let codes = finer.codes.iter().max().map_or(0, |&most| most as usize + 1);
    let mut counts = vec![0u32; codes];
    let mut present = vec![0u64; codes.min(WIDE).div_ceil(64)];
    let mut occurring: Vec<Code> = Vec::new();
    let mut entry_of = vec![GONE; if finer.subjects.is_some() { finer.codes.len() } else { 0 }];
    let mut merged = FacetCounts { starts: vec![0], ..FacetCounts::default() };
    merged.codes.reserve(finer.codes.len() / 2);
    merged.counts.reserve(finer.codes.len() / 2);
    for class in 0..classes {
        let entries = || members.of(class).iter().flat_map(|&member| finer.range(member as usize));
        for entry in entries() {
            let code = finer.codes[entry] as usize;
            if codes > WIDE && counts[code] == 0 {
                occurring.push(code as Code);
            } else if codes <= WIDE {
                present[code / 64] |= 1 << (code % 64);
            }
            counts[code] += finer.counts[entry];
        }
        occurring.sort_unstable();
        for (word, bits) in present.iter_mut().enumerate() {
            while *bits != 0 {
                occurring.push((word * 64) as Code + bits.trailing_zeros());
                *bits &= *bits - 1;
            }
        }
        for code in occurring.drain(..) {
            merged.codes.push(code);
            merged.counts.push(counts[code as usize]);
            // With subjects, from here on the entry that the code has become.
            counts[code as usize] = if finer.subjects.is_some() { merged.codes.len() as u32 - 1 } else { 0 };
        }
        if finer.subjects.is_some() {
            entries().for_each(|entry| entry_of[entry] = counts[finer.codes[entry] as usize]);
            entries().for_each(|entry| counts[finer.codes[entry] as usize] = 0);
        }
        merged.starts.push(merged.codes.len() as u32);
    }
    if let Some(subjects) = &finer.subjects {
        let subjects = subjects.merge(&entry_of, merged.codes.len());
        merged.counts = subjects.totals();
        merged.subjects = Some(subjects);
    }
    merged
}
