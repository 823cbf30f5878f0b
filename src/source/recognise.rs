//! What a file is, by its first bytes: one of the formats, perhaps compressed, or something that is not read and is named.
//!
//! [`ByteReader`] looks at the first bytes when it is first read, unpacks gzip and zstd, and turns text in other encodings into
//! UTF-8. It waits for no more bytes than it needs, so that a pipe that gives one short line is not held up.

use std::io::{self, BufRead, BufReader, Cursor, Read};

use crate::codec::Format;
use crate::codec::compress::Compression;
use crate::codec::encoding::{TextEncoding, Utf8Reader};

/// How many first bytes are kept; far more than any signature needs. A zip archive lists its first files within.
const FIRST_BYTES: usize = 8 << 10;
/// The longest signature that a text must be told from.
const SIGNATURE_BYTES: usize = 16;

/// An input that is not read. Nothing in it comes from the input but its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the input is {what}: {remedy}")]
pub struct NotReadable {
    /// What it is.
    pub what: &'static str,
    /// What to do.
    pub remedy: &'static str,
}

const UNPACK: &str = "unpack it first, or compress it with gzip or zstd";
const AS_PARQUET: &str = "write it as Parquet, Avro, CSV or JSON lines";
const AS_CSV: &str = "export the table as CSV";

/// Signatures of what is not read.
const FOREIGN: [(&[u8], &str, &str); 22] = [
    (b"ORC", "an ORC file", AS_PARQUET),
    (b"ARROW1", "an Arrow (Feather) file", AS_PARQUET),
    (b"FEA1", "a Feather file of version 1", AS_PARQUET),
    (b"\xff\xff\xff\xff", "an Arrow stream", AS_PARQUET),
    (b"PARE", "a Parquet file with an encrypted footer", "decrypt it first"),
    (b"%PDF-", "a PDF document", AS_CSV),
    (b"SQLite format 3\0", "an SQLite database", AS_CSV),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an old Office document (xls, doc)", AS_CSV),
    (b"BZh", "compressed with bzip2", UNPACK),
    (b"\xfd7zXZ\0", "compressed with xz", UNPACK),
    (b"\x04\x22\x4d\x18", "compressed with lz4", UNPACK),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive", UNPACK),
    (b"Rar!\x1a\x07", "a RAR archive", UNPACK),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file", AS_PARQUET),
    (b"$FL2", "an SPSS file", AS_CSV),
    (b"<stata_dta>", "a Stata file", AS_CSV),
    (b"RDX3\n", "an R data file", AS_CSV),
    (b"\x7fELF", "a program", "give the file with the records"),
    (b"\x89PNG", "a picture", "give the file with the records"),
    (b"<?xml", "an XML document", "write it as JSON lines or CSV"),
    (b"<!DOCTYPE", "an HTML page", "download the data itself, not the page that shows it"),
    (b"\xff\xfe\0\0", "text in UTF-32", "write it as UTF-8"),
];

/// The name of what is not read, if `first` begins like it.
pub(super) fn foreign(first: &[u8]) -> Option<NotReadable> {
    if first.starts_with(b"PK\x03\x04") {
        let holds = |part: &[u8]| memchr::memmem::find(first, part).is_some();
        let (what, remedy) = match () {
            () if holds(b"opendocument.spreadsheet") => ("an OpenDocument spreadsheet (ods)", AS_CSV),
            () if holds(b"[Content_Types].xml") || holds(b"xl/") => ("an Excel workbook (xlsx)", AS_CSV),
            () => ("a zip archive", UNPACK),
        };
        return Some(NotReadable { what, remedy });
    }
    let known = FOREIGN.iter().find(|(signature, ..)| first.starts_with(signature));
    known.map(|&(_, what, remedy)| NotReadable { what, remedy })
}

/// The format that the first bytes belong to. What begins like no other is CSV; an empty input has no record in any.
pub(super) fn format(first: &[u8]) -> Format {
    let text = first.strip_prefix(b"\xef\xbb\xbf").unwrap_or(first).trim_ascii_start();
    match text.first() {
        _ if first.starts_with(b"Obj\x01") => Format::Avro,
        _ if first.starts_with(b"PAR1") => Format::Parquet,
        Some(b'{' | b'[') | None => Format::Json,
        Some(_) => Format::Csv,
    }
}

/// Refuses text that is of another format than its name announces, and JSON whose first object goes over several lines: each of its
/// lines would be rejected.
pub(super) fn check_name(first: &[u8], announced: Option<Format>) -> Result<(), NotReadable> {
    let not = |what, remedy| Err(NotReadable { what, remedy });
    let text = first.strip_prefix(b"\xef\xbb\xbf").unwrap_or(first).trim_ascii_start();
    let objects =
        text.starts_with(b"{") || text.strip_prefix(b"[").is_some_and(|t| t.trim_ascii_start().starts_with(b"{"));
    let mut lines = text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    let line = lines.next().unwrap_or_default();
    match announced.unwrap_or_else(|| format(first)) {
        Format::Csv if objects => {
            not("JSON, and its name announces CSV", "give `jsonl` as its format, or name it .jsonl")
        }
        Format::Json if is_header(line) => {
            not("CSV, and its name announces JSON", "give `csv` as its format, or name it .csv")
        }
        Format::Json if line == b"{" && lines.next().is_some() => not(
            "JSON with an object over several lines",
            "write one object per line, such as with `jq -c .`, or one array of objects",
        ),
        _ => Ok(()),
    }
}

/// True if a line can be the header of a CSV file: several names.
fn is_header(line: &[u8]) -> bool {
    let name = |name: &[u8]| {
        let name = name.trim_ascii();
        let inside = name.strip_prefix(b"\"").and_then(|name| name.strip_suffix(b"\"")).unwrap_or(name);
        let letter = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-. ".contains(byte) || !byte.is_ascii();
        inside.first().is_some_and(u8::is_ascii_alphabetic) && inside.iter().all(letter)
    };
    let names = |delimiter: &u8| {
        let fields = line.split(|byte| byte == delimiter);
        fields.clone().count() > 1 && fields.into_iter().all(name)
    };
    b",;\t".iter().any(names)
}

/// Refuses bytes that are no text of the given or detected encoding.
fn check_text(first: &[u8], encoding: Option<TextEncoding>) -> Result<(), NotReadable> {
    let not = |what, remedy| Err(NotReadable { what, remedy });
    match format(first) {
        Format::Avro => not("an Avro container file", "name it .avro or give `avro` as its format"),
        Format::Parquet => not("a Parquet file", "name it .parquet or give `parquet` as its format"),
        _ if !first.contains(&0) => Ok(()),
        _ if encoding.is_some_and(TextEncoding::is_wide) => Ok(()),
        _ if first.len() > 3 && first[1] == 0 && first[3] == 0 => {
            not("text in UTF-16 without a byte order mark", "give `utf-16le` as its encoding")
        }
        _ if first.len() > 3 && first[0] == 0 && first[2] == 0 => {
            not("text in UTF-16 without a byte order mark", "give `utf-16be` as its encoding")
        }
        _ => not("in a binary format that is not known", AS_PARQUET),
    }
}

/// Reads an input as it is inside: unpacked, and text as UTF-8.
pub(super) struct ByteReader {
    state: State,
    /// The encoding of text; `None` if the input is not text.
    text: Option<Option<TextEncoding>>,
}

enum State {
    Unread(Box<dyn Read + Send>),
    Reading(Box<dyn BufRead + Send>),
    Failed,
}

impl ByteReader {
    /// Text in this encoding, or in the one that its byte order mark tells, or in UTF-8.
    pub(super) fn text(read: impl Read + Send + 'static, encoding: Option<TextEncoding>) -> Self {
        Self { state: State::Unread(Box::new(read)), text: Some(encoding) }
    }

    /// Anything but text.
    pub(super) fn binary(read: impl Read + Send + 'static) -> Self {
        Self { state: State::Unread(Box::new(read)), text: None }
    }

    fn opened(&mut self) -> io::Result<&mut (dyn BufRead + Send)> {
        if let State::Unread(_) = self.state
            && let State::Unread(read) = std::mem::replace(&mut self.state, State::Failed)
        {
            self.state = State::Reading(opened(read, self.text)?);
        }
        match &mut self.state {
            State::Reading(read) => Ok(read.as_mut()),
            State::Unread(_) | State::Failed => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

impl Read for ByteReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.opened()?.read(into)
    }
}

/// The first bytes of `read`, unpacked, and a reader of all of them.
pub(super) fn peeked(read: Box<dyn Read + Send>) -> io::Result<(Vec<u8>, Box<dyn BufRead + Send>)> {
    let (first, read) = first_bytes(read)?;
    match Compression::of_bytes(&first) {
        None => Ok((first, read)),
        Some(compression) => {
            let (first, read) = first_bytes(compression.reader(read)?)?;
            let nested =
                Compression::of_bytes(&first).map(|_| NotReadable { what: "compressed twice", remedy: UNPACK });
            nested.map_or(Ok((first, read)), |nested| Err(unreadable(nested)))
        }
    }
}

/// An error that carries what the input is.
pub(super) fn unreadable(what: NotReadable) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

fn opened(read: Box<dyn Read + Send>, text: Option<Option<TextEncoding>>) -> io::Result<Box<dyn BufRead + Send>> {
    let (first, read) = peeked(read)?;
    let Some(declared) = text else {
        return foreign(&first).map_or(Ok(read), |what| Err(unreadable(what)));
    };
    if let Some(what) = foreign(&first) {
        return Err(unreadable(what));
    }
    let encoding = declared.or_else(|| TextEncoding::of_mark(&first));
    check_text(&first, encoding).map_err(unreadable)?;
    Ok(match encoding {
        None | Some(TextEncoding::Utf8) => read,
        Some(encoding) => Box::new(BufReader::new(Utf8Reader::new(read, encoding))),
    })
}

/// Reads until the first bytes can be told apart: a signature's length, a whole line or the end.
fn first_bytes(mut read: Box<dyn Read + Send>) -> io::Result<(Vec<u8>, Box<dyn BufRead + Send>)> {
    let mut first = vec![0; FIRST_BYTES];
    let mut size = 0;
    while size < SIGNATURE_BYTES && !first[..size].contains(&b'\n') {
        match read.read(&mut first[size..]) {
            Ok(0) => break,
            Ok(more) => size += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    first.truncate(size);
    let whole = Cursor::new(first.clone()).chain(BufReader::new(read));
    Ok((first, Box::new(whole)))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn text(bytes: &[u8], encoding: Option<TextEncoding>) -> Result<String, String> {
        let mut reader = ByteReader::text(Cursor::new(bytes.to_vec()), encoding);
        let mut text = String::new();
        reader.read_to_string(&mut text).map(|_| text).map_err(|error| error.to_string())
    }

    #[test]
    fn formats_show_in_the_first_bytes() {
        assert_eq!(format(b"Obj\x01..."), Format::Avro);
        assert_eq!(format(b"PAR1..."), Format::Parquet);
        assert_eq!(format(b"\xef\xbb\xbf {\"a\":1}"), Format::Json);
        assert_eq!(format(b"\n[{\"a\":1}]"), Format::Json);
        assert_eq!(format(b"a;b\n1;2\n"), Format::Csv);
        assert_eq!(format(b""), Format::Json);
    }

    #[test]
    fn text_that_is_not_what_its_name_announces_is_named() {
        let csv = Some(Format::Csv);
        let json = Some(Format::Json);
        for (first, announced, what) in [
            (&b"{\"a\":1}\n"[..], csv, "JSON, and"),
            (b"\xef\xbb\xbf[ {\"a\":1}", csv, "JSON, and"),
            (b"id,\"age at start\",zip_code\n1,2,3\n", json, "CSV, and"),
            (b"id;age", json, "CSV, and"),
            (b"{\n  \"a\": 1,", json, "JSON with"),
            (b"{\r\n", None, "JSON with"),
        ] {
            assert!(check_name(first, announced).is_err_and(|error| error.what.starts_with(what)), "{what}");
        }
        for (first, announced) in [
            (&b"id,age\n"[..], csv),
            (b"[id],[age]\n", csv),
            (b"{\"a\":1}\n", json),
            (b"{\"a\":", json),
            (b"[\n{\n\"a\":1}]", json),
            (b"what is this\n", json),
            (b"2026-11-19 12:00,ERROR\n", json),
            (b"", json),
            (b"", None),
        ] {
            assert_eq!(check_name(first, announced), Ok(()), "{}", String::from_utf8_lossy(first));
        }
    }

    #[test]
    fn what_is_not_read_is_named() {
        for (first, what) in [
            (&b"PK\x03\x04..[Content_Types].xml"[..], "an Excel workbook (xlsx)"),
            (b"PK\x03\x04..people.csv", "a zip archive"),
            (b"ORC\n", "an ORC file"),
            (b"%PDF-1.7", "a PDF document"),
            (b"SQLite format 3\0", "an SQLite database"),
            (b"PAR1\x15\x04", "a Parquet file"),
            (b"Obj\x01\x04", "an Avro container file"),
            (b"\x00\x01\x02\x03\x04", "in a binary format that is not known"),
            (b"a\0,\0b\0\n\0", "text in UTF-16 without a byte order mark"),
        ] {
            let error = text(first, None).unwrap_err();
            assert!(error.starts_with(&format!("the input is {what}: ")), "{error}");
        }
    }

    #[test]
    fn compressed_text_is_unpacked_once() {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(b"a,b\n").unwrap();
        let gzip = gzip.finish().unwrap();
        let two = [gzip.clone(), gzip.clone()].concat();
        assert_eq!(text(&two, None).as_deref(), Ok("a,b\na,b\n"), "members follow each other");
        let zstd = zstd::encode_all(&b"a,b\n"[..], 1).unwrap();
        assert_eq!(text(&[zstd.clone(), zstd].concat(), None).as_deref(), Ok("a,b\na,b\n"));
        let twice = zstd::encode_all(&gzip[..], 1).unwrap();
        assert!(text(&twice, None).unwrap_err().contains("compressed twice"));
        assert!(text(&gzip[..gzip.len() - 6], None).is_err(), "cut short");
    }

    #[test]
    fn encodings_are_told_or_declared() {
        let wide: Vec<u8> = [0xff, 0xfe].into_iter().chain("ä,€\n".encode_utf16().flat_map(u16::to_le_bytes)).collect();
        assert_eq!(text(&wide, None).as_deref(), Ok("ä,€\n"));
        assert_eq!(text(&wide[2..], Some(TextEncoding::Utf16Le)).as_deref(), Ok("ä,€\n"));
        assert_eq!(text(b"\xe4,\x80\n", Some(TextEncoding::Latin1)).as_deref(), Ok("ä,€\n"));
    }
}
