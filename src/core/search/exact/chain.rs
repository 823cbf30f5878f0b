//! A chain of nodes, and the search on it for where a monotone status turns.

use crate::frequency::set::Entropies;
use crate::model::lattice::{Level, Node};
use crate::search::TIE;
use crate::search::evaluator::Evaluator;

/// From `node` one level at a time up to `top`: first the steps that cost least by the bound and leave most values apart,
/// so that failing nodes on it are high and satisfying ones cheap. Attributes at or above the top stay.
pub(super) fn chain(evaluator: &Evaluator<'_>, prices: Option<&Prices>, top: &Node, node: &Node) -> Vec<Node> {
    let mut chain = vec![node.clone()];
    let mut last = node.clone();
    loop {
        let price = |attribute: usize| {
            let level = last.levels()[attribute];
            match prices {
                Some(prices) => prices.0[attribute][usize::from(level)],
                None => {
                    let cost = evaluator.lower_bound(&last.with(attribute, level + 1)) - evaluator.lower_bound(&last);
                    price(cost, narrowing(evaluator, attribute, level))
                }
            }
        };
        let open = |&attribute: &usize| last.levels()[attribute] < top.levels()[attribute];
        let prices = (0..top.levels().len()).filter(open).map(|attribute| (price(attribute), attribute));
        let Some((_, attribute)) = prices.min_by(|a, b| a.0.total_cmp(&b.0)) else { return chain };
        last.set(attribute, last.levels()[attribute] + 1);
        chain.push(last.clone());
    }
}

/// The prices of all steps, by attribute and level, where they depend on nothing else.
pub(super) struct Prices(Vec<Vec<f64>>);

impl Prices {
    pub(super) fn new(evaluator: &Evaluator<'_>, columns: &[Vec<f64>]) -> Self {
        let of = |(attribute, column): (usize, &Vec<f64>)| {
            let steps = column.windows(2).zip(0..);
            steps.map(|(costs, level)| price(costs[1] - costs[0], narrowing(evaluator, attribute, level))).collect()
        };
        Self(columns.iter().enumerate().map(of).collect())
    }
}

fn price(cost: f64, narrowing: f64) -> f64 {
    cost.max(TIE).powi(2) * narrowing
}

/// How much fewer values one more level leaves: the logarithm of the ratio. Never zero.
fn narrowing(evaluator: &Evaluator<'_>, attribute: usize, level: Level) -> f64 {
    let values = |level: Level| evaluator.sets().domains()[attribute].level(level).len().max(1) as f64;
    (values(level) / values(level + 1)).ln().max(1e-3)
}

/// Looks for the first node of a chain that is not excluded: from a guess outwards in growing steps, then by halves.
pub(super) struct Probe {
    low: usize,
    high: usize,
    at: usize,
    stride: usize,
    /// Whether a node was found that is not excluded, and one that is.
    bracketed: [bool; 2],
}

impl Probe {
    /// On a chain of `len` nodes, first at `guess`.
    pub(super) fn new(len: usize, guess: usize) -> Self {
        Self { low: 0, high: len, at: guess, stride: 1, bracketed: [false; 2] }
    }

    /// The place to look at next; none once it is known where the status turns.
    pub(super) fn next(&self) -> Option<usize> {
        (self.low < self.high).then(|| self.at.clamp(self.low, self.high - 1))
    }

    /// Tells what was seen at `at`.
    pub(super) fn tell(&mut self, at: usize, excluded: bool) {
        if excluded {
            self.low = at + 1
        } else {
            self.high = at
        }
        self.bracketed[usize::from(excluded)] = true;
        self.at = match (self.bracketed, excluded) {
            ([true, true], _) => self.low + (self.high - self.low) / 2,
            (_, true) => self.low + self.stride - 1,
            (_, false) => self.high.saturating_sub(self.stride),
        };
        self.stride *= 2;
    }

    /// The first that is not excluded; the length of the chain if all are.
    pub(super) fn turn(&self) -> usize {
        self.low
    }
}

/// Where on a chain the status is likely to turn: where about as much is told apart as where it turned before. Only decides
/// where to look first.
#[derive(Default)]
pub(super) struct Guess {
    /// The entropy, summed over attributes, at which it turned.
    turned: Option<f64>,
}

impl Guess {
    /// The highest node of the chain that is likely to be excluded.
    pub(super) fn on(&self, chain: &[Node], entropies: &Entropies) -> usize {
        match self.turned {
            Some(turned) => chain.partition_point(|node| entropies.sum(node.levels()) > turned).saturating_sub(1),
            None => chain.len() / 2,
        }
    }

    /// Notes the first node of a chain that is not excluded.
    pub(super) fn learn(&mut self, chain: &[Node], turns: usize, entropies: &Entropies) {
        if turns == 0 || turns == chain.len() {
            return;
        }
        let between = (entropies.sum(chain[turns - 1].levels()) + entropies.sum(chain[turns].levels())) / 2.0;
        self.turned = Some(self.turned.map_or(between, |before| before * 0.75 + between * 0.25));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_finds_the_turn_from_any_guess() {
        for len in 0..12 {
            for turn in 0..=len {
                for guess in 0..14 {
                    let mut probe = Probe::new(len, guess);
                    let mut looks = 0;
                    while let Some(at) = probe.next() {
                        probe.tell(at, at < turn);
                        looks += 1;
                        assert!(looks <= len);
                    }
                    assert_eq!(probe.turn(), turn);
                    assert!(guess + 1 != turn || looks <= 2);
                }
            }
        }
    }
}
