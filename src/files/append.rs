//! Files that grow together, release by release: all of them, or none.
//!
//! Before a release its undo record, `FILE.undo` beside the first file, says how long each file is and how long it will be;
//! then the files grow, in the order in which they were given; then the record is emptied. Each step is synced before the
//! next, but for the last. After an error the files are cut back at once. At a start after a crash the record tells:
//! ```text
//! no record            nothing was under way
//! every file is long   the release was whole, and stays
//! some file is short   all are cut back to where they were
//! anything else        somebody has changed the files since: nothing is touched, and the start is refused
//! ```
//! The record is there while a process writes, and goes with it. It holds paths and lengths, no rows.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{FileError, Target, failed, lock, open_stream, sync_folder};

/// How much of a file is read to recognise it. Larger: a longer start. Smaller: a file whose first row is longer cannot be
/// continued.
const FIRST_BYTES: u64 = 16 << 20;
/// The longest end of a file that is told apart: an Avro sync marker.
const LAST_BYTES: u64 = 16;

/// Files and streams that are written release by release.
pub struct Appending {
    // Dropped first, while the files are still locked.
    undo: Option<Undo>,
    outs: Vec<Out>,
}

/// The beginning and the end of a file. Not printable: a file of other origin may hold records.
pub struct Content {
    /// Its first bytes.
    pub first: Vec<u8>,
    /// Its last bytes.
    pub last: Vec<u8>,
}

struct Out {
    path: PathBuf,
    kind: Kind,
}

enum Kind {
    Stream(Box<dyn Write + Send>),
    File(Growing),
}

/// A locked file.
struct Growing {
    file: File,
    /// Tells it from a file that took its name. Device numbers are not used: they may change when a machine starts.
    inode: u64,
    len: u64,
}

impl Appending {
    /// Opens and locks the files at `paths`, creates those that are not there, and takes an unfinished release back.
    pub fn open(paths: &[&Path]) -> Result<Self, FileError> {
        let outs = paths.iter().map(|path| Out::open(path)).collect::<Result<Vec<_>, _>>()?;
        let mut this = Self { undo: None, outs };
        if let Some(first) = this.outs.iter().find(|out| matches!(out.kind, Kind::File(_))) {
            let undo = this.undo.insert(Undo::open(&first.path)?);
            undo.recover(&mut this.outs)?;
        }
        Ok(this)
    }

    /// The content of the file with this number; none of a stream or an empty file.
    pub fn existing(&self, number: usize) -> Result<Option<Content>, FileError> {
        let Some(Out { path, kind: Kind::File(Growing { file, len: len @ 1.., .. }) }) = self.outs.get(number) else {
            return Ok(None);
        };
        let read = |from: u64, most: u64| {
            let mut bytes = vec![0; most.min(len - from) as usize];
            file.read_exact_at(&mut bytes, from).map(|()| bytes).map_err(failed(path))
        };
        Ok(Some(Content { first: read(0, FIRST_BYTES)?, last: read(len.saturating_sub(LAST_BYTES), LAST_BYTES)? }))
    }

    /// Appends one part per file, in order: all of them, or none. Streams cannot be taken back.
    pub fn append(&mut self, parts: &[&[u8]]) -> Result<(), FileError> {
        for out in &self.outs {
            out.unchanged()?;
        }
        if let Some(undo) = &mut self.undo {
            undo.note(&self.outs, parts)?;
        }
        for (out, part) in self.outs.iter_mut().zip(parts) {
            if let Err(error) = out.put(part) {
                let error = failed(&out.path)(error);
                self.take_back();
                return Err(error);
            }
        }
        for (out, part) in self.outs.iter_mut().zip(parts) {
            if let Kind::File(growing) = &mut out.kind {
                growing.len += part.len() as u64;
            }
        }
        self.undo.as_mut().map_or(Ok(()), Undo::clear)
    }

    /// Best effort: whatever cannot be cut now is cut at the next start, by the record that stays.
    fn take_back(&mut self) {
        let cut = self.outs.iter().all(|out| match &out.kind {
            Kind::File(growing) => growing.cut().is_ok(),
            Kind::Stream(_) => true,
        });
        if let (true, Some(undo)) = (cut, &mut self.undo) {
            let _ = undo.clear();
        }
    }
}

impl Out {
    fn open(path: &Path) -> Result<Self, FileError> {
        let kind = match Target::of(path)? {
            Target::Stream => Kind::Stream(open_stream(path)?),
            target => {
                let file = open_file(path, &target)?;
                let found = file.metadata().map_err(failed(path))?;
                Kind::File(Growing { file, inode: found.ino(), len: found.len() })
            }
        };
        Ok(Self { path: path.to_owned(), kind })
    }

    fn unchanged(&self) -> Result<(), FileError> {
        let Kind::File(Growing { file, len, .. }) = &self.kind else { return Ok(()) };
        let now = file.metadata().map_err(failed(&self.path))?.len();
        if now == *len { Ok(()) } else { Err(FileError::Changed(self.path.clone())) }
    }

    fn put(&mut self, part: &[u8]) -> io::Result<()> {
        match &mut self.kind {
            Kind::Stream(out) => out.write_all(part).and_then(|()| out.flush()),
            Kind::File(_) if part.is_empty() => Ok(()),
            Kind::File(Growing { file, len, .. }) => file.write_all_at(part, *len).and_then(|()| file.sync_data()),
        }
    }
}

impl Growing {
    /// Removes everything behind the length that counts.
    fn cut(&self) -> io::Result<()> {
        self.file.set_len(self.len).and_then(|()| self.file.sync_data())
    }
}

/// Opens or creates a regular file for reading and writing, and locks it.
fn open_file(path: &Path, target: &Target) -> Result<File, FileError> {
    let new = matches!(target, Target::Nothing);
    let file = OpenOptions::new().read(true).write(true).create_new(new).open(path).map_err(failed(path))?;
    if new {
        sync_folder(path).map_err(failed(path))?;
    }
    lock(file, path)
}

/// One file of a release.
#[derive(Serialize, Deserialize)]
struct Step {
    path: String,
    inode: u64,
    from: u64,
    to: u64,
}

impl Step {
    fn of<'a>(&self, outs: &'a mut [Out]) -> Option<&'a mut Growing> {
        outs.iter_mut().find_map(|out| match &mut out.kind {
            Kind::File(growing) if growing.inode == self.inode => Some(growing),
            _ => None,
        })
    }
}

/// The undo record.
struct Undo {
    path: PathBuf,
    file: File,
    /// True from the note until the files are as one of its two sides says.
    pending: bool,
}

impl Undo {
    fn open(beside: &Path) -> Result<Self, FileError> {
        let mut path = beside.as_os_str().to_owned();
        path.push(".undo");
        let path = PathBuf::from(path);
        let file = match Target::of(&path)? {
            Target::Stream => return Err(FileError::NotAFile { path, what: "a pipe or a device" }),
            target => open_file(&path, &target)?,
        };
        Ok(Self { path, file, pending: true })
    }

    /// Finishes or takes back the release that a crash has interrupted.
    fn recover(&mut self, outs: &mut [Out]) -> Result<(), FileError> {
        let stale = || FileError::Stale(self.path.clone());
        let mut text = Vec::new();
        (&self.file).read_to_end(&mut text).map_err(failed(&self.path))?;
        let steps: Vec<Step> = match text.as_slice() {
            b"" => Vec::new(),
            text => serde_json::from_slice(text).map_err(|_| stale())?,
        };
        let mut short = false;
        for step in &steps {
            let growing = step.of(outs).ok_or_else(stale)?;
            if !(step.from..=step.to).contains(&growing.len) {
                return Err(stale());
            }
            short |= growing.len < step.to;
        }
        for step in steps.iter().filter(|_| short) {
            let growing = step.of(outs).ok_or_else(stale)?;
            growing.len = step.from;
            growing.cut().map_err(failed(Path::new(&step.path)))?;
            tracing::warn!(file = step.path, "rows of a release that was interrupted are taken back");
        }
        self.clear()
    }

    /// Says how long the files are, and how long they will be.
    fn note(&mut self, outs: &[Out], parts: &[&[u8]]) -> Result<(), FileError> {
        let step = |(out, part): (&Out, &&[u8])| match &out.kind {
            Kind::Stream(_) => None,
            Kind::File(Growing { inode, len, .. }) => {
                let path = out.path.to_string_lossy().into_owned();
                Some(Step { path, inode: *inode, from: *len, to: len + part.len() as u64 })
            }
        };
        let steps: Vec<Step> = outs.iter().zip(parts).filter_map(step).collect();
        let write = || {
            self.file.set_len(0)?;
            self.file.write_all_at(&serde_json::to_vec(&steps)?, 0)?;
            self.file.sync_data()
        };
        let written: io::Result<()> = write();
        self.pending = written.is_ok();
        written.map_err(failed(&self.path))
    }

    fn clear(&mut self) -> Result<(), FileError> {
        self.file.set_len(0).map_err(failed(&self.path))?;
        self.pending = false;
        Ok(())
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        if !self.pending {
            // Best effort: an empty record says nothing.
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crash_leaves_a_release_whole_or_takes_it_back() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let (rows, lines, undo) = (at("rows"), at("lines"), at("rows.undo"));
        let open = || Appending::open(&[&rows, &lines]);
        let read = || (fs::read_to_string(&rows).unwrap(), fs::read_to_string(&lines).unwrap());
        let mut files = open().unwrap();
        files.append(&[b"a\n", b"1\n"]).unwrap();
        assert!(matches!(open(), Err(FileError::Locked(path)) if path == rows));
        // The record as it stands in the middle of the next release.
        let Appending { undo: Some(record), outs } = &mut files else { panic!("files have a record") };
        record.note(outs, &[b"b\nc\n", b"2\n"]).unwrap();
        let noted = fs::read(&undo).unwrap();
        drop(files);
        assert!(undo.exists(), "a record that is needed stays");
        for (written, then) in [
            (("", ""), ("a\n", "1\n")),
            (("b\n", ""), ("a\n", "1\n")),
            (("b\nc\n", ""), ("a\n", "1\n")),
            (("b\nc\n", "2"), ("a\n", "1\n")),
            (("b\nc\n", "2\n"), ("a\nb\nc\n", "1\n2\n")),
        ] {
            fs::write(&rows, format!("a\n{}", written.0)).unwrap();
            fs::write(&lines, format!("1\n{}", written.1)).unwrap();
            fs::write(&undo, &noted).unwrap();
            drop(open().unwrap());
            assert_eq!(read(), (then.0.to_owned(), then.1.to_owned()), "{written:?}");
            assert!(!undo.exists());
        }
        for (changed, record) in [("a\nb\nc\nd\n", noted.as_slice()), ("", &noted), ("a\n", b"notes")] {
            fs::write(&rows, changed).unwrap();
            fs::write(&undo, record).unwrap();
            assert!(matches!(open(), Err(FileError::Stale(path)) if path == undo), "{changed:?}");
            assert_eq!((read().0.as_str(), fs::read(&undo).unwrap().as_slice()), (changed, record));
        }
    }
}
