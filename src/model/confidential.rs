//! Sentences about people that must stay unproven (Wang, Liao, Hsu 2007), and what each record says about them.
//!
//! A [`Profile`] is all that the criterion needs of a record: which sentences are true of it, and which are confidential
//! for it. There are few different ones, so a profile is counted inside each class like any other code, and the rollup
//! of a coarser class is the union of the finer classes' profiles.
//! Deliberately absent: quasi-identifiers. Sentences speak of fields that are published as they are, so that whoever holds
//! the output can check it.

use std::borrow::Cow;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::domain::Code;

/// How many sentences a policy may have: one bit each in a word. More would need longer profiles, fewer would refuse
/// policies that people write.
pub const MAX_SENTENCES: usize = 64;

/// A field that a sentence speaks of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Field {
    /// A sensitive field, by its index in the schema's sensitive fields.
    Sensitive(usize),
    /// A kept field, by its index in the schema's kept fields.
    Kept(usize),
}

/// What can be said of one record.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Formula {
    /// The field has one of these values, compared as canonical text: 2 and "2" are one value. Null is none of them.
    In(Field, Vec<String>),
    /// It is not so.
    Not(Box<Formula>),
    /// All hold.
    All(Vec<Formula>),
    /// At least one holds.
    Any(Vec<Formula>),
}

impl Formula {
    /// True if it holds for the record whose fields `text` reads; null reads as `None`.
    pub fn holds<'t>(&self, text: &impl Fn(Field) -> Option<Cow<'t, str>>) -> bool {
        match self {
            Self::In(field, values) => text(*field).is_some_and(|text| values.iter().any(|value| *value == text)),
            Self::Not(formula) => !formula.holds(text),
            Self::All(formulas) => formulas.iter().all(|f| f.holds(text)),
            Self::Any(formulas) => formulas.iter().any(|f| f.holds(text)),
        }
    }

    /// Every field it speaks of.
    pub fn fields(&self) -> Vec<Field> {
        match self {
            Self::In(field, _) => vec![*field],
            Self::Not(formula) => formula.fields(),
            Self::All(formulas) | Self::Any(formulas) => formulas.iter().flat_map(Self::fields).collect(),
        }
    }
}

/// A sentence that must not follow from a release about anybody for whom it is confidential.
#[derive(Debug, Clone, PartialEq)]
pub struct Sentence {
    /// What it is called in reports.
    pub name: String,
    /// What it says.
    pub says: Formula,
    /// For which records it is confidential; for all if there is no condition.
    pub when: Option<Formula>,
    /// How bad it is if it becomes known, relative to the other sentences of the same record; positive.
    pub damage: f64,
}

/// What one record says: bit i is about sentence i.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Profile {
    /// The sentences that are true of it.
    pub holds: u64,
    /// The sentences that are confidential for it.
    pub confidential: u64,
}

/// Numbers the profiles of records in order of first appearance. Codes are never reused, so they stay valid from
/// window to window.
#[derive(Debug, Clone)]
pub struct Profiler {
    sentences: Arc<[Sentence]>,
    /// Kept fields have no codes to remember an answer by.
    reads_kept: bool,
    by_codes: FxHashMap<SmallVec<[Code; 4]>, Code>,
    index: FxHashMap<Profile, Code>,
    profiles: Arc<Vec<Profile>>,
}

impl Profiler {
    /// A profiler for these sentences, of which only the first [`MAX_SENTENCES`] are read.
    pub fn new<'s>(sentences: impl IntoIterator<Item = &'s Sentence>) -> Self {
        let sentences: Arc<[Sentence]> = sentences.into_iter().take(MAX_SENTENCES).cloned().collect();
        let formulas = sentences.iter().flat_map(|s| std::iter::once(&s.says).chain(&s.when));
        let reads_kept = formulas.flat_map(Formula::fields).any(|field| matches!(field, Field::Kept(_)));
        Self {
            sentences,
            reads_kept,
            by_codes: FxHashMap::default(),
            index: FxHashMap::default(),
            profiles: Arc::default(),
        }
    }

    /// True if there is nothing to say.
    pub fn is_empty(&self) -> bool {
        self.sentences.is_empty()
    }

    /// The code of the profile of a record with these sensitive codes; `json` reads a field as it is published.
    pub fn code<'t>(&mut self, sensitive: &[Code], json: impl Fn(Field) -> Option<&'t str>) -> Code {
        if self.sentences.is_empty() {
            return 0;
        }
        if !self.reads_kept
            && let Some(&code) = self.by_codes.get(sensitive)
        {
            return code;
        }
        let text = |field: Field| json(field).and_then(plain_text);
        let mut profile = Profile::default();
        for (i, sentence) in self.sentences.iter().enumerate() {
            profile.holds |= u64::from(sentence.says.holds(&text)) << i;
            profile.confidential |= u64::from(sentence.when.as_ref().is_none_or(|when| when.holds(&text))) << i;
        }
        let code = *self.index.entry(profile).or_insert_with(|| {
            let profiles = Arc::make_mut(&mut self.profiles);
            profiles.push(profile);
            profiles.len() as Code - 1
        });
        if !self.reads_kept {
            self.by_codes.insert(sensitive.into(), code);
        }
        code
    }

    /// The profiles by code, as they are now.
    pub fn profiles(&self) -> Arc<Vec<Profile>> {
        Arc::clone(&self.profiles)
    }
}

/// The canonical text of a scalar written as JSON; `None` for null.
pub fn plain_text(json: &str) -> Option<Cow<'_, str>> {
    match json.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        Some(inner) if !inner.contains('\\') => Some(Cow::Borrowed(inner)),
        Some(_) => serde_json::from_str::<String>(json).ok().map(Cow::Owned),
        None if json == "null" => None,
        None => Some(Cow::Borrowed(json)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn health(values: &[&str]) -> Formula {
        Formula::In(Field::Sensitive(0), values.iter().map(|v| (*v).to_owned()).collect())
    }

    #[test]
    fn formulas_are_evaluated_as_they_read() {
        let two = |_: Field| Some(Cow::Borrowed("2"));
        assert!(health(&["1", "2"]).holds(&two));
        assert!(!Formula::Not(Box::new(health(&["2"]))).holds(&two));
        assert!(Formula::Any(vec![health(&["1"]), health(&["2"])]).holds(&two));
        assert!(!Formula::All(vec![health(&["1"]), health(&["2"])]).holds(&two));
        assert!(Formula::All(Vec::new()).holds(&two) && !Formula::Any(Vec::new()).holds(&two));
        assert!(!health(&["2"]).holds(&|_: Field| None));
    }

    #[test]
    fn numbers_and_text_are_one_value_and_escapes_are_read() {
        assert_eq!(plain_text("2").as_deref(), Some("2"));
        assert_eq!(plain_text("\"2\"").as_deref(), Some("2"));
        assert_eq!(plain_text("\"a\\\"b\"").as_deref(), Some("a\"b"));
        assert_eq!(plain_text("null"), None);
    }

    #[test]
    fn profiles_are_numbered_once() {
        let sentence = |says: Formula, when: Option<Formula>| Sentence { name: "s".into(), says, when, damage: 1.0 };
        let sentences = [sentence(health(&["2"]), None), sentence(health(&["1"]), Some(health(&["1"])))];
        let mut profiler = Profiler::new(&sentences);
        let labels = ["0", "1", "\"2\"", "2"];
        let codes: Vec<Code> = (0..4).map(|code| profiler.code(&[code as Code], |_| Some(labels[code]))).collect();
        assert_eq!(codes, [0, 1, 2, 2]);
        let profiles = profiler.profiles();
        assert_eq!(profiles[0], Profile { holds: 0b00, confidential: 0b01 });
        assert_eq!(profiles[1], Profile { holds: 0b10, confidential: 0b11 });
        assert_eq!(profiles[2], Profile { holds: 0b01, confidential: 0b01 });
    }
}
