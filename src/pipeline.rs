//! The walk, written once: source -> decode -> window -> search -> gate -> sink, with a bounded channel at each of three cuts.
//!
//! The source and the sink are tasks. Windows ([`window_stage`]) and searches ([`search_stage`]) are CPU work on threads of
//! their own. Between source and window, batches of events are decoded on several cores ([`decode_stage`]); the window stage takes
//! them in their order and encodes them itself, so what is published does not depend on the number of cores. Data flows one way;
//! only a stop and the pressure of full channels travel back. When a stage fails, its channel closes, the stages before it stop
//! because their reader is gone, and the first error is the one that is reported.

mod decode_stage;
mod decoded;
mod intake;
mod memory;
mod search_stage;
mod summary;
mod window_stage;

use std::sync::Arc;
use std::thread::JoinHandle;

use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};

use crate::codec::RecordReader;
use crate::model::event::Millis;
use crate::model::policy::Policy;
use crate::model::release::audience::Audience;
use crate::search::choose::Choice;
use crate::shutdown::Stop;
use crate::sink::{Delivery, Sink, SinkError};
use crate::source::{Source, SourceError, SourceItem};
use crate::telemetry::Telemetry;
use crate::window::{Scope, WindowRules};

use decode_stage::{DecodeStage, Upcoming};
use memory::BatchRoom;
use search_stage::{SearchStage, Searched, SinkItem};
use window_stage::{SearchItem, WindowStage, Windowed};

pub use memory::MemoryLimit;
pub use summary::{PipelineError, Summary};

/// Batches of events on their way to the window, which are decoded meanwhile. More only adds latency and memory; fewer lets cores
/// starve.
const EVENT_BATCHES: usize = 8;
/// Closed windows on their way to the search: one is searched while the next one fills. More would hold whole windows.
const CLOSED_WINDOWS: usize = 1;
/// Releases on their way to the sink: one is sent while the next one is searched. More would hold whole releases.
const RELEASES: usize = 1;
/// Everything between source and sink.
pub struct Pipeline {
    /// What a release must satisfy.
    pub policy: Arc<Policy>,
    /// Which windows there are.
    pub windows: WindowRules,
    /// Whose records go into one.
    pub scope: Scope,
    /// How recodings are searched and chosen.
    pub choice: Choice,
    /// Who gets a table of its own of every release.
    pub audiences: Vec<Audience>,
    /// The first part of every release id.
    pub name: String,
    /// Fixes shuffles and searches.
    pub seed: u64,
    /// Bounds what is held.
    pub memory: MemoryLimit,
    /// The cores that the process may use. On one, nothing is decoded ahead.
    pub cores: usize,
    /// Counts and logs.
    pub telemetry: Arc<Telemetry>,
    /// The wall clock.
    pub clock: fn() -> Millis,
}

impl Pipeline {
    /// The same for another run from the start, with another seed.
    #[must_use]
    pub fn anew(&self, seed: u64) -> Self {
        Self {
            policy: Arc::clone(&self.policy),
            windows: self.windows.clone(),
            choice: self.choice.clone(),
            audiences: self.audiences.clone(),
            name: self.name.clone(),
            memory: self.memory.anew(),
            telemetry: Arc::clone(&self.telemetry),
            scope: self.scope,
            cores: self.cores,
            clock: self.clock,
            seed,
        }
    }

    /// Runs until the source ends, a stop is asked for, or a stage fails. `readers` read the events, by their placement.
    pub async fn run<S: Source + Send + 'static, K: Sink>(
        self,
        source: S,
        readers: Vec<RecordReader>,
        sink: K,
        stop: Stop,
    ) -> Result<Summary, PipelineError> {
        let (to_window, events) = mpsc::channel::<(Upcoming, BatchRoom)>(EVENT_BATCHES);
        let (to_search, closed) = mpsc::channel::<SearchItem>(CLOSED_WINDOWS);
        let (to_sink, releases) = mpsc::channel::<SinkItem>(RELEASES);
        let this = Arc::new(self);
        let space = source.commit_space();
        let decoders = decode_stage::Decoders::new(readers.len());
        let decode = DecodeStage::new(&readers, Arc::clone(&decoders), this.cores);
        let window = spawn("window", {
            let stage = WindowStage::new(Arc::clone(&this), readers, decoders, to_search, S::REREADS);
            move |runtime| stage.run(&runtime, events)
        });
        let search = spawn("search", {
            let stage = SearchStage::new(Arc::clone(&this), to_sink, space);
            move |runtime| stage.run(&runtime, closed)
        });
        let (publishing, ended) = oneshot::channel::<()>();
        // A task of its own: a sink that blocks in place holds up every future of its task.
        let source = tokio::spawn(feed(source, decode, to_window, Arc::clone(&this), stop, ended));
        let (sourced, sunk) = tokio::join!(source, this.publish(sink, releases, publishing));
        let windowed: Result<Windowed, _> = joined("window", window).await;
        let searched: Result<Searched, _> = joined("search", search).await;
        // The stage nearest to the cause first: a later stage that fails makes the earlier ones stop without an error.
        let mut summary = sunk?;
        let searched = searched?;
        let windowed = windowed?;
        sourced.map_err(|_| PipelineError::StageLost("source"))??;
        summary.records_in = windowed.read;
        summary.records_held = searched.waiting;
        summary.records_returned += windowed.returned + searched.returned;
        if summary.adds_up() { Ok(summary) } else { Err(PipelineError::Unaccounted(summary)) }
    }

    /// Sends releases to the sink until the search stage ends. `_publishing` tells the source by its end that nothing is
    /// published any more.
    async fn publish<K: Sink>(
        &self,
        mut sink: K,
        mut releases: mpsc::Receiver<SinkItem>,
        _publishing: oneshot::Sender<()>,
    ) -> Result<Summary, SinkError> {
        let mut summary = Summary::default();
        while let Some(item) = releases.recv().await {
            let (_room, release) = match item {
                SinkItem::Release(release, room) => (room, release),
                SinkItem::GivenUp(done) => {
                    // Nobody waits any more if the whole assignment has gone meanwhile.
                    let _ = done.try_send(());
                    continue;
                }
            };
            match sink.publish(&release).await? {
                Delivery::Published => {
                    summary.add(&release);
                    self.telemetry.released(&release, (self.clock)());
                }
                Delivery::Discarded => {
                    summary.records_returned += release.lineage().finished.count();
                    self.telemetry.discarded(&release);
                }
            }
        }
        sink.finish().await?;
        Ok(summary)
    }
}

/// Hands items to the window stage by way of the decode stage, until the source ends, a stop is asked for, or nothing is
/// published any more.
async fn feed<S: Source>(
    mut source: S,
    decode: DecodeStage,
    to_window: mpsc::Sender<(Upcoming, BatchRoom)>,
    pipeline: Arc<Pipeline>,
    mut stop: Stop,
    mut ended: oneshot::Receiver<()>,
) -> Result<(), SourceError> {
    loop {
        let item = tokio::select! {
            item = source.next() => item?,
            () = stop.asked() => SourceItem::End,
            // Without this, a source that is silent for hours keeps a failed run alive.
            _ = &mut ended => SourceItem::End,
        };
        let end = matches!(item, SourceItem::End);
        let room = pipeline.memory.batch(&item).await;
        if to_window.send((decode.start(item), room)).await.is_err() || end {
            return Ok(());
        }
    }
}

type Stage<T> = std::io::Result<JoinHandle<Result<T, PipelineError>>>;

/// Starts a stage on a thread of its own.
fn spawn<T: Send + 'static>(
    name: &'static str,
    stage: impl FnOnce(Handle) -> Result<T, PipelineError> + Send + 'static,
) -> Stage<T> {
    let runtime = Handle::current();
    std::thread::Builder::new().name(name.into()).spawn(move || stage(runtime))
}

/// Waits for a stage to end. A panic becomes an error that names only the stage.
async fn joined<T: Send + 'static>(name: &'static str, stage: Stage<T>) -> Result<T, PipelineError> {
    let handle = stage.map_err(|_| PipelineError::StageLost(name))?;
    let ended = tokio::task::spawn_blocking(move || handle.join()).await;
    ended.ok().and_then(Result::ok).unwrap_or(Err(PipelineError::StageLost(name)))
}
