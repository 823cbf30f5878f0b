//! A message's descriptor compiled for reading: fields matched to slots.
//!
//! Fields come in any order, and one that comes twice counts as the specification has it: of a single value the last, of a message
//! all together. What nobody asked for is passed over by its length and never looked into.

use std::sync::Arc;

use prost_reflect::{FieldDescriptor, MessageDescriptor};
use smallvec::SmallVec;

use super::types::{FieldType, MessageField, MessageId, MessageType, table};
use super::value::{default, json, single};
use super::wire::{Raw, WireReader};
use crate::codec::MAX_LISTED;
use crate::model::event::{Reject, RejectCode};
use crate::model::record::{Record, Value};
use crate::model::schema::{Envelope, Path, PathTree, Schema};

/// A message's descriptor, ready to decode messages into records of one [`Schema`].
pub struct MessagePlan {
    types: Vec<MessageType>,
    root: Steps,
    /// How many messages lie on the way of the paths.
    inner: usize,
    envelope: Envelope,
    width: usize,
}

/// The treatment of the fields of a message, by number; others are passed over.
struct Steps(Vec<Step>);

struct Step {
    number: u32,
    action: Action,
    /// The other members of its `oneof` among the steps: they are not set once this one is.
    clears: Vec<usize>,
}

enum Action {
    /// A field of the policy that holds one value, and the value it has where it is absent.
    Read { slot: usize, of: FieldType, absent: Value<'static> },
    /// A field of the policy that holds a list, a map or a message, as a whole.
    Gather { slot: usize, message: MessageId, at: usize, absent: Value<'static> },
    /// A message on the way of some paths, by its number among them, and the slots in it.
    Enter { inner: usize, steps: Steps, slots: Vec<usize> },
    /// Something else on the way of a path, which ends in this slot.
    Blocked(Option<usize>),
    /// A member of a `oneof` that nobody asked for.
    Pass,
}

/// The findings so far beside the values of the record.
struct Found<'a> {
    /// Fields that are read as a whole, by slot.
    gathered: Vec<(usize, (MessageId, usize), Raw<'a>)>,
    entered: SmallVec<[bool; 16]>,
}

impl MessagePlan {
    /// Compiles `message` for the fields of `schema`. Fields that it does not have stay missing.
    pub fn new(schema: &Schema, message: &MessageDescriptor) -> Self {
        let mut compiler = Compiler { types: table(message), inner: 0 };
        let root = compiler.steps(0, message, &schema.input());
        let Compiler { types, inner } = compiler;
        Self { types, root, inner, envelope: schema.envelope, width: schema.attributes().len() }
    }

    /// Decodes one message.
    pub fn decode<'a>(&self, message: &'a [u8], max_record_bytes: usize) -> Result<Record<'a>, Reject> {
        if message.len() > max_record_bytes {
            return Err(Reject::record(RejectCode::TooLarge));
        }
        let mut record = Record::new(self.envelope.slots(self.width));
        let mut found = Found { gathered: Vec::new(), entered: SmallVec::from_elem(false, self.inner) };
        self.root.absent(&mut record, &mut found);
        self.root.take(message, &mut record, &mut found)?;
        // Stable: occurrences stay in their order.
        found.gathered.sort_by_key(|(slot, ..)| *slot);
        for occurrences in found.gathered.chunk_by(|a, b| a.0 == b.0) {
            let (slot, (message, at), _) = occurrences[0];
            let raws: Vec<Raw<'_>> = occurrences.iter().map(|(.., raw)| *raw).collect();
            let mut text = String::new();
            let written = json(&self.types, &self.types[message].fields[at], &raws, 1, &mut text);
            written.map_err(|code| Reject::field(code, slot))?;
            record.values[slot] = Value::Nested(text.into());
        }
        self.envelope.open(record, self.width)
    }

    /// True if the row has a field at `path`.
    pub(in crate::codec) fn has(&self, path: &Path) -> bool {
        self.reach(path) == Ok(true)
    }

    /// The type that `path` leads into, if it leads through anything but messages.
    pub(in crate::codec) fn blocked(&self, path: &Path) -> Option<&'static str> {
        self.reach(path).err()
    }

    fn reach(&self, path: &Path) -> Result<bool, &'static str> {
        let path = self.envelope.row_place(path);
        let (mut message, mut names) = (0, path.names());
        while let [name, rest @ ..] = names {
            let Some(field) = self.types[message].fields.iter().find(|field| field.name == *name) else {
                return Ok(false);
            };
            names = rest;
            match field.of {
                _ if names.is_empty() => {}
                FieldType::Map(_) => return Err("a map"),
                _ if field.repeated => return Err("a list"),
                FieldType::Message(id) => message = id,
                _ => return Err("a single value"),
            }
        }
        Ok(true)
    }

    /// The places of the values in the row, of a very large one only the first; lists and maps are one value.
    pub(in crate::codec) fn fields(&self) -> Vec<Path> {
        let mut found = Vec::new();
        self.list(0, &mut Vec::new(), &mut found, &mut { MAX_LISTED });
        found.into_iter().filter_map(|names| self.envelope.row_path(names)).collect()
    }

    /// Lists the values in a message; `outer` are the names around it. A message inside itself is one value.
    fn list(
        &self,
        of: MessageId,
        outer: &mut Vec<(MessageId, Arc<str>)>,
        found: &mut Vec<Vec<Arc<str>>>,
        left: &mut usize,
    ) {
        for field in &self.types[of].fields {
            if *left == 0 {
                return;
            }
            *left -= 1;
            outer.push((of, Arc::clone(&field.name)));
            match field.of.message().filter(|id| !field.repeated && outer.iter().all(|(outer, _)| outer != id)) {
                Some(id) => self.list(id, outer, found, left),
                None => found.push(outer.iter().map(|(_, name)| Arc::clone(name)).collect()),
            }
            outer.pop();
        }
    }
}

struct Compiler {
    types: Vec<MessageType>,
    inner: usize,
}

impl Compiler {
    /// The steps in `message` for `fields`. Recurses once per name of a path.
    fn steps(&mut self, id: MessageId, message: &MessageDescriptor, fields: &PathTree) -> Steps {
        let mut declared: Vec<FieldDescriptor> = message.fields().collect();
        declared.sort_by_key(FieldDescriptor::number);
        let wanted = |field: &FieldDescriptor| fields.get(field.name()).is_some();
        let shares =
            |field: &FieldDescriptor| field.containing_oneof().is_some_and(|of| of.fields().any(|f| wanted(&f)));
        let mut steps = Vec::new();
        let kept: Vec<(usize, FieldDescriptor)> =
            declared.into_iter().enumerate().filter(|(_, field)| wanted(field) || shares(field)).collect();
        for (at, field) in &kept {
            let action = fields.get(field.name()).map_or(Action::Pass, |inner| self.action(id, *at, field, inner));
            let rival = |other: &FieldDescriptor| {
                other != field
                    && other.containing_oneof().is_some()
                    && other.containing_oneof() == field.containing_oneof()
            };
            let clears = kept.iter().enumerate().filter(|(_, (_, other))| rival(other)).map(|(step, _)| step);
            steps.push(Step { number: field.number(), action, clears: clears.collect() });
        }
        Steps(steps)
    }

    fn action(&mut self, message: MessageId, at: usize, field: &FieldDescriptor, inner: &PathTree) -> Action {
        let declared @ MessageField { of, repeated, .. } = &self.types[message].fields[at];
        match (inner, of.message(), field.kind().as_message()) {
            (PathTree::Leaf(slot), ..) if of.is_single() && !repeated => {
                Action::Read { slot: *slot, of: of.clone(), absent: default(declared) }
            }
            (PathTree::Leaf(slot), ..) => Action::Gather { slot: *slot, message, at, absent: default(declared) },
            (_, Some(id), Some(descriptor)) if !repeated => {
                let inner_number = self.inner;
                self.inner += 1;
                Action::Enter { inner: inner_number, steps: self.steps(id, descriptor, inner), slots: inner.leaves() }
            }
            _ => Action::Blocked(inner.leaves().first().copied()),
        }
    }
}

impl Steps {
    /// Sets what an empty message has.
    fn absent<'a>(&self, record: &mut Record<'a>, found: &mut Found<'a>) {
        for step in &self.0 {
            match &step.action {
                Action::Read { slot, absent, .. } | Action::Gather { slot, absent, .. } => {
                    record.values[*slot] = absent.clone();
                }
                Action::Enter { inner, slots, .. } => {
                    found.entered[*inner] = false;
                    slots.iter().for_each(|slot| record.values[*slot] = Value::Null);
                }
                Action::Blocked(_) | Action::Pass => {}
            }
        }
    }

    fn take<'a>(&self, message: &'a [u8], record: &mut Record<'a>, found: &mut Found<'a>) -> Result<(), Reject> {
        let (mut cursor, mut expected) = (WireReader::new(message), 0);
        while let Some((number, raw)) = cursor.field().map_err(Reject::record)? {
            // Most writers send fields by number.
            let at = match self.0.get(expected) {
                Some(step) if step.number == number => expected,
                _ => match self.0.binary_search_by_key(&number, |step| step.number) {
                    Ok(at) => at,
                    Err(_) => continue,
                },
            };
            expected = at + 1;
            self.0[at].clears.iter().for_each(|other| self.0[*other].action.clear(record, found));
            self.0[at].action.take(raw, record, found)?;
        }
        Ok(())
    }
}

impl Action {
    fn take<'a>(&self, raw: Raw<'a>, record: &mut Record<'a>, found: &mut Found<'a>) -> Result<(), Reject> {
        match self {
            Self::Read { slot, of, .. } => {
                record.values[*slot] = single(of, raw).map_err(|code| Reject::field(code, *slot))?;
            }
            Self::Gather { slot, message, at, .. } => found.gathered.push((*slot, (*message, *at), raw)),
            Self::Enter { inner, steps, .. } => {
                let (Raw::Bytes(bytes) | Raw::Group(bytes)) = raw else {
                    return Err(Reject::record(RejectCode::Malformed));
                };
                if !std::mem::replace(&mut found.entered[*inner], true) {
                    steps.absent(record, found);
                }
                steps.take(bytes, record, found)?;
            }
            Self::Blocked(field) => return Err(Reject { code: RejectCode::NotAnObject, field: *field }),
            Self::Pass => {}
        }
        Ok(())
    }

    /// The field is not set, after all.
    fn clear<'a>(&self, record: &mut Record<'a>, found: &mut Found<'a>) {
        let slots = match self {
            Self::Read { slot, .. } | Self::Gather { slot, .. } => std::slice::from_ref(slot),
            Self::Enter { inner, slots, .. } => {
                found.entered[*inner] = false;
                slots.as_slice()
            }
            Self::Blocked(_) | Self::Pass => &[],
        };
        found.gathered.retain(|(slot, ..)| !slots.contains(slot));
        slots.iter().for_each(|slot| record.values[*slot] = Value::Null);
    }
}
