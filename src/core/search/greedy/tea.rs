//! The Taxonomy Encoded Anonymity index (Wang, Yu, Chakraborty 2004): the classes of a recoding as a tree with one level
//! per attribute, each path from the root to a leaf a class with its counts at the leaf.
//!
//! Every generalization "all children of v become v" is linked to the tree nodes below which it has something to do: a
//! segment is the run of siblings there that would become one. Applying it touches linked segments only.
//! Invariant: the leaves are the classes of the current cut, with exact counts, however many steps were applied.

use std::collections::BTreeSet;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use crate::frequency::set::{ClassTally, Classes};
use crate::model::domain::{Code, DomainView};
use crate::model::lattice::Level;
use crate::model::recoding::{Cut, GeneralizedValue};
use crate::privacy::{Class, Rule, RuleScope, Rules};

/// A value of a taxonomy, numbered over all levels.
pub(super) type ValueId = u32;
type NodeId = u32;

/// The values of one attribute from the leaves to the top, numbered through.
pub(super) struct Taxonomy {
    view: Arc<DomainView>,
    /// The number of the first code of each level, and one past the last.
    starts: Vec<ValueId>,
    /// Children that occur in the data, by value.
    children: Vec<Vec<ValueId>>,
    /// The value one level up, by value; itself at the top.
    parents: Vec<ValueId>,
}

impl Taxonomy {
    /// The taxonomy of `view`; `occurs` says which leaves the data hold.
    pub(super) fn new(view: &Arc<DomainView>, occurs: &[bool]) -> Self {
        let mut starts = vec![0];
        for level in 0..=view.height() {
            starts.push(starts[usize::from(level)] + view.level(level).len() as ValueId);
        }
        let parents = (0..=view.height()).zip(starts.clone()).flat_map(|(level, start)| {
            let (parent, above) = (view.level(level).parent(), starts[usize::from(level) + 1]);
            let own = 0..view.level(level).len();
            own.map(move |code| parent.get(code).map_or(start + code as ValueId, |parent| above + parent))
        });
        let parents = parents.collect();
        let mut taxonomy = Self { view: Arc::clone(view), starts, children: Vec::new(), parents };
        let mut occurs = occurs.to_vec();
        taxonomy.children = vec![Vec::new(); taxonomy.len()];
        for level in 0..view.height() {
            let mut above = vec![false; view.level(level + 1).len()];
            for code in (0..occurs.len()).filter(|&code| occurs[code]) {
                let value = taxonomy.id(GeneralizedValue { level, code: code as Code });
                above[view.level(level).parent()[code] as usize] = true;
                if let Some(parent) = taxonomy.parent(value) {
                    taxonomy.children[parent as usize].push(value);
                }
            }
            occurs = above;
        }
        taxonomy
    }

    /// How many values there are.
    pub(super) fn len(&self) -> usize {
        self.starts.last().map_or(0, |&end| end as usize)
    }

    /// The number of a value.
    pub(super) fn id(&self, value: GeneralizedValue) -> ValueId {
        self.starts[usize::from(value.level)] + value.code
    }

    /// The value of a number.
    pub(super) fn value(&self, id: ValueId) -> GeneralizedValue {
        let level = self.starts.partition_point(|&start| start <= id) - 1;
        GeneralizedValue { level: level as Level, code: id - self.starts[level] }
    }

    /// The number of a leaf.
    pub(super) fn leaf(&self, code: Code) -> ValueId {
        self.id(GeneralizedValue { level: 0, code })
    }

    /// The value one level up; `None` at the top.
    pub(super) fn parent(&self, id: ValueId) -> Option<ValueId> {
        Some(self.parents[id as usize]).filter(|parent| *parent != id)
    }

    /// The values above, from the parent to the top.
    pub(super) fn above(&self, id: ValueId) -> impl Iterator<Item = ValueId> + '_ {
        std::iter::successors(self.parent(id), |&id| self.parent(id))
    }

    /// The values one level down that occur in the data.
    pub(super) fn children(&self, id: ValueId) -> &[ValueId] {
        &self.children[id as usize]
    }

    /// The value that each leaf code has in a cut.
    pub(super) fn ids(&self, cut: &Cut) -> Vec<ValueId> {
        let maps: Vec<Vec<Code>> = (0..=self.view.height()).map(|level| self.view.between(0, level)).collect();
        let id =
            |(leaf, &level): (usize, &Level)| self.id(GeneralizedValue { level, code: maps[usize::from(level)][leaf] });
        cut.levels().iter().enumerate().map(id).collect()
    }
}

struct TreeNode {
    parent: NodeId,
    value: ValueId,
    children: FxHashMap<ValueId, NodeId>,
    /// At leaves only.
    tally: Option<ClassTally>,
    alive: bool,
}

/// The index.
pub(super) struct Tea<'a> {
    rules: &'a Rules,
    taxonomies: &'a [Taxonomy],
    nodes: Vec<TreeNode>,
    /// Per attribute and value v: the tree nodes with a child that "all children of v become v" would change.
    links: Vec<FxHashMap<ValueId, FxHashSet<NodeId>>>,
    /// How private each leaf is, with the leaf.
    degrees: BTreeSet<(u32, NodeId)>,
    /// True if the size of a class is all that the rules look at.
    by_size: bool,
    /// True if no class gets weaker when others are merged with it.
    grows: bool,
    failing_rows: u64,
    holding: u64,
    /// Tree nodes that were relabelled, moved or merged so far.
    touched: u64,
}

const ROOT: NodeId = 0;

/// How many classes go into the index between two looks at the clock. More: a short budget is overrun. Fewer: looking costs.
const ASK_EVERY: usize = 4096;

impl<'a> Tea<'a> {
    /// The classes of `start`, counted from the finest classes `base`. Level i of the tree is the attribute `order[i]`
    /// of the base, with `taxonomies[i]` and `start[i]`; from here on attributes go by their place in the tree. `None` if the
    /// time is over before it is built.
    pub(super) fn new(
        base: &dyn Classes,
        order: &[usize],
        taxonomies: &'a [Taxonomy],
        start: &[Cut],
        rules: &'a Rules,
        in_time: &dyn Fn() -> bool,
    ) -> Option<Self> {
        let root = TreeNode { parent: ROOT, value: 0, children: FxHashMap::default(), tally: None, alive: true };
        let mut tea = Self {
            rules,
            taxonomies,
            nodes: vec![root],
            links: vec![FxHashMap::default(); taxonomies.len()],
            degrees: BTreeSet::new(),
            by_size: rules.of(RuleScope::Class).all(|rule| rule.least_size().is_some()),
            grows: rules.monotone(false),
            failing_rows: 0,
            holding: 0,
            touched: 0,
        };
        let ids: Vec<Vec<ValueId>> = taxonomies.iter().zip(start).map(|(taxonomy, cut)| taxonomy.ids(cut)).collect();
        for (class, tally) in base.tallies().into_iter().enumerate() {
            if class % ASK_EVERY == 0 && !in_time() {
                return None;
            }
            let mut at = ROOT;
            for (attribute, ids) in ids.iter().enumerate() {
                at = tea.child(at, attribute, ids[base.code(class, order[attribute]) as usize]);
            }
            match &mut tea.nodes[at as usize].tally {
                Some(known) => known.merge(&tally),
                empty => *empty = Some(tally),
            }
        }
        for leaf in 0..tea.nodes.len() as NodeId {
            tea.enter(leaf);
        }
        Some(tea)
    }

    /// The degree of the weakest class; the smallest class where sizes are all that counts.
    #[cfg(test)]
    pub(super) fn smallest(&self) -> u32 {
        self.degrees.first().map_or(0, |(degree, _)| *degree)
    }

    /// Records in classes for which some rule does not hold.
    pub(super) fn failing_rows(&self) -> u64 {
        self.failing_rows
    }

    /// Classes for which every rule holds.
    pub(super) fn holding(&self) -> u64 {
        self.holding
    }

    /// Tree nodes that were relabelled, moved or merged so far.
    #[cfg(test)]
    pub(super) fn touched(&self) -> u64 {
        self.touched
    }

    /// The generalizations, at most one per attribute, that can make the weakest class better: those of the values of
    /// one weakest class. Any other leaves that class as it is.
    pub(super) fn may_be_critical(&self) -> Vec<(usize, ValueId)> {
        let Some(&(_, leaf)) = self.degrees.first() else { return Vec::new() };
        (0..self.taxonomies.len())
            .filter_map(|attribute| {
                Some((attribute, self.taxonomies[attribute].parent(self.value_of(leaf, attribute))?))
            })
            .collect()
    }

    /// The privacy gain when all children of `value` become `value`: by how much the weakest class gets better. Looks at classes from
    /// the weakest on, up to the first that is better by itself than what those before it become.
    pub(super) fn gain(&self, attribute: usize, value: ValueId) -> u32 {
        let Some(&(weakest, _)) = self.degrees.first() else { return 0 };
        let mut least = u32::MAX;
        for &(degree, leaf) in &self.degrees {
            if self.grows && degree >= least {
                break;
            }
            let becomes = self.merged_degree(leaf, attribute, value).unwrap_or(degree);
            if becomes <= weakest {
                return 0;
            }
            least = least.min(becomes);
        }
        least - weakest
    }

    /// The degree of the class that a leaf would be merged to; `None` if it stays as it is.
    fn merged_degree(&self, leaf: NodeId, attribute: usize, value: ValueId) -> Option<u32> {
        let (mut at, mut path) = (leaf, SmallVec::<[ValueId; 16]>::new());
        for _ in attribute + 1..self.taxonomies.len() {
            path.push(self.nodes[at as usize].value);
            at = self.nodes[at as usize].parent;
        }
        if self.taxonomies[attribute].parent(self.nodes[at as usize].value) != Some(value) {
            return None;
        }
        let below = |at: NodeId, value: &ValueId| self.nodes[at as usize].children.get(value).copied();
        let segment = self.segment(self.nodes[at as usize].parent, attribute, value);
        let leaves = segment.iter().filter_map(|&child| path.iter().rev().try_fold(child, below));
        let tallies: SmallVec<[&ClassTally; 8]> =
            leaves.filter_map(|leaf| self.nodes[leaf as usize].tally.as_ref()).collect();
        let (first, rest) = tallies.split_first().filter(|(_, rest)| !rest.is_empty())?;
        if self.by_size {
            return Some(ClassTally::merged_size(tallies.iter().copied()));
        }
        let mut merged = (*first).clone();
        rest.iter().for_each(|tally| merged.merge(tally));
        Some(self.degree(&merged))
    }

    /// Makes all children of `value` that occur `value`.
    pub(super) fn apply(&mut self, attribute: usize, value: ValueId) {
        let above = self.taxonomies[attribute].parent(value);
        for parent in self.links[attribute].remove(&value).unwrap_or_default() {
            let segment = self.segment(parent, attribute, value);
            let Some((&first, rest)) = segment.split_first() else { continue };
            self.touched += segment.len() as u64;
            for &node in &segment {
                let old = self.nodes[node as usize].value;
                self.nodes[parent as usize].children.remove(&old);
            }
            let merged = rest.iter().fold(first, |into, &node| self.merge(into, node, attribute + 1));
            self.nodes[merged as usize].value = value;
            self.nodes[parent as usize].children.insert(value, merged);
            if let Some(above) = above {
                self.links[attribute].entry(above).or_default().insert(parent);
            }
        }
    }

    /// The children of `parent` that are children of `value` in the taxonomy; none if it is gone.
    fn segment(&self, parent: NodeId, attribute: usize, value: ValueId) -> SmallVec<[NodeId; 8]> {
        let parent = &self.nodes[parent as usize];
        let below = self.taxonomies[attribute].children(value);
        if !parent.alive {
            SmallVec::new()
        } else if below.len() <= parent.children.len() {
            below.iter().filter_map(|child| parent.children.get(child).copied()).collect()
        } else {
            let taxonomy = &self.taxonomies[attribute];
            let inside = parent.children.iter().filter(|(id, _)| taxonomy.parent(**id) == Some(value));
            inside.map(|(_, &node)| node).collect()
        }
    }

    /// Merges two subtrees whose children are of `attribute`; the larger one survives, and the caller names it.
    fn merge(&mut self, a: NodeId, b: NodeId, attribute: usize) -> NodeId {
        if attribute == self.taxonomies.len() {
            self.touched += 1;
            self.leave(a);
            self.leave(b);
            self.nodes[b as usize].alive = false;
            if let Some(tally) = self.nodes[b as usize].tally.take()
                && let Some(into) = &mut self.nodes[a as usize].tally
            {
                into.merge(&tally);
            }
            self.enter(a);
            return a;
        }
        let larger =
            |a: NodeId, b: NodeId| self.nodes[a as usize].children.len() >= self.nodes[b as usize].children.len();
        let (into, from) = if larger(a, b) { (a, b) } else { (b, a) };
        self.nodes[from as usize].alive = false;
        for (value, child) in std::mem::take(&mut self.nodes[from as usize].children) {
            self.touched += 1;
            let survivor = match self.nodes[into as usize].children.get(&value) {
                Some(&same) => self.merge(same, child, attribute + 1),
                None => {
                    if let Some(above) = self.taxonomies[attribute].parent(value) {
                        self.links[attribute].entry(above).or_default().insert(into);
                    }
                    child
                }
            };
            self.nodes[survivor as usize].parent = into;
            self.nodes[survivor as usize].value = value;
            self.nodes[into as usize].children.insert(value, survivor);
        }
        into
    }

    /// How private a class is: its size, where the rules look at nothing else; otherwise how much of what is required it
    /// reaches, in thousandths, by the rule that it is furthest from.
    fn degree(&self, tally: &ClassTally) -> u32 {
        if self.by_size {
            return tally.size();
        }
        tally.with_histograms(|facets| {
            let class = Class { size: tally.size(), facets };
            let share = |rule: &dyn Rule| {
                let (reached, required) = (rule.measure(&class, &class), rule.required());
                if rule.at_most() { required / reached.max(f64::MIN_POSITIVE) } else { reached / required }
            };
            let least = self.rules.of(RuleScope::Class).map(share).fold(f64::INFINITY, f64::min);
            (least * 1000.0).clamp(0.0, f64::from(u32::MAX)) as u32
        })
    }

    fn child(&mut self, parent: NodeId, attribute: usize, value: ValueId) -> NodeId {
        if let Some(&known) = self.nodes[parent as usize].children.get(&value) {
            return known;
        }
        let id = self.nodes.len() as NodeId;
        self.nodes.push(TreeNode { parent, value, children: FxHashMap::default(), tally: None, alive: true });
        self.nodes[parent as usize].children.insert(value, id);
        if let Some(above) = self.taxonomies[attribute].parent(value) {
            self.links[attribute].entry(above).or_default().insert(parent);
        }
        id
    }

    /// Counts a leaf in.
    fn enter(&mut self, leaf: NodeId) {
        let Some(tally) = &self.nodes[leaf as usize].tally else { return };
        self.degrees.insert((self.degree(tally), leaf));
        match self.holds(tally) {
            true => self.holding += 1,
            false => self.failing_rows += u64::from(tally.rows()),
        }
    }

    /// Counts a leaf out.
    fn leave(&mut self, leaf: NodeId) {
        let Some(tally) = &self.nodes[leaf as usize].tally else { return };
        let degree = self.degree(tally);
        match self.holds(tally) {
            true => self.holding -= 1,
            false => self.failing_rows -= u64::from(tally.rows()),
        }
        self.degrees.remove(&(degree, leaf));
    }

    fn holds(&self, tally: &ClassTally) -> bool {
        tally.with_histograms(|facets| self.rules.hold_alone(&Class { size: tally.size(), facets }))
    }

    /// The value of one attribute in the class of a leaf.
    fn value_of(&self, leaf: NodeId, attribute: usize) -> ValueId {
        let mut at = leaf;
        for _ in attribute + 1..self.taxonomies.len() {
            at = self.nodes[at as usize].parent;
        }
        self.nodes[at as usize].value
    }
}

#[cfg(test)]
#[allow(clippy::type_complexity)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;
    use crate::frequency::store::FrequencySets;
    use crate::model::lattice::Node;
    use crate::model::recoding::Recoding;
    use crate::model::schema::Role;
    use crate::search::fixture::{Table, attributes, csv, policy, records, taxonomy};

    fn taxonomies(sets: &dyn FrequencySets) -> Vec<Taxonomy> {
        let base = sets.base();
        let of = |(attribute, view): (usize, &Arc<DomainView>)| {
            let mut occurs = vec![false; view.leaf_count()];
            (0..base.len()).for_each(|class| occurs[base.code(class, attribute) as usize] = true);
            Taxonomy::new(view, &occurs)
        };
        sets.domains().iter().enumerate().map(of).collect()
    }

    impl Tea<'_> {
        /// Every class as its labels with its size and its label histogram sizes.
        fn classes(&self) -> BTreeMap<Vec<String>, (u32, u32, Vec<Vec<(Code, u32)>>)> {
            let leaves = (0..self.nodes.len()).filter(|&n| self.nodes[n].alive && self.nodes[n].tally.is_some());
            let label = |leaf: usize, attribute: usize| {
                let taxonomy = &self.taxonomies[attribute];
                let GeneralizedValue { level, code } = taxonomy.value(self.value_of(leaf as NodeId, attribute));
                taxonomy.view.level(level).label(code).to_owned()
            };
            leaves
                .map(|leaf| {
                    let tally = self.nodes[leaf].tally.as_ref().unwrap();
                    let facets = tally.with_histograms(|facets| {
                        let pairs = |h: &crate::model::counting::Histogram<'_>| {
                            h.codes.iter().copied().zip(h.counts.iter().copied()).collect()
                        };
                        facets.iter().map(pairs).collect()
                    });
                    let labels = (0..self.taxonomies.len()).map(|a| label(leaf, a)).collect();
                    (labels, (tally.rows(), tally.size(), facets))
                })
                .collect()
        }

        fn named(&self, attribute: usize, label: &str) -> ValueId {
            let taxonomy = &self.taxonomies[attribute];
            let is = |&id: &ValueId| {
                let GeneralizedValue { level, code } = taxonomy.value(id);
                level > 0 && taxonomy.view.level(level).label(code) == label
            };
            (0..taxonomy.len() as ValueId).find(is).unwrap()
        }
    }

    /// The paper's example with its counts: 4 on the left-most path, 2 in each of the two anonymity qids, 7 and 4 once f2 is applied.
    fn example() -> Table {
        let quasi = vec![
            ("d1", csv("a1;e1;*\nb1;e1;*\nc1;f1;*\nd1;f1;*\n")),
            ("d2", csv("a2;e2;*\nb2;e2;*\nc2;f2;*\nd2;f2;*\n")),
            ("d3", csv("a3;e3';*\nb3;e3';*\nc3;f3;*\nd3;f3;*\ne3;g3;*\n")),
        ];
        let qids = [
            ("c1 b2 a3", 4),
            ("c1 b2 c3", 3),
            ("c1 b2 d3", 5),
            ("c1 c2 a3", 3),
            ("c1 c2 b3", 6),
            ("d1 c2 b3", 3),
            ("d1 c2 e3", 2),
            ("d1 d2 b3", 4),
            ("d1 d2 e3", 2),
        ];
        let rows: Vec<Vec<&str>> = qids.iter().flat_map(|(qid, n)| (0..*n).map(|_| qid.split(' ').collect())).collect();
        Table::new(policy(quasi, &[], 2), &rows)
    }

    #[test]
    fn the_papers_example() {
        let table = example();
        let sets = table.sets();
        let taxonomies = taxonomies(&*sets);
        let start = Recoding::Node(Node::new([0, 0, 0])).cuts(sets.domains());
        let order: Vec<usize> = (0..taxonomies.len()).collect();
        let mut tea = Tea::new(&*sets.base(), &order, &taxonomies, &start, &table.rules, &|| true).unwrap();
        assert_eq!((tea.classes().len(), tea.smallest(), tea.failing_rows()), (9, 2, 0));
        // {c2, d2} -> f2 merges both anonymity qids, and three is the next; {c3, d3} -> f3 concerns neither.
        let f2 = tea.named(1, "f2");
        assert_eq!((tea.gain(1, f2), tea.gain(2, tea.named(2, "f3"))), (1, 0));
        tea.apply(1, f2);
        let sizes: Vec<(String, u32)> =
            tea.classes().into_iter().map(|(labels, (_, size, _))| (labels.join(" "), size)).collect();
        let expected = [
            ("c1 b2 a3", 4),
            ("c1 b2 c3", 3),
            ("c1 b2 d3", 5),
            ("c1 f2 a3", 3),
            ("c1 f2 b3", 6),
            ("d1 f2 b3", 7),
            ("d1 f2 e3", 4),
        ];
        assert_eq!(sizes, expected.map(|(qid, n)| (qid.to_owned(), n)));
        // One relabelled below c1; two merged below d1 with two leaves each, none of c1's leaves.
        assert_eq!(tea.touched(), 3 + 2 * 2);
        // The next step there finds the segments that the first one left.
        tea.apply(1, tea.named(1, "e2"));
        tea.apply(1, tea.named(1, "*"));
        assert_eq!(tea.classes().get(["c1", "*", "a3"].map(String::from).as_slice()).unwrap().1, 7);
        // The segment {c1b2c3, c1b2d3} of f3, merged below <c1 *> by now.
        tea.apply(2, tea.named(2, "f3"));
        assert_eq!(tea.classes().get(["c1", "*", "f3"].map(String::from).as_slice()).unwrap().1, 8);
    }

    /// With more than sizes to look at, the weakest class is the one furthest from a rule, and PG is what it gains.
    #[test]
    fn the_privacy_gain_is_by_every_rule_about_classes() {
        let mut policy = policy(vec![("v", csv("a;x;*\nb;x;*\nc;y;*\nd;y;*\n"))], &[("s", Role::Sensitive)], 2);
        policy.criteria.push(crate::model::policy::Criterion::LDiversity {
            field: 0,
            l: 2.0,
            variant: crate::model::policy::Diversity::Distinct,
        });
        // All classes have two people; only that of `a` has one value.
        let rows = ["a 1", "a 1", "b 1", "b 2", "c 1", "c 2", "d 1", "d 2"].map(|line| line.split(' ').collect());
        let table = Table::new(policy, &rows);
        let sets = table.sets();
        let taxonomies = taxonomies(&*sets);
        let start = Recoding::Node(Node::new([0])).cuts(sets.domains());
        let tea = Tea::new(&*sets.base(), &[0], &taxonomies, &start, &table.rules, &|| true).unwrap();
        assert_eq!((tea.smallest(), tea.failing_rows()), (500, 2));
        assert_eq!((tea.gain(0, tea.named(0, "x")), tea.gain(0, tea.named(0, "y"))), (500, 0));
    }

    #[test]
    fn a_step_costs_what_it_touches() {
        // 40 values of the first attribute, each with 50 classes below; the step concerns two of the 40.
        let first: String = (0..40).map(|i| format!("v{i};g{};*\n", i / 2)).collect();
        let second: String = (0..50).map(|i| format!("w{i};*\n")).collect();
        let rows: Vec<Vec<String>> =
            (0..40).flat_map(|v| (0..50).map(move |w| vec![format!("v{v}"), format!("w{w}")])).collect();
        let table = Table::new(policy(vec![("v", csv(&first)), ("w", csv(&second))], &[], 2), &rows);
        let sets = table.sets();
        let taxonomies = taxonomies(&*sets);
        let start = Recoding::Node(Node::new([0, 0])).cuts(sets.domains());
        let order: Vec<usize> = (0..taxonomies.len()).collect();
        let mut tea = Tea::new(&*sets.base(), &order, &taxonomies, &start, &table.rules, &|| true).unwrap();
        tea.apply(0, tea.named(0, "g7"));
        // Two siblings, and per class below one visit and one merge: 100 of 2,000 qids are concerned.
        assert_eq!(tea.touched(), 2 + 2 * 50);
        assert_eq!(tea.classes().len(), 1950);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]
        #[test]
        fn the_index_is_a_naive_recount(
            texts in prop::collection::vec(taxonomy(8), 1..4), seed in any::<u64>(), n in 1_usize..60,
            people in 1_u64..40, steps in prop::collection::vec(any::<u32>(), 0..12),
        ) {
            let records = records(&texts, &[("s", 3), ("p", people)], n, seed);
            let mut policy = policy(attributes(&texts), &[("s", Role::Sensitive), ("p", Role::Subject)], 3);
            policy.criteria.push(crate::model::policy::Criterion::LDiversity {
                field: 0, l: 2.0, variant: crate::model::policy::Diversity::Distinct,
            });
            let mut table = Table::new(policy, &records);
            // People per value, of which distinct l-diversity alone asks nothing.
            table.rules = table.rules.clone().also_counting([crate::model::counting::Facet::Sensitive(0)]);
            let sets = table.sets();
            let base = sets.base();
            let taxonomies = taxonomies(&*sets);
            let start = Recoding::Node(Node::new(texts.iter().map(|_| 0))).cuts(sets.domains());
            let order: Vec<usize> = (0..taxonomies.len()).collect();
            let mut tea = Tea::new(&*base, &order, &taxonomies, &start, &table.rules, &|| true).unwrap();
            let mut in_cut: Vec<BTreeSet<ValueId>> = taxonomies.iter().enumerate().map(|(a, taxonomy)| {
                (0..base.len()).map(|class| taxonomy.id(GeneralizedValue { level: 0, code: base.code(class, a) })).collect()
            }).collect();
            for step in steps {
                let possible: Vec<(usize, ValueId)> = taxonomies.iter().enumerate().flat_map(|(a, taxonomy)| {
                    let cut = &in_cut[a];
                    let whole = move |v: &ValueId| {
                        !taxonomy.children(*v).is_empty() && taxonomy.children(*v).iter().all(|c| cut.contains(c))
                    };
                    (0..taxonomy.len() as ValueId).filter(whole).map(move |v| (a, v))
                }).collect();
                if possible.is_empty() { break }
                let (a, value) = possible[step as usize % possible.len()];
                let smallest = tea.smallest();
                let gains: Vec<u32> = possible.iter().map(|&(a, v)| tea.gain(a, v)).collect();
                let may: BTreeSet<_> = tea.may_be_critical().into_iter().collect();
                for (g, gain) in possible.iter().zip(&gains) {
                    prop_assert!(*gain == 0 || may.contains(g), "a critical step that is not asked for");
                }
                let gain = tea.gain(a, value);
                tea.apply(a, value);
                for child in taxonomies[a].children(value) { in_cut[a].remove(child); }
                in_cut[a].insert(value);
                prop_assert_eq!(tea.smallest(), smallest + gain);
                // From the rows alone.
                let mut naive: BTreeMap<Vec<String>, Vec<usize>> = BTreeMap::new();
                for i in 0..table.rows.len() {
                    let labels = taxonomies.iter().enumerate().map(|(a, taxonomy)| {
                        let leaf = taxonomy.id(GeneralizedValue { level: 0, code: table.rows.quasi(i)[a] });
                        let id = std::iter::once(leaf).chain(taxonomy.above(leaf)).find(|v| in_cut[a].contains(v)).unwrap();
                        let GeneralizedValue { level, code } = taxonomy.value(id);
                        taxonomy.view.level(level).label(code).to_owned()
                    }).collect();
                    naive.entry(labels).or_default().push(i);
                }
                let counted = naive.into_iter().map(|(labels, rows)| {
                    let people: BTreeSet<u64> = rows.iter().map(|&i| table.rows.subject(i)).collect();
                    let mut by_code: BTreeMap<Code, BTreeSet<u64>> = BTreeMap::new();
                    for &i in &rows {
                        by_code.entry(table.rows.sensitive(i)[0]).or_default().insert(table.rows.subject(i));
                    }
                    let facet = by_code.into_iter().map(|(code, people)| (code, people.len() as u32)).collect();
                    (labels, (rows.len() as u32, people.len() as u32, vec![facet]))
                }).collect();
                let classes: BTreeMap<Vec<String>, (u32, u32, Vec<Vec<(Code, u32)>>)> = tea.classes();
                let holds = |class: &(u32, u32, Vec<Vec<(Code, u32)>>)| class.1 >= 3 && class.2[0].len() >= 2;
                let failing: u64 = classes.values().filter(|c| !holds(c)).map(|c| u64::from(c.0)).sum();
                prop_assert_eq!(tea.failing_rows(), failing);
                prop_assert_eq!(tea.holding() as usize, classes.values().filter(|c| holds(c)).count());
                prop_assert_eq!(classes, counted);
            }
        }
    }
}
