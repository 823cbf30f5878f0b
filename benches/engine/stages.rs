//! One window through every stage, on one thread. Stages that hand records on one by one are told apart by leaving out the later
//! ones: the difference of two runs is the stage.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng as _;
use veilstream::anonymizer::Anonymizer;
use veilstream::codec::json::{JsonDecoder, JsonEncoder};
use veilstream::codec::{DEFAULT_MAX_RECORD_BYTES, Decode as _};
use veilstream::encode::{Encoded, Encoder};
use veilstream::gate::{self, Release};
use veilstream::generalize::{GeneralizedBatch, RowRef};
use veilstream::model::event::{Event, Millis};
use veilstream::model::lattice::Node;
use veilstream::model::recoding::Recoding;
use veilstream::search::choose::choose;
use veilstream::search::evaluator::Evaluator;
use veilstream::sink::file::{FilePaths, FileSink};
use veilstream::window::{CloseReason, ClosedWindow, OpenWindow, WindowId};

use super::baseline::{Figure, reference};
use super::people::Case;
use super::{WINDOW, fixture, shortest, timed};

/// More runs find a quieter moment; fewer are over sooner.
const RUNS: usize = 9;

/// Prints the table of one case.
pub(crate) fn run(case: &Case) -> Vec<Figure> {
    let choice = Case::choice();
    let rules = choice.rules(&case.policy);
    let counting = Arc::new(rules.counting());
    let mut decoder = JsonDecoder::new(&case.policy.schema, DEFAULT_MAX_RECORD_BYTES);
    let mut encoder = Encoder::new(Arc::clone(&case.policy));
    // Dictionaries and shapes are learnt in the first window of a stream, and known from then on.
    for event in &case.events(WINDOW, WINDOW) {
        let record = decoder.decode(payload(event)).expect("good input");
        assert_eq!(encoder.encode(&record, None), Encoded::Row);
    }
    let events = case.events(0, WINDOW);
    let bytes: usize = events.iter().map(|event| payload(event).len()).sum();
    let reference = reference();

    let decode = || timed(|| events.iter().for_each(|event| drop(black_box(decoder.decode(payload(event))))));
    let decode = shortest(RUNS, decode).0;
    let encode = || {
        timed(|| {
            for event in &events {
                let record = decoder.decode(payload(event)).expect("good input");
                black_box(encoder.encode(&record, event.timestamp));
            }
        })
    };
    let encode = shortest(RUNS, encode).0.saturating_sub(decode);
    let window = || {
        timed(|| -> ClosedWindow {
            let mut window = OpenWindow::new(WindowId(0), Millis(0), &encoder, Arc::clone(&counting)).expect("fits");
            for event in &events {
                let record = decoder.decode(payload(event)).expect("good input");
                let encoded = encoder.encode(&record, event.timestamp);
                window.add(&encoder, event.position, Millis(0), encoded);
            }
            window.close(Millis(1), CloseReason::Full, &encoder).expect("fits")
        })
    };
    let (filled, closed) = shortest(RUNS, window);
    let window = filled.saturating_sub(decode + encode);

    let release = || {
        let recounted = closed.recounted((*counting).clone()).expect("fits");
        let mut anonymizer = Anonymizer::new(Arc::clone(&case.policy), choice.clone(), "bench", 1);
        timed(|| *fixture::released(anonymizer.release(recounted).expect("fits")))
    };
    let (released, release) = shortest(RUNS, release);
    let provenance = &release.manifest().provenance;
    let search = || {
        let recounted = closed.recounted((*counting).clone()).expect("fits");
        let rules = rules.bind(&recounted.dictionaries.values());
        timed(|| {
            let evaluator = Evaluator::new(&case.policy, &rules, Arc::clone(&recounted.sets));
            choose(&choice, &case.policy.lattice(), None, &evaluator, &mut ChaCha8Rng::seed_from_u64(1))
        })
    };
    let search = shortest(RUNS, search).0;
    let rows = black_box(&closed.rows);
    let levels = Node::new(provenance.recoding.iter().map(|attribute| attribute.level));
    let (generalize, gate) = generalize_and_gate(case, &closed, &Recoding::from(levels), release.len());
    let plan = released.saturating_sub(search + generalize + gate);
    let (serialize, written) = serialize(case, &release);

    println!(
        "{}: {} of {WINDOW} published in {} classes, {} nodes counted; {} bytes in and {} out per record; reference {reference:.0} ns",
        case.name,
        release.len(),
        release.manifest().classes,
        provenance.nodes_checked,
        bytes / WINDOW,
        written / release.len(),
    );
    assert_eq!(rows.len(), WINDOW);
    let stages = [
        ("decode", decode),
        ("encode", encode),
        ("window+count", window),
        ("search", search),
        ("plan+account", plan),
        ("generalize", generalize),
        ("gate", gate),
        ("serialize", serialize),
    ];
    let total: Duration = stages.iter().map(|(_, time)| *time).sum();
    let mut figures = Vec::new();
    for (stage, time) in stages.into_iter().chain([("total", total)]) {
        let ns = time.as_nanos() as f64 / WINDOW as f64;
        println!("  {stage:<14} {ns:>8.1} ns/record  {:>7.3} x reference", ns / reference);
        figures.push(Figure { name: format!("{}/{stage}", case.name), ratio: ns / reference });
    }
    println!("  one thread, stage after stage: {:.0} records/s", WINDOW as f64 / total.as_secs_f64());
    figures
}

fn payload(event: &Event) -> &[u8] {
    event.payload.as_deref().expect("a payload")
}

/// As the anonymizer does it, with everything published that fits.
fn generalize_and_gate(case: &Case, closed: &ClosedWindow, recoding: &Recoding, rows: usize) -> (Duration, Duration) {
    let mut rules = Case::choice().rules(&case.policy);
    // The first rows, whoever they are: as many as were published. They need not satisfy, so that the gate is asked for k = 1.
    let mut policy = (*case.policy).clone();
    policy.criteria = vec![veilstream::model::policy::Criterion::KAnonymity(veilstream::model::policy::K(1))];
    let facets = rules.facets().to_vec();
    rules = veilstream::privacy::Rules::new(&policy).also_counting(facets);
    let batch = || {
        let order: Vec<RowRef> = (0..rows as u32).map(RowRef::Fresh).collect();
        let held = Arc::new(closed.rows.filtered(|_| false));
        timed(|| {
            let columns: Vec<_> = recoding.columns(&closed.dictionaries.quasi).into_iter().map(Arc::new).collect();
            GeneralizedBatch::at(Arc::clone(&closed.rows), held, order, &columns, &closed.dictionaries)
        })
    };
    let generalize = shortest(RUNS, batch).0;
    let gate = || {
        let (_, batch) = batch();
        timed(|| gate::verify(batch, &rules).expect("k = 1"))
    };
    (generalize, shortest(RUNS, gate).0)
}

/// Into the buffer of a sink that has written before.
fn serialize(case: &Case, release: &Release) -> (Duration, usize) {
    let encoder = || Box::new(JsonEncoder::new(&case.policy.schema));
    let folder = tempfile::tempdir().expect("a directory");
    let rows = folder.path().join("rows.jsonl");
    FileSink::open(&FilePaths::rows_only(&rows), encoder(), Vec::new())
        .expect("a file")
        .write(release)
        .expect("written");
    let mut sink = FileSink::open(&FilePaths::rows_only("/dev/null"), encoder(), Vec::new()).expect("a stream");
    let write = || timed(|| sink.write(release).expect("written"));
    (shortest(RUNS, write).0, std::fs::metadata(&rows).expect("a file").len() as usize)
}
