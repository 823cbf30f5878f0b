//! What one slide of a full sliding window costs, stage by stage as the service does it, beside the same window begun anew: counted,
//! searched and decided without what was kept from the slide before.
//!
//! `take in` is decoding, encoding, counting and moving on; anew it is counting only. `decide` is everything between the search's
//! answer and the release: who is shown, the account, generalizing and the gate. Nothing but the search can be asked for alone, so
//! a second window searches only, and the difference is the decision.
//!
//! A third window publishes changes. Searches and whole snapshots come now and then there, so its figures are means over two whole
//! turnovers of the window, these included, against the medians of whole snapshots.

use std::sync::Arc;
use std::time::Duration;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng as _;
use veilstream::anonymizer::Anonymizer;
use veilstream::codec::json::{JsonDecoder, JsonEncoder};
use veilstream::codec::{DEFAULT_MAX_RECORD_BYTES, Decode as _};
use veilstream::encode::Encoder;
use veilstream::frequency::counter;
use veilstream::gate::Release;
use veilstream::model::event::{Event, Millis};
use veilstream::model::recoding::Recoding;
use veilstream::model::schema::Schema;
use veilstream::search::choose::choose;
use veilstream::search::evaluator::{Evaluator, Trail};
use veilstream::sink::file::{FilePaths, FileSink};
use veilstream::window::{ClosedWindow, DEFAULT_WARM_MEMORY, SlideRules, Sliding, Windows};

use super::baseline::{Figure, reference};
use super::people::Case;
use super::{fixture, timed};

/// Records of the window.
const SIZE: usize = 100_000;

/// Slides that are timed, after some that are not. More find the usual one among unusual ones; fewer are over sooner.
const SLIDES: usize = 21;
const BEFORE: usize = 5;

/// Every so many slides the window is begun anew too.
const ANEW: usize = 3;

const STAGES: [&str; 4] = ["take in", "search", "decide", "serialize"];

/// Prints the tables of one case.
pub(crate) fn run(case: &Case) -> Vec<Figure> {
    let reference = reference();
    let mut figures = Vec::new();
    for slide in [SIZE / 100, SIZE / 1000] {
        let (mut shown, mut searched) = (Side::new(case, slide, false), Side::new(case, slide, false));
        let mut anonymizer = anonymizer(case);
        let (mut warm, mut anew) = (Vec::new(), Vec::new());
        for batch in 0..SIZE / slide + BEFORE + SLIDES {
            let events = case.events(batch * slide, slide);
            let (taken, window) = shown.take(&events);
            let (_, twin) = searched.take(&events);
            if window.rows.len() < SIZE {
                continue;
            }
            let (search, recoding) = search(case, &twin, &searched.trail, searched.last.as_ref());
            searched.last = Some(recoding);
            let begun = batch % ANEW == 0 && batch >= SIZE / slide + BEFORE;
            let times = begun.then(|| begin_anew(case, &window));
            let (released, release) = timed(|| released(&mut anonymizer, window));
            if batch >= SIZE / slide + BEFORE {
                warm.push([taken, search, released.saturating_sub(search), serialize(case, &release)]);
                anew.extend(times);
            }
        }
        let (warm, anew) = (medians(&warm), medians(&anew));
        println!("{}: {slide} of {SIZE} replaced; reference {reference:.0} ns", case.name);
        let total = |times: &[f64; 4]| times.iter().sum::<f64>();
        let [taken, decided, written] = changes(case, slide);
        let whole = total(&warm) - warm[0];
        println!(
            "  changes    {:>8.3} ms to search, decide and serialize (take in {:.2} ms): {:.4} of a whole snapshot",
            (decided + written) / 1e6,
            taken / 1e6,
            (decided + written) / whole,
        );
        let local = with_local(&case.local(), slide);
        println!(
            "  local      {:>8.2} ms to search and decide: {:.2} of full-domain",
            local / 1e6,
            local / (warm[1] + warm[2])
        );
        figures.push(Figure {
            name: format!("{}/slide {slide}/changes against whole", case.name),
            ratio: (decided + written) / whole,
        });
        let rows = STAGES.into_iter().zip(warm.into_iter().zip(anew)).chain([("total", (total(&warm), total(&anew)))]);
        for (stage, (warm, anew)) in rows {
            println!(
                "  {stage:<10} {:>8.2} ms, {:>7.1} ns per record of the window; anew {:>8.2} ms: {:>6.3} of it",
                warm / 1e6,
                warm / SIZE as f64,
                anew / 1e6,
                warm / anew,
            );
            let name = format!("{}/slide {slide}/{stage}", case.name);
            figures.push(Figure { name, ratio: warm / SIZE as f64 / reference });
        }
    }
    figures
}

/// What a release takes with local recoding, in nanoseconds: the median of some slides. The schedule is learnt on the way.
fn with_local(case: &Case, slide: usize) -> f64 {
    let (mut side, mut anonymizer) = (Side::new(case, slide, false), anonymizer(case));
    let mut times = Vec::new();
    for batch in 0..SIZE / slide + BEFORE + SLIDES {
        let (_, window) = side.take(&case.events(batch * slide, slide));
        let (time, release) = timed(|| anonymizer.release(window).expect("fits"));
        fixture::released(release);
        anonymizer.learn();
        if batch >= SIZE / slide + BEFORE {
            times.push([time; 4]);
        }
    }
    medians(&times)[0]
}

/// Where changes are published: taking in, search and decision, serialization, in nanoseconds, as means over two turnovers.
fn changes(case: &Case, slide: usize) -> [f64; 3] {
    let mut side = Side::new(case, slide, true);
    let mut anonymizer = anonymizer(case);
    let turnover = SIZE / slide;
    let mut sums = [Duration::ZERO; 3];
    let mut rows = 0;
    for batch in 0..4 * turnover {
        let (taken, window) = side.take(&case.events(batch * slide, slide));
        let (decided, release) = timed(|| *fixture::released(anonymizer.release(window).expect("fits")));
        if batch >= 2 * turnover {
            let written = serialize(case, &release);
            rows += release.len();
            sums.iter_mut().zip([taken, decided, written]).for_each(|(sum, time)| *sum += time);
        }
    }
    println!("  changes    {} rows a slide", rows / (2 * turnover));
    sums.map(|sum| sum.as_nanos() as f64 / (2 * turnover) as f64)
}

/// A window that moves on, and what its searches leave.
pub(crate) struct Side {
    decoder: JsonDecoder,
    encoder: Encoder,
    window: Sliding,
    pub(crate) trail: Arc<Trail>,
    last: Option<Recoding>,
}

impl Side {
    fn new(case: &Case, slide: usize, changes: bool) -> Self {
        let max_hold = (SIZE / slide) as u64;
        let warm_memory = DEFAULT_WARM_MEMORY;
        Self::by(case, SlideRules { size: SIZE, slide, time: None, max_hold, warm_memory, changes })
    }

    pub(crate) fn by(case: &Case, rules: SlideRules) -> Self {
        Self {
            decoder: JsonDecoder::new(&case.policy.schema, DEFAULT_MAX_RECORD_BYTES),
            encoder: Encoder::new(Arc::clone(&case.policy)),
            window: Sliding::new(rules, Arc::new(Case::choice().rules(&case.policy).counting())),
            trail: Arc::default(),
            last: None,
        }
    }

    pub(crate) fn take(&mut self, events: &[Event]) -> (Duration, ClosedWindow) {
        timed(|| {
            for event in events {
                let payload = event.payload.as_deref().expect("a payload");
                let encoded = self.encoder.encode(&self.decoder.decode(payload).expect("good input"), None);
                self.window.add(&self.encoder, event.position, Millis(0), encoded).expect("fits");
            }
            self.window.due(Millis(0), &self.encoder).expect("fits").expect("a slide")
        })
    }
}

/// Counted, searched, decided and written as if it were the first of its stream.
fn begin_anew(case: &Case, window: &ClosedWindow) -> [Duration; 4] {
    let counting = Case::choice().rules(&case.policy).counting();
    let domains = &window.dictionaries.quasi;
    let count = || counter::count(&window.rows, &counting, domains, DEFAULT_WARM_MEMORY).expect("fits");
    let (counted, sets) = timed(count);
    let recounted = ClosedWindow { sets, ..window.recounted(counting.clone()).expect("fits") };
    let (search, _) = search(case, &recounted.recounted(counting.clone()).expect("fits"), &Arc::default(), None);
    let mut anonymizer = anonymizer(case);
    let (released, release) = timed(|| released(&mut anonymizer, recounted));
    [counted, search, released.saturating_sub(search), serialize(case, &release)]
}

/// As the anonymizer searches, after `last`.
pub(crate) fn search(
    case: &Case,
    window: &ClosedWindow,
    trail: &Arc<Trail>,
    last: Option<&Recoding>,
) -> (Duration, Recoding) {
    let choice = Case::choice();
    timed(|| {
        let rules = choice.rules(&case.policy).bind(&window.dictionaries.values());
        let evaluator = Evaluator::new(&case.policy, &rules, Arc::clone(&window.sets)).warm(Arc::clone(trail));
        choose(&choice, &case.policy.lattice(), last, &evaluator, &mut ChaCha8Rng::seed_from_u64(1)).recoding
    })
}

fn anonymizer(case: &Case) -> Anonymizer {
    Anonymizer::new(Arc::clone(&case.policy), Case::choice(), "bench", 1)
}

fn released(anonymizer: &mut Anonymizer, window: ClosedWindow) -> Release {
    let release = *fixture::released(anonymizer.release(window).expect("fits"));
    assert!(!release.is_empty(), "nothing is shown");
    release
}

fn serialize(case: &Case, release: &Release) -> Duration {
    let encoder = Box::new(JsonEncoder::new(&published(case, release)));
    let mut sink = FileSink::open(&FilePaths::rows_only("/dev/null"), encoder, Vec::new()).expect("a stream");
    timed(|| sink.write(release).expect("written")).0
}

/// The fields of the output: those of a changelog, if the release is part of one.
fn published(case: &Case, release: &Release) -> Schema {
    let mut schema = case.policy.schema.clone();
    schema.added.change = release.manifest().provenance.snapshot.is_some();
    schema.with_added()
}

/// Stage by stage, in nanoseconds.
fn medians(slides: &[[Duration; 4]]) -> [f64; 4] {
    std::array::from_fn(|stage| {
        let mut times: Vec<Duration> = slides.iter().map(|times| times[stage]).collect();
        times.sort_unstable();
        times[times.len() / 2].as_nanos() as f64
    })
}
