//! Progress on a terminal: a share and the time that is left where the size of the input is known, a count where it is not.
//! Nothing is drawn in a pipe or on a dumb terminal.

use std::path::Path;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use super::is_standard;
use crate::source::InputBytes;

/// How often a display that nothing moves is drawn.
const TICK: Duration = Duration::from_millis(100);

/// The display for reading `path`, and its reader, which moves it on where the size is known.
pub(in crate::cli) fn reading(path: &Path, from: InputBytes) -> (ProgressBar, InputBytes) {
    let size = std::fs::metadata(path).ok().filter(|file| file.is_file() && !is_standard(path)).map(|file| file.len());
    let bar = if super::log::is_dumb() { ProgressBar::hidden() } else { ProgressBar::new(size.unwrap_or(0)) };
    let bar = bar.with_message("reading");
    bar.enable_steady_tick(TICK);
    styled(
        &bar,
        match size {
            Some(_) => "{spinner} {msg}: {percent} % of {total_bytes}, {eta} left",
            None => "{spinner} {msg}: {bytes} in {elapsed}",
        },
    );
    let moved = bar.clone();
    (bar, from.watched(move |bytes| moved.inc(bytes)))
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

/// The display for writing so many rows; whoever writes moves it on.
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
