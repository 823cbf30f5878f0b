//! Visits every state that a model can reach, breadth first, so the first path to a broken promise is a shortest one.
//!
//! A state is remembered by a 64-bit hash of its content, with the step that led to it; the path of a finding is made again by
//! repeating these steps. Liveness is "whatever has happened, the goal can still be reached without another fault": the steps that are
//! no faults are followed backwards from all states that meet the goal.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, DefaultHasher, Hash, Hasher};

use rustc_hash::FxHasher;

/// A protocol as states and steps.
pub(crate) trait Model {
    type State: Clone + Hash;
    /// Every step that can be taken in a state.
    fn steps(&self, state: &Self::State) -> Vec<Step<Self::State>>;
    fn start(&self) -> Self::State;
    /// The promise that is broken in a state.
    fn broken(&self, state: &Self::State) -> Option<&'static str>;
    /// True if everything is published.
    fn is_done(&self, state: &Self::State) -> bool;
}

/// A step with the state after it.
pub(crate) struct Step<S> {
    pub(crate) name: &'static str,
    /// The number of the instance that takes it.
    pub(crate) by: usize,
    /// True if something fails that need not.
    pub(crate) fault: bool,
    pub(crate) next: S,
}

/// The extent of a search that has found nothing.
pub(crate) struct Visited {
    pub(crate) states: usize,
    pub(crate) steps: usize,
    /// The states in which everything is published.
    pub(crate) done: usize,
}

/// A broken promise, with the steps that lead to it.
#[derive(Debug)]
pub(crate) struct Finding {
    pub(crate) promise: &'static str,
    pub(crate) path: Vec<String>,
    pub(crate) states: usize,
}

/// The state that a state was first reached from, and the number of the step among all its steps.
#[derive(Clone, Copy)]
struct Reached {
    from: u32,
    step: u16,
}

pub(crate) const STUCK: &str = "I5";

pub(crate) fn explore<M: Model>(model: &M) -> Result<Visited, Finding> {
    let mut numbers: HashMap<u64, u32, BuildHasherDefault<FxHasher>> = HashMap::default();
    let (mut reached, mut waiting) = (Vec::new(), VecDeque::new());
    let (mut sound_steps, mut done, mut steps) = (Vec::new(), Vec::new(), 0);
    let start = model.start();
    numbers.insert(fingerprint(&start), 0);
    reached.push(Reached { from: 0, step: 0 });
    waiting.push_back((0u32, start));
    while let Some((number, state)) = waiting.pop_front() {
        if let Some(promise) = model.broken(&state) {
            return Err(Finding { promise, path: path(model, &reached, number), states: reached.len() });
        }
        if model.is_done(&state) {
            done.push(number);
        }
        for (step, Step { fault, next, .. }) in model.steps(&state).into_iter().enumerate() {
            steps += 1;
            let fresh = reached.len() as u32;
            let to = match numbers.entry(fingerprint(&next)) {
                Entry::Occupied(known) => *known.get(),
                Entry::Vacant(place) => {
                    place.insert(fresh);
                    reached.push(Reached { from: number, step: step as u16 });
                    waiting.push_back((fresh, next));
                    fresh
                }
            };
            if !fault && to != number {
                sound_steps.push((to, number));
            }
        }
    }
    match stuck(reached.len(), sound_steps, &done) {
        Some(number) => Err(Finding { promise: STUCK, path: path(model, &reached, number), states: reached.len() }),
        None => Ok(Visited { states: reached.len(), steps, done: done.len() }),
    }
}

fn fingerprint(state: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    state.hash(&mut hasher);
    hasher.finish()
}

/// The first state from which no state of `goals` can be reached.
fn stuck(states: usize, mut backwards: Vec<(u32, u32)>, goals: &[u32]) -> Option<u32> {
    backwards.sort_unstable();
    let mut live = vec![false; states];
    let mut waiting: Vec<u32> = goals.to_vec();
    goals.iter().for_each(|goal| live[*goal as usize] = true);
    while let Some(to) = waiting.pop() {
        let first = backwards.partition_point(|step| step.0 < to);
        for (_, from) in backwards[first..].iter().take_while(|step| step.0 == to) {
            if !std::mem::replace(&mut live[*from as usize], true) {
                waiting.push(*from);
            }
        }
    }
    live.iter().position(|live| !live).map(|number| number as u32)
}

fn path<M: Model>(model: &M, reached: &[Reached], last: u32) -> Vec<String> {
    let mut numbers = Vec::new();
    let mut at = last;
    while at != 0 {
        numbers.push(reached[at as usize].step);
        at = reached[at as usize].from;
    }
    let mut state = model.start();
    let mut path = Vec::new();
    for number in numbers.into_iter().rev() {
        let Step { name, by, next, .. } = model.steps(&state).swap_remove(number as usize);
        path.push(format!("{by}: {name}"));
        state = next;
    }
    path
}
