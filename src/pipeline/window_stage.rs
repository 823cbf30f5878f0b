//! The window stage: gathers the rows that the intake makes of messages, until a window closes.
//!
//! [`WindowStage::run`] takes the items of the source in its order, with a method for each kind, and hands [`SearchItem`]s to the
//! search stage. Events mostly come decoded; the others are decoded here, by the same readers. A new assignment drops all open
//! windows: the log delivers their records again to their next owner. Partitions that come or go one by one leave the records of the
//! others where they are. At the end of an input that is not read again, open windows close as they are; with Kafka their records go
//! back to the log.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::mpsc;

use super::decode_stage::{Decoders, Upcoming};
use super::decoded::EventBatch;
use super::intake::RecordIntake;
use super::memory::{BatchRoom, Room};
use super::{Pipeline, PipelineError};
use crate::anonymizer::Past;
use crate::codec::RecordReader;
use crate::codec::survey::ENOUGH;
use crate::encode::Encoded;
use crate::model::batch::Rows;
use crate::model::counting::Counting;
use crate::model::event::{Event, Millis, Partition, Reject, RejectCode};
use crate::model::policy::RecodingKind;
use crate::model::recoding::Recoding;
use crate::model::release::spans::Spans;
use crate::source::{GivenUp, NewAssignment, Recalled, Replay, SourceItem};
use crate::window::{
    CloseReason, ClosedWindow, Lanes, OpenWindow, Replayed, TooWide, WindowId, WindowKind, WindowRules,
};

/// Runs of records that may be open among closed ones, where a log has to name them. More does not fit the metadata of a
/// commit; fewer closes event-time windows together that could have stayed apart.
const MOST_SCATTERED: usize = 200;
/// How long the stage sleeps when no window waits for the clock; any item wakes it.
const IDLE: Duration = Duration::from_secs(3600);

/// The items of the search stage.
pub(super) enum SearchItem {
    /// A window to release, and the memory that it takes.
    Window(Box<ClosedWindow>, Room),
    /// A new assignment.
    Reset(NewAssignment),
    /// More partitions, beside those that are read already.
    Added(NewAssignment),
    /// Partitions that others read from now on.
    GivenUp(GivenUp),
    /// The rows of an earlier release.
    Past(Box<Past>),
}

/// The counts of the window stage.
#[derive(Default)]
pub(super) struct Windowed {
    /// Records that were read.
    pub(super) read: u64,
    /// Records that were given back to the log.
    pub(super) returned: u64,
}

/// Whether the search stage still takes items.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Taken {
    Yes,
    /// A later stage has failed, and reports its error itself.
    No,
}

/// The state of the window stage.
pub(super) struct WindowStage {
    pipeline: Arc<Pipeline>,
    intake: RecordIntake,
    decoders: Arc<Decoders>,
    counting: Arc<Counting>,
    windows: Lanes,
    /// Records held before a restart, until a window of their lane closes.
    held: Rows,
    epoch: u64,
    /// True if the source delivers records again that were not finished.
    rereads: bool,
    to_search: mpsc::Sender<SearchItem>,
    windowed: Windowed,
}

impl WindowStage {
    /// No window open yet.
    pub(super) fn new(
        pipeline: Arc<Pipeline>,
        readers: Vec<RecordReader>,
        decoders: Arc<Decoders>,
        to_search: mpsc::Sender<SearchItem>,
        rereads: bool,
    ) -> Self {
        let counting = Arc::new(pipeline.choice.rules(&pipeline.policy).counting());
        Self {
            intake: RecordIntake::new(readers, &pipeline.policy, &pipeline.telemetry),
            windows: no_windows(&pipeline, &counting, rereads),
            held: no_rows(&pipeline),
            decoders,
            counting,
            pipeline,
            epoch: 0,
            rereads,
            to_search,
            windowed: Windowed::default(),
        }
    }

    /// Gathers records until the source ends, or a later stage fails.
    pub(super) fn run(
        mut self,
        runtime: &Handle,
        mut upcoming: mpsc::Receiver<(Upcoming, BatchRoom)>,
    ) -> Result<Windowed, PipelineError> {
        loop {
            let wait = self.windows.next_due().map_or(IDLE, |due| until(due, self.now()));
            let next = runtime.block_on(async { tokio::time::timeout(wait, upcoming.recv()).await });
            // The memory of a batch is taken until its rows are in the window.
            let taken = match next {
                Ok(Some((Upcoming::Decoding(batch), _room))) => {
                    let batch = runtime.block_on(batch).map_err(|_| PipelineError::StageLost("decode"))?;
                    self.events(batch)?
                }
                Ok(Some((Upcoming::Item(SourceItem::End), _)) | None) => return self.end(),
                Ok(Some((Upcoming::Item(item), _room))) => self.item(item)?,
                Err(_) => self.close_due(self.now())?,
            };
            self.pipeline.telemetry.filling(self.windows.len(), self.windows.opened());
            if taken == Taken::No {
                return Ok(self.windowed);
            }
        }
    }

    fn item(&mut self, item: SourceItem) -> Result<Taken, PipelineError> {
        Ok(match item {
            SourceItem::Events(events) => self.events(EventBatch::undecoded(events))?,
            SourceItem::Held(events) => self.held_before(&events)?,
            SourceItem::Revoked => self.revoked(),
            SourceItem::Assigned(assignment) => self.assigned(assignment),
            SourceItem::Added(assignment) => self.send(SearchItem::Added(assignment)),
            SourceItem::GivenUp(given_up) => self.give_up(given_up),
            SourceItem::Replay(replay) => self.replay(*replay)?,
            SourceItem::Recalled(recalled) => self.recalled(&recalled),
            SourceItem::End => Taken::Yes,
        })
    }

    /// Puts events into windows, and closes the windows that are due.
    fn events(&mut self, batch: EventBatch) -> Result<Taken, PipelineError> {
        let now = self.now();
        self.windowed.read += batch.len() as u64;
        let mut taken = Taken::Yes;
        batch.each(|event, decoded| {
            let (windows, position) = (&mut self.windows, event.position);
            self.intake.read(event, decoded, |encoder, encoded| windows.add(encoder, position, now, encoded))?;
            if self.close_due(now)? == Taken::No {
                taken = Taken::No;
            }
            Ok::<_, PipelineError>(())
        })?;
        self.pipeline.telemetry.read(batch.len());
        self.decoders.survey(self.intake.surveyed());
        self.decoders.give_back(batch);
        Ok(taken)
    }

    /// Takes records that were held before a restart. In a sliding window every record waits anyway. Where messages are taken apart
    /// nobody waits, so these were held under another policy: the records of a message end together, suppressed with the next window.
    fn held_before(&mut self, batch: &[(Event, Option<Millis>)]) -> Result<Taken, TooWide> {
        let now = self.now();
        self.windowed.read += batch.len() as u64;
        self.pipeline.telemetry.read(batch.len());
        let sliding = matches!(self.pipeline.windows, WindowRules::Sliding(_));
        let whole = self.pipeline.policy.schema.array.is_none();
        for (event, since) in batch {
            let (windows, held, position) = (&mut self.windows, &mut self.held, event.position);
            self.intake.read(event, None, |encoder, encoded| match encoded {
                Encoded::Row if !sliding && whole => {
                    held.push(position, waiting_since(event, *since, now), encoder.row());
                    Ok(())
                }
                Encoded::Row if !whole => windows.add(encoder, position, now, Encoded::Suppressed),
                other => windows.add(encoder, position, now, other),
            })?;
        }
        Ok(Taken::Yes)
    }

    /// No partition is assigned until the next assignment.
    fn revoked(&self) -> Taken {
        self.pipeline.telemetry.set_ready(false);
        Taken::Yes
    }

    /// Starts a new assignment: drops the open windows, whose records the log delivers again to their owner.
    fn assigned(&mut self, assignment: NewAssignment) -> Taken {
        self.return_open();
        self.held = no_rows(&self.pipeline);
        self.windows = no_windows(&self.pipeline, &self.counting, self.rereads);
        self.epoch = assignment.epoch;
        self.pipeline.telemetry.set_ready(true);
        self.send(SearchItem::Reset(assignment))
    }

    /// Takes the records of some partitions out of the open windows: their next owner reads them again.
    fn give_up(&mut self, given_up: GivenUp) -> Taken {
        let (partitions, held) = (&given_up.partitions, messages(&self.held));
        self.held = self.held.filtered(|i| !partitions.contains(&self.held.position(i).partition));
        let gone = self.windows.give_up(partitions) as u64 + held - messages(&self.held);
        self.windowed.returned += gone;
        self.send(SearchItem::GivenUp(given_up))
    }

    /// Makes the window of a release that was planned before a crash.
    fn replay(&mut self, replay: Replay) -> Result<Taken, TooWide> {
        let read = replay.events.iter().filter(|event| replay.plan.is_read(event.position)).count();
        self.windowed.read += read as u64;
        self.pipeline.telemetry.read(read);
        let window = self.planned_window(replay)?;
        Ok(self.send_window(window))
    }

    /// Hands on the rows of an earlier release.
    fn recalled(&mut self, recalled: &Recalled) -> Taken {
        let past = self.past(recalled);
        self.send(SearchItem::Past(Box::new(past)))
    }

    /// Closes the open windows as they are, or gives their records back to a log that delivers them again.
    fn end(mut self) -> Result<Windowed, PipelineError> {
        let now = self.now();
        self.pipeline.telemetry.set_ready(false);
        if !self.rereads {
            self.intake.check(1)?;
        }
        while !self.rereads
            && let Some(window) = self.windows.drain(now, self.intake.encoder())?
        {
            if self.send_window(window) == Taken::No {
                break;
            }
        }
        self.return_open();
        Ok(self.windowed)
    }

    /// Sends every window that is due, each with the held records of its lane.
    fn close_due(&mut self, now: Millis) -> Result<Taken, PipelineError> {
        while let Some(mut window) = self.windows.due(now, self.intake.encoder())? {
            self.intake.check(ENOUGH)?;
            window.epoch = self.epoch;
            let (held, scope) = (&self.held, self.pipeline.scope);
            let own = |i: usize| scope.lane(held.position(i).partition) == window.lane;
            let others = held.filtered(|i| !own(i));
            window.held = held.filtered(own);
            self.held = others;
            if self.send_window(window) == Taken::No {
                return Ok(Taken::No);
            }
        }
        Ok(Taken::Yes)
    }

    /// Counts the records of open windows, and the held ones, as given back to the log.
    fn return_open(&mut self) {
        self.windowed.returned += self.windows.unclosed() as u64 + messages(&self.held);
    }

    fn now(&self) -> Millis {
        (self.pipeline.clock)()
    }

    /// Hands a window on once there is memory for its release.
    fn send_window(&self, window: ClosedWindow) -> Taken {
        let room = self.pipeline.memory.window(&window, self.pipeline.audiences.len());
        self.send(SearchItem::Window(Box::new(window), room))
    }

    fn send(&self, item: SearchItem) -> Taken {
        if self.to_search.blocking_send(item).is_ok() { Taken::Yes } else { Taken::No }
    }

    /// The rows of an earlier release. Its records were read before, so they are neither counted nor rejected again.
    fn past(&mut self, recalled: &Recalled) -> Past {
        let policy = &self.pipeline.policy;
        let mut rows = no_rows(&self.pipeline);
        let mut read = Vec::new();
        for (at, event) in recalled.events.iter().enumerate() {
            if self.intake.read_again(event) {
                rows.push(event.position, Millis(0), self.intake.encoder().row());
                read.push(at);
            }
        }
        if rows.len() < recalled.events.len() {
            let missing = recalled.events.len() - rows.len();
            tracing::warn!(missing, "this policy cannot read some records that an earlier release has shown");
        }
        let mut lanes: Vec<Partition> = recalled.partitions.iter().map(|&p| self.pipeline.scope.lane(p)).collect();
        lanes.dedup();
        let own = recalled.fingerprint == policy.fingerprint;
        let node = || policy.recoding_at(&recalled.levels).as_ref().and_then(Recoding::node);
        Past {
            lanes,
            later: recalled.later,
            // What cuts and schedules make of a row follows from all rows that they were made for.
            node: if own && policy.recoding == RecodingKind::FullDomain { node() } else { None },
            row_levels: recalled.row_levels.as_ref().filter(|_| own).and_then(|of_shown| of_shown.of(read)),
            rows,
            dictionaries: self.intake.encoder().dictionaries(),
        }
    }

    /// The window of a planned release, with the rows that were held when it was planned.
    fn planned_window(&mut self, replay: Replay) -> Result<ClosedWindow, TooWide> {
        let Replay { plan, events } = replay;
        let closed = plan.closed.unwrap_or_else(|| self.now());
        let lane = events.first().map(|event| self.pipeline.scope.lane(event.position.partition));
        let mut window = OpenWindow::new(WindowId(0), closed, self.intake.encoder(), Arc::clone(&self.counting))?;
        let mut held = no_rows(&self.pipeline);
        // A plan of another policy is not repeated, so only the records that were read for it matter.
        let obsolete = plan.fingerprint != self.pipeline.policy.fingerprint;
        for event in events.iter().filter(|event| !obsolete || plan.is_read(event.position)) {
            let position = event.position;
            if plan.refused.contains(position) {
                let refused = Encoded::Rejected(Reject::record(RejectCode::UnknownSchema));
                window.add(self.intake.encoder(), position, closed, refused);
                continue;
            }
            self.intake.read(event, None, |encoder, encoded| {
                if encoded == Encoded::Row && plan.held.contains(position) {
                    held.push(position, closed, encoder.row());
                } else {
                    window.add(encoder, position, closed, encoded);
                }
                Ok::<(), TooWide>(())
            })?;
        }
        let mut window = window.close(closed, CloseReason::Replayed, self.intake.encoder())?;
        window.epoch = self.epoch;
        window.lane = lane.unwrap_or(Partition(0));
        window.kind = WindowKind::Replay(Box::new(Replayed { plan, held }));
        Ok(window)
    }
}

/// Lanes without an open window. A log that delivers records again bounds how scattered open records may be.
fn no_windows(pipeline: &Pipeline, counting: &Arc<Counting>, rereads: bool) -> Lanes {
    let windows = Lanes::new(pipeline.windows.clone(), pipeline.scope, Arc::clone(counting));
    let windows = pipeline.memory.share().into_iter().fold(windows, Lanes::holding);
    if rereads { windows.within(MOST_SCATTERED) } else { windows }
}

fn no_rows(pipeline: &Pipeline) -> Rows {
    Rows::new(pipeline.policy.quasi.len(), pipeline.policy.schema.sensitive.len())
}

/// The messages that rows come from. A message can hold several records.
fn messages(rows: &Rows) -> u64 {
    Spans::covering(rows.positions()).count()
}

/// The time since when a record that was held before a restart waits: its own timestamp if that is possible, else the earliest
/// possible time. So a restart lets no record wait longer.
fn waiting_since(event: &Event, since: Option<Millis>, now: Millis) -> Millis {
    let Some(since) = since else { return now };
    event.timestamp.filter(|time| (since..=now).contains(time)).unwrap_or(since)
}

fn until(due: Millis, now: Millis) -> Duration {
    Duration::from_millis(due.0.saturating_sub(now.0).max(0) as u64)
}
