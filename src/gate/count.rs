//! Counting for the gate: the rows of a batch, grouped by what a reader can see of them.
//!
//! Written apart from the frequency sets on purpose, and as plainly as possible. Nothing that an earlier stage derived is
//! believed: equal texts are one value whatever their codes, and profiles are read from the published values again.

use std::collections::HashMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::generalize::{GeneralizedBatch, RowRef};
use crate::model::batch::Rows;
use crate::model::confidential::{Field, Profile};
use crate::model::counting::{Facet, Histogram};
use crate::model::domain::Code;
use crate::privacy::{Class, Rules};

/// The rows of a batch, ready to be counted.
pub(super) struct Count {
    /// Who each row is about; none if every record is a person of its own.
    subjects: Option<Vec<u64>>,
    held: Vec<bool>,
    /// Per facet the code of every row.
    facets: Vec<Vec<Code>>,
    /// The class of every row.
    classes: Vec<u32>,
    class_count: usize,
    /// One code per text, class by class.
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
        let sources = || batch.order.iter().map(|&row| batch.source(row));
        let mut column = |facet: &Facet| match facet {
            Facet::Profile => {
                let code = |(rows, i): (&Rows, usize)| {
                    let json = |field: Field| match field {
                        Field::Sensitive(f) => Some(batch.sensitive[f].level(0).label(rows.sensitive(i)[f])),
                        Field::Kept(field) => rows.kept(i).nth(field),
                    };
                    profiler.code(rows.sensitive(i), json)
                };
                sources().map(code).collect()
            }
            other => sources().map(|(rows, i)| other.code(rows, i)).collect(),
        };
        Self {
            facets: rules.facets().iter().map(&mut column).collect(),
            subjects: by_subject.then(|| sources().map(|(rows, i)| rows.subject(i)).collect()),
            held: batch.order.iter().map(|row| matches!(row, RowRef::Held(_))).collect(),
            classes: batch.classes.clone(),
            class_count: batch.class_count,
            cells: canonical_cells(batch),
            width: batch.quasi.len(),
            profiles: profiler.profiles(),
        }
    }

    /// The same rows looking otherwise: `cells` holds one code per text, row by row.
    pub(super) fn seen_as(self, cells: Vec<Code>) -> Self {
        Self { classes: (0..self.classes.len() as u32).collect(), class_count: self.classes.len(), cells, ..self }
    }

    /// What the profile codes mean here.
    pub(super) fn profiles(&self) -> &Arc<Vec<Profile>> {
        &self.profiles
    }

    /// True if some row was held.
    pub(super) fn any_held(&self) -> bool {
        self.held.contains(&true)
    }

    /// True if some of these rows was held.
    pub(super) fn holds_held(&self, rows: &[usize]) -> bool {
        rows.iter().any(|&row| self.held[row])
    }

    /// Those of `rows` that look alike in the columns `known`, in order of first appearance.
    pub(super) fn groups(&self, rows: &[usize], known: &[usize]) -> Vec<Vec<usize>> {
        let mut index: FxHashMap<SmallVec<[Code; 16]>, usize> = FxHashMap::default();
        let mut group_of: Vec<Option<usize>> = vec![None; self.class_count];
        let mut groups: Vec<Vec<usize>> = Vec::new();
        for &at in rows {
            let class = self.classes[at] as usize;
            let group = *group_of[class].get_or_insert_with(|| {
                let key = known.iter().map(|&column| self.cells[class * self.width + column]).collect();
                *index.entry(key).or_insert_with(|| {
                    groups.push(Vec::new());
                    groups.len() - 1
                })
            });
            groups[group].push(at);
        }
        groups
    }

    /// All rows.
    pub(super) fn everything(&self) -> Vec<usize> {
        (0..self.classes.len()).collect()
    }

    /// Counts some different rows, with or without those that were held.
    pub(super) fn tally(&self, rows: &[usize], rules: &Rules, without_held: bool) -> Tally {
        let members = || rows.iter().copied().filter(move |&row| !(without_held && self.held[row]));
        let size = match &self.subjects {
            None => members().count(),
            Some(subjects) => distinct(members().map(|row| subjects[row]).collect()).len(),
        };
        let facet = |codes: &Vec<Code>| match &self.subjects {
            // Every row is somebody else: what is left of the pairs are the codes.
            None => {
                let mut codes: Vec<Code> = members().map(|row| codes[row]).collect();
                codes.sort_unstable();
                runs(codes.into_iter())
            }
            Some(subjects) => {
                let pairs = distinct(members().map(|row| (codes[row], subjects[row])).collect());
                runs(pairs.into_iter().map(|(code, _)| code))
            }
        };
        debug_assert_eq!(self.facets.len(), rules.facets().len());
        Tally { size: size as u32, counts: self.facets.iter().map(facet).collect() }
    }
}

fn distinct<T: Ord>(mut list: Vec<T>) -> Vec<T> {
    list.sort_unstable();
    list.dedup();
    list
}

/// Each of the ascending codes with how often it comes.
fn runs(ascending: impl Iterator<Item = Code>) -> (Vec<Code>, Vec<u32>) {
    let (mut codes, mut counts): (Vec<Code>, Vec<u32>) = (Vec::new(), Vec::new());
    for code in ascending {
        match counts.last_mut() {
            Some(count) if codes.last() == Some(&code) => *count += 1,
            _ => {
                codes.push(code);
                counts.push(1);
            }
        }
    }
    (codes, counts)
}

/// The cells with one code per text, whatever the label tables say.
fn canonical_cells(batch: &GeneralizedBatch) -> Vec<Code> {
    let mut cells = batch.class_cells.clone();
    for (attribute, labels) in batch.quasi.iter().enumerate() {
        let mut by_text: HashMap<&str, Code> = HashMap::new();
        let mut by_code: FxHashMap<Code, Code> = FxHashMap::default();
        for cell in cells.iter_mut().skip(attribute).step_by(batch.quasi.len()) {
            *cell = *by_code.entry(*cell).or_insert_with_key(|&code| *by_text.entry(labels.text(code)).or_insert(code));
        }
    }
    cells
}
