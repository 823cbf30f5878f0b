//! The risk of being found: before and after, the classes that are at most risk, and the attackers of El Emam's model.

use super::Sheet;
use crate::gate::Release;
use crate::model::policy::Policy;
use crate::plot::percent;
use crate::telemetry::html::Html;
use crate::telemetry::tables::{class_sizes, spreads};
use crate::usefulness::{Exposure, PublishedClass, smallest_classes};

/// Classes that are shown. More fill the page; fewer hide whether the smallest one is the only one.
const CLASSES: usize = 8;

/// The risk of the input beside that of the release.
pub(super) fn before_and_after(sheet: &Sheet<'_>, html: &mut Html) {
    let policy = &sheet.batch.policy;
    let (k, who) = (policy.k().0, who(policy));
    let (before, after) = &sheet.report.exposure;
    let share = |of: u64, all: &Exposure| match all.people {
        0 => "-".to_owned(),
        people => percent(of as f64 / people as f64),
    };
    let risk = |size: f64| if size > 0.0 { percent(1.0 / size) } else { "-".into() };
    let mean =
        |all: &Exposure| if all.people == 0 { "-".into() } else { percent(all.classes as f64 / all.people as f64) };
    let mut rows =
        vec![vec![format!("{who} alone in their class"), share(before.alone, before), share(after.alone, after)]];
    if k > 2 {
        let small = format!("{who} in classes of fewer than {k}");
        rows.push(vec![small, share(before.below, before), share(after.below, after)]);
    }
    rows.extend([
        vec!["smallest class".into(), before.smallest.to_string(), after.smallest.to_string()],
        vec!["highest risk of being picked out".into(), risk(before.smallest.into()), risk(after.smallest.into())],
        vec!["mean risk".into(), mean(before), mean(after)],
        vec![who.into(), before.people.to_string(), after.people.to_string()],
    ]);
    html.table(&["measure", "as read", "published"], &rows);
    let note = "As read means: if all quasi-identifiers were published as they are. A class is the records that share all of them.";
    html.text("p class=\"note\"", note);
}

/// The smallest classes, by their published values.
pub(super) fn classes(sheet: &Sheet<'_>, html: &mut Html) {
    let policy = &sheet.batch.policy;
    let row = |class: &PublishedClass| {
        let mut row = vec![class.size.to_string(), percent(1.0 / f64::from(class.size.max(1)))];
        row.extend(class.labels.iter().cloned());
        row
    };
    let rows: Vec<Vec<String>> = smallest_classes(policy, sheet.release, CLASSES).iter().map(row).collect();
    let names = policy.quasi.iter().map(|quasi| &*quasi.name);
    let head: Vec<&str> = [who(policy), "risk"].into_iter().chain(names).collect();
    html.table(&head, &rows);
    let note =
        format!("The smallest of {} classes, with their values as they are published.", sheet.report.manifest.classes);
    html.text("p class=\"note\"", &note);
}

fn who(policy: &Policy) -> &'static str {
    if policy.schema.subject.is_some() { "people" } else { "records" }
}

/// The remaining risk for the three attackers of El Emam's model.
pub(super) fn attackers(release: &Release, policy: &Policy, html: &mut Html) {
    let sizes = release.class_sizes();
    let people: f64 = sizes.iter().map(|(&size, &classes)| f64::from(size) * f64::from(classes)).sum();
    let classes: f64 = sizes.values().map(|&classes| f64::from(classes)).sum();
    let smallest = sizes.keys().next().copied().unwrap_or(1);
    let highest = 1.0 / f64::from(smallest.max(1));
    let at_highest = sizes.get(&smallest).map_or(0.0, |&c| f64::from(c) * f64::from(smallest)) / people.max(1.0);
    let mean = classes / people.max(1.0);
    let who = who(policy);
    html.table(
        &["attacker", "highest", "mean"],
        &[
            vec!["prosecutor".into(), percent(highest), percent(mean)],
            vec!["journalist".into(), format!("at most {}", percent(highest)), format!("at most {}", percent(mean))],
            vec!["marketer".into(), "-".into(), percent(mean)],
        ],
    );
    html.text(
        "p",
        &format!("{} of the {who} are in a smallest class, that is, at the highest risk.", percent(at_highest)),
    );
    spreads(release.spreads(), &[], html);
    html.raw("<dl class=\"note\">");
    for (name, meaning) in [
        (
            "Prosecutor",
            "knows that somebody is in the release, and all their quasi-identifiers. The risk of picking the right record is \
             one over the size of the class; the mean is over everybody published.",
        ),
        (
            "Journalist",
            "does not know who is in the release, and wants to show that anybody at all can be found, with the help of a \
             larger register. Classes in the register are at least as large as here. Veilstream knows no register, so this \
             is the risk if the register is the file itself: an upper bound.",
        ),
        (
            "Marketer",
            "wants to find as many as possible and does not mind errors. The figure is the share of records that would be \
             matched correctly: the number of classes over the number of people.",
        ),
    ] {
        html.text("dt", name).text("dd", meaning);
    }
    html.raw("</dl>").text(
        "p class=\"note\"",
        "These are risks from the quasi-identifiers alone. They say nothing of attackers who know sensitive or kept values, \
         or who hold other releases about the same people.",
    );
}

/// How many classes there are of which size.
pub(super) fn sizes(release: &Release, html: &mut Html) {
    let sizes: Vec<(u32, u32)> = release.class_sizes().iter().map(|(&size, &classes)| (size, classes)).collect();
    class_sizes("class-sizes", &sizes, html);
}
