//! Which rows the next snapshot may show, so that a reader who subtracts the last one learns of nobody.
//!
//! Every class at the join of the two recodings holds whole classes of both, so each is settled by itself: whoever is due
//! leaves and whoever is new comes, if those who do satisfy the policy together; else newcomers are held out, or leavers
//! kept in, and as a last resort the whole class goes. Only a plan: the gate counts for itself, and has the last word.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::model::batch::Rows;
use crate::model::counting::Histogram;
use crate::model::domain::Code;
use crate::model::recoding::Column;
use crate::privacy::{Class, Rules, Scope};

/// A row's standing between the last snapshot and the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// In the window, not in the last snapshot.
    New,
    /// In the window and in the last snapshot.
    Shown,
    /// In the last snapshot, no longer in the window.
    Due,
    /// The same, and for too long.
    Overdue,
}

/// The rows that could be shown, and by what they are judged.
pub(super) struct Candidates<'a> {
    pub(super) rows: &'a Rows,
    pub(super) standing: &'a [Standing],
    pub(super) rules: &'a Rules,
}

/// Who leaves, of a class.
#[derive(Clone, Copy, PartialEq)]
enum Leave {
    Due,
    Nobody,
    Everybody,
}

type Key = SmallVec<[Code; 16]>;

impl Candidates<'_> {
    /// The rows to show by `columns`, where the comparison is made by `join`; `None` if some class cannot be settled.
    pub(super) fn settle(&self, columns: &[Column], join: &[Column]) -> Option<Vec<u32>> {
        let everything: Vec<u32> = (0..self.rows.len() as u32).collect();
        let release = Counts::new(self.rows, &everything, self.rules);
        let mut shown = Vec::new();
        for class in self.groups(&everything, join) {
            shown.extend(self.settle_class(&class, columns, &release)?);
        }
        shown.sort_unstable();
        Some(shown)
    }

    fn settle_class(&self, class: &[u32], columns: &[Column], release: &Counts) -> Option<Vec<u32>> {
        use Leave::{Due, Everybody, Nobody};
        let overdue = class.iter().any(|&i| self.standing[i as usize] == Standing::Overdue);
        let ways = [(Due, true), (Due, false), (Nobody, true), (Nobody, false), (Everybody, true), (Everybody, false)];
        let mut ways = ways.into_iter().filter(|(leave, _)| !(overdue && *leave == Nobody));
        ways.find_map(|(leave, come)| self.try_class(class, leave, come, columns, release))
    }

    /// What is shown of the class if these leave and come; `None` if that would tell of too few.
    fn try_class(
        &self,
        class: &[u32],
        leave: Leave,
        come: bool,
        columns: &[Column],
        release: &Counts,
    ) -> Option<Vec<u32>> {
        let stays = |i: u32| match self.standing[i as usize] {
            Standing::New => come,
            Standing::Shown => leave != Leave::Everybody,
            Standing::Due | Standing::Overdue => leave == Leave::Nobody,
        };
        let wanted: Vec<u32> = class.iter().copied().filter(|&i| stays(i)).collect();
        let good = |rows: &Vec<u32>| self.holds(rows, release);
        let mut shown: Vec<u32> = self.groups(&wanted, columns).into_iter().filter(good).flatten().collect();
        shown.sort_unstable();
        let is_shown = |i: &u32| shown.binary_search(i).is_ok();
        let was = |i: &u32| self.standing[*i as usize] != Standing::New;
        let left: Vec<u32> = class.iter().copied().filter(|i| was(i) && !is_shown(i)).collect();
        let came: Vec<u32> = shown.iter().copied().filter(|i| !was(i)).collect();
        let safe = |rows: &[u32]| rows.is_empty() || self.holds(rows, release);
        (safe(&left) && safe(&came)).then_some(shown)
    }

    fn groups(&self, rows: &[u32], columns: &[Column]) -> Vec<Vec<u32>> {
        let mut index: FxHashMap<Key, usize> = FxHashMap::default();
        let mut groups: Vec<Vec<u32>> = Vec::new();
        for &i in rows {
            let leaves = self.rows.quasi(i as usize);
            let key = leaves.iter().zip(columns).map(|(&leaf, column)| column.map()[leaf as usize]).collect();
            let group = *index.entry(key).or_insert_with(|| {
                groups.push(Vec::new());
                groups.len() - 1
            });
            groups[group].push(i);
        }
        groups
    }

    /// True if the rows satisfy what can be judged of them as a class.
    fn holds(&self, rows: &[u32], release: &Counts) -> bool {
        let counts = Counts::new(self.rows, rows, self.rules);
        let (own, all) = (counts.histograms(), release.histograms());
        let (class, release) = (counts.class(&own), release.class(&all));
        self.rules.hold_alone(&class)
            && self.rules.of(Scope::Within).all(|rule| rule.meets(rule.measure(&class, &release)))
    }
}

/// The counts of some rows.
pub(super) struct Counts {
    size: u32,
    facets: Vec<(Vec<Code>, Vec<u32>)>,
}

impl Counts {
    pub(super) fn new(rows: &Rows, which: &[u32], rules: &Rules) -> Self {
        let by_subject = rules.counting().subjects;
        let member = |i: u32| if by_subject { rows.subject(i as usize) } else { u64::from(i) };
        let mut members: Vec<u64> = which.iter().map(|&i| member(i)).collect();
        members.sort_unstable();
        members.dedup();
        let facets = rules.facets().iter().map(|facet| {
            let mut pairs: Vec<(Code, u64)> =
                which.iter().map(|&i| (facet.code(rows, i as usize), member(i))).collect();
            pairs.sort_unstable();
            pairs.dedup();
            let chunks = pairs.chunk_by(|a, b| a.0 == b.0);
            chunks.map(|chunk| (chunk[0].0, chunk.len() as u32)).unzip()
        });
        Self { size: members.len() as u32, facets: facets.collect() }
    }

    pub(super) fn histograms(&self) -> Vec<Histogram<'_>> {
        self.facets.iter().map(|(codes, counts)| Histogram { codes, counts }).collect()
    }

    pub(super) fn class<'a>(&self, histograms: &'a [Histogram<'a>]) -> Class<'a> {
        Class { size: self.size, facets: histograms }
    }
}
