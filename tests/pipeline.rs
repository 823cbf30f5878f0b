//! The walk as a whole, with a source and a sink of our own: that its stages overlap, and whose records share a window.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "common/walk.rs"]
mod walk;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use veilstream::config::Config;
use veilstream::gate::Release;
use veilstream::model::event::{Event, Position};
use veilstream::model::release::manifest::Manifest;
use veilstream::model::schema::Placement;
use veilstream::pipeline::Summary;
use veilstream::sink::{Delivery, Sink, SinkError};
use veilstream::source::SourceItem;
use veilstream::telemetry::Telemetry;
use walk::{pipeline, walk};

/// Larger than any machine needs to fill four windows of a hundred records; only a walk that stands still takes as long.
const PATIENCE: Duration = Duration::from_secs(60);

fn event(partition: u32, offset: i64, age: u32, who: u32) -> Event {
    let json = format!(r#"{{"age":{age},"job":"j{}","id":"p{who}"}}"#, who % 5);
    let position = Position::new(partition, offset);
    Event { position, placement: 0, timestamp: None, key: None, payload: Some(json.into_bytes().into()) }
}

fn config(more: &str) -> Config {
    let text = format!(
        "policy:\n  quasi_identifiers:\n    - {{ name: age, hierarchy: {{ intervals: {{ widths: [10], min: 0, max: 100 }} }} }}\n  \
         sensitive: [{{ name: job }}]\n  subject: id\n  privacy: [{{ k-anonymity: 5 }}]\n{more}"
    );
    walk::config(&text)
}

/// Keeps the manifests. Before the first release is published, waits until so many records were read into windows.
struct Keeping {
    manifests: Arc<Mutex<Vec<Manifest>>>,
    first_waits_for: u64,
    telemetry: Arc<Telemetry>,
}

impl Sink for Keeping {
    async fn publish(&mut self, release: &Release) -> Result<Delivery, SinkError> {
        // As files and transactions do: nothing else in the sink's own task goes on meanwhile.
        tokio::task::block_in_place(|| {
            let asked = Instant::now();
            while self.telemetry.records_read() < self.first_waits_for {
                assert!(asked.elapsed() < PATIENCE, "windows fill while the first release is on its way");
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        self.manifests.lock().unwrap().push(release.manifest().clone());
        Ok(Delivery::Published)
    }

    async fn finish(&mut self) -> Result<(), SinkError> {
        Ok(())
    }
}

async fn manifests(config: &Config, batches: Vec<Vec<Event>>, first_waits_for: u64) -> (Summary, Vec<Manifest>) {
    let pipeline = pipeline(config, 2);
    let (telemetry, manifests) = (Arc::clone(&pipeline.telemetry), Arc::new(Mutex::new(Vec::new())));
    let sink = Keeping { manifests: Arc::clone(&manifests), first_waits_for, telemetry };
    let script = batches.into_iter().map(SourceItem::Events).collect();
    let summary = walk(pipeline, &[Placement::default()], script, sink).await.expect("runs to its end");
    let manifests = std::mem::take(&mut *manifests.lock().unwrap());
    (summary, manifests)
}

/// While the first release is published, the second waits for the sink, the third is searched and waits to be handed
/// on, the fourth waits for the search, and the fifth fills: so the sink may wait until half of the fifth was read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn windows_fill_and_are_searched_while_a_release_is_published() {
    let config = config("window: { tumbling: { max_records: 100, max_age: 1h } }\n");
    // Many more batches than the channel before the window holds.
    let tenth = |t: i64| (0..10).map(|i| event(0, t * 10 + i, (i % 3 * 10) as u32, (t % 10 * 10 + i) as u32)).collect();
    let (summary, manifests) = manifests(&config, (0..60).map(tenth).collect(), 450).await;
    assert!(summary.adds_up());
    assert_eq!((summary.records_in, summary.records_published, manifests.len()), (600, 600, 6));
}

/// Three partitions, in turn; the last one has next to nobody.
fn partitions() -> Vec<Vec<Event>> {
    let batch = |b: i64| {
        let mut events = Vec::new();
        for i in b * 40..(b + 1) * 40 {
            events.push(event(0, i, 10, i as u32));
            events.push(event(1, i, 50, 1000 + i as u32));
        }
        events.push(event(2, b, 90, 5000));
        events
    };
    (0..10).map(batch).collect()
}

fn partitions_of(manifest: &Manifest) -> BTreeSet<u64> {
    manifest.provenance.offsets.iter().map(|spans| spans.partition).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partitions_share_windows_or_are_kept_apart() {
    for (action, held) in [("drop", 0), ("hold", 10)] {
        let window = |scope: &str| {
            config(&format!(
                "  suppression: {{ limit: 10%, action: {action} }}\nwindow: {{ scope: {scope}, tumbling: {{ max_records: 100, \
                 max_age: 1h }} }}\n"
            ))
        };
        let (summary, shared) = manifests(&window("instance"), partitions(), 0).await;
        assert!(summary.adds_up() && shared.iter().any(|m| partitions_of(m).len() > 1));
        let (summary, apart) = manifests(&window("partition"), partitions(), 0).await;
        assert!(summary.adds_up(), "{summary:?}");
        assert!(apart.iter().all(|manifest| partitions_of(manifest).len() <= 1));
        let mut published: BTreeMap<u64, u64> = BTreeMap::new();
        for manifest in apart.iter().filter(|m| m.k_achieved.is_some()) {
            *published.entry(*partitions_of(manifest).first().unwrap()).or_default() +=
                manifest.provenance.records_published;
        }
        assert_eq!(published, [(0, 400), (1, 400)].into());
        // The partition of one person is never flushed.
        assert_eq!((summary.records_held, summary.records_suppressed), (held, 10 - held));
        let ids: BTreeSet<u64> = apart.iter().map(|manifest| manifest.provenance.window_id).collect();
        assert_eq!(ids.len(), apart.len());
        let names: BTreeSet<&str> = apart.iter().map(|manifest| manifest.provenance.release_id.as_str()).collect();
        assert_eq!(names.len(), apart.len(), "no two lanes name a release alike");
    }
}

/// T14: many partitions with few records each. Together they are enough people; apart nobody is published.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn small_partitions_are_published_together_or_not_at_all() {
    let batch =
        vec![(0..12u32).flat_map(|p| (0..3).map(move |i| event(p, i, 10, p * 3 + i as u32))).collect::<Vec<_>>()];
    for (scope, published) in [("instance", 36), ("partition", 0)] {
        let config = config(&format!("window: {{ scope: {scope}, tumbling: {{ max_age: 1h }} }}\n"));
        let (summary, _) = manifests(&config, batch.clone(), 0).await;
        assert!(summary.adds_up());
        assert_eq!((summary.records_published, summary.records_suppressed), (published, 36 - published), "{scope}");
    }
}
