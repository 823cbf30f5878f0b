//! The brokers of the model: committed offsets, transactions and the output's log. They behave as Kafka does for a client that does not
//! know KIP-890: a request to end a transaction ends whichever one of its producer is open.

use std::collections::{BTreeMap, BTreeSet};

use veilstream::kafka::client::{OnGap, Start};
use veilstream::kafka::progress::commit::Commit;
use veilstream::kafka::progress::found::{FoundPartition, OnBroker};
use veilstream::model::event::{Offset, Partition, Position};

use super::group::{Group, Member};

/// The number of instances.
pub(crate) const INSTANCES: usize = 2;
/// Records per partition, at most: a record is a bit of [`Records`].
const MOST: u32 = 8;

/// Records, as one bit each.
pub(crate) type Records = u16;
/// A release as it is in the log: its plan's id and the records that it shows.
pub(crate) type Copy = (u64, Records);
pub(crate) type Commits = Vec<(Partition, Commit)>;

/// The bit of a record.
pub(crate) fn bit(position: Position) -> Records {
    1 << (position.partition.0 as u32 * MOST + position.offset.0 as u32)
}

/// A request that changes something for good.
#[derive(Clone, Hash, Debug)]
pub(crate) enum Request {
    /// Offsets outside a transaction.
    Commit { member: Member, commits: Commits },
    /// Takes a transactional id over.
    Init { id: usize },
    /// Joins the group under a name; classic.
    Join { name: usize },
    /// Offsets of a transaction.
    Offsets { id: usize, epoch: u8, member: Member, commits: Commits },
    /// Ends a transaction.
    End { id: usize, epoch: u8, commit: bool },
}

/// The answer to a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    Done,
    /// The membership is not the current one.
    Stale,
    /// The transactional id has a newer producer.
    Fenced,
    /// There is no transaction to end like that.
    NoTransaction,
    /// None came in time.
    Lost,
}

/// The transaction of a transactional id.
#[derive(Clone, Hash, Debug, Default)]
pub(crate) struct Transactional {
    pub(crate) epoch: u8,
    pub(crate) open: Option<Open>,
    /// True if the last transaction of this epoch was committed, false if it was aborted.
    ended: Option<bool>,
    /// True if the broker has given up on the last transaction of the producer.
    pub(crate) expired: bool,
}

#[derive(Clone, Hash, Debug, Default)]
pub(crate) struct Open {
    copies: Vec<Copy>,
    offsets: BTreeMap<Partition, Commit>,
}

#[derive(Clone, Hash, Debug)]
pub(crate) struct Broker {
    pub(crate) group: Group,
    pub(crate) ids: [Transactional; INSTANCES],
    commits: BTreeMap<Partition, Commit>,
    /// Every release of which a copy is in the log, aborted ones included.
    shown: BTreeSet<Copy>,
    /// The records that a reader of committed data has.
    published: Records,
    pub(crate) broken: Option<&'static str>,
    pub(crate) partitions: u32,
    records: i64,
    /// The end of a partition as an instance finds it.
    pub(crate) end: i64,
    /// Offsets of a transaction are taken from whoever sends them.
    pub(crate) fences_nobody: bool,
}

impl Broker {
    pub(crate) fn new(group: Group, partitions: u32, records: i64) -> Self {
        let (ids, commits, shown) = Default::default();
        let (broken, fences_nobody, end) = (None, false, records);
        Self { group, ids, commits, shown, published: 0, broken, partitions, records, end, fences_nobody }
    }

    /// Carries a request out, whether or not anybody still waits for the answer.
    pub(crate) fn take(&mut self, request: &Request) -> Answer {
        match request {
            Request::Commit { member, commits } => {
                if !self.group.accepts(*member) {
                    return Answer::Stale;
                }
                self.store(commits.iter().cloned());
            }
            Request::Init { id } => {
                let epoch = self.ids[*id].epoch + 1;
                self.ids[*id] = Transactional { epoch, ..Transactional::default() };
            }
            Request::Join { name } => {
                let id = self.group.next_id();
                self.group.join(*name, id);
            }
            Request::Offsets { id, epoch, member, commits } => {
                let accepted = self.group.accepts(*member) || self.fences_nobody;
                let Some(open) = self.ids[*id].opened(*epoch) else { return Answer::Fenced };
                if !accepted {
                    return Answer::Stale;
                }
                open.offsets.extend(commits.iter().cloned());
            }
            Request::End { id, epoch, commit } => return self.end(*id, *epoch, *commit),
        }
        Answer::Done
    }

    fn end(&mut self, id: usize, epoch: u8, commit: bool) -> Answer {
        let transactional = &mut self.ids[id];
        if transactional.epoch != epoch {
            return Answer::Fenced;
        }
        let Some(Open { copies, offsets }) = transactional.open.take() else {
            return if transactional.ended == Some(commit) { Answer::Done } else { Answer::NoTransaction };
        };
        transactional.ended = Some(commit);
        if commit {
            for (_, records) in copies {
                if self.published & records != 0 {
                    self.broken = Some("I2");
                }
                self.published |= records;
            }
            self.store(offsets);
        }
        Answer::Done
    }

    /// Rows of a release, in a transaction.
    pub(crate) fn produce(&mut self, id: usize, epoch: u8, copy: Copy) -> Answer {
        let Some(open) = self.ids[id].opened(epoch) else { return Answer::Fenced };
        open.copies.push(copy);
        self.shown.insert(copy);
        if self.shown.iter().any(|other| *other != copy && other.1 & copy.1 != 0) {
            self.broken = Some("I4");
        }
        Answer::Done
    }

    /// The broker gives up on an open transaction.
    pub(crate) fn expire(&mut self, id: usize) {
        let epoch = self.ids[id].epoch + 1;
        self.ids[id] = Transactional { epoch, expired: true, ..Transactional::default() };
    }

    fn store(&mut self, commits: impl IntoIterator<Item = (Partition, Commit)>) {
        self.commits.extend(commits);
        if self.finished() & !self.published != 0 {
            self.broken = Some("I1");
        }
    }

    /// The records that the commits call finished.
    fn finished(&self) -> Records {
        let mut finished = 0;
        for (partition, Commit { offset, state }) in &self.commits {
            let is_finished = |at: &i64| at < offset || (*at < state.finished_to && !state.pending.contains(*at));
            let done = (0..self.records).filter(is_finished);
            finished |= done
                .map(|at| bit(Position { partition: *partition, offset: Offset(at) }))
                .fold(0, |all, one| all | one);
        }
        finished
    }

    /// True if every record is published and every commit says so.
    pub(crate) fn is_done(&self) -> bool {
        let all = |partition| (0..self.records).map(move |at| bit(Position::new(partition, at)));
        let all = (0..self.partitions).flat_map(all).fold(0, |all, one| all | one);
        self.published == all && self.finished() == all
    }

    /// True if no open transaction has offsets of the partition.
    pub(crate) fn is_stable(&self, partition: Partition) -> bool {
        (0..INSTANCES).all(|id| !self.ids[id].changes(partition))
    }

    /// The same for the transactions of the other instances.
    pub(crate) fn is_stable_beside(&self, partition: Partition, id: usize) -> bool {
        (0..INSTANCES).all(|other| other == id || !self.ids[other].changes(partition))
    }

    /// The commit of a partition as an instance finds it.
    pub(crate) fn found(&self, partition: Partition, earlier: Option<i64>) -> Option<FoundPartition> {
        let text = self.commits.get(&partition).map(|commit| (commit.offset, commit.text()));
        let commit = text.as_ref().map(|(offset, text)| (*offset, text.as_str()));
        let (topic, number) = ("t", partition.0 as i32);
        let broker = OnBroker { number: partition, topic, partition: number, commit, oldest: 0, end: self.end };
        broker.judge(Start::Earliest, OnGap::Stop, earlier).ok()
    }

    /// True if these are the commits.
    pub(crate) fn has(&self, commits: &Commits) -> bool {
        commits.iter().all(|(partition, commit)| self.commits.get(partition) == Some(commit))
    }

    /// Every plan that is in a commit, or whose rows are in the log.
    pub(crate) fn plans(&self) -> Vec<u64> {
        let pending = self.ids.iter().flat_map(|id| &id.open).flat_map(|open| open.offsets.values());
        let planned = self.commits.values().chain(pending).flat_map(|commit| &commit.state.plan).map(|plan| plan.id);
        planned.chain(self.shown.iter().map(|copy| copy.0)).collect()
    }
}

impl Request {
    /// The membership in whose name it is sent.
    pub(crate) fn member(&mut self) -> Option<&mut Member> {
        match self {
            Self::Commit { member, .. } | Self::Offsets { member, .. } => Some(member),
            Self::Init { .. } | Self::Join { .. } | Self::End { .. } => None,
        }
    }
}

impl Transactional {
    /// True if an open transaction has offsets of the partition.
    fn changes(&self, partition: Partition) -> bool {
        self.open.as_ref().is_some_and(|open| open.offsets.contains_key(&partition))
    }

    /// The open transaction, which begins now if there is none.
    fn opened(&mut self, epoch: u8) -> Option<&mut Open> {
        (self.epoch == epoch).then(|| self.open.get_or_insert_default())
    }
}
