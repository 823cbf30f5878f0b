//! Which role a field should have, with the reason: by its name, by what its values are, and by how far it singles people out.
//!
//! In doubt the proposal is the careful one: a field of unknown meaning with few values counts as known to others (quasi-identifier),
//! one with many values is left out. Nobody has to follow it.

use super::column::FieldKind;
use super::intake::TableProfile;
use super::names::{self, DEVICES, FACTS, IDENTIFIERS, NUMBERS, PEOPLE, QUASI, SENSITIVE};
use super::sample::SinglingOut;
use crate::model::schema::Envelope;

/// Above this share of people who are alone with their value, a field identifies by itself.
const IDENTIFIES: f64 = 0.5;
/// Above this share, a fact is not passed on unchanged. The service withholds it from half on.
const TELLS_APART: f64 = 0.05;
/// The most values of a field of unknown meaning that is proposed as a quasi-identifier.
const FEW_VALUES: u64 = 100;
/// The most quasi-identifiers that are proposed. More: the lattice grows, and every release loses more.
const MOST_QUASI: usize = 10;

/// What a field should be in the policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProposedRole {
    /// Says whose the record is.
    Subject,
    /// Never read, never published.
    Identifier,
    /// Generalized.
    Quasi,
    /// Published as it is, protected by criteria.
    Sensitive,
    /// Passed through.
    Keep,
    /// Not named in the policy, so dropped.
    Leave,
}

impl ProposedRole {
    /// The name in tables and JSON.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Subject => "subject",
            Self::Identifier => "identifier",
            Self::Quasi => "quasi-identifier",
            Self::Sensitive => "sensitive",
            Self::Keep => "keep",
            Self::Leave => "leave out",
        }
    }
}

/// A role, and why.
#[derive(Debug, Clone)]
pub(crate) struct RoleProposal {
    /// The role.
    pub(crate) role: ProposedRole,
    /// Why, in a few words without a value.
    pub(crate) reason: String,
    /// How much the name speaks for it: proposals by name come before others.
    named: bool,
}

impl RoleProposal {
    /// A role that somebody chose.
    pub(crate) fn chosen(role: ProposedRole) -> Self {
        let reason = if role == ProposedRole::Leave { "not wanted" } else { "chosen" };
        Self::named(role, reason.into())
    }

    fn named(role: ProposedRole, reason: String) -> Self {
        Self { role, reason, named: true }
    }

    fn measured(role: ProposedRole, reason: String) -> Self {
        Self { role, reason, named: false }
    }
}

/// A role for every field.
pub(crate) fn propose(profile: &TableProfile, alone: &[SinglingOut]) -> Vec<RoleProposal> {
    let mut roles: Vec<RoleProposal> =
        (0..profile.names.len()).map(|field| one(profile, field, &alone[field])).collect();
    let subject = profile.subject.or_else(|| subject(profile, &roles));
    if let Some(subject) = subject {
        let reason = match profile.subject {
            Some(_) => "given".to_owned(),
            None => "says whose the record is: people are counted by it".to_owned(),
        };
        roles[subject] = RoleProposal::named(ProposedRole::Subject, reason);
    }
    limit_quasi(&mut roles, alone);
    roles
}

/// The field that says whose a record is: a number of a person, else of something that a person uses.
fn subject(profile: &TableProfile, roles: &[RoleProposal]) -> Option<usize> {
    let rank = |field: &usize| {
        let words = names::words(&profile.names[*field]);
        let number = names::find(&words, NUMBERS).is_some() || words.len() == 1;
        let person = names::find(&words, PEOPLE).is_some();
        let device = names::find(&words, DEVICES).is_some();
        match (number, person, device) {
            (true, true, _) => 3,
            (true, _, true) => 2,
            _ if profile.columns[*field].kind() == FieldKind::Email => 1,
            // The key of a table, where a change is one more record of it.
            _ if profile.envelope == Envelope::Debezium && words == ["id"] => 1,
            _ => 0,
        }
    };
    let candidates = (0..roles.len()).filter(|field| roles[*field].role == ProposedRole::Identifier);
    // The first of the best: `max_by_key` keeps the last.
    candidates.rev().max_by_key(rank).filter(|field| rank(field) > 0)
}

/// Leaves out the quasi-identifiers that are too many: those that only figures speak for, and tell the fewest people apart.
fn limit_quasi(roles: &mut [RoleProposal], alone: &[SinglingOut]) {
    let mut quasi: Vec<usize> = (0..roles.len()).filter(|field| roles[*field].role == ProposedRole::Quasi).collect();
    quasi.sort_by(|a, b| {
        roles[*b].named.cmp(&roles[*a].named).then(alone[*b].separation.total_cmp(&alone[*a].separation))
    });
    for field in quasi.into_iter().skip(MOST_QUASI) {
        let reason =
            format!("{MOST_QUASI} other quasi-identifiers tell more people apart, and more of them cost too much");
        roles[field] = RoleProposal::measured(ProposedRole::Leave, reason);
    }
}

fn one(profile: &TableProfile, field: usize, alone: &SinglingOut) -> RoleProposal {
    use ProposedRole::{Identifier, Leave};
    let kind = profile.columns[field].kind();
    match kind {
        FieldKind::Empty => RoleProposal::measured(Leave, "no record has a value".into()),
        FieldKind::Nested => RoleProposal::measured(Leave, "holds objects or lists".into()),
        FieldKind::Email | FieldKind::Uuid | FieldKind::Phone => {
            RoleProposal::named(Identifier, format!("its values are of the kind {}", kind.as_str()))
        }
        FieldKind::FreeText => RoleProposal::named(Identifier, "free text can say anything about anybody".into()),
        _ => by_name(&profile.names[field], kind, alone).unwrap_or_else(|| by_figures(kind, alone)),
    }
}

fn by_name(name: &str, kind: FieldKind, alone: &SinglingOut) -> Option<RoleProposal> {
    use ProposedRole::{Identifier, Keep, Leave, Quasi, Sensitive};
    let words = names::words(name);
    let find = |list| names::find(&words, list);
    let number = find(NUMBERS).is_some();
    if number && (find(PEOPLE).is_some() || find(DEVICES).is_some()) {
        return Some(RoleProposal::named(
            Identifier,
            "its name is that of a number for a person or their device".into(),
        ));
    }
    if number {
        return Some(RoleProposal::named(Identifier, "its name is that of a number for one thing".into()));
    }
    if kind == FieldKind::Ip {
        return Some(RoleProposal::named(Quasi, "an internet address leads to a household or a company".into()));
    }
    if matches!(kind, FieldKind::Date(_)) {
        let why = match find(QUASI) {
            Some(word) => format!("`{word}` in its name, and others may know the day"),
            None => "a day or time that others may know".into(),
        };
        return Some(RoleProposal::named(Quasi, why));
    }
    // A name that alone stands for a person, and one whose values nearly all are one person's.
    let person = words.len() == 1 && find(PEOPLE).is_some() || words.len() == 1 && find(DEVICES).is_some();
    if let Some(word) = find(IDENTIFIERS).filter(|_| alone.uniqueness > TELLS_APART || alone.distinct > FEW_VALUES) {
        return Some(RoleProposal::named(Identifier, format!("`{word}` in its name")));
    }
    if person && alone.distinct > FEW_VALUES {
        return Some(RoleProposal::named(Identifier, "its name is that of a person or their device".into()));
    }
    if let Some(word) = find(SENSITIVE) {
        return Some(RoleProposal::named(Sensitive, format!("`{word}` in its name: nobody would want it told")));
    }
    if let Some(word) = find(QUASI) {
        return Some(RoleProposal::named(Quasi, format!("`{word}` in its name: others may know it")));
    }
    let word = find(FACTS)?;
    Some(match alone.uniqueness <= TELLS_APART {
        true => RoleProposal::named(Keep, format!("`{word}` in its name: what happened, not who it was")),
        false => RoleProposal::named(
            Leave,
            format!("`{word}` in its name, but {} are alone with their value", percent(alone.uniqueness)),
        ),
    })
}

fn by_figures(kind: FieldKind, alone: &SinglingOut) -> RoleProposal {
    use ProposedRole::{Identifier, Leave, Quasi};
    if alone.distinct <= 1 {
        return RoleProposal::measured(Leave, "has one value only".into());
    }
    if alone.uniqueness > IDENTIFIES && !matches!(kind, FieldKind::Number | FieldKind::Integer) {
        return RoleProposal::measured(Identifier, format!("{} are alone with their value", percent(alone.uniqueness)));
    }
    if alone.distinct <= FEW_VALUES {
        let reason = format!("unknown meaning and {} values: taken for something that others know", alone.distinct);
        return RoleProposal::measured(Quasi, reason);
    }
    RoleProposal::measured(
        Leave,
        format!("unknown meaning and {} values: name it in `keep` after a look", alone.distinct),
    )
}

/// A share for people.
pub(crate) fn percent(share: f64) -> String {
    match share {
        0.0 => "0 %".into(),
        share if share < 0.001 => "under 0.1 %".into(),
        share => format!("{:.1} %", 100.0 * share),
    }
}
