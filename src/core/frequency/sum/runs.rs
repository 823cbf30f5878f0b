//! Sums by place where keys that agree in their highest bits lie together, and have places of their own among each other only: the
//! table stays small however many classes there are.
//!
//! Which class was last in a place tells whether it is one of those at hand, so nothing has to be left clean. Nothing branches on
//! what is there either: each key is written behind the last class, and counts as a class or is overwritten by the next.

use super::places::Places;
use crate::frequency::key::ClassKey;

/// Its memory is kept from one use to the next.
#[derive(Debug)]
pub(crate) struct KeyRuns<K> {
    /// By place the last class that was there, counted through all uses from one on, and below that its rows.
    last: Vec<u64>,
    /// The next class.
    met: u32,
    /// By class the first of its keys, and the rows.
    first: Vec<K>,
    rows: Vec<u32>,
}

impl<K> Default for KeyRuns<K> {
    fn default() -> Self {
        Self { last: Vec::new(), met: 1, first: Vec::new(), rows: Vec::new() }
    }
}

impl<K: ClassKey> KeyRuns<K> {
    /// Sums `counts` by the places of `keys`, of which those that agree in all bits from `below` on lie together, and with `CLASSES`
    /// notes the class of each. Returns of each class the first key and the rows.
    pub(crate) fn sum<const CLASSES: bool>(
        &mut self,
        target: &Places,
        keys: &[K],
        counts: &[u32],
        below: u32,
        class_of: &mut [u32],
    ) -> (&[K], &[u32]) {
        let inputs = keys.len();
        if self.met.checked_add(inputs as u32).is_none() {
            self.last.fill(0);
            self.met = 1;
        }
        self.last.resize(target.places().max(self.last.len()), 0);
        self.first.resize(inputs.max(self.first.len()), K::ZERO);
        self.rows.resize(inputs.max(self.rows.len()), 0);
        let above = u64::MAX.checked_shl(below).unwrap_or(0);
        let group = keys.first().map_or(0, |key| key.word() & above);
        let start = u64::from(self.met) << u32::BITS;
        let mut run = Run { above, group, start, met: self.met, classes: 0 };
        let last = &mut self.last[..target.places()];
        let out = (&mut self.first[..inputs], &mut self.rows[..inputs]);
        let mut seen = 0;
        target.each(keys, |places| {
            let these = seen..seen + places.len();
            let class_of = if CLASSES { &mut class_of[these.clone()] } else { &mut [] };
            run.sum::<K, CLASSES>(places, (&keys[these.clone()], &counts[these]), last, (out.0, out.1), class_of);
            seen += places.len();
        });
        self.met += run.classes as u32;
        (&self.first[..run.classes], &self.rows[..run.classes])
    }
}

/// Where sums have come to.
#[derive(Clone, Copy)]
struct Run {
    /// The bits by which keys lie together, and those of the last key.
    above: u64,
    group: u64,
    /// The first class of those that have these bits, as it is in a place.
    start: u64,
    /// The first class of all.
    met: u32,
    classes: usize,
}

impl Run {
    /// A batch. A loop of its own, with all it needs at hand: what is read must not wait for what was just written elsewhere.
    fn sum<K: ClassKey, const CLASSES: bool>(
        &mut self,
        places: &[u32],
        (keys, counts): (&[K], &[u32]),
        last: &mut [u64],
        (first, rows): (&mut [K], &mut [u32]),
        class_of: &mut [u32],
    ) {
        let Self { above, mut group, mut start, met, mut classes } = *self;
        for (i, ((&place, &key), &count)) in places.iter().zip(keys).zip(counts).enumerate() {
            let next = key.word() & above;
            let another = (u64::from(met) + classes as u64) << u32::BITS;
            start = if next == group { start } else { another };
            group = next;
            let here = last[place as usize];
            let fresh = here < start;
            let here = if fresh { another } else { here } + u64::from(count);
            last[place as usize] = here;
            first[classes] = key;
            let class = (here >> u32::BITS) as u32 - met;
            rows[class as usize] = here as u32;
            if CLASSES {
                class_of[i] = class;
            }
            classes += usize::from(fresh);
        }
        *self = Self { above, group, start, met, classes };
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::frequency::key::Layout;
    use crate::frequency::sum::places::PlaceSizes;
    use crate::frequency::sum::step::Step;

    proptest! {
        /// Again and again with the same memory, whatever lies together, and where classes can no longer be counted through.
        #[test]
        fn it_sums_as_a_map_does(
            uses in prop::collection::vec((prop::collection::vec((0u32..5, 0u32..7, 0u32..3, 1u32..9), 1..700), 0u32..4), 1..5), many in any::<bool>(),
        ) {
            let layout = Layout::new(&[5, 7, 3]).unwrap();
            let mut runs = KeyRuns::<u32> { met: if many { u32::MAX - 400 } else { 1 }, ..KeyRuns::default() };
            for (rows, fields) in uses {
                let mut order = layout.fields().to_vec();
                order.sort_by_key(|field| field.end());
                let below = fields.checked_sub(1).map_or(0, |at| order[at as usize].end());
                let mut keys: Vec<(u32, u32)> = rows.iter().map(|&(a, b, c, rows)| (layout.pack(&[a, b, c]), rows)).collect();
                keys.sort_by_key(|(key, _)| key >> below);
                let (keys, counts): (Vec<u32>, Vec<u32>) = keys.into_iter().unzip();
                let mut target = Places::default();
                let sizes = [5, 7, 3];
                target.aim::<u32>(layout.fields(), PlaceSizes { from: &sizes, to: &sizes, below, keys: keys.len() }, &[] as &[Step<'_, u32>]);
                let mut class_of = vec![0; keys.len()];
                let mut twin: BTreeMap<u32, u32> = BTreeMap::new();
                keys.iter().zip(&counts).for_each(|(&key, &count)| *twin.entry(key).or_default() += count);
                let (first, sums) = runs.sum::<true>(&target, &keys, &counts, below, &mut class_of);
                prop_assert_eq!(first.len(), twin.len());
                prop_assert_eq!(first.iter().copied().zip(sums.iter().copied()).collect::<BTreeMap<_, _>>(), twin);
                prop_assert!(keys.iter().zip(&class_of).all(|(key, &class)| first[class as usize] == *key));
            }
        }
    }
}
