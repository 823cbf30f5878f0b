//! T31 on sliding windows: what a reader of local snapshots learns who knows the schedule, the hierarchies, the steps at which each
//! slide released its classes, and the slide at which somebody came. The rates are printed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;
#[path = "common/refine.rs"]
mod refine;
#[path = "common/slides.rs"]
mod slides;
#[path = "common/stream.rs"]
mod stream;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use common::{Attribute, Rule, Table};
use refine::{City, Narrowed, shown, skewed, steps};
use slides::{NOW, Reader, Stream, by_records, choice, policy, released};
use veilstream::anonymizer::Anonymizer;
use veilstream::model::policy::{Policy, RecodingKind};
use veilstream::search::choose::Levels;

const SIZE: usize = 1000;
const SLIDE: usize = 100;
const K: usize = 5;
/// The share of the window that may be replaced while a newcomer waits.
const LONGEST_WAIT: f64 = 0.6;

/// The rows that a slide shows first, with their labels, and the schedule that it follows.
struct Came {
    rows: BTreeMap<usize, Vec<String>>,
    schedule: Vec<u8>,
}

/// Per slide the rows that come with it.
fn slides_of(table: &Table, levels: &Levels) -> Vec<Came> {
    let node = policy(table, &[Rule::K(K as u32)], 0.05);
    let local = Arc::new(Policy { recoding: RecodingKind::Local, ..(*node).clone() });
    let mut stream = Stream::new(table, &local, by_records(SIZE, SLIDE));
    let mut anonymizer = Anonymizer::new(Arc::clone(&local), choice(levels.clone()), "test", 5);
    let (mut reader, mut known, mut slides) = (Reader::default(), BTreeSet::new(), Vec::new());
    for line in &table.lines {
        let Some(window) = stream.add(line, NOW) else { continue };
        let release = released(anonymizer.release(window).expect("narrow enough"));
        let rows = reader.seen(&release, 1).map_or_else(BTreeMap::new, |seen| seen.rows);
        let rows = rows.into_iter().filter(|(row, _)| known.insert(*row)).collect();
        slides.push(Came { rows, schedule: steps(&local, &release.lineage().plan.levels) });
        anonymizer.learn();
    }
    slides
}

/// What a slide releases, step by step.
struct Walk<'t> {
    table: &'t Table,
    nodes: Vec<&'t [u8]>,
    steps: Vec<BTreeSet<Vec<&'t str>>>,
    /// The newcomers that no step releases.
    left: Vec<usize>,
}

/// The step of a schedule that releases a tuple, and the values that it shows there.
type Released<'t> = (usize, Vec<&'t str>);

impl<'t> Walk<'t> {
    /// The slow twin: newcomers by their lines, with the share of the longest wait that they have behind them. Where nobody `waits`, all
    /// come as soon as there are enough of them.
    fn new(table: &'t Table, newcomers: &BTreeMap<usize, f64>, schedule: &'t [u8], waits: bool) -> Self {
        let loss = |(attribute, label): (&Attribute, &&str)| {
            let below = attribute.paths.iter().filter(|path| path.iter().any(|of| of == label)).count();
            (below - 1) as f64 / (attribute.paths.len() - 1) as f64 / table.attributes.len() as f64
        };
        let nodes: Vec<&[u8]> = schedule.chunks(table.attributes.len()).collect();
        let mut left: Vec<usize> = newcomers.keys().copied().collect();
        let mut steps = Vec::new();
        for node in &nodes {
            let values = |line: usize| shown(table, &table.lines[line].leaves, node);
            let mut classes: BTreeMap<Vec<&str>, Vec<usize>> = BTreeMap::new();
            left.iter().for_each(|&line| classes.entry(values(line)).or_default().push(line));
            classes.retain(|values, lines| {
                let loss: f64 = table.attributes.iter().zip(values).map(loss).sum();
                let waited = lines.iter().map(|line| newcomers[line]).sum::<f64>() / lines.len() as f64;
                lines.len() >= K && (!waits || waited >= loss)
            });
            left.retain(|&line| !classes.contains_key(&values(line)));
            steps.push(classes.into_keys().collect());
        }
        Self { table, nodes, steps, left }
    }

    /// The step that releases a tuple, and the values that it shows there.
    fn of(&self, leaves: &[usize]) -> Option<Released<'t>> {
        let mut steps = self.nodes.iter().map(|node| shown(self.table, leaves, node)).enumerate();
        steps.find(|(step, values)| self.steps[*step].contains(values))
    }
}

/// The share of the longest wait that each newcomer of a slide has behind them.
fn waited(newcomers: impl Iterator<Item = usize>, slide: usize) -> BTreeMap<usize, f64> {
    let end = (slide + 1) * SLIDE;
    let longest = LONGEST_WAIT * end.min(SIZE) as f64;
    newcomers.map(|line| (line, (end - line + SLIDE) as f64 / longest)).collect()
}

/// What the attack finds, in the first snapshot and in all others; and of how many rows fewer than k of their class could be somebody
/// who came when they came.
fn attack(table: &Table, levels: &Levels) -> ([Narrowed; 2], usize) {
    let (city, slides) = (City::new(table), slides_of(table, levels));
    let (mut found, mut few) = (<[Narrowed; 2]>::default(), 0);
    // Per slide the step of each tuple.
    let mut walks: Vec<BTreeMap<&[usize], Option<Released<'_>>>> = Vec::new();
    let mut known: BTreeSet<usize> = BTreeSet::new();
    for (at, slide) in slides.iter().enumerate() {
        let end = (at + 1) * SLIDE;
        let newcomers = (end.saturating_sub(SIZE)..end).filter(|line| !known.contains(line));
        let walk = Walk::new(table, &waited(newcomers, at), &slide.schedule, at > 0);
        // The engine shows whom the twin releases; of the others those who have waited for the longest time may join a class.
        let overdue = waited(walk.left.iter().copied(), at);
        assert!(slide.rows.keys().all(|row| overdue.get(row).is_none_or(|waited| at == 0 || *waited >= 1.0)));
        known.extend(slide.rows.keys());
        walks.push(city.tuples.iter().map(|tuple| (&tuple[..], walk.of(tuple))).collect());
        let mut classes: BTreeMap<&[String], Vec<usize>> = BTreeMap::new();
        slide.rows.iter().for_each(|(row, labels)| classes.entry(labels).or_default().push(*row));
        for (labels, rows) in classes {
            assert!(rows.len() >= K);
            let own: BTreeSet<_> = rows.iter().map(|&row| &walks[at][city.tuple(row)]).collect();
            let mut by_arrival: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
            rows.iter().for_each(|&row| by_arrival.entry(row / SLIDE).or_default().push(row));
            for (arrival, members) in by_arrival {
                let came_before = |tuple: &[usize]| walks[arrival..at].iter().any(|walk| walk[tuple].is_some());
                let fits = |tuple: &&[usize]| {
                    let step = &walks[at][tuple];
                    city.covers(labels, tuple) && (step.is_none() || own.contains(step)) && !came_before(tuple)
                };
                let left: BTreeSet<&[usize]> = city.tuples.iter().map(|tuple| &tuple[..]).filter(fits).collect();
                assert!(members.iter().all(|&row| left.contains(city.tuple(row))), "the attack excludes the truth");
                let truths: Vec<&[usize]> = members.iter().map(|&row| city.tuple(row)).collect();
                found[usize::from(at > 0)].note(&city, labels, &truths, &left);
                let fitting = rows.iter().filter(|row| left.contains(city.tuple(**row))).count();
                few += members.len() * usize::from(fitting < K);
            }
        }
    }
    (found, few)
}

#[test]
fn refinement_and_downcoding_of_local_snapshots_have_measured_rates() {
    let mut own = Narrowed::default();
    for levels in [Levels::Fixed(None), Levels::Sticky] {
        let (mut later, mut few) = (Narrowed::default(), 0);
        for seed in 0..4 {
            let table = skewed(4 * SIZE, seed);
            let ([first, others], with_few) = attack(&table, &levels);
            later.add(&others);
            few += with_few;
            own.add(&first);
        }
        println!("{levels:?}: {later}; {:.4} of rows with fewer than k who fit", few as f64 / later.rows as f64);
        assert!(later.fewer > 0, "the attack narrows nothing, so it would miss a defence that does nothing");
    }
    println!("the same window: {own}");
}
