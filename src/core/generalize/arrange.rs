//! The order in which the rows of a release are sent: by a hash of what they show, and by nothing else.
//!
//! So the order is a function of the published rows alone. It says nothing about the order in which records were read, not even
//! where a kept value counts up; there is no secret to guess; and a release that is carried out again comes out the same. The
//! hash has no key and is written here, because another one would send a planned release in another order.

use std::cmp::Ordering;

use super::{GeneralizedBatch, RowRef};
use crate::model::batch::Rows;

impl GeneralizedBatch {
    /// The same rows in the order in which they are sent.
    #[must_use]
    pub fn arranged(mut self) -> Self {
        let classes: Vec<u64> = (0..self.class_count).map(|class| self.class_hash(class)).collect();
        let hash = |(&class, &row): (&u32, &RowRef)| self.row_hash(classes[class as usize], row);
        let hashes: Vec<u64> = self.classes.iter().zip(&self.order).map(hash).collect();
        let places = in_order(&hashes, |a, b| self.by_text(a, b));
        drop(hashes);
        self.classes = places.iter().map(|&at| self.classes[at as usize]).collect();
        self.order = places.iter().map(|&at| self.order[at as usize]).collect();
        self
    }

    fn class_hash(&self, class: usize) -> u64 {
        let texts = self.quasi.iter().zip(self.class_cells(class)).map(|(labels, &code)| labels.text(code));
        texts.fold(0, hash)
    }

    fn row_hash(&self, class: u64, row: RowRef) -> u64 {
        let (rows, i) = self.source(row);
        let texts = self.written.iter().zip(rows.written(i)).map(|(view, &code)| view.level(0).label(code));
        let texts = texts.chain(self.kept(rows, i));
        // Most batches show everything: no lookup for each value then.
        spread(match self.unseen.is_empty() {
            true => texts.fold(class, hash),
            false => self.seen(texts).fold(class, hash),
        })
    }

    /// Those of a row's values that its readers see, of all sensitive and then all kept ones.
    fn seen<'t>(&self, texts: impl Iterator<Item = &'t str>) -> impl Iterator<Item = &'t str> {
        texts.enumerate().filter(|(at, _)| !self.unseen.contains(at)).map(|(_, text)| text)
    }

    /// Rows of one hash that do not show the same are as good as never met; then their texts decide. Most are of one class, and
    /// show the same.
    fn by_text<'a>(&'a self, a: u32, b: u32) -> Ordering {
        let (a, b) = (a as usize, b as usize);
        let labels = |at: usize| self.quasi.iter().zip(self.cells(at)).map(|(labels, &code)| labels.text(code));
        let is_one = self.classes[a] == self.classes[b];
        let by_labels = if is_one { Ordering::Equal } else { labels(a).cmp(labels(b)) };
        let ((rows, i), (others, j)) = (self.source(self.order[a]), self.source(self.order[b]));
        // Equal codes have equal texts, and most rows of one hash have them: no text is looked up then. To compare texts of no length
        // can cost more than all the rest, where they lie nowhere.
        let (own, other) = (rows.kept_text(i), others.kept_text(j));
        let is_same = is_one && rows.written(i).iter().eq(others.written(j)) && own.len() == other.len();
        if is_same && (own.is_empty() || own == other) {
            return Ordering::Equal;
        }
        by_labels.then_with(|| {
            let written = |rows: &'a Rows, i: usize| {
                self.written.iter().zip(rows.written(i)).map(|(view, &code)| view.level(0).label(code))
            };
            let own = self.seen(written(rows, i).chain(self.kept(rows, i)));
            own.cmp(self.seen(written(others, j).chain(self.kept(others, j))))
        })
    }
}

const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// `state` after one more text.
#[inline]
fn hash(state: u64, text: &str) -> u64 {
    let step = |state: u64, word: u64| (state ^ word).wrapping_mul(MULTIPLIER).rotate_left(29);
    let mut words = text.as_bytes().chunks_exact(8);
    let whole = words
        .by_ref()
        .fold(state, |state, word| step(state, word.iter().fold(0, |word, &byte| word << 8 | u64::from(byte))));
    let rest = words.remainder().iter().fold(0, |word, &byte| word << 8 | u64::from(byte));
    // With its length, so that texts do not run into one another.
    step(step(whole, rest), text.len() as u64)
}

/// The same hash with every bit of it in the first bits, by which rows are put into buckets.
#[inline]
fn spread(hash: u64) -> u64 {
    let mixed = (hash ^ hash >> 32).wrapping_mul(MULTIPLIER);
    mixed ^ mixed >> 29
}

/// The places of hashes in ascending order; `tie` compares the places of equal ones.
pub(crate) fn in_order(hashes: &[u64], tie: impl Fn(u32, u32) -> Ordering) -> Vec<u32> {
    // About one to a bucket, so that next to nothing is left to compare.
    let shift = u64::BITS - hashes.len().next_power_of_two().ilog2().clamp(1, u32::BITS);
    let (mut places, ends) = in_buckets(hashes, shift);
    let mut start = 0;
    for end in ends {
        if end - start > 1 {
            let hash = |at: u32| hashes[at as usize];
            places[start as usize..end as usize]
                .sort_unstable_by(|&a, &b| hash(a).cmp(&hash(b)).then_with(|| tie(a, b)));
        }
        start = end;
    }
    places
}

/// The places of the hashes bucket by bucket, in linear time, and where each bucket ends. A bucket has the hashes that are alike but for
/// the last bits.
fn in_buckets(hashes: &[u64], shift: u32) -> (Vec<u32>, Vec<u32>) {
    let bucket = |hash: u64| (hash >> shift) as usize;
    // Where each begins; once its places are there, where it ends.
    let mut ends = vec![0u32; bucket(u64::MAX) + 1];
    hashes.iter().for_each(|&hash| ends[bucket(hash)] += 1);
    let mut start = 0;
    ends.iter_mut().for_each(|end| start += std::mem::replace(end, start));
    let mut places = vec![0u32; hashes.len()];
    for (&hash, at) in hashes.iter().zip(0..) {
        let end = &mut ends[bucket(hash)];
        places[*end as usize] = at;
        *end += 1;
    }
    (places, ends)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::model::hierarchy::{Hierarchy, PrefixSpec};
    use crate::model::lattice::Node;
    use crate::model::recoding::{Column, Recoding};
    use crate::model::schema::Role;
    use crate::search::fixture::{Table, policy};

    proptest! {
        /// Whatever the order of reading was, the same rows are sent in the same order.
        #[test]
        fn the_order_of_reading_does_not_show(
            people in prop::collection::vec((0u8..4, 0u8..3), 1..80).prop_shuffle(),
            level in 0u8..2,
            turns in any::<u64>(),
        ) {
            let shown = |people: &[(u8, u8)]| {
                let record = |(zip, job): &(u8, u8)| vec![format!("{zip}{zip}"), format!("j{job}")];
                let records: Vec<Vec<String>> = people.iter().map(record).collect();
                let zip = Hierarchy::prefix(PrefixSpec::new(2)).unwrap();
                let table = Table::new(policy(vec![("zip", zip)], &[("job", Role::Sensitive)], 1), &records);
                let columns: Vec<Arc<Column>> = Recoding::from(Node::new([level]))
                    .columns(&table.dictionaries.quasi).into_iter().map(Arc::new).collect();
                let order = (0..people.len() as u32).map(RowRef::Fresh).collect();
                let held = Arc::new(table.rows.filtered(|_| false));
                let batch = GeneralizedBatch::at(Arc::clone(&table.rows), held, order, &columns, &table.dictionaries).arranged();
                let text = |at: usize| {
                    let (rows, i) = batch.source(batch.order[at]);
                    let label = batch.quasi[0].text(batch.cells(at)[0]).to_owned();
                    (label, batch.sensitive[0].level(0).label(rows.sensitive(i)[0]).to_owned())
                };
                (0..batch.len()).map(text).collect::<Vec<_>>()
            };
            let mut turned = people.clone();
            turned.rotate_left((turns % people.len() as u64) as usize);
            turned.reverse();
            prop_assert_eq!(shown(&people), shown(&turned));
        }
    }
}
