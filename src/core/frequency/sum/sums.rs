//! [`Sums`]: picks the way in which classes are added up, and keeps the memory of all of them from one sum to the next.

use super::hashed::Hashed;
use super::placed::Placed;
use super::places::{PlaceSizes, Places, is_flat, places};
use super::runs::KeyRuns;
use super::step::{Step, map_keys};
use crate::frequency::key::{ClassKey, KeyField};

/// How many times as many places as finer classes a table may have that is looked through. More take longer to look through than the
/// classes to add up; fewer leave sums to slower ways.
const WIDEST: usize = 16;

/// The finer classes.
pub(crate) struct FinerClasses<'a, K> {
    pub(crate) fields: &'a [KeyField],
    pub(crate) keys: &'a [K],
    pub(crate) rows: &'a [u32],
    /// From which bit on the keys ascend.
    pub(crate) ascends_from: u32,
}

/// How many codes each attribute has, before and after the steps.
pub(crate) struct Codes<'a> {
    pub(crate) from: &'a [usize],
    pub(crate) to: &'a [usize],
}

/// The coarser classes.
pub(crate) struct Summed<K> {
    pub(crate) keys: Vec<K>,
    pub(crate) rows: Vec<u32>,
    /// The coarser class of each finer one; empty unless asked for.
    pub(crate) class_of: Vec<u32>,
}

/// The memory of all ways.
#[derive(Debug)]
pub(crate) struct Sums<K> {
    mapped: Vec<K>,
    target: Places,
    placed: Placed,
    runs: KeyRuns<K>,
    hashed: Hashed<K>,
}

impl<K> Default for Sums<K> {
    fn default() -> Self {
        let (target, placed) = (Places::default(), Placed::default());
        Self { mapped: Vec::new(), target, placed, runs: KeyRuns::default(), hashed: Hashed::default() }
    }
}

impl<K: ClassKey> Sums<K> {
    /// Adds up the classes that are one after some steps, and with `note` says which class each became. Without `codes` nothing is known
    /// of the result.
    pub(crate) fn sum(
        &mut self,
        input: &FinerClasses<'_, K>,
        steps: &[Step<'_, K>],
        codes: Option<Codes<'_>>,
        note: bool,
    ) -> Summed<K> {
        let Some(Codes { from, to }) = codes else {
            return self.hashed(input, steps, usize::MAX, note);
        };
        // Keys that agree in all bits above the steps lie together where they ascend so far.
        let below = steps.iter().map(|step| step.field.end()).fold(input.ascends_from, u32::max);
        let below =
            input.fields.iter().filter(|field| field.shift() < below).map(|field| field.end()).fold(below, u32::max);
        let inside = to.iter().zip(input.fields).filter(|(_, field)| field.end() <= below).map(|(&codes, _)| codes);
        let (all, keys) = (places(to.iter().copied()), input.keys.len());
        if !is_flat(places(inside), keys) {
            return self.hashed(input, steps, all, note);
        }
        let few = !note && all <= keys;
        let below = if few { u32::MAX } else { below };
        self.target.aim(input.fields, PlaceSizes { from, to, below, keys }, steps);
        match (few, note) {
            (true, _) => {
                let (keys, rows) = self.placed.sum(&self.target, input.keys, input.rows);
                Summed { keys, rows, class_of: Vec::new() }
            }
            (_, true) => self.in_runs::<true>(input, steps, below),
            (_, false) => self.in_runs::<false>(input, steps, below),
        }
    }

    /// Adds up the classes that are one after some steps in a flat table, and shows it: the rows of every class, and zeroes. `None` if
    /// the table would be too large to be looked through.
    pub(crate) fn flat<R>(
        &mut self,
        input: &FinerClasses<'_, K>,
        steps: &[Step<'_, K>],
        Codes { from, to }: Codes<'_>,
        see: impl FnOnce(&[u32]) -> R,
    ) -> Option<R> {
        let keys = input.keys.len();
        if places(to.iter().copied()) > keys.saturating_mul(WIDEST) {
            return None;
        }
        self.target.aim(input.fields, PlaceSizes { from, to, below: u32::MAX, keys }, steps);
        let rows = self.placed.rows(&self.target, input.keys, input.rows);
        let seen = see(rows);
        rows.fill(0);
        Some(seen)
    }

    /// `keys` after some steps.
    pub(crate) fn mapped(&mut self, keys: &[K], steps: &[Step<'_, K>]) -> &[K] {
        map_keys(keys, steps, &mut self.mapped);
        &self.mapped
    }

    fn hashed(&mut self, input: &FinerClasses<'_, K>, steps: &[Step<'_, K>], most: usize, note: bool) -> Summed<K> {
        map_keys(input.keys, steps, &mut self.mapped);
        let sum = if note { Hashed::sum::<true> } else { Hashed::sum::<false> };
        let (keys, rows) = sum(&mut self.hashed, &self.mapped, input.rows, most);
        let class_of = if note { self.hashed.class_of[..input.keys.len()].to_vec() } else { Vec::new() };
        Summed { keys, rows, class_of }
    }

    fn in_runs<const NOTE: bool>(
        &mut self,
        input: &FinerClasses<'_, K>,
        steps: &[Step<'_, K>],
        below: u32,
    ) -> Summed<K> {
        let mut class_of = vec![0; if NOTE { input.keys.len() } else { 0 }];
        let (first, rows) = self.runs.sum::<NOTE>(&self.target, input.keys, input.rows, below, &mut class_of);
        let mut keys = Vec::with_capacity(first.len());
        map_keys(first, steps, &mut keys);
        Summed { keys, rows: rows.to_vec(), class_of }
    }
}
