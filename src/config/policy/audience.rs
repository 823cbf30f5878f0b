//! The `audiences` section: who sees which levels and fields. Where their tables go is checked with the sink.

use std::sync::Arc;

use super::super::file::{At, nearest};
use super::super::raw::{RawAudience, RawPolicy};
use super::fingerprint::Fingerprint;
use crate::model::policy::{Loss, QuasiIdentifier, RecodingKind};
use crate::model::release::audience::Audience;

/// Builds the audiences, and adds their priorities to those of the quasi-identifiers.
pub(super) fn build(
    (raw, at): (&[RawAudience], At<'_>),
    policy: (&RawPolicy, RecodingKind),
    quasi: &mut [QuasiIdentifier],
    hash: &mut Fingerprint,
) -> Vec<Audience> {
    for (i, audience) in raw.iter().enumerate() {
        let at = at.index(i).key("name");
        if audience.name.trim().is_empty() {
            at.refuse("an audience without a name: write one, such as `research`");
        } else if raw[..i].iter().any(|other| other.name == audience.name) {
            at.refuse(format!("two audiences are called {}: name them differently", at.show(&audience.name)));
        }
    }
    let audiences: Vec<Audience> =
        raw.iter().enumerate().map(|(i, raw)| audience(raw, policy, quasi, at.index(i))).collect();
    for audience in &audiences {
        // A planned release has tables too, which another configuration would make otherwise.
        hash.part(format!("{audience:?}").as_bytes());
    }
    audiences
}

fn audience(
    raw: &RawAudience,
    (policy, recoding): (&RawPolicy, RecodingKind),
    quasi: &mut [QuasiIdentifier],
    at: At<'_>,
) -> Audience {
    let mut finest: Vec<u8> = quasi.iter().map(|quasi| quasi.min_level).collect();
    for (name, &level) in &raw.min_levels {
        let at = at.key("min_levels").key(name);
        let Some(i) = find(name, quasi, at) else { continue };
        let height = quasi[i].hierarchy.height();
        if level > height {
            at.refuse(format!("{} has the levels 0 to {height}: write one of them", at.show(name)));
        }
        if quasi[i].render.is_statistic() && level > quasi[i].min_level {
            // No function of a published row: it would be computed from records again, over other people.
            at.refuse(format!(
                "{} shows a statistic, and a reader with the statistics of two levels can subtract them: write `render: label` or \
                 `interval`, or leave this level out",
                at.show(name)
            ));
        }
        finest[i] = finest[i].max(level.min(height));
    }
    for (name, &priority) in &raw.priorities {
        let Some(i) = find(name, quasi, at.key("priorities").key(name)) else { continue };
        quasi[i].priority = quasi[i].priority.saturating_add(priority);
    }
    for (i, name) in raw.drop.iter().enumerate() {
        let at = at.key("drop").index(i);
        let known = || policy.sensitive.iter().map(|s| s.name.as_str()).chain(policy.keep.iter().map(|k| k.name()));
        if !known().any(|field| field == name) {
            let near = nearest(name, known()).map_or(String::new(), |near| format!("; did you mean `{near}`?"));
            at.refuse(format!(
                "{} is neither a sensitive nor a kept field, so no audience sees it as it is{near}",
                at.show(name)
            ));
        }
    }
    Audience {
        name: raw.name.as_str().into(),
        finest,
        one_level: one_level(raw, (policy, recoding), quasi, at),
        dropped: raw.drop.iter().map(|name| Arc::from(name.as_str())).collect(),
    }
}

/// The loss that chooses one level per column, if the audience asks for that. Everything else would not be a view of the release.
fn one_level(
    raw: &RawAudience,
    (policy, recoding): (&RawPolicy, RecodingKind),
    quasi: &[QuasiIdentifier],
    at: At<'_>,
) -> Option<Loss> {
    let Some(own) = raw.recoding else {
        if raw.loss.is_some() {
            at.key("loss").refuse(
                "an audience's table is made of the rows of the release, so a loss of its own has nothing to choose: add \
                 `recoding: full-domain` for one level per column of a `local` or `subtree` release, or write `min_levels` or `priorities`",
            );
        }
        return None;
    };
    let place = at.key("recoding");
    if own != RecodingKind::FullDomain {
        let way = match recoding {
            RecodingKind::FullDomain => format!(
                "write `policy.recoding: {}`, and for each audience that counts by columns `recoding: full-domain` with `min_levels` and a \
                 `loss` of its own",
                own.as_str()
            ),
            same if same == own => format!("the release is `{}` already: leave it out", own.as_str()),
            _ => "leave it out for the levels of the release".into(),
        };
        place.refuse(format!(
            "an audience's table cannot be generalized anew, because two generalizations of the same people can be put together; {way}"
        ));
    } else if recoding == RecodingKind::FullDomain {
        place.refuse("the release has one level per column already: leave it out, or write `policy.recoding: local`");
    } else if quasi.iter().any(|quasi| quasi.render.is_statistic()) {
        place.refuse(
            "it has levels that the release does not have, and a reader with the statistics of two levels can subtract them: write \
             `render: label` or `interval`, or leave this out",
        );
    }
    let follows_from_rows = |loss: &Loss| matches!(loss, Loss::Glm | Loss::Precision | Loss::Dm | Loss::Aecs);
    if let Some(loss) = raw.loss.filter(|loss| !follows_from_rows(loss)) {
        at.key("loss").refuse(format!(
            "`{}` is not counted from published rows alone, and an audience's levels may follow from nothing else: write `glm`, \
             `precision`, `dm` or `aecs`",
            loss.as_str()
        ));
    }
    raw.loss.or(Some(policy.loss).filter(follows_from_rows)).or(Some(Loss::Glm))
}

/// The quasi-identifier of this name.
fn find(name: &str, quasi: &[QuasiIdentifier], at: At<'_>) -> Option<usize> {
    let found = quasi.iter().position(|quasi| &*quasi.name == name);
    if found.is_none() {
        let near = nearest(name, quasi.iter().map(|quasi| &*quasi.name));
        let near = near.map_or(String::new(), |near| format!(": did you mean `{near}`?"));
        at.refuse(format!("{} is not a quasi-identifier{near}", at.show(name)));
    }
    found
}
