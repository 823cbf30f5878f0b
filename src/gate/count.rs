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
pub(super) struct Count<'a> {
    batch: &'a GeneralizedBatch,
    /// False if every record is a person of its own.
    by_subject: bool,
    facets: Vec<Facet>,
    /// One code per text, class by class.
    cells: Vec<Code>,
    /// The profile of every row, where some rule asks for it.
    profile: Vec<Code>,
    profiles: Arc<Vec<Profile>>,
    /// All rows, by their number in the order of sending.
    everything: Vec<u32>,
}

/// Rows of a batch, group by group.
pub(super) struct Groups {
    rows: Vec<u32>,
    ends: Vec<usize>,
}

/// What was counted of some rows.
pub(super) struct Tally {
    /// Distinct subjects.
    pub(super) size: u32,
    counts: Vec<(Vec<Code>, Vec<u32>)>,
}

impl Groups {
    /// The rows of each.
    pub(super) fn iter(&self) -> impl Iterator<Item = &[u32]> {
        let start = |group: usize| if group == 0 { 0 } else { self.ends[group - 1] };
        (0..self.ends.len()).map(move |group| &self.rows[start(group)..self.ends[group]])
    }
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

impl<'a> Count<'a> {
    /// The rows as they are written.
    pub(super) fn new(batch: &'a GeneralizedBatch, rules: &Rules) -> Self {
        Self::seen_as(batch, rules, canonical_cells(batch))
    }

    /// The same rows looking otherwise: `cells` holds one code per value, class by class.
    pub(super) fn seen_as(batch: &'a GeneralizedBatch, rules: &Rules, cells: Vec<Code>) -> Self {
        let mut profiler = rules.profiler();
        let profile = |(rows, i): (&Rows, usize)| {
            let json = |field: Field| match field {
                Field::Sensitive(f) => Some(batch.sensitive[f].level(0).label(rows.sensitive(i)[f])),
                Field::Kept(field) => rows.kept(i).nth(field),
            };
            profiler.code(rows.sensitive(i), json)
        };
        let profile = match rules.facets().contains(&Facet::Profile) {
            true => batch.order.iter().map(|&row| batch.source(row)).map(profile).collect(),
            false => Vec::new(),
        };
        Self {
            batch,
            by_subject: rules.counting().subjects,
            facets: rules.facets().to_vec(),
            cells,
            profile,
            profiles: profiler.profiles(),
            everything: (0..batch.len() as u32).collect(),
        }
    }

    /// One code per text, class by class.
    pub(super) fn cells(&self) -> &[Code] {
        &self.cells
    }

    /// What the profile codes mean here.
    pub(super) fn profiles(&self) -> &Arc<Vec<Profile>> {
        &self.profiles
    }

    /// True if some row was held.
    pub(super) fn any_held(&self) -> bool {
        self.holds_held(&self.everything)
    }

    /// True if some of these rows was held.
    pub(super) fn holds_held(&self, rows: &[u32]) -> bool {
        rows.iter().any(|&row| self.is_held(row))
    }

    /// Those of `rows` that look alike in the columns `known`, in order of first appearance.
    pub(super) fn groups(&self, rows: &[u32], known: &[usize]) -> Groups {
        let width = self.batch.quasi.len();
        let mut index: FxHashMap<SmallVec<[Code; 16]>, usize> = FxHashMap::default();
        let mut group_of: Vec<Option<usize>> = vec![None; self.batch.class_count];
        let mut sizes: Vec<usize> = Vec::new();
        for &at in rows {
            let class = self.batch.classes[at as usize] as usize;
            let group = *group_of[class].get_or_insert_with(|| {
                let key = known.iter().map(|&column| self.cells[class * width + column]).collect();
                *index.entry(key).or_insert_with(|| {
                    sizes.push(0);
                    sizes.len() - 1
                })
            });
            sizes[group] += 1;
        }
        // Where each group begins; once its rows are there, where it ends.
        let mut ends = sizes;
        let mut start = 0;
        ends.iter_mut().for_each(|end| start += std::mem::replace(end, start));
        let mut grouped = vec![0; rows.len()];
        for &at in rows {
            if let Some(group) = group_of[self.batch.classes[at as usize] as usize] {
                grouped[ends[group]] = at;
                ends[group] += 1;
            }
        }
        Groups { rows: grouped, ends }
    }

    /// The columns, of `width`, in which some of these rows differ; the others tell nobody anything.
    pub(super) fn telling(&self, rows: &[u32], width: usize) -> Vec<usize> {
        let cell = |row: u32, column: usize| self.cells[self.batch.classes[row as usize] as usize * width + column];
        let Some(&first) = rows.first() else { return Vec::new() };
        let differs = |&column: &usize| rows.iter().any(|&row| cell(row, column) != cell(first, column));
        (0..width).filter(differs).collect()
    }

    /// All rows.
    pub(super) fn everything(&self) -> &[u32] {
        &self.everything
    }

    /// Counts some different rows, with or without those that were held.
    pub(super) fn tally(&self, rows: &[u32], rules: &Rules, without_held: bool) -> Tally {
        debug_assert_eq!(self.facets, rules.facets());
        let members = || rows.iter().copied().filter(move |&row| !(without_held && self.is_held(row)));
        if !self.by_subject {
            // Every row is somebody else.
            let facet = |&facet: &Facet| {
                let mut codes: Vec<Code> = members().map(|row| self.code(facet, row)).collect();
                codes.sort_unstable();
                runs(&codes)
            };
            return Tally { size: members().count() as u32, counts: self.facets.iter().map(facet).collect() };
        }
        let mut size = None;
        let facet = |&facet: &Facet| {
            // Whoever has a value counts once for it.
            let pairs = distinct(members().map(|row| (self.subject(row), self.code(facet, row))).collect());
            size.get_or_insert_with(|| pairs.chunk_by(|a, b| a.0 == b.0).count());
            let mut codes: Vec<Code> = pairs.into_iter().map(|(_, code)| code).collect();
            codes.sort_unstable();
            runs(&codes)
        };
        let counts = self.facets.iter().map(facet).collect();
        let size = size.unwrap_or_else(|| distinct(members().map(|row| self.subject(row)).collect()).len());
        Tally { size: size as u32, counts }
    }

    fn is_held(&self, row: u32) -> bool {
        matches!(self.batch.order[row as usize], RowRef::Held(_))
    }

    #[inline]
    fn subject(&self, row: u32) -> u64 {
        let (rows, i) = self.batch.source(self.batch.order[row as usize]);
        rows.subject(i)
    }

    #[inline]
    fn code(&self, facet: Facet, row: u32) -> Code {
        if facet == Facet::Profile {
            return self.profile[row as usize];
        }
        let (rows, i) = self.batch.source(self.batch.order[row as usize]);
        facet.code(rows, i)
    }
}

fn distinct<T: Ord>(mut list: Vec<T>) -> Vec<T> {
    list.sort_unstable();
    list.dedup();
    list
}

/// Each of the ascending codes with how often it comes.
fn runs(ascending: &[Code]) -> (Vec<Code>, Vec<u32>) {
    ascending.chunk_by(|a, b| a == b).map(|run| (run[0], run.len() as u32)).unzip()
}

/// The cells with one code per text, whatever the label tables say.
pub(super) fn canonical_cells(batch: &GeneralizedBatch) -> Vec<Code> {
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
