//! The dictionary of one attribute: leaf values as codes, and for every level the labels, parents and losses of its codes.
//!
//! Invariants: codes are never reused or moved; within a level a label has one code; a [`DomainView`] never changes. One writer
//! grows a [`Domain`] and hands out views. `Debug` shows counts only, for the labels of leaves are values that were read.

use std::fmt;
use std::sync::Arc;

use super::hierarchy::Hierarchy;
pub use super::hierarchy::table::{Code, LevelTable};
use super::hierarchy::table::{Index, LabelTable, hash_of};
use super::lattice::Level;

/// The leaves seen so far under one hierarchy, and their generalizations. Hierarchies that list their leaves are complete from
/// the start, in their own order; the others grow.
pub struct Domain {
    hierarchy: Arc<Hierarchy>,
    view: Arc<DomainView>,
    /// Per level below the top, for hierarchies that grow.
    indexes: Vec<Index>,
    spellings: Spellings,
    alternatives: Option<Others>,
}

/// The domains of the other chains of a hierarchy with alternatives, beside that of the first. All have the same leaves with the same
/// codes.
struct Others {
    declared: Arc<Hierarchy>,
    domains: Vec<Domain>,
}

impl Domain {
    /// The domain of a hierarchy.
    pub fn new(hierarchy: Arc<Hierarchy>) -> Self {
        if let Some(any) = hierarchy.alternatives() {
            let mut domains: Vec<Self> = any.chains().iter().map(|chain| Self::new(Arc::clone(chain))).collect();
            let first = domains.remove(0);
            return Self { alternatives: Some(Others { declared: hierarchy, domains }), ..first };
        }
        let height = usize::from(hierarchy.height());
        let (levels, indexes) = match hierarchy.closed() {
            Some(closed) => (closed.levels.clone(), Vec::new()),
            None => {
                let mut levels: Vec<_> = (0..height).map(|_| Arc::default()).collect();
                let leaves = vec![hierarchy.open_leaves("", hierarchy.height())];
                let mut top = LevelTable { loss: vec![1.0], leaves, ..LevelTable::default() };
                top.labels.push(hierarchy.top_label());
                levels.push(Arc::new(top));
                (levels, vec![Index::default(); height])
            }
        };
        let view = Arc::new(DomainView { levels, top: None, chains: None });
        Self { hierarchy, view, indexes, spellings: Spellings::default(), alternatives: None }
    }

    /// The code of a value given as canonical text; `None` if it is outside the hierarchy, or if 4 GiB of labels are full. A leaf
    /// in its usual spelling costs one lookup and allocates nothing.
    pub fn code(&mut self, text: &str) -> Option<Code> {
        let code = self.first_code(text)?;
        self.add_to_others()?;
        Some(code)
    }

    /// The code of a value in the first chain.
    fn first_code(&mut self, text: &str) -> Option<Code> {
        let hash = hash_of(text);
        let direct = self.hierarchy.reads_its_labels();
        if direct && let Some(code) = self.leaf(hash, text) {
            return Some(code);
        }
        if let Some(code) = self.spellings.get(hash, text) {
            return Some(code);
        }
        let hierarchy = Arc::clone(&self.hierarchy);
        let leaf = hierarchy.canonical(text)?;
        let code = self.intern(&hierarchy, &leaf)?;
        if !direct || leaf != text {
            self.spellings.put(hash, text, code);
        }
        Some(code)
    }

    /// The code of a value that is published as the hierarchy's top at every level: a leaf of its own, which joins the others
    /// only at the top and loses everything at every level. Where a finer level has the top's label for something else, question
    /// marks are added to keep the two apart.
    pub fn top_code(&mut self) -> Option<Code> {
        let code = self.first_top_code()?;
        self.add_to_others()?;
        Some(code)
    }

    /// The same in the first chain.
    fn first_top_code(&mut self) -> Option<Code> {
        if self.view.top.is_none() {
            let hierarchy = Arc::clone(&self.hierarchy);
            let view = Arc::make_mut(&mut self.view);
            let levels = &mut view.levels;
            let mut parent = 0;
            for level in (0..usize::from(hierarchy.height())).rev() {
                let mut label = hierarchy.top_label().to_owned();
                // In a hierarchy that grows no finer value is ever labelled like the top, see `intern`.
                while hierarchy.closed().is_some() && levels[level].labels().any(|taken| taken == label) {
                    label.push('?');
                }
                parent = add(Arc::make_mut(&mut levels[level]), &label, parent, (1.0, 0.0))?;
            }
            view.top = Some(parent);
        }
        self.view.top
    }

    /// Adds new leaves to the other chains, in the same order; `None` if a chain is full.
    #[inline]
    fn add_to_others(&mut self) -> Option<()> {
        for other in self.alternatives.iter_mut().flat_map(|others| &mut others.domains) {
            for leaf in other.len()..self.view.leaf_count() {
                if self.view.top == Some(leaf as Code) {
                    other.top_code()?;
                } else {
                    let hierarchy = Arc::clone(&other.hierarchy);
                    other.intern(&hierarchy, self.view.levels[0].label(leaf as Code))?;
                }
            }
        }
        Some(())
    }

    /// The label of a leaf.
    #[inline]
    pub fn leaf_label(&self, leaf: Code) -> &str {
        self.view.levels[0].label(leaf)
    }

    /// The tables as they are now. Cheap; what the domain learns later does not show in it.
    pub fn view(&self) -> Arc<DomainView> {
        let own = Arc::clone(&self.view);
        match &self.alternatives {
            None => own,
            Some(Others { declared, domains }) => {
                let views = [own].into_iter().chain(domains.iter().map(Self::view)).collect();
                Arc::new(DomainView::of_chains(declared, views))
            }
        }
    }

    /// How many leaf codes there are.
    pub fn len(&self) -> usize {
        self.view.levels[0].len()
    }

    /// True before the first leaf.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn leaf(&self, hash: u64, leaf: &str) -> Option<Code> {
        match self.hierarchy.closed() {
            Some(closed) => closed.find(hash, leaf),
            None => self.indexes[0].find(&self.view.levels[0].labels, hash, leaf),
        }
    }

    /// The code of a canonical leaf; new leaves are added with as many ancestors as are new.
    fn intern(&mut self, hierarchy: &Hierarchy, leaf: &str) -> Option<Code> {
        let hash = hash_of(leaf);
        if let Some(code) = self.leaf(hash, leaf) {
            return Some(code);
        }
        if leaf == hierarchy.top_label() {
            // Only where any text is a value; there `*` says nothing.
            return self.first_top_code();
        }
        let height = hierarchy.height();
        let mut fresh = Vec::with_capacity(usize::from(height));
        let mut parent = 0;
        for level in 0..height {
            let label = hierarchy.label(leaf, level)?;
            let hash = hash_of(&label);
            let table = &self.view.levels[usize::from(level)];
            if let Some(known) = self.indexes[usize::from(level)].find(&table.labels, hash, &label) {
                parent = known;
                break;
            }
            fresh.push((label, hash));
        }
        let levels = &mut Arc::make_mut(&mut self.view).levels;
        for (level, (label, hash)) in fresh.iter().enumerate().rev() {
            let table = Arc::make_mut(&mut levels[level]);
            let level = level as Level;
            let worth = (hierarchy.open_loss(leaf, level), hierarchy.open_leaves(leaf, level));
            parent = add(table, label, parent, worth)?;
            self.indexes[usize::from(level)].insert(&table.labels, *hash, parent);
        }
        Some(parent)
    }
}

/// Adds a value with its loss and its leaves.
fn add(table: &mut LevelTable, label: &str, parent: Code, (loss, leaves): (f64, f64)) -> Option<Code> {
    let code = table.labels.push(label)?;
    table.parent.push(parent);
    table.loss.push(loss);
    table.leaves.push(leaves);
    Some(code)
}

impl fmt::Debug for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Domain({} leaves, height {})", self.len(), self.view.height())
    }
}

/// The tables of a domain at one moment.
#[derive(Clone)]
pub struct DomainView {
    /// Shared one by one, so that growth copies only the levels that grow.
    levels: Vec<Arc<LevelTable>>,
    top: Option<Code>,
    chains: Option<Arc<ChainViews>>,
}

/// The views of the chains of a hierarchy with alternatives.
struct ChainViews {
    hierarchy: Arc<Hierarchy>,
    views: Vec<Arc<DomainView>>,
}

impl ChainViews {
    /// A chain that has a level, and its level there.
    fn place(&self, level: Level) -> (&Arc<DomainView>, Level) {
        let place = self.hierarchy.alternatives().and_then(|any| any.place(level));
        let (chain, level) = place.unwrap_or((0, 0));
        (&self.views[chain], level)
    }
}

impl DomainView {
    /// The tables of a hierarchy with alternatives, whose chains have these.
    fn of_chains(hierarchy: &Arc<Hierarchy>, views: Vec<Arc<Self>>) -> Self {
        let chains = ChainViews { hierarchy: Arc::clone(hierarchy), views };
        let table = |number: Level| {
            let (view, level) = chains.place(number);
            Arc::clone(&view.levels[usize::from(level)])
        };
        let levels = (0..=hierarchy.height()).map(table).collect();
        Self { levels, top: chains.views[0].top, chains: Some(Arc::new(chains)) }
    }

    /// The tables of one chain of a hierarchy with alternatives, by that chain's own levels; all of them, if it has none.
    pub fn along(self: &Arc<Self>, chain: usize) -> Arc<Self> {
        Arc::clone(self.chains.as_ref().and_then(|chains| chains.views.get(chain)).unwrap_or(self))
    }

    /// True if the hierarchy has alternatives.
    pub fn branches(&self) -> bool {
        self.chains.is_some()
    }

    /// True if values that are alike at one level are alike at the other.
    pub fn refines(&self, fine: Level, coarse: Level) -> bool {
        self.chains.as_ref().map_or(fine <= coarse, |chains| chains.hierarchy.refines(fine, coarse))
    }

    /// The level over the height, along a chain that has the level.
    pub fn height_share(&self, level: Level) -> f64 {
        match &self.chains {
            Some(chains) => {
                let (view, level) = chains.place(level);
                view.height_share(level)
            }
            None if self.height() == 0 => 0.0,
            None => f64::from(level) / f64::from(self.height()),
        }
    }

    /// The last level.
    pub fn height(&self) -> Level {
        (self.levels.len() - 1) as Level
    }

    /// The table of a level; `level` is at most the height. Parents are codes of the next level, along the first chain that has it.
    pub fn level(&self, level: Level) -> &LevelTable {
        &self.levels[usize::from(level)]
    }

    /// The leaf of values that are published as the top at every level; `None` if there was none yet.
    pub fn top_code(&self) -> Option<Code> {
        self.top
    }

    /// How many leaf codes there are.
    pub fn leaf_count(&self) -> usize {
        self.levels[0].len()
    }

    /// For each code at `from` the code of its ancestor at `to`; `from` refines `to`.
    pub fn between(&self, from: Level, to: Level) -> Vec<Code> {
        debug_assert!(self.refines(from, to));
        if let Some(chains) = &self.chains {
            let leaves = |level: Level| {
                let (view, level) = chains.place(level);
                view.between(0, level)
            };
            let mut map = vec![0; self.levels[usize::from(from)].len()];
            leaves(from).into_iter().zip(leaves(to)).for_each(|(fine, coarse)| map[fine as usize] = coarse);
            return map;
        }
        let (from, to) = (usize::from(from), usize::from(to));
        let mut map: Vec<Code> = (0..self.levels[from].len() as Code).collect();
        for table in &self.levels[from..to] {
            for code in &mut map {
                *code = table.parent[*code as usize];
            }
        }
        map
    }
}

impl fmt::Debug for DomainView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.levels).finish()
    }
}

/// How many other spellings are remembered. More hold more memory for values that do not come back (timestamps); fewer make
/// those that do come back be read again.
const MAX_SPELLINGS: usize = 1 << 16;
/// Longer spellings are read again each time, so that the memory of all is bounded.
const MAX_SPELLING: usize = 64;

/// Codes of texts that are not the label of their leaf. When full it starts anew.
#[derive(Default)]
struct Spellings {
    texts: LabelTable,
    index: Index,
    codes: Vec<Code>,
}

impl Spellings {
    fn get(&self, hash: u64, text: &str) -> Option<Code> {
        self.index.find(&self.texts, hash, text).map(|at| self.codes[at as usize])
    }

    fn put(&mut self, hash: u64, text: &str, code: Code) {
        if text.len() > MAX_SPELLING {
            return;
        }
        if self.codes.len() == MAX_SPELLINGS {
            self.texts.clear();
            self.index.clear();
            self.codes.clear();
        }
        if let Some(at) = self.texts.push(text) {
            self.codes.push(code);
            self.index.insert(&self.texts, hash, at);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::super::hierarchy::{DateSpec, DateUnit, Decimal, IntervalSpec, Open, PrefixSpec};
    use super::*;

    fn csv(text: &str) -> Domain {
        Domain::new(Arc::new(Hierarchy::parse_csv(text.as_bytes()).unwrap()))
    }

    fn ages() -> Domain {
        let widths = [5, 10, 20].map(Decimal::from);
        Domain::new(Arc::new(Hierarchy::intervals(IntervalSpec::new(widths, 0.into(), 120.into())).unwrap()))
    }

    #[test]
    fn listed_leaves_are_there_from_the_start() {
        let mut domain = csv("a;x;*\nb;x;*\nc;y;*\n");
        assert_eq!(domain.len(), 3);
        assert_eq!(["a", "b", "c", "d"].map(|text| domain.code(text)), [Some(0), Some(1), Some(2), None]);
        let view = domain.view();
        assert_eq!(view.level(0).parent(), [0, 0, 1]);
        assert_eq!(view.level(1).loss(), [0.5, 0.0]);
        assert_eq!(view.level(2).loss(), [1.0]);
        assert!(view.level(2).parent().is_empty());
        assert_eq!(view.between(0, 2), [0, 0, 0]);
    }

    #[test]
    fn a_single_leaf_loses_nothing_below_the_top() {
        let view = csv("a;x;*").view();
        assert_eq!([0, 1, 2].map(|level| view.level(level).loss()[0]), [0.0, 0.0, 1.0]);
    }

    #[test]
    fn spellings_share_a_code() {
        let mut domain = ages();
        let seven = domain.code("7");
        assert_eq!(["007", "7.0", "7", "007"].map(|text| domain.code(text)), [seven; 4]);
        assert_eq!(domain.code("121"), None);
        assert_eq!(domain.len(), 1);
        for i in 0..=MAX_SPELLINGS {
            assert_eq!(domain.code(&format!("7.{}", "0".repeat(i % 40 + 1))), seven);
            domain.spellings.put(hash_of(&format!("x{i}")), &format!("x{i}"), 0);
        }
        assert!(domain.spellings.codes.len() <= MAX_SPELLINGS);
        assert_eq!(domain.code("7.00"), seven);
    }

    #[test]
    fn a_value_spelled_like_another_label_is_not_mixed_up() {
        let spec = DateSpec { formats: vec!["%Y-%d-%m".into()], ..DateSpec::new([DateUnit::Day, DateUnit::Year]) };
        let mut domain = Domain::new(Arc::new(Hierarchy::dates(spec).unwrap()));
        let (april, march) = (domain.code("1956-03-04").unwrap(), domain.code("1956-04-03").unwrap());
        assert_eq!(domain.view().level(0).label(april), "1956-04-03");
        assert_eq!(domain.view().level(0).label(march), "1956-03-04");
        assert_eq!(domain.code("1956-03-04"), Some(april));
    }

    #[test]
    fn a_view_does_not_grow() {
        let mut domain = ages();
        domain.code("17");
        let before = domain.view();
        domain.code("18");
        domain.code("90");
        assert_eq!((before.leaf_count(), before.level(3).len()), (1, 1));
        let after = domain.view();
        assert_eq!((after.leaf_count(), after.level(3).len()), (3, 2));
        // Tables that have not grown are shared; without a view in between nothing is copied.
        assert!(Arc::ptr_eq(&before.levels[4], &after.levels[4]));
        assert!(Arc::ptr_eq(&after, &domain.view()));
    }

    #[test]
    fn the_unknown_leaf_joins_others_only_at_the_top() {
        let mut domain = ages();
        let known = domain.code("17").unwrap();
        let unknown = domain.top_code().unwrap();
        assert_eq!(domain.top_code(), Some(unknown));
        assert_eq!(domain.code("*"), None);
        domain.code("18");
        let view = domain.view();
        for level in 0..=view.height() {
            let map = view.between(0, level);
            let code = map[unknown as usize];
            assert_eq!(view.level(level).label(code), "*");
            assert_eq!(view.level(level).loss()[code as usize], 1.0);
            assert_eq!(code == map[known as usize], level == view.height());
        }
    }

    #[test]
    fn the_unknown_leaf_keeps_apart_from_finer_values_labelled_like_the_top() {
        let mut domain = csv("a;*;*\nb;x;*\n*;x;*\n");
        let unknown = domain.top_code().unwrap();
        assert_ne!(domain.code("*"), Some(unknown));
        let view = domain.view();
        let labels: Vec<_> = (0..=2).map(|l| view.level(l).label(view.between(0, l)[unknown as usize])).collect();
        assert_eq!(labels, ["*?", "*?", "*"]);
        assert_eq!(csv("a;*;*\nb;x;*\n*;x;*\n").view().leaf_count(), 3);
    }

    #[test]
    fn where_anything_is_a_value_the_top_is_the_top() {
        let mut domain = Domain::new(Arc::new(Hierarchy::trivial()));
        assert_eq!(domain.code("x"), Some(0));
        assert_eq!(domain.code("*"), Some(1));
        assert_eq!(domain.top_code(), Some(1));
        assert_eq!(domain.view().level(0).loss(), [0.0, 1.0]);
        assert_eq!(domain.view().level(1).len(), 1);
    }

    #[test]
    fn nothing_can_be_printed() {
        let mut domain = Domain::new(Arc::new(Hierarchy::trivial()));
        domain.code("canary");
        assert!(!format!("{domain:?} {:?} {:?}", domain.view(), domain.hierarchy).contains("canary"));
    }

    /// Random nested groups: per level the number of groups, and each child's group by a pseudo-random choice.
    fn closed() -> impl Strategy<Value = (Hierarchy, Vec<String>)> {
        (1_usize..40, prop::collection::vec(1_usize..8, 0..4), any::<u64>()).prop_map(|(leaves, mut groups, seed)| {
            groups.sort_unstable_by(|a, b| b.cmp(a));
            let mut text = String::new();
            for leaf in 0..leaves {
                text.push_str(&format!("v{leaf}"));
                let mut code = leaf;
                for (level, count) in groups.iter().enumerate() {
                    code = hash_of(&format!("{seed} {level} {code}")) as usize % count;
                    text.push_str(&format!(";g{code}"));
                }
                text.push_str(";*\n");
            }
            let values = (0..leaves).map(|leaf| format!("v{leaf}")).collect();
            (Hierarchy::parse_csv(text.as_bytes()).unwrap(), values)
        })
    }

    fn intervals() -> impl Strategy<Value = (Hierarchy, Vec<String>)> {
        let factors = prop::collection::vec(2_i64..5, 0..4);
        let values = prop::collection::vec((-300_i64..300, 0_u32..3), 1..40);
        (1_i64..6, factors, 0_u32..3, -100_i64..0, values).prop_map(|(width, factors, scale, origin, values)| {
            let mut widths = vec![Decimal::new(width, scale)];
            for factor in factors {
                widths.push(widths[widths.len() - 1] * Decimal::from(factor));
            }
            let spec = IntervalSpec {
                origin: Decimal::new(origin, scale),
                open: Open::Both,
                ..IntervalSpec::new(widths, Decimal::from(-100), Decimal::from(150))
            };
            let values = values.into_iter().map(|(units, scale)| Decimal::new(units, scale).to_string()).collect();
            (Hierarchy::intervals(spec).unwrap(), values)
        })
    }

    fn prefixes() -> impl Strategy<Value = (Hierarchy, Vec<String>)> {
        prop::collection::vec("[a-cé]{4}", 1..40)
            .prop_map(|values| (Hierarchy::prefix(PrefixSpec::new(4)).unwrap(), values))
    }

    fn dates() -> impl Strategy<Value = (Hierarchy, Vec<String>)> {
        let nesting: Vec<_> = DateUnit::ALL.into_iter().filter(|&unit| unit != DateUnit::Week).collect();
        let units = prop_oneof![
            prop::sample::subsequence(nesting, 1..=6),
            Just(vec![DateUnit::Day, DateUnit::Week]),
            Just(vec![DateUnit::Week]),
        ];
        let values = prop::collection::vec((1850_i16..2150, 1_i8..=12, 1_i8..=28), 1..40);
        (units, values).prop_map(|(units, values)| {
            let values = values.into_iter().map(|(y, m, d)| format!("{y:04}-{m:02}-{d:02}")).collect();
            (Hierarchy::dates(DateSpec::new(units)).unwrap(), values)
        })
    }

    proptest! {
        #[test]
        fn tables_agree_with_the_hierarchy((hierarchy, values) in prop_oneof![closed(), intervals(), prefixes(), dates()]) {
            let hierarchy = Arc::new(hierarchy);
            let mut domain = Domain::new(Arc::clone(&hierarchy));
            let codes: Vec<_> = values.iter().map(|value| domain.code(value).unwrap()).collect();
            let unknown = domain.top_code().unwrap();
            let view = domain.view();
            for level in 0..=view.height() {
                let table = view.level(level);
                let map = view.between(0, level);
                for (value, &code) in values.iter().zip(&codes) {
                    let leaf = hierarchy.canonical(value).unwrap();
                    let label = hierarchy.label(&leaf, level).unwrap();
                    prop_assert_eq!(table.label(map[code as usize]), label.as_ref());
                }
                prop_assert_eq!(table.labels().collect::<HashSet<_>>().len(), table.len());
                prop_assert_eq!(table.loss().len(), table.len());
                prop_assert!(table.loss().iter().all(|loss| (0.0..=1.0).contains(loss)));
                for to in level..=view.height() {
                    let rest = view.between(level, to);
                    let composed: Vec<_> = map.iter().map(|&code| rest[code as usize]).collect();
                    prop_assert_eq!(composed, view.between(0, to));
                }
                if level < view.height() {
                    let above = view.level(level + 1);
                    prop_assert_eq!(table.parent().len(), table.len());
                    for (code, &parent) in table.parent().iter().enumerate() {
                        prop_assert!((parent as usize) < above.len());
                        prop_assert!(table.loss()[code] <= above.loss()[parent as usize]);
                    }
                }
            }
            prop_assert_eq!(view.level(view.height()).len(), 1);
            prop_assert_eq!(view.level(0).loss()[unknown as usize], 1.0);
        }
    }

    proptest! {
        /// However values come, all chains give a leaf the same code, and every level that refines another leads to its labels.
        #[test]
        fn chains_share_their_leaves(days in prop::collection::vec(0_i32..900, 1..40), tops in prop::collection::vec(any::<bool>(), 40)) {
            let dates = |units: &[DateUnit]| Hierarchy::dates(DateSpec::new(units)).unwrap();
            let chains = vec![dates(&[DateUnit::Day, DateUnit::Week]), dates(&[DateUnit::Day, DateUnit::Month, DateUnit::Year])];
            let hierarchy = Arc::new(Hierarchy::any_of(chains).unwrap());
            let mut domain = Domain::new(Arc::clone(&hierarchy));
            for (day, top) in days.iter().zip(tops) {
                let text = format!("19{:02}-{:02}-{:02}", 80 + day / 360, 1 + day / 30 % 12, 1 + day % 28);
                let code = if top { domain.top_code() } else { domain.code(&text) };
                prop_assert!(top || domain.leaf_label(code.unwrap()) == text);
            }
            let view = domain.view();
            prop_assert_eq!(view.height(), hierarchy.height());
            for (a, b) in (0..=4_u8).flat_map(|a| (a..=4).map(move |b| (a, b))).filter(|&(a, b)| hierarchy.refines(a, b)) {
                let (map, fine, coarse) = (view.between(a, b), view.between(0, a), view.between(0, b));
                for leaf in 0..view.leaf_count() {
                    prop_assert_eq!(map[fine[leaf] as usize], coarse[leaf]);
                    let label = view.level(b).label(coarse[leaf]);
                    let is_top = view.top_code() == Some(leaf as Code);
                    let own = view.level(0).label(leaf as Code);
                    let said = hierarchy.label(if is_top { "1985-03-31" } else { own }, if is_top { 4 } else { b });
                    prop_assert_eq!(Some(label), said.as_deref());
                }
            }
            prop_assert_eq!(view.along(0).height(), 2);
            prop_assert_eq!(view.along(1).leaf_count(), view.leaf_count());
        }
    }
}
