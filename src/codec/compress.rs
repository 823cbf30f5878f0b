//! Gzip and zstd around text: files and streams in, releases out.
//!
//! Each release is a gzip member or a zstd frame of its own. Both formats are read on after the end of one, so that a file can be
//! continued release by release, and the bytes follow from the rows alone (no time, no name).

use std::io::{self, BufRead, Read, Write as _};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;
use flate2::write::GzEncoder;

use super::{Encode, EncodeError};

/// How much is handed to the compressor at once. Larger: more memory. Smaller: more calls.
const CHUNK_BYTES: usize = 64 << 10;
/// How much of a file is unpacked to see whether it can be continued. Smaller: not one with a longer first row.
const FIRST_PLAIN_BYTES: u64 = 16 << 20;
/// Zstd's own default.
const ZSTD_LEVEL: i32 = 3;
/// The largest window of zstd that is read: 128 MiB, as its command line tool. Larger: a hostile file asks for that much memory.
const ZSTD_WINDOW_LOG: u32 = 27;

/// The compression around a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// Gzip, `.gz`.
    Gzip,
    /// Zstandard, `.zst`.
    Zstd,
}

impl Compression {
    /// The compression that a file name announces by its last extension.
    pub fn of_path(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "gz" | "gzip" => Some(Self::Gzip),
            "zst" | "zstd" => Some(Self::Zstd),
            _ => None,
        }
    }

    /// The compression whose signature `first` begins with.
    pub fn of_bytes(first: &[u8]) -> Option<Self> {
        match first {
            [0x1f, 0x8b, ..] => Some(Self::Gzip),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Some(Self::Zstd),
            _ => None,
        }
    }

    /// The text inside.
    pub fn reader(self, read: impl BufRead + Send + 'static) -> io::Result<Box<dyn Read + Send>> {
        Ok(match self {
            Self::Gzip => Box::new(MultiGzDecoder::new(read)),
            Self::Zstd => {
                let mut decoder = zstd::Decoder::with_buffer(read)?;
                decoder.window_log_max(ZSTD_WINDOW_LOG)?;
                Box::new(decoder)
            }
        })
    }

    fn stream(self) -> io::Result<Stream> {
        Ok(match self {
            Self::Gzip => Stream::Gzip(GzEncoder::new(Vec::new(), flate2::Compression::default())),
            Self::Zstd => {
                let mut encoder = zstd::Encoder::new(Vec::new(), ZSTD_LEVEL)?;
                encoder.include_checksum(true)?;
                Stream::Zstd(Box::new(encoder))
            }
        })
    }
}

/// One member or frame that is being written.
enum Stream {
    Gzip(GzEncoder<Vec<u8>>),
    Zstd(Box<zstd::Encoder<'static, Vec<u8>>>),
}

impl Stream {
    fn write(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        match self {
            Self::Gzip(encoder) => encoder.write_all(bytes).map(|()| out.append(encoder.get_mut())),
            Self::Zstd(encoder) => encoder.write_all(bytes).map(|()| out.append(encoder.get_mut())),
        }
    }

    fn finish(self, out: &mut Vec<u8>) -> io::Result<()> {
        let mut rest = match self {
            Self::Gzip(encoder) => encoder.finish()?,
            Self::Zstd(encoder) => encoder.finish()?,
        };
        out.append(&mut rest);
        Ok(())
    }
}

/// Compresses what another encoder writes.
pub(crate) struct CompressedEncoder {
    inner: Box<dyn Encode>,
    compression: Compression,
    stream: Option<Stream>,
    plain: Vec<u8>,
}

impl CompressedEncoder {
    pub(crate) fn new(inner: Box<dyn Encode>, compression: Compression) -> Self {
        Self { inner, compression, stream: None, plain: Vec::new() }
    }

    /// Hands over what the inner encoder has written, if it is worth a call.
    fn push(&mut self, least: usize, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        if self.plain.len() < least {
            return Ok(());
        }
        let broken = |_: io::Error| EncodeError::Broken("the compressed file");
        let stream = match &mut self.stream {
            Some(stream) => stream,
            none => none.insert(self.compression.stream().map_err(broken)?),
        };
        stream.write(&self.plain, out).map_err(broken)?;
        self.plain.clear();
        Ok(())
    }
}

impl Encode for CompressedEncoder {
    fn header(&mut self, _out: &mut Vec<u8>) {
        self.inner.header(&mut self.plain);
    }

    fn labels(&self, quasi: &[&str], out: &mut Vec<u8>) {
        self.inner.labels(quasi, out);
    }

    fn labelled(&mut self, labels: &[u8], values: &[&str], out: &mut Vec<u8>) -> Result<(), EncodeError> {
        self.inner.labelled(labels, values, &mut self.plain)?;
        self.push(CHUNK_BYTES, out)
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        self.inner.finish(&mut self.plain)?;
        if self.plain.is_empty() && self.stream.is_none() {
            return Ok(());
        }
        self.push(0, out)?;
        let stream = self.stream.take().ok_or(EncodeError::Broken("the compressed file"))?;
        stream.finish(out).map_err(|_| EncodeError::Broken("the compressed file"))
    }

    fn continues(&mut self, first: &[u8]) -> bool {
        if Compression::of_bytes(first) != Some(self.compression) {
            return false;
        }
        let Ok(read) = self.compression.reader(io::Cursor::new(first.to_vec())) else { return false };
        let mut plain = Vec::new();
        // `first` may end within a member: what could be read of it decides.
        let _ = read.take(FIRST_PLAIN_BYTES).read_to_end(&mut plain);
        !plain.is_empty() && self.inner.continues(&plain)
    }

    /// A member ends with its checksum, which is another each time.
    fn ending(&self) -> &[u8] {
        b""
    }
}
