//! Files and standard input as sources: JSON lines, CSV, an Avro container or a Parquet file.
//!
//! [`open`] and [`stdin`] are for the pipeline. [`for_each_message`] reads a whole input at once, for the commands that make
//! or check one release; a file of published rows is read with a schema of the published fields.

use std::fs::File;
use std::path::Path;

use super::reader::{BatchReader, InputBytes, ReaderSource};
use super::{Input, Preamble, SourceError};
use crate::codec::RecordReader;
use crate::model::event::{Event, Position, Reject, RejectCode};
use crate::model::record::Record;
use crate::model::schema::Schema;

/// The bytes of a file.
pub(crate) fn bytes(path: &Path) -> Result<InputBytes, SourceError> {
    let file = File::open(path).map_err(|source| SourceError::Open { path: path.to_owned(), source })?;
    Ok(InputBytes::File(file, None))
}

/// Starts to read an input.
pub(crate) async fn open(from: InputBytes, input: Input) -> Result<(ReaderSource, Preamble), SourceError> {
    ReaderSource::open(from, input).await
}

/// Starts to read standard input. Lines are passed on as they arrive; a stop does not wait for the next one.
pub(crate) async fn stdin(input: Input) -> Result<(ReaderSource, Preamble), SourceError> {
    // A read of tokio's stdin cannot be cancelled and would delay the end of the runtime. std's is not locked: the thread
    // that reads may outlive everything else.
    ReaderSource::open(InputBytes::Stream(Box::new(std::io::stdin())), input).await
}

/// Hands out every event of an input, in order, with the header or schema of the input, which it also returns.
pub(crate) fn for_each_batch(
    from: InputBytes,
    input: Input,
    mut each: impl FnMut(&Preamble, Vec<Event>) -> Result<(), SourceError>,
) -> Result<Preamble, SourceError> {
    let mut reader = BatchReader::open(from, input)?;
    while let Some(events) = reader.next_batch()? {
        each(&reader.preamble, events)?;
    }
    Ok(reader.preamble)
}

/// Hands out every message of an input, in order, with the reader for it, until `each` answers false. Returns the header or schema of
/// the input.
pub fn for_each_message(
    from: InputBytes,
    input: Input,
    schema: &Schema,
    mut each: impl FnMut(&Event, &mut RecordReader) -> bool,
) -> Result<Preamble, SourceError> {
    let mut messages = BatchReader::open(from, input)?;
    let mut reader = messages.preamble.reader(schema, input.max_record_bytes)?;
    while let Some(events) = messages.next_batch()? {
        if !events.iter().all(|event| each(event, &mut reader)) {
            break;
        }
    }
    Ok(messages.preamble)
}

/// Decodes every record of an input, in order. Returns the header or schema of the input.
pub(crate) fn for_each_record(
    from: InputBytes,
    input: Input,
    schema: &Schema,
    mut each: impl FnMut(Position, Result<&Record<'_>, Reject>),
) -> Result<Preamble, SourceError> {
    for_each_message(from, input, schema, |Event { position, payload, .. }, reader| {
        let tombstone = Err(Reject::record(RejectCode::Tombstone));
        let read =
            payload.as_ref().map_or(tombstone, |payload| reader.each(payload, |record, _| each(*position, Ok(record))));
        if let Err(reject) = read {
            each(*position, Err(reject));
        }
        true
    })
}
