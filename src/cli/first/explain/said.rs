//! The sentences about what a policy does.

use std::time::Duration;

use crate::config::{Config, SinkConfig, SourceConfig};
use crate::model::policy::{
    Criterion, Diversity, Fallback, Policy, QuasiIdentifier, RecodingKind, Render, SuppressionAction,
};
use crate::model::release::audience::Audience;
use crate::search::choose::Levels;
use crate::window::WindowRules;

/// Who counts as a person.
pub(super) fn counted(policy: &Policy) -> Vec<String> {
    vec![match policy.schema.subject {
        Some(slot) => format!(
            "People are counted by `{}`: ten records of one person count as one. The field itself is never published.",
            policy.schema.name(slot)
        ),
        None => "Every record counts as a person of its own, because the policy names no `subject`. That is only right if nobody \
                 has two records in a window."
            .into(),
    }]
}

/// What happens to each field.
pub(super) fn published(policy: &Policy) -> Vec<String> {
    let mut said = vec![match policy.recoding {
        RecodingKind::FullDomain => "In each release a generalized field has one level for all its rows.",
        RecodingKind::Subtree => "In each release a value is shown in one way only, but other values of its field may be finer or coarser.",
        RecodingKind::Local => {
            "Each record has levels of its own: people who are like many others stay fine, rare ones are coarsened. A column mixes levels."
        }
    }
    .to_owned()];
    said.extend(policy.quasi.iter().map(generalized));
    for slot in &policy.schema.sensitive {
        said.push(format!("`{}` is published as it is; it is sensitive.", policy.schema.name(*slot)));
    }
    for (name, reviewed) in policy.schema.kept() {
        said.push(match reviewed {
            true => format!("`{name}` is published as it is, whatever it holds: somebody has reviewed it."),
            false => format!(
                "`{name}` is published as it is, unless more than half of its values in a release belong to one person alone, or it \
                 holds objects or lists: then it is left empty."
            ),
        });
    }
    said.push(
        "Every other field is dropped, and so are identifiers, message keys, headers and timestamps. The order of the rows says nothing \
         about the order of the records."
            .into(),
    );
    said
}

fn generalized(quasi: &QuasiIdentifier) -> String {
    let mut levels: Vec<String> = Vec::new();
    for level in quasi.min_level..=quasi.max_level {
        let words = quasi.hierarchy.words(level).into_owned();
        if levels.last() != Some(&words) {
            levels.push(words);
        }
    }
    let hidden = quasi.max_level == quasi.hierarchy.height();
    let mut said = match levels.as_slice() {
        [only] => format!("`{}` is always published {only}", quasi.name),
        _ => format!("`{}` is published as finely as the criteria allow: {}", quasi.name, levels.join(", or ")),
    };
    if quasi.min_level > 0 {
        said.push_str("; never exactly");
    }
    if !hidden {
        said.push_str("; no criterion hides it altogether: rather records are left out, or nothing is published");
    }
    if let Some(example) = quasi.hierarchy.example() {
        let shown: Vec<String> = (quasi.min_level..=quasi.max_level)
            .filter_map(|level| quasi.hierarchy.label(&example, level).map(|label| label.into_owned()))
            .collect();
        said.push_str(&format!(". For example {example}: {}", shown.join(", ")));
    }
    if quasi.render.is_statistic() {
        said.push_str(&format!(". A group of people shows its {} instead, in rounded steps", quasi.render.as_str()));
    } else if quasi.render == Render::Interval {
        said.push_str(". It is written as an interval");
    }
    said + "."
}

/// The criteria and what they mean.
pub(super) fn criteria(policy: &Policy) -> Vec<String> {
    let about = "A class is a group of rows that agree in all generalized fields. Before anything is sent, the rows themselves are counted once \
                 more; if a criterion fails, nothing is sent.";
    [about.to_owned()].into_iter().chain(policy.criteria.iter().map(|criterion| meaning(policy, criterion))).collect()
}

/// What one criterion means.
fn meaning(policy: &Policy, criterion: &Criterion) -> String {
    let people = if policy.schema.subject.is_some() { "people" } else { "records" };
    let field = |field: &usize| policy.schema.sensitive.get(*field).map_or("?", |slot| &**policy.schema.name(*slot));
    match criterion {
        Criterion::KAnonymity(k) => format!(
            "Every class holds at least {k} {people} (k-anonymity): a reader who knows the generalized fields of a person finds at least {k} \
             candidates.",
            k = k.0
        ),
        Criterion::LDiversity { field: f, l, variant } => {
            format!("Every class {} of `{}` (l-diversity).", diverse(*l, variant), field(f))
        }
        Criterion::TCloseness { field: f, t, .. } => format!(
            "In every class `{}` is distributed nearly as in the whole release, at most {t} apart of 1 (t-closeness): membership in a \
             class tells little about it.",
            field(f)
        ),
        Criterion::PSensitive { field: f, p } => {
            format!("Every class has at least {p} different values of `{}` (p-sensitive).", field(f))
        }
        Criterion::AlphaK { field: f, alpha, k } => format!(
            "Every class holds at least {} {people}, and no value of `{}` belongs to more than {} of them.",
            k.0,
            field(f),
            percent(*alpha)
        ),
        Criterion::Lkc { l, k, c, fields } => format!(
            "A reader who knows at most {l} of the generalized fields of a person finds at least {} {people}, and guesses {} right with a confidence \
             of at most {} (LKC-privacy).",
            k.0,
            fields.iter().map(|f| format!("`{}`", field(f))).collect::<Vec<_>>().join(", "),
            percent(*c)
        ),
        Criterion::Confidential(sentences) => format!(
            "{} confidential sentence{} of the policy cannot be concluded about anybody: in each class somebody refutes it.",
            sentences.len(),
            if sentences.len() == 1 { "" } else { "s" }
        ),
        Criterion::MinSecurity(share) => {
            format!(
                "On average over everybody, the confidential sentences stay uncertain to at least {}.",
                percent(*share)
            )
        }
        Criterion::Over { known, criterion } => {
            let names: Vec<String> = known
                .iter()
                .filter_map(|quasi| policy.quasi.get(*quasi))
                .map(|quasi| format!("`{}`", quasi.name))
                .collect();
            format!("For a reader who knows only {} of a person: {}", names.join(", "), meaning(policy, criterion))
        }
    }
}

fn diverse(l: f64, variant: &Diversity) -> String {
    match variant {
        Diversity::Distinct => format!("has at least {l} different values"),
        Diversity::Entropy => format!("is at least as mixed as {l} values that are equally frequent"),
        Diversity::Recursive { c } => {
            format!("has no value that is more than {c} times as frequent as those from the {l}-th on together")
        }
    }
}

/// What may be left out, and what happens to it.
pub(super) fn left_out(policy: &Policy) -> Vec<String> {
    let limit = policy.suppression.0;
    let mut said = vec![match (limit > 0.0, policy.action) {
        (false, _) => "No record may be left out: rather everything is coarsened.".to_owned(),
        (true, SuppressionAction::Drop) => format!(
            "At most {} of the records of a window may be left out because they are too rare; they are never published.",
            percent(limit)
        ),
        (true, SuppressionAction::Hold { max_hold }) => format!(
            "At most {} of the records of a window may be left out because they are too rare; they wait for a later release, at most {}, \
             and are then left out for good.",
            percent(limit),
            time(max_hold)
        ),
    }];
    said.push("If a window cannot be published within that limit, nothing of it is.".into());
    for (fallback, what) in [
        (policy.unknown_value, "a value that its hierarchy does not have"),
        (policy.missing_value, "no value at all in a generalized field"),
        (policy.null_value, "null in a generalized field"),
    ] {
        said.push(match fallback {
            Fallback::Reject => format!("A record with {what} is rejected, and told to operators by its position."),
            Fallback::Suppress => format!("A record with {what} is left out and counts towards that limit."),
            Fallback::Top => format!("A record with {what} is published with that field hidden."),
        });
    }
    said
}

/// Windows, what is compared between releases, and where everything goes.
pub(super) fn releases(config: &Config) -> Vec<String> {
    let mut said = Vec::new();
    said.push(match &config.windows {
        WindowRules::Tumbling(rules) => format!(
            "A release is made of every {} records, or after {}; each record is published at most once.",
            rules.max_records,
            time(rules.max_age)
        ),
        WindowRules::Sliding(rules) if rules.changes => {
            "Every slide publishes which rows came and which left, and whole windows only to begin with. What readers put together from \
             it still satisfies the criteria, also side by side: records that would stand out wait or leave with enough others."
                .into()
        }
        WindowRules::Sliding(_) => {
            "Every slide publishes the whole window again. All snapshots put side by side still satisfy the criteria: \
                                    records that would stand out between them wait or leave with enough others."
                .into()
        }
    });
    said.push(match &config.choice.levels {
        Levels::Free => "The levels may change freely from release to release.".into(),
        Levels::Sticky => "The levels stay from release to release while they are nearly the best.".into(),
        Levels::Monotone => "From release to release the levels only become coarser.".into(),
        Levels::Fixed(_) => "The levels never change.".to_owned(),
    });
    if let Some(sequential) = &config.policy.sequential {
        let slot = config.policy.schema.sensitive.get(sequential.field);
        said.push(format!(
            "Somebody who is in several of the last {} releases keeps at least {} possible values of `{}`.",
            sequential.releases,
            sequential.candidates,
            slot.map_or("?", |slot| &**config.policy.schema.name(*slot))
        ));
        said.push(
            "A person who would keep fewer is left out, and so is everybody whose class is then too small. The limit on records left out \
             does not count them."
                .into(),
        );
    }
    said.push(ends(config));
    said.extend(config.audiences.iter().map(audience));
    said
}

/// Where records come from and releases go.
fn ends(config: &Config) -> String {
    let from = match &config.source {
        SourceConfig::File { path, .. } => format!("the file {}", path.display()),
        SourceConfig::Stdio { .. } => "standard input".into(),
        SourceConfig::Generator { .. } => "a synthetic population".into(),
        SourceConfig::Kafka(kafka) => {
            let names: Vec<&str> = kafka.topics.iter().map(|rule| rule.name.as_str()).collect();
            format!("the topics {}", names.join(", "))
        }
    };
    let to = match &config.sink {
        SinkConfig::File { path, .. } => format!("the file {}", path.display()),
        SinkConfig::Stdio { .. } => "standard output".into(),
        SinkConfig::Kafka(kafka) => format!("the topic {}, exactly once", kafka.topic),
    };
    format!("Records come from {from}; releases go to {to}.")
}

/// What one audience gets.
fn audience(audience: &Audience) -> String {
    let dropped = match audience.dropped.as_slice() {
        [] => String::new(),
        fields => format!(", without {}", fields.iter().map(|f| format!("`{f}`")).collect::<Vec<_>>().join(", ")),
    };
    format!(
        "The audience `{}` gets a table of its own of every release, as coarse or coarser{dropped}; it is counted like the release.",
        audience.name
    )
}

fn percent(share: f64) -> String {
    format!("{} %", (share * 1000.0).round() / 10.0)
}

fn time(duration: Duration) -> String {
    match duration.as_secs() {
        0 => format!("{} ms", duration.as_millis()),
        seconds if seconds % 3600 == 0 => format!("{} h", seconds / 3600),
        seconds if seconds % 60 == 0 => format!("{} min", seconds / 60),
        seconds => format!("{seconds} s"),
    }
}
