//! Tables that console and report share.

use super::html::Html;
use super::pictures;
use crate::model::policy::Policy;
use crate::model::release::spread::Spread;
use crate::plot::{figure, percent};
use crate::usefulness::{Accuracy, Usefulness};

/// One recoding in the table.
pub(crate) struct RecodingColumn<'a> {
    /// Its name, and whether it is the one that is published.
    pub(crate) name: String,
    /// Classes of its release.
    pub(crate) classes: u64,
    /// Records that it leaves out.
    pub(crate) left_out: u64,
    /// What it is still good for; none if it has no rows.
    pub(crate) useful: Option<&'a Usefulness>,
}

/// The explanation below the table.
pub(crate) const NOTE: &str = "A record loses 0 % if all its values stay, and 100 % if it is suppressed or every value is at its top. \
     Counts spread each published value evenly over the values below it. A reader who knows the levels of every step and the values \
     that occur can exclude some combinations, because an earlier step would have published them elsewhere: these rows and cells are \
     narrowed. Every class keeps as many people as the policy asks. With one level per column or value nothing can be excluded.";

/// A table with a column per recoding: what its rows lose, who pays for it, what counts and a classifier would still get right, and what
/// a reader who knows how it was made can exclude.
pub(crate) fn side_by_side(policy: &Policy, columns: &[RecodingColumn<'_>], html: &mut Html) {
    let row = |measure: &str, value: &dyn Fn(&RecodingColumn<'_>) -> Option<String>| -> Vec<String> {
        let values = columns.iter().map(|column| value(column).unwrap_or_else(|| "-".into()));
        std::iter::once(measure.to_owned()).chain(values).collect()
    };
    let share = |measure: &str, value: &dyn Fn(&Usefulness) -> Option<f64>| {
        row(measure, &|column| column.useful.and_then(value).map(percent))
    };
    let mut rows = vec![
        row("classes", &|column| Some(column.classes.to_string())),
        row("records left out", &|column| Some(column.left_out.to_string())),
        share("loss of the record in the middle", &|useful| Some(useful.loss_median)),
        share("loss of one record in twenty, at least", &|useful| Some(useful.loss_p95)),
        share("counts by one attribute: records in the right place", &|useful| Some(useful.counts_by_one)),
        share("counts by two attributes: records in the right place", &|useful| useful.counts_by_two),
    ];
    let classified = |of: fn(&Accuracy) -> f64| move |useful: &Usefulness| useful.classifier.as_ref().map(of);
    if policy.schema.label.is_some() {
        rows.push(share("classifier of the label, on published values: right", &classified(|right| right.published)));
        rows.push(share("the same on the values as they were read", &classified(|right| right.raw)));
        rows.push(share("always saying the most frequent label", &classified(|right| right.majority)));
    }
    rows.push(share("rows narrowed by a reader who knows how it was made", &|useful| Some(useful.attack.rows)));
    rows.push(share("cells narrowed by the same reader", &|useful| Some(useful.attack.cells)));
    rows.push(share("cells narrowed to one value", &|useful| Some(useful.attack.cells_exact)));
    for (at, quasi) in policy.quasi.iter().enumerate() {
        let lost = |useful: &Usefulness| useful.loss_by_attribute.get(at).map(|(_, loss)| *loss);
        rows.push(share(&format!("loss of {}", quasi.name), &lost));
    }
    let head: Vec<&str> = std::iter::once("measure").chain(columns.iter().map(|column| column.name.as_str())).collect();
    html.raw("<div class=\"whole\">").table(&head, &rows).raw("</div>");
}

/// How properties are spread over people; beside it the means `before`, if there are any.
pub(crate) fn spreads(
    now: impl Iterator<Item = (&'static str, Spread)>,
    before: &[(&'static str, Spread)],
    html: &mut Html,
) {
    let row = |(property, spread): (&str, Spread)| -> Vec<String> {
        let figures = spread.named().map(|(_, value)| figure(value));
        let earlier = before.iter().find(|(other, _)| *other == property).map(|(_, earlier)| figure(earlier.mean));
        std::iter::once(property.replace('_', " ")).chain(figures).chain(earlier).collect()
    };
    let mut head = vec!["over people", "worst", "5 % worst", "median", "mean"];
    head.extend((!before.is_empty()).then_some("mean before"));
    html.table(&head, &now.map(row).collect::<Vec<_>>());
}

/// How many classes there are of which size, as picture and as table.
pub(crate) fn class_sizes(id: &str, sizes: &[(u32, u32)], html: &mut Html) {
    html.picture(pictures::class_sizes(id, sizes), "");
    let rows: Vec<Vec<String>> =
        sizes.iter().map(|(size, classes)| vec![size.to_string(), classes.to_string()]).collect();
    html.same_as_table(&format!("{id}-table"), &["size", "classes"], &rows);
}
