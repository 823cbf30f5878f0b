//! The walk, written once: source -> window -> search -> gate -> sink, with a bounded channel at each of three cuts.
//!
//! The source and the sink are tasks; windows and searches are CPU work on threads of their own. Data flows one way. What
//! travels back is a stop, and the pressure of full channels. When a stage fails, its channel closes, the stages before it
//! stop for want of a reader, and the first error is the one that is reported.

mod summary;

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};

use crate::anonymizer::{Anonymizers, Closing, Past};
use crate::codec::Decode;
use crate::encode::{Encoded, Encoder};
use crate::failpoint::step;
use crate::gate::Release;
use crate::model::batch::Rows;
use crate::model::counting::Counting;
use crate::model::event::{Event, Millis, Partition, Reject, RejectCode};
use crate::model::policy::Policy;
use crate::model::release::plan::CommitSpace;
use crate::search::choose::Choice;
use crate::shutdown::Stop;
use crate::sink::{Delivery, Sink, SinkError};
use crate::source::{NewAssignment, Recalled, Replay, Source, SourceError, SourceItem};
use crate::telemetry::Telemetry;
use crate::window::{
    CloseReason, ClosedWindow, Lanes, OpenWindow, Replayed, Scope, TooWide, WindowId, WindowKind, WindowRules,
};

pub use summary::{PipelineError, Summary};

/// Batches of events on their way to the window. More only adds latency and memory; fewer lets the decoder starve.
const EVENT_BATCHES: usize = 8;
/// Closed windows on their way to the search: one is searched while the next one fills. More would hold whole windows.
const CLOSED_WINDOWS: usize = 1;
/// Releases on their way to the sink: one is sent while the next one is searched. More would hold whole releases.
const RELEASES: usize = 1;
/// How long an operator's look at a search may take. Longer costs the stream more than the console may, at one look in twenty
/// seconds; shorter finds no trade-off in larger windows.
const LOOK: Duration = Duration::from_millis(50);
/// Runs of records that may be open among closed ones, where a log has to name them. More would not fit the metadata of a
/// commit; fewer closes event-time windows together that could have stayed apart.
const MOST_SCATTERED: usize = 200;
/// How often records that wait are looked at when no window closes.
const TICK: Duration = Duration::from_millis(250);

/// How long the window stage sleeps when no window waits for the clock; whatever arrives wakes it.
const IDLE: Duration = Duration::from_secs(3600);

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
    /// The first part of every release id.
    pub name: String,
    /// Fixes shuffles and searches.
    pub seed: u64,
    /// Counts and logs.
    pub telemetry: Arc<Telemetry>,
    /// The wall clock.
    pub clock: fn() -> Millis,
}

impl Pipeline {
    /// Runs until the source ends, a stop is asked for, or a stage fails.
    pub async fn run<S: Source + Send + 'static, K: Sink>(
        self,
        source: S,
        decoder: Box<dyn Decode>,
        mut sink: K,
        stop: Stop,
    ) -> Result<Summary, PipelineError> {
        let (to_window, events) = mpsc::channel(EVENT_BATCHES);
        let (to_search, closed) = mpsc::channel::<Closed>(CLOSED_WINDOWS);
        let (to_sink, mut releases) = mpsc::channel::<Release>(RELEASES);
        let this = Arc::new(self);
        let ledger = source.commit_space();
        let window = spawn("window", {
            let this = Arc::clone(&this);
            move |runtime| this.window(&runtime, decoder, events, &to_search, !S::REREADS)
        });
        let search = spawn("search", {
            let this = Arc::clone(&this);
            move |runtime| this.search(&runtime, closed, to_sink, ledger)
        });
        let (publishing, ended) = oneshot::channel::<()>();
        // A task of its own: a sink that blocks in place holds up whatever shares its task.
        let source = tokio::spawn(feed(source, to_window, stop, ended));
        let telemetry = Arc::clone(&this.telemetry);
        let sink = async move {
            let _publishing = publishing;
            let mut summary = Summary::default();
            while let Some(release) = releases.recv().await {
                match sink.publish(&release).await? {
                    Delivery::Published => {
                        summary.add(&release);
                        telemetry.released(&release, (this.clock)());
                    }
                    Delivery::Discarded => {
                        summary.records_returned += release.lineage().finished.count();
                        telemetry.discarded(&release);
                    }
                }
            }
            sink.finish().await?;
            Ok::<Summary, SinkError>(summary)
        };
        let (sourced, sunk) = tokio::join!(source, sink);
        let windowed = joined("window", window).await;
        let searched = joined("search", search).await;
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

    /// Decodes, encodes and gathers.
    fn window(
        &self,
        runtime: &Handle,
        mut decoder: Box<dyn Decode>,
        mut events: mpsc::Receiver<SourceItem>,
        to_search: &mpsc::Sender<Closed>,
        drain: bool,
    ) -> Result<Windowed, PipelineError> {
        let mut encoder = Encoder::new(Arc::clone(&self.policy));
        let counting = Arc::new(self.choice.rules(&self.policy).counting());
        let no_windows = || {
            let windows = Lanes::new(self.windows.clone(), self.scope, Arc::clone(&counting));
            if drain { windows } else { windows.within(MOST_SCATTERED) }
        };
        let mut windows = no_windows();
        let sliding = matches!(self.windows, WindowRules::Sliding(_));
        let mut windowed = Windowed::default();
        let mut epoch = 0;
        let empty = Rows::new(self.policy.quasi.len(), self.policy.schema.sensitive.len());
        let mut held = empty.clone();
        loop {
            let wait = windows.next_due().map_or(IDLE, |due| until(due, (self.clock)()));
            let item = runtime.block_on(async { tokio::time::timeout(wait, events.recv()).await });
            let now = (self.clock)();
            let mut sent = true;
            match item {
                Ok(Some(SourceItem::Events(batch))) => {
                    windowed.read += batch.len() as u64;
                    for event in &batch {
                        let encoded = self.read(event, &mut *decoder, &mut encoder);
                        windows.add(&encoder, event.position, now, encoded)?;
                        sent &= close_due(&mut windows, &mut held, now, &encoder, epoch, self.scope, to_search)?;
                    }
                    self.telemetry.read(batch.len());
                }
                Ok(Some(SourceItem::Held(batch))) => {
                    windowed.read += batch.len() as u64;
                    self.telemetry.read(batch.len());
                    for (event, since) in &batch {
                        match self.read(event, &mut *decoder, &mut encoder) {
                            // In a sliding window a record waits anyway.
                            Encoded::Row if !sliding => {
                                held.push(event.position, waiting(event, *since, now), encoder.row());
                            }
                            other => windows.add(&encoder, event.position, now, other)?,
                        }
                    }
                }
                Ok(Some(SourceItem::Revoked)) => self.telemetry.set_ready(false),
                Ok(Some(SourceItem::Assigned(assignment))) => {
                    windowed.returned += (windows.unclosed() + held.len()) as u64;
                    held = empty.clone();
                    windows = no_windows();
                    epoch = assignment.epoch;
                    self.telemetry.set_ready(true);
                    sent = to_search.blocking_send(Closed::Reset(assignment)).is_ok();
                }
                Ok(Some(SourceItem::Replay(replay))) => {
                    let plan = &replay.plan;
                    let read = |event: &&Event| plan.is_read(event.position);
                    let read = replay.events.iter().filter(read).count();
                    windowed.read += read as u64;
                    self.telemetry.read(read);
                    let window = self.replay(*replay, epoch, &mut *decoder, &mut encoder, &counting)?;
                    sent = to_search.blocking_send(Closed::Window(Box::new(window))).is_ok();
                }
                Ok(Some(SourceItem::Recalled(recalled))) => {
                    let past = self.recall(&recalled, &mut *decoder, &mut encoder);
                    sent = to_search.blocking_send(Closed::Past(Box::new(past))).is_ok();
                }
                Err(_) => {
                    sent = close_due(&mut windows, &mut held, now, &encoder, epoch, self.scope, to_search)?;
                }
                Ok(Some(SourceItem::End) | None) => {
                    self.telemetry.set_ready(false);
                    while drain && let Some(window) = windows.drain(now, &encoder)? {
                        if to_search.blocking_send(Closed::Window(Box::new(window))).is_err() {
                            break;
                        }
                    }
                    windowed.returned += (windows.unclosed() + held.len()) as u64;
                    return Ok(windowed);
                }
            }
            self.telemetry.filling(windows.len(), windows.opened());
            if !sent {
                // A later stage has failed, and says why.
                return Ok(windowed);
            }
        }
    }

    /// Event -> Record -> Row.
    fn read(&self, event: &Event, decoder: &mut dyn Decode, encoder: &mut Encoder) -> Encoded {
        let key = event.key.as_deref();
        let encoded = match (&event.payload, key) {
            (Some(payload), _) => match decoder.decode(payload) {
                Ok(record) => encoder.encode(&record, event.timestamp),
                Err(reject) => Encoded::Rejected(reject),
            },
            (None, Some(key)) => encoder.tombstone(key),
            (None, None) => Encoded::Rejected(Reject::record(RejectCode::Tombstone)),
        };
        match &encoded {
            Encoded::Row => encoder.set_key(key),
            Encoded::Rejected(reject) => self.telemetry.rejected(event.position, reject),
            Encoded::Tombstone(_) => {
                self.telemetry.rejected(event.position, &Reject::record(RejectCode::Tombstone));
            }
            Encoded::Suppressed => {}
        }
        encoded
    }

    /// What an earlier release shows. Its records were read before: they are not counted again, nor turned away.
    fn recall(&self, recalled: &Recalled, decoder: &mut dyn Decode, encoder: &mut Encoder) -> Past {
        let mut rows = Rows::new(self.policy.quasi.len(), self.policy.schema.sensitive.len());
        for event in &recalled.events {
            let record = event.payload.as_ref().map(|payload| decoder.decode(payload));
            if let Some(Ok(record)) = record
                && encoder.encode(&record, event.timestamp) == Encoded::Row
            {
                rows.push(event.position, Millis(0), encoder.row());
            }
        }
        if rows.len() < recalled.events.len() {
            let missing = recalled.events.len() - rows.len();
            tracing::warn!(missing, "records that an earlier release has shown are none by this policy");
        }
        let mut lanes: Vec<Partition> = recalled.partitions.iter().map(|&p| self.scope.lane(p)).collect();
        lanes.dedup();
        Past {
            lanes,
            later: recalled.later,
            recoding: (recalled.fingerprint == self.policy.fingerprint)
                .then(|| self.policy.recoding_at(&recalled.levels))
                .flatten(),
            rows,
            dictionaries: encoder.dictionaries(),
        }
    }

    /// The window of a release that was planned before a crash.
    fn replay(
        &self,
        replay: Replay,
        epoch: u64,
        decoder: &mut dyn Decode,
        encoder: &mut Encoder,
        counting: &Arc<Counting>,
    ) -> Result<ClosedWindow, PipelineError> {
        let closed = replay.plan.closed.unwrap_or_else(|| (self.clock)());
        let lane = replay.events.first().map(|event| self.scope.lane(event.position.partition));
        let mut window = OpenWindow::new(WindowId(0), closed, encoder, Arc::clone(counting))?;
        let mut held = Rows::new(self.policy.quasi.len(), self.policy.schema.sensitive.len());
        // By another policy what was shown before is not shown again: see `Anonymizer::release`.
        let obsolete = replay.plan.fingerprint != self.policy.fingerprint;
        for event in replay.events.iter().filter(|event| !obsolete || replay.plan.is_read(event.position)) {
            let encoded = match replay.plan.refused.contains(event.position) {
                true => Encoded::Rejected(Reject::record(RejectCode::UnknownSchema)),
                false => self.read(event, decoder, encoder),
            };
            if encoded == Encoded::Row && replay.plan.held.contains(event.position) {
                held.push(event.position, closed, encoder.row());
            } else {
                window.add(encoder, event.position, closed, encoded)?;
            }
        }
        let mut window = window.close(closed, CloseReason::Replayed, encoder)?;
        window.epoch = epoch;
        window.lane = lane.unwrap_or(Partition(0));
        window.kind = WindowKind::Replay(Box::new(Replayed { plan: replay.plan, held }));
        Ok(window)
    }

    /// Makes releases.
    fn search(
        &self,
        runtime: &Handle,
        mut closed: mpsc::Receiver<Closed>,
        to_sink: mpsc::Sender<Release>,
        ledger: Option<Arc<dyn CommitSpace>>,
    ) -> Result<Searched, PipelineError> {
        let mut anonymizers =
            Anonymizers::new(Arc::clone(&self.policy), self.choice.clone(), self.name.clone(), self.seed)
                .within(ledger);
        let mut searched = Searched::default();
        loop {
            let closing = match runtime.block_on(async { tokio::time::timeout(TICK, closed.recv()).await }) {
                Ok(Some(Closed::Window(window))) => {
                    self.telemetry.closed(&window);
                    step("closed");
                    let replayed = matches!(window.kind, WindowKind::Replay(_));
                    let anonymizer = anonymizers.of(window.lane);
                    if self.telemetry.look_due((self.clock)()) {
                        anonymizer.look(LOOK);
                    }
                    let closing = anonymizer.release(*window)?;
                    step("gated");
                    if let Some(insight) = anonymizer.take_insight() {
                        self.telemetry.looked(insight, (self.clock)());
                    }
                    if replayed {
                        searched.returned += anonymizer.retract_others();
                    }
                    Some(closing)
                }
                Ok(Some(Closed::Reset(assignment))) => {
                    searched.returned += anonymizers.waiting();
                    let last = assignment.last.map(|node| node.levels().to_vec());
                    anonymizers.reset(assignment.partitions, last);
                    None
                }
                Ok(Some(Closed::Past(past))) => {
                    past.lanes.iter().for_each(|&lane| anonymizers.of(lane).recall(&past));
                    None
                }
                Ok(None) => {
                    searched.waiting = anonymizers.waiting();
                    return Ok(searched);
                }
                Err(_) => anonymizers.tick((self.clock)())?,
            };
            let release = match closing {
                Some(Closing::Release(release)) => release,
                Some(Closing::Refused(refusal)) => {
                    self.telemetry.refused(&refusal);
                    return Err(refusal.into());
                }
                None => continue,
            };
            if to_sink.blocking_send(*release).is_err() {
                // The sink has failed, and says why.
                return Ok(searched);
            }
            anonymizers.learn();
        }
    }
}

/// Hands items on until the source ends, a stop is asked for, or nothing is published any more.
async fn feed<S: Source>(
    mut source: S,
    to_window: mpsc::Sender<SourceItem>,
    mut stop: Stop,
    mut ended: oneshot::Receiver<()>,
) -> Result<(), SourceError> {
    loop {
        let item = tokio::select! {
            item = source.next() => item?,
            () = stop.asked() => SourceItem::End,
            // A source that says nothing for hours would otherwise keep a failed run alive.
            _ = &mut ended => SourceItem::End,
        };
        let end = matches!(item, SourceItem::End);
        if to_window.send(item).await.is_err() || end {
            return Ok(());
        }
    }
}

/// What the window stage hands on.
enum Closed {
    /// A window to release.
    Window(Box<ClosedWindow>),
    /// A new assignment.
    Reset(NewAssignment),
    /// What an earlier release shows.
    Past(Box<Past>),
}

/// What the window stage counted.
#[derive(Default)]
struct Windowed {
    read: u64,
    returned: u64,
}

/// What the search stage counted.
#[derive(Default)]
struct Searched {
    waiting: u64,
    returned: u64,
}

/// Sends every window that is due; false if nobody takes them any more.
fn close_due(
    windows: &mut Lanes,
    held: &mut Rows,
    now: Millis,
    encoder: &Encoder,
    epoch: u64,
    scope: Scope,
    to_search: &mpsc::Sender<Closed>,
) -> Result<bool, TooWide> {
    while let Some(mut window) = windows.due(now, encoder)? {
        window.epoch = epoch;
        let own = |i: &usize| scope.lane(held.position(*i).partition) == window.lane;
        window.held = held.filtered(|i| own(&i));
        *held = held.filtered(|i| !own(&i));
        if to_search.blocking_send(Closed::Window(Box::new(window))).is_err() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Since when a record that was held before a restart waits, as far as can be told: its own time if that is possible,
/// else the earliest that is. So a restart lets nothing wait for longer.
fn waiting(event: &Event, since: Option<Millis>, now: Millis) -> Millis {
    let Some(since) = since else { return now };
    event.timestamp.filter(|time| (since..=now).contains(time)).unwrap_or(since)
}

fn until(due: Millis, now: Millis) -> Duration {
    Duration::from_millis(due.0.saturating_sub(now.0).max(0) as u64)
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

/// Waits for a stage to end; a panic is an error that says no more than which stage it was.
async fn joined<T: Send + 'static>(name: &'static str, stage: Stage<T>) -> Result<T, PipelineError> {
    let handle = stage.map_err(|_| PipelineError::StageLost(name))?;
    let ended = tokio::task::spawn_blocking(move || handle.join()).await;
    ended.ok().and_then(Result::ok).unwrap_or(Err(PipelineError::StageLost(name)))
}
