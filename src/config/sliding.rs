//! `window.sliding`: checks its sense and what does not go with it, and builds its rules.

use std::time::Duration;

use super::problem::Problems;
use super::raw::{RawAction, RawConfig, RawSliding};
use super::render;
use super::scalar::RawExtent;
use super::tree::At;
use crate::window::{DEFAULT_WARM_MEMORY, SlideRules};

/// Builds the rules of a sliding window; `at` is the `window` section, `most` bounds its records.
pub(super) fn build(raw: &RawSliding, at: At<'_>, most: u64, problems: &mut Problems) -> Option<SlideRules> {
    let before = problems.len();
    if at.key("tumbling").is_present() {
        problems.add(at.key("sliding").line, "`window` has both `tumbling` and `sliding`: keep one");
    }
    let at = at.key("sliding");
    let max_hold = raw.max_hold.unwrap_or(raw.size);
    for (key, extent) in [("slide", raw.slide), ("max_hold", max_hold)] {
        if in_time(extent) != in_time(raw.size) {
            let message = format!("`{key}` and `size` are in different units: write both in records, or both in time");
            problems.add(at.key(key).line, message);
        }
    }
    if !in_time(raw.size) && raw.max_records.is_some() {
        let message = "`max_records` means something only with a `size` in time: remove it, `size` says it";
        problems.add(at.key("max_records").line, message);
    }
    let (size, slide) = (amount(raw.size), amount(raw.slide));
    if in_time(raw.slide) == in_time(raw.size) && slide > size {
        problems.add(at.key("slide").line, "`slide` is longer than `size`, so records would be skipped: write less");
    }
    if problems.len() > before {
        return None;
    }
    let records = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
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
        warm_memory: DEFAULT_WARM_MEMORY,
    })
}

/// Refuses what is not safe, or not exact, with a sliding window.
pub(super) fn check(raw: &RawConfig, root: At<'_>, problems: &mut Problems) {
    if raw.window.sliding.is_none() {
        return;
    }
    if raw.policy.suppression.action == RawAction::Hold {
        let message =
            "`action: hold` does not go with a sliding window, in which a record waits anyway: write `action: drop`";
        problems.add(root.key("policy").key("suppression").key("action").line, message);
    }
    if let Some(statistic) = render::statistic(&raw.policy, root.key("policy")) {
        let message = "a statistic does not go with a sliding window: the means of two snapshots tell the values that came and \
                       left: write `render: label` or `interval`";
        problems.add(statistic.line, message);
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
