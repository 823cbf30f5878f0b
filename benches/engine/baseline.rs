//! The reference kernel, and the ratios to it that were kept; of the benches `engine` and `search`.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::path::PathBuf;
use std::time::Duration;

use cpu_time::ProcessTime;

/// One figure: what it is about, nanoseconds per record, and the ratio to the reference.
pub(crate) struct Figure {
    pub(crate) name: String,
    pub(crate) ratio: f64,
}

/// Nanoseconds of a fixed piece of work: one pass over 256 bytes and eight counts in a table of 64 Ki entries. Never change it: the
/// baseline is in its units.
pub(crate) fn reference() -> f64 {
    const RECORDS: usize = 20_000;
    let bytes: Vec<u8> = (0..RECORDS * 256).map(|i| (i * 31 % 251) as u8).collect();
    let mut table = vec![0u32; 1 << 16];
    let kernel = || {
        timed(|| {
            for record in bytes.chunks_exact(256) {
                let mut hash = 0xcbf2_9ce4_8422_2325u64;
                for part in record.chunks_exact(32) {
                    for &byte in part {
                        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
                    }
                    table[(hash >> 48) as usize] += 1;
                }
            }
            black_box(&table);
        })
    };
    shortest(25, kernel).0.as_nanos() as f64 / RECORDS as f64
}

/// The shortest of some runs: what the machine does when nothing else is on it.
pub(crate) fn shortest<T>(runs: usize, mut run: impl FnMut() -> (Duration, T)) -> (Duration, T) {
    let mut best = run();
    for _ in 1..runs {
        let next = run();
        if next.0 < best.0 {
            best = next;
        }
    }
    best
}

/// Runs once and takes the processor's time, of all threads together: what others do on the machine is left out, nearly.
pub(crate) fn timed<T>(run: impl FnOnce() -> T) -> (Duration, T) {
    let started = ProcessTime::now();
    let result = run();
    (started.elapsed(), result)
}

/// Says what has moved by more than a share of `margin` since the baseline in `file`; with `save` these figures are the
/// baseline from now on.
pub(crate) fn compare(file: &str, margin: f64, figures: &[Figure], save: bool) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("benches").join(file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|_| "{}".into());
    let mut kept: BTreeMap<String, f64> = serde_json::from_str(&text).expect("a baseline");
    for figure in figures {
        let Some(before) = kept.get(&figure.name) else { continue };
        let moved = figure.ratio / before - 1.0;
        if moved.abs() > margin {
            println!(
                "moved: {} is {:.3} of the reference, was {before:.3} ({:+.0} %)",
                figure.name,
                figure.ratio,
                moved * 100.0
            );
        }
    }
    if save {
        kept.extend(figures.iter().map(|figure| (figure.name.clone(), (figure.ratio * 1e4).round() / 1e4)));
        std::fs::write(&path, serde_json::to_string_pretty(&kept).expect("numbers") + "\n").expect("writable");
    }
}
