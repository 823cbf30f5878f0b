//! The binary: arguments, dispatch, exit code.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

use clap::Parser as _;
use veilstream::cli::{Cli, install_panic_hook};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A defect is a failure that the caller cannot mend.
const DEFECT: u8 = 3;

fn main() -> ExitCode {
    // Whoever asks first decides: OpenSSL is told not to clean up at the end, when threads of Kafka's clients may still be
    // using it, and would crash.
    openssl_sys::init();
    install_panic_hook();
    let cli = Cli::parse();
    catch_unwind(AssertUnwindSafe(|| cli.execute())).unwrap_or(ExitCode::from(DEFECT))
}
