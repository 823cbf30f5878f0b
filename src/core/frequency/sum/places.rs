//! The places of a node's classes in a flat table: nothing collides there, so nothing has to be looked for.
//!
//! A class's place counts through the codes of its attributes, those in the lowest bits fastest. Neighbouring attributes share one
//! look-up, by their bits in the key of a finer set, which maps them to the coarser codes on the way.
//! Invariant: different classes of the node that agree above a bit have different places, all below [`Places::places`].

use super::step::Step;
use crate::frequency::key::{ClassKey, KeyField, upwards};
use crate::model::domain::Code;

/// The most bits that attributes may share a look-up with. More make tables that are slow to fill, fewer more look-ups.
const SHARED_BITS: u32 = 13;

/// The most keys of the first list of [`keys_of`]. More do not stay in the nearest cache, fewer start the second too often.
const LOW: usize = 1 << 9;

/// How many places are worked out at a time; they stay in the nearest cache.
const BATCH: usize = 512;

/// The most places of a flat table. More do not stay in the caches; with fewer more nodes have to be looked up by key, which
/// is several times as slow.
const MAX_PLACES: usize = 1 << 20;

/// How many times more places than classes to sum such a table may have. More touch a page for every class or two.
const SPARE_PLACES: usize = 512;

/// Whether so many of a finer set are summed in a flat table of so many places.
pub(crate) fn is_flat(places: usize, finer: usize) -> bool {
    places <= MAX_PLACES.min(finer * SPARE_PLACES)
}

/// How many places there are for classes whose attributes have so many values.
pub(crate) fn places(values: impl Iterator<Item = usize>) -> usize {
    values.fold(1, usize::saturating_mul)
}

/// Where keys are looked up for their places.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PlaceSizes<'a> {
    /// By attribute, how many codes there are.
    pub(crate) from: &'a [usize],
    /// The same of the coarser classes.
    pub(crate) to: &'a [usize],
    /// Attributes from this bit on are told apart otherwise, and have no part in a place.
    pub(crate) below: u32,
    /// How many keys there are.
    pub(crate) keys: usize,
}

/// The way from keys of one set to places of another. Its memory is kept from one use to the next.
#[derive(Debug, Default)]
pub(crate) struct Places {
    groups: Vec<Group>,
    /// The tables of all groups.
    tables: Vec<u32>,
    places: usize,
    /// The attributes that places tell apart, the fastest first, and how many codes they have.
    digits: Vec<(KeyField, usize)>,
}

/// The keys of all places of some digits in their order: each of the second list with each of the first, which are the fastest.
pub(crate) fn keys_of<K: ClassKey>(digits: &[(KeyField, usize)]) -> (Vec<K>, Vec<K>) {
    let (mut low, mut high) = (vec![K::ZERO], vec![K::ZERO]);
    for &(field, codes) in digits {
        let list = if high.len() == 1 && low.len() * codes <= LOW { &mut low } else { &mut high };
        let lower = list.len();
        for code in 1..codes {
            let digit = K::of(field, code as Code);
            list.extend_from_within(..lower);
            list[code * lower..].iter_mut().for_each(|key| *key = key.or(digit));
        }
    }
    (low, high)
}

/// Attributes that share a look-up, and where its table is.
#[derive(Debug, Clone, Copy)]
struct Group {
    field: KeyField,
    start: usize,
}

impl Places {
    /// How many places there are.
    pub(crate) fn places(&self) -> usize {
        self.places
    }

    /// From keys of some fields; `steps` are those that change.
    pub(crate) fn aim<K: ClassKey>(&mut self, fields: &[KeyField], aim: PlaceSizes<'_>, steps: &[Step<'_, K>]) {
        self.groups.clear();
        self.tables.clear();
        self.digits.clear();
        self.places = 1;
        let mut open = false;
        for attribute in upwards(fields) {
            let (field, from, to) = (fields[attribute], aim.from[attribute], aim.to[attribute]);
            if field.end() > aim.below {
                break;
            }
            let step = steps.iter().find(|step| step.field == field);
            if to <= 1 {
                // Nothing to tell apart; bits that are zero in all keys are no hindrance to share a look-up across them.
                open &= from <= 1;
                continue;
            }
            let joined = if open { self.groups.last().and_then(|last| last.field.joined(field)) } else { None };
            match (joined, self.groups.last_mut()) {
                (Some(joined), Some(last))
                    if joined.bits() <= SHARED_BITS && from << (field.shift() - joined.shift()) <= aim.keys =>
                {
                    last.field = joined
                }
                _ => {
                    self.groups.push(Group { field, start: self.tables.len() });
                    self.tables.push(0);
                }
            }
            open = true;
            self.digits.push((field, to));
            let start = self.groups.last().map_or(0, |last| last.start);
            let shared = 1 << (field.shift() - self.groups.last().map_or(0, |last| last.field.shift()));
            self.tables.resize(start + shared * from, 0);
            // From the last code down, so that the first is changed when nobody needs it any more.
            for code in (0..from).rev() {
                let coarse = match step {
                    None => code,
                    Some(Step { map, .. }) => map.get(code).map_or(0, |key| key.get(field) as usize),
                };
                let (below, above) = self.tables[start..].split_at_mut(shared * code.max(1));
                let more = (coarse * self.places) as u32;
                if code == 0 {
                    below.iter_mut().for_each(|place| *place += more);
                } else {
                    above[..shared].iter_mut().zip(below).for_each(|(place, first)| *place = *first + more);
                }
            }
            self.places *= to;
        }
    }

    /// The keys of all places, as of [`keys_of`].
    pub(crate) fn keys<K: ClassKey>(&self) -> (Vec<K>, Vec<K>) {
        keys_of(&self.digits)
    }

    /// The places of `keys`, batch by batch.
    pub(crate) fn each<K: ClassKey>(&self, keys: &[K], see: impl FnMut(&[u32])) {
        match self.groups.len() {
            0..=2 => self.each_of::<K, 2>(keys, see),
            3 => self.each_of::<K, 3>(keys, see),
            4 => self.each_of::<K, 4>(keys, see),
            5 => self.each_of::<K, 5>(keys, see),
            6 => self.each_of::<K, 6>(keys, see),
            7..=8 => self.each_of::<K, 8>(keys, see),
            _ => self.each_of_many(keys, see),
        }
    }

    /// With fewer groups the others have one place, 0.
    fn each_of<K: ClassKey, const N: usize>(&self, keys: &[K], mut see: impl FnMut(&[u32])) {
        let mut fields = [KeyField::default(); N];
        let mut tables: [&[u32]; N] = [&[0]; N];
        for (at, (field, table)) in self.lookups().enumerate() {
            (fields[at], tables[at]) = (field, table);
        }
        let mut places = [0; BATCH];
        for keys in keys.chunks(BATCH) {
            for (place, key) in places.iter_mut().zip(keys) {
                // A loop and no iterator: it must be unrolled wherever this is built.
                *place = 0;
                for (table, &field) in tables.iter().zip(&fields) {
                    *place += table[key.get(field) as usize];
                }
            }
            see(&places[..keys.len()]);
        }
    }

    fn each_of_many<K: ClassKey>(&self, keys: &[K], mut see: impl FnMut(&[u32])) {
        let mut places = [0; BATCH];
        for keys in keys.chunks(BATCH) {
            let places = &mut places[..keys.len()];
            places.fill(0);
            for (field, table) in self.lookups() {
                places.iter_mut().zip(keys).for_each(|(place, key)| *place += table[key.get(field) as usize]);
            }
            see(places);
        }
    }

    fn lookups(&self) -> impl Iterator<Item = (KeyField, &[u32])> {
        let ends = self.groups.iter().skip(1).map(|group| group.start).chain([self.tables.len()]);
        self.groups.iter().zip(ends).map(|(group, end)| (group.field, &self.tables[group.start..end]))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::frequency::key::{Layout, Width};
    use crate::frequency::sum::step::in_place;
    use crate::model::domain::Code;

    /// The place of each key, and how many there are.
    fn places<K: ClassKey>(
        layout: &Layout,
        sizes: &[(usize, usize, usize)],
        maps: &[Vec<Code>],
        rows: &[Vec<Code>],
        below: u32,
    ) -> (Vec<u32>, usize) {
        let maps: Vec<Option<Vec<K>>> = (sizes.iter().zip(maps).enumerate())
            .map(|(a, (size, map))| (size.0 != size.1).then(|| in_place(layout.field(a), map)))
            .collect();
        let steps: Vec<Step<'_, K>> = (maps.iter().enumerate())
            .filter_map(|(a, map)| Some(Step { field: layout.field(a), map: map.as_deref()? }))
            .collect();
        let keys: Vec<K> = rows.iter().map(|codes| layout.pack(codes)).collect();
        let (from, to): (Vec<usize>, Vec<usize>) = sizes.iter().map(|size| (size.0, size.1)).unzip();
        let mut target = Places::default();
        let one = PlaceSizes { from: &[3], to: &[2], below: u32::MAX, keys: 9 };
        target.aim(&layout.fields()[..1], one, &[Step { field: layout.field(0), map: &[] as &[K] }]);
        target.aim(layout.fields(), PlaceSizes { from: &from, to: &to, below, keys: keys.len() }, &steps);
        let mut all = Vec::new();
        target.each(&keys, |places| all.extend_from_slice(places));
        (all, target.places())
    }

    proptest! {
        /// A place is the number that the coarser codes make, digit by digit from the lowest bits, however the keys are laid out.
        #[test]
        fn a_place_is_a_number_of_mixed_radix(
            sizes in prop::collection::vec((1usize..9, 1usize..9, 0usize..3000), 1..13), seed in any::<u64>(), n in 1usize..1200, part in any::<bool>(),
        ) {
            let sizes: Vec<(usize, usize, usize)> = sizes.into_iter().map(|(a, b, more)| (a.max(b), a.min(b), more)).collect();
            let layout = Layout::new(&sizes.iter().map(|size| size.0 + size.2).collect::<Vec<_>>()).unwrap();
            let draw = |i: usize, below: usize| (seed.rotate_left(i as u32 * 7).wrapping_mul(i as u64 + 3) >> 9) as usize % below;
            let maps: Vec<Vec<Code>> =
                sizes.iter().map(|size| (0..size.0).map(|code| draw(code, size.1) as Code).collect()).collect();
            let code = |a: usize, row: usize| draw(a * 31 + row, sizes[a].0) as Code;
            let rows: Vec<Vec<Code>> = (0..n).map(|row| (0..sizes.len()).map(|a| code(a, row)).collect()).collect();
            let below = if part { layout.field(draw(5, sizes.len())).end() } else { u32::MAX };
            let order: Vec<usize> =
                upwards(layout.fields()).into_iter().filter(|&a| layout.field(a).end() <= below).collect();
            let all = order.iter().map(|&a| sizes[a].1).fold(1, usize::saturating_mul);
            prop_assume!(all < 1 << 30);
            let place = |codes: &Vec<Code>| {
                let (mut place, mut stride) = (0, 1);
                for &a in &order {
                    let coarse = if sizes[a].0 == sizes[a].1 { codes[a] } else { maps[a][codes[a] as usize] };
                    place += coarse * stride;
                    stride *= sizes[a].1 as u32;
                }
                place
            };
            let expected = (rows.iter().map(place).collect::<Vec<u32>>(), all);
            let width = layout.width();
            if width == Width::W32 { prop_assert_eq!(&places::<u32>(&layout, &sizes, &maps, &rows, below), &expected); }
            if matches!(width, Width::W32 | Width::W64) { prop_assert_eq!(&places::<u64>(&layout, &sizes, &maps, &rows, below), &expected); }
            prop_assert_eq!(&places::<[u64; 16]>(&layout, &sizes, &maps, &rows, below), &expected);
        }
    }
}
