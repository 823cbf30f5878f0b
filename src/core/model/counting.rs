//! The counts inside each class, named in one place so that frequency sets, criteria, losses and the gate agree.

use std::sync::Arc;

use super::batch::Rows;
use super::confidential::Profile;
use super::domain::{Code, DomainView};
use super::policy::{Criterion, Diversity, Policy};

/// The code of every field's missing, null or blank value. Nobody learns anything from it, so it adds no diversity and is no
/// candidate.
pub const NO_VALUE: Code = 0;

/// A column that a criterion or a loss wants counted inside each class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Facet {
    /// The class label. Only losses look at it, so records are counted and not subjects.
    Label,
    /// A sensitive field, by its index in the schema's sensitive fields.
    Sensitive(usize),
    /// Which sentences are true of a record and which are confidential for it.
    Profile,
}

impl Facet {
    /// The facet's code in row i.
    #[inline]
    pub fn code(self, rows: &Rows, i: usize) -> Code {
        match self {
            Self::Label => rows.label(i),
            Self::Sensitive(field) => rows.sensitive(i)[field],
            Self::Profile => rows.profile(i),
        }
    }

    /// Everything that the policy wants counted, each facet once. A configured label is always counted, so that `cm` can
    /// be reported beside any other loss.
    pub fn of(policy: &Policy) -> Vec<Self> {
        let mut facets = Vec::new();
        if policy.schema.label.is_some() {
            facets.push(Self::Label);
        }
        for facet in policy.criteria.iter().flat_map(Self::wanted) {
            if !facets.contains(&facet) {
                facets.push(facet);
            }
        }
        facets
    }

    /// Those of which `policy` asks how often each code occurs, and not only which codes there are.
    pub fn counted(policy: &Policy) -> Vec<Self> {
        policy.criteria.iter().filter(|criterion| !Self::is_presence_enough(criterion)).flat_map(Self::wanted).collect()
    }

    fn is_presence_enough(criterion: &Criterion) -> bool {
        match criterion {
            Criterion::LDiversity { variant, .. } => *variant == Diversity::Distinct,
            Criterion::PSensitive { .. } => true,
            Criterion::Over { criterion, .. } => Self::is_presence_enough(criterion),
            _ => false,
        }
    }

    fn wanted(criterion: &Criterion) -> Vec<Self> {
        match criterion {
            Criterion::KAnonymity(_) => Vec::new(),
            Criterion::LDiversity { field, .. }
            | Criterion::TCloseness { field, .. }
            | Criterion::PSensitive { field, .. }
            | Criterion::AlphaK { field, .. } => vec![Self::Sensitive(*field)],
            Criterion::Lkc { fields, .. } => fields.iter().map(|f| Self::Sensitive(*f)).collect(),
            Criterion::Confidential(_) | Criterion::MinSecurity(_) => vec![Self::Profile],
            Criterion::Over { criterion, .. } => Self::wanted(criterion),
        }
    }
}

/// The counts to keep besides the classes themselves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counting {
    /// Count distinct subjects rather than records.
    pub subjects: bool,
    /// Columns counted inside each class.
    pub facets: Vec<Facet>,
    /// Those of the columns in which distinct subjects are counted where a subject is configured. In the others it is records: less work,
    /// and enough where it only matters which codes there are, or where a loss is of records.
    pub of_subjects: Vec<Facet>,
}

impl Counting {
    /// True if subjects are counted in this column.
    pub fn counts_subjects_in(&self, facet: Facet) -> bool {
        self.subjects && self.of_subjects.contains(&facet)
    }
}

/// The meaning of the codes at the moment: the dictionaries of a window or of a batch.
#[derive(Debug, Clone, Copy)]
pub struct Values<'a> {
    /// One per sensitive field; labels are [`counted_text`](super::record::counted_text).
    pub sensitive: &'a [Arc<DomainView>],
    /// One per sensitive field: every text that was written, as JSON.
    pub written: &'a [Arc<DomainView>],
    /// By profile code.
    pub profiles: &'a Arc<Vec<Profile>>,
    /// The share of records of which each confidential sentence was true so far; empty if that is not known.
    pub shares: &'a [f64],
}

/// How often each code of a facet occurs in one class; `counts[i]` distinct subjects (or records) have `codes[i]`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Histogram<'a> {
    /// The codes that occur, ascending.
    pub codes: &'a [Code],
    /// Their counts, all positive.
    pub counts: &'a [u32],
}

impl<'a> Histogram<'a> {
    /// The histogram of a sensitive field without [`NO_VALUE`].
    pub fn values(self) -> Self {
        let none = usize::from(self.codes.first() == Some(&NO_VALUE));
        Self { codes: &self.codes[none..], counts: &self.counts[none..] }
    }

    /// Codes with their counts.
    pub fn iter(self) -> impl Iterator<Item = (Code, u32)> + 'a {
        self.codes.iter().copied().zip(self.counts.iter().copied())
    }

    /// All counts together.
    pub fn total(self) -> u64 {
        self.counts.iter().map(|&c| u64::from(c)).sum()
    }

    /// The count of the most frequent code.
    pub fn most(self) -> u32 {
        self.counts.iter().copied().max().unwrap_or(0)
    }
}
