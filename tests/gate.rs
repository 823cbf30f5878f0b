//! The gate against naive counts of the very rows it is given: verdict, achieved figures, held rows, and that nothing it
//! prints holds a value.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;

use common::{Attribute, Classes, Line, Rule, Table, cases, flat};
use proptest::prelude::*;
use veilstream::gate::{Refusal, Release, verify};
use veilstream::generalize::{GeneralizedBatch, RowRef};
use veilstream::model::lattice::Node;
use veilstream::model::policy::{Criterion, K, Loss};
use veilstream::model::recoding::{Cut, Recoding};
use veilstream::privacy::Rules;

/// Where a line goes.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Place {
    Out,
    Fresh,
    Held,
}

fn batch(table: &Table, places: &[Place], recoding: &Recoding) -> (GeneralizedBatch, Rules) {
    batch_under(table, places, recoding, &[Rule::K(1)])
}

fn batch_under(table: &Table, places: &[Place], recoding: &Recoding, rules: &[Rule]) -> (GeneralizedBatch, Rules) {
    let policy = table.policy(rules, 0.0, Loss::Glm);
    let (encoder, rows) = table.encode(&policy);
    let rows = Arc::new(rows);
    let order = (0u32..).zip(places).filter_map(|(i, place)| match place {
        Place::Out => None,
        Place::Fresh => Some(RowRef::Fresh(i)),
        Place::Held => Some(RowRef::Held(i)),
    });
    let dictionaries = encoder.dictionaries();
    let columns: Vec<_> = recoding.columns(&dictionaries.quasi).into_iter().map(Arc::new).collect();
    let (fresh, held) = (Arc::clone(&rows), rows);
    let mut batch = GeneralizedBatch::at(fresh, held, order.collect(), &columns, &dictionaries);
    batch.provenance.release_id = "test-1".into();
    (batch, Rules::new(&policy))
}

fn of(places: &[Place], wanted: impl Fn(Place) -> bool) -> impl Iterator<Item = usize> {
    places.iter().enumerate().filter(move |(_, place)| wanted(**place)).map(|(i, _)| i)
}

/// Every row as sent: labels, then the sensitive values.
fn rows(release: &Release) -> BTreeMap<(Vec<String>, Vec<String>), usize> {
    let mut rows = BTreeMap::new();
    let owned = |cells: &[&str]| cells.iter().map(ToString::to_string).collect();
    let seen: Result<(), ()> = release.rows(|quasi, values| {
        *rows.entry((owned(quasi), owned(values))).or_default() += 1;
        Ok(())
    });
    assert!(seen.is_ok());
    rows
}

/// Every row in order: what the fast way of sinks writes, and what the slow one does.
fn labelled(release: &Release) -> Vec<(String, Vec<String>)> {
    let labels = release.labels(|quasi, bytes| bytes.extend(quasi.join("|").into_bytes()));
    let mut rows = Vec::new();
    let seen: Result<(), ()> = release.labelled_rows(&labels, |labels, values| {
        let values = values.iter().map(ToString::to_string).collect();
        rows.push((String::from_utf8(labels.to_vec()).expect("text"), values));
        Ok(())
    });
    assert!(seen.is_ok());
    rows
}

fn in_order(release: &Release) -> Vec<(String, Vec<String>)> {
    let mut rows = Vec::new();
    let seen: Result<(), ()> = release.rows(|quasi, values| {
        rows.push((quasi.join("|"), values.iter().map(ToString::to_string).collect()));
        Ok(())
    });
    assert!(seen.is_ok());
    rows
}

fn all(classes: &Classes, rules: &[Rule]) -> bool {
    classes.values().all(|class| rules.iter().all(|rule| rule.holds(class)))
}

fn places() -> impl Strategy<Value = Vec<Place>> {
    let mostly =
        |a: u32, b: u32, c: u32| prop_oneof![a => Just(Place::Fresh), b => Just(Place::Out), c => Just(Place::Held)];
    prop_oneof![
        prop::collection::vec(mostly(20, 1, 0), 60),
        prop::collection::vec(mostly(20, 2, 2), 60),
        prop::collection::vec(mostly(1, 1, 1), 60),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_verdict_is_the_naive_count((table, rules, _) in cases(1..=3, 60), places in places(), dice in any::<usize>()) {
        let places = &places[..table.lines.len()];
        let nodes = table.all_nodes();
        // Coarse nodes more often than not, or hardly anything would pass.
        let at = nodes.len() - 1 - (dice % nodes.len()) / (1 + dice / nodes.len() % 4);
        let recoding = Recoding::from(nodes[at].clone());
        let sent = table.count(of(places, |p| p != Place::Out), &recoding);
        let fresh = table.count(of(places, |p| p == Place::Fresh), &recoding);
        let held = table.count(of(places, |p| p == Place::Held), &recoding);
        let joined: Classes = held.keys().map(|key| (key.clone(), fresh.get(key).cloned().unwrap_or_default())).collect();
        let joined: Classes = joined.into_iter().map(|(key, mut class)| {
            class.values.resize(table.sensitive, BTreeMap::new());
            (key, class)
        }).collect();
        let expected = all(&sent, &rules) && all(&joined, &rules);

        let (batch, checked) = batch_under(&table, places, &recoding, &rules);
        match verify(batch, &checked) {
            Ok(release) => {
                prop_assert!(expected, "passed, and should not have");
                let manifest = release.manifest();
                prop_assert_eq!(manifest.classes, sent.len() as u64);
                prop_assert_eq!(manifest.k_achieved, sent.values().map(|c| c.members.len() as u32).min());
                let mut naive = BTreeMap::new();
                for i in of(places, |p| p != Place::Out) {
                    let values = table.lines[i].sensitive.iter().take(table.sensitive).map(|v| format!("\"v{v}\""));
                    *naive.entry((table.labels(i, &recoding), values.collect::<Vec<_>>())).or_default() += 1;
                }
                prop_assert_eq!(rows(&release), naive);
                prop_assert_eq!(labelled(&release), in_order(&release));
                prop_assert_eq!(release.is_empty(), sent.is_empty());
                let mut sizes = BTreeMap::new();
                sent.values().for_each(|class| *sizes.entry(class.members.len() as u32).or_default() += 1);
                prop_assert_eq!(release.class_sizes(), &sizes);
            }
            Err(refusal) => {
                prop_assert!(!expected, "refused, and should not have: {}", refusal);
                let classes = if refusal.without_held { &joined } else { &sent };
                let class = &classes[refusal.class()];
                prop_assert!(!rules.iter().all(|rule| rule.holds(class)), "named a class that is good");
                prop_assert_eq!(refusal.size as usize, class.members.len());
            }
        }
    }
}

fn refused(table: &Table, places: &[Place], rules: &[Rule]) -> Refusal {
    let (batch, checked) = batch_under(table, places, &Node::new([0]).into(), rules);
    verify(batch, &checked).expect_err("refused")
}

#[test]
fn a_class_of_one_less_than_k_is_refused_and_named() {
    let table = flat(&["Paris", "Rome"], &[(0, 0, 0), (0, 1, 1), (0, 2, 2), (1, 0, 3), (1, 1, 4)], false);
    let refusal = refused(&table, &[Place::Fresh; 5], &[Rule::K(3)]);
    assert_eq!(refusal.class(), ["Rome"]);
    assert_eq!((refusal.size, refusal.achieved, refusal.required), (2, 2.0, 3.0));
    assert!(!refusal.without_held);
    // With both left out the rest may go.
    let places = [Place::Fresh, Place::Fresh, Place::Fresh, Place::Out, Place::Out];
    let (batch, checked) = batch_under(&table, &places, &Node::new([0]).into(), &[Rule::K(3)]);
    assert_eq!(verify(batch, &checked).expect("three of Paris").len(), 3);
}

#[test]
fn records_of_one_person_are_one_person() {
    let table = flat(&["Paris"], &[(0, 0, 7), (0, 1, 7), (0, 2, 7)], true);
    assert_eq!(refused(&table, &[Place::Fresh; 3], &[Rule::K(2)]).size, 1);
}

#[test]
fn held_rows_join_only_classes_that_are_good_without_them() {
    let table = flat(&["Paris", "Rome"], &[(0, 0, 0), (0, 0, 1), (0, 0, 2), (1, 0, 3), (1, 0, 4)], false);
    use Place::{Fresh, Held};
    let refusal = refused(&table, &[Fresh, Fresh, Held, Fresh, Held], &[Rule::K(2)]);
    assert!(refusal.without_held);
    assert_eq!((refusal.class(), refusal.size), (["Rome".to_string()].as_slice(), 1));
    // A class of held rows alone is refused even if it is large enough.
    assert!(refused(&table, &[Held, Held, Held, Fresh, Fresh], &[Rule::K(2)]).without_held);
    let (batch, checked) =
        batch_under(&table, &[Fresh, Fresh, Held, Place::Out, Place::Out], &Node::new([0]).into(), &[Rule::K(2)]);
    assert_eq!(verify(batch, &checked).expect("two of Paris, and one held").len(), 3);
}

/// A cut can publish the leaf `B` beside a group that is called `B` as well: two codes, one text.
#[test]
fn equal_text_under_different_codes_is_one_value() {
    let path = |labels: [&str; 3]| labels.map(str::to_string).to_vec();
    let paths = vec![path(["A", "B", "*"]), path(["B", "C", "*"])];
    let attribute = Attribute { paths, min_level: 0, max_level: 2, weight: 1.0 };
    let line = |leaf: usize, value: u8| Line { leaves: vec![leaf], sensitive: vec![value], subject: 0 };
    let lines = vec![line(0, 0), line(0, 1), line(1, 0), line(1, 0)];
    let table = Table { attributes: vec![attribute], lines, with_subject: false, sensitive: 1 };
    let policy = table.policy(&[Rule::K(1)], 0.0, Loss::Glm);
    let view = &table.encode(&policy).0.dictionaries().quasi[0];
    let recoding = Recoding::Cuts(vec![Cut::new(view, vec![1u8, 0]).expect("a cut")]);
    let (batch, checked) = batch_under(&table, &[Place::Fresh; 4], &recoding, &[Rule::K(4)]);
    let release = verify(batch, &checked).expect("four rows that all read B");
    assert_eq!((release.manifest().classes, release.manifest().k_achieved), (1, Some(4)));
    // Told apart by their codes, {0, 1} would be diverse; read together, {0, 0, 0, 1} is not.
    let places = [Place::Fresh, Place::Fresh, Place::Fresh, Place::Fresh];
    let (batch, checked) = batch_under(&table, &places, &recoding, &[Rule::Entropy(0, 1.9)]);
    assert_eq!(verify(batch, &checked).expect_err("three against one").size, 4);
}

#[test]
fn nothing_printed_holds_a_value() {
    let table = flat(&["Timbuktu", "Ouagadougou"], &[(0, 0, 0), (0, 1, 1), (1, 0, 2)], false);
    let refusal = refused(&table, &[Place::Fresh; 3], &[Rule::K(2)]);
    let (unsent, checked) = batch(&table, &[Place::Fresh; 3], &Node::new([0]).into());
    let mut printed = format!("{refusal} {refusal:?} {refusal:#?} {unsent:?}");
    let release = verify(unsent, &checked).expect("k = 1");
    printed += &format!("{release:?} {release:#?}");
    for value in ["Timbuktu", "Ouagadougou", "\"v", "v0", "v1"] {
        assert!(!printed.contains(value), "{value} in {printed}");
    }
}

#[test]
fn an_empty_batch_passes_and_says_so() {
    let table = flat(&["Paris"], &[(0, 0, 0)], false);
    let (batch, checked) = batch_under(&table, &[Place::Out], &Node::new([0]).into(), &[Rule::K(5)]);
    let release = verify(batch, &checked).expect("nothing to refuse");
    assert!(release.is_empty());
    assert_eq!(release.manifest().k_achieved, None);
}

/// Sixty attributes, of which somebody may know six: 50 million sets. Nothing passes uncounted, and the count that there
/// is no end to is not begun. Where all but a few attributes are the same everywhere, there is little to count.
#[test]
fn what_cannot_be_counted_is_refused() {
    let attribute = flat(&["a", "b"], &[], false).attributes.remove(0);
    let line =
        |i: usize| Line { leaves: (0..60).map(|a| usize::from(a == i)).collect(), sensitive: vec![0], subject: 0 };
    let lines = (0..60).map(line).collect();
    let table = Table { attributes: vec![attribute; 60], lines, with_subject: false, sensitive: 1 };
    let released = |generalized: usize| {
        let levels = (0..60).map(|a| u8::from(a < generalized));
        let (batch, _) = batch(&table, &[Place::Fresh; 60], &Node::new(levels).into());
        let mut policy = (*table.policy(&[], 0.0, Loss::Glm)).clone();
        policy.criteria = vec![Criterion::Lkc { l: 6, k: K(1), c: 1.0, fields: Vec::new() }];
        verify(batch, &Rules::new(&policy))
    };
    let refusal = released(0).unwrap_err();
    assert!(refusal.criterion.contains("lkc") && refusal.achieved.is_nan(), "{refusal}");
    assert!(released(50).is_ok());
}
