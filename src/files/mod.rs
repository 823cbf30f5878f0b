//! Output files, written so that readers find whole releases and foreign files are not damaged.
//!
//! [`ReplacedFile`] replaces a file at once: the release of `anonymize`, reports, plots. [`AppendedFiles`] grow release by
//! release: the rows of `run`, and the manifest and journal beside them.
//!
//! # Which paths are written
//! - A path without a file: the file is created, with the mode that the umask leaves.
//! - A regular file: its mode stays. It is locked (`flock`) while it is written; a second writer is refused.
//! - A pipe or a character device: a stream. It is written from its current position on, without lock, check or undo.
//! - A symbolic link is refused, unless it leads to a stream, as `/dev/stdout` does. Links among the directories of a path
//!   are followed.
//! - Directories, block devices and sockets are refused.
//!
//! # What is guaranteed
//! - After an error, such as a full disk, the files are as they were before the release, or before the command.
//! - After `kill -9` a replaced file is the old or the new one, complete; a `.veilstream-*.partial` may remain beside it. A
//!   file that grows may end with a part of one release, which the next start removes.
//! - After a power loss the same holds. Bytes are synced before a rename, and before a release counts as written. This needs a
//!   file system that does not lengthen a file before its data are stored (ext4 and xfs by default, btrfs, zfs).
//! - Not promised: exactly-once output. A file sink keeps no offsets, so after a crash it is unknown which records are
//!   published; with Kafka, offsets and rows are one transaction.
//! - Not promised: anything about streams. Bytes written to a pipe cannot be removed.

mod append;
mod replace;

use std::fs::{self, File, FileType, Metadata, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

pub(crate) use append::{AppendedFiles, FileEnds};
pub(crate) use replace::ReplacedFile;

/// The names of standard output. A redirected one must not be opened again: it would be written from its start.
const STDOUT: [&str; 3] = ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"];

/// A file that cannot be written. Names the file, never its content.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The system reports an error.
    #[error("cannot write {}", path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A link to a file, or to nothing.
    #[error("{} is a symbolic link, which is not followed: name the file itself", .0.display())]
    Link(PathBuf),
    /// Neither a file nor a stream.
    #[error("{} is {what}: name a file, a pipe or a character device", path.display())]
    NotAFile {
        /// Which path.
        path: PathBuf,
        /// Its kind.
        what: &'static str,
    },
    /// Another process has the lock.
    #[error("another process is writing {}: wait for its end, or write to another file", .0.display())]
    Locked(PathBuf),
    /// The file is not one that this output can continue.
    #[error("{} {what}: move it away, or write to another file", path.display())]
    Foreign {
        /// Which file.
        path: PathBuf,
        /// The mistake.
        what: &'static str,
    },
    /// Another program has written without the lock.
    #[error("{} was changed by another program during the run", .0.display())]
    Changed(PathBuf),
    /// The undo record does not fit the files.
    #[error(
        "{} describes an unfinished release, but the files that it names have changed: check their last rows, then remove it",
        .0.display()
    )]
    Stale(PathBuf),
}

/// True if the path is one of standard output's names.
pub(crate) fn is_stdout(path: &Path) -> bool {
    STDOUT.iter().any(|name| path == Path::new(name))
}

/// The kind of output that a path leads to.
enum Target {
    Nothing,
    File,
    Stream,
}

impl Target {
    fn of(path: &Path) -> Result<Self, FileError> {
        if is_stdout(path) {
            return Ok(Self::Stream);
        }
        let found = match fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::Nothing),
            found => found.map_err(failed(path))?.file_type(),
        };
        let stream = |kind: FileType| kind.is_fifo() || kind.is_char_device();
        if found.is_symlink() {
            let stream = fs::metadata(path).is_ok_and(|end| stream(end.file_type()));
            return if stream { Ok(Self::Stream) } else { Err(FileError::Link(path.to_owned())) };
        }
        match found {
            kind if kind.is_file() => Ok(Self::File),
            kind if stream(kind) => Ok(Self::Stream),
            kind => {
                let what = if kind.is_dir() { "a directory" } else { "a block device or a socket" };
                Err(FileError::NotAFile { path: path.to_owned(), what })
            }
        }
    }
}

fn failed(path: &Path) -> impl Fn(io::Error) -> FileError {
    move |source| FileError::Io { path: path.to_owned(), source }
}

/// Opens a stream; waits for the reader of a pipe.
fn open_stream(path: &Path) -> Result<Box<dyn Write + Send>, FileError> {
    if is_stdout(path) {
        return Ok(Box::new(io::stdout()));
    }
    Ok(Box::new(OpenOptions::new().write(true).open(path).map_err(failed(path))?))
}

/// Locks an open file. Fails if its name leads to another file by now.
fn lock(file: File, path: &Path) -> Result<File, FileError> {
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => return Err(FileError::Locked(path.to_owned())),
        Err(TryLockError::Error(error)) => return Err(failed(path)(error)),
        Ok(()) => {}
    }
    let named = fs::symlink_metadata(path).map_err(failed(path))?;
    let same = inode(&file.metadata().map_err(failed(path))?) == inode(&named);
    if same { Ok(file) } else { Err(FileError::Changed(path.to_owned())) }
}

/// The identity of a file.
fn inode(file: &Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}

/// Syncs the directory of `path`.
fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(folder(path))?.sync_all()
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
