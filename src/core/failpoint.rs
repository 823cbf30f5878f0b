//! Named steps at which a test can make the process die, as by SIGKILL, or stand still, and defects that a test can ask
//! for, to see whether its checks turn red. Compiled to nothing without the `failpoints` feature.
//!
//! `VEILSTREAM_DIE_AT=step` dies the first time a step is reached, `VEILSTREAM_DIE_AT=step:n` the n-th time.
//! `VEILSTREAM_SLEEP_AT=step:n:seconds` stands still for a while instead. `VEILSTREAM_DEFECT=name,name` has these defects.

#[cfg(feature = "failpoints")]
mod wanted {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// A step, and the how manieth time it counts.
    struct At {
        step: String,
        count: u64,
        reached: AtomicU64,
        seconds: u64,
    }

    impl At {
        fn of(variable: &str) -> Option<Self> {
            let text = std::env::var(variable).ok()?;
            let mut parts = text.split(':');
            let step = parts.next()?.to_owned();
            let mut number = || parts.next().and_then(|part| part.parse().ok());
            Some(Self {
                step,
                count: number().unwrap_or(1),
                seconds: number().unwrap_or(0),
                reached: AtomicU64::new(0),
            })
        }

        fn hits(&self, step: &str) -> bool {
            self.step == step && self.reached.fetch_add(1, Ordering::SeqCst) + 1 == self.count
        }
    }

    /// Dies or stands still here if a test asks for it.
    pub fn step(name: &str) {
        static DIE: OnceLock<Option<At>> = OnceLock::new();
        static SLEEP: OnceLock<Option<At>> = OnceLock::new();
        if DIE.get_or_init(|| At::of("VEILSTREAM_DIE_AT")).as_ref().is_some_and(|at| at.hits(name)) {
            std::process::abort();
        }
        if let Some(at) = SLEEP.get_or_init(|| At::of("VEILSTREAM_SLEEP_AT")).as_ref().filter(|at| at.hits(name)) {
            std::thread::sleep(std::time::Duration::from_secs(at.seconds));
        }
    }

    /// True if a test asks for this defect.
    pub fn defect(name: &str) -> bool {
        static WANTED: OnceLock<String> = OnceLock::new();
        let wanted = WANTED.get_or_init(|| std::env::var("VEILSTREAM_DEFECT").unwrap_or_default());
        wanted.split(',').any(|defect| defect == name)
    }
}

#[cfg(not(feature = "failpoints"))]
mod wanted {
    /// Nothing.
    #[inline(always)]
    pub const fn step(_name: &str) {}

    /// Never.
    #[inline(always)]
    pub const fn defect(_name: &str) -> bool {
        false
    }
}

pub use wanted::{defect, step};
