//! Replaces a file at once: writes a temporary file in the same directory, syncs it, and renames it.
//!
//! The temporary name cannot be guessed and is created exclusively, so nobody can plant a link there.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use super::{FileError, Target, failed, folder, lock, open_stream, sync_folder};

/// A file being written. Dropped before [`ReplacedFile::commit`] it leaves nothing behind, except what a stream has taken.
pub(crate) struct ReplacedFile {
    path: PathBuf,
    out: Destination,
}

enum Destination {
    Stream(Box<dyn Write + Send>),
    /// The temporary file, and the locked file that it replaces.
    Temporary(NamedTempFile, Option<File>),
}

impl ReplacedFile {
    /// Starts a file at `path`, or opens the stream that is there.
    pub(crate) fn create(path: &Path) -> Result<Self, FileError> {
        let out = match Target::of(path)? {
            Target::Stream => Destination::Stream(open_stream(path)?),
            Target::Nothing => Destination::Temporary(temporary(path, 0o666).map_err(failed(path))?, None),
            Target::File => {
                let open = OpenOptions::new().read(true).open(path);
                let old = open.or_else(|_| OpenOptions::new().write(true).open(path)).map_err(failed(path))?;
                let old = lock(old, path)?;
                let new = temporary(path, 0o600).map_err(failed(path))?;
                copy_access(&old, new.as_file()).map_err(failed(path))?;
                Destination::Temporary(new, Some(old))
            }
        };
        Ok(Self { path: path.to_owned(), out })
    }

    /// Standard output.
    pub(crate) fn stdout() -> Self {
        Self { path: "standard output".into(), out: Destination::Stream(Box::new(io::stdout())) }
    }

    /// Appends bytes. A reader of a stream that went away is no failure.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), FileError> {
        let written = match &mut self.out {
            Destination::Stream(out) => out.write_all(bytes).and_then(|()| out.flush()),
            // Written directly, so that an error names the requested file.
            Destination::Temporary(new, _) => new.as_file_mut().write_all(bytes),
        };
        match written {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.out = Destination::Stream(Box::new(io::sink()));
                Ok(())
            }
            written => written.map_err(failed(&self.path)),
        }
    }

    /// Replaces the file.
    pub(crate) fn commit(self) -> Result<(), FileError> {
        let Destination::Temporary(new, _locked) = self.out else { return Ok(()) };
        let moved = new.as_file().sync_all().and_then(|()| new.persist(&self.path).map_err(|error| error.error));
        moved.and_then(|_| sync_folder(&self.path)).map_err(failed(&self.path))
    }
}

/// A new file in the directory of `path`, with `mode` less the umask.
fn temporary(path: &Path, mode: u32) -> io::Result<NamedTempFile> {
    let mut name = tempfile::Builder::new();
    name.prefix(".veilstream-").suffix(".partial").rand_bytes(12).permissions(Permissions::from_mode(mode));
    name.tempfile_in(folder(path)).map_err(without_path)
}

/// The error of the system alone: the path of the temporary file says nothing to the user.
fn without_path(error: io::Error) -> io::Error {
    let cause = error.get_ref().and_then(std::error::Error::source).and_then(|cause| cause.downcast_ref::<io::Error>());
    let code = cause.and_then(io::Error::raw_os_error);
    code.map_or_else(|| error.kind().into(), io::Error::from_raw_os_error)
}

/// Gives `new` the owner, the group and the mode of `old`. If the group cannot be kept, the new one gets no rights.
fn copy_access(old: &File, new: &File) -> io::Result<()> {
    let (old, now) = (old.metadata()?, new.metadata()?);
    let mut mode = old.mode() & 0o777;
    let differs = (old.uid(), old.gid()) != (now.uid(), now.gid());
    if differs && fchown(new, Some(old.uid()), Some(old.gid())).is_err() && old.gid() != now.gid() {
        mode &= !0o070;
    }
    new.set_permissions(Permissions::from_mode(mode))
}
