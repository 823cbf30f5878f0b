//! Where the tables of the audiences go: topics beside a Kafka sink, files beside a file sink.

use std::path::{Path, PathBuf};

use super::topics::legal_topic;
use crate::config::file::At;
use crate::config::raw::RawAudience;
use crate::model::release::audience::{Audience, AudienceTable};

/// The tables of all audiences in topics.
pub(super) fn topics(raw: &[RawAudience], audiences: &[Audience], at: At<'_>) -> Vec<AudienceTable<String>> {
    let mut tables: Vec<AudienceTable<String>> = Vec::new();
    for (i, (raw, audience)) in raw.iter().zip(audiences).enumerate() {
        let at = at.index(i);
        refuse_all(at, &[("path", raw.path.is_some()), ("manifest", raw.manifest.is_some())], "topic");
        let Some(topic) = &raw.topic else {
            at.refuse("an audience without a topic: add `topic: NAME`");
            continue;
        };
        let manifests = match raw.manifests.as_deref() {
            Some("none") => None,
            Some(name) => legal_topic(name, "manifests", at).then(|| name.to_owned()),
            None => Some(format!("{topic}-manifests")),
        };
        if legal_topic(topic, "topic", at) {
            tables.push(AudienceTable { audience: audience.clone(), rows: topic.clone(), manifests });
        }
    }
    tables
}

/// The tables of all audiences in files.
pub(super) fn files(
    raw: &[RawAudience],
    audiences: &[Audience],
    at: At<'_>,
    base: &Path,
) -> Vec<AudienceTable<PathBuf>> {
    let mut tables = Vec::new();
    for (i, (raw, audience)) in raw.iter().zip(audiences).enumerate() {
        let at = at.index(i);
        refuse_all(at, &[("topic", raw.topic.is_some()), ("manifests", raw.manifests.is_some())], "path");
        let Some(path) = &raw.path else {
            at.refuse("an audience without a file: add `path: FILE`");
            continue;
        };
        let manifests = raw.manifest.as_ref().map(|path| base.join(path));
        tables.push(AudienceTable { audience: audience.clone(), rows: base.join(path), manifests });
    }
    tables
}

fn refuse_all(at: At<'_>, keys: &[(&str, bool)], instead: &str) {
    for (key, _) in keys.iter().filter(|(_, there)| *there) {
        at.key(key).refuse(format!("`{key}` does not go with this sink: write `{instead}`"));
    }
}
