//! Tombstones: messages without a payload, and the records that wait which they retract.
//!
//! In its own partition a tombstone retracts the records before it that have its key, or whose subject is its key read as
//! text. Other partitions have no order with it, so there it retracts every record of that subject, and none by its key:
//! another topic's keys may name other things. So what is retracted is a function of the records of one release alone, and
//! a release that is carried out again comes out the same.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use rustc_hash::FxHashMap;

use crate::model::batch::Rows;
use crate::model::event::{Offset, Partition, Position};

/// Whom a tombstone names: keyed hashes, meaningless outside the process.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Retracts {
    /// Its key.
    pub key: u64,
    /// The subject of that name, where the policy has subjects and the key is a text.
    pub subject: Option<u64>,
}

impl fmt::Debug for Retracts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Retracts")
    }
}

/// The last tombstone in each partition, by the name that it has.
type Last = FxHashMap<u64, BTreeMap<Partition, Offset>>;

/// Some tombstones.
#[derive(Clone, Default)]
pub struct Tombstones {
    positions: Vec<Position>,
    keys: Last,
    subjects: Last,
}

impl fmt::Debug for Tombstones {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tombstones({})", self.positions.len())
    }
}

/// What a tombstone takes in the two tables, about.
const NAMED_BYTES: usize = 128;

impl Tombstones {
    /// Bytes held, about.
    pub fn bytes(&self) -> usize {
        self.positions.len() * (size_of::<Position>() + NAMED_BYTES)
    }

    /// One more.
    pub fn push(&mut self, position: Position, retracts: Retracts) {
        self.positions.push(position);
        keep_last(&mut self.keys, retracts.key, position);
        retracts.subject.into_iter().for_each(|subject| keep_last(&mut self.subjects, subject, position));
    }

    /// All those of another.
    pub fn append(&mut self, other: Self) {
        self.positions.extend(other.positions);
        for (to, from) in [(&mut self.keys, other.keys), (&mut self.subjects, other.subjects)] {
            for (name, last) in from {
                last.into_iter().for_each(|(partition, offset)| keep_last(to, name, Position { partition, offset }));
            }
        }
    }

    /// Removes those of some partitions.
    pub fn give_up(&mut self, partitions: &BTreeSet<Partition>) {
        self.positions.retain(|position| !partitions.contains(&position.partition));
        for last in [&mut self.keys, &mut self.subjects] {
            last.values_mut().for_each(|last| last.retain(|partition, _| !partitions.contains(partition)));
            last.retain(|_, last| !last.is_empty());
        }
    }

    /// Where they stand.
    pub fn positions(&self) -> &[Position] {
        &self.positions
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.positions.len()
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.positions.is_empty()
    }

    /// True if one of them retracts row i.
    pub fn retracts(&self, rows: &Rows, i: usize) -> bool {
        let Position { partition, offset } = rows.position(i);
        let by_key = || self.keys.get(&rows.key(i)?)?.get(&partition).filter(|last| **last > offset);
        let by_subject = |last: &BTreeMap<Partition, Offset>| last.iter().any(|(p, o)| *p != partition || *o > offset);
        by_key().is_some() || self.subjects.get(&rows.subject(i)).is_some_and(by_subject)
    }
}

fn keep_last(of: &mut Last, name: u64, position: Position) {
    let last = of.entry(name).or_default().entry(position.partition).or_insert(position.offset);
    *last = (*last).max(position.offset);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::batch::Row;
    use crate::model::event::Millis;

    #[test]
    fn keys_count_before_it_in_its_partition_and_subjects_everywhere_else_too() {
        let mut rows = Rows::new(0, 0);
        for (partition, offset, key, subject) in [
            (0, 1, 7, 50), // its key, before it
            (0, 2, 8, 60), // its subject, before it
            (0, 3, 8, 50), // neither
            (0, 5, 7, 60), // both, and behind it
            (1, 9, 7, 50), // its key in another partition
            (1, 9, 8, 60), // its subject in another partition
            (0, 1, 0, 50), // no key
        ] {
            let row = Row { key, subject, ..Row::default() };
            rows.push(Position::new(partition, offset), Millis(0), &row);
        }
        let mut tombstones = Tombstones::default();
        let retracted =
            |tombstones: &Tombstones| -> Vec<bool> { (0..rows.len()).map(|i| tombstones.retracts(&rows, i)).collect() };
        assert_eq!(retracted(&tombstones), [false; 7]);
        tombstones.push(Position::new(0, 2), Retracts { key: 9, subject: None });
        tombstones.push(Position::new(0, 4), Retracts { key: 7, subject: Some(60) });
        let expected = [true, true, false, false, false, true, false];
        assert_eq!(retracted(&tombstones), expected);
        let mut joined = Tombstones::default();
        joined.push(Position::new(0, 3), Retracts { key: 7, subject: Some(60) });
        joined.append(tombstones);
        assert_eq!((retracted(&joined), joined.len()), (expected.to_vec(), 3));
        assert_eq!(format!("{joined:?} {:?}", Retracts { key: 7, subject: None }), "Tombstones(3) Retracts");
    }
}
