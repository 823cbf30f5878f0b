//! Counting for the gate: the rows of a batch, grouped by what a reader can see of them.
//!
//! Written apart from the frequency sets on purpose, and as plainly as possible. Nothing that an earlier stage derived is
//! believed: equal texts are one value whatever their codes, and sensitive values and profiles are read from the published
//! texts again, each different text once.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::generalize::{GeneralizedBatch, RowRef};
use crate::model::batch::Rows;
use crate::model::confidential::{Field, Profile};
use crate::model::counting::{Facet, Histogram, NO_VALUE, Values};
use crate::model::domain::Code;
use crate::model::record::counted_json;
use crate::privacy::{Class, Rules};

/// The rows of a batch, ready to be counted.
pub(super) struct Count<'a> {
    batch: &'a GeneralizedBatch,
    /// False if every record is a person of its own.
    by_subject: bool,
    facets: Vec<Facet>,
    /// One code per text, class by class.
    cells: Vec<Code>,
    values: CountedValues,
    /// The profile of every row, where some rule asks for it.
    profile: Vec<Code>,
    profiles: Arc<Vec<Profile>>,
    /// All rows, by their number in the order of sending.
    everything: Vec<u32>,
}

/// Rows of a batch, group by group.
pub(super) struct Groups {
    pub(super) rows: Vec<u32>,
    /// Where each group ends, and the next one begins.
    pub(super) ends: Vec<usize>,
}

/// The counts of some rows.
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
    /// Counts some different rows: their subjects, unless each is a person of its own, and what each is counted as by facet.
    pub(super) fn of(
        rows: impl Iterator<Item = u32> + Clone,
        subject: Option<impl Fn(u32) -> u64>,
        facets: usize,
        code: impl Fn(usize, u32) -> Code,
    ) -> Self {
        let Some(subject) = subject else {
            // Every row is somebody else.
            let facet = |facet: usize| {
                let mut codes: Vec<Code> = rows.clone().map(|row| code(facet, row)).collect();
                codes.sort_unstable();
                runs(&codes)
            };
            return Self { size: rows.clone().count() as u32, counts: (0..facets).map(facet).collect() };
        };
        let mut size = None;
        let facet = |facet: usize| {
            // Each person counts once for a value.
            let pairs = distinct(rows.clone().map(|row| (subject(row), code(facet, row))).collect());
            size.get_or_insert_with(|| pairs.chunk_by(|a, b| a.0 == b.0).count());
            let mut codes: Vec<Code> = pairs.into_iter().map(|(_, code)| code).collect();
            codes.sort_unstable();
            runs(&codes)
        };
        let counts = (0..facets).map(facet).collect();
        let size = size.unwrap_or_else(|| distinct(rows.clone().map(&subject).collect()).len());
        Self { size: size as u32, counts }
    }

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
        let values = CountedValues::of(batch);
        let mut profiler = rules.profiler();
        let profile = |(rows, i): (&Rows, usize)| {
            let text = |field: Field| match field {
                Field::Sensitive(f) => counted_json(batch.written[f].level(0).label(rows.written(i)[f])),
                // As it was read: a wish may depend on a field that is not published.
                Field::Kept(field) => rows.kept(i).nth(field).map(counted_json).unwrap_or_default(),
            };
            let codes: SmallVec<[Code; 4]> =
                (0..batch.written.len()).map(|field| values.code(rows, i, field)).collect();
            profiler.code(&codes, text)
        };
        let profile = match rules.facets().contains(&Facet::Profile) {
            true => batch.order.iter().map(|&row| batch.source(row)).map(profile).collect(),
            false => Vec::new(),
        };
        Self {
            batch,
            by_subject: rules.counting().subjects,
            facets: rules.facets().to_vec(),
            cells: canonical_cells(batch),
            values,
            profile,
            profiles: profiler.profiles(),
            everything: (0..batch.len() as u32).collect(),
        }
    }

    /// One code per text, class by class.
    pub(super) fn cells(&self) -> &[Code] {
        &self.cells
    }

    /// The codes that the sensitive values of the rows are counted as.
    pub(super) fn values(&self) -> &CountedValues {
        &self.values
    }

    /// The meaning of the codes.
    pub(super) fn meanings(&self) -> Values<'_> {
        Values { sensitive: &self.batch.sensitive, written: &self.batch.written, profiles: &self.profiles, shares: &[] }
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
        let members = rows.iter().copied().filter(|&row| !(without_held && self.is_held(row)));
        let subject = self.by_subject.then_some(|row| self.subject(row));
        Tally::of(members, subject, self.facets.len(), |facet, row| self.code(self.facets[facet], row))
    }

    /// The code of a row by each facet; `None` where its text is not the one that the encoder counted.
    pub(super) fn known_codes(&self, row: u32) -> Option<SmallVec<[Code; 4]>> {
        let code = |&facet: &Facet| {
            let code = self.code(facet, row);
            let is_known = match facet {
                Facet::Sensitive(field) => {
                    code == NO_VALUE || (code as usize) < self.batch.sensitive[field].level(0).len()
                }
                Facet::Label => true,
                Facet::Profile => false,
            };
            is_known.then_some(code)
        };
        self.facets.iter().map(code).collect()
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
        let (rows, i) = self.batch.source(self.batch.order[row as usize]);
        match facet {
            Facet::Profile => self.profile[row as usize],
            Facet::Sensitive(field) => self.values.code(rows, i, field),
            Facet::Label => rows.label(i),
        }
    }
}

/// The codes that the sensitive values of a batch are counted as, read from the texts that a sink writes. A value has the encoder's code
/// if the encoder has counted it as the same; otherwise a code that nothing is known of.
#[derive(Debug)]
pub(super) struct CountedValues {
    /// Per field, by the code of the written text.
    fields: Vec<Vec<Code>>,
}

/// A text that no row carries.
const UNREAD: Code = Code::MAX;

impl CountedValues {
    /// Reads each different text once, in the order of storage.
    pub(super) fn of(batch: &GeneralizedBatch) -> Self {
        let field = |field: usize| {
            let (written, counted) = (batch.written[field].level(0), batch.sensitive[field].level(0));
            let mut codes = vec![UNREAD; written.len()];
            let mut by_text: FxHashMap<Cow<'_, str>, Code> = FxHashMap::default();
            for rows in [&batch.fresh, &batch.held] {
                for i in 0..rows.len() {
                    let text = rows.written(i)[field];
                    let code = &mut codes[text as usize];
                    if *code != UNREAD {
                        continue;
                    }
                    let encoded = rows.sensitive(i)[field];
                    let unknown = (counted.len() + by_text.len()) as Code;
                    let known = |text: &str| (encoded as usize) < counted.len() && counted.label(encoded) == text;
                    *code = match counted_json(written.label(text)) {
                        text if text.is_empty() => NO_VALUE,
                        text => {
                            *by_text.entry(text).or_insert_with_key(|text| if known(text) { encoded } else { unknown })
                        }
                    };
                }
            }
            codes
        };
        Self { fields: (0..batch.written.len()).map(field).collect() }
    }

    /// The code that the value of row i is counted as.
    #[inline]
    pub(super) fn code(&self, rows: &Rows, i: usize, field: usize) -> Code {
        self.fields[field][rows.written(i)[field] as usize]
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode::{Encoded, Encoder};
    use crate::model::batch::Row;
    use crate::model::event::{Millis, Position};
    use crate::model::hierarchy::Hierarchy;
    use crate::model::record::{Record, Value};
    use crate::model::schema::Role;
    use crate::search::fixture::policy;

    /// An encoder that counts wrongly: `sensitive` stands in for the codes that it should have given.
    fn counted(texts: &[&str], sensitive: Option<&[Code]>) -> (Vec<Code>, usize) {
        let policy = Arc::new(policy(vec![("q", Hierarchy::trivial())], &[("s", Role::Sensitive)], 1));
        let mut encoder = Encoder::new(Arc::clone(&policy));
        let mut rows = Rows::new(1, 1);
        for (i, text) in texts.iter().enumerate() {
            let values = [Value::Text("x".into()), Value::Text((*text).into())];
            assert_eq!(encoder.encode(&Record { values: values.into_iter().collect() }, None), Encoded::Row);
            let own = encoder.row().sensitive.clone();
            let sensitive = sensitive.map_or(own, |codes| SmallVec::from_slice(&[codes[i]]));
            let row = Row { sensitive, ..encoder.row().clone() };
            rows.push(Position::new(0, i as i64), Millis(0), &row);
        }
        let dictionaries = encoder.dictionaries();
        let known = dictionaries.sensitive[0].leaf_count();
        let cells = vec![0; rows.len()];
        let batch = GeneralizedBatch::as_read(rows, vec![vec!["x".to_owned()].into()], &cells, &dictionaries);
        let values = CountedValues::of(&batch);
        ((0..batch.len()).map(|i| values.code(&batch.fresh, i, 0)).collect(), known)
    }

    #[test]
    fn values_have_the_codes_of_the_encoder() {
        let texts = ["Flu", "flu ", "HIV", "", "\u{200b}", "hiv", "FLU"];
        assert_eq!(counted(&texts, None).0, [1, 1, 2, NO_VALUE, NO_VALUE, 2, 1]);
    }

    #[test]
    fn what_the_encoder_miscounts_is_counted_by_its_text() {
        // One value under several codes, some of which nothing is known of; two values and none under one.
        let (codes, known) = counted(&["Flu", "flu", "FLU", "HIV", "", "hiv"], Some(&[2, 1, 99, 1, 1, NO_VALUE]));
        assert!(codes[0] == codes[1] && codes[1] == codes[2] && codes[3] == codes[5] && codes[0] != codes[3]);
        assert_eq!(codes[4], NO_VALUE);
        assert!(codes[0] as usize >= known && codes[3] as usize >= known);
    }
}
