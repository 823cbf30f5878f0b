//! The allow-list: which fields are read at all, and in which role. What is not here never leaves decode.

use std::sync::Arc;

/// Why a field is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// Generalized before it is published.
    Quasi,
    /// Published as it is; what the criteria protect.
    Sensitive,
    /// Passed through unchanged (`keep`), unless that would identify people.
    Insensitive,
    /// Passed through unchanged whatever it holds: the policy says that somebody has looked at it.
    Reviewed,
    /// Named so that nobody wonders; never read, never published.
    Identifier,
    /// Who the record is about; counted, never published.
    Subject,
    /// The class label of `cm` and ILPG; published only if it has another role too.
    Label,
    /// Decides the window; published only if it has another role too.
    EventTime,
}

/// One field of the projection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attribute {
    /// The field's name in the input and in the output.
    pub name: Arc<str>,
    /// All its roles; a field may have several.
    pub roles: Vec<Role>,
}

/// The projection a policy makes: the fields to read, each once, and the slots per role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schema {
    attributes: Vec<Attribute>,
    /// Slots of the quasi-identifiers, in policy order: the order of levels in a node.
    pub quasi: Vec<usize>,
    /// Slots of the sensitive fields, in policy order.
    pub sensitive: Vec<usize>,
    /// Slots of the fields passed through.
    pub keep: Vec<usize>,
    /// Those of them that were reviewed.
    pub reviewed: Vec<usize>,
    /// Slot of the subject.
    pub subject: Option<usize>,
    /// Slot of the class label.
    pub label: Option<usize>,
    /// Slot of the event time.
    pub event_time: Option<usize>,
}

impl Schema {
    /// Builds the projection from (name, role) pairs in policy order. Identifiers are left out: they are never read.
    pub fn new<'a>(fields: impl IntoIterator<Item = (&'a str, Role)>) -> Self {
        let mut schema = Self {
            attributes: Vec::new(),
            quasi: Vec::new(),
            sensitive: Vec::new(),
            keep: Vec::new(),
            reviewed: Vec::new(),
            subject: None,
            label: None,
            event_time: None,
        };
        for (name, role) in fields {
            if role == Role::Identifier {
                continue;
            }
            let slot = schema.slot(name).unwrap_or_else(|| {
                schema.attributes.push(Attribute { name: name.into(), roles: Vec::new() });
                schema.attributes.len() - 1
            });
            schema.attributes[slot].roles.push(role);
            match role {
                Role::Quasi => schema.quasi.push(slot),
                Role::Sensitive => schema.sensitive.push(slot),
                Role::Insensitive => schema.keep.push(slot),
                Role::Reviewed => {
                    schema.keep.push(slot);
                    schema.reviewed.push(slot);
                }
                Role::Subject => schema.subject = Some(slot),
                Role::Label => schema.label = Some(slot),
                Role::EventTime => schema.event_time = Some(slot),
                Role::Identifier => {}
            }
        }
        schema
    }

    /// All fields that are read, in slot order.
    pub fn attributes(&self) -> &[Attribute] {
        &self.attributes
    }

    /// The slot of the field called `name`.
    pub fn slot(&self, name: &str) -> Option<usize> {
        self.attributes.iter().position(|a| &*a.name == name)
    }

    /// The name of the field in `slot`.
    pub fn name(&self, slot: usize) -> &Arc<str> {
        &self.attributes[slot].name
    }

    /// The kept fields in the order of the output, and whether they were reviewed.
    pub fn kept(&self) -> impl Iterator<Item = (Arc<str>, bool)> + '_ {
        self.keep.iter().map(|slot| (Arc::clone(self.name(*slot)), self.reviewed.contains(slot)))
    }

    /// The slots that are published, in the order of the output: quasi, then sensitive, then kept.
    pub fn published(&self) -> impl Iterator<Item = usize> + '_ {
        self.quasi.iter().chain(&self.sensitive).chain(&self.keep).copied()
    }
}
