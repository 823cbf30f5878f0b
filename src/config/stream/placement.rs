//! `fields` and `explode`: where an input has the fields of the policy.
//!
//! They decide what is read, so they are part of the policy's fingerprint: a release that was planned with others is not made again.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::config::file::{At, nearest};
use crate::config::policy::path;
use crate::config::raw::{RawAction, RawConfig, RawPlacedTopic, RawSource, RawTopic};
use crate::model::schema::{Placement, Schema};

/// Builds the placement that `fields` and `explode` at `at` say; `schema` are the fields of the policy, if it is usable.
pub(super) fn build(
    fields: &BTreeMap<String, String>,
    explode: Option<&str>,
    at: At<'_>,
    schema: Option<&Schema>,
) -> Option<Placement> {
    let before = at.problems();
    let mut placement =
        Placement { fields: BTreeMap::new(), array: explode.and_then(|name| path(name, at.key("explode"))) };
    for (name, place) in fields {
        let at = at.key("fields").key(name);
        let made = schema.and_then(|schema| schema.made_of(name));
        let name = made.map_or(name.as_str(), |name| &**name);
        if let Some(schema) = schema.filter(|schema| schema.slot(name).is_none()) {
            let near = nearest(name, schema.attributes().iter().map(|attribute| &*attribute.name));
            let near = near.map_or(String::new(), |near| format!(": did you mean `{near}`?"));
            at.refuse(format!("{} is not a field of the policy{near}", at.show(name)));
        }
        if let Some(place) = path(place, at) {
            placement.fields.insert(Arc::from(name), place);
        }
    }
    if let Some(schema) = schema {
        check(&schema.placed(&placement), &placement, at);
    }
    (at.problems() == before).then_some(placement)
}

/// No two fields share a place, and an array that is taken apart has fields in its elements.
fn check(placed: &Schema, placement: &Placement, at: At<'_>) {
    let attributes = placed.attributes();
    for (i, attribute) in attributes.iter().enumerate() {
        let clash = |other: &&_| {
            let other: &crate::model::schema::Attribute = other;
            attribute.path.contains(&other.path) || other.path.contains(&attribute.path)
        };
        if let Some(other) = attributes[..i].iter().find(clash) {
            let moved = [attribute, other].into_iter().find(|a| placement.fields.contains_key(&a.name));
            let at = moved.map_or(at, |moved| at.key("fields").key(&moved.name));
            at.refuse(format!("`{}` and `{}` are in the same place: name another one", other.name, attribute.name));
        }
    }
    let Some(array) = &placement.array else { return };
    let at = at.key("explode");
    if let Some(whole) = attributes.iter().find(|attribute| attribute.path.contains(array)) {
        at.refuse(format!("`{}` is the array itself, or around it: name fields of its elements", whole.name));
    } else if !attributes.iter().any(|attribute| array.contains(&attribute.path)) {
        at.refuse(format!("no field of the policy is in an element of {}: name them `{array}.FIELD`", at.show(array)));
    }
}

/// Everything that is placed by the source, for the fingerprint.
pub(in crate::config) fn parts(source: Option<&RawSource>) -> Vec<String> {
    let mut parts = Vec::new();
    let mut add = |whose: &str, fields: &BTreeMap<String, String>, explode: Option<&str>| {
        parts.extend(fields.iter().flat_map(|(name, place)| ["field", whose, name, place].map(str::to_owned)));
        parts.extend(explode.iter().flat_map(|array| ["explode", whose, array].map(str::to_owned)));
    };
    match source {
        Some(RawSource::File(raw)) => add("", &raw.fields, raw.explode.as_deref()),
        Some(RawSource::Kafka(raw)) => {
            add("", &BTreeMap::new(), raw.explode.as_deref());
            for topic in raw.topics.iter().flatten() {
                if let RawTopic::Placed(RawPlacedTopic { name, fields, explode }) = topic {
                    add(name, fields, explode.as_deref());
                }
            }
        }
        Some(RawSource::Stdio(_) | RawSource::Generator(_)) | None => {}
    }
    parts
}

/// Where the file says that arrays are taken apart, and where it says that rows have an envelope.
fn exploding<'a>(source: &RawSource, at: At<'a>) -> Vec<(At<'a>, bool)> {
    match source {
        RawSource::File(raw) => {
            raw.explode.iter().map(|_| (at.key("file").key("explode"), raw.envelope.is_some())).collect()
        }
        RawSource::Kafka(raw) => {
            let (at, envelope) = (at.key("kafka"), raw.envelope.is_some());
            let own = |(i, topic): (usize, &RawTopic)| match topic {
                RawTopic::Placed(RawPlacedTopic { explode: Some(_), .. }) => {
                    Some(at.key("topics").index(i).key("explode"))
                }
                _ => None,
            };
            let topics = raw.topics.iter().flatten().enumerate().filter_map(own);
            let all = raw.explode.iter().map(|_| at.key("explode"));
            all.chain(topics).map(|at| (at, envelope)).collect()
        }
        RawSource::Stdio(_) | RawSource::Generator(_) => Vec::new(),
    }
}

/// Refuses what does not go with several records in a message: they have their outcome in one release.
pub(in crate::config) fn check_explode(raw: &RawConfig, root: At<'_>) {
    let Some(source) = &raw.source else { return };
    for (at, envelope) in exploding(source, root.key("source")) {
        let refused = [
            (envelope, "`explode` does not go with `envelope`: a change event is about one row"),
            (
                raw.policy.subject.is_none() && !root.key("policy").lost("subject"),
                "the records of one message are about the same person: name the field that identifies the person under `policy.subject`",
            ),
            (
                raw.policy.suppression.action == RawAction::Hold,
                "`explode` does not go with `action: hold`: the records of a message would have their outcomes in different \
                 releases: write `action: drop`",
            ),
            (
                raw.policy.sequential.is_some(),
                "`explode` does not go with `sequential`, which remembers what is published by message: remove one of them",
            ),
            (
                raw.window.sliding.is_some(),
                "`explode` does not go with a sliding window, which the records of a message would leave one by one: use \
                 `tumbling`",
            ),
        ];
        refused.into_iter().filter(|(there, _)| *there).for_each(|(_, message)| at.refuse(message));
    }
}
