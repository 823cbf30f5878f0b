//! A [`Step`]: how the code of one attribute changes from a finer set to a coarser one.

use crate::frequency::key::{ClassKey, KeyField};
use crate::model::domain::Code;

/// One attribute that changes: where its code lives, and the map from the finer level's codes to the coarser one's.
pub(crate) struct Step<'a, K> {
    /// The attribute's field.
    pub(crate) field: KeyField,
    /// The parent map, composed over all levels in between: by finer code the coarser one, already in its place in a key.
    /// Empty where all become code 0.
    pub(crate) map: &'a [K],
}

/// The map of a [`Step`] from one by codes.
pub(crate) fn in_place<K: ClassKey>(field: KeyField, codes: &[Code]) -> Vec<K> {
    if codes.iter().all(|code| *code == 0) {
        return Vec::new();
    }
    codes.iter().map(|&code| K::of(field, code)).collect()
}

/// Maps `keys`, attribute by attribute: one look-up each, and nothing else in the loop.
pub(crate) fn map_keys<K: ClassKey>(keys: &[K], steps: &[Step<'_, K>], into: &mut Vec<K>) {
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
