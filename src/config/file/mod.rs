//! The configuration file as text: YAML to a tree with lines, interpolation, the structural check, and problems.
//!
//! Nothing here knows what a policy or a stream is. The tree remembers the line of every value, so that a check in another
//! folder can refuse a value by walking to it with [`At`] and calling [`At::refuse`].

pub(super) mod check;
pub(super) mod interpolate;
pub(super) mod problem;
pub(super) mod scalar;
pub(super) mod tree;

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

pub(super) use problem::{Problems, nearest};
pub(super) use tree::{At, shown};

/// Why a file cannot be read, in words.
pub(super) fn why(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "no such file".into(),
        kind => kind.to_string(),
    }
}

/// The bytes of a file that has at most `most` of them; `None` if it has more.
pub(super) fn read(path: &Path, most: u64) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    let read = File::open(path)?.take(most + 1).read_to_end(&mut bytes)?;
    Ok((read as u64 <= most).then_some(bytes))
}
