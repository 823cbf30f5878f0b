//! The whole walk in memory: a scripted source, a pipeline from a configuration, and a reader who keeps the releases.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::expect_used)]

use std::path::Path;
use std::sync::{Arc, Mutex};

use veilstream::codec::RecordReader;
use veilstream::config::{Config, Purpose};
use veilstream::gate::Release;
use veilstream::generalize::Lineage;
use veilstream::model::event::Millis;
use veilstream::model::release::manifest::Manifest;
use veilstream::model::schema::Placement;
use veilstream::pipeline::{MemoryLimit, Pipeline, PipelineError, Summary};
use veilstream::shutdown;
use veilstream::sink::{Delivery, Sink, SinkError};
use veilstream::source::{Source, SourceError, SourceItem};
use veilstream::telemetry::Telemetry;

/// What a source has to say, then the end.
struct Script(std::vec::IntoIter<SourceItem>);

impl Source for Script {
    async fn next(&mut self) -> Result<SourceItem, SourceError> {
        Ok(self.0.next().unwrap_or(SourceItem::End))
    }
}

/// One release as a reader has it, and what operators are told.
#[derive(Debug)]
pub struct Seen {
    /// Labels and values, row by row.
    pub rows: Vec<(String, Vec<String>)>,
    pub lineage: Lineage,
    pub manifest: Manifest,
}

/// Keeps the releases.
#[derive(Clone, Default)]
pub struct Reader(Arc<Mutex<Vec<Seen>>>);

impl Reader {
    pub fn take(&self) -> Vec<Seen> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

impl Sink for Reader {
    async fn publish(&mut self, release: &Release) -> Result<Delivery, SinkError> {
        let mut rows = Vec::new();
        let read: Result<(), ()> = release.rows(|quasi, values| {
            rows.push((quasi.join(" "), values.iter().map(ToString::to_string).collect()));
            Ok(())
        });
        read.unwrap();
        let (lineage, manifest) = (release.lineage().clone(), release.manifest().clone());
        self.0.lock().unwrap().push(Seen { rows, lineage, manifest });
        Ok(Delivery::Published)
    }

    async fn finish(&mut self) -> Result<(), SinkError> {
        Ok(())
    }
}

/// The time does not go on.
pub fn now() -> Millis {
    Millis(1_700_000_000_000)
}

pub fn config(text: &str) -> Config {
    Config::parse(text, Path::new("pipeline.yaml"), Purpose::Pipeline).expect("a configuration")
}

/// The pipeline of a configuration, between any source and sink.
pub fn pipeline(config: &Config, cores: usize) -> Pipeline {
    let policy = Arc::new(config.policy.clone());
    Pipeline {
        windows: config.windows.clone(),
        scope: config.scope,
        choice: config.choice.clone(),
        audiences: Vec::new(),
        name: "test".into(),
        seed: 1,
        memory: MemoryLimit::new(None),
        cores,
        telemetry: Arc::new(Telemetry::new(&policy).unwrap()),
        policy,
        clock: now,
    }
}

/// Runs to the end of the script, whose events are JSON with the fields where `placements` say.
pub async fn walk<K: Sink>(
    pipeline: Pipeline,
    placements: &[Placement],
    script: Vec<SourceItem>,
    sink: K,
) -> Result<Summary, PipelineError> {
    let readers = readers(&pipeline, placements);
    walk_with(pipeline, readers, script, sink).await
}

/// A reader of JSON for each placement.
pub fn readers(pipeline: &Pipeline, placements: &[Placement]) -> Vec<RecordReader> {
    placements.iter().map(|at| RecordReader::json(&pipeline.policy.schema.placed(at), 1 << 20)).collect()
}

/// Runs to the end of the script, with these readers of its events.
pub async fn walk_with<K: Sink>(
    pipeline: Pipeline,
    readers: Vec<RecordReader>,
    script: Vec<SourceItem>,
    sink: K,
) -> Result<Summary, PipelineError> {
    let (_stopper, stop) = shutdown::channel();
    pipeline.run(Script(script.into_iter()), readers, sink, stop).await
}
