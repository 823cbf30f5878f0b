//! The allow-list: which fields are read at all, where, and in which role. What is not here never leaves decode.

mod envelope;
mod path;
mod placement;

use std::sync::Arc;

pub use envelope::Envelope;
pub use path::{Path, PathError, PathTree};
pub use placement::Placement;

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
    /// Read for the conditions of `confidential`, never published.
    Private,
    /// Read for a quasi-identifier that is made of two fields, never published.
    Coordinate,
    /// Named so that nobody wonders; never read, never published.
    Identifier,
    /// The person that the record is about; counted, never published.
    Subject,
    /// The class label of `cm` and ILPG; published only if it has another role too.
    Label,
    /// Decides the window; published only if it has another role too.
    EventTime,
}

impl Role {
    /// True if a record without the field cannot be protected.
    pub fn is_needed(self) -> bool {
        matches!(self, Self::Quasi | Self::Sensitive | Self::Subject | Self::EventTime | Self::Label | Self::Coordinate)
    }
}

/// One field of the projection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attribute {
    /// The field's name: the text of its path in the output.
    pub name: Arc<str>,
    /// Where it stands in the input.
    pub path: Path,
    /// Where other inputs have it.
    pub elsewhere: Vec<Path>,
    /// All its roles; a field may have several.
    pub roles: Vec<Role>,
}

/// The projection a policy makes: the fields to read, each once, and the slots per role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schema {
    attributes: Vec<Attribute>,
    /// The envelope of the input's messages.
    pub envelope: Envelope,
    /// The array that holds a record in each element, with [`Envelope::Array`].
    pub array: Option<Path>,
    /// Slots of the quasi-identifiers, in policy order: the order of levels in a node.
    pub quasi: Vec<usize>,
    /// Slots of the sensitive fields, in policy order.
    pub sensitive: Vec<usize>,
    /// Slots of the fields passed through.
    pub keep: Vec<usize>,
    /// Those of them that were reviewed.
    pub reviewed: Vec<usize>,
    /// Slots of the fields that are read and never published.
    pub private: Vec<usize>,
    /// Quasi-identifiers that are made of two fields: the slot of each, where the first field is read, and that of the second field.
    pub pairs: Vec<(usize, usize)>,
    /// Slot of the subject.
    pub subject: Option<usize>,
    /// Slot of the class label.
    pub label: Option<usize>,
    /// Slot of the event time.
    pub event_time: Option<usize>,
    /// The columns that a release adds to its rows.
    pub added: AddedFields,
}

/// Fields that a release adds to its rows, behind the quasi-identifiers and as text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AddedFields {
    /// For each quasi-identifier the level of the row's label, as `NAME_level`.
    pub levels: bool,
    /// The effect of the row on the snapshot of a reader, as `change`.
    pub change: bool,
}

impl AddedFields {
    /// The field of a changelog.
    pub const CHANGE: &str = "change";

    /// The field with the level of a quasi-identifier.
    pub fn level_of(name: &str) -> String {
        format!("{name}_level")
    }

    /// The names of the added fields, in the order of the output.
    pub fn names<'a>(self, quasi: impl Iterator<Item = &'a str>) -> impl Iterator<Item = String> {
        let levels = quasi.filter(move |_| self.levels).map(Self::level_of);
        levels.chain(self.change.then(|| Self::CHANGE.to_owned()))
    }
}

impl Schema {
    /// Builds the projection from (name, role) pairs in policy order; a name is the text of a path. Identifiers are left out:
    /// they are never read.
    pub fn new<'a>(fields: impl IntoIterator<Item = (&'a str, Role)>) -> Self {
        let mut schema = Self {
            attributes: Vec::new(),
            envelope: Envelope::None,
            array: None,
            quasi: Vec::new(),
            sensitive: Vec::new(),
            keep: Vec::new(),
            reviewed: Vec::new(),
            private: Vec::new(),
            pairs: Vec::new(),
            subject: None,
            label: None,
            event_time: None,
            added: AddedFields::default(),
        };
        for (name, role) in fields {
            if role == Role::Identifier {
                continue;
            }
            let slot = schema.slot(name).unwrap_or_else(|| {
                schema.attributes.push(Attribute {
                    name: name.into(),
                    path: Path::of(name),
                    elsewhere: Vec::new(),
                    roles: Vec::new(),
                });
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
                Role::Private => schema.private.push(slot),
                Role::Subject => schema.subject = Some(slot),
                Role::Label => schema.label = Some(slot),
                Role::EventTime => schema.event_time = Some(slot),
                Role::Identifier | Role::Coordinate => {}
            }
        }
        schema
    }

    /// The same projection, where the quasi-identifier called `quasi` is made of these two fields. The second one is in the projection.
    #[must_use]
    pub fn paired(mut self, quasi: &str, [first, second]: [&str; 2]) -> Self {
        if let (Some(quasi), Some(second)) = (self.slot(quasi), self.slot(second)) {
            self.attributes[quasi].path = Path::of(first);
            self.pairs.push((quasi, second));
        }
        self
    }

    /// The quasi-identifier that is made of two fields of which the first is called `name`: it stands for that field.
    pub fn made_of(&self, name: &str) -> Option<&Arc<str>> {
        let made = self.pairs.iter().map(|&(quasi, _)| &self.attributes[quasi]);
        made.filter(|attribute| &**attribute.path.text() == name).map(|attribute| &attribute.name).next()
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

    /// The same projection of an input that has its fields elsewhere: `place` gives the path of each attribute there.
    pub fn reading(&self, place: impl Fn(&Attribute) -> Path) -> Self {
        let mut schema = self.clone();
        for attribute in &mut schema.attributes {
            (attribute.path, attribute.elsewhere) = (place(attribute), Vec::new());
        }
        schema
    }

    /// The same projection of an input that is an output of ours: every field where its name says, nothing around the row.
    pub fn reading_output(&self) -> Self {
        let mut schema = self.reading(|attribute| Path::of(&attribute.name));
        for (_, second) in std::mem::take(&mut schema.pairs) {
            schema.attributes[second].roles.clear();
        }
        Self { envelope: Envelope::None, array: None, ..schema }
    }

    /// The fields of the output, for those who write or read it: fields that a release adds are labels like those of
    /// quasi-identifiers.
    pub fn with_added(&self) -> Self {
        let mut schema = self.clone();
        let names: Vec<String> = self.added.names(self.quasi.iter().map(|&slot| &**self.name(slot))).collect();
        for name in names {
            let path = Path::of(&name);
            let (name, elsewhere) = (name.into(), Vec::new());
            schema.attributes.push(Attribute { name, path, elsewhere, roles: vec![Role::Quasi] });
            schema.quasi.push(schema.attributes.len() - 1);
        }
        schema.added = AddedFields::default();
        schema
    }

    /// The fields that are read, by slot, as the input nests them; with an envelope, also what it says of the row.
    pub fn input(&self) -> PathTree {
        self.envelope.places(self)
    }

    /// The published fields, by their number in the order of the output, as the output nests them.
    pub fn output(&self) -> PathTree {
        let paths: Vec<Path> = self.published().map(|slot| Path::of(self.name(slot))).collect();
        PathTree::of(paths.iter().zip(0..))
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
