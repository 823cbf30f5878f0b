//! Named steps at which a test can make the process die, as by SIGKILL. Compiled to nothing without the `failpoints`
//! feature.
//!
//! `VEILSTREAM_DIE_AT=step` dies the first time a step is reached, `VEILSTREAM_DIE_AT=step:n` the n-th time.

/// Dies here if a test asks for it.
#[cfg(feature = "failpoints")]
pub fn step(name: &str) {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};
    static WANTED: OnceLock<Option<(String, u64)>> = OnceLock::new();
    static REACHED: AtomicU64 = AtomicU64::new(0);
    let wanted = WANTED.get_or_init(|| {
        let text = std::env::var("VEILSTREAM_DIE_AT").ok()?;
        let (step, count) = text.split_once(':').unwrap_or((&text, "1"));
        Some((step.to_owned(), count.parse().ok()?))
    });
    if let Some((step, count)) = wanted
        && step == name
        && REACHED.fetch_add(1, Ordering::SeqCst) + 1 == *count
    {
        std::process::abort();
    }
}

/// Dies here if a test asks for it.
#[cfg(not(feature = "failpoints"))]
#[inline(always)]
pub fn step(_name: &str) {}
