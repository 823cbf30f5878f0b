//! A [`ClassTally`]: the counts of one class in a form that merges class by class, for searches that do not work node by node.
//!
//! Invariant: merging never adds up distinct counts. A subject in one finest class only is a number; one in several is
//! kept by its own number, so that it counts once however the classes merge.

use smallvec::SmallVec;

use super::facets::FacetCounts;
use super::subjects::{Lists, Subjects};
use crate::model::counting::Histogram;
use crate::model::domain::Code;

/// Distinct subjects (records, when no subject is configured).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Members {
    single: u32,
    /// Numbers of subjects that are in several finest classes, ascending.
    straddlers: Vec<u32>,
}

impl Members {
    /// How many there are.
    fn count(&self) -> u32 {
        self.single + self.straddlers.len() as u32
    }

    fn merge(&mut self, other: &Self) {
        self.single += other.single;
        if !other.straddlers.is_empty() {
            self.straddlers.extend(&other.straddlers);
            self.straddlers.sort_unstable();
            self.straddlers.dedup();
        }
    }
}

/// The counts of one class.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClassTally {
    rows: u32,
    members: Members,
    /// Per facet its codes, ascending.
    facets: SmallVec<[Vec<(Code, Members)>; 2]>,
}

impl ClassTally {
    /// So many records, of which nothing else is counted.
    pub fn of_records(rows: u32) -> Self {
        Self { rows, members: Members { single: rows, straddlers: Vec::new() }, facets: SmallVec::new() }
    }

    /// Records.
    pub fn rows(&self) -> u32 {
        self.rows
    }

    /// Distinct subjects (records, when no subject is configured).
    pub fn size(&self) -> u32 {
        self.members.count()
    }

    /// Takes in another class.
    pub fn merge(&mut self, other: &Self) {
        self.rows += other.rows;
        self.members.merge(&other.members);
        for (into, from) in self.facets.iter_mut().zip(&other.facets) {
            for (code, members) in from {
                match into.binary_search_by_key(code, |(code, _)| *code) {
                    Ok(at) => into[at].1.merge(members),
                    Err(at) => into.insert(at, (*code, members.clone())),
                }
            }
        }
    }

    /// The size of several classes merged, without merging them.
    pub fn merged_size<'a>(tallies: impl Iterator<Item = &'a Self>) -> u32 {
        let mut single = 0;
        let mut straddlers: SmallVec<[u32; 16]> = SmallVec::new();
        for tally in tallies {
            single += tally.members.single;
            straddlers.extend_from_slice(&tally.members.straddlers);
        }
        straddlers.sort_unstable();
        straddlers.dedup();
        single + straddlers.len() as u32
    }

    /// Shows its histograms, one per facet.
    pub fn with_histograms<T>(&self, see: impl FnOnce(&[Histogram<'_>]) -> T) -> T {
        let columns: SmallVec<[(Vec<Code>, Vec<u32>); 2]> = self
            .facets
            .iter()
            .map(|facet| facet.iter().map(|(code, members)| (*code, members.count())).unzip())
            .collect();
        let histograms: SmallVec<[Histogram<'_>; 2]> =
            columns.iter().map(|(codes, counts)| Histogram { codes, counts }).collect();
        see(&histograms)
    }
}

/// One tally per class.
pub(crate) fn tallies(
    rows: &[u32],
    sizes: &[u32],
    subjects: Option<&Subjects>,
    facets: &[FacetCounts],
) -> Vec<ClassTally> {
    let mut tallies: Vec<ClassTally> = (slots(sizes, subjects).into_iter().zip(rows))
        .map(|(members, &rows)| ClassTally { rows, members, facets: SmallVec::new() })
        .collect();
    for facet in facets {
        let mut entries = facet.codes.iter().copied().zip(slots(&facet.counts, facet.subjects.as_ref()));
        for (tally, range) in tallies.iter_mut().zip(facet.starts.windows(2)) {
            tally.facets.push(entries.by_ref().take((range[1] - range[0]) as usize).collect());
        }
    }
    tallies
}

fn slots(counts: &[u32], subjects: Option<&Subjects>) -> Vec<Members> {
    let Some(Subjects { single, straddlers }) = subjects else {
        return counts.iter().map(|&single| Members { single, straddlers: Vec::new() }).collect();
    };
    let mut members: Vec<Members> = single.iter().map(|&single| Members { single, straddlers: Vec::new() }).collect();
    for (number, slots) in Lists::iter(straddlers).enumerate() {
        slots.iter().for_each(|&slot| members[slot as usize].straddlers.push(number as u32));
    }
    members
}
