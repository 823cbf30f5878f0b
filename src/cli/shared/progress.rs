//! Progress on a terminal: a share and the time that is left where the size of the input is known, a count where it is not.
//! Nothing is drawn in a pipe or on a dumb terminal. Logs share the terminal with a display: see [`BesideProgress`].

use std::io::{self, Write};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use super::is_standard;
use crate::source::InputBytes;

/// How often a display that nothing moves is drawn.
const TICK: Duration = Duration::from_millis(100);

/// The display that log lines must not tear; none where nothing is logged beside one.
static BESIDE_LOGS: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// The display for reading `path`, and its reader, which moves it on where the size is known. Parts that are read here and there, as of
/// a Parquet file, do not move it, and then it shows the time only.
pub(in crate::cli) fn reading(path: &Path, from: InputBytes) -> (ProgressBar, InputBytes) {
    let size = std::fs::metadata(path).ok().filter(|file| file.is_file() && !is_standard(path)).map(|file| file.len());
    let bar = if super::log::is_dumb() { ProgressBar::hidden() } else { ProgressBar::new(size.unwrap_or(0)) };
    let bar = bar.with_message("reading");
    bar.enable_steady_tick(TICK);
    styled(&bar, "{spinner} {msg}: {elapsed}");
    let moving = match size {
        Some(_) => "{spinner} {msg}: {percent} % of {total_bytes}, {eta} left",
        None => "{spinner} {msg}: {bytes} in {elapsed}",
    };
    let (moved, mut moves) = (bar.clone(), false);
    let watch = move |bytes| {
        if !moves {
            styled(&moved, moving);
            moves = true;
        }
        moved.inc(bytes);
    };
    (bar, from.watched(watch))
}

/// The same beside logs, until the returned guard is dropped.
pub(in crate::cli) fn reading_beside_logs(path: &Path, from: InputBytes) -> (ShownBesideLogs, InputBytes) {
    let (bar, from) = reading(path, from);
    *BESIDE_LOGS.lock().unwrap_or_else(PoisonError::into_inner) = Some(bar);
    (ShownBesideLogs, from)
}

/// A display beside logs. Ends it when dropped.
pub(in crate::cli) struct ShownBesideLogs;

impl Drop for ShownBesideLogs {
    fn drop(&mut self) {
        let bar = BESIDE_LOGS.lock().unwrap_or_else(PoisonError::into_inner).take();
        bar.iter().for_each(ProgressBar::finish_and_clear);
    }
}

/// Standard error for log lines: hides the display meanwhile.
pub(super) struct BesideProgress;

impl Write for BesideProgress {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &*BESIDE_LOGS.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(bar) => bar.suspend(|| io::stderr().write(bytes)),
            None => io::stderr().write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// The display of work without an input of known size.
pub(in crate::cli) fn spinning() -> ProgressBar {
    let bar = if super::log::is_dumb() { ProgressBar::hidden() } else { ProgressBar::new_spinner() };
    styled(&bar, "{spinner} {msg}: {human_pos} records, {elapsed}");
    bar.enable_steady_tick(TICK);
    bar.with_message("reading")
}

/// Names the work that follows the reading, whose end is not known.
pub(in crate::cli) fn working(bar: &ProgressBar, what: String) {
    styled(bar, "{spinner} {msg}: {elapsed}");
    bar.set_message(what);
}

/// The display for writing a number of rows; the writer moves it on.
pub(in crate::cli) fn writing(bar: &ProgressBar, rows: usize) {
    styled(bar, "{spinner} {msg}: {percent} %, {eta} left");
    bar.set_message("writing");
    bar.reset();
    bar.set_length(rows as u64);
}

fn styled(bar: &ProgressBar, template: &str) {
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
}
