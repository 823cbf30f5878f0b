//! A rejected record as it is told to others: where it stands and why. Never a value.

use serde::Serialize;

/// A record that was turned away.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DeadLetter<'a> {
    /// The input topic.
    pub topic: &'a str,
    /// The partition of it.
    pub partition: i32,
    /// The place in the partition.
    pub offset: i64,
    /// The bounded reason, as [`RejectCode::as_str`](crate::model::event::RejectCode::as_str) writes it.
    pub code: &'static str,
    /// The configured name of the field that is to blame.
    pub field: Option<&'a str>,
    /// When it was turned away, in milliseconds since the epoch.
    pub at: i64,
}
