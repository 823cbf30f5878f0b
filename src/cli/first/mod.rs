//! The commands of the first hour: from a file or topic to a policy that somebody understands, and cases that keep it true.

pub(super) mod explain;
pub(super) mod init;
mod input;
pub(super) mod profile;
pub(super) mod shell;
pub(super) mod test;
