//! Sums by place, where every class of a node has a place of its own in a small flat table.
//!
//! Invariant: all places are zero between two uses.

use super::places::Places;
use crate::frequency::key::ClassKey;

/// Up to how many places there are two tables, for keys by turns, so that the same place twice in a row does not wait for
/// itself. More do not stay in the nearest cache, and seldom are the same twice.
const BY_TURNS: usize = 1 << 11;

/// How many places are passed over at once if they are all empty. More are seldom all empty, fewer are asked about too often.
const STRIDE: usize = 8;

/// The table.
#[derive(Debug, Default)]
pub(crate) struct Placed {
    rows: Vec<u32>,
}

impl Placed {
    /// Adds up the rows of `keys` by their places in `target`; whoever reads them zeroes them.
    pub(crate) fn rows<K: ClassKey>(&mut self, target: &Places, keys: &[K], counts: &[u32]) -> &mut [u32] {
        let few = target.places();
        let odd = if few <= BY_TURNS { few } else { 0 };
        self.rows.resize((few + odd).max(self.rows.len()), 0);
        let places = &mut self.rows[..few + odd];
        let mut seen = 0;
        target.each(keys, |indices| {
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
        places
    }

    /// The classes of `keys` in the order of their places in `target`.
    pub(crate) fn sum<K: ClassKey>(&mut self, target: &Places, keys: &[K], counts: &[u32]) -> (Vec<K>, Vec<u32>) {
        let few = target.places();
        let places = self.rows(target, keys, counts);
        let (low, high) = target.keys::<K>();
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
}
