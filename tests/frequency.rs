//! Frequency sets against recounts: rollups along random ways, adds and retracts in random order, subjects in many
//! classes, and all key widths. The twin counts the rows of every node by their labels, in sets.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use common::{Rule, Table, tables};
use proptest::prelude::*;
use veilstream::encode::Dictionaries;
use veilstream::frequency::counter;
use veilstream::frequency::key::{Layout, Width};
use veilstream::frequency::set::{Classes, Question, SmallClasses};
use veilstream::frequency::store::{Answer, FrequencySets};
use veilstream::model::batch::Rows;
use veilstream::model::counting::{Counting, Facet, Histogram};
use veilstream::model::lattice::Node;
use veilstream::model::policy::Loss;
use veilstream::model::recoding::Recoding;

/// Classes by their labels: records, people, and people per value of each sensitive field.
type Counts = BTreeMap<Vec<String>, (usize, usize, Vec<BTreeMap<String, usize>>)>;

fn of_engine(set: &dyn Classes, dictionaries: &Dictionaries) -> Counts {
    let levels = set.node().levels();
    let label = |class: usize, a: usize| dictionaries.quasi[a].level(levels[a]).label(set.code(class, a)).to_owned();
    let facet = |class: usize, field: usize| {
        let histogram = set.histogram(field, class);
        assert!(histogram.codes.windows(2).all(|w| w[0] < w[1]), "codes ascend");
        let value = |&code: &u32| dictionaries.sensitive[field].level(0).label(code).to_owned();
        histogram.codes.iter().map(value).zip(histogram.counts.iter().map(|&c| c as usize)).collect()
    };
    let class = |class: usize| {
        let key = (0..levels.len()).map(|a| label(class, a)).collect();
        let facets = (0..dictionaries.sensitive.len()).map(|field| facet(class, field)).collect();
        (key, (set.rows()[class] as usize, set.sizes()[class] as usize, facets))
    };
    let counts: Counts = (0..set.len()).map(class).collect();
    assert_eq!(counts.len(), set.len(), "no class twice");
    counts
}

fn of_rows(table: &Table, which: impl IntoIterator<Item = usize>, node: &Node) -> Counts {
    let classes = table.count(which, &Recoding::from(node.clone()));
    let facets = |values: &BTreeMap<u8, std::collections::BTreeSet<u64>>| {
        values.iter().map(|(value, who)| (format!("v{value}"), who.len())).collect()
    };
    let class = |(key, class): (Vec<String>, common::Counted)| {
        (key, (class.rows, class.members.len(), class.values.iter().map(facets).collect()))
    };
    classes.into_iter().map(class).collect()
}

fn counting(table: &Table) -> Counting {
    let facets: Vec<Facet> = (0..table.sensitive).map(Facet::Sensitive).collect();
    Counting { subjects: table.with_subject, of_subjects: facets.clone(), facets }
}

/// Rows of the table, counted with keys for domains of `sizes` (the real ones, if none are given).
fn engine(table: &Table, sizes: Option<&[usize]>) -> (Arc<dyn FrequencySets>, Dictionaries) {
    let policy = table.policy(&[Rule::K(1)], 0.0, Loss::Glm);
    let (encoder, rows) = table.encode(&policy);
    let mut counter = counter::counter(sizes.unwrap_or(&encoder.sizes()), counting(table)).expect("narrow enough");
    counter.add(&rows, 0..rows.len());
    let dictionaries = encoder.dictionaries();
    (counter.store(&dictionaries.quasi), dictionaries)
}

/// Row i once more, or once less where that is asked and it is there.
fn come_or_go(counter: &mut dyn counter::Counter, rows: &Rows, times: &mut [u32], i: usize, go: bool) {
    match go && times[i] > 0 {
        true => (counter.retract(rows, &[i]), times[i] -= 1).1,
        false => (counter.add(rows, i..i + 1), times[i] += 1).1,
    }
}

/// Nodes of the full hierarchies, drawn by `dice`.
fn drawn(table: &Table, dice: &[u16]) -> Vec<Node> {
    let level = |a: usize, die: u16| (die >> (a % 13)) as u8 % (table.attributes[a].height() + 1);
    dice.iter().map(|&die| Node::new((0..table.attributes.len()).map(|a| level(a, die)))).collect()
}

/// The counts that a question asks for; `None` if the store answers with classes.
fn answered(sets: &dyn FrequencySets, node: &Node, question: &Question<'_>) -> Option<SmallClasses> {
    match sets.ask(node, question) {
        Answer::Small(small) => Some(small),
        Answer::Classes(_) => None,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// A store answers a question as the set would, whichever sets are there to be rolled up from.
    #[test]
    fn an_answer_is_that_of_the_set(
        table in tables(1..=4, 60), dice in prop::collection::vec((any::<u16>(), any::<bool>()), 1..25),
        least in prop::sample::select(vec![1u32, 2, 3, 5, 9, 255, 256, 1000]),
    ) {
        let (sets, _) = engine(&table, None);
        let nodes = drawn(&table, &dice.iter().map(|(die, _)| *die).collect::<Vec<_>>());
        for (node, (_, made)) in nodes.iter().zip(&dice) {
            if *made {
                sets.set(node);
            }
            let answer = answered(&*sets, node, &Question::by_size(least)).expect("sizes tell");
            let (truth, _) = engine(&table, None);
            let truth = truth.set(node);
            let (left_out, shown) = truth.sizes().iter().zip(truth.rows()).fold((0, 0), |(out, shown), (&size, &rows)| {
                if size < least { (out + u64::from(rows), shown) } else { (out, shown + 1) }
            });
            prop_assert_eq!((answer.left_out(), answer.shown()), (left_out, shown));
        }
    }

    /// Any order of questions: each set is rolled up from whatever finer one is at hand.
    #[test]
    fn rollup_is_recount(table in tables(1..=4, 60), dice in prop::collection::vec(any::<u16>(), 1..25)) {
        let (sets, dictionaries) = engine(&table, None);
        for node in drawn(&table, &dice) {
            let set = sets.set(&node);
            prop_assert_eq!(set.node(), &node);
            prop_assert_eq!(of_engine(&*set, &dictionaries), of_rows(&table, 0..table.lines.len(), &node));
        }
    }

    /// Every node of the lattice, finest first, so that rollups build on rollups.
    #[test]
    fn rollup_of_rollups_is_recount(table in tables(2..=3, 40)) {
        let (sets, dictionaries) = engine(&table, None);
        let mut nodes = table.all_nodes();
        nodes.sort_by_key(Node::height);
        for node in &nodes {
            let set = sets.set(node);
            prop_assert_eq!(of_engine(&*set, &dictionaries), of_rows(&table, 0..table.lines.len(), node));
        }
        let origins = sets.origins();
        prop_assert_eq!((origins.scanned, origins.rolled_up as usize), (1, nodes.len() - 1));
    }

    /// Rows come, go and come again; what is left is as if the others had never been there.
    #[test]
    fn incremental_is_rebuilt(
        table in tables(1..=4, 50),
        steps in prop::collection::vec((any::<u16>(), any::<bool>()), 1..120),
        dice in prop::collection::vec(any::<u16>(), 1..6),
    ) {
        let policy = table.policy(&[Rule::K(1)], 0.0, Loss::Glm);
        let (encoder, rows) = table.encode(&policy);
        let dictionaries = encoder.dictionaries();
        let mut counter = counter::counter(&encoder.sizes(), counting(&table)).expect("narrow enough");
        // How often each row is in.
        let mut times = vec![0usize; rows.len()];
        for (die, add) in steps {
            let i = usize::from(die) % rows.len();
            if add || times[i] == 0 {
                counter.add(&rows, i..i + 1);
                times[i] += 1;
            } else {
                counter.retract(&rows, &[i]);
                times[i] -= 1;
            }
        }
        let left = || (0..rows.len()).flat_map(|i| std::iter::repeat_n(i, times[i]));
        // Without subjects the same row twice is two records; the twin numbers them.
        let twin = Table { lines: left().map(|i| table.lines[i].clone()).collect(), ..table.clone() };
        let mut remaining = Rows::new(table.attributes.len(), table.sensitive);
        left().for_each(|i| remaining.push_from(&rows, i));
        let scanned = counter::count(&remaining, &counting(&table), &dictionaries.quasi, usize::MAX);
        for sets in [counter.store(&dictionaries.quasi), scanned.expect("narrow enough")] {
            for node in drawn(&table, &dice) {
                let counts = of_engine(&*sets.set(&node), &dictionaries);
                prop_assert_eq!(counts, of_rows(&twin, 0..twin.lines.len(), &node));
            }
        }
        // Where it only matters which values there are, records are counted in each class, and not people.
        let presence = Counting { of_subjects: Vec::new(), ..counting(&table) };
        let records = Counting { subjects: false, ..counting(&table) };
        let [presence, records] = [presence, records].map(|counting| {
            counter::count(&remaining, &counting, &dictionaries.quasi, usize::MAX).expect("narrow enough")
        });
        for node in drawn(&table, &dice) {
            let (people, records) = (of_rows(&twin, 0..twin.lines.len(), &node), of_engine(&*records.set(&node), &dictionaries));
            for (key, (rows, size, values)) in of_engine(&*presence.set(&node), &dictionaries) {
                prop_assert_eq!((rows, size), (people[&key].0, people[&key].1));
                prop_assert_eq!(&values, &records[&key].2);
                prop_assert!(values.iter().zip(&people[&key].2).all(|(own, people)| own.keys().eq(people.keys())));
            }
        }
    }

    /// Sets that were asked for are brought along from store to store as rows come and go; each is as if rolled up anew.
    #[test]
    fn sets_brought_along_are_recounts(
        table in tables(1..=4, 60),
        changes in prop::collection::vec((
            prop::collection::vec(any::<u16>(), 0..6),
            prop::collection::vec(any::<u16>(), 1..8),
            prop::option::of(0usize..4),
        ), 1..12),
        memory in prop::sample::select(vec![0usize, 600, 1 << 20]),
    ) {
        let policy = table.policy(&[Rule::K(1)], 0.0, Loss::Glm);
        let (encoder, rows) = table.encode(&policy);
        let dictionaries = encoder.dictionaries();
        let mut counter = counter::counter(&encoder.sizes(), counting(&table)).expect("narrow enough");
        let mut inside: Vec<bool> = (0..rows.len()).map(|i| i % 3 > 0).collect();
        (0..rows.len()).filter(|&i| inside[i]).for_each(|i| counter.add(&rows, i..i + 1));
        counter.remember_within(memory);
        let mut kept: Option<Arc<dyn FrequencySets>> = None;
        for (change, dice, remembered) in changes {
            for die in change {
                let i = usize::from(die) % rows.len();
                if inside[i] { counter.retract(&rows, &[i]) } else { counter.add(&rows, i..i + 1) }
                inside[i] = !inside[i];
            }
            let sets = counter.store(&dictionaries.quasi);
            prop_assert!(memory > 0 || sets.warm_bytes() == 0);
            let base = sets.base();
            let codes: Vec<usize> = dictionaries.quasi.iter().map(|view| view.leaf_count()).collect();
            let spread = base.marginals(&codes);
            let (classes, mut tuples) = (base.len(), BTreeSet::new());
            (0..rows.len()).filter(|&i| inside[i]).for_each(|i| _ = tuples.insert(rows.quasi(i)));
            prop_assert_eq!(classes, tuples.len());
            prop_assert_eq!(base.records(), inside.iter().filter(|inside| **inside).count() as u64);
            for (a, spread) in spread.into_iter().enumerate() {
                let mut counted = vec![0; spread.len()];
                (0..rows.len()).filter(|&i| inside[i]).for_each(|i| counted[rows.quasi(i)[a] as usize] += 1);
                prop_assert_eq!(spread, counted);
            }
            // Those of the last store stay as they were.
            if let Some(kept) = kept.replace(Arc::clone(&sets)) {
                let all: u32 = kept.base().rows().iter().sum();
                for node in drawn(&table, &dice) {
                    prop_assert_eq!(kept.set(&node).rows().iter().sum::<u32>(), all);
                }
            }
            for node in drawn(&table, &dice) {
                let set = sets.set(&node);
                // Kept from store to store, so asked before the classes are looked at.
                let outline = set.small_classes(&Question::by_size(3).with_cells(u64::MAX)).expect("kept");
                let cells = outline.cells_left_out().expect("asked for");
                let counts = of_engine(&*set, &dictionaries);
                prop_assert_eq!(counts, of_rows(&table, (0..rows.len()).filter(|&i| inside[i]), &node));
                let small: Vec<usize> = (0..set.len()).filter(|&class| set.sizes()[class] < 3).collect();
                let records = |classes: &[usize]| classes.iter().map(|&class| set.rows()[class]).sum::<u32>();
                prop_assert_eq!(outline.left_out(), u64::from(records(&small)));
                prop_assert_eq!(outline.shown() as usize, set.len() - small.len());
                for (a, cells) in cells.iter().enumerate() {
                    prop_assert_eq!(cells.iter().sum::<u32>(), records(&small));
                    for (code, &cell) in cells.iter().enumerate() {
                        let with: Vec<usize> =
                            small.iter().copied().filter(|&class| set.code(class, a) as usize == code).collect();
                        prop_assert_eq!(cell, records(&with));
                    }
                }
            }
            if let Some(remembered) = remembered {
                // Only some are to be at hand in the next store, which need not copy what nobody holds.
                let nodes = drawn(&table, &dice);
                sets.remember(&nodes[..remembered.min(nodes.len())]);
                kept = None;
            }
        }
    }

    /// Answers about many nodes, some remembered from store to store and some not, while records come and go: each is that of the
    /// classes counted anew.
    #[test]
    fn answers_by_size_brought_along_are_recounts(
        table in tables(2..=4, 60).prop_filter("else every change is too much to follow", |table| table.lines.len() > 20),
        changes in prop::collection::vec((
            prop::collection::vec(any::<u16>(), 0..4),
            prop::collection::vec(any::<u16>(), 1..25),
            any::<bool>(),
        ), 20..60),
        least in 1u32..7,
        memory in prop::sample::select(vec![0usize, 2000, 1 << 20]),
        most in prop::sample::select(vec![0, 9, u64::MAX]),
    ) {
        let policy = table.policy(&[Rule::K(1)], 0.0, Loss::Glm);
        let (encoder, rows) = table.encode(&policy);
        let dictionaries = encoder.dictionaries();
        let counting = Counting { subjects: false, facets: Vec::new(), of_subjects: Vec::new() };
        let mut counter = counter::counter(&encoder.sizes(), counting).expect("narrow enough");
        let mut times: Vec<u32> = (0..rows.len()).map(|i| i as u32 % 8).collect();
        (0..rows.len()).for_each(|i| (0..times[i]).for_each(|_| counter.add(&rows, i..i + 1)));
        counter.remember_within(memory);
        let mut last: Option<(Arc<dyn FrequencySets>, Vec<u32>)> = None;
        for (change, dice, remember) in changes {
            for die in change {
                // The same few again and again, so that they cross the least size both ways.
                let i = usize::from(die >> 1) % rows.len().min(3);
                come_or_go(&mut *counter, &rows, &mut times, i, die % 2 == 0);
            }
            let sets = counter.store(&dictionaries.quasi);
            let nodes = drawn(&table, &dice);
            // Those of the last store stay as they were, whoever took what it knew.
            let now = (Arc::clone(&sets), times.clone());
            for (sets, times) in last.iter().chain(std::iter::once(&now)) {
                for node in &nodes {
                    let outline = answered(&**sets, node, &Question::by_size(least).with_cells(most)).expect("always asked about the same size");
                    let mut classes: BTreeMap<Vec<u32>, u32> = BTreeMap::new();
                    for (i, times) in times.iter().enumerate() {
                        let code = |a: usize| dictionaries.quasi[a].between(0, node.levels()[a])[rows.quasi(i)[a] as usize];
                        *classes.entry((0..node.levels().len()).map(code).collect()).or_default() += times;
                    }
                    classes.retain(|_, rows| *rows > 0);
                    let shown = classes.values().filter(|rows| **rows >= least).count();
                    classes.retain(|_, rows| *rows < least);
                    let left_out: u64 = classes.values().map(|rows| u64::from(*rows)).sum();
                    prop_assert_eq!((outline.left_out(), outline.shown()), (left_out, shown as u64));
                    if left_out <= most {
                        let mut cells: Vec<Vec<u32>> = outline.cells_left_out().expect("few enough").to_vec();
                        for (key, rows) in &classes {
                            cells.iter_mut().zip(key).for_each(|(cells, code)| cells[*code as usize] -= rows);
                        }
                        prop_assert!(cells.iter().flatten().all(|rows| *rows == 0));
                    }
                }
                prop_assert!(sets.warm_bytes() == 0 || memory > 0);
            }
            last = (!remember).then_some(now);
            if remember {
                sets.remember(&nodes[..nodes.len() / 2]);
            }
        }
    }

    /// Where people and their values are counted, what may be shown is followed class by class from store to store, by any rule; each
    /// answer, and each set, is that of a count of everything.
    #[test]
    fn node_counts_brought_along_are_recounts(
        table in tables(2..=4, 60).prop_filter("else every change is too much to follow", |table| table.lines.len() > 30),
        changes in prop::collection::vec((
            prop::collection::vec(any::<u16>(), 0..4),
            prop::collection::vec(any::<u16>(), 1..12),
            any::<bool>(),
        ), 10..40),
        (least, values) in (1u32..5, 1usize..4),
        memory in prop::sample::select(vec![0usize, 20_000, 1 << 20, 1 << 20]),
        most in prop::sample::select(vec![0, 9, u64::MAX]),
        known in any::<u8>(),
    ) {
        let policy = table.policy(&[Rule::K(1)], 0.0, Loss::Glm);
        let (encoder, rows) = table.encode(&policy);
        let dictionaries = encoder.dictionaries();
        let mut counter = counter::counter(&encoder.sizes(), counting(&table)).expect("narrow enough");
        let mut times: Vec<u32> = (0..rows.len()).map(|i| i as u32 % 4).collect();
        (0..rows.len()).for_each(|i| (0..times[i]).for_each(|_| counter.add(&rows, i..i + 1)));
        counter.remember_within(memory);
        let shown = |size: u32, facets: &[Histogram<'_>]| {
            size >= least && facets.iter().all(|histogram| histogram.codes.len() >= values)
        };
        let mut last: Option<(Arc<dyn FrequencySets>, Vec<u32>)> = None;
        for (change, dice, remember) in changes {
            for die in change {
                let i = usize::from(die >> 1) % rows.len();
                come_or_go(&mut *counter, &rows, &mut times, i, die % 2 == 0);
            }
            let sets = counter.store(&dictionaries.quasi);
            let nodes = drawn(&table, &dice);
            let now = (Arc::clone(&sets), times.clone());
            for (sets, times) in last.iter().chain(std::iter::once(&now)) {
                let mut anew = Rows::new(table.attributes.len(), table.sensitive);
                (0..rows.len()).for_each(|i| (0..times[i]).for_each(|_| anew.push_from(&rows, i)));
                let anew = counter::count(&anew, &counting(&table), &dictionaries.quasi, usize::MAX).expect("narrow");
                prop_assert_eq!(sets.base().records(), anew.base().records());
                prop_assert_eq!(sets.base().len(), anew.base().len());
                for (node, die) in nodes.iter().zip(&dice) {
                    let truth = anew.set(node);
                    let facets = (0..table.sensitive).collect::<Vec<_>>();
                    let is_shown = |class: &usize| {
                        let histograms: Vec<_> = facets.iter().map(|&facet| truth.histogram(facet, *class)).collect();
                        shown(truth.sizes()[*class], &histograms)
                    };
                    let (good, small): (Vec<usize>, Vec<usize>) = (0..truth.len()).partition(is_shown);
                    let left_out: u64 = small.iter().map(|&class| u64::from(truth.rows()[class])).sum();
                    if let Some(outline) = answered(&**sets, node, &Question::by_rule(least, &shown).with_cells(most)) {
                        // Beyond what was asked for, the records of classes that have too few stand for all that is left out.
                        if left_out > most {
                            prop_assert!((most + 1..=left_out).contains(&outline.left_out()));
                        } else {
                            prop_assert_eq!((outline.left_out(), outline.shown()), (left_out, good.len() as u64));
                            let mut cells: Vec<Vec<u32>> = outline.cells_left_out().expect("few enough").to_vec();
                            for (a, cells) in cells.iter_mut().enumerate() {
                                small.iter().for_each(|&class| cells[truth.code(class, a) as usize] -= truth.rows()[class]);
                            }
                            prop_assert!(cells.iter().flatten().all(|rows| *rows == 0));
                        }
                    }
                    if die % 3 == 0 {
                        let set = sets.set(node);
                        prop_assert_eq!(of_engine(&*set, &dictionaries), of_engine(&*truth, &dictionaries));
                        // What somebody sees who knows some attributes depends on who is in several classes.
                        let known: Vec<usize> = (0..node.levels().len()).filter(|a| known >> a & 1 == 1).collect();
                        let published = |set: &dyn Classes| (0..set.len()).map(|class| set.sizes()[class] > 1).collect::<Vec<_>>();
                        let seen = |set: &dyn Classes| of_engine(&*set.seen_by(&published(set), &known).classes, &dictionaries);
                        if known.len() == node.levels().len() {
                            prop_assert_eq!(seen(&*set), seen(&*truth));
                        } else {
                            let sorted = |set: &dyn Classes| {
                                let seen = set.seen_by(&published(set), &known).classes;
                                let mut sizes: Vec<(u32, u32)> = seen.rows().iter().copied().zip(seen.sizes().iter().copied()).collect();
                                sizes.sort_unstable();
                                sizes
                            };
                            prop_assert_eq!(sorted(&*set), sorted(&*truth));
                        }
                    }
                }
            }
            last = (!remember).then_some(now);
            if remember {
                sets.remember(&nodes[..nodes.len() / 2]);
            }
        }
    }

    /// The same table with keys of 32, 64, 256 and 1,024 bits.
    #[test]
    fn all_key_widths_agree(
        (table, width) in prop::sample::select(vec![(1, Width::W32), (2, Width::W64), (3, Width::W256), (5, Width::W256), (9, Width::W1024), (32, Width::W1024)])
            .prop_flat_map(|(attributes, width)| (tables(attributes..=attributes, 40), Just(width))),
        dice in prop::collection::vec(any::<u16>(), 1..8),
    ) {
        // Two fields of 31 bits fill a word.
        let sizes = vec![1 << 31; table.attributes.len()];
        prop_assert_eq!(Layout::new(&sizes).map(|layout| layout.width()), Some(width));
        let (wide, dictionaries) = engine(&table, Some(&sizes));
        let (narrow, _) = engine(&table, None);
        for node in drawn(&table, &dice) {
            let counts = of_engine(&*wide.set(&node), &dictionaries);
            prop_assert_eq!(&counts, &of_engine(&*narrow.set(&node), &dictionaries));
            prop_assert_eq!(counts, of_rows(&table, 0..table.lines.len(), &node));
        }
    }
}

/// After a small change, node counts tell what may be shown, and nothing is counted for it.
#[test]
fn a_small_change_is_followed() {
    for with_subject in [false, true] {
        let lines: Vec<(usize, u8, u16)> = (0..200).map(|i| (i % 5, (i % 3) as u8, i as u16 / 2)).collect();
        let table = common::flat(&["a", "b", "c", "d", "e"], &lines, with_subject);
        let policy = table.policy(&[Rule::K(1)], 0.0, Loss::Glm);
        let (encoder, rows) = table.encode(&policy);
        let quasi = encoder.dictionaries().quasi;
        let mut counter = counter::counter(&encoder.sizes(), counting(&table)).expect("narrow enough");
        counter.add(&rows, 0..100);
        let (node, all) = (Node::new([1]), |_: u32, _: &[Histogram<'_>]| true);
        let question = Question::by_rule(2, &all).with_cells(0);
        let first = counter.store(&quasi);
        assert!(answered(&*first, &node, &question).is_none(), "it was counted in full");
        first.remember(std::slice::from_ref(&node));
        for i in 100..102 {
            counter.add(&rows, i..i + 1);
            let next = counter.store(&quasi);
            assert_eq!(answered(&*next, &node, &question).map(|small| small.shown()), Some(1));
            assert_eq!(next.origins().scanned, 0, "nothing was counted in full");
            assert_eq!(next.set(&node).rows(), [i as u32 + 1]);
            next.remember(std::slice::from_ref(&node));
            assert_eq!((next.origins().rolled_up, next.warm_bytes() > 0), (0, true));
        }
    }
}
