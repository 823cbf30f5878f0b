//! `policy.row_levels`: each row has the level of each of its labels, which follows from the label alone.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;
#[path = "common/slides.rs"]
mod slides;

use std::collections::BTreeMap;
use std::sync::Arc;

use common::Rule;
use slides::{NOW, Stream, by_records, choice, policy, released, texts, town};
use veilstream::anonymizer::Anonymizer;
use veilstream::model::policy::{Policy, RecodingKind};
use veilstream::model::schema::AddedFields;
use veilstream::search::Algorithm;
use veilstream::search::choose::{Choice, Levels};
use veilstream::window::SlideRules;

#[test]
fn every_row_has_the_level_of_each_label() {
    let table = town(900, 200, 6);
    for (recoding, changes) in [
        (RecodingKind::FullDomain, false),
        (RecodingKind::Subtree, false),
        (RecodingKind::Local, false),
        (RecodingKind::Local, true),
    ] {
        let mut policy = Policy { recoding, ..(*policy(&table, &[Rule::K(3)], 0.2)).clone() };
        policy.schema.added = AddedFields { levels: true, change: changes };
        let names: Vec<String> = policy
            .schema
            .with_added()
            .published()
            .map(|slot| policy.schema.with_added().name(slot).to_string())
            .collect();
        let added: &[&str] = if changes { &["q0_level", "q1_level", "change"] } else { &["q0_level", "q1_level"] };
        assert_eq!(names[..2], ["q0", "q1"]);
        assert_eq!(names[2..2 + added.len()], *added);
        let policy = Arc::new(policy);
        let cuts = recoding == RecodingKind::Subtree;
        let algorithm = if cuts { Algorithm::SubtreeBottomUp } else { Algorithm::Optimal };
        let choice = Choice { algorithm, ..choice(Levels::Sticky) };
        let mut anonymizer = Anonymizer::new(Arc::clone(&policy), choice, "test", 5);
        let mut stream = Stream::new(&table, &policy, SlideRules { changes, ..by_records(300, 60) });
        let mut of_label: BTreeMap<(usize, String), String> = BTreeMap::new();
        for line in &table.lines {
            let Some(window) = stream.add(line, NOW) else { continue };
            let release = released(anonymizer.release(window).expect("narrow enough"));
            for (labels, values) in texts(&release) {
                assert_eq!(labels.len(), 2 + added.len());
                let line = &table.lines[values[1].trim_matches('"').parse::<usize>().unwrap()];
                for (at, attribute) in table.attributes.iter().enumerate() {
                    let (label, level) = (&labels[at], &labels[2 + at]);
                    let path = &attribute.paths[line.leaves[at]];
                    assert_eq!(&path[level.parse::<usize>().unwrap()], label);
                    assert_eq!(of_label.entry((at, label.clone())).or_insert(level.clone()), level);
                }
            }
        }
        let mixed = (0..2).any(|at| {
            let mut levels: Vec<&String> =
                of_label.iter().filter(|((of, _), _)| *of == at).map(|(_, level)| level).collect();
            levels.sort();
            levels.dedup();
            levels.len() > 1
        });
        assert!(mixed || recoding != RecodingKind::Local, "{recoding:?} has one level per attribute");
    }
}
