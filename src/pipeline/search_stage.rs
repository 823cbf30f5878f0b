//! The search stage: closed windows -> releases, one anonymizer per lane.
//!
//! [`SearchStage::run`] takes the items of the window stage, with a method for each kind, and hands releases to the sink. When
//! nothing arrives for [`TICK`], it accounts for waiting records that have expired. A refusal of the gate ends the run.

use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::mpsc;

use super::memory::Room;
use super::window_stage::SearchItem;
use super::{Pipeline, PipelineError};
use crate::anonymizer::{Anonymizers, Closing, Past, view};
use crate::failpoint::step;
use crate::gate::Release;
use crate::model::release::audience::Audience;
use crate::model::release::plan::CommitSpace;
use crate::source::{GivenUp, NewAssignment};
use crate::usefulness::recodings::{self, WindowSample};
use crate::window::{ClosedWindow, TooWide, WindowKind};

/// How long an operator's insight into a search may take. Longer costs the stream more than the console may, at one insight in
/// twenty seconds; shorter finds no trade-off in larger windows.
const LOOK: Duration = Duration::from_millis(50);
/// How often waiting records are checked when no window closes. Longer lets them wait beyond `max_hold`; shorter wakes an idle
/// service more often.
const TICK: Duration = Duration::from_millis(250);

/// The items of the sink.
pub(super) enum SinkItem {
    /// A release to publish, and the memory that it takes.
    Release(Box<Release>, Room),
    /// Partitions were given up; to be told when the releases before this have ended.
    GivenUp(SyncSender<()>),
}

/// The counts of the search stage.
#[derive(Default)]
pub(super) struct Searched {
    /// Records that still wait at the end.
    pub(super) waiting: u64,
    /// Records that were given back to the log.
    pub(super) returned: u64,
}

/// The state of the search stage.
pub(super) struct SearchStage {
    pipeline: Arc<Pipeline>,
    anonymizers: Anonymizers,
    to_sink: mpsc::Sender<SinkItem>,
    searched: Searched,
}

impl SearchStage {
    /// No window searched yet. `space` caps the waiting records, where the source commits them.
    pub(super) fn new(
        pipeline: Arc<Pipeline>,
        to_sink: mpsc::Sender<SinkItem>,
        space: Option<Arc<dyn CommitSpace>>,
    ) -> Self {
        let Pipeline { policy, choice, name, seed, memory, .. } = &*pipeline;
        let anonymizers = Anonymizers::new(Arc::clone(policy), choice.clone(), name.clone(), *seed);
        let anonymizers = anonymizers.within(space).holding(memory.share());
        Self { pipeline, anonymizers, to_sink, searched: Searched::default() }
    }

    /// Makes releases until the window stage ends, or the sink fails.
    pub(super) fn run(
        mut self,
        runtime: &Handle,
        mut closed: mpsc::Receiver<SearchItem>,
    ) -> Result<Searched, PipelineError> {
        loop {
            let item = runtime.block_on(async { tokio::time::timeout(TICK, closed.recv()).await });
            let mut room = Room::default();
            let closing = match item {
                Ok(Some(SearchItem::Window(window, taken))) => {
                    room = taken;
                    Some(self.window(*window)?)
                }
                Ok(Some(SearchItem::Reset(assignment))) => self.reset(assignment),
                Ok(Some(SearchItem::Added(assignment))) => self.add(assignment),
                Ok(Some(SearchItem::GivenUp(given_up))) => {
                    if !self.give_up(given_up) {
                        return Ok(self.searched);
                    }
                    None
                }
                Ok(Some(SearchItem::Past(past))) => self.recall(&past),
                Ok(None) => {
                    self.searched.waiting = self.anonymizers.waiting();
                    return Ok(self.searched);
                }
                Err(_) => self.anonymizers.tick((self.pipeline.clock)())?,
            };
            let released = matches!(closing, Some(Closing::Release(_)));
            if !self.send(closing, room)? {
                return Ok(self.searched);
            }
            if released {
                // The release is on its way, so nobody waits for what is learnt now.
                self.anonymizers.learn();
            }
        }
    }

    /// Makes the release of a window.
    fn window(&mut self, window: ClosedWindow) -> Result<Closing, TooWide> {
        let Pipeline { telemetry, clock, .. } = &*self.pipeline;
        telemetry.closed(&window);
        step("closed");
        let replayed = matches!(window.kind, WindowKind::Replay(_));
        let anonymizer = self.anonymizers.of(window.lane);
        if telemetry.look_due(clock()) {
            anonymizer.look(LOOK);
        }
        if telemetry.comparison_due(clock()) {
            compare(&self.pipeline, &window);
        }
        let closing = anonymizer.release(window)?;
        step("gated");
        if let Some(insight) = anonymizer.take_insight() {
            telemetry.looked(insight, clock());
        }
        if replayed {
            self.searched.returned += anonymizer.retract_others();
        }
        Ok(closing)
    }

    /// Starts a new assignment: waiting records go back to the log.
    fn reset(&mut self, assignment: NewAssignment) -> Option<Closing> {
        self.searched.returned += self.anonymizers.waiting();
        let last = assignment.last.map(|node| node.levels().to_vec());
        self.anonymizers.reset(assignment.partitions, last);
        None
    }

    /// Takes more partitions over.
    fn add(&mut self, assignment: NewAssignment) -> Option<Closing> {
        let last = assignment.last.map(|node| node.levels().to_vec());
        self.anonymizers.add(&assignment.partitions.unwrap_or_default(), last);
        None
    }

    /// Drops the waiting records of some partitions, and lets the sink tell when the releases before have ended. False if the
    /// sink has failed.
    fn give_up(&mut self, given_up: GivenUp) -> bool {
        self.searched.returned += self.anonymizers.give_up(&given_up.partitions, self.pipeline.scope);
        self.to_sink.blocking_send(SinkItem::GivenUp(given_up.done)).is_ok()
    }

    /// Tells the anonymizers of its lanes about an earlier release.
    fn recall(&mut self, past: &Past) -> Option<Closing> {
        past.lanes.iter().for_each(|&lane| self.anonymizers.of(lane).recall(past));
        None
    }

    /// The release with the tables of its audiences. A table that the gate refuses is left out of this release alone.
    fn with_views(&self, release: Release) -> Release {
        let Pipeline { policy, choice, audiences, telemetry, .. } = &*self.pipeline;
        if audiences.is_empty() || release.is_empty() {
            return release;
        }
        let rules = choice.rules(policy);
        let view = |audience: &Audience| match view(&release, audience, policy, &rules) {
            Ok(view) => Some(view),
            Err(refusal) => {
                telemetry.audience_refused(audience, &refusal);
                None
            }
        };
        let views = audiences.iter().map(view).collect();
        release.with_views(views)
    }

    /// Hands a release to the sink; false if the sink has failed, which reports its error itself.
    fn send(&self, closing: Option<Closing>, room: Room) -> Result<bool, PipelineError> {
        match closing {
            Some(Closing::Release(release)) => {
                let release = SinkItem::Release(Box::new(self.with_views(*release)), room);
                Ok(self.to_sink.blocking_send(release).is_ok())
            }
            Some(Closing::Refused(refusal)) => {
                self.pipeline.telemetry.refused(&refusal);
                Err(refusal.into())
            }
            None => Ok(true),
        }
    }
}

/// Copies some records of a window and compares the recodings on them, on a thread of its own that nobody waits for: it ends with the
/// process, and what it finds is for the console alone.
fn compare(pipeline: &Arc<Pipeline>, window: &ClosedWindow) {
    let Some(sample) = WindowSample::of(window, pipeline.memory.compared(window)) else { return };
    let (pipeline, at) = (Arc::clone(pipeline), (pipeline.clock)());
    pipeline.telemetry.comparing();
    let work = move || {
        let Pipeline { policy, choice, seed, telemetry, .. } = &*pipeline;
        let started = Instant::now();
        telemetry.compared(recodings::compare(policy, choice, sample, *seed), at, started.elapsed());
    };
    // Without a thread there is no comparison, and none is tried again: the service has other worries.
    let _ = std::thread::Builder::new().name("compare".into()).spawn(work);
}
