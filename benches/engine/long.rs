//! What lasts longer than a window: what keeping rollups warm costs the intake, and whether memory stays where it is over a thousand
//! windows.

use std::time::Duration;

use veilstream::codec::{DEFAULT_MAX_RECORD_BYTES, RecordReader};
use veilstream::gate::Release;
use veilstream::sink::{Delivery, Sink, SinkError};
use veilstream::source::{BATCH, Source, SourceError, SourceItem};
use veilstream::window::{CloseRules, DEFAULT_WARM_MEMORY, SlideRules, WindowRules};

use super::flow::{pipeline, resident};
use super::people::Case;
use super::slide::{Side, search};

/// Records of a sliding window, and the slides that are timed.
const SLIDING: usize = 100_000;
const SLIDES: usize = 60;

/// Windows of a long run, and records in each.
const WINDOWS: usize = 1_000;
const SMALL: usize = 5_000;
/// A sliding window's snapshot is written whole at every slide, so it is smaller.
const SLIDING_SMALL: usize = 20_000;

/// Windows after which memory is looked at for the first time, and how many are looked at together.
const SETTLED: usize = 100;

/// Decoding, encoding, adding and sliding, with rollups kept warm and without: searches in between ask for some, untimed. By how
/// many records are replaced at a time.
pub(crate) fn intake(case: &Case) {
    for slide in [SLIDING / 1000, SLIDING / 100, SLIDING / 20] {
        let rules = |warm_memory: usize| SlideRules {
            size: SLIDING,
            slide,
            time: None,
            max_hold: 1,
            warm_memory,
            changes: false,
        };
        let mut sides = [DEFAULT_WARM_MEMORY, 0].map(|memory| (Side::by(case, rules(memory)), Duration::ZERO));
        let batches = SLIDING / slide + SLIDES;
        for batch in 0..batches {
            let events = case.events(batch * slide, slide);
            // In turns, for what else happens on the machine.
            sides.rotate_left(1);
            for (side, spent) in &mut sides {
                let (took, closed) = side.take(&events);
                if batch >= batches - SLIDES {
                    *spent += took;
                }
                // Searches begin a little before anything is timed.
                if closed.rows.len() == SLIDING {
                    search(case, &closed, &side.trail, None);
                }
            }
        }
        sides.rotate_left(batches % 2);
        let [warm, cold] = sides.map(|(_, spent)| spent.as_nanos() as f64 / (SLIDES * slide) as f64);
        println!(
            "{:<10} {slide:>5} of {SLIDING} replaced: {warm:.0} ns per record taken in with warm rollups, {cold:.0} without: {:.2} of the rate",
            case.name,
            cold / warm,
        );
    }
}

/// New people batch after batch, made as they are asked for.
struct Endless {
    case: Case,
    next: usize,
    end: usize,
}

impl Source for Endless {
    async fn next(&mut self) -> Result<SourceItem, SourceError> {
        let records = BATCH.min(self.end - self.next);
        if records == 0 {
            return Ok(SourceItem::End);
        }
        self.next += records;
        Ok(SourceItem::Events(self.case.events(self.next - records, records)))
    }
}

/// Keeps nothing but how much memory there is after each release.
struct Watching<'a>(&'a mut Vec<usize>);

impl Sink for Watching<'_> {
    async fn publish(&mut self, release: &Release) -> Result<Delivery, SinkError> {
        assert!(!release.is_empty());
        self.0.push(resident());
        Ok(Delivery::Published)
    }

    async fn finish(&mut self) -> Result<(), SinkError> {
        Ok(())
    }
}

/// Prints the process's memory early and late in a run of many windows.
pub(crate) fn endure(name: &str) {
    let (name, sliding) = name.strip_suffix("-sliding").map_or((name, false), |name| (name, true));
    let case = super::named(name);
    let (rules, records) = match sliding {
        true => {
            let slide = SLIDING_SMALL / 100;
            let warm_memory = DEFAULT_WARM_MEMORY;
            let rules =
                SlideRules { size: SLIDING_SMALL, slide, time: None, max_hold: 100, warm_memory, changes: false };
            (WindowRules::Sliding(rules), SLIDING_SMALL + WINDOWS * slide)
        }
        false => {
            let rules = CloseRules { max_records: SMALL, max_age: Duration::from_secs(3600), event_time: None };
            (WindowRules::Tumbling(rules), WINDOWS * SMALL)
        }
    };
    let pipeline = pipeline(&case, rules);
    let readers = vec![RecordReader::json(&case.policy.schema, DEFAULT_MAX_RECORD_BYTES)];
    let mut seen = Vec::new();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let (_stopper, stop) = veilstream::shutdown::channel();
    let source = Endless { case, next: 0, end: records };
    runtime.block_on(pipeline.run(source, readers, Watching(&mut seen), stop)).expect("a run");
    let most = |windows: &[usize]| *windows.iter().max().expect("windows") as f64 / 1e6;
    let (early, late) = (most(&seen[SETTLED..2 * SETTLED]), most(&seen[seen.len() - SETTLED..]));
    println!(
        "{name:<10} {} {}: {early:.1} MB resident after {SETTLED} of them, {late:.1} MB at the end: {:.2} times as much",
        seen.len(),
        if sliding { "snapshots" } else { "windows" },
        late / early
    );
}
