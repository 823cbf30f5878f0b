//! The real pipeline, from events in memory to bytes that nobody keeps; and how much memory a buffered record takes.

use std::num::NonZero;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use cpu_time::ProcessTime;
use veilstream::codec::json::{JsonDecoder, JsonEncoder};
use veilstream::codec::{DEFAULT_MAX_RECORD_BYTES, Decode as _, RecordReader};
use veilstream::encode::Encoder;
use veilstream::frequency::counter;
use veilstream::model::batch::Rows;
use veilstream::model::event::{Event, Millis};
use veilstream::pipeline::{MemoryLimit, Pipeline};
use veilstream::shutdown;
use veilstream::sink::file::{FilePaths, FileSink};
use veilstream::source::{BATCH, Source, SourceError, SourceItem};
use veilstream::telemetry::Telemetry;
use veilstream::window::{CloseReason, CloseRules, OpenWindow, Scope, WindowId, WindowRules};

use super::WINDOW;
use super::people::Case;

struct Memory {
    batches: std::vec::IntoIter<Vec<Event>>,
}

impl Source for Memory {
    async fn next(&mut self) -> Result<SourceItem, SourceError> {
        Ok(self.batches.next().map_or(SourceItem::End, SourceItem::Events))
    }
}

fn clock() -> Millis {
    Millis(0)
}

/// The walk of a case.
pub(crate) fn pipeline(case: &Case, windows: WindowRules) -> Pipeline {
    Pipeline {
        policy: Arc::clone(&case.policy),
        windows,
        scope: Scope::Instance,
        choice: Case::choice(),
        audiences: Vec::new(),
        name: "bench".into(),
        seed: 1,
        memory: MemoryLimit::new(None),
        cores: available_parallelism().map_or(1, NonZero::get),
        telemetry: Arc::new(Telemetry::new(&case.policy).expect("metrics")),
        clock,
    }
}

/// Prints the processor's nanoseconds per record, and records per second.
pub(crate) fn run(case: &Case, windows: usize) {
    let records = windows * WINDOW;
    let events: Vec<Event> = (0..windows).flat_map(|window| case.events(window * WINDOW, WINDOW)).collect();
    let batches: Vec<Vec<Event>> = events.chunks(BATCH).map(<[Event]>::to_vec).collect();
    let close = CloseRules { max_records: WINDOW, max_age: Duration::from_secs(3600), event_time: None };
    let pipeline = pipeline(case, WindowRules::Tumbling(close));
    let readers = vec![RecordReader::json(&case.policy.schema, DEFAULT_MAX_RECORD_BYTES)];
    let encoder = Box::new(JsonEncoder::new(&case.policy.schema));
    let sink = FileSink::open(&FilePaths::rows_only("/dev/null"), encoder, Vec::new()).expect("a stream");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let (_stopper, stop) = shutdown::channel();
    let (started, busy) = (Instant::now(), ProcessTime::now());
    let source = Memory { batches: batches.into_iter() };
    let summary = runtime.block_on(pipeline.run(source, readers, sink, stop)).expect("a run");
    let (elapsed, busy) = (started.elapsed(), busy.elapsed());
    assert_eq!(summary.records_in, records as u64);
    assert_eq!(summary.releases, windows as u64);
    println!("{} {:.0}", busy.as_nanos() as usize / records, records as f64 / elapsed.as_secs_f64());
}

/// Prints what a window of many records holds, by its own account and by the system's.
pub(crate) fn memory(case: &Case) {
    const WINDOWS: usize = 10;
    let counting = Arc::new(Case::choice().rules(&case.policy).counting());
    let mut decoder = JsonDecoder::new(&case.policy.schema, DEFAULT_MAX_RECORD_BYTES);
    let mut encoder = Encoder::new(Arc::clone(&case.policy));
    let mut raw = 0;
    // The text of one part is made and let go before, so that its memory is not taken for that of rows.
    drop(case.events(0, WINDOW));
    let before = resident();
    let mut window = OpenWindow::new(WindowId(0), Millis(0), &encoder, counting).expect("fits");
    for part in 0..WINDOWS {
        for event in case.events(part * WINDOW, WINDOW) {
            let payload = event.payload.as_deref().expect("a payload");
            raw += payload.len();
            let encoded = encoder.encode(&decoder.decode(payload).expect("good input"), None);
            window.add(&encoder, event.position, Millis(0), encoded);
        }
    }
    let records = WINDOWS * WINDOW;
    let (own, grown) = (window.bytes() / records, resident().saturating_sub(before) / records);
    let raw = raw / records;
    let closed = window.close(Millis(1), CloseReason::Full, &encoder).expect("fits");
    let counted = resident().saturating_sub(before) / records;
    println!(
        "{:<10} {own} bytes of rows per buffered record, the process grew by {grown}, and by {counted} once they were counted as {} tuples; the payload has {raw}, the limit is {}",
        case.name,
        closed.sets.base().len(),
        2 * (own + raw),
    );
}

/// Prints what an entry of the counts of a window that moves on takes: the process's growth while the rows of a window are counted again
/// and again, once what was let go before is used up.
pub(crate) fn entries(case: &Case) {
    // So many that what was let go before the first reading does not show.
    const COPIES: usize = 400;
    let mut decoder = JsonDecoder::new(&case.policy.schema, DEFAULT_MAX_RECORD_BYTES);
    let mut encoder = Encoder::new(Arc::clone(&case.policy));
    let mut rows = Rows::new(case.policy.quasi.len(), case.policy.schema.sensitive.len());
    for event in case.events(0, WINDOW) {
        let payload = event.payload.as_deref().expect("a payload");
        encoder.encode(&decoder.decode(payload).expect("good input"), None);
        rows.push(event.position, Millis(0), encoder.row());
    }
    let counting = Case::choice().rules(&case.policy).counting();
    let counted = |_| {
        let mut counter = counter::counter(&encoder.sizes(), counting.clone()).expect("fits");
        counter.add(&rows, 0..rows.len());
        counter
    };
    let first: Vec<_> = (0..COPIES).map(counted).collect();
    let before = resident();
    let others: Vec<_> = (0..COPIES).map(counted).collect();
    let grown = resident().saturating_sub(before);
    let tuples = first.iter().zip(&others).map(|(a, b)| a.tuples().min(b.tuples())).sum::<usize>();
    println!(
        "{:<10} {} bytes per entry of the counts of a sliding window, of which {} records make {}",
        case.name,
        grown / tuples,
        rows.len(),
        tuples / COPIES,
    );
}

/// Resident bytes of this process.
pub(crate) fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("linux");
    let pages: usize = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("a number");
    pages * 4096
}
