//! Standard input as a source: JSON lines, CSV or an Avro container file.

use super::reader::ReaderSource;
use super::{Input, Preamble, SourceError};

/// Starts to read standard input. Lines are passed on as they come; a stop does not wait for the next one.
pub async fn open(input: Input) -> Result<(ReaderSource, Preamble), SourceError> {
    // tokio's own stdin cannot be cancelled and would hold the runtime back at the end. Not locked either: the thread
    // that reads may outlive everything else.
    ReaderSource::open(std::io::stdin(), input).await
}
