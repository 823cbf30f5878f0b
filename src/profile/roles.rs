//! Which role a field should have, with the reason: by its name, by what its values are, and by how far it singles people out.
//!
//! In doubt the proposal is the careful one: a field of unknown meaning with few values counts as known to others (quasi-identifier),
//! one with many values is left out. Nobody has to follow it.

use super::column::FieldKind;
use super::intake::TableProfile;
use super::names::{self, CONTACTS, FACTS, IDENTIFIERS, NumberOf, QUASI, SENSITIVE};
use super::sample::SinglingOut;
use crate::model::schema::Envelope;

/// Above this share of people who are alone with their value, a field identifies by itself.
const IDENTIFIES: f64 = 0.5;
/// Above this share, a fact is not passed on unchanged. The service withholds it from half on.
const TELLS_APART: f64 = 0.05;
/// The most values of a field of unknown meaning that is proposed as a quasi-identifier.
const FEW_VALUES: u64 = 100;
/// Up to this many values, a telephone or a card is told by its kind, or whether there is one.
const KINDS: u64 = 5;
/// Below this many values for each record, a number is that of somebody who has several records.
const REPEATS: f64 = 0.98;
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
    let subject = profile.subject.or_else(|| subject(profile, &roles, alone));
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

/// The field that says whose a record is: a number of a person, else of something that a person uses, else an address or a number
/// that several records have. Of several, one that comes back.
fn subject(profile: &TableProfile, roles: &[RoleProposal], alone: &[SinglingOut]) -> Option<usize> {
    let rank = |field: &usize| {
        let (measure, kind) = (&alone[*field], profile.kind(*field));
        let repeats = measure.distinction < REPEATS;
        let number = names::number_of(&names::parts(&profile.names[*field]), measure.distinct <= FEW_VALUES);
        let rank = match number {
            Some(NumberOf::Person) => 8,
            Some(NumberOf::Device) => 6,
            // The key of a table, where a change is one more record of it.
            Some(NumberOf::Unsaid) if profile.envelope == Envelope::Debezium => 5,
            _ if kind == FieldKind::Email => 4,
            _ if kind == FieldKind::Phone && repeats => 3,
            // Not the number of a record.
            Some(NumberOf::Unsaid) if repeats => 2,
            _ if names::parts(&profile.names[*field]).first().is_some_and(|leaf| names::is_somebody(leaf)) => 6,
            _ => return 0,
        };
        rank * 2 + u8::from(repeats)
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
    let kind = profile.kind(field);
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

/// By the leaf of a path; by a part around it only if the leaf says nothing.
fn by_name(name: &str, kind: FieldKind, alone: &SinglingOut) -> Option<RoleProposal> {
    use ProposedRole::{Identifier, Quasi};
    let parts = names::parts(name);
    if kind == FieldKind::Place {
        return Some(RoleProposal::named(Quasi, "a place on the map, such as a home".into()));
    }
    if kind == FieldKind::Ip {
        return Some(RoleProposal::named(Quasi, "an internet address leads to a household or a company".into()));
    }
    if matches!(kind, FieldKind::Date(_)) {
        let why = match parts.iter().find_map(|part| names::find(part, QUASI)) {
            Some(word) => format!("`{word}` in its name, and others may know the day"),
            None => "a day or time that others may know".into(),
        };
        return Some(RoleProposal::named(Quasi, why));
    }
    let whose = match names::number_of(&parts, alone.distinct <= FEW_VALUES) {
        Some(NumberOf::Person | NumberOf::Device) => Some("a person or their device"),
        Some(_) => Some("one thing"),
        None => None,
    };
    if let Some(whose) = whose {
        return Some(RoleProposal::named(Identifier, format!("its name is that of a number for {whose}")));
    }
    if parts.first().is_some_and(|leaf| names::is_somebody(leaf)) && alone.distinct > FEW_VALUES {
        return Some(RoleProposal::named(Identifier, "its name is that of a person or their device".into()));
    }
    (0..parts.len()).find_map(|place| by_part(&parts[place], &parts[place + 1..], alone))
}

fn by_part(part: &[String], around: &[Vec<String>], alone: &SinglingOut) -> Option<RoleProposal> {
    use ProposedRole::{Identifier, Keep, Leave, Quasi, Sensitive};
    if names::is_personal_name(part, around) {
        return Some(RoleProposal::named(Identifier, "its name is that of a person's name".into()));
    }
    let many = alone.uniqueness > TELLS_APART || alone.distinct > KINDS;
    let contact = || names::find_last(part, CONTACTS, &[QUASI, SENSITIVE, FACTS]).filter(|_| many);
    if let Some(word) = names::find_last(part, IDENTIFIERS, &[QUASI, SENSITIVE, FACTS]).or_else(contact) {
        return Some(RoleProposal::named(Identifier, format!("`{word}` in its name")));
    }
    if let Some(word) = names::find(part, SENSITIVE) {
        return Some(RoleProposal::named(Sensitive, format!("`{word}` in its name: nobody would want it told")));
    }
    if let Some(word) = names::find(part, QUASI) {
        return Some(RoleProposal::named(Quasi, format!("`{word}` in its name: others may know it")));
    }
    let word = names::find(part, FACTS)?;
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
    if alone.uniqueness > IDENTIFIES && !kind.is_number() {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn role(name: &str, distinct: u64, uniqueness: f64) -> Option<ProposedRole> {
        let alone = SinglingOut { distinct, distinction: 0.5, separation: 0.9, uniqueness };
        by_name(name, FieldKind::Text, &alone).map(|proposal| proposal.role)
    }

    #[test]
    fn the_leaf_of_a_path_decides() {
        use ProposedRole::{Identifier, Keep, Quasi, Sensitive};
        for (name, expected) in [
            ("patient.address.zip", Some(Quasi)),
            ("address.city", Some(Quasi)),
            ("billing_address_city", Some(Quasi)),
            ("address.street", Some(Identifier)),
            ("address.line", Some(Identifier)),
            ("home_address", Some(Identifier)),
            ("card_type", Some(Keep)),
            ("profile.diagnosis", Some(Sensitive)),
            ("patient.department.id", Some(Identifier)),
            ("patient.shoe", None),
        ] {
            assert_eq!(role(name, 300, 0.01), expected, "{name}");
        }
    }

    #[test]
    fn names_of_people_identify_whatever_their_number() {
        use ProposedRole::Identifier;
        let of_people = [
            "Vorname",
            "Nachname",
            "first_name",
            "last_name",
            "FirstName",
            "surname",
            "name",
            "customer.name",
            "profile.name.first",
            "prénom",
            "nom",
            "apellidos",
            "cognome",
            "voornaam",
            "nazwisko",
            "Patientenname",
            "nombre_paciente",
            "фамилия",
            "mrn",
            "ssn",
            "姓名",
        ];
        for name in of_people {
            assert_eq!(role(name, 8, 0.0), Some(Identifier), "{name}");
        }
        let of_things = ["city_name", "product.name", "hospitalName", "nombre_enfants", "phone_service", "filename"];
        for name in of_things {
            assert_ne!(role(name, 4, 0.0), Some(Identifier), "{name}");
        }
    }
}
