//! The fields that a release adds to its rows: levels of labels, and the field of a changelog.

use std::collections::HashMap;

use crate::config::file::At;
use crate::config::raw::RawPolicy;
use crate::model::hierarchy::Hierarchy;
use crate::model::lattice::Level;
use crate::model::policy::{QuasiIdentifier, Render};
use crate::model::schema::AddedFields;

/// Refuses names that are taken, and levels that do not follow from the labels. `quasi` are all quasi-identifiers of `raw`.
pub(super) fn check(raw: &RawPolicy, at: At<'_>, quasi: &[QuasiIdentifier], changelog: bool) {
    let added = AddedFields { levels: raw.row_levels, change: changelog };
    let names: Vec<&str> = quasi.iter().map(|quasi| &*quasi.name).collect();
    let sensitive = raw.sensitive.iter().map(|field| field.name.as_str());
    let taken: Vec<&str> =
        names.iter().copied().chain(sensitive).chain(raw.keep.iter().map(|field| field.name())).collect();
    for name in added.names(names.iter().copied()).filter(|name| taken.contains(&&**name)) {
        let key = if name == AddedFields::CHANGE { "quasi_identifiers" } else { "row_levels" };
        at.key(key)
            .refuse(format!("releases add a field {} to their rows, and the policy publishes one", at.show(&name)));
    }
    if !raw.row_levels {
        return;
    }
    for quasi in quasi {
        if quasi.render != Render::Label {
            let name = at.show(&quasi.name);
            at.key("row_levels")
                .refuse(format!("{name} is not written as the label of a level: write `render: label`"));
        } else if let Some((label, [a, b])) = two_levels(&quasi.hierarchy) {
            let (name, label) = (at.show(&quasi.name), at.show(&label));
            at.key("row_levels").refuse(format!(
                "{name} has the label {label} for values on level {a} and for others on level {b}: give one of them another name"
            ));
        }
    }
}

/// A label of a hierarchy that has two levels, and these.
fn two_levels(hierarchy: &Hierarchy) -> Option<(String, [Level; 2])> {
    let mut levels: HashMap<String, Level> = HashMap::new();
    for leaf in hierarchy.leaves()? {
        let mut above: Option<(String, Level)> = None;
        for level in (0..=hierarchy.height()).rev() {
            let label = hierarchy.label(leaf, level)?.into_owned();
            let shown = above.as_ref().filter(|(text, _)| *text == label).map_or(level, |(_, level)| *level);
            let known = *levels.entry(label.clone()).or_insert(shown);
            if known != shown {
                return Some((label, [known.min(shown), known.max(shown)]));
            }
            above = Some((label, shown));
        }
    }
    None
}
