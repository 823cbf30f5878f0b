//! The sentences about what a policy does not protect. The letters in brackets are those of `THREAT_MODEL.md`.

use crate::config::Config;
use crate::model::policy::{Criterion, RecodingKind};
use crate::search::choose::Levels;

/// What is not protected under this configuration.
pub(super) fn limits(config: &Config) -> Vec<String> {
    let policy = &config.policy;
    let mut said = Vec::new();
    let mut say = |applies: bool, sentence: &str| {
        if applies {
            said.push(sentence.to_owned());
        }
    };
    let sensitive = !policy.schema.sensitive.is_empty();
    for (field, slot) in policy.schema.sensitive.iter().enumerate() {
        say(
            !policy.criteria.iter().any(|criterion| protects(criterion, field)),
            &format!(
                "No criterion protects `{}`: if everybody in a class has the same value, it is known of each of them (T8). Add \
                 l-diversity or t-closeness.",
                policy.schema.name(*slot)
            ),
        );
    }
    say(
        policy.schema.subject.is_none(),
        "Without a `subject`, one person with many records can fill a class alone (T1).",
    );
    say(
        policy.recoding == RecodingKind::Local,
        "A reader who knows the method and the hierarchies can exclude some values of a label; at least k people stay in each class (T31). \
         `search`, `anonymize --report` and the console measure how often.",
    );
    let crosses =
        policy.recoding == RecodingKind::Local || matches!(config.choice.levels, Levels::Free | Levels::Sticky);
    say(
        crosses,
        "Somebody who is in several releases may be singled out by putting them side by side, because their levels can cross (T2).",
    );
    say(
        sensitive && policy.sequential.is_none(),
        "The sensitive values of somebody who returns can be intersected over releases, because the policy has no `sequential` (T3).",
    );
    say(
        !policy.schema.keep.is_empty() || sensitive,
        "Sensitive and kept values are published as they are: a reader who knows a rare value of a person finds the row (T29).",
    );
    say(
        policy.quasi.iter().any(|quasi| quasi.render.is_statistic()),
        "A reader who knows everybody of a group but one can sometimes work out the last value from a statistic (T24).",
    );
    say(true, "Which levels a release has depends on the data and so tells a little about it (T7).");
    say(
        true,
        "Totals tell how many records a window had: a reader who knows all people of a window but one can count (T9).",
    );
    say(
        true,
        "Knowledge beyond the generalized fields, and what only differential privacy promises. k-anonymity and its relatives limit what a \
         reader can single out; they do not make data harmless.",
    );
    say(true, "The machine that runs the service, and everybody who may read or write its input.");
    said
}

/// True if the criterion is about a sensitive field.
fn protects(criterion: &Criterion, field: usize) -> bool {
    match criterion {
        Criterion::KAnonymity(_) | Criterion::MinSecurity(_) => false,
        Criterion::LDiversity { field: own, .. }
        | Criterion::TCloseness { field: own, .. }
        | Criterion::PSensitive { field: own, .. }
        | Criterion::AlphaK { field: own, .. } => *own == field,
        Criterion::Lkc { fields, .. } => fields.contains(&field),
        // Who knows more sees smaller classes, which it does not count.
        Criterion::Over { .. } => false,
        // Its sentences say what must stay unknown.
        Criterion::Confidential(_) => true,
    }
}
