//! Counting for the gate: the rows of a batch, grouped by what a reader can see of them.
//!
//! Written apart from the frequency sets on purpose, and as plainly as possible. Nothing that an earlier stage derived is
//! believed: equal texts are one value whatever their codes, and profiles are read from the published values again.

use std::collections::HashMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::generalize::{GeneralizedBatch, RowRef};
use crate::model::confidential::{Field, Profile};
use crate::model::counting::{Facet, Histogram};
use crate::model::domain::Code;
use crate::privacy::{Class, Rules};

/// One row as it is counted.
struct Member {
    /// The subject, or the row's number.
    subject: u64,
    held: bool,
    facets: SmallVec<[Code; 4]>,
}

/// The rows of a batch, ready to be counted.
pub(super) struct Count {
    members: Vec<Member>,
    /// One code per text, row by row.
    cells: Vec<Code>,
    width: usize,
    profiles: Arc<Vec<Profile>>,
}

/// What was counted of some rows.
pub(super) struct Tally {
    /// Distinct subjects.
    pub(super) size: u32,
    counts: Vec<(Vec<Code>, Vec<u32>)>,
}

impl Tally {
    /// The histograms, in the order of the facets.
    pub(super) fn histograms(&self) -> Vec<Histogram<'_>> {
        self.counts.iter().map(|(codes, counts)| Histogram { codes, counts }).collect()
    }

    /// As a criterion sees it.
    pub(super) fn class<'a>(&self, histograms: &'a [Histogram<'a>]) -> Class<'a> {
        Class { size: self.size, facets: histograms }
    }
}

impl Count {
    pub(super) fn new(batch: &GeneralizedBatch, rules: &Rules) -> Self {
        let by_subject = rules.counting().subjects;
        let mut profiler = rules.profiler();
        let mut members = Vec::with_capacity(batch.len());
        for (at, &row) in batch.order.iter().enumerate() {
            let (rows, i) = batch.source(row);
            let json = |field: Field| match field {
                Field::Sensitive(field) => Some(batch.sensitive[field].level(0).label(rows.sensitive(i)[field])),
                Field::Kept(field) => rows.kept(i).nth(field),
            };
            let mut code = |facet: &Facet| match facet {
                Facet::Profile => profiler.code(rows.sensitive(i), json),
                other => other.code(rows, i),
            };
            members.push(Member {
                subject: if by_subject { rows.subject(i) } else { at as u64 },
                held: matches!(row, RowRef::Held(_)),
                facets: rules.facets().iter().map(&mut code).collect(),
            });
        }
        Self { members, cells: canonical_cells(batch), width: batch.quasi.len(), profiles: profiler.profiles() }
    }

    /// The same rows looking otherwise: `cells` holds one code per text, row by row.
    pub(super) fn seen_as(self, cells: Vec<Code>) -> Self {
        Self { cells, ..self }
    }

    /// What the profile codes mean here.
    pub(super) fn profiles(&self) -> &Arc<Vec<Profile>> {
        &self.profiles
    }

    /// True if some row was held.
    pub(super) fn any_held(&self) -> bool {
        self.members.iter().any(|m| m.held)
    }

    /// True if some of these rows was held.
    pub(super) fn holds_held(&self, rows: &[usize]) -> bool {
        rows.iter().any(|&row| self.members[row].held)
    }

    /// Those of `rows` that look alike in the columns `known`, in order of first appearance.
    pub(super) fn groups(&self, rows: &[usize], known: &[usize]) -> Vec<Vec<usize>> {
        let mut index: FxHashMap<SmallVec<[Code; 16]>, usize> = FxHashMap::default();
        let mut groups: Vec<Vec<usize>> = Vec::new();
        for &at in rows {
            let key = known.iter().map(|&column| self.cells[at * self.width + column]).collect();
            let group = *index.entry(key).or_insert_with(|| {
                groups.push(Vec::new());
                groups.len() - 1
            });
            groups[group].push(at);
        }
        groups
    }

    /// All rows.
    pub(super) fn everything(&self) -> Vec<usize> {
        (0..self.members.len()).collect()
    }

    /// Counts some rows, with or without those that were held.
    pub(super) fn tally(&self, rows: &[usize], rules: &Rules, without_held: bool) -> Tally {
        let members = || rows.iter().map(|&row| &self.members[row]).filter(move |m| !(without_held && m.held));
        let mut subjects: Vec<u64> = members().map(|m| m.subject).collect();
        subjects.sort_unstable();
        subjects.dedup();
        let facet = |facet: usize| {
            let mut pairs: Vec<(Code, u64)> = members().map(|m| (m.facets[facet], m.subject)).collect();
            pairs.sort_unstable();
            pairs.dedup();
            let (mut codes, mut counts): (Vec<Code>, Vec<u32>) = (Vec::new(), Vec::new());
            for (code, _) in pairs {
                match counts.last_mut() {
                    Some(count) if codes.last() == Some(&code) => *count += 1,
                    _ => {
                        codes.push(code);
                        counts.push(1);
                    }
                }
            }
            (codes, counts)
        };
        Tally { size: subjects.len() as u32, counts: (0..rules.facets().len()).map(facet).collect() }
    }
}

/// The cells with one code per text, whatever the label tables say.
fn canonical_cells(batch: &GeneralizedBatch) -> Vec<Code> {
    let mut cells = batch.cells.clone();
    for (attribute, labels) in batch.quasi.iter().enumerate() {
        let mut by_text: HashMap<&str, Code> = HashMap::new();
        let mut by_code: FxHashMap<Code, Code> = FxHashMap::default();
        for cell in cells.iter_mut().skip(attribute).step_by(batch.quasi.len()) {
            *cell = *by_code.entry(*cell).or_insert_with_key(|&code| *by_text.entry(labels.text(code)).or_insert(code));
        }
    }
    cells
}
