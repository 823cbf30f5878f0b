//! The `policy` section: checks its sense and builds the [`Policy`].

mod added;
mod audience;
mod criteria;
mod fingerprint;
mod hierarchy;
pub(super) mod render;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use self::fingerprint::Fingerprint;
use super::file::At;
use super::raw::{RawAction, RawAudience, RawHierarchy, RawKeep, RawKeptField, RawPolicy, RawQuasi, RawRender};
use crate::model::hierarchy::Hierarchy;
use crate::model::policy::{Loss, Policy, QuasiIdentifier, RecodingKind, Render, SuppressionAction, SuppressionLimit};
use crate::model::release::audience::Audience;
use crate::model::schema::{AddedFields, Envelope, Path as FieldPath, Role, Schema};

/// Longer: held records pile up, and with them offsets that cannot be committed. Shorter: slow streams suppress what the
/// next window could have published.
const DEFAULT_MAX_HOLD: Duration = Duration::from_secs(300);

/// The parts of the file outside its section that the policy depends on.
pub(super) struct PolicySurroundings<'a> {
    /// The recoding of releases.
    pub(super) recoding: RecodingKind,
    /// Hierarchy paths start here.
    pub(super) base: &'a Path,
    /// The most records in a window, and how a message shows it, if there are windows.
    pub(super) max_records: Option<(u64, String)>,
    /// The field that holds the event time, and where it is named.
    pub(super) event_time: Option<(&'a str, At<'a>)>,
    /// The audiences, and their place in the file.
    pub(super) audiences: (&'a [RawAudience], At<'a>),
    /// The envelope of the input's rows, and its place in the file.
    pub(super) envelope: Option<(Envelope, At<'a>)>,
    /// Where inputs have fields elsewhere, for the fingerprint.
    pub(super) placements: Vec<String>,
    /// True if releases are a changelog.
    pub(super) changelog: bool,
}

/// The parts of the policy that could be built.
pub(super) struct BuiltPolicy {
    /// The quasi-identifiers that are usable.
    pub(super) quasi: Vec<QuasiIdentifier>,
    /// Their names as messages show them.
    pub(super) shown: Vec<String>,
    /// True if these are all that the file names.
    pub(super) complete: bool,
    /// The whole policy; `None` if there was any problem.
    pub(super) policy: Option<Policy>,
    /// The audiences.
    pub(super) audiences: Vec<Audience>,
}

/// Builds the policy as far as it can be built; problems say what is missing.
pub(super) fn build(raw: &RawPolicy, at: At<'_>, around: &PolicySurroundings<'_>) -> BuiltPolicy {
    let before = at.problems();
    check_roles(raw, at, around);
    check_envelope(raw, at, around);

    check_empty(raw, at);
    let quasi_at = at.key("quasi_identifiers");
    let mut hash = Fingerprint::new();
    let (mut quasi, mut shown) = (Vec::new(), Vec::new());
    for (i, field) in raw.quasi_identifiers.iter().enumerate() {
        let at = quasi_at.index(i);
        if let Some(built) = quasi_identifier(field, raw.render, at, around.base, &mut hash) {
            quasi.push(built);
            shown.push(at.key("name").show(&field.name));
        }
    }
    let hierarchies = sensitive_hierarchies(raw, at.key("sensitive"), around.base, &mut hash);
    let max_records = around.max_records.as_ref();
    let context = criteria::Context { policy: raw, at, hierarchies: &hierarchies, max_records };
    let criteria = criteria::build(&context);
    if matches!(raw.loss, Loss::Cm) && raw.label.is_none() && !at.lost("label") {
        at.key("loss").refuse("the loss `cm` compares class labels: name the field under `label`");
    }
    let action = action(raw, at.key("suppression"));
    let sequential = raw.sequential.as_ref().and_then(|raw| criteria::sequential(raw, &context));
    let complete = quasi.len() == raw.quasi_identifiers.len() && !at.lost("quasi_identifiers");
    if complete {
        render::check(raw, at, &quasi);
        added::check(raw, at, &quasi, around.changelog);
    }
    let audiences = match complete {
        true => audience::build(around.audiences, (raw, around.recoding), &mut quasi, &mut hash),
        false => Vec::new(),
    };
    if at.problems() > before {
        return BuiltPolicy { quasi, shown, complete, policy: None, audiences };
    }
    let mut policy = Policy {
        schema: schema(raw, at, around),
        quasi: quasi.clone(),
        criteria,
        suppression: SuppressionLimit(raw.suppression.limit.map_or(0.0, |share| share.0)),
        action,
        recoding: around.recoding,
        loss: raw.loss,
        unknown_value: raw.unknown_value,
        missing_value: raw.missing_value,
        null_value: raw.null_value,
        sequential,
        fingerprint: String::new(),
    };
    policy.fingerprint = fingerprint(&policy, &around.placements, hash);
    BuiltPolicy { quasi, shown, complete, policy: Some(policy), audiences }
}

/// Lists that need an entry.
fn check_empty(raw: &RawPolicy, at: At<'_>) {
    let empty = |key: &str, is_empty: bool| is_empty && at.key(key).is_present() && !at.lost(key);
    if empty("quasi_identifiers", raw.quasi_identifiers.is_empty()) {
        let at = at.key("quasi_identifiers");
        at.refuse("`quasi_identifiers` is empty: name at least one field that identifies people");
    }
    if empty("privacy", raw.privacy.is_empty()) {
        at.key("privacy").refuse("`privacy` is empty: write at least one criterion, such as { k-anonymity: 5 }");
    }
}

/// Every (name, role) of the policy with its place, in the order of the schema.
fn roles<'a>(raw: &'a RawPolicy, at: At<'a>) -> Vec<(&'a str, Role, At<'a>)> {
    let [quasi, sensitive, keep, identifiers] =
        ["quasi_identifiers", "sensitive", "keep", "identifiers"].map(|key| at.key(key));
    let mut roles = Vec::new();
    for (i, field) in raw.quasi_identifiers.iter().enumerate() {
        roles.push((field.name.as_str(), Role::Quasi, quasi.index(i).key("name")));
        let from = field.from.iter().flatten().enumerate();
        roles.extend(from.map(|(n, name)| (name.as_str(), Role::Coordinate, quasi.index(i).key("from").index(n))));
    }
    for (i, field) in raw.sensitive.iter().enumerate() {
        roles.push((field.name.as_str(), Role::Sensitive, sensitive.index(i).key("name")));
    }
    for (i, field) in raw.keep.iter().enumerate() {
        let (role, at) = match field {
            RawKeep::Name(_) => (Role::Insensitive, keep.index(i)),
            RawKeep::Field(RawKeptField { reviewed: false, .. }) => (Role::Insensitive, keep.index(i).key("name")),
            RawKeep::Field(RawKeptField { reviewed: true, .. }) => (Role::Reviewed, keep.index(i).key("name")),
        };
        roles.push((field.name(), role, at));
    }
    for (i, name) in raw.private.iter().enumerate() {
        roles.push((name.as_str(), Role::Private, at.key("private").index(i)));
    }
    for (i, name) in raw.identifiers.iter().enumerate() {
        roles.push((name.as_str(), Role::Identifier, identifiers.index(i)));
    }
    roles.extend(raw.subject.as_deref().map(|name| (name, Role::Subject, at.key("subject"))));
    roles.extend(raw.label.as_deref().map(|name| (name, Role::Label, at.key("label"))));
    roles
}

fn schema(raw: &RawPolicy, at: At<'_>, around: &PolicySurroundings<'_>) -> Schema {
    let event_time = around.event_time.map(|(name, _)| (name, Role::EventTime));
    let pairs = || raw.quasi_identifiers.iter().filter_map(|field| Some((&*field.name, field.from.as_ref()?)));
    // The first of two fields is read in the place of what they make.
    let is_first = |name: &str, role| role == Role::Coordinate && pairs().any(|(_, [first, _])| first == name);
    let read =
        roles(raw, at).into_iter().map(|(name, role, _)| (name, role)).filter(|&(name, role)| !is_first(name, role));
    let schema = Schema::new(read.chain(event_time));
    let mut schema = pairs().fold(schema, |schema, (name, [first, second])| schema.paired(name, [first, second]));
    schema.envelope = around.envelope.map_or(Envelope::None, |(envelope, _)| envelope);
    schema.added = AddedFields { levels: raw.row_levels, change: around.changelog };
    schema
}

/// Every name is a path, none is twice in a role, no two roles of a name contradict each other, and no two paths collide.
fn check_roles<'a>(raw: &'a RawPolicy, at: At<'a>, around: &PolicySurroundings<'a>) {
    let mut roles = roles(raw, at);
    roles.extend(around.event_time.map(|(name, at)| (name, Role::EventTime, at)));
    let mut seen: HashMap<&str, Vec<(Role, usize)>> = HashMap::new();
    let mut paths: Vec<(FieldPath, usize)> = Vec::new();
    for (name, role, at) in roles {
        if name.trim().is_empty() {
            at.refuse(format!("a {} has an empty name: write the field's name", called(role)));
            continue;
        }
        match path(name, at) {
            Some(path) => {
                check_collision(&path, at, &paths);
                paths.push((path, at.line));
            }
            None => continue,
        }
        let earlier = seen.entry(name).or_default();
        let clash = earlier.iter().find_map(|&(other, line)| conflict(other, role).map(|why| (other, line, why)));
        if let Some((other, line, why)) = clash {
            let name = at.show(name);
            at.refuse(if called(other) == called(role) {
                format!("{name} is listed twice as a {}, first on line {line}: keep one", called(role))
            } else {
                format!("{name} is a {} here and a {} on line {line}: {why}", called(role), called(other))
            });
        }
        earlier.push((role, at.line));
    }
}

/// Change events tell of one person several times.
fn check_envelope(raw: &RawPolicy, at: At<'_>, around: &PolicySurroundings<'_>) {
    if let Some((_, at)) = around.envelope.filter(|_| raw.subject.is_none() && !at.lost("subject")) {
        at.refuse(
            "an update is one more record of the same person: name the field that identifies the person of a row under \
             `policy.subject`, such as its primary key",
        );
    }
}

/// The path that a field's name is, written in its one spelling.
pub(super) fn path(name: &str, at: At<'_>) -> Option<FieldPath> {
    match FieldPath::parse(name) {
        Ok(path) if **path.text() == *name => return Some(path),
        Ok(path) => at.refuse(format!("{} needs no quotes: write {}", at.show(name), at.show(path.text()))),
        Err(error) => at.refuse(format!("the field {} {error}", at.show(name))),
    }
    None
}

/// No path is part of another, and no two paths are one column of a flat file.
fn check_collision(path: &FieldPath, at: At<'_>, earlier: &[(FieldPath, usize)]) {
    let clash = |other: &FieldPath| other != path && (path.contains(other) || other.contains(path));
    if let Some((other, line)) = earlier.iter().find(|(other, _)| clash(other)) {
        let (part, whole) = if path.contains(other) { (other, path) } else { (path, other) };
        let [part, whole] = [part, whole].map(|path| at.show(path.text()));
        at.refuse(format!("{part} is a part of {whole} (see line {line}): name the parts or the whole, not both"));
    } else if let Some((other, line)) = earlier.iter().find(|(o, _)| o != path && o.column() == path.column()) {
        let [name, other] = [path, other].map(|path| at.show(path.text()));
        at.refuse(format!("{name} and {other} on line {line} are the same column of a flat file: name one of them"));
    }
}

fn called(role: Role) -> &'static str {
    match role {
        Role::Quasi => "quasi-identifier",
        Role::Sensitive => "sensitive field",
        Role::Insensitive | Role::Reviewed => "kept field",
        Role::Private => "private field",
        Role::Coordinate => "coordinate",
        Role::Identifier => "identifier",
        Role::Subject => "subject",
        Role::Label => "label",
        Role::EventTime => "event time",
    }
}

/// Why a field cannot have both roles; `None` if it can. Symmetric.
fn conflict(a: Role, b: Role) -> Option<&'static str> {
    use Role::{Coordinate, EventTime, Identifier, Insensitive, Label, Private, Quasi, Reviewed, Sensitive, Subject};
    // For what else it may be it makes no difference that somebody has looked at it.
    let [a, b] = [a, b].map(|role| if role == Reviewed { Insensitive } else { role });
    let either = |x: Role, y: Role| (a, b) == (x, y) || (a, b) == (y, x);
    let with = |x: Role| a == x || b == x;
    if a == b {
        Some("keep one")
    } else if with(Coordinate) {
        Some("a coordinate is published as a cell and in no other way; keep one of the two")
    } else if with(Identifier) && (with(Subject) || with(EventTime) || with(Label) || with(Private)) {
        Some("an identifier is never read; remove it from `identifiers`")
    } else if with(Identifier) {
        Some("an identifier is never published; keep one of the two")
    } else if with(Private) && (with(Insensitive) || with(Sensitive)) {
        Some(
            "a private field is never published, and this one can be named in conditions as it is; keep one of the two",
        )
    } else if with(Private) {
        None
    } else if with(Subject) && !with(EventTime) && !with(Label) {
        Some("the subject is never published; keep one of the two")
    } else if either(Quasi, Sensitive) {
        Some("a generalized field cannot also be published as it is; keep one of the two")
    } else if either(Quasi, Insensitive) {
        Some("keeping it unchanged would undo its generalization; remove it from `keep`")
    } else if either(Sensitive, Insensitive) {
        Some("a sensitive field is published already; remove it from `keep`")
    } else {
        debug_assert!(with(Label) || with(EventTime));
        None
    }
}

fn quasi_identifier(
    raw: &RawQuasi,
    render: RawRender,
    at: At<'_>,
    base: &Path,
    hash: &mut Fingerprint,
) -> Option<QuasiIdentifier> {
    let built = hierarchy::build(&raw.hierarchy, at.key("hierarchy"), base)?;
    hash.part(&built.definition);
    if let Some(from) = &raw.from {
        from.iter().for_each(|name| hash.part(name.as_bytes()));
        if !matches!(raw.hierarchy, RawHierarchy::Geohash(_)) {
            at.key("from").refuse("`from` makes a place of latitude and longitude: write `hierarchy: { geohash: {} }`");
        }
    }
    let height = built.hierarchy.height();
    let name = at.key("name").show(&raw.name);
    for (key, level) in [("min_level", Some(raw.min_level)), ("max_level", raw.max_level)] {
        if let Some(level) = level.filter(|&l| l > height) {
            let at = at.key(key);
            at.refuse(format!("`{key}` {} of {name} is above its hierarchy: write {height} or less", at.show(level)));
        }
    }
    let max_level = raw.max_level.unwrap_or(height);
    if raw.min_level > max_level && max_level <= height && raw.min_level <= height {
        let (min, max) = (at.key("min_level"), at.key("max_level"));
        min.refuse(format!(
            "`min_level` {} of {name} is above `max_level` {}: write {} or less",
            min.show(raw.min_level),
            max.show(max_level),
            max.show(max_level)
        ));
    }
    let quasi = QuasiIdentifier {
        name: raw.name.as_str().into(),
        render: render::choose(raw.render, render, built.hierarchy.measure()),
        hierarchy: Arc::new(built.hierarchy),
        weight: raw.weight,
        min_level: raw.min_level,
        max_level,
        priority: raw.priority,
    };
    render::check_own(raw, at, &quasi);
    if quasi.render.is_statistic() && quasi.hierarchy.alternatives().is_some() {
        at.key("hierarchy").refuse(format!(
            "`render: {}` of {name} goes from finer to coarser labels along one hierarchy, and `any_of` has several: write \
             `render: label` or `interval`",
            quasi.render.as_str()
        ));
    }
    Some(quasi)
}

/// The hierarchies of the sensitive fields that have one.
fn sensitive_hierarchies(
    raw: &RawPolicy,
    at: At<'_>,
    base: &Path,
    hash: &mut Fingerprint,
) -> Vec<Option<Arc<Hierarchy>>> {
    let mut hierarchies = Vec::new();
    for (i, field) in raw.sensitive.iter().enumerate() {
        let at = at.index(i).key("hierarchy");
        let built = field.hierarchy.as_ref().and_then(|raw| hierarchy::build(raw, at, base));
        if built.as_ref().is_some_and(|built| built.hierarchy.alternatives().is_some()) {
            at.refuse(
                "the distance of two sensitive values is measured along one hierarchy: write one instead of `any_of`",
            );
        }
        built.iter().for_each(|built| hash.part(&built.definition));
        hierarchies.push(built.map(|built| Arc::new(built.hierarchy)));
    }
    hierarchies
}

fn action(raw: &RawPolicy, at: At<'_>) -> SuppressionAction {
    match (raw.suppression.action, raw.suppression.max_hold) {
        (RawAction::Drop, None) => SuppressionAction::Drop,
        (RawAction::Drop, Some(_)) => {
            if !at.lost("action") {
                at.only_with("max_hold", "action: hold");
            }
            SuppressionAction::Drop
        }
        (RawAction::Hold, max_hold) => {
            let max_hold = max_hold.map_or(DEFAULT_MAX_HOLD, |d| d.0);
            if max_hold.is_zero() {
                at.key("max_hold").refuse("`max_hold` is zero: write a longer time, or `action: drop`");
            }
            SuppressionAction::Hold { max_hold }
        }
    }
}

/// Everything that makes a difference to a release, in an order of our own; `hash` holds the hierarchies already. What
/// is left to a default and what is written out must come out the same, so the built policy is hashed. `Debug` is not
/// used: its output may change with the compiler.
fn fingerprint(policy: &Policy, placements: &[String], mut hash: Fingerprint) -> String {
    let mut parts = |parts: &[&str]| parts.iter().for_each(|part| hash.part(part.as_bytes()));
    for q in &policy.quasi {
        let wishes = format!("{} {} {} {}", q.weight, q.min_level, q.max_level, q.priority);
        parts(&["quasi", &q.name, &wishes]);
    }
    let schema = &policy.schema;
    for (role, slots) in [
        ("sensitive", schema.sensitive.as_slice()),
        ("keep", schema.keep.as_slice()),
        ("reviewed", schema.reviewed.as_slice()),
        ("private", schema.private.as_slice()),
        ("subject", schema.subject.as_slice()),
        ("label", schema.label.as_slice()),
    ] {
        slots.iter().for_each(|&slot| parts(&[role, schema.name(slot)]));
    }
    for criterion in &policy.criteria {
        criteria::parts(criterion).iter().for_each(|part| parts(&[part]));
    }
    if schema.added.levels {
        parts(&["row levels"]);
    }
    let action = match policy.action {
        SuppressionAction::Drop => "drop".to_owned(),
        SuppressionAction::Hold { max_hold } => format!("hold {}", max_hold.as_millis()),
    };
    parts(&["suppression", &policy.suppression.0.to_string(), &action, "loss", policy.loss.as_str()]);
    for fallback in [policy.unknown_value, policy.missing_value, policy.null_value] {
        parts(&[fallback.as_str()]);
    }
    // Labels are the rule.
    parts(&[Render::Label.as_str()]);
    for q in policy.quasi.iter().filter(|q| q.render != Render::Label) {
        parts(&["render", &q.name, q.render.as_str()]);
    }
    // Full-domain is the rule, and a search of cuts was told by its algorithm alone.
    if policy.recoding == RecodingKind::Local {
        parts(&["recoding", policy.recoding.as_str()]);
    }
    if policy.schema.envelope == Envelope::Debezium {
        parts(&["envelope", "debezium"]);
    }
    placements.iter().for_each(|part| parts(&[part]));
    if let Some(s) = &policy.sequential {
        parts(&["sequential", &format!("{} {} {} {}", s.releases, s.candidates, s.field, s.max_subjects)]);
    }
    hash.finish()
}
