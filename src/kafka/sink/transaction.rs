//! The transaction of a release: rows, manifest, tables of audiences, journal entry, dead letters and offsets, all or nothing.
//!
//! Everything that is produced follows from the plan (partitions, order, timestamps, headers), so a release that is carried out
//! again has the same bytes at the same places (I4).

use rdkafka::producer::BaseRecord;

use super::fault::{Fault, unwritten};
use super::output::{blocking, headers};
use super::publisher::Publisher;
use crate::failpoint::step;
use crate::gate::Release;
use crate::kafka::journal;
use crate::model::release::dead_letter::DeadLetter;
use crate::sink::{SinkError, journal_entry};

/// The number of rows between two looks at the epoch. Larger: a fence is noticed late. Smaller: costs time for every row.
const LOOK_EVERY: u64 = 1024;

impl Publisher {
    /// Finds the encoders of the rows, which a release that is carried out again does not plan.
    pub(super) fn prepare_rows(&mut self, release: &Release) -> Result<(), Fault> {
        if release.lineage().replayed && !release.is_empty() {
            self.rows = Some(blocking(self.output.encoder_of(release.lineage().plan.schema))?);
        }
        if let Some(rows) = self.rows.as_ref().filter(|_| !release.is_empty()) {
            let (id, output) = (rows.schema_id, &self.output);
            self.tables.iter_mut().try_for_each(|table| table.prepare(id, || output.rows_schema(id)))?;
        }
        Ok(())
    }

    /// Sends everything that the release consists of.
    pub(super) fn produce(&mut self, release: &Release) -> Result<(), Fault> {
        self.produce_rows(release)?;
        step("produced");
        self.produce_manifest(release)?;
        self.produce_views(release)?;
        self.produce_journal(release)?;
        self.produce_dead_letters(release)
    }

    fn produce_rows(&mut self, release: &Release) -> Result<(), Fault> {
        let (rows, transactor) = (&mut self.rows, &mut self.transactor);
        let mut payload = Vec::new();
        // The same partitions when the release is carried out again. The id is public, and the order follows from the rows.
        let mut at = release.lineage().plan.id;
        let time = release.manifest().provenance.closed_at;
        let labels = release.labels(|quasi, out| {
            if let Some(rows) = rows {
                rows.encoder.message_labels(quasi, out);
            }
        });
        release.labelled_rows(&labels, |labels, values| {
            payload.clear();
            let rows = rows.as_mut().ok_or(Fault::Fatal(SinkError::Closed))?;
            let written = rows.encoder.labelled_message(labels, values, &mut payload);
            written.map_err(|error| Fault::Fatal(error.into()))?;
            let partition = (at % self.partitions as u64) as i32;
            at = at.wrapping_add(1);
            let record = BaseRecord::<(), [u8]>::to(&transactor.config.topic).payload(&payload);
            transactor.transactions.send(record.partition(partition).timestamp(time).headers(headers(release)))?;
            if at.is_multiple_of(LOOK_EVERY) {
                transactor.check(release.lineage().epoch)?;
            }
            Ok(())
        })
    }

    /// A release without rows has no manifest: it would tell readers about the few records that were left out.
    fn produce_manifest(&mut self, release: &Release) -> Result<(), Fault> {
        let Some(topic) = self.transactor.config.manifests.as_ref().filter(|_| !release.is_empty()) else {
            return Ok(());
        };
        let manifest = self.output.manifest(release.manifest())?;
        let partition = (release.lineage().plan.id % self.manifest_partitions as u64) as i32;
        let record = BaseRecord::<(), [u8]>::to(topic).payload(&manifest).partition(partition);
        let time = release.manifest().provenance.closed_at;
        self.transactor.transactions.send(record.timestamp(time).headers(headers(release)))
    }

    /// The tables of the audiences, in the same transaction.
    fn produce_views(&mut self, release: &Release) -> Result<(), Fault> {
        for (table, view) in self.tables.iter_mut().zip(release.views()) {
            if let Some(view) = view {
                table.produce(view, &mut self.transactor.transactions)?;
            }
        }
        self.transactor.check(release.lineage().epoch)
    }

    fn produce_journal(&mut self, release: &Release) -> Result<(), Fault> {
        let Some(config) = &self.transactor.config.journal else { return Ok(()) };
        let place = |partition| {
            let place = self.transactor.session.topics.place(partition);
            place.map_or((None, partition.0), |(topic, number)| (Some(topic.to_owned()), number as u64))
        };
        let entry = serde_json::to_vec(&journal_entry(release, place)).map_err(unwritten)?;
        let record = BaseRecord::<(), [u8]>::to(&config.topic).payload(&entry).partition(journal::PARTITION);
        self.transactor.transactions.send(record.timestamp(release.manifest().provenance.closed_at))
    }

    fn produce_dead_letters(&mut self, release: &Release) -> Result<(), Fault> {
        let Some(topic) = &self.transactor.config.dead_letters else { return Ok(()) };
        let time = release.manifest().provenance.closed_at;
        let wrong = release.rejected().iter().filter(|(_, reject)| !reject.code.is_passed_over());
        for (position, reject) in wrong {
            let Some((source, partition)) = self.transactor.session.topics.place(position.partition) else { continue };
            let letter = DeadLetter {
                topic: source,
                partition,
                offset: position.offset.0,
                code: reject.code.as_str(),
                field: reject.field.map(|slot| self.schema.name(slot).as_ref()),
                at: time,
            };
            let letter = self.output.dead_letter(&letter)?;
            self.transactor.transactions.send(BaseRecord::<(), [u8]>::to(topic).payload(&letter).timestamp(time))?;
        }
        step("dead-letters");
        Ok(())
    }
}
