//! A file that appears, or is replaced, at once: written under another name beside its place, synced, and renamed.
//!
//! The other name cannot be guessed and is created exclusively, so nothing planted there is followed.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use super::{FileError, Target, failed, folder, lock, open_stream, sync_folder};

/// A file on its way. Dropped before [`Whole::commit`], it leaves nothing behind; only a stream keeps what it has been given.
pub struct Whole {
    path: PathBuf,
    out: Out,
}

enum Out {
    Stream(Box<dyn Write + Send>),
    /// The new file, and the one that it replaces, which is locked.
    Beside(NamedTempFile, Option<File>),
}

impl Whole {
    /// Starts a file at `path`, or opens the stream that is there.
    pub fn create(path: &Path) -> Result<Self, FileError> {
        let out = match Target::of(path)? {
            Target::Stream => Out::Stream(open_stream(path)?),
            Target::Nothing => Out::Beside(beside(path, 0o666).map_err(failed(path))?, None),
            Target::File => {
                let open = OpenOptions::new().read(true).open(path);
                let old = open.or_else(|_| OpenOptions::new().write(true).open(path)).map_err(failed(path))?;
                let old = lock(old, path)?;
                let new = beside(path, 0o600).map_err(failed(path))?;
                copy_access(&old, new.as_file()).map_err(failed(path))?;
                Out::Beside(new, Some(old))
            }
        };
        Ok(Self { path: path.to_owned(), out })
    }

    /// Standard output.
    pub fn stdout() -> Self {
        Self { path: "standard output".into(), out: Out::Stream(Box::new(io::stdout())) }
    }

    /// Writes on. The reader of a stream who went away is no failure.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), FileError> {
        let written = match &mut self.out {
            Out::Stream(out) => out.write_all(bytes).and_then(|()| out.flush()),
            // The message names the file that was asked for, not the other name.
            Out::Beside(new, _) => new.as_file_mut().write_all(bytes),
        };
        match written {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.out = Out::Stream(Box::new(io::sink()));
                Ok(())
            }
            written => written.map_err(failed(&self.path)),
        }
    }

    /// Puts the file in its place.
    pub fn commit(self) -> Result<(), FileError> {
        let Out::Beside(new, _locked) = self.out else { return Ok(()) };
        let moved = new.as_file().sync_all().and_then(|()| new.persist(&self.path).map_err(|error| error.error));
        moved.and_then(|_| sync_folder(&self.path)).map_err(failed(&self.path))
    }
}

/// A new file in the directory of `path`, with this mode less the umask.
fn beside(path: &Path, mode: u32) -> io::Result<NamedTempFile> {
    let mut name = tempfile::Builder::new();
    name.prefix(".veilstream-").suffix(".partial").rand_bytes(12).permissions(Permissions::from_mode(mode));
    name.tempfile_in(folder(path))
}

/// Gives `new` the owner, the group and the mode of `old`. Another group than before gets no rights.
fn copy_access(old: &File, new: &File) -> io::Result<()> {
    let (old, now) = (old.metadata()?, new.metadata()?);
    let mut mode = old.mode() & 0o777;
    let differs = (old.uid(), old.gid()) != (now.uid(), now.gid());
    if differs && fchown(new, Some(old.uid()), Some(old.gid())).is_err() && old.gid() != now.gid() {
        mode &= !0o070;
    }
    new.set_permissions(Permissions::from_mode(mode))
}
