//! Files and stdout: the rows of each release in one write, and a manifest per release as a JSON line beside them.

use std::fs::File;
use std::io::{Stdout, Write};
use std::path::Path;

use super::{Delivery, Sink, SinkError, journal_entry};
use crate::codec::Encode;
use crate::gate::Release;

/// Rows into any writer.
pub struct WriterSink<W> {
    encoder: Box<dyn Encode>,
    out: W,
    manifest: Option<File>,
    journal: Option<File>,
    buffer: Vec<u8>,
    started: bool,
}

/// Starts a file; `manifest` and `journal` name others for the manifests and for the operators' journal.
pub fn create(
    path: &Path,
    manifest: Option<&Path>,
    journal: Option<&Path>,
    encoder: Box<dyn Encode>,
) -> Result<WriterSink<File>, SinkError> {
    let create = |path: &Path| File::create(path).map_err(|source| SinkError::Create { path: path.to_owned(), source });
    let mut sink = WriterSink::new(create(path)?, manifest.map(create).transpose()?, encoder);
    sink.journal = journal.map(create).transpose()?;
    Ok(sink)
}

/// Starts stdout.
pub fn stdout(encoder: Box<dyn Encode>) -> Result<WriterSink<Stdout>, SinkError> {
    Ok(WriterSink::new(std::io::stdout(), None, encoder))
}

impl<W: Write + Send> WriterSink<W> {
    /// Rows go to `out`, manifests to `manifest`.
    pub fn new(out: W, manifest: Option<File>, encoder: Box<dyn Encode>) -> Self {
        Self { encoder, out, manifest, journal: None, buffer: Vec::new(), started: false }
    }

    /// Writes the rows of a release, and its manifest.
    pub fn write(&mut self, release: &Release) -> Result<(), SinkError> {
        self.start();
        let (encoder, buffer) = (&mut self.encoder, &mut self.buffer);
        let labels = release.labels(|quasi, out| encoder.labels(quasi, out));
        release.labelled_rows(&labels, |labels, values| encoder.labelled(labels, values, buffer))?;
        self.flush()?;
        if let Some(file) = &mut self.journal {
            write_line(file, &journal_entry(release, |partition| (None, partition.0)))?;
        }
        // Without rows there is nothing to tell a reader: it would be about the few records that were left out.
        if let Some(file) = self.manifest.as_mut().filter(|_| !release.is_empty()) {
            write_line(file, release.manifest())?;
        }
        Ok(())
    }

    fn start(&mut self) {
        if !self.started {
            self.encoder.header(&mut self.buffer);
            self.started = true;
        }
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        self.out.write_all(&self.buffer)?;
        self.out.flush()?;
        self.buffer.clear();
        Ok(())
    }
}

fn write_line(file: &mut File, entry: &impl serde::Serialize) -> Result<(), SinkError> {
    let mut line = serde_json::to_vec(entry).map_err(std::io::Error::other)?;
    line.push(b'\n');
    Ok(file.write_all(&line)?)
}

impl<W: Write + Send> Sink for WriterSink<W> {
    async fn publish(&mut self, release: &Release) -> Result<Delivery, SinkError> {
        // Files and pipes have no asynchronous form; a blocked one must not hold up the other tasks.
        tokio::task::block_in_place(|| self.write(release)).map(|()| Delivery::Published)
    }

    async fn finish(&mut self) -> Result<(), SinkError> {
        tokio::task::block_in_place(|| {
            self.start();
            self.encoder.finish(&mut self.buffer);
            self.flush()
        })
    }
}
