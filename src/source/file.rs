//! A file as a source: JSON lines, CSV or an Avro container file.
//!
//! [`open`] is for the pipeline; [`for_each_record`] reads a whole file at once for the commands that make or check one
//! release. An already generalized file is read the same way, with a schema of the published fields only.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::reader::{Cutter, ReaderSource};
use super::{Input, Preamble, SourceError};
use crate::codec::Format;
use crate::model::event::{Event, Position, Reject, RejectCode};
use crate::model::record::Record;
use crate::model::schema::Schema;

/// Starts to read a file.
pub async fn open(path: &Path, input: Input) -> Result<(ReaderSource, Preamble), SourceError> {
    ReaderSource::open(open_file(path)?, input).await
}

/// The format that the file's name announces.
pub fn format_of(path: &Path) -> Result<Format, SourceError> {
    Format::of_path(path).ok_or_else(|| SourceError::UnknownFormat { path: path.to_owned() })
}

/// Decodes every record of a file, in order, and gives what the file says about itself.
pub fn for_each_record(
    path: &Path,
    input: Input,
    schema: &Schema,
    each: impl FnMut(Position, Result<Record<'_>, Reject>),
) -> Result<Preamble, SourceError> {
    for_each_record_in(open_file(path)?, input, schema, each)
}

/// The same for a file that is open already, or a pipe.
pub fn for_each_record_in(
    read: impl Read,
    input: Input,
    schema: &Schema,
    mut each: impl FnMut(Position, Result<Record<'_>, Reject>),
) -> Result<Preamble, SourceError> {
    let mut cutter = Cutter::open(read, input)?;
    let mut decoder = cutter.preamble.decoder(schema, input.max_record_bytes)?;
    while let Some(events) = cutter.next_batch()? {
        for Event { position, payload, .. } in &events {
            match payload {
                Some(payload) => each(*position, decoder.decode(payload)),
                None => each(*position, Err(Reject::record(RejectCode::Tombstone))),
            }
        }
    }
    Ok(cutter.preamble)
}

fn open_file(path: &Path) -> Result<File, SourceError> {
    File::open(path).map_err(|source| SourceError::Open { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::PublishedRow;
    use crate::model::record::Value;
    use crate::model::schema::Role;

    /// What one command publishes another must be able to verify, in all three formats.
    #[test]
    fn a_published_file_can_be_read_again() {
        let schema = Schema::new([("age", Role::Quasi), ("job", Role::Sensitive)]);
        let folder = tempfile::tempdir().unwrap();
        for name in ["out.csv", "out.jsonl", "out.avro"] {
            let path = folder.path().join(name);
            let format = format_of(&path).unwrap();
            let mut encoder = Preamble::Json.encoder(&schema, format).unwrap();
            let mut bytes = Vec::new();
            encoder.header(&mut bytes);
            for _ in 0..3 {
                encoder.row(&PublishedRow { quasi: &["[30, 40["], values: &["\"cook\""] }, &mut bytes).unwrap();
            }
            encoder.finish(&mut bytes);
            std::fs::write(&path, bytes).unwrap();
            let mut seen = 0;
            let input = Input { format, delimiter: None, max_record_bytes: 1000 };
            for_each_record(&path, input, &schema, |position, record| {
                let values = record.unwrap().values;
                assert!(values[..] == [Value::Text("[30, 40[".into()), Value::Text("cook".into())], "{name}");
                assert_eq!(position.offset.0, seen);
                seen += 1;
            })
            .unwrap();
            assert_eq!(seen, 3, "{name}");
        }
    }

    #[test]
    fn what_cannot_be_opened_is_named() {
        let path = Path::new("/nowhere/in.jsonl");
        let input = Input { format: Format::Json, delimiter: None, max_record_bytes: 10 };
        let error = for_each_record(path, input, &Schema::new([]), |_, _| ()).err().unwrap();
        assert_eq!(error.to_string(), "cannot open /nowhere/in.jsonl");
        assert!(matches!(format_of(Path::new("data.parquet")), Err(SourceError::UnknownFormat { .. })));
    }
}
