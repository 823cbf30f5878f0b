//! Published rows in the Confluent wire format.

use crate::codec::EncodeError;
use crate::codec::message::{MessageEncoder, write_schema_id};
use crate::codec::schemas::PublishedSchema;

/// Rows in the Confluent wire format: a zero, the schema's id, for Protobuf the place of the message in its file, the row.
pub struct ConfluentEncoder {
    before: Vec<u8>,
    rows: Box<dyn MessageEncoder>,
}

impl ConfluentEncoder {
    /// Rows of `schema`, which the registry knows as `id`.
    pub fn new(id: u32, schema: &PublishedSchema) -> Self {
        let mut before = Vec::new();
        write_schema_id(id, &mut before);
        if matches!(schema, PublishedSchema::Protobuf(_)) {
            // Short for a list of one: the first message.
            before.push(0);
        }
        Self { before, rows: schema.encoder() }
    }
}

impl MessageEncoder for ConfluentEncoder {
    fn message_labels(&self, quasi: &[&str], out: &mut Vec<u8>) {
        self.rows.message_labels(quasi, out);
    }

    fn labelled_message(&mut self, labels: &[u8], values: &[&str], out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let start = out.len();
        out.extend_from_slice(&self.before);
        self.rows.labelled_message(labels, values, out).inspect_err(|_| out.truncate(start))
    }
}
