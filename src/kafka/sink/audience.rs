//! The table of an audience: rows and manifest of its view of a release, in the transaction of that release.
//!
//! Everything follows from the release and its plan (I4). In the Confluent wire format the schema of the rows is derived from the
//! schema of the release, whose id is planned, so a release that is carried out again has the same bytes here too.

use rdkafka::producer::BaseRecord;
use smallvec::SmallVec;

use super::fault::Fault;
use super::output::{Output, RowMessages, blocking, headers, registered};
use super::producer::Transactions;
use crate::codec::schemas::WriterSchema;
use crate::gate::Release;
use crate::kafka::client::KafkaSinkConfig;
use crate::kafka::session::Session;
use crate::model::release::audience::AudienceTable;
use crate::model::schema::Schema;
use crate::sink::SinkError;

/// Where the views of one audience go.
pub(super) struct AudienceOutput {
    topics: AudienceTable<String>,
    output: Output,
    /// Which values of a row the audience sees.
    seen: Vec<bool>,
    partitions: i32,
    manifest_partitions: i32,
    /// The encoder of the rows, and the schema id of the releases that it is for.
    rows: Option<(Option<u32>, RowMessages)>,
}

impl AudienceOutput {
    /// Opens the tables of all audiences.
    pub(super) fn open(
        config: &KafkaSinkConfig,
        session: &Session,
        schema: &Schema,
        transactions: &Transactions,
    ) -> Result<Vec<Self>, SinkError> {
        let open = |topics: &AudienceTable<String>| {
            let own = KafkaSinkConfig {
                topic: topics.rows.clone(),
                manifests: topics.manifests.clone(),
                dead_letters: None,
                ..config.clone()
            };
            let mut output = Output::new(&own, &topics.audience.schema(schema))?;
            registered(session, || blocking(output.prepare()))?;
            Ok(Self {
                output,
                seen: topics.audience.seen(schema),
                partitions: transactions.partitions(&topics.rows)?,
                manifest_partitions: topics.manifests.as_deref().map_or(Ok(1), |t| transactions.partitions(t))?,
                rows: None,
                topics: topics.clone(),
            })
        };
        config.audiences.iter().map(open).collect()
    }

    /// Makes ready for a release whose rows have this schema, by its id; none without a registry.
    pub(super) fn prepare(
        &mut self,
        id: Option<u32>,
        schema: impl FnOnce() -> Option<WriterSchema>,
    ) -> Result<(), Fault> {
        if self.rows.as_ref().is_none_or(|(known, _)| *known != id) {
            let writers: Vec<_> = schema().into_iter().collect();
            self.rows = Some((id, blocking(self.output.encoder(&writers))?));
        }
        Ok(())
    }

    /// Produces the rows and the manifest of a view.
    pub(super) fn produce(&mut self, view: &Release, transactions: &mut Transactions) -> Result<(), Fault> {
        let Some((_, rows)) = &mut self.rows else { return Err(Fault::Fatal(SinkError::Closed)) };
        let (mut payload, mut at) = (Vec::new(), view.lineage().plan.id);
        let time = view.manifest().provenance.closed_at;
        let labels = view.labels(|quasi, out| rows.encoder.message_labels(quasi, out));
        view.labelled_rows(&labels, |labels, values| {
            payload.clear();
            let values: SmallVec<[&str; 16]> =
                values.iter().zip(&self.seen).filter_map(|(value, seen)| seen.then_some(*value)).collect();
            let written = rows.encoder.labelled_message(labels, &values, &mut payload);
            written.map_err(|error| Fault::Fatal(error.into()))?;
            let partition = (at % self.partitions as u64) as i32;
            at = at.wrapping_add(1);
            let record = BaseRecord::<(), [u8]>::to(&self.topics.rows).payload(&payload).partition(partition);
            transactions.send(record.timestamp(time).headers(headers(view)))
        })?;
        let Some(topic) = &self.topics.manifests else { return Ok(()) };
        let manifest = self.output.manifest(view.manifest())?;
        let partition = (view.lineage().plan.id % self.manifest_partitions as u64) as i32;
        let record = BaseRecord::<(), [u8]>::to(topic).payload(&manifest).partition(partition);
        transactions.send(record.timestamp(time).headers(headers(view)))
    }
}
