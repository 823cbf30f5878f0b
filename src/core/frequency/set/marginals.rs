//! Marginals: the records by the codes of each attribute. Neighbouring attributes are counted together, by their bits in the key, so that a
//! key is looked at a few times and not once per attribute.

use crate::frequency::key::{ClassKey, KeyField, upwards};

/// The most bits that are counted together. More do not stay in the nearest cache, fewer look at a key more often.
const SHARED_BITS: u32 = 13;

/// Records by attribute and code of classes with their keys and records; `codes` says how many codes an attribute has.
pub(crate) fn marginals<K: ClassKey>(fields: &[KeyField], keys: &[K], rows: &[u32], codes: &[usize]) -> Vec<Vec<u64>> {
    let mut marginals: Vec<Vec<u64>> = codes.iter().map(|&codes| vec![0; codes]).collect();
    let order = upwards(fields);
    let mut first = 0;
    while first < fields.len() {
        let (mut shared, mut end) = (fields[order[first]], first + 1);
        while let Some(joined) = order.get(end).and_then(|&attribute| shared.joined(fields[attribute]))
            && joined.bits() <= SHARED_BITS
            && keys.len() >> joined.bits() > 0
        {
            (shared, end) = (joined, end + 1);
        }
        let highest = order[end - 1];
        let values = codes[highest].max(1) << (fields[highest].shift() - shared.shift());
        let mut counts = counted(keys, rows, shared, values);
        // From the highest attribute down, of which each code is followed by all that is below it.
        for &attribute in order[first..end].iter().rev() {
            let below = 1 << (fields[attribute].shift() - shared.shift());
            let sums = counts.chunks(below).map(|counts| counts.iter().map(|&rows| u64::from(rows)).sum::<u64>());
            marginals[attribute].iter_mut().zip(sums).for_each(|(rows, sum)| *rows = sum);
            let (all, others) = counts.split_at_mut(below);
            for others in others.chunks(below) {
                all.iter_mut().zip(others).for_each(|(all, other)| *all += other);
            }
            counts.truncate(below);
        }
        first = end;
    }
    marginals
}

/// The records by the value of a field, which has so many; its bits may hold far more. Two tables by turns, so that the same value twice
/// in a row does not wait for itself.
fn counted<K: ClassKey>(keys: &[K], rows: &[u32], field: KeyField, values: usize) -> Vec<u32> {
    // No window holds more records than a count of 32 bits.
    let (mut even, mut odd) = (vec![0u32; values], vec![0u32; values]);
    let ((keys, last_key), (rows, last_rows)) = (keys.as_chunks::<2>(), rows.as_chunks::<2>());
    for (keys, rows) in keys.iter().zip(rows) {
        even[keys[0].get(field) as usize] += rows[0];
        odd[keys[1].get(field) as usize] += rows[1];
    }
    last_key.iter().zip(last_rows).for_each(|(key, rows)| even[key.get(field) as usize] += rows);
    even.iter_mut().zip(odd).for_each(|(even, odd)| *even += odd);
    even
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::frequency::key::Layout;
    use crate::model::domain::Code;

    proptest! {
        /// Together or one by one, from many keys or few, and wherever the fields lie.
        #[test]
        fn each_attribute_is_counted(
            sizes in prop::collection::vec(1usize..3000, 1..12), keys in prop::collection::vec((any::<u64>(), 0u32..9), 0..3000), few in any::<bool>(),
        ) {
            let sizes: Vec<usize> = sizes.into_iter().map(|size| if few { size % 9 + 1 } else { size }).collect();
            let layout = Layout::new(&sizes).unwrap();
            let code = |draw: u64, a: usize| (draw.rotate_left(a as u32 * 9) % sizes[a] as u64) as Code;
            let codes: Vec<Vec<Code>> = keys.iter().map(|&(draw, _)| (0..sizes.len()).map(|a| code(draw, a)).collect()).collect();
            let rows: Vec<u32> = keys.iter().map(|&(_, rows)| rows).collect();
            let mut twin: Vec<Vec<u64>> = sizes.iter().map(|&size| vec![0; size]).collect();
            for (codes, &rows) in codes.iter().zip(&rows) {
                codes.iter().zip(&mut twin).for_each(|(&code, twin)| twin[code as usize] += u64::from(rows));
            }
            let wide: Vec<[u64; 16]> = codes.iter().map(|codes| layout.pack(codes)).collect();
            prop_assert_eq!(&marginals(layout.fields(), &wide, &rows, &sizes), &twin);
            if layout.bits().is_some_and(|bits| bits <= 32) {
                let narrow: Vec<u32> = codes.iter().map(|codes| layout.pack(codes)).collect();
                prop_assert_eq!(&marginals(layout.fields(), &narrow, &rows, &sizes), &twin);
            }
        }
    }
}
