//! Makes allocators keep little, where memory is limited.
//!
//! mimalloc takes memory in huge pages, of which a program touches half, and returns what is freed after a second. The C library, whose
//! allocator Kafka's client uses, has an arena for every few threads, and returns little. That is fast, and costs twice what is in use.
//! Both read their options when the process starts, from its environment. So a process with a limit starts itself once more, in place,
//! with the same id, arguments and open files. Options that are set already stay as they are.

use std::env;
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::config::Config;

/// For mimalloc: small pages, returned at once. For the C library: two arenas, and blocks as long as a fetched batch returned at once.
const OPTIONS: [(&str, &str); 5] = [
    ("MIMALLOC_ALLOW_THP", "0"),
    ("MIMALLOC_PURGE_DELAY", "0"),
    ("MALLOC_ARENA_MAX", "2"),
    ("MALLOC_MMAP_THRESHOLD_", "131072"),
    ("MALLOC_TRIM_THRESHOLD_", "131072"),
];

/// Starts the process once more if this file limits its memory and the allocators do not know it. Before any thread is started.
pub(in crate::cli) fn keep_little(config: &Config) {
    let unset: Vec<_> = OPTIONS.into_iter().filter(|(name, _)| env::var_os(name).is_none()).collect();
    // A pipe cannot be read once more.
    let again = std::fs::metadata(&config.path).is_ok_and(|file| file.is_file());
    if config.limits.memory.is_none() || unset.is_empty() || !again {
        return;
    }
    let mut arguments = env::args_os();
    let (Ok(program), Some(name)) = (env::current_exe(), arguments.next()) else { return };
    let error = Command::new(program).arg0(name).args(arguments).envs(unset).exec();
    tracing::warn!(%error, "the process could not start itself again: its allocators keep more than `limits.memory` allows for");
}
