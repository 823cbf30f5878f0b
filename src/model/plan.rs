//! The plan of a release: enough to make the very same bytes again after a crash.

use super::batch::Spans;
use super::event::Millis;

/// What a release consists of and how it is made.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReleasePlan {
    /// Shuffles the rows, and names the release.
    pub seed: u64,
    /// Level per quasi-identifier.
    pub levels: Vec<u8>,
    /// When its window closed.
    pub closed: Option<Millis>,
    /// The policy's fingerprint.
    pub fingerprint: String,
    /// The schema of its rows, as the registry numbers it.
    pub schema: Option<u32>,
    /// The records that were read into it, rejected and suppressed ones included.
    pub fresh: Spans,
    /// The records that were held when it was made.
    pub held: Spans,
}
