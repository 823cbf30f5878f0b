//! The policy as plain, already validated data: the conditions for every release, and what it may cost.

use std::fmt;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::Duration;

use super::confidential::Sentence;
use super::hierarchy::Hierarchy;
use super::lattice::{Lattice, Level, Node};
use super::recoding::Recoding;
use super::schedule::Schedule;
use super::schema::Schema;
use crate::model::words;

/// The smallest allowed class size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct K(pub u32);

/// The share of a window's records that may be suppressed or held, whatever the reason, in [0, 1].
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct SuppressionLimit(pub f64);

impl SuppressionLimit {
    /// How many of `records` may be left out.
    pub fn of(self, records: u64) -> u64 {
        // The epsilon keeps 5 % of 100 at 5, whatever the float thinks of 0.05.
        (self.0 * records as f64 + 1e-9).floor() as u64
    }

    /// How many of `records` may be left out of a window from which `gone` more were left out before; `None` if those alone are
    /// too many.
    pub fn beside(self, gone: u64, records: u64) -> Option<u64> {
        self.of(records + gone).checked_sub(gone)
    }
}

/// The treatment of records that the release cannot protect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SuppressionAction {
    /// They are suppressed at once.
    Drop,
    /// They wait for a later release, at most this long, and are then suppressed.
    Hold {
        /// The longest wait.
        max_hold: Duration,
    },
}

words! {
    /// The treatment of a value that has no place in its hierarchy.
    #[derive(Default)]
    pub enum Fallback {
        /// The record is rejected, by position.
        #[default]
        Reject = "reject",
        /// The record is suppressed.
        Suppress = "suppress",
        /// The cell is published as the hierarchy's top, at every level; other values do not join it below the top.
        Top = "top",
    }
}

/// One quasi-identifier and what the user wishes for it.
#[derive(Clone)]
pub struct QuasiIdentifier {
    /// The field's name.
    pub name: Arc<str>,
    /// How its values generalize.
    pub hierarchy: Arc<Hierarchy>,
    /// How much a loss in this attribute counts; positive, 1 by default.
    pub weight: f64,
    /// The finest level that may be published.
    pub min_level: Level,
    /// The coarsest level that may be published.
    pub max_level: Level,
    /// How much the user wants it left fine (`score`, `top-down`); a positive integer, 1 by default.
    pub priority: u32,
    /// How its generalized values are written.
    pub render: Render,
}

impl fmt::Debug for QuasiIdentifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (levels {}..={})", self.name, self.min_level, self.max_level)
    }
}

/// How the diversity of a class's sensitive values is measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Diversity {
    /// At least l different values.
    Distinct,
    /// Entropy of at least log l.
    Entropy,
    /// Recursive (c, l): the most frequent value is rarer than c times the tail from the l-th on.
    Recursive {
        /// The factor.
        c: f64,
    },
}

/// How far apart two sensitive values are, for `t-closeness`.
#[derive(Debug, Clone)]
pub enum Distance {
    /// Any two values are equally far apart.
    Equal,
    /// By rank: numbers as they compare, other values as listed.
    Ordered {
        /// The values from least to greatest, as canonical text; numbers need no list.
        order: Option<Vec<String>>,
    },
    /// By the level of their nearest common ancestor.
    Hierarchical(Arc<Hierarchy>),
}

impl PartialEq for Distance {
    fn eq(&self, other: &Self) -> bool {
        let hash = |hierarchy: &Hierarchy| rustc_hash::FxBuildHasher.hash_one(hierarchy);
        match (self, other) {
            (Self::Equal, Self::Equal) => true,
            (Self::Ordered { order: a }, Self::Ordered { order: b }) => a == b,
            (Self::Hierarchical(a), Self::Hierarchical(b)) => Arc::ptr_eq(a, b) || hash(a) == hash(b),
            _ => false,
        }
    }
}

/// One privacy criterion. `field` is an index into [`Schema::sensitive`].
#[derive(Debug, Clone, PartialEq)]
pub enum Criterion {
    /// Every class has at least k distinct subjects (records, without a subject field).
    KAnonymity(K),
    /// Every class is diverse in a sensitive field.
    LDiversity {
        /// Which sensitive field.
        field: usize,
        /// The parameter l.
        l: f64,
        /// The variant.
        variant: Diversity,
    },
    /// In every class a sensitive field is distributed nearly as in the whole release.
    TCloseness {
        /// Which sensitive field.
        field: usize,
        /// The greatest earth mover's distance.
        t: f64,
        /// How far apart two values are.
        distance: Distance,
    },
    /// Every class has at least p different values of a sensitive field.
    PSensitive {
        /// Which sensitive field.
        field: usize,
        /// The parameter p.
        p: u32,
    },
    /// Every class has at least k people, of whom no sensitive value has more than a share.
    AlphaK {
        /// Which sensitive field.
        field: usize,
        /// The greatest share.
        alpha: f64,
        /// The smallest class.
        k: K,
    },
    /// A reader who knows at most l quasi-identifiers of a person finds at least k people, and no sensitive value with more
    /// confidence than c.
    Lkc {
        /// How many quasi-identifiers are known.
        l: usize,
        /// The smallest class.
        k: K,
        /// The greatest confidence.
        c: f64,
        /// Which sensitive fields.
        fields: Vec<usize>,
    },
    /// No confidential sentence follows about anybody: in their class somebody falsifies it.
    Confidential(Vec<Sentence>),
    /// The mean security over everybody reaches this, by the sentences of all `confidential` criteria.
    MinSecurity(f64),
    /// A criterion about classes, asked of the classes that somebody sees who knows only some quasi-identifiers.
    Over {
        /// Which quasi-identifiers, ascending; not all of them.
        known: Vec<usize>,
        /// `KAnonymity`, `LDiversity`, `PSensitive` or `AlphaK`.
        criterion: Box<Criterion>,
    },
}

impl Criterion {
    /// Its confidential sentences, if it is about any.
    pub fn sentences(&self) -> &[Sentence] {
        match self {
            Self::Confidential(sentences) => sentences,
            _ => &[],
        }
    }
}

words! {
    /// The loss that a search minimises. All are normalised to [0, 1] except `aecs`.
    #[derive(Default)]
    pub enum Loss {
        /// Generalized loss metric: the share of leaves that a cell no longer distinguishes.
        #[default]
        Glm = "glm",
        /// Discernibility: how many records a record cannot be told from.
        Dm = "dm",
        /// Sweeney's precision, as a loss: level over height.
        Precision = "precision",
        /// Average equivalence class size over k.
        Aecs = "aecs",
        /// Classification: the share of records suppressed or not of their class's majority label. Needs `label`.
        Cm = "cm",
        /// Kiyomoto and Tanaka's score, as a loss: the values that are no longer told apart, by `priority`.
        Score = "score",
        /// Quality of granulation, as a loss: the entropy of each attribute's declared domain that its partition gives up. The
        /// domain is the leaves that a hierarchy lists, the numbers from `min` to `max`, the dates that losses count, or all codes
        /// of the alphabet; never only the values met so far. `trivial` declares no domain: the value keeps everything, `*` nothing.
        Ql = "ql",
        /// Non-uniform entropy: the share of each attribute's entropy in the window that is given up.
        Entropy = "entropy",
    }
}

impl Loss {
    /// True if it lies between nothing and everything.
    pub fn is_share(self) -> bool {
        self != Self::Aecs
    }
}

words! {
    /// How the generalized values of one quasi-identifier are written. `mean`, `median` and `mode` are statistics of a block: of
    /// everybody published with the same generalized value of that quasi-identifier, whatever their other values. Each person
    /// counts once. A statistic is never the value of fewer than k people, and never finer than a label of `min_level`; values at
    /// level 0 and at the top keep their label, and so does a block without such a statistic. Not with `sliding`; needs a
    /// criterion with k.
    #[derive(Default)]
    pub enum Render {
        /// The hierarchy's label.
        #[default]
        Label = "label",
        /// The smallest interval that the value allows; for numbers and dates.
        Interval = "interval",
        /// The mean; for numbers. Rounded to a step of 1, 2 or 5 times a power of ten: at least a fifth of the interval's width,
        /// more in a block of fewer than five people. Half a unit beside the numbers of the hierarchy, such as 34.5 for ages, so
        /// that it is nobody's value.
        Mean = "mean",
        /// The median as the finest label that at least k people of the block share: a day, else the month, else the year, as far
        /// as the hierarchy has them; for numbers, dates and codes.
        Median = "median",
        /// The most frequent value as the finest label that at least k people of the block share.
        Mode = "mode",
    }
}

impl Render {
    /// True if the text depends on the values of the people, not on the hierarchy alone.
    pub fn is_statistic(self) -> bool {
        matches!(self, Self::Mean | Self::Median | Self::Mode)
    }
}

/// A condition for a subject that is in several of the last releases. There is a subject then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sequential {
    /// How many releases count, the next one included; at least 2.
    pub releases: u32,
    /// How many candidate values must be left in the intersection over them.
    pub candidates: u32,
    /// Which sensitive field's values.
    pub field: usize,
    /// The most subjects that are remembered, each once per release; those beyond are left out.
    pub max_subjects: usize,
}

impl Sequential {
    /// How many subjects are remembered unless the user says otherwise. Larger: more memory, about 32 bytes for each and
    /// release. Smaller: people are left out for want of room.
    pub const MAX_SUBJECTS: usize = 1 << 20;
    /// The bytes of a subject that is remembered, about.
    pub const SUBJECT_BYTES: usize = 32;
}

words! {
    /// The recoding of releases.
    #[derive(Default)]
    pub enum RecodingKind {
        /// One level per quasi-identifier for the whole release: simple to read, and it loses the most.
        #[default]
        FullDomain = "full-domain",
        /// One cut through each hierarchy: each value at a level of its own.
        Subtree = "subtree",
        /// Each record at levels of its own: dense regions stay fine, sparse ones are coarsened. Loses the least.
        Local = "local",
    }
}

/// The whole policy. Valid by construction: built by `config` only.
#[derive(Debug, Clone)]
pub struct Policy {
    /// Which fields are read, in which role.
    pub schema: Schema,
    /// In the order of `schema.quasi`.
    pub quasi: Vec<QuasiIdentifier>,
    /// All must hold in every class of a release.
    pub criteria: Vec<Criterion>,
    /// The share of records that may be left out of a release.
    pub suppression: SuppressionLimit,
    /// Their treatment.
    pub action: SuppressionAction,
    /// The recoding of releases.
    pub recoding: RecodingKind,
    /// The loss that the search minimises.
    pub loss: Loss,
    /// A quasi value outside its hierarchy.
    pub unknown_value: Fallback,
    /// A quasi field that is absent.
    pub missing_value: Fallback,
    /// A quasi field that is null.
    pub null_value: Fallback,
    /// The condition over several releases, if there is one.
    pub sequential: Option<Sequential>,
    /// A hash of everything above, hierarchies included: which policy made this release.
    pub fingerprint: String,
}

impl Policy {
    /// The smallest class size that any criterion asks for; 1 if none does.
    pub fn k(&self) -> K {
        let of = |c: &Criterion| match c {
            Criterion::KAnonymity(k) | Criterion::AlphaK { k, .. } => Some(*k),
            _ => None,
        };
        self.criteria.iter().filter_map(of).max().unwrap_or(K(1))
    }

    /// The fewest people that any published value of a single quasi-identifier has; 1 if no criterion counts people.
    pub fn block_k(&self) -> K {
        let of = |c: &Criterion| if let Criterion::Lkc { k, .. } = c { *k } else { K(1) };
        self.criteria.iter().map(of).fold(self.k(), K::max)
    }

    /// Every confidential sentence, in the order of their bits in a profile.
    pub fn sentences(&self) -> impl Iterator<Item = &Sentence> {
        self.criteria.iter().flat_map(Criterion::sentences)
    }

    /// The losses that mean something under this policy, for reports: `cm` needs a label.
    pub fn losses(&self) -> impl Iterator<Item = Loss> {
        let labelled = self.schema.label.is_some();
        Loss::ALL.into_iter().filter(move |loss| *loss != Loss::Cm || labelled)
    }

    /// The recoding that the levels of a plan name; `None` if this policy does not permit it. Of cuts it is the least node above
    /// them, for they are not known without the rows ([`OccurringLeaves`](super::recoding::OccurringLeaves)).
    pub fn recoding_at(&self, levels: &[Level]) -> Option<Recoding> {
        let (width, lattice) = (self.quasi.len(), self.lattice());
        match self.recoding {
            RecodingKind::Local => Schedule::from_plan(levels, &lattice).map(|(schedule, _)| Recoding::Local(schedule)),
            RecodingKind::FullDomain | RecodingKind::Subtree => {
                let cuts = self.recoding == RecodingKind::Subtree;
                let node = Node::new(levels.iter().take(width).copied());
                let complete = levels.len() == width || cuts && levels.len() > width;
                (complete && lattice.contains(&node)).then_some(Recoding::Node(node))
            }
        }
    }

    /// True if some hierarchy has alternatives.
    pub fn branches(&self) -> bool {
        self.quasi.iter().any(|quasi| quasi.hierarchy.alternatives().is_some())
    }

    /// True if every class of one node lies in a class of the other. Where no hierarchy has alternatives, that is the order of levels.
    pub fn refines(&self, fine: &Node, coarse: &Node) -> bool {
        let mut levels = fine.levels().iter().zip(coarse.levels()).zip(&self.quasi);
        levels.all(|((&fine, &coarse), quasi)| quasi.hierarchy.refines(fine, coarse))
    }

    /// A least node that both refine: the join, where no hierarchy has alternatives.
    pub fn join(&self, a: &Node, b: &Node) -> Node {
        let least = |((&a, &b), quasi): ((&Level, &Level), &QuasiIdentifier)| {
            let above = |level: &Level| quasi.hierarchy.refines(a, *level) && quasi.hierarchy.refines(b, *level);
            (a.max(b)..=quasi.hierarchy.height()).find(above).unwrap_or(quasi.hierarchy.height())
        };
        Node::new(a.levels().iter().zip(b.levels()).zip(&self.quasi).map(least))
    }

    /// The lattice of all permitted full-domain generalizations. Where a hierarchy has alternatives, the order of nodes is
    /// [`Self::refines`], and not that of the lattice.
    pub fn lattice(&self) -> Lattice {
        Lattice::new(
            Node::new(self.quasi.iter().map(|q| q.min_level)),
            Node::new(self.quasi.iter().map(|q| q.max_level)),
        )
    }
}
