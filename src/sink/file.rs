//! Writes releases into files and streams: the rows, and one line per release in the manifest and journal beside them.
//!
//! An existing file is continued if it holds rows of the same fields in the same format, and refused otherwise. A release is
//! written to all files or to none: see [`crate::files`], also for crashes.

use std::path::{Path, PathBuf};

use super::{Delivery, Sink, SinkError, journal_entry};
use crate::codec::Encode;
use crate::files::{AppendedFiles, FileEnds, FileError};
use crate::gate::Release;

/// The files of a sink.
#[derive(Debug, Clone)]
pub struct FilePaths {
    /// The rows.
    pub rows: PathBuf,
    /// The manifests, one JSON object per line.
    pub manifest: Option<PathBuf>,
    /// The journal: the records that each release finished, one JSON object per line.
    pub journal: Option<PathBuf>,
}

/// The line of a release in a file beside the rows, if it has one there.
type Line = fn(&Release) -> serde_json::Result<Option<String>>;

impl FilePaths {
    /// Rows without manifest and journal.
    pub fn rows_only(path: impl Into<PathBuf>) -> Self {
        Self { rows: path.into(), manifest: None, journal: None }
    }

    /// The files beside the rows, in the order in which they are written.
    fn lines(&self) -> impl Iterator<Item = (&Path, Line)> {
        let lines: [(Option<&Path>, Line); 2] = [
            (self.journal.as_deref(), |release| {
                serde_json::to_string(&journal_entry(release, |partition| (None, partition.0))).map(Some)
            }),
            // A manifest without rows would describe only the few records that were left out.
            (self.manifest.as_deref(), |release| {
                Some(release.manifest()).filter(|_| !release.is_empty()).map(serde_json::to_string).transpose()
            }),
        ];
        lines.into_iter().filter_map(|(path, line)| Some((path?, line)))
    }
}

/// Releases into files.
pub struct FileSink {
    rows: RowEncoder,
    lines: Vec<Line>,
    files: AppendedFiles,
}

impl FileSink {
    /// Opens the files. Waits for the reader of a pipe.
    pub fn open(paths: &FilePaths, encoder: Box<dyn Encode>) -> Result<Self, SinkError> {
        let (beside, lines): (Vec<_>, Vec<_>) = paths.lines().unzip();
        let all: Vec<&Path> = [paths.rows.as_path()].into_iter().chain(beside).collect();
        let files = AppendedFiles::open(&all)?;
        let mut rows = RowEncoder::new(encoder);
        for (number, path) in all.iter().enumerate() {
            let Some(FileEnds { first, last }) = files.existing(number)? else { continue };
            let (known, whole) = match number {
                0 => (rows.continue_after(&first), last.ends_with(rows.encoder.ending())),
                _ => (is_line(&first), last.ends_with(b"\n")),
            };
            let what = match (known, whole) {
                (true, true) => continue,
                (false, _) => "holds other fields or another format than this output has",
                (true, false) => "does not end with a whole row",
            };
            return Err(FileError::Foreign { path: path.to_path_buf(), what }.into());
        }
        Ok(Self { rows, lines, files })
    }

    /// Writes a release.
    pub fn write(&mut self, release: &Release) -> Result<(), SinkError> {
        let mut lines = Vec::with_capacity(self.lines.len());
        for line in &self.lines {
            let line = line(release).map_err(std::io::Error::other)?;
            lines.push(line.map_or(String::new(), |line| line + "\n"));
        }
        let parts: Vec<&[u8]> =
            [self.rows.encoded(release)?].into_iter().chain(lines.iter().map(String::as_bytes)).collect();
        Ok(self.files.append(&parts)?)
    }
}

/// True if the first line is that of a release.
fn is_line(first: &[u8]) -> bool {
    let line = first.split(|byte| *byte == b'\n').next().unwrap_or_default();
    serde_json::from_slice::<serde_json::Value>(line).is_ok_and(|line| line.get("release_id").is_some())
}

impl Sink for FileSink {
    async fn publish(&mut self, release: &Release) -> Result<Delivery, SinkError> {
        // A file or pipe that blocks must not delay the other tasks.
        tokio::task::block_in_place(|| self.write(release)).map(|()| Delivery::Published)
    }

    async fn finish(&mut self) -> Result<(), SinkError> {
        let header = self.rows.header();
        if header.is_empty() { Ok(()) } else { tokio::task::block_in_place(|| Ok(self.files.append(&[header])?)) }
    }
}

/// Encodes rows, release by release, after one header.
struct RowEncoder {
    encoder: Box<dyn Encode>,
    buffer: Vec<u8>,
    started: bool,
}

impl RowEncoder {
    fn new(encoder: Box<dyn Encode>) -> Self {
        Self { encoder, buffer: Vec::new(), started: false }
    }

    /// Continues a file that begins with `first`; false if its rows have other fields or another format.
    fn continue_after(&mut self, first: &[u8]) -> bool {
        self.started = true;
        self.encoder.continues(first)
    }

    /// The header, if it is not written yet.
    fn header(&mut self) -> &[u8] {
        self.buffer.clear();
        if !std::mem::replace(&mut self.started, true) {
            self.encoder.header(&mut self.buffer);
        }
        &self.buffer
    }

    /// A whole release.
    fn encoded(&mut self, release: &Release) -> Result<&[u8], SinkError> {
        self.header();
        let (encoder, buffer) = (&mut self.encoder, &mut self.buffer);
        let labels = release.labels(|quasi, out| encoder.labels(quasi, out));
        release.labelled_rows(&labels, |labels, values| encoder.labelled(labels, values, buffer))?;
        encoder.finish(buffer);
        Ok(buffer)
    }
}
