//! `ql`, quality of granulation (Wang, Liao, Hsu 2007), as a loss 1 - ql.
//!
//! ql is the weighted mean over attributes of h(partition) / log |V|: the Shannon entropy of the partition that a level makes
//! of the attribute's declared domain V, all values of the domain alike, over the most it could be; see
//! [`Hierarchy::quality`](crate::model::hierarchy::Hierarchy::quality). It never depends on which values were met. Under a cut
//! the values that a hierarchy does not list are unknown until they are met: those that do not occur in the window count
//! as if published at the coarsest level that does. A record that is suppressed keeps nothing.

use std::sync::Arc;

use super::{Counted, LossMetric};
use crate::frequency::set::Classes;
use crate::model::domain::DomainView;
use crate::model::hierarchy::Hierarchy;
use crate::model::lattice::{Level, Node};
use crate::model::policy::{Policy, QuasiIdentifier};
use crate::model::recoding::{Column, GeneralizedValue};

/// The quality of every node of a policy.
pub struct Quality {
    attributes: Vec<Attribute>,
}

struct Attribute {
    hierarchy: Arc<Hierarchy>,
    /// Of all weights.
    weight: f64,
}

impl Quality {
    /// The quality of nodes by the hierarchies of `policy`.
    pub fn new(policy: &Policy) -> Self {
        let weights: f64 = policy.quasi.iter().map(|q| q.weight).sum();
        let of = |q: &QuasiIdentifier| Attribute { hierarchy: Arc::clone(&q.hierarchy), weight: q.weight / weights };
        Self { attributes: policy.quasi.iter().map(of).collect() }
    }

    /// ql of what these columns show; `shown` are the values that occur, attribute by attribute.
    pub(super) fn of_columns(&self, columns: &[Arc<Column>], shown: impl Fn(usize) -> Vec<GeneralizedValue>) -> f64 {
        let of = |(at, (own, column)): (usize, (&Attribute, &Arc<Column>))| match column.values() {
            None => own.weight * own.hierarchy.quality(column.value(0).level),
            Some(cut) if own.hierarchy.leaves().is_some() => own.kept_by(&cut, column.view()),
            Some(_) => own.kept_by(&shown(at), column.view()),
        };
        self.attributes.iter().zip(columns).enumerate().map(of).sum()
    }

    /// ql of the node, in [0, 1]; nothing suppressed.
    pub fn of(&self, node: &Node) -> f64 {
        self.attributes.iter().zip(node.levels()).map(|(a, &level)| a.weight * a.hierarchy.quality(level)).sum()
    }
}

impl Attribute {
    /// The quality that the cut with these published values keeps: each of the domain's values the entropy of its own block.
    fn kept_by(&self, values: &[GeneralizedValue], view: &DomainView) -> f64 {
        let coarsest = values.iter().map(|value| value.level).max().unwrap_or(0);
        let size = self.hierarchy.size().unwrap_or(f64::INFINITY);
        let leaves = |value: GeneralizedValue| view.level(value.level).leaves()[value.code as usize];
        let kept = |value: GeneralizedValue| leaves(value) / size * ((size / leaves(value)).ln() / size.ln());
        let gained = |&value: &GeneralizedValue| {
            let within = ancestor(value, coarsest, view);
            kept(value) - leaves(value) / leaves(within) * kept(within)
        };
        // A domain without an end, or of one value, has nothing between its values and its top.
        let gained: f64 = values.iter().map(gained).filter(|gained| gained.is_finite()).sum();
        self.weight * (self.hierarchy.quality(coarsest) + gained)
    }
}

fn ancestor(mut value: GeneralizedValue, level: Level, view: &DomainView) -> GeneralizedValue {
    while value.level < level {
        value.code = view.level(value.level).parent()[value.code as usize];
        value.level += 1;
    }
    value
}

pub(super) struct Ql {
    pub(super) quality: Quality,
    pub(super) domains: Vec<Arc<DomainView>>,
}

impl Ql {
    fn kept(&self, attribute: usize, classes: &dyn Classes) -> f64 {
        let own = &self.quality.attributes[attribute];
        match classes.values(attribute) {
            None => own.weight * own.hierarchy.quality(classes.node().levels()[attribute]),
            Some(cut) if own.hierarchy.leaves().is_some() => own.kept_by(cut, &self.domains[attribute]),
            Some(cut) => {
                let mut occurs = vec![false; cut.len()];
                (0..classes.len()).for_each(|class| occurs[classes.code(class, attribute) as usize] = true);
                let met: Vec<GeneralizedValue> =
                    cut.iter().zip(occurs).filter(|(_, occurs)| *occurs).map(|(v, _)| *v).collect();
                own.kept_by(&met, &self.domains[attribute])
            }
        }
    }
}

impl LossMetric for Ql {
    fn loss(&self, node: &Counted<'_>) -> f64 {
        let left_out: u64 = node.suppressed().map(|class| u64::from(node.classes.rows()[class])).sum();
        let published = 1.0 - left_out as f64 / node.records.max(1) as f64;
        let kept: f64 = (0..self.domains.len()).map(|attribute| self.kept(attribute, node.classes)).sum();
        1.0 - kept * published
    }

    fn lower_bound(&self, node: &Node) -> f64 {
        1.0 - self.quality.of(node)
    }
}

#[cfg(test)]
mod tests {
    use crate::model::hierarchy::{DateSpec, DateUnit, Hierarchy, IntervalSpec, PrefixSpec};
    use crate::model::policy::Loss;
    use crate::model::recoding::{Cut, Recoding};
    use crate::search::fixture::{Table, policy};

    /// Zip codes, ages, birthdays and a free text.
    fn table(earlier: &[[&str; 4]]) -> Table {
        let quasi = vec![
            ("zip", Hierarchy::prefix(PrefixSpec::new(3)).unwrap()),
            ("age", Hierarchy::intervals(IntervalSpec::new([5.into(), 20.into()], 0.into(), 99.into())).unwrap()),
            ("born", Hierarchy::dates(DateSpec::new([DateUnit::Day, DateUnit::Month, DateUnit::Year])).unwrap()),
            ("name", Hierarchy::trivial()),
        ];
        let records =
            [["120", "17", "1985-03-31", "x"], ["121", "19", "1985-04-01", "y"], ["340", "67", "1991-01-01", "y"]];
        let texts = |lines: &[[&str; 4]]| lines.iter().map(|line| line.map(String::from).to_vec()).collect::<Vec<_>>();
        Table::after(policy(quasi, &[], 1), &texts(earlier), &texts(&records))
    }

    /// The same window after nothing, and after others.
    fn histories() -> [Table; 2] {
        let others =
            [["555", "99", "2001-02-03", "a"], ["129", "18", "1985-03-02", "b"], ["122", "3", "1985-04-30", "c"]];
        [table(&[]), table(&others)]
    }

    #[test]
    fn a_window_is_worth_the_same_whatever_came_before() {
        let [first, later] = histories();
        let lattice = first.policy.lattice();
        for node in lattice.nodes() {
            let ql = |table: &Table| table.evaluator().loss_by(Loss::Ql, &node.clone().into());
            assert_eq!(ql(&first), ql(&later), "{node:?}");
        }
    }

    #[test]
    fn a_cut_is_worth_the_same_whatever_came_before() {
        // Zips under 1 as 12*, the others as ***; ages in fives up to 20, the others in twenties; the rest as it is.
        let cut = |table: &Table| {
            let views = &table.dictionaries.quasi;
            let by = |at: usize, level: &dyn Fn(&str) -> u8| {
                let labels = views[at].level(0).labels();
                Cut::new(&views[at], labels.map(level).collect::<Vec<_>>()).unwrap()
            };
            let zips = by(0, &|zip| if zip.starts_with('1') { 1 } else { 2 });
            let ages = by(1, &|age| if age.parse::<u8>().unwrap() < 20 { 1 } else { 2 });
            Recoding::Cuts(vec![zips, ages, by(2, &|_| 1), by(3, &|_| 0)])
        };
        let [first, later] = histories();
        let ql = |table: &Table| table.evaluator().loss_by(Loss::Ql, &cut(table));
        assert!((ql(&first) - ql(&later)).abs() < 1e-12, "{} {}", ql(&first), ql(&later));
    }
}
