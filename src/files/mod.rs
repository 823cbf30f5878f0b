//! Output files, written so that readers meet whole releases and nothing of other origin is damaged.
//!
//! [`Whole`] replaces a file at once: the release of `anonymize`, reports, plots. [`Appending`] makes files grow release by
//! release: the rows of `run`, and the files beside them.
//!
//! # Which paths are written
//! - A path without a file: the file is created, with the mode that the umask leaves.
//! - A regular file: its mode stays. It is locked (`flock`) while it is written; a second writer is refused.
//! - A pipe or a character device: a stream. It is written from its present place on, without lock, check or undo.
//! - A symbolic link is refused, unless it leads to a stream, as `/dev/stdout` does. Links among the directories of a path
//!   are followed: they are part of the name that the user chose.
//! - Directories, block devices and sockets are refused.
//!
//! # What is guaranteed
//! - An error (a full disk, say): the files are as they were before the release, or before the command.
//! - `kill -9`: a replaced file is the old or the new one, whole; a `.veilstream-*.partial` may stay beside it. A file that
//!   grows may end with a part of one release, until the next start takes it back.
//! - Power loss: the same. Bytes are synced before a rename, and before a release counts as written. This rests on a file
//!   system that does not lengthen a file before its data are stored (ext4 and xfs as they come, btrfs, zfs).
//! - Not promised: exactly once. A file sink keeps no offsets, so after a crash nothing says which records are published; with
//!   Kafka, offsets and rows are one transaction.
//! - Not promised: anything about streams. Bytes that a pipe has taken cannot be taken back.

mod append;
mod whole;

use std::fs::{self, File, FileType, Metadata, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

pub use append::{Appending, Content};
pub use whole::Whole;

/// The names of standard output. Opened anew, a redirected one would be written from its start.
const STDOUT: [&str; 3] = ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"];

/// A file that cannot be written. Names the file, never its content.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The system refuses.
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
    /// Somebody else has the lock.
    #[error("another process writes {}: let it end first, or write to another file", .0.display())]
    Locked(PathBuf),
    /// The file is not one that this output can continue.
    #[error("{} {what}: move it away, or write to another file", path.display())]
    Foreign {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        what: &'static str,
    },
    /// Somebody without the lock has written.
    #[error("{} was changed by another program while it was written", .0.display())]
    Changed(PathBuf),
    /// The undo record does not fit the files.
    #[error(
        "{} tells of an unfinished release, but the files that it names are others or have changed: check their last rows, \
         then remove it",
        .0.display()
    )]
    Stale(PathBuf),
}

/// True if the path is one of standard output's names.
pub fn is_stdout(path: &Path) -> bool {
    STDOUT.iter().any(|name| path == Path::new(name))
}

/// What a path leads to, as far as it can be written.
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

/// Takes the lock of an open file, which must still be the one under its name: not replaced, and not behind a link.
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

/// Tells files apart whatever their names.
fn inode(file: &Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}

/// Makes the names in the directory of `path` last.
fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(folder(path))?.sync_all()
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
