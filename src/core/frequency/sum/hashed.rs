//! Sums by key in a flat open-addressing table that is kept from one sum to the next.
//!
//! Whether a key is new cannot be foreseen, so nothing branches on it: each key is written behind the last class, and
//! counts as a class or is overwritten by the next. A table that is left clean costs nothing to start with.
//! Invariant: every slot is free between two uses.

use super::probe;
use crate::frequency::key::ClassKey;

/// The table, and what it returns.
#[derive(Debug)]
pub(crate) struct Hashed<K> {
    /// The key, and its class plus one; zero where the slot is free.
    slots: Vec<(K, u32)>,
    /// The slot of each class.
    at: Vec<u32>,
    keys: Vec<K>,
    rows: Vec<u32>,
    /// Of the last sum that noted them, the class of each key.
    pub(crate) class_of: Vec<u32>,
}

impl<K> Default for Hashed<K> {
    fn default() -> Self {
        Self { slots: Vec::new(), at: Vec::new(), keys: Vec::new(), rows: Vec::new(), class_of: Vec::new() }
    }
}

/// Slots per expected class. More are further apart in memory; fewer collide more often.
const ROOM: usize = 3;

/// How many times fewer classes are expected than there were. Larger makes the table grow on the way more often; smaller
/// spreads few classes over much memory.
const SHRINKS: usize = 6;

impl<K: ClassKey> Hashed<K> {
    /// Sums `counts` by their keys, and with `CLASSES` notes the class of each. At most about `most` keys differ. Returns
    /// the classes in order of first appearance.
    pub(crate) fn sum<const CLASSES: bool>(&mut self, mapped: &[K], counts: &[u32], most: usize) -> (Vec<K>, Vec<u32>) {
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
        for ((&key, &count), class_of) in mapped.iter().zip(counts).zip(class_of) {
            let at = probe::place(slots, shift, key);
            let fresh = slots[at].1 == 0;
            keys[classes] = key;
            places[classes] = at as u32;
            rows[classes] = 0;
            let class = if fresh { classes as u32 } else { slots[at].1 - 1 };
            slots[at] = (key, class + 1);
            rows[class as usize] += count;
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
}
