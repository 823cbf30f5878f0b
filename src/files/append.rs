//! Appends each release to several files: to all of them, or to none.
//!
//! Before a release, the undo record `FILE.undo` beside the first file notes the length of each file before and after. Then the
//! files grow, in the given order, and the record is emptied. Every growth but the last is synced before the next. After an error
//! the files are truncated at once. At a start after a crash the record decides:
//! ```text
//! no record                          no release was being written
//! every file has its new length      the release is complete and stays
//! some file is shorter               all files are truncated to their old length
//! anything else                      the files were changed by another program: nothing is touched, the start is refused
//! ```
//! The record exists while a process writes. It holds paths and lengths, no rows.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{FileError, Target, failed, lock, open_stream, sync_folder};

/// How much of a file is read to recognise it. Larger: a slower start. Smaller: a file with a longer first row cannot be
/// continued.
const FIRST_BYTES: u64 = 16 << 20;
/// The longest ending that is checked: an Avro sync marker.
const LAST_BYTES: u64 = 16;

/// Files and streams that are written release by release.
pub(crate) struct AppendedFiles {
    // Dropped first, while the files are still locked.
    undo: Option<Undo>,
    outputs: Vec<Output>,
}

/// The beginning and the end of a file. Has no `Debug`: a foreign file may hold records.
pub(crate) struct FileEnds {
    /// Its first bytes.
    pub first: Vec<u8>,
    /// Its last bytes.
    pub last: Vec<u8>,
}

struct Output {
    path: PathBuf,
    kind: OutputKind,
}

enum OutputKind {
    Stream(Box<dyn Write + Send>),
    File(LockedFile),
}

/// A locked file.
struct LockedFile {
    file: File,
    /// Distinguishes it from a file that took its name. Device numbers may change at a restart of the machine.
    inode: u64,
    len: u64,
}

impl AppendedFiles {
    /// Opens and locks the files at `paths`, creates missing ones, and removes an unfinished release.
    pub(crate) fn open(paths: &[&Path]) -> Result<Self, FileError> {
        let outputs = paths.iter().map(|path| Output::open(path)).collect::<Result<Vec<_>, _>>()?;
        let mut this = Self { undo: None, outputs };
        if let Some(first) = this.outputs.iter().find(|output| matches!(output.kind, OutputKind::File(_))) {
            let undo = this.undo.insert(Undo::open(&first.path)?);
            undo.recover(&mut this.outputs)?;
        }
        Ok(this)
    }

    /// The ends of the file with this number; none of a stream or an empty file.
    pub(crate) fn existing(&self, number: usize) -> Result<Option<FileEnds>, FileError> {
        let Some(Output { path, kind: OutputKind::File(LockedFile { file, len: len @ 1.., .. }) }) =
            self.outputs.get(number)
        else {
            return Ok(None);
        };
        let read = |from: u64, most: u64| {
            let mut bytes = vec![0; most.min(len - from) as usize];
            file.read_exact_at(&mut bytes, from).map(|()| bytes).map_err(failed(path))
        };
        Ok(Some(FileEnds { first: read(0, FIRST_BYTES)?, last: read(len.saturating_sub(LAST_BYTES), LAST_BYTES)? }))
    }

    /// Appends one part per file, in order: all of them, or none. Bytes written to a stream cannot be removed.
    pub(crate) fn append(&mut self, parts: &[&[u8]]) -> Result<(), FileError> {
        for output in &self.outputs {
            output.unchanged()?;
        }
        if let Some(undo) = &mut self.undo {
            undo.note(&self.outputs, parts)?;
        }
        for (output, part) in self.outputs.iter_mut().zip(parts) {
            if let Err(error) = output.put(part) {
                let error = failed(&output.path)(error);
                self.roll_back();
                return Err(error);
            }
        }
        for (output, part) in self.outputs.iter_mut().zip(parts) {
            if let OutputKind::File(file) = &mut output.kind {
                file.len += part.len() as u64;
            }
        }
        self.undo.as_mut().map_or(Ok(()), Undo::clear)
    }

    /// Best effort: if a file cannot be truncated now, the record stays and the next start does it.
    fn roll_back(&mut self) {
        let truncated = self.outputs.iter().all(|output| match &output.kind {
            OutputKind::File(file) => file.truncate().is_ok(),
            OutputKind::Stream(_) => true,
        });
        if let (true, Some(undo)) = (truncated, &mut self.undo) {
            let _ = undo.clear();
        }
    }
}

impl Output {
    fn open(path: &Path) -> Result<Self, FileError> {
        let kind = match Target::of(path)? {
            Target::Stream => OutputKind::Stream(open_stream(path)?),
            target => {
                let file = open_file(path, &target)?;
                let found = file.metadata().map_err(failed(path))?;
                OutputKind::File(LockedFile { file, inode: found.ino(), len: found.len() })
            }
        };
        Ok(Self { path: path.to_owned(), kind })
    }

    fn unchanged(&self) -> Result<(), FileError> {
        let OutputKind::File(LockedFile { file, len, .. }) = &self.kind else { return Ok(()) };
        let now = file.metadata().map_err(failed(&self.path))?.len();
        if now == *len { Ok(()) } else { Err(FileError::Changed(self.path.clone())) }
    }

    fn put(&mut self, part: &[u8]) -> io::Result<()> {
        match &mut self.kind {
            OutputKind::Stream(output) => output.write_all(part).and_then(|()| output.flush()),
            OutputKind::File(_) if part.is_empty() => Ok(()),
            OutputKind::File(LockedFile { file, len, .. }) => {
                file.write_all_at(part, *len).and_then(|()| file.sync_data())
            }
        }
    }
}

impl LockedFile {
    /// Removes everything behind the valid length.
    fn truncate(&self) -> io::Result<()> {
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

/// The growth of one file by one release.
#[derive(Serialize, Deserialize)]
struct Growth {
    path: String,
    inode: u64,
    from: u64,
    to: u64,
}

impl Growth {
    fn of<'a>(&self, outputs: &'a mut [Output]) -> Option<&'a mut LockedFile> {
        outputs.iter_mut().find_map(|output| match &mut output.kind {
            OutputKind::File(file) if file.inode == self.inode => Some(file),
            _ => None,
        })
    }
}

/// The undo record.
struct Undo {
    path: PathBuf,
    file: File,
    /// True from the note until every file has its old or its new length.
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

    /// Keeps or removes the release that a crash has interrupted.
    fn recover(&mut self, outputs: &mut [Output]) -> Result<(), FileError> {
        let stale = || FileError::Stale(self.path.clone());
        let mut text = Vec::new();
        (&self.file).read_to_end(&mut text).map_err(failed(&self.path))?;
        let growths: Vec<Growth> = match text.as_slice() {
            b"" => Vec::new(),
            text => serde_json::from_slice(text).map_err(|_| stale())?,
        };
        let mut short = false;
        for growth in &growths {
            let file = growth.of(outputs).ok_or_else(stale)?;
            if !(growth.from..=growth.to).contains(&file.len) {
                return Err(stale());
            }
            short |= file.len < growth.to;
        }
        for growth in growths.iter().filter(|_| short) {
            let file = growth.of(outputs).ok_or_else(stale)?;
            file.len = growth.from;
            file.truncate().map_err(failed(Path::new(&growth.path)))?;
            tracing::warn!(file = growth.path, "removed the rows of an interrupted release");
        }
        self.clear()
    }

    /// Notes the length of each file before and after the release.
    fn note(&mut self, outputs: &[Output], parts: &[&[u8]]) -> Result<(), FileError> {
        let growth = |(output, part): (&Output, &&[u8])| match &output.kind {
            OutputKind::Stream(_) => None,
            OutputKind::File(LockedFile { inode, len, .. }) => {
                let path = output.path.to_string_lossy().into_owned();
                Some(Growth { path, inode: *inode, from: *len, to: len + part.len() as u64 })
            }
        };
        let growths: Vec<Growth> = outputs.iter().zip(parts).filter_map(growth).collect();
        let write = || {
            self.file.set_len(0)?;
            self.file.write_all_at(&serde_json::to_vec(&growths)?, 0)?;
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
            // Best effort: an empty record has no effect.
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
        let open = || AppendedFiles::open(&[&rows, &lines]);
        let read = || (fs::read_to_string(&rows).unwrap(), fs::read_to_string(&lines).unwrap());
        let mut files = open().unwrap();
        files.append(&[b"a\n", b"1\n"]).unwrap();
        assert!(matches!(open(), Err(FileError::Locked(path)) if path == rows));
        // The record as it stands in the middle of the next release.
        let AppendedFiles { undo: Some(record), outputs } = &mut files else { panic!("files have a record") };
        record.note(outputs, &[b"b\nc\n", b"2\n"]).unwrap();
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
