//! `render`: how each quasi-identifier is written, and which wishes make no sense.

use crate::config::file::At;
use crate::config::raw::{RawCriterion, RawPolicy, RawQuasi, RawRender};
use crate::model::hierarchy::Measure;
use crate::model::policy::{QuasiIdentifier, Render};

/// The rendering of a quasi-identifier: its own wish, or the policy's as far as its values allow it.
pub(super) fn choose(own: Option<Render>, policy: RawRender, measure: Measure) -> Render {
    match (own, policy, measure) {
        (Some(own), ..) => own,
        (None, RawRender::Interval, Measure::Number | Measure::Date) => Render::Interval,
        (None, RawRender::Microaggregate, Measure::Number) => Render::Mean,
        (None, RawRender::Microaggregate, Measure::Date | Measure::Code) => Render::Median,
        (None, ..) => Render::Label,
    }
}

/// Refuses the wish of one quasi-identifier if its values do not allow it, or if it would never show.
pub(super) fn check_own(raw: &RawQuasi, at: At<'_>, quasi: &QuasiIdentifier) {
    if raw.render.is_none() {
        return;
    }
    let (name, shown, at) = (at.key("name").show(&raw.name), quasi.render.as_str(), at.key("render"));
    let (is, instead) = match quasi.hierarchy.measure() {
        Measure::Number => ("numbers", "`mean`, `median`, `mode`, `interval`"),
        Measure::Date => ("dates", "`median`, `mode`, `interval`"),
        Measure::Code => ("codes", "`median`, `mode`"),
        Measure::Category => ("names", "`mode`"),
    };
    if quasi.render != Render::Label && !instead.contains(&format!("`{shown}`")) {
        at.refuse(format!(
            "`render: {shown}` of {name} has no meaning, its values are {is}: write {instead} or `label`"
        ));
    } else if quasi.max_level <= quasi.hierarchy.height() && !shows(quasi) {
        at.refuse(format!(
            "`render: {shown}` of {name} never shows: it needs a level above `min_level` and below the top; write `label`"
        ));
    }
}

/// Refuses a rendering of the whole policy that changes nothing, and statistics without a floor on people. `quasi` are all
/// quasi-identifiers of `raw`.
pub(super) fn check(raw: &RawPolicy, at: At<'_>, quasi: &[QuasiIdentifier]) {
    let mut left = quasi.iter().zip(&raw.quasi_identifiers).filter(|(_, raw)| raw.render.is_none());
    let needs = match raw.render {
        RawRender::Label => None,
        RawRender::Interval => Some(("interval", "numbers or dates")),
        RawRender::Microaggregate => Some(("microaggregate", "numbers, dates or codes")),
    };
    if let Some((shown, needs)) = needs.filter(|_| !quasi.is_empty())
        && !left.any(|(quasi, _)| quasi.render != Render::Label && shows(quasi))
    {
        at.key("render").refuse(format!(
            "`render: {shown}` changes nothing: no quasi-identifier without a `render` of its own has {needs} and a level above \
             `min_level` and below the top; write `render: label`"
        ));
    }
    let counts_people = |criterion: &RawCriterion| match criterion {
        RawCriterion::KAnonymity(raw) => raw.of_classes().is_some_and(|k| k > 1),
        RawCriterion::AlphaK(raw) => raw.over.is_none() && raw.k.0 > 1,
        RawCriterion::Lkc(raw) => raw.k.0 > 1,
        _ => false,
    };
    if let Some(statistic) = statistic(raw, at)
        && !raw.privacy.iter().any(counts_people)
        && !at.lost("privacy")
    {
        statistic.refuse(
            "a statistic must not show the value of fewer than k people, and no criterion has a k above 1: add \
                       { k-anonymity: 2 } or more, or write `render: label`",
        );
    }
}

/// Where a statistic is asked for first.
pub(in crate::config) fn statistic<'a>(raw: &RawPolicy, at: At<'a>) -> Option<At<'a>> {
    if matches!(raw.render, RawRender::Microaggregate) {
        return Some(at.key("render"));
    }
    let is_statistic = |quasi: &RawQuasi| quasi.render.is_some_and(Render::is_statistic);
    let first = raw.quasi_identifiers.iter().position(is_statistic)?;
    Some(at.key("quasi_identifiers").index(first).key("render"))
}

/// True if some permitted level is written otherwise than by its label.
fn shows(quasi: &QuasiIdentifier) -> bool {
    let finest = match quasi.render {
        Render::Label => return true,
        Render::Interval => quasi.min_level.max(1),
        // No finer than a label of `min_level`, so there is nothing to say at that level itself.
        Render::Mean | Render::Median | Render::Mode => quasi.min_level.saturating_add(1),
    };
    finest <= quasi.max_level && finest < quasi.hierarchy.height()
}
