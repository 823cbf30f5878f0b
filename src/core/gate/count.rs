//! Counting for the gate: the rows of a batch, grouped by what a reader can see of them.
//!
//! Written apart from the frequency sets on purpose, and as plainly as possible. Nothing that an earlier stage derived is
//! believed: equal texts are one value whatever their codes, and sensitive values and profiles are read from the published
//! texts again, each different text once.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::HashMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::generalize::{GeneralizedBatch, RowRef, in_order};
use crate::model::batch::Rows;
use crate::model::confidential::{Field, Profile};
use crate::model::counting::{Facet, Histogram, NO_VALUE, Values};
use crate::model::domain::Code;
use crate::model::record::counted_json;
use crate::privacy::{Class, Rules};

/// The rows of a batch, ready to be counted.
pub(super) struct Count<'a> {
    batch: &'a GeneralizedBatch,
    /// The people; `None` if every record is a person of its own.
    people: Option<People>,
    facets: Vec<Facet>,
    /// One code per text, class by class.
    cells: Vec<Code>,
    values: CountedValues,
    /// The profile of every row, where some rule asks for it.
    profile: Vec<Code>,
    profiles: Arc<Vec<Profile>>,
    /// All rows, by their number in the order of sending.
    everything: Vec<u32>,
    classes: OnceCell<Groups>,
}

/// The people of a batch. Sorted once, so that the people of a class are counted by going through its rows.
struct People {
    /// Their subjects, ascending.
    subjects: Vec<u64>,
    /// The number of the person of each row, in the order of sending.
    of_row: Vec<u32>,
    /// The rows person by person.
    rows: Vec<u32>,
}

impl People {
    fn of(batch: &GeneralizedBatch) -> Self {
        let subject = |&row: &RowRef| {
            let (rows, i) = batch.source(row);
            rows.subject(i)
        };
        let all: Vec<u64> = batch.order.iter().map(subject).collect();
        let rows = in_order(&all, |a, b| a.cmp(&b));
        let (mut subjects, mut of_row) = (Vec::with_capacity(rows.len()), vec![0; rows.len()]);
        for &row in &rows {
            if subjects.last() != Some(&all[row as usize]) {
                subjects.push(all[row as usize]);
            }
            of_row[row as usize] = subjects.len() as u32 - 1;
        }
        Self { subjects, of_row, rows }
    }
}

/// Rows of a batch, group by group.
pub(super) struct Groups {
    pub(super) rows: Vec<u32>,
    /// Where each group ends, and the next one begins.
    pub(super) ends: Vec<usize>,
}

/// The counts of some rows.
pub(crate) struct Tally {
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
    /// Counts some different rows: their people, unless each row is a person of its own, and what each is counted as by facet.
    pub(crate) fn of(
        rows: &[u32],
        person: Option<impl Fn(u32) -> u64>,
        facets: usize,
        code: impl Fn(usize, u32) -> Code,
    ) -> Self {
        let mut rows = Cow::Borrowed(rows);
        if let Some(person) = &person
            && !rows.is_sorted_by_key(|&row| person(row))
        {
            rows.to_mut().sort_unstable_by_key(|&row| person(row));
        }
        let is_one = |a: &u32, b: &u32| person.as_ref().is_some_and(|person| person(*a) == person(*b));
        let facet = |facet: usize| {
            let mut codes: Vec<Code> = Vec::with_capacity(rows.len());
            for own in rows.chunk_by(is_one) {
                // Each person counts once for a value.
                if let &[row] = own {
                    codes.push(code(facet, row));
                    continue;
                }
                let mut own: SmallVec<[Code; 8]> = own.iter().map(|&row| code(facet, row)).collect();
                own.sort_unstable();
                own.dedup();
                codes.extend_from_slice(&own);
            }
            runs(codes)
        };
        Self { size: rows.chunk_by(is_one).count() as u32, counts: (0..facets).map(facet).collect() }
    }

    /// The histograms, in the order of the facets.
    pub(crate) fn histograms(&self) -> Vec<Histogram<'_>> {
        self.counts.iter().map(|(codes, counts)| Histogram { codes, counts }).collect()
    }

    /// As a criterion sees it.
    pub(crate) fn class<'a>(&self, histograms: &'a [Histogram<'a>]) -> Class<'a> {
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
            people: rules.counting().subjects.then(|| People::of(batch)),
            facets: rules.facets().to_vec(),
            cells: canonical_cells(batch),
            values,
            profile,
            profiles: profiler.profiles(),
            everything: (0..batch.len() as u32).collect(),
            classes: OnceCell::new(),
        }
    }

    /// The rows class by class.
    pub(super) fn classes(&self) -> &Groups {
        let all: Vec<usize> = (0..self.batch.quasi.len()).collect();
        self.classes.get_or_init(|| self.groups(self.everything(), &all))
    }

    /// All rows with their subjects, ascending; none if every record is a person of its own.
    pub(super) fn by_subject(&self) -> impl Iterator<Item = (u64, u32)> {
        let subject = |people: &People, row: u32| people.subjects[people.of_row[row as usize] as usize];
        self.people.iter().flat_map(move |people| people.rows.iter().map(move |&row| (subject(people, row), row)))
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

    /// Those of `rows` that look alike in the columns `known`, in order of first appearance; of all rows those of one person together.
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
        for &at in self.by_person(rows) {
            if let Some(group) = group_of[self.batch.classes[at as usize] as usize] {
                grouped[ends[group]] = at;
                ends[group] += 1;
            }
        }
        Groups { rows: grouped, ends }
    }

    /// The same rows, those of one person together if these are all.
    fn by_person<'r>(&'r self, rows: &'r [u32]) -> &'r [u32] {
        self.people.as_ref().map(|people| &*people.rows).filter(|all| all.len() == rows.len()).unwrap_or(rows)
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
        let mut members = Cow::Borrowed(self.by_person(rows));
        if without_held {
            members.to_mut().retain(|&row| !self.is_held(row));
        }
        let person = self.people.as_ref().map(|people| |row: u32| u64::from(people.of_row[row as usize]));
        Tally::of(&members, person, self.facets.len(), |facet, row| self.code(self.facets[facet], row))
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

/// The codes, ascending, with how often each comes.
pub(super) fn runs(mut codes: Vec<Code>) -> (Vec<Code>, Vec<u32>) {
    let most = codes.iter().max().map_or(0, |&most| most as usize);
    if most >= 2 * codes.len() {
        codes.sort_unstable();
        return codes.chunk_by(|a, b| a == b).map(|run| (run[0], run.len() as u32)).unzip();
    }
    let mut counts = vec![0; most + 1];
    codes.iter().for_each(|&code| counts[code as usize] += 1);
    (0..).zip(counts).filter(|(_, count)| *count > 0).unzip()
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
