//! Sentences about people that must stay unproven (Wang, Liao, Hsu 2007), and what each record says about them.
//!
//! A [`Profile`] is all that the criterion needs of a record: which sentences are true of it, and which are confidential
//! for it. There are few different ones, so a profile is counted inside each class like any other code, and the rollup
//! of a coarser class is the union of the finer classes' profiles.
//! A record without a value in a field that a sentence speaks of leaves the sentence open (Kleene's logic), and so falsifies
//! nothing: what may be true counts as true, and a person who may mind counts as minding.
//! Deliberately absent: quasi-identifiers. Sentences speak of fields that are published as they are, so that a reader who holds
//! the output can check it.

use std::borrow::Cow;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::domain::Code;
use super::record::{counted_text, counts_or_has};

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

/// A statement about one record.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Formula {
    /// The field has one of these values, compared as they are counted ([`counted_text`]): 2 and "2" are one value. An array has
    /// each of its elements. Open if there is no value.
    In(Field, Vec<String>),
    /// It is not so.
    Not(Box<Formula>),
    /// All hold.
    All(Vec<Formula>),
    /// At least one holds.
    Any(Vec<Formula>),
}

impl Formula {
    /// True or false of the record whose fields `text` reads, as they are counted; `None` where a missing value leaves it open.
    pub fn truth<'t>(&self, text: &impl Fn(Field) -> Cow<'t, str>) -> Option<bool> {
        match self {
            Self::In(field, values) => {
                let text = text(*field);
                (!text.is_empty()).then(|| values.iter().any(|value| counts_or_has(&text, value)))
            }
            Self::Not(formula) => formula.truth(text).map(|truth| !truth),
            Self::All(formulas) => decided(formulas, false, text),
            Self::Any(formulas) => decided(formulas, true, text),
        }
    }

    /// The same with values as they are counted.
    fn counted(&self) -> Self {
        let all = |formulas: &[Self]| formulas.iter().map(Self::counted).collect();
        match self {
            Self::In(field, values) => Self::In(*field, values.iter().map(|v| counted_text(v).into_owned()).collect()),
            Self::Not(formula) => Self::Not(Box::new(formula.counted())),
            Self::All(formulas) => Self::All(all(formulas)),
            Self::Any(formulas) => Self::Any(all(formulas)),
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

/// One formula of this truth decides; without one, an open formula leaves all open.
fn decided<'t>(formulas: &[Formula], truth: bool, text: &impl Fn(Field) -> Cow<'t, str>) -> Option<bool> {
    let mut all = Some(!truth);
    for formula in formulas {
        match formula.truth(text) {
            Some(found) if found == truth => return Some(truth),
            Some(_) => {}
            None => all = None,
        }
    }
    all
}

/// A sentence that must not follow from a release about anybody for whom it is confidential.
#[derive(Debug, Clone, PartialEq)]
pub struct Sentence {
    /// Its name in reports.
    pub name: String,
    /// The statement.
    pub says: Formula,
    /// For which records it is confidential; for all if there is no condition.
    pub when: Option<Formula>,
    /// How bad it is if it becomes known, relative to the other sentences of the same record; positive.
    pub damage: f64,
    /// How likely it is in the population; without it, how often it holds in the release. In (0, 1).
    pub prior: Option<f64>,
}

/// The truth of each sentence for one record: bit i is about sentence i.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Profile {
    /// The sentences that it does not falsify.
    pub holds: u64,
    /// The sentences that are confidential for it, or may be.
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
        let counted = |sentence: &Sentence| Sentence {
            says: sentence.says.counted(),
            when: sentence.when.as_ref().map(Formula::counted),
            ..sentence.clone()
        };
        let sentences: Arc<[Sentence]> = sentences.into_iter().take(MAX_SENTENCES).map(counted).collect();
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

    /// The code of the profile of a record with these sensitive codes; `text` reads a field as it is counted.
    pub fn code<'t>(&mut self, sensitive: &[Code], text: impl Fn(Field) -> Cow<'t, str>) -> Code {
        if self.sentences.is_empty() {
            return 0;
        }
        if !self.reads_kept
            && let Some(&code) = self.by_codes.get(sensitive)
        {
            return code;
        }
        let not_false = |formula: &Formula| formula.truth(&text) != Some(false);
        let mut profile = Profile::default();
        for (i, sentence) in self.sentences.iter().enumerate() {
            profile.holds |= u64::from(not_false(&sentence.says)) << i;
            profile.confidential |= u64::from(sentence.when.as_ref().is_none_or(not_false)) << i;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn health(values: &[&str]) -> Formula {
        Formula::In(Field::Sensitive(0), values.iter().map(|v| (*v).to_owned()).collect())
    }

    #[test]
    fn formulas_are_evaluated_as_they_read() {
        let two = |_: Field| Cow::Borrowed("2");
        let truth = |formula: Formula| formula.truth(&two);
        assert_eq!(truth(health(&["1", "2"])), Some(true));
        assert_eq!(truth(Formula::Not(Box::new(health(&["2"])))), Some(false));
        assert_eq!(truth(Formula::Any(vec![health(&["1"]), health(&["2"])])), Some(true));
        assert_eq!(truth(Formula::All(vec![health(&["1"]), health(&["2"])])), Some(false));
        assert_eq!((truth(Formula::All(Vec::new())), truth(Formula::Any(Vec::new()))), (Some(true), Some(false)));
    }

    #[test]
    fn a_set_has_what_is_in_it() {
        let set = |_: Field| Cow::Borrowed(r#"["gout","hiv"]"#);
        assert_eq!(health(&["hiv"]).truth(&set), Some(true));
        assert_eq!(health(&["flu"]).truth(&set), Some(false));
        assert_eq!(Formula::Not(Box::new(health(&["hiv"]))).truth(&set), Some(false));
    }

    #[test]
    fn no_value_leaves_open_what_others_do_not_decide() {
        let text = |field: Field| Cow::Borrowed(if field == Field::Kept(0) { "1" } else { "" });
        let (open, known) = (|| health(&["2"]), |value: &str| Formula::In(Field::Kept(0), vec![value.into()]));
        assert_eq!(open().truth(&text), None);
        assert_eq!(Formula::Not(Box::new(open())).truth(&text), None);
        assert_eq!(Formula::All(vec![open(), known("1")]).truth(&text), None);
        assert_eq!(Formula::All(vec![open(), known("2")]).truth(&text), Some(false));
        assert_eq!(Formula::Any(vec![open(), known("2")]).truth(&text), None);
        assert_eq!(Formula::Any(vec![open(), known("1")]).truth(&text), Some(true));
    }

    #[test]
    fn profiles_are_numbered_once() {
        let sentence =
            |says: Formula, when: Option<Formula>| Sentence { name: "s".into(), says, when, damage: 1.0, prior: None };
        let sentences = [sentence(health(&["B", "2.0"]), None), sentence(health(&["A"]), Some(health(&["A"])))];
        let mut profiler = Profiler::new(&sentences);
        let texts = ["c", "a", "2", "b", ""];
        let codes: Vec<Code> = (0..5).map(|code| profiler.code(&[code as Code], |_| texts[code].into())).collect();
        assert_eq!(codes, [0, 1, 2, 2, 3]);
        let profiles = profiler.profiles();
        assert_eq!(profiles[0], Profile { holds: 0b00, confidential: 0b01 });
        assert_eq!(profiles[1], Profile { holds: 0b10, confidential: 0b11 });
        assert_eq!(profiles[2], Profile { holds: 0b01, confidential: 0b01 });
        assert_eq!(profiles[3], Profile { holds: 0b11, confidential: 0b11 });
    }
}
