//! Writes releases into files and streams: the rows, and one line per release in the manifest and journal beside them.
//!
//! An existing file is continued if it holds rows of the same fields in the same format, and refused otherwise. A release is
//! written to all files or to none: see [`crate::files`], also for crashes.

use std::path::{Path, PathBuf};

use super::{Delivery, Sink, SinkError, journal_entry};
use crate::codec::Encode;
use crate::files::{AppendedFiles, FileEnds, FileError};
use crate::gate::Release;
use crate::model::release::audience::AudienceTable;

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

/// The table of an audience: its files, the encoder of its rows, and which values of a row it sees.
pub struct AudienceFile {
    /// The files.
    pub table: AudienceTable<PathBuf>,
    /// Encodes the rows.
    pub encoder: Box<dyn Encode>,
    /// Which of the values of a row are written, sensitive ones first, then kept ones.
    pub seen: Vec<bool>,
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
            (self.manifest.as_deref(), manifest_line),
        ];
        lines.into_iter().filter_map(|(path, line)| Some((path?, line)))
    }
}

/// Releases into files.
pub struct FileSink {
    /// The encoder of the release, then those of the audiences that have a file.
    rows: Vec<RowEncoder>,
    /// The text beside the rows: of the release, or of the view with this number.
    lines: Vec<(Option<usize>, Line)>,
    files: AppendedFiles,
}

impl FileSink {
    /// Opens the files. Waits for the reader of a pipe.
    pub fn open(paths: &FilePaths, encoder: Box<dyn Encode>, audiences: Vec<AudienceFile>) -> Result<Self, SinkError> {
        let tables: Vec<AudienceTable<PathBuf>> = audiences.iter().map(|audience| audience.table.clone()).collect();
        let mut rows = vec![RowEncoder::new(encoder, None)];
        rows.extend(audiences.into_iter().map(|audience| RowEncoder::new(audience.encoder, Some(audience.seen))));
        let row_files = [paths.rows.as_path()].into_iter().chain(tables.iter().map(|table| table.rows.as_path()));
        let (mut beside, mut lines): (Vec<&Path>, Vec<_>) =
            paths.lines().map(|(path, line)| (path, (None, line))).unzip();
        for (view, table) in tables.iter().enumerate() {
            beside.extend(table.manifests.as_deref());
            lines.extend(table.manifests.as_ref().map(|_| (Some(view), manifest_line as Line)));
        }
        let all: Vec<&Path> = row_files.chain(beside).collect();
        let files = AppendedFiles::open(&all)?;
        for (number, path) in all.iter().enumerate() {
            let Some(FileEnds { first, last }) = files.existing(number)? else { continue };
            let (known, whole) = match rows.get_mut(number) {
                Some(rows) => (rows.continue_after(&first), last.ends_with(rows.encoder.ending())),
                None => (is_line(&first), last.ends_with(b"\n")),
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

    /// Writes a release and the tables of its audiences, to all files or to none.
    pub fn write(&mut self, release: &Release) -> Result<(), SinkError> {
        let view = |view: usize| release.views().get(view).and_then(Option::as_ref);
        let mut lines = Vec::with_capacity(self.lines.len());
        for (of, line) in &self.lines {
            let of = of.map_or(Some(release), view);
            let line = of.map_or(Ok(None), line).map_err(std::io::Error::other)?;
            lines.push(line.map_or(String::new(), |line| line + "\n"));
        }
        let mut parts: Vec<&[u8]> = Vec::with_capacity(self.rows.len() + lines.len());
        for (number, rows) in self.rows.iter_mut().enumerate() {
            let of = if number == 0 { Some(release) } else { view(number - 1) };
            parts.push(of.map_or(Ok(&[][..]), |release| rows.encoded(release))?);
        }
        parts.extend(lines.iter().map(String::as_bytes));
        Ok(self.files.append(&parts)?)
    }
}

/// A manifest without rows would describe only the few records that were left out.
fn manifest_line(release: &Release) -> serde_json::Result<Option<String>> {
    Some(release.manifest()).filter(|_| !release.is_empty()).map(serde_json::to_string).transpose()
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
        let headers = self.rows.iter_mut().map(RowEncoder::header_alone).collect::<Result<Vec<&[u8]>, _>>()?;
        match headers.iter().all(|header| header.is_empty()) {
            true => Ok(()),
            false => tokio::task::block_in_place(|| Ok(self.files.append(&headers)?)),
        }
    }
}

/// Encodes rows, release by release, after one header.
struct RowEncoder {
    encoder: Box<dyn Encode>,
    buffer: Vec<u8>,
    started: bool,
    /// Which values of a row are written; all, if `None`.
    seen: Option<Vec<bool>>,
}

impl RowEncoder {
    fn new(encoder: Box<dyn Encode>, seen: Option<Vec<bool>>) -> Self {
        Self { encoder, buffer: Vec::new(), started: false, seen }
    }

    /// Continues a file that begins with `first`; false if its rows have other fields or another format.
    fn continue_after(&mut self, first: &[u8]) -> bool {
        self.started = true;
        self.encoder.continues(first)
    }

    /// Begins with the header, if it is not written yet; true if it was not.
    fn start(&mut self) -> bool {
        self.buffer.clear();
        let first = !std::mem::replace(&mut self.started, true);
        if first {
            self.encoder.header(&mut self.buffer);
        }
        first
    }

    /// The header of a file without releases; nothing if there is one.
    fn header_alone(&mut self) -> Result<&[u8], SinkError> {
        if self.start() {
            self.encoder.finish(&mut self.buffer)?;
        }
        Ok(&self.buffer)
    }

    /// A whole release.
    fn encoded(&mut self, release: &Release) -> Result<&[u8], SinkError> {
        self.start();
        let (encoder, buffer) = (&mut self.encoder, &mut self.buffer);
        let labels = release.labels(|quasi, out| encoder.labels(quasi, out));
        release.labelled_rows(&labels, |labels, values| match &self.seen {
            None => encoder.labelled(labels, values, buffer),
            Some(seen) => {
                let seen = values.iter().zip(seen).filter_map(|(value, seen)| seen.then_some(*value));
                encoder.labelled(labels, &seen.collect::<Vec<&str>>(), buffer)
            }
        })?;
        encoder.finish(buffer)?;
        Ok(buffer)
    }
}
