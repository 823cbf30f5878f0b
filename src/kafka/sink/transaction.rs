//! The transaction of a release: rows, manifest, tables of audiences, journal entry, dead letters and offsets, all or nothing.
//!
//! Everything that is produced follows from the plan (partitions, order, timestamps, headers), so a release that is carried out
//! again has the same bytes at the same places (I4).

use rdkafka::consumer::{CommitMode, Consumer};
use rdkafka::producer::BaseRecord;

use super::fault::{Fault, unwritten};
use super::output::{blocking, headers};
use super::publisher::Publisher;
use crate::failpoint::step;
use crate::gate::Release;
use crate::kafka::meter::Transaction;
use crate::kafka::{defects, journal};
use crate::model::event::Millis;
use crate::model::release::dead_letter::DeadLetter;
use crate::sink::{SinkError, journal_entry};

/// The number of rows between two looks at the epoch. Larger: a fence is noticed late. Smaller: costs time for every row.
const LOOK_EVERY: u64 = 1024;

impl Publisher {
    /// Carries the transaction of a release out, by a producer whose earlier calls have all been answered.
    pub(super) fn transact(&mut self, release: &Release) -> Result<(), Fault> {
        self.check(release)?;
        self.renew_producer(release)?;
        if release.lineage().replayed && !release.is_empty() {
            self.rows = Some(blocking(self.output.encoder_of(release.lineage().plan.schema))?);
        }
        if let Some(rows) = self.rows.as_ref().filter(|_| !release.is_empty()) {
            let (id, output) = (rows.schema_id, &self.output);
            self.tables.iter_mut().try_for_each(|table| table.prepare(id, || output.rows_schema(id)))?;
        }
        self.session.meter.transaction_began(now());
        let ended = self.transaction(release);
        self.session.meter.transaction_ended(match &ended {
            Ok(()) => Transaction::Committed,
            Err(Fault::Fenced) if !self.transactions.overran() => Transaction::Fenced,
            Err(Fault::Fenced | Fault::Unknown(_)) => Transaction::Unknown,
            Err(_) => Transaction::Aborted,
        });
        ended
    }

    fn transaction(&mut self, release: &Release) -> Result<(), Fault> {
        self.transactions.begin()?;
        step("begun");
        let sent = self.produce(release).and_then(|()| self.send_offsets(release));
        let sent = sent.and_then(|()| {
            step("offsets-sent");
            self.check(release)?;
            self.transactions.commit()
        });
        self.ended(sent)
    }

    /// Aborts a transaction that has failed before its commit.
    pub(super) fn ended(&mut self, sent: Result<(), Fault>) -> Result<(), Fault> {
        match sent {
            Ok(()) => Ok(()),
            Err(Fault::Unknown(error)) => Err(Fault::Unknown(error)),
            Err(fault) => match (self.transactions.abort(), fault) {
                // Whatever has failed first: the id is not ours, and must not be taken back as if it were.
                (Err(Fault::Fenced), _) => Err(Fault::Fenced),
                (Err(Fault::Again(error) | Fault::Unknown(error)), Fault::Again(_)) => Err(Fault::Unknown(error)),
                (_, fault) => Err(fault),
            },
        }
    }

    fn produce(&mut self, release: &Release) -> Result<(), Fault> {
        self.produce_rows(release)?;
        step("produced");
        self.produce_manifest(release)?;
        self.produce_views(release)?;
        self.produce_journal(release)?;
        self.produce_dead_letters(release)?;
        self.transactions.flush()?;
        step("flushed");
        Ok(())
    }

    fn produce_rows(&mut self, release: &Release) -> Result<(), Fault> {
        let (rows, transactions) = (&mut self.rows, &mut self.transactions);
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
            let record = BaseRecord::<(), [u8]>::to(&self.config.topic).payload(&payload);
            transactions.send(record.partition(partition).timestamp(time).headers(headers(release)))?;
            if at.is_multiple_of(LOOK_EVERY) && self.session.epoch() != release.lineage().epoch {
                return Err(Fault::Stale);
            }
            Ok(())
        })
    }

    /// A release without rows has no manifest: it would tell readers about the few records that were left out.
    fn produce_manifest(&mut self, release: &Release) -> Result<(), Fault> {
        let Some(topic) = self.config.manifests.as_ref().filter(|_| !release.is_empty()) else { return Ok(()) };
        let manifest = self.output.manifest(release.manifest())?;
        let partition = (release.lineage().plan.id % self.manifest_partitions as u64) as i32;
        let record = BaseRecord::<(), [u8]>::to(topic).payload(&manifest).partition(partition);
        let time = release.manifest().provenance.closed_at;
        self.transactions.send(record.timestamp(time).headers(headers(release)))
    }

    /// The tables of the audiences, in the same transaction.
    fn produce_views(&mut self, release: &Release) -> Result<(), Fault> {
        for (table, view) in self.tables.iter_mut().zip(release.views()) {
            if let Some(view) = view {
                table.produce(view, &mut self.transactions)?;
            }
        }
        self.check(release)
    }

    fn produce_journal(&mut self, release: &Release) -> Result<(), Fault> {
        let Some(config) = &self.config.journal else { return Ok(()) };
        let place = |partition| {
            let place = self.session.topics.place(partition);
            place.map_or((None, partition.0), |(topic, number)| (Some(topic.to_owned()), number as u64))
        };
        let entry = serde_json::to_vec(&journal_entry(release, place)).map_err(unwritten)?;
        let record = BaseRecord::<(), [u8]>::to(&config.topic).payload(&entry).partition(journal::PARTITION);
        self.transactions.send(record.timestamp(release.manifest().provenance.closed_at))
    }

    fn produce_dead_letters(&mut self, release: &Release) -> Result<(), Fault> {
        let Some(topic) = &self.config.dead_letters else { return Ok(()) };
        let time = release.manifest().provenance.closed_at;
        let wrong = release.rejected().iter().filter(|(_, reject)| !reject.code.is_passed_over());
        for (position, reject) in wrong {
            let Some((source, partition)) = self.session.topics.place(position.partition) else { continue };
            let letter = DeadLetter {
                topic: source,
                partition,
                offset: position.offset.0,
                code: reject.code.as_str(),
                field: reject.field.map(|slot| self.schema.name(slot).as_ref()),
                at: time,
            };
            let letter = self.output.dead_letter(&letter)?;
            self.transactions.send(BaseRecord::<(), [u8]>::to(topic).payload(&letter).timestamp(time))?;
        }
        step("dead-letters");
        Ok(())
    }

    fn send_offsets(&mut self, release: &Release) -> Result<(), Fault> {
        self.check(release)?;
        let offsets = self.offsets(&self.after(release)?)?;
        if offsets.count() == 0 {
            return Ok(());
        }
        if defects::commits_outside_the_transaction() {
            return self.consumer.commit(&offsets, CommitMode::Sync).map_err(Fault::Again);
        }
        // Fresh each time: the generation in it is what fences a zombie.
        let group = self.consumer.group_metadata().ok_or(Fault::Stale)?;
        self.transactions.send_offsets(offsets, group)
    }
}

/// The wall clock.
fn now() -> Millis {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    Millis(since.map_or(0, |since| since.as_millis() as i64))
}
