//! `window`: checks its sense, and builds the rules by which windows close and the levels that releases may have.

use std::collections::BTreeMap;
use std::time::Duration;

use super::positive;
use crate::config::file::scalar::{RawExtent, RawSize};
use crate::config::file::{At, nearest, shown};
use crate::config::policy::{self, render};
use crate::config::raw::{
    RawAction, RawConfig, RawEventTime, RawLevels, RawPublish, RawSink, RawSliding, RawTumbling, RawWindow,
};
use crate::model::counting::Facet;
use crate::model::lattice::Node;
use crate::model::policy::{Policy, RecodingKind, Render};
use crate::model::release::row_levels::RowLevels;
use crate::privacy::Rules;
use crate::search::choose::Levels;
use crate::window::{CloseRules, DEFAULT_WARM_MEMORY, EventTime, SlideRules, WindowRules};

/// Larger: more memory per window. Smaller: fewer people to hide among, so more loss.
const DEFAULT_MAX_RECORDS: u64 = 50_000;
/// Longer: slow streams publish late. Shorter: windows of slow streams hold fewer people than k.
const DEFAULT_MAX_AGE: Duration = Duration::from_secs(30);
/// The age at which a window closes that only event time closes: as long as any duration of a configuration may be.
pub(in crate::config) const NEVER: Duration = Duration::from_secs(36_525 * 86_400);

/// The most records in a window.
pub(in crate::config) fn max_records(raw: &RawWindow) -> u64 {
    match &raw.sliding {
        Some(RawSliding { size: RawExtent::Records(size), .. }) => *size,
        Some(sliding) => sliding.max_records.unwrap_or(DEFAULT_MAX_RECORDS),
        None => raw.tumbling.max_records.unwrap_or(DEFAULT_MAX_RECORDS),
    }
}

/// The same, and how a message shows it; `None` if the file's own number is unusable.
pub(in crate::config) fn shown_max_records(raw: &RawWindow, root: At<'_>) -> Option<(u64, String)> {
    let tumbling = root.key("window").key("tumbling");
    let lost = root.lost("window") || root.key("window").lost("tumbling") || tumbling.lost("max_records");
    let most = max_records(raw);
    if raw.sliding.is_some() || root.key("window").lost("sliding") {
        return (!lost && raw.sliding.is_some()).then(|| (most, format!("`{most}`")));
    }
    (!lost).then(|| (most, tumbling.key("max_records").show(most)))
}

/// The field that holds the event time, if it is a field.
pub(in crate::config) fn event_time_field<'a>(raw: &'a RawWindow, at: At<'a>) -> Option<(&'a str, At<'a>)> {
    match &raw.tumbling.event_time {
        Some(RawEventTime::Field(name)) => Some((name, at.key("tumbling").key("event_time").key("field"))),
        _ => None,
    }
}

/// Builds the rules of the windows; `None` if they cannot be used. Of a sliding window, `warm_memory` bytes of frequency
/// sets stay from one search to the next.
pub(in crate::config) fn windows(raw: &RawWindow, warm_memory: Option<RawSize>, at: At<'_>) -> Option<WindowRules> {
    let most = max_records(raw);
    let tumbling = at.key("tumbling");
    let event_time = event_time(&raw.tumbling, tumbling);
    let max_age = positive(raw.tumbling.max_age, "max_age", tumbling);
    if let Some(sliding) = &raw.sliding {
        let warm_memory = warm_memory.map_or(DEFAULT_WARM_MEMORY, |size| records(size.0));
        return slide_rules(sliding, at, most, warm_memory).map(WindowRules::Sliding);
    }
    let default_age = if event_time.is_none() { DEFAULT_MAX_AGE } else { NEVER };
    let max_age = max_age.unwrap_or(default_age);
    Some(WindowRules::Tumbling(CloseRules { max_records: records(most), max_age, event_time }))
}

fn event_time(raw: &RawTumbling, at: At<'_>) -> Option<EventTime> {
    let size = positive(raw.size, "size", at);
    if raw.size.is_none() && !at.lost("size") {
        for key in ["event_time", "allowed_lateness"].into_iter().filter(|key| at.key(key).is_present()) {
            at.key(key).refuse(format!("`{key}` needs the length of event-time windows: add `size`, such as size: 1h"));
        }
    }
    Some(EventTime { size: size?, allowed_lateness: raw.allowed_lateness.map_or(Duration::ZERO, |d| d.0) })
}

fn records(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

/// How the levels may move. `fixed_levels` are checked against the usable part of the policy.
pub(in crate::config) fn levels(raw: &RawWindow, at: At<'_>, policy: &policy::BuiltPolicy) -> Levels {
    if raw.levels != RawLevels::Fixed && raw.fixed_levels.is_some() && !at.lost("levels") {
        at.only_with("fixed_levels", "levels: fixed");
    }
    match raw.levels {
        RawLevels::Free => Levels::Free,
        RawLevels::Sticky => Levels::Sticky,
        RawLevels::Monotone => Levels::Monotone,
        RawLevels::Fixed => Levels::Fixed(raw.fixed_levels.as_ref().map(|fixed| fixed_node(fixed, at, policy))),
    }
}

/// The node that `fixed_levels` names; each quasi-identifier has its level there, within bounds.
fn fixed_node(fixed: &BTreeMap<String, u8>, at: At<'_>, policy: &policy::BuiltPolicy) -> Node {
    let (lost, at) = (at.lost("fixed_levels"), at.key("fixed_levels"));
    let known = |name: &String| policy.quasi.iter().any(|q| *q.name == **name);
    for name in fixed.keys().filter(|name| policy.complete && !known(name)) {
        let remedy = match nearest(name, policy.shown.iter().map(|s| s.trim_matches('`'))) {
            Some(near) => format!("did you mean `{near}`?"),
            None => "remove it".into(),
        };
        at.key(name).refuse(format!("`{}` in `fixed_levels` is not a quasi-identifier: {remedy}", shown(name)));
    }
    let mut levels = Vec::new();
    for (q, name) in policy.quasi.iter().zip(&policy.shown) {
        let (least, most, at) = (q.min_level, q.max_level, at.key(&q.name));
        match fixed.get(&*q.name).copied() {
            Some(level) if (least..=most).contains(&level) => levels.push(level),
            Some(level) => {
                let level = at.show(level);
                at.refuse(format!("level {level} of {name} is out of bounds: write {least} to {most}"));
            }
            None if lost => {}
            None => at.refuse(format!("`fixed_levels` lacks {name}: add its level")),
        }
    }
    Node::new(levels)
}

/// Builds the rules of a sliding window; `at` is the `window` section, `most` bounds its records.
fn slide_rules(raw: &RawSliding, at: At<'_>, most: u64, warm_memory: usize) -> Option<SlideRules> {
    let before = at.problems();
    if at.key("tumbling").is_present() {
        at.key("sliding").refuse("`window` has both `tumbling` and `sliding`: keep one");
    }
    let at = at.key("sliding");
    let max_hold = raw.max_hold.unwrap_or(raw.size);
    for (key, extent) in [("slide", raw.slide), ("max_hold", max_hold)] {
        if in_time(extent) != in_time(raw.size) {
            at.key(key)
                .refuse(format!("`{key}` and `size` are in different units: write both in records, or both in time"));
        }
    }
    if !in_time(raw.size) && raw.max_records.is_some() {
        at.key("max_records")
            .refuse("`max_records` means something only with a `size` in time: remove it, `size` says it");
    }
    let (size, slide) = (amount(raw.size), amount(raw.slide));
    if in_time(raw.slide) == in_time(raw.size) && slide > size {
        at.key("slide").refuse("`slide` is longer than `size`, so records would be skipped: write less");
    }
    if at.problems() > before {
        return None;
    }
    let time = match (raw.size, raw.slide) {
        (RawExtent::Time(size), RawExtent::Time(slide)) => Some((size, slide)),
        _ => None,
    };
    // A fast stream moves on as often as `max_records` takes in the place of `size`.
    let steps = size.div_ceil(slide);
    let slide_records = if time.is_some() { most.div_ceil(steps) } else { slide };
    Some(SlideRules {
        size: records(most),
        slide: records(slide_records.max(1)),
        time,
        max_hold: amount(max_hold).div_ceil(slide),
        warm_memory,
        changes: raw.publish == RawPublish::Changes,
    })
}

/// True if slides publish what changes.
pub(in crate::config) fn publishes_changes(raw: &RawWindow) -> bool {
    raw.sliding.as_ref().is_some_and(|sliding| sliding.publish == RawPublish::Changes)
}

/// Refuses what a changelog cannot have. `policy` is the one that was built.
pub(in crate::config) fn check_changes(raw: &RawConfig, policy: Option<&Policy>, root: At<'_>) {
    if !publishes_changes(&raw.window) {
        return;
    }
    let at = root.key("window").key("sliding").key("publish");
    if let Some(policy) = policy {
        let rules = Rules::new(policy);
        let by_parts = rules.only_classes() && rules.monotone(false) && !rules.facets().contains(&Facet::Profile);
        if !by_parts {
            at.refuse(
                "`changes` are counted by themselves, and a criterion of this policy is judged by everything that is published: use \
                 k-anonymity, distinct l-diversity or p-sensitivity, or write `snapshots`",
            );
        }
        if policy.quasi.iter().any(|quasi| quasi.render != Render::Label) {
            at.refuse("`changes` need labels that stay: an interval or statistic moves with every row that joins its class; write `render: label`");
        }
        if policy.schema.keep.len() > policy.schema.reviewed.len() {
            at.refuse(
                "`changes` need kept fields that stay: one that is not reviewed is withheld as soon as its values identify people; write \
                 `{ name: NAME, reviewed: true }` under `keep`, or `snapshots`",
            );
        }
    }
    if !raw.audiences.is_empty() {
        at.refuse("`changes` do not go with `audiences`: write `snapshots`");
    }
}

/// Refuses what is not safe, or not exact, with a sliding window.
pub(in crate::config) fn check_sliding(raw: &RawConfig, root: At<'_>) {
    if raw.window.sliding.is_none() {
        return;
    }
    if raw.policy.suppression.action == RawAction::Hold {
        root.key("policy").key("suppression").key("action").refuse(
            "`action: hold` does not go with a sliding window, in which a record waits anyway: write `action: drop`",
        );
    }
    let most = max_records(&raw.window);
    let replayed = matches!(raw.sink, Some(RawSink::Kafka(_)));
    if raw.policy.recoding == Some(RecodingKind::Local) && replayed && most > RowLevels::MAX_ROWS as u64 {
        root.key("window").key("sliding").refuse(format!(
            "`recoding: local` notes the levels of each record in the journal, so that a snapshot can be made again, and has room for {} \
             of them: write a smaller window, or another recoding",
            RowLevels::MAX_ROWS
        ));
    }
    if raw.policy.sequential.is_some() {
        root.key("policy")
            .key("sequential")
            .refuse("`sequential` does not go with a sliding window, in which everybody returns: use `tumbling`");
    }
    if let Some(statistic) = render::statistic(&raw.policy, root.key("policy")) {
        statistic.refuse(
            "a statistic does not go with a sliding window: the means of two snapshots tell the values that came and \
                       left: write `render: label` or `interval`",
        );
    }
}

fn in_time(extent: RawExtent) -> bool {
    matches!(extent, RawExtent::Time(_))
}

/// Records, or milliseconds.
fn amount(extent: RawExtent) -> u64 {
    match extent {
        RawExtent::Records(count) => count,
        RawExtent::Time(time) => millis(time),
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
