//! The schedule of a local recoding: lattice nodes in the order in which they are tried, from fine to the coarsest permitted node.
//!
//! Invariant: a schedule has at least one node, all nodes have the same number of levels, and the last node is the coarsest one that
//! the policy permits, so every record reaches a node at which as many records as possible look alike.
//! A schedule has a text form, which is what a reader gets, and a short id made from that text. Both say the same: the id reveals
//! nothing that the schedule itself does not show.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use super::lattice::{Lattice, Level, Node};

/// Nodes in the order in which they are tried.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Schedule(Arc<[Node]>);

/// Why a text is no schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// A level is not a number from 0 to 255.
    #[error("step {step} of the schedule has a level that is no number from 0 to 255")]
    Level {
        /// The step, counted from 0.
        step: usize,
    },
    /// A node has more or fewer levels than the first one.
    #[error("step {step} of the schedule has another number of levels than step 0")]
    Width {
        /// The step, counted from 0.
        step: usize,
    },
}

impl Schedule {
    /// The schedule of these nodes. The coarsest node of the lattice is appended unless it is the last node already; nodes outside the
    /// lattice are dropped.
    pub fn new(nodes: impl IntoIterator<Item = Node>, lattice: &Lattice) -> Self {
        let mut steps: Vec<Node> = nodes.into_iter().filter(|node| lattice.contains(node)).collect();
        if steps.last() != Some(lattice.top()) {
            steps.push(lattice.top().clone());
        }
        Self(steps.into())
    }

    /// The bytes by which a plan names the schedule, and the step at which its release starts where that is said: the finest and the coarsest
    /// level of each attribute, the number of steps, and the levels of all steps, of which that step is once more the last. Levels are digits
    /// of a mixed radix, as many in each word of 64 bits as fit, so a step takes hardly more bits than it takes to tell the nodes apart.
    pub fn planned(&self, first: Option<usize>) -> Vec<u8> {
        let (finest, coarsest) = (self.finest(), self.coarsest());
        let steps: Vec<&Node> = self.0.iter().chain(first.and_then(|first| self.0.get(first))).collect();
        let mut bytes = [finest.levels(), coarsest.levels(), &(steps.len() as u32).to_le_bytes()].concat();
        let (mut word, mut next) = (0, 1_u64);
        for (level, (finest, radix)) in
            steps.iter().flat_map(|step| step.levels().iter().zip(radices(&finest, coarsest)))
        {
            let (worth, is_new) = place(&mut next, radix);
            if is_new {
                bytes.extend_from_slice(&u64::to_le_bytes(word));
                word = 0;
            }
            word += u64::from(level - finest) * worth;
        }
        bytes.extend_from_slice(&word.to_le_bytes());
        bytes
    }

    /// The schedule that [`Schedule::planned`] named, and the step at which its release starts; `None` if the lattice does not permit it.
    pub fn from_plan(bytes: &[u8], lattice: &Lattice) -> Option<(Self, Option<usize>)> {
        let named = Self::unpacked(bytes, lattice.width())?;
        // Only the last step of a schedule is the coarsest node.
        let (schedule, first) = match &*named.0 {
            [steps @ .., start] if steps.last() == Some(lattice.top()) => {
                (Self(steps.into()), Some(steps.iter().position(|step| step == start)?))
            }
            _ => (named, None),
        };
        (schedule.fits(lattice) && schedule.planned(first) == bytes).then_some((schedule, first))
    }

    /// The steps of a plan for so many attributes; `None` if these bytes have none.
    fn unpacked(bytes: &[u8], width: usize) -> Option<Self> {
        let (finest, rest) = bytes.split_at_checked(width)?;
        let (coarsest, rest) = rest.split_at_checked(width)?;
        let (count, words) = rest.split_first_chunk()?;
        let count = u32::from_le_bytes(*count) as usize;
        // A step takes a bit at least, unless it is the only one, which may be named twice.
        if width == 0 || count == 0 || count > words.len() * 8 || finest.iter().zip(coarsest).any(|(a, b)| a > b) {
            return None;
        }
        let mut words = words.chunks(8).map(|word| Some(u64::from_le_bytes(word.try_into().ok()?)));
        let (mut word, mut next) = (words.next()??, 1_u64);
        let (finest, coarsest) = (Node::new(finest.iter().copied()), Node::new(coarsest.iter().copied()));
        let mut steps = Vec::with_capacity(count);
        for _ in 0..count {
            let mut levels = Vec::with_capacity(width);
            for (finest, radix) in radices(&finest, &coarsest) {
                let (worth, is_new) = place(&mut next, radix);
                if is_new {
                    word = words.next()??;
                }
                levels.push(finest + (word / worth % radix) as Level);
            }
            steps.push(Node::new(levels));
        }
        Some(Self(steps.into()))
    }

    /// The finest level of each attribute in any step.
    pub fn finest(&self) -> Node {
        let meet = |a: Node, b: &Node| Node::new(a.levels().iter().zip(b.levels()).map(|(a, b)| *a.min(b)));
        self.0.iter().fold(self.coarsest().clone(), meet)
    }

    /// The last step.
    pub fn coarsest(&self) -> &Node {
        &self.0[self.0.len() - 1]
    }

    /// The nodes in the order in which they are tried.
    pub fn steps(&self) -> &[Node] {
        &self.0
    }

    /// True if every node lies in the lattice and the last one is its coarsest.
    pub fn fits(&self, lattice: &Lattice) -> bool {
        self.0.last() == Some(lattice.top()) && self.0.iter().all(|node| lattice.contains(node))
    }

    /// Names the schedule: 16 hexadecimal digits of a hash of its text (FNV-1a), the same on every machine and in every build.
    pub fn id(&self) -> String {
        const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
        const PRIME: u64 = 0x0100_0000_01b3;
        let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(PRIME);
        format!("{:016x}", self.to_string().bytes().fold(BASIS, step))
    }
}

/// Per attribute the finest level, and how many levels there are from it to the coarsest.
fn radices(finest: &Node, coarsest: &Node) -> impl Iterator<Item = (Level, u64)> {
    finest.levels().iter().zip(coarsest.levels()).map(|(&finest, &coarsest)| (finest, u64::from(coarsest - finest) + 1))
}

/// What a one is worth at the place of the next digit, and whether that place is the first of another word. `next` is what the place
/// would be worth in the present word.
fn place(next: &mut u64, radix: u64) -> (u64, bool) {
    let is_new = next.checked_mul(radix).is_none();
    let worth = if is_new { 1 } else { *next };
    *next = worth * radix;
    (worth, is_new)
}

/// Levels with commas between them, nodes with semicolons between them: `0,0,1;0,2,1;3,2,1`.
impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (step, node) in self.0.iter().enumerate() {
            for (attribute, level) in node.levels().iter().enumerate() {
                let between = if attribute > 0 {
                    ","
                } else if step > 0 {
                    ";"
                } else {
                    ""
                };
                write!(f, "{between}{level}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Schedule({} steps, {})", self.0.len(), self.id())
    }
}

impl FromStr for Schedule {
    type Err = ScheduleError;

    fn from_str(text: &str) -> Result<Self, ScheduleError> {
        let node = |(step, node): (usize, &str)| {
            let levels: Result<Vec<Level>, _> = node.split(',').map(str::parse).collect();
            levels.map(Node::new).map_err(|_| ScheduleError::Level { step })
        };
        let steps = text.split(';').enumerate().map(node).collect::<Result<Vec<_>, _>>()?;
        let width = steps[0].levels().len();
        match steps.iter().position(|node| node.levels().len() != width) {
            Some(step) => Err(ScheduleError::Width { step }),
            None => Ok(Self(steps.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_text_parses_back_and_names_the_schedule() {
        let lattice = Lattice::from_heights(&[2, 12]);
        let schedule = Schedule::new([Node::new([0, 1]), Node::new([0, 13]), Node::new([1, 10])], &lattice);
        assert_eq!(schedule.to_string(), "0,1;1,10;2,12");
        assert_eq!(schedule.to_string().parse(), Ok(schedule.clone()));
        assert!(schedule.fits(&lattice) && !schedule.fits(&Lattice::from_heights(&[3, 12])));
        assert_ne!(schedule.id(), Schedule::new([], &lattice).id());
        assert_eq!((schedule.finest(), schedule.coarsest()), (Node::new([0, 1]), &Node::new([2, 12])));
        assert_eq!(Schedule::new([], &lattice).id(), "2,12".parse::<Schedule>().unwrap().id());
    }

    proptest! {
        #[test]
        fn a_plan_names_it_in_few_bits(
            levels in prop::collection::vec((0u8..9, prop_oneof![0u8..5, 0u8..247]), 1..12),
            steps in prop::collection::vec(prop::collection::vec(any::<u8>(), 12), 0..60),
            first in prop::option::of(0usize..60),
        ) {
            let lattice = Lattice::new(
                Node::new(levels.iter().map(|(min, _)| *min)),
                Node::new(levels.iter().map(|(min, span)| min + span)),
            );
            let level = |((min, span), at): (&(u8, u8), u8)| (u16::from(*min) + u16::from(at) % (u16::from(*span) + 1)) as u8;
            let steps = steps.into_iter().map(|step| Node::new(levels.iter().zip(step).map(level)));
            let schedule = Schedule::new(steps.filter(|step| step != lattice.top()), &lattice);
            let first = first.and_then(|first| schedule.steps().get(first));
            let first = first.and_then(|first| schedule.steps().iter().position(|step| step == first));
            let bytes = schedule.planned(first);
            prop_assert_eq!(Schedule::from_plan(&bytes, &lattice), Some((schedule.clone(), first)));
            // A word of 64 bits has space for less than a digit beside its own.
            let bits = |span: u8| (f64::from(span) + 1.0).log2();
            let highest = levels.iter().map(|(_, span)| bits(*span)).fold(0.0, f64::max);
            let step: f64 = levels.iter().map(|(_, span)| bits(*span)).sum();
            let steps = schedule.steps().len() + usize::from(first.is_some());
            let words = (step * steps as f64 / (64.0 - highest)).ceil().max(1.0) as usize;
            prop_assert!(bytes.len() <= 2 * levels.len() + 4 + 8 * words, "{} bytes", bytes.len());
        }

        #[test]
        fn a_plan_of_other_bytes_is_refused_and_never_panics(
            width in 1usize..4,
            bytes in prop::collection::vec(prop_oneof![0u8..3, any::<u8>()], 0..40),
        ) {
            let lattice = Lattice::from_heights(&vec![2; width]);
            if let Some((schedule, first)) = Schedule::from_plan(&bytes, &lattice) {
                prop_assert_eq!(schedule.planned(first), bytes);
            }
        }
    }

    #[test]
    fn a_plan_for_other_levels_is_refused() {
        let lattice = Lattice::from_heights(&[2, 12]);
        let bytes = Schedule::new([Node::new([0, 1]), Node::new([1, 10])], &lattice).planned(None);
        assert!(Schedule::from_plan(&bytes, &lattice).is_some());
        for heights in [&[2, 11][..], &[2, 13], &[3, 12], &[2], &[2, 12, 1]] {
            assert_eq!(Schedule::from_plan(&bytes, &Lattice::from_heights(heights)), None);
        }
        for length in 0..bytes.len() {
            assert_eq!(Schedule::from_plan(&bytes[..length], &lattice), None, "cut off after {length} bytes");
        }
    }

    #[test]
    fn a_text_that_is_no_schedule_is_refused_by_position() {
        assert_eq!("0,1;2".parse::<Schedule>(), Err(ScheduleError::Width { step: 1 }));
        assert_eq!("0,1;2,x".parse::<Schedule>(), Err(ScheduleError::Level { step: 1 }));
        assert_eq!("".parse::<Schedule>(), Err(ScheduleError::Level { step: 0 }));
        assert_eq!("0,256".parse::<Schedule>(), Err(ScheduleError::Level { step: 0 }));
    }
}
