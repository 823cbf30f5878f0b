//! The `privacy` list: checks the sense of each criterion and builds it.

use std::sync::Arc;

use crate::config::file::scalar::RawShare;
use crate::config::file::{At, nearest};
use crate::config::raw::{
    RawAlphaK, RawCondition, RawConfidential, RawCriterion, RawDistance, RawK, RawKAnonymity, RawLDiversity, RawLkc,
    RawPolicy, RawSentence, RawSequential, RawTCloseness, RawVariant,
};
use crate::model::confidential::{Field, Formula, MAX_SENTENCES, Sentence};
use crate::model::hierarchy::Hierarchy;
use crate::model::policy::{Criterion, Distance, Diversity, K, Sequential};
use crate::model::record::counted_text;
use crate::privacy::{MAX_KNOWLEDGE, knowledge_count};

/// The parts of the policy that the criteria depend on.
pub(super) struct Context<'a> {
    /// The whole policy, and where it stands.
    pub(super) policy: &'a RawPolicy,
    pub(super) at: At<'a>,
    /// One per sensitive field.
    pub(super) hierarchies: &'a [Option<Arc<Hierarchy>>],
    /// The most records in a window, and how to show it, if there are windows.
    pub(super) max_records: Option<&'a (u64, String)>,
}

/// Builds the criteria that can be built, and checks that they make sense together.
pub(super) fn build(context: &Context<'_>) -> Vec<Criterion> {
    let at = context.at.key("privacy");
    let raw = &context.policy.privacy;
    let criteria: Vec<Criterion> =
        raw.iter().enumerate().filter_map(|(i, raw)| context.criterion(raw, at.index(i))).collect();
    let sentences: usize = criteria.iter().map(|c| c.sentences().len()).sum();
    if sentences > MAX_SENTENCES {
        at.refuse(format!("{sentences} confidential sentences are too many: write at most {MAX_SENTENCES}"));
    }
    let floor = |c: &RawCriterion| match c {
        RawCriterion::KAnonymity(raw) => raw.of_classes().is_some(),
        RawCriterion::AlphaK(raw) => raw.over.is_none(),
        RawCriterion::Lkc(_) => true,
        _ => false,
    };
    if !raw.is_empty() && !raw.iter().any(floor) && !context.at.lost("privacy") {
        at.warn(
            "no criterion asks for a number of people: a class may be one person with several records; add \
                       `{ k-anonymity: 5 }`",
        );
    }
    let confidential = raw.iter().any(|c| matches!(c, RawCriterion::Confidential(_)));
    for (i, criterion) in raw.iter().enumerate() {
        if matches!(criterion, RawCriterion::MinSecurity(_)) && !confidential && !context.at.lost("privacy") {
            at.index(i)
                .key("min-security")
                .refuse("`min-security` is measured by confidential sentences: add a `confidential` criterion");
        }
    }
    criteria
}

/// Builds `sequential`; `None` if it cannot be.
pub(super) fn sequential(raw: &RawSequential, context: &Context<'_>) -> Option<Sequential> {
    let (policy, root) = (context.policy, context.at);
    let at = root.key("sequential");
    if policy.subject.is_none() && !root.lost("subject") {
        at.refuse("`sequential` is about people who return: name the field that tells them apart under `subject`");
    }
    let field = match (&raw.field, policy.sensitive.as_slice()) {
        (Some(name), _) => context.field(name, at.key("field")),
        (None, [_]) => Some(0),
        (None, []) if root.lost("sensitive") => None,
        (None, []) => {
            at.refuse("`sequential` is about a sensitive field: name one under `sensitive`");
            None
        }
        (None, _) => {
            at.refuse("`sequential` needs to know which sensitive field: add `field`");
            None
        }
    };
    let most = raw.max_subjects.map_or(Sequential::MAX_SUBJECTS, |most| usize::try_from(most).unwrap_or(usize::MAX));
    Some(Sequential { releases: raw.releases, candidates: raw.candidates, field: field?, max_subjects: most })
}

impl Context<'_> {
    fn criterion(&self, raw: &RawCriterion, at: At<'_>) -> Option<Criterion> {
        match raw {
            RawCriterion::KAnonymity(raw) => self.k_anonymity(raw, at.key("k-anonymity")),
            RawCriterion::LDiversity(raw) => {
                let at = at.key("l-diversity");
                self.over(self.l_diversity(raw, at), raw.over.as_deref(), at)
            }
            RawCriterion::TCloseness(raw) => self.t_closeness(raw, at.key("t-closeness")),
            RawCriterion::PSensitive(raw) => {
                let at = at.key("p-sensitive");
                let field = self.field(&raw.field, at.key("field"))?;
                self.over(Some(Criterion::PSensitive { field, p: raw.p }), raw.over.as_deref(), at)
            }
            RawCriterion::AlphaK(raw) => {
                let at = at.key("alpha-k");
                self.over(self.alpha_k(raw, at), raw.over.as_deref(), at)
            }
            RawCriterion::Lkc(raw) => self.lkc(raw, at.key("lkc")),
            RawCriterion::Confidential(raw) => self.confidential(raw, at.key("confidential")),
            RawCriterion::MinSecurity(least) => Some(Criterion::MinSecurity(least.0)),
        }
    }

    fn k_anonymity(&self, raw: &RawKAnonymity, at: At<'_>) -> Option<Criterion> {
        match raw {
            RawKAnonymity::K(k) => Some(Criterion::KAnonymity(self.k(*k, at))),
            RawKAnonymity::Over(raw) => {
                let criterion = Criterion::KAnonymity(self.k(raw.k, at.key("k")));
                self.over(Some(criterion), raw.over.as_deref(), at)
            }
        }
    }

    /// The criterion over these quasi-identifiers; as it is if they are all.
    fn over(&self, criterion: Option<Criterion>, names: Option<&[String]>, at: At<'_>) -> Option<Criterion> {
        let Some(names) = names else { return criterion };
        let at = at.key("over");
        if names.is_empty() {
            at.refuse("`over` names no quasi-identifier: name at least one, or leave it out for all");
            return None;
        }
        let quasi = || self.policy.quasi_identifiers.iter().map(|q| q.name.as_str());
        let mut known = Vec::new();
        for (i, name) in names.iter().enumerate() {
            let at = at.index(i);
            match quasi().position(|q| q == name) {
                Some(index) if known.contains(&index) => {
                    at.refuse(format!("{} is in `over` twice: keep one", at.show(name)));
                }
                Some(index) => known.push(index),
                None if self.at.lost("quasi_identifiers") => return None,
                None => {
                    let near = nearest(name, quasi()).filter(|_| !self.at.key("quasi_identifiers").is_from_outside());
                    let remedy = near.map_or_else(|| "add it there".into(), |near| format!("did you mean `{near}`?"));
                    at.refuse(format!("{} is not listed under `quasi_identifiers`: {remedy}", at.show(name)));
                    return None;
                }
            }
        }
        known.sort_unstable();
        let all = known.len() == self.policy.quasi_identifiers.len();
        criterion.map(|own| if all { own } else { Criterion::Over { known, criterion: Box::new(own) } })
    }

    fn k(&self, k: RawK, at: At<'_>) -> K {
        if let Some((_, most)) = self.max_records.filter(|(most, _)| u64::from(k.0) > *most) {
            let never = format!("k = {} can never be reached: a window closes at {most} records", at.show(k.0));
            at.refuse(format!("{never}; write a smaller k, or a larger `max_records`"));
        }
        if k.0 == 1 {
            at.warn("k = 1 protects nobody: every class has one person at least; write 2 or more");
        }
        K(k.0)
    }

    /// The index of a sensitive field.
    fn field(&self, name: &str, at: At<'_>) -> Option<usize> {
        let sensitive = || self.policy.sensitive.iter().map(|s| s.name.as_str());
        let field = sensitive().position(|s| s == name);
        if field.is_none() && !self.at.lost("sensitive") {
            let remedy = match nearest(name, sensitive()) {
                Some(near) if !self.at.key("sensitive").is_from_outside() => format!("did you mean `{near}`?"),
                _ => "add it there".into(),
            };
            at.refuse(format!("the field {} is not listed under `sensitive`: {remedy}", at.show(name)));
        }
        field
    }

    fn l_diversity(&self, raw: &RawLDiversity, at: At<'_>) -> Option<Criterion> {
        let field = self.field(&raw.field, at.key("field"));
        if raw.variant != RawVariant::Entropy && raw.l.fract() != 0.0 {
            let at = at.key("l");
            let l = at.show(raw.l);
            at.refuse(format!("l = {l} is not whole: write a whole number, or use `variant: entropy`"));
        }
        let variant = match (raw.variant, raw.c) {
            (RawVariant::Distinct, None) => Diversity::Distinct,
            (RawVariant::Entropy, None) => Diversity::Entropy,
            (RawVariant::Recursive, Some(c)) => Diversity::Recursive { c },
            (RawVariant::Recursive, None) => {
                if !at.lost("c") {
                    at.key("variant").refuse("recursive l-diversity needs the factor `c`: add it, such as c: 3");
                }
                return None;
            }
            (_, Some(_)) => {
                at.only_with("c", "variant: recursive");
                return None;
            }
        };
        Some(Criterion::LDiversity { field: field?, l: raw.l, variant })
    }

    fn t_closeness(&self, raw: &RawTCloseness, at: At<'_>) -> Option<Criterion> {
        let field = self.field(&raw.field, at.key("field"))?;
        below_one(raw.t, "t", "every class is that close", at);
        if raw.order.is_some() && raw.distance != RawDistance::Ordered {
            at.only_with("order", "distance: ordered");
        }
        let distance = match raw.distance {
            RawDistance::Equal => Distance::Equal,
            RawDistance::Ordered => {
                let order: Option<Vec<String>> =
                    raw.order.as_ref().map(|order| order.iter().map(|v| v.0.clone()).collect());
                let repeated =
                    order.iter().flatten().enumerate().find(|(i, v)| {
                        raw.order.iter().flatten().take(*i).any(|w| counted_text(&w.0) == counted_text(v))
                    });
                if let Some((i, value)) = repeated {
                    let at = at.key("order").index(i);
                    at.refuse(format!("{} is in `order` twice: keep one", at.show(value)));
                }
                Distance::Ordered { order }
            }
            RawDistance::Hierarchical => match self.hierarchies.get(field).cloned().flatten() {
                Some(hierarchy) => Distance::Hierarchical(hierarchy),
                None => {
                    if !self.at.key("sensitive").index(field).key("hierarchy").is_present() {
                        let name = at.key("field").show(&raw.field);
                        at.key("distance").refuse(format!(
                            "the hierarchical distance needs a hierarchy: add `hierarchy` to {name} under `sensitive`"
                        ));
                    }
                    return None;
                }
            },
        };
        Some(Criterion::TCloseness { field, t: raw.t.0, distance })
    }

    fn alpha_k(&self, raw: &RawAlphaK, at: At<'_>) -> Option<Criterion> {
        let field = self.field(&raw.field, at.key("field"))?;
        let k = self.k(raw.k, at.key("k"));
        below_one(raw.alpha, "alpha", "every class meets it; write `k-anonymity`", at);
        possible(raw.alpha, "alpha", at);
        Some(Criterion::AlphaK { field, alpha: raw.alpha.0, k })
    }

    fn lkc(&self, raw: &RawLkc, at: At<'_>) -> Option<Criterion> {
        let k = self.k(raw.k, at.key("k"));
        possible(raw.c, "c", at);
        let attributes = self.policy.quasi_identifiers.len();
        if raw.l as usize > attributes && !self.at.lost("quasi_identifiers") {
            let at = at.key("l");
            at.refuse(format!(
                "l = {} is more than there are quasi-identifiers: write {attributes} or less",
                at.show(raw.l)
            ));
        }
        let counted = knowledge_count(attributes, raw.l as usize, self.policy.subject.is_some());
        if counted > MAX_KNOWLEDGE {
            let at = at.key("l");
            at.refuse(format!(
                "l = {} of {attributes} quasi-identifiers are {} sets of attributes that somebody may know, and at most \
                 {MAX_KNOWLEDGE} can be counted for every release: write a smaller l, or name fewer quasi-identifiers",
                at.show(raw.l),
                if counted == u128::MAX { "countless".into() } else { counted.to_string() },
            ));
        }
        let fields: Option<Vec<usize>> = match &raw.fields {
            Some(names) => {
                let at = at.key("fields");
                names.iter().enumerate().map(|(i, name)| self.field(name, at.index(i))).collect()
            }
            None => Some((0..self.policy.sensitive.len()).collect()),
        };
        let fields = fields?;
        if fields.is_empty() && raw.c.0 < 1.0 && !self.at.lost("sensitive") && !at.lost("fields") {
            at.key("c").refuse("there is no sensitive field to be confident about: list one, or write c: 1");
        }
        Some(Criterion::Lkc { l: raw.l as usize, k, c: raw.c.0, fields })
    }

    fn confidential(&self, raw: &RawConfidential, at: At<'_>) -> Option<Criterion> {
        let at = at.key("sentences");
        let sentence = |(i, raw): (usize, &RawSentence)| {
            let at = at.index(i);
            let own = RawCondition {
                field: raw.field.clone(),
                equals: raw.equals.clone(),
                values: raw.values.clone(),
                not: raw.not.clone(),
                all: raw.all.clone(),
                any: raw.any.clone(),
            };
            let says = self.formula(&own, false, at);
            let when = raw.when.as_ref().map(|when| self.formula(when, true, at.key("when")));
            if let Some(prior) = raw.prior.filter(|share| share.0 <= 0.0 || share.0 >= 1.0) {
                let at = at.key("prior");
                at.refuse(format!(
                    "prior = {} is certain, and nothing is learnt: write a share in between",
                    at.show(prior.0)
                ));
            }
            Some(Sentence {
                name: raw.name.clone().unwrap_or_else(|| (i + 1).to_string()),
                says: says?,
                when: match when {
                    Some(when) => Some(when?),
                    None => None,
                },
                damage: raw.damage.unwrap_or(1.0),
                prior: raw.prior.map(|share| share.0),
            })
        };
        let sentences: Vec<Option<Sentence>> = raw.sentences.iter().enumerate().map(sentence).collect();
        sentences.into_iter().collect::<Option<Vec<_>>>().map(Criterion::Confidential)
    }

    /// `private` fields count in conditions only: a sentence about them says nothing of what is published.
    fn formula(&self, raw: &RawCondition, private: bool, at: At<'_>) -> Option<Formula> {
        if at.lost_any() {
            return None;
        }
        let written = [raw.field.is_some(), raw.not.is_some(), raw.all.is_some(), raw.any.is_some()];
        if written.iter().filter(|w| **w).count() != 1 {
            at.refuse("a condition is one of `field`, `not`, `all` and `any`: write one of them");
            return None;
        }
        if raw.field.is_none() && (raw.equals.is_some() || raw.values.is_some()) {
            at.refuse("`equals` and `in` say something about a `field`: name it");
            return None;
        }
        let several = |key: &str, list: &[RawCondition]| {
            let at = at.key(key);
            if list.is_empty() {
                at.refuse(format!("`{key}` is empty: write at least one condition"));
            }
            let formulas: Vec<Option<Formula>> =
                list.iter().enumerate().map(|(i, raw)| self.formula(raw, private, at.index(i))).collect();
            formulas.into_iter().collect::<Option<Vec<_>>>().filter(|f| !f.is_empty())
        };
        match (&raw.all, &raw.any, &raw.not, &raw.field) {
            (Some(list), ..) => several("all", list).map(Formula::All),
            (_, Some(list), ..) => several("any", list).map(Formula::Any),
            (.., Some(not), _) => {
                self.formula(not, private, at.key("not")).map(|formula| Formula::Not(Box::new(formula)))
            }
            (.., Some(name)) => self.atom(name, raw, private, at),
            _ => None,
        }
    }

    fn atom(&self, name: &str, raw: &RawCondition, private: bool, at: At<'_>) -> Option<Formula> {
        let values = match (&raw.equals, &raw.values) {
            (Some(value), None) => vec![value.0.clone()],
            (None, Some(values)) if !values.is_empty() => values.iter().map(|v| v.0.clone()).collect(),
            _ => {
                at.refuse("a condition on a field needs either `equals` or a list `in`: write one of them");
                return None;
            }
        };
        if values.iter().any(|value| counted_text(value).is_empty()) {
            at.refuse("an empty value is no value, and no sentence is about it: write a value");
            return None;
        }
        let sensitive = self.policy.sensitive.iter().position(|s| s.name == name).map(Field::Sensitive);
        let kept = self.policy.keep.iter().position(|k| k.name() == name).map(Field::Kept);
        // Private fields follow the kept ones in a row.
        let own = |list: &[String]| {
            list.iter().position(|own| own == name).map(|at| Field::Kept(self.policy.keep.len() + at))
        };
        let field = sensitive.or(kept).or_else(|| own(&self.policy.private).filter(|_| private));
        if field.is_none() && !self.at.lost("sensitive") && !self.at.lost("keep") {
            let at = at.key("field");
            let name = at.show(name);
            at.refuse(format!(
                "the field {name} is neither `sensitive` nor in `keep`: only what is published as it is can be checked{}",
                if private { "; a condition may also name a field of `private`" } else { "" }
            ));
        }
        Some(Formula::In(field?, values))
    }
}

/// A figure of 1 asks for nothing.
fn below_one(share: RawShare, key: &str, because: &str, at: At<'_>) {
    if share.0 >= 1.0 {
        let at = at.key(key);
        at.refuse(format!("{key} = {} asks for nothing: {because}", at.show(share.0)));
    }
}

/// A share of 0 can never be met: every class has some value.
fn possible(share: RawShare, key: &str, at: At<'_>) {
    if share.0 <= 0.0 {
        let at = at.key(key);
        at.refuse(format!("{key} = {} can never be met: every class has some value", at.show(share.0)));
    }
}

/// The criterion in words of our own, for the fingerprint; hierarchies are hashed elsewhere.
pub(super) fn parts(criterion: &Criterion) -> Vec<String> {
    let texts = |name: &str, figures: &[&dyn ToString]| -> Vec<String> {
        std::iter::once(name.to_owned()).chain(figures.iter().map(|figure| figure.to_string())).collect()
    };
    match criterion {
        Criterion::KAnonymity(k) => texts("k-anonymity", &[&k.0]),
        Criterion::LDiversity { field, l, variant } => {
            let variant = match variant {
                Diversity::Distinct => "distinct".to_owned(),
                Diversity::Entropy => "entropy".to_owned(),
                Diversity::Recursive { c } => format!("recursive {c}"),
            };
            texts("l-diversity", &[field, l, &variant])
        }
        Criterion::TCloseness { field, t, distance } => {
            let (distance, order): (&str, &[String]) = match distance {
                Distance::Equal => ("equal", &[]),
                Distance::Ordered { order } => ("ordered", order.as_deref().unwrap_or_default()),
                Distance::Hierarchical(_) => ("hierarchical", &[]),
            };
            [texts("t-closeness", &[field, t, &distance, &order.len()]), order.to_vec()].concat()
        }
        Criterion::PSensitive { field, p } => texts("p-sensitive", &[field, p]),
        Criterion::AlphaK { field, alpha, k } => texts("alpha-k", &[field, alpha, &k.0]),
        Criterion::Lkc { l, k, c, fields } => {
            let fields: Vec<String> = fields.iter().map(ToString::to_string).collect();
            texts("lkc", &[l, &k.0, c, &fields.join(" ")])
        }
        Criterion::Confidential(sentences) => {
            let mut parts = texts("confidential", &[&sentences.len()]);
            for sentence in sentences {
                parts.push(sentence.damage.to_string());
                parts.extend(sentence.prior.map(|prior| format!("prior {prior}")));
                formula_parts(&sentence.says, &mut parts);
                parts.push(if sentence.when.is_some() { "when" } else { "always" }.to_owned());
                sentence.when.iter().for_each(|when| formula_parts(when, &mut parts));
            }
            parts
        }
        Criterion::MinSecurity(least) => texts("min-security", &[least]),
        Criterion::Over { known, criterion } => {
            let known: Vec<String> = known.iter().map(ToString::to_string).collect();
            [texts("over", &[&known.join(" ")]), self::parts(criterion)].concat()
        }
    }
}

fn formula_parts(formula: &Formula, parts: &mut Vec<String>) {
    let (word, inner): (String, &[Formula]) = match formula {
        Formula::Not(inner) => ("not".to_owned(), std::slice::from_ref(inner)),
        Formula::All(inner) => (format!("all {}", inner.len()), inner),
        Formula::Any(inner) => (format!("any {}", inner.len()), inner),
        Formula::In(Field::Sensitive(i), values) => (format!("sensitive {i} {}", values.len()), &[]),
        Formula::In(Field::Kept(i), values) => (format!("kept {i} {}", values.len()), &[]),
    };
    parts.push(word);
    if let Formula::In(_, values) = formula {
        parts.extend(values.iter().cloned());
    }
    inner.iter().for_each(|formula| formula_parts(formula, parts));
}
