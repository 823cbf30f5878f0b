//! Avro object container files: blocks of data between sync markers.
//!
//! Written by hand as well, because a release must come out byte for byte the same when it is made again, and a
//! library that draws its sync marker at random cannot do that.

use std::io::{self, Read};
use std::sync::Arc;

use apache_avro::{Bzip2Settings, Codec, DeflateSettings, Schema as AvroSchema, XzSettings, ZstandardSettings};
use bytes::Bytes;

use super::parse_schema;

const MAGIC: &[u8; 4] = b"Obj\x01";

/// The largest block that is read, compressed or not. Larger: a corrupt length allocates that much. Smaller: files
/// with large blocks cannot be read; writers stay below a few megabytes.
const MAX_BLOCK_BYTES: usize = 64 << 20;

/// A failure to read a container file. None of them quotes the file.
#[derive(Debug, thiserror::Error)]
pub enum ContainerError {
    /// The bytes did not come.
    #[error("cannot read the avro file")]
    Io(#[from] io::Error),
    /// The magic bytes are others.
    #[error("not an avro container file")]
    NotAvro,
    /// The header holds no usable schema.
    #[error("the avro file has no valid schema")]
    BadSchema,
    /// A compression that this build does not read.
    #[error("the avro file is compressed with an unknown codec: write it with deflate, snappy, zstandard, bzip2 or xz")]
    UnsupportedCodec,
    /// A block is truncated, or does not end where it says.
    #[error("the avro file is corrupt: {0}")]
    Corrupt(&'static str),
}

/// One block: how many data, and their bytes.
pub struct Block {
    /// How many data the block claims to hold.
    pub count: usize,
    /// The data, one after the other.
    pub bytes: Bytes,
}

/// Reads the blocks of a container file.
pub struct ContainerReader<R> {
    input: R,
    schema: Arc<AvroSchema>,
    codec: Codec,
    sync: [u8; 16],
}

impl<R: Read> ContainerReader<R> {
    /// Reads the header. `input` is read in small pieces: give it a buffer.
    pub fn open(mut input: R) -> Result<Self, ContainerError> {
        // The library's own default is 512 MiB; it inflates the blocks.
        apache_avro::util::max_allocation_bytes(MAX_BLOCK_BYTES);
        let mut magic = [0; 4];
        input.read_exact(&mut magic).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => ContainerError::NotAvro,
            _ => ContainerError::Io(error),
        })?;
        if &magic != MAGIC {
            return Err(ContainerError::NotAvro);
        }
        let (mut schema, mut codec) = (None, Codec::Null);
        let mut budget = MAX_BLOCK_BYTES;
        loop {
            let count = read_long(&mut input)?;
            if count == 0 {
                break;
            }
            if count < 0 {
                read_long(&mut input)?;
            }
            for _ in 0..count.unsigned_abs() {
                let key = read_bytes(&mut input, &mut budget)?;
                let value = read_bytes(&mut input, &mut budget)?;
                match key.as_slice() {
                    b"avro.schema" => {
                        schema = std::str::from_utf8(&value).ok().and_then(|text| parse_schema(text).ok())
                    }
                    b"avro.codec" => codec = codec_of(&value)?,
                    _ => {}
                }
            }
        }
        let mut sync = [0; 16];
        input.read_exact(&mut sync).map_err(|_| ContainerError::Corrupt("truncated header"))?;
        Ok(Self { input, schema: schema.ok_or(ContainerError::BadSchema)?, codec, sync })
    }

    /// The schema that the data were written with.
    pub fn schema(&self) -> &Arc<AvroSchema> {
        &self.schema
    }

    /// The next block; `None` at the end of the file.
    pub fn next_block(&mut self) -> Result<Option<Block>, ContainerError> {
        let mut first = [0; 1];
        if self.input.read(&mut first)? == 0 {
            return Ok(None);
        }
        let count = read_long(&mut (&first[..]).chain(&mut self.input))?;
        let count = usize::try_from(count).map_err(|_| ContainerError::Corrupt("bad block count"))?;
        let mut budget = MAX_BLOCK_BYTES;
        let mut bytes = read_bytes(&mut self.input, &mut budget)?;
        let mut sync = [0; 16];
        self.input.read_exact(&mut sync).map_err(|_| ContainerError::Corrupt("truncated block"))?;
        if sync != self.sync {
            return Err(ContainerError::Corrupt("lost its place between two blocks"));
        }
        self.codec.decompress(&mut bytes).map_err(|_| ContainerError::Corrupt("a block does not inflate"))?;
        // Only data of no fields at all take no bytes; they carry nothing to anonymize.
        if count > bytes.len() {
            return Err(ContainerError::Corrupt("bad block count"));
        }
        Ok(Some(Block { count, bytes: bytes.into() }))
    }
}

fn codec_of(name: &[u8]) -> Result<Codec, ContainerError> {
    match name {
        b"null" => Ok(Codec::Null),
        b"deflate" => Ok(Codec::Deflate(DeflateSettings::default())),
        b"snappy" => Ok(Codec::Snappy),
        b"zstandard" => Ok(Codec::Zstandard(ZstandardSettings::default())),
        b"bzip2" => Ok(Codec::Bzip2(Bzip2Settings::default())),
        b"xz" => Ok(Codec::Xz(XzSettings::default())),
        _ => Err(ContainerError::UnsupportedCodec),
    }
}

fn read_long(input: &mut impl Read) -> Result<i64, ContainerError> {
    let mut bytes = [0; 10];
    for i in 0..bytes.len() {
        input.read_exact(&mut bytes[i..=i]).map_err(|_| ContainerError::Corrupt("truncated number"))?;
        if bytes[i] & 0x80 == 0 {
            break;
        }
    }
    super::datum::read_long(&bytes).map(|(value, _)| value).ok_or(ContainerError::Corrupt("bad number"))
}

fn read_bytes(input: &mut impl Read, budget: &mut usize) -> Result<Vec<u8>, ContainerError> {
    let size = usize::try_from(read_long(input)?).ok().filter(|size| size <= budget);
    let size = size.ok_or(ContainerError::Corrupt("bad length"))?;
    *budget -= size;
    let mut bytes = Vec::new();
    // Grows with what is really there, so that a corrupt length costs nothing.
    input.take(size as u64).read_to_end(&mut bytes)?;
    if bytes.len() < size { Err(ContainerError::Corrupt("truncated block")) } else { Ok(bytes) }
}

/// Writes the blocks of a container file, uncompressed.
pub struct ContainerWriter {
    schema: String,
    sync: [u8; 16],
    block: Vec<u8>,
    count: i64,
}

impl ContainerWriter {
    /// A block is written out when it has grown to this. Larger: a reader has to hold more at once. Smaller: more
    /// markers than needed. The specification's own writers use the same.
    const BLOCK_BYTES: usize = 16_000;

    /// A writer of data of `schema` (as JSON). The sync marker is made from the schema: same rows, same bytes.
    pub fn new(schema: String) -> Self {
        use std::hash::BuildHasher as _;
        let half = |salt: u64| rustc_hash::FxBuildHasher.hash_one((salt, &schema)).to_le_bytes();
        let mut sync = [0; 16];
        sync[..8].copy_from_slice(&half(0x7665_696c));
        sync[8..].copy_from_slice(&half(0x7374_7265_616d));
        Self { schema, sync, block: Vec::new(), count: 0 }
    }

    /// The marker that ends the header and every block.
    pub fn sync(&self) -> &[u8] {
        &self.sync
    }

    /// Appends the file header.
    pub fn header(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(MAGIC);
        write_long(2, out);
        for (key, value) in [("avro.schema", self.schema.as_str()), ("avro.codec", "null")] {
            write_bytes(key.as_bytes(), out);
            write_bytes(value.as_bytes(), out);
        }
        write_long(0, out);
        out.extend_from_slice(&self.sync);
    }

    /// Adds the datum that `write` appends, and appends the block to `out` once it is large enough.
    pub fn datum<E>(&mut self, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>) -> Result<(), E> {
        let start = self.block.len();
        if let Err(error) = write(&mut self.block) {
            self.block.truncate(start);
            return Err(error);
        }
        self.count += 1;
        if self.block.len() >= Self::BLOCK_BYTES {
            self.flush(out);
        }
        Ok(())
    }

    /// Appends what has not been written out yet.
    pub fn flush(&mut self, out: &mut Vec<u8>) {
        if self.count > 0 {
            write_long(self.count, out);
            write_bytes(&self.block, out);
            out.extend_from_slice(&self.sync);
            self.block.clear();
            self.count = 0;
        }
    }
}

/// A number at the start of a datum, and the rest of it.
pub(in crate::codec) fn take_long(datum: &[u8]) -> Option<(i64, &[u8])> {
    super::datum::read_long(datum)
}

/// Bytes or a string at the start of a datum, and the rest of it.
pub(in crate::codec) fn take_bytes(datum: &[u8]) -> Option<(&[u8], &[u8])> {
    let (size, rest) = take_long(datum)?;
    rest.split_at_checked(usize::try_from(size).ok()?)
}

/// Appends a zigzag variable-length number.
pub(crate) fn write_long(value: i64, out: &mut Vec<u8>) {
    let mut zigzag = ((value << 1) ^ (value >> 63)) as u64;
    while zigzag > 0x7f {
        out.push(zigzag as u8 | 0x80);
        zigzag >>= 7;
    }
    out.push(zigzag as u8);
}

/// Appends an array or a map in one block.
pub(crate) fn write_block<T>(
    items: &[T],
    out: &mut Vec<u8>,
    mut each: impl FnMut(&T, &mut Vec<u8>) -> Option<()>,
) -> Option<()> {
    if !items.is_empty() {
        write_long(items.len() as i64, out);
        items.iter().try_for_each(|item| each(item, out))?;
    }
    write_long(0, out);
    Some(())
}

/// Appends bytes or a string with the length in front.
pub(crate) fn write_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    write_long(bytes.len() as i64, out);
    out.extend_from_slice(bytes);
}
