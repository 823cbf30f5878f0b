//! Descriptors: from the text of a schema, from a serialized one, and from a file of them.

use std::collections::HashMap;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use prost_reflect::prost::Message as _;
use prost_reflect::prost_types::{FileDescriptorProto, FileDescriptorSet};
use prost_reflect::{DescriptorPool, FileDescriptor, MessageDescriptor};
use protox::Compiler;
use protox::file::{ChainFileResolver, File, FileResolver, GoogleFileResolver};

use crate::codec::{CodecError, MAX_DEPTH};

/// The name of the file that a schema is, for what it imports.
const OWN: &str = "veilstream-message.proto";

/// The imports of a schema, by their names in it.
struct Imports(HashMap<String, File>);

impl FileResolver for Imports {
    fn open_file(&self, name: &str) -> Result<File, protox::Error> {
        self.0.get(name).cloned().ok_or_else(|| protox::Error::file_not_found(name))
    }
}

/// The messages of a schema as a registry has it: its text, or base64 of a serialized descriptor. `imports` are the schemas that
/// it refers to, by the names under which it imports them.
pub(in crate::codec) fn compile(schema: &str, imports: &HashMap<String, String>) -> Result<FileDescriptor, CodecError> {
    let bad = CodecError::BadProtobufSchema;
    let mut files = HashMap::new();
    for (name, text) in imports.iter().map(|(name, text)| (name.as_str(), text.as_str())).chain([(OWN, schema)]) {
        files.insert(name.to_owned(), file(name, text).ok_or(bad.clone())?);
    }
    let mut resolver = ChainFileResolver::new();
    resolver.add(Imports(files));
    resolver.add(GoogleFileResolver::new());
    let mut compiler = Compiler::with_file_resolver(resolver);
    compiler.open_file(OWN).map_err(|_| bad.clone())?;
    compiler.descriptor_pool().get_file_by_name(OWN).ok_or(bad)
}

fn file(name: &str, schema: &str) -> Option<File> {
    let open = |depth: usize, byte: u8| match byte {
        b'{' | b'[' | b'<' | b'(' => depth + 1,
        b'}' | b']' | b'>' | b')' => depth.saturating_sub(1),
        _ => depth,
    };
    // The parser recurses.
    let deepest = schema.bytes().scan(0, |depth, byte| {
        *depth = open(*depth, byte);
        Some(*depth)
    });
    if deepest.max().unwrap_or(0) > MAX_DEPTH {
        return None;
    }
    match BASE64_STANDARD.decode(schema.trim()) {
        Ok(serialized) => {
            let file = File::decode_file_descriptor_proto(serialized.as_slice()).ok()?;
            let mut file = file.file_descriptor_proto().clone();
            if !is_known(&file) {
                return None;
            }
            file.name = Some(name.to_owned());
            Some(File::from_file_descriptor_proto(file))
        }
        Err(_) => File::from_source(name, schema).ok(),
    }
}

/// True for a syntax that is read. On others, editions among them, the pool of descriptors does not fail, it panics.
fn is_known(file: &FileDescriptorProto) -> bool {
    matches!(file.syntax.as_deref(), None | Some("proto2" | "proto3"))
}

/// The message at a list of indexes: the first counts those of the file, each further one those inside the message before it.
pub(in crate::codec) fn message_at(file: &FileDescriptor, indexes: &[u32]) -> Option<MessageDescriptor> {
    let (first, inner) = indexes.split_first()?;
    let first = file.messages().nth(*first as usize)?;
    inner.iter().try_fold(first, |message, index| message.child_messages().nth(*index as usize))
}

/// The message of this full name in a file of descriptors, as `protoc --include_imports --descriptor_set_out` writes it.
pub fn message_of(descriptors: &[u8], name: &str) -> Result<MessageDescriptor, CodecError> {
    let files = FileDescriptorSet::decode(descriptors).map_err(|_| CodecError::BadDescriptor)?;
    if !files.file.iter().all(is_known) {
        return Err(CodecError::BadDescriptor);
    }
    let pool = DescriptorPool::decode(descriptors).map_err(|_| CodecError::BadDescriptor)?;
    pool.get_message_by_name(name).ok_or(CodecError::NoMessage)
}
