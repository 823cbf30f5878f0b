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

    /// The schedule whose levels are these, step by step, `width` levels each; `None` if the last step is not complete, or there is none.
    fn from_levels(levels: &[Level], width: usize) -> Option<Self> {
        let complete = width > 0 && !levels.is_empty() && levels.len().is_multiple_of(width);
        complete.then(|| Self(levels.chunks(width).map(|step| Node::new(step.iter().copied())).collect()))
    }

    /// The levels of all steps, one step after the other.
    pub fn levels(&self) -> Vec<Level> {
        self.0.iter().flat_map(|node| node.levels().iter().copied()).collect()
    }

    /// The levels by which a plan names the schedule and the step at which its release starts, where that is said: those of all steps
    /// and once more those of that step.
    pub fn planned(&self, first: Option<usize>) -> Vec<Level> {
        let start = first.and_then(|first| self.0.get(first));
        self.levels().into_iter().chain(start.iter().flat_map(|node| node.levels().iter().copied())).collect()
    }

    /// The schedule that [`Schedule::planned`] named, and the step at which its release starts; `None` if the lattice does not permit it.
    pub fn from_plan(levels: &[Level], lattice: &Lattice) -> Option<(Self, Option<usize>)> {
        let named = Self::from_levels(levels, lattice.top().levels().len())?;
        // Only the last step of a schedule is the coarsest node.
        let (schedule, first) = match &*named.0 {
            [steps @ .., start] if steps.last() == Some(lattice.top()) => {
                (Self(steps.into()), Some(steps.iter().position(|step| step == start)?))
            }
            _ => (named, None),
        };
        schedule.fits(lattice).then_some((schedule, first))
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

    #[test]
    fn the_text_parses_back_and_names_the_schedule() {
        let lattice = Lattice::from_heights(&[2, 12]);
        let schedule = Schedule::new([Node::new([0, 1]), Node::new([0, 13]), Node::new([1, 10])], &lattice);
        assert_eq!(schedule.to_string(), "0,1;1,10;2,12");
        assert_eq!(schedule.to_string().parse(), Ok(schedule.clone()));
        assert!(schedule.fits(&lattice) && !schedule.fits(&Lattice::from_heights(&[3, 12])));
        assert_ne!(schedule.id(), Schedule::new([], &lattice).id());
        assert_eq!(Schedule::from_levels(&schedule.levels(), 2), Some(schedule.clone()));
        assert_eq!(Schedule::from_levels(&[1, 2, 3], 2), None);
        assert_eq!((schedule.finest(), schedule.coarsest()), (Node::new([0, 1]), &Node::new([2, 12])));
        for first in [None, Some(0), Some(1), Some(2)] {
            assert_eq!(Schedule::from_plan(&schedule.planned(first), &lattice), Some((schedule.clone(), first)));
        }
        assert_eq!(Schedule::from_plan(&[0, 1, 2, 12, 1, 1], &lattice), None, "no step to start at");
        assert_eq!(Schedule::from_plan(&[0, 1, 1, 10], &lattice), None, "not to the coarsest node");
        assert_eq!(Schedule::new([], &lattice).id(), "2,12".parse::<Schedule>().unwrap().id());
    }

    #[test]
    fn a_text_that_is_no_schedule_is_refused_by_position() {
        assert_eq!("0,1;2".parse::<Schedule>(), Err(ScheduleError::Width { step: 1 }));
        assert_eq!("0,1;2,x".parse::<Schedule>(), Err(ScheduleError::Level { step: 1 }));
        assert_eq!("".parse::<Schedule>(), Err(ScheduleError::Level { step: 0 }));
        assert_eq!("0,256".parse::<Schedule>(), Err(ScheduleError::Level { step: 0 }));
    }
}
