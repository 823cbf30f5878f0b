//! CSV records to records, and published rows to CSV.
//!
//! A payload is the bytes of one record; the header is given once, when the decoder is made. All values are text: what
//! a number is, is decided by the hierarchy that looks it up. An empty field is the empty text, not a missing value.
//! Stricter than most readers: text after a closing quote and a wrong number of fields are malformed.

use std::borrow::Cow;

use super::json::unquote;
use super::{CodecError, Decode, Encode, EncodeError, check_size, malformed, missing_fields};
use crate::model::event::{Reject, RejectCode};
use crate::model::hierarchy::Date;
use crate::model::record::{Record, Value, canonical_number};
use crate::model::schema::{Path, Schema};

/// The delimiters that are recognised from a header.
const DELIMITERS: [u8; 3] = [b',', b';', b'\t'];

/// The first line of a CSV file, and the delimiter it uses.
#[derive(Clone, PartialEq, Eq)]
pub struct CsvHeader {
    columns: Vec<String>,
    delimiter: u8,
}

impl std::fmt::Debug for CsvHeader {
    // A file without a header would have a person in its first line.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CsvHeader({} columns)", self.columns.len())
    }
}

impl CsvHeader {
    /// Reads a header line. Without a given delimiter the most frequent of `,` `;` and tab is taken.
    pub fn parse(line: &[u8], delimiter: Option<u8>) -> Result<Self, CodecError> {
        let text = std::str::from_utf8(line).map_err(|_| CodecError::BadHeader("not valid UTF-8"))?;
        let text = end_trimmed(text.strip_prefix('\u{feff}').unwrap_or(text));
        if text.trim().is_empty() {
            return Err(CodecError::BadHeader("empty"));
        }
        let delimiter = delimiter.unwrap_or_else(|| sniff(text.as_bytes()));
        let columns: Result<Vec<_>, _> =
            Fields::new(text, delimiter).map(|field| field.map(|name| name.trim().to_owned())).collect();
        let columns = columns.map_err(|_| CodecError::BadHeader("not a valid csv line"))?;
        Ok(Self { columns, delimiter })
    }

    /// The delimiter that a line before the header tells, as Excel reads it: `sep=;`.
    pub(crate) fn told(line: &[u8]) -> Option<u8> {
        let line = end_trimmed(std::str::from_utf8(line).ok()?.trim_start_matches('\u{feff}'));
        match line.strip_prefix("sep=")?.as_bytes() {
            [delimiter] if *delimiter != b'"' && delimiter.is_ascii() => Some(*delimiter),
            _ => None,
        }
    }

    /// How many columns the file has.
    pub(crate) fn columns(&self) -> usize {
        self.columns.len()
    }

    /// The delimiter of the file.
    pub fn delimiter(&self) -> u8 {
        self.delimiter
    }
}

/// True if the names look like the values of a person: a file without a header has a record in its first line.
pub(crate) fn look_like_values(names: &[String]) -> bool {
    let value = |name: &String| {
        let name = name.trim_matches('"');
        name.is_empty() || canonical_number(name).is_some() || name.contains('@') || name.parse::<Date>().is_ok()
    };
    names.iter().any(value)
}

/// The delimiter that occurs most often outside quotes; a comma if none does.
fn sniff(line: &[u8]) -> u8 {
    let mut counts = [0usize; DELIMITERS.len()];
    let mut quoted = false;
    for &byte in line {
        quoted ^= byte == b'"';
        if let Some(i) = DELIMITERS.iter().position(|&d| d == byte)
            && !quoted
        {
            counts[i] += 1;
        }
    }
    // On a tie the first wins: `max_by_key` keeps the last, hence the reversal.
    let best = counts.iter().zip(DELIMITERS).rev().max_by_key(|(count, _)| **count);
    best.map_or(b',', |(_, delimiter)| delimiter)
}

/// Decodes one CSV record per payload.
#[derive(Clone)]
pub(crate) struct CsvDecoder {
    /// Per column of the file the slot it fills.
    slots: Vec<Option<usize>>,
    delimiter: u8,
    columns: Vec<Path>,
    width: usize,
    max_record_bytes: usize,
}

impl CsvDecoder {
    /// A decoder of the fields of `schema` from files with this header. Lists every column that is needed and missing.
    pub(crate) fn new(schema: &Schema, header: &CsvHeader, max_record_bytes: usize) -> Result<Self, CodecError> {
        if schema.array.is_some() {
            return Err(CodecError::NoArrays);
        }
        let columns: Vec<Path> = header.columns.iter().map(|column| Path::of(column)).collect();
        let missing =
            missing_fields(schema, &columns, |path| header.columns.iter().any(|column| *column == **path.column()));
        // Values are not told as names.
        missing.map_err(|error| if look_like_values(&header.columns) { CodecError::NoHeader } else { error })?;
        let slot = |column: &String| schema.attributes().iter().position(|a| **a.path.column() == **column);
        let slots: Vec<_> = header.columns.iter().map(slot).collect();
        for (slot, attribute) in schema.attributes().iter().enumerate() {
            if slots.iter().filter(|s| **s == Some(slot)).count() > 1 {
                return Err(CodecError::AmbiguousHeader(attribute.name.clone()));
            }
        }
        let width = schema.attributes().len();
        Ok(Self { slots, delimiter: header.delimiter, columns, width, max_record_bytes })
    }
}

impl Decode for CsvDecoder {
    fn decode<'a>(&mut self, payload: &'a [u8]) -> Result<Record<'a>, Reject> {
        check_size(payload, self.max_record_bytes)?;
        let text = std::str::from_utf8(payload).map_err(|_| Reject::record(RejectCode::InvalidUtf8))?;
        let mut record = Record::new(self.width);
        let mut slots = self.slots.iter();
        for field in Fields::new(end_trimmed(text), self.delimiter) {
            let field = field?;
            if let Some(slot) = slots.next().ok_or_else(malformed)? {
                record.values[*slot] = Value::Text(field);
            }
        }
        if slots.next().is_some() { Err(malformed()) } else { Ok(record) }
    }

    fn fields(&self, _payload: &[u8]) -> Vec<Path> {
        self.columns.clone()
    }

    fn another(&self) -> Box<dyn Decode> {
        Box::new(self.clone())
    }
}

fn end_trimmed(line: &str) -> &str {
    let line = line.strip_suffix('\n').unwrap_or(line);
    line.strip_suffix('\r').unwrap_or(line)
}

/// The fields of one record, borrowed unless they hold doubled quotes. Stops after an error.
struct Fields<'a> {
    rest: Option<&'a str>,
    delimiter: u8,
}

impl<'a> Fields<'a> {
    fn new(record: &'a str, delimiter: u8) -> Self {
        Self { rest: Some(record), delimiter }
    }

    fn quoted(&mut self, inner: &'a str) -> Result<Cow<'a, str>, Reject> {
        let bytes = inner.as_bytes();
        let mut end = 0;
        let mut doubled = false;
        loop {
            end += memchr::memchr(b'"', &bytes[end..]).ok_or_else(malformed)?;
            if bytes.get(end + 1) != Some(&b'"') {
                break;
            }
            doubled = true;
            end += 2;
        }
        self.rest = match bytes.get(end + 1) {
            None => None,
            Some(byte) if *byte == self.delimiter => Some(&inner[end + 2..]),
            Some(_) => return Err(malformed()),
        };
        let field = &inner[..end];
        Ok(if doubled { Cow::Owned(field.replace("\"\"", "\"")) } else { Cow::Borrowed(field) })
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<Cow<'a, str>, Reject>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.rest.take()?;
        if let Some(inner) = rest.strip_prefix('"') {
            return Some(self.quoted(inner));
        }
        let end = memchr::memchr(self.delimiter, rest.as_bytes());
        let field = match end {
            Some(end) => {
                self.rest = Some(&rest[end + 1..]);
                &rest[..end]
            }
            None => rest,
        };
        // A line break outside quotes would be another record.
        Some(if memchr::memchr2(b'\n', b'\r', field.as_bytes()).is_some() {
            Err(malformed())
        } else {
            Ok(Cow::Borrowed(field))
        })
    }
}

/// Writes published rows as CSV with a header. Null becomes the empty field, nested values their JSON text.
pub(crate) struct CsvEncoder {
    columns: Vec<String>,
    delimiter: u8,
}

impl CsvEncoder {
    /// An encoder of the published fields of `schema`.
    pub(crate) fn new(schema: &Schema, delimiter: u8) -> Self {
        let column = |slot| Path::of(schema.name(slot)).column().to_string();
        Self { columns: schema.published().map(column).collect(), delimiter }
    }

    /// Appends the fields, each but the first of the line after a delimiter.
    fn fields<'a>(&self, before: usize, fields: impl Iterator<Item = &'a str>, out: &mut Vec<u8>) {
        for (i, field) in fields.enumerate() {
            if before + i > 0 {
                out.push(self.delimiter);
            }
            write_field(field, self.delimiter, out);
        }
    }

    /// Ends the line that began at `start`.
    fn end(start: usize, out: &mut Vec<u8>) {
        if out.len() == start {
            // A blank line would not be a record.
            out.extend_from_slice(b"\"\"");
        }
        out.push(b'\n');
    }
}

/// Appends one field, quoted if it has to be.
pub(crate) fn write_field(field: &str, delimiter: u8, out: &mut Vec<u8>) {
    if !field.bytes().any(|b| b == delimiter || matches!(b, b'"' | b'\n' | b'\r')) {
        out.extend_from_slice(field.as_bytes());
        return;
    }
    out.push(b'"');
    for (i, part) in field.split('"').enumerate() {
        if i > 0 {
            out.extend_from_slice(b"\"\"");
        }
        out.extend_from_slice(part.as_bytes());
    }
    out.push(b'"');
}

impl Encode for CsvEncoder {
    fn header(&mut self, out: &mut Vec<u8>) {
        let start = out.len();
        self.fields(0, self.columns.iter().map(String::as_str), out);
        Self::end(start, out);
    }

    fn labels(&self, quasi: &[&str], out: &mut Vec<u8>) {
        self.fields(0, quasi.iter().copied(), out);
    }

    fn labelled(&mut self, labels: &[u8], values: &[&str], out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let start = out.len();
        out.extend_from_slice(labels);
        for (i, &json) in values.iter().enumerate() {
            let plain = match json {
                "null" => Cow::Borrowed(""),
                // A value that is not a string after all is written as it is: nothing is lost, and nothing is guessed.
                json if json.starts_with('"') => unquote(json).unwrap_or(Cow::Borrowed(json)),
                json => Cow::Borrowed(json),
            };
            let before = self.columns.len() - values.len() + i;
            self.fields(before, std::iter::once(&*plain), out);
        }
        Self::end(start, out);
        Ok(())
    }

    fn finish(&mut self, _out: &mut Vec<u8>) -> Result<(), EncodeError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::codec::DEFAULT_MAX_RECORD_BYTES;
    use crate::model::schema::Role;

    fn schema() -> Schema {
        Schema::new([
            ("age", Role::Quasi),
            ("job", Role::Sensitive),
            ("note", Role::Insensitive),
            ("id", Role::Subject),
        ])
    }

    fn decoder(header: &str) -> Result<CsvDecoder, CodecError> {
        CsvDecoder::new(&schema(), &CsvHeader::parse(header.as_bytes(), None)?, DEFAULT_MAX_RECORD_BYTES)
    }

    fn code(payload: &[u8]) -> RejectCode {
        decoder("id,age,job").unwrap().decode(payload).expect_err("must be refused").code
    }

    #[test]
    fn delimiter_is_sniffed_from_the_header() {
        for (line, delimiter, columns) in [
            ("a,b,c\r\n", b',', 3),
            ("\u{feff}a;b;c,d", b';', 3),
            ("a\tb", b'\t', 2),
            ("a", b',', 1),
            ("\"x,y,z\";b", b';', 2),
            ("a;b,c", b',', 2),
        ] {
            let header = CsvHeader::parse(line.as_bytes(), None).unwrap();
            assert_eq!((header.delimiter(), header.columns.len()), (delimiter, columns), "{line}");
        }
        let given = CsvHeader::parse(b"a|b,c", Some(b'|')).unwrap();
        assert_eq!(given.columns, ["a", "b,c"]);
    }

    #[test]
    fn reads_by_column_name() {
        let mut decoder = decoder("\u{feff}id;dropped;\"age\";job\r").unwrap();
        let record = decoder.decode("7;canary;007;\"a;\"\"b\"\"\nc\"\r\n".as_bytes()).unwrap();
        assert!(record.values[0] == Value::Text("007".into()));
        assert!(record.values[1] == Value::Text("a;\"b\"\nc".into()));
        assert!(record.values[2] == Value::Missing, "the column is not in the file");
        assert!(record.values[3] == Value::Text("7".into()));
        let record = decoder.decode(b"7;;;").unwrap();
        assert!(record.values[0] == Value::Text("".into()), "empty is not missing");
    }

    #[test]
    fn missing_columns_are_all_listed() {
        let error = decoder("job,other").err().unwrap();
        assert_eq!(error, CodecError::MissingFields(vec![("age".into(), None), ("id".into(), None)]));
        assert_eq!(error.to_string(), "the input has no field called `age`, `id`");
        assert_eq!(decoder("id,age,job,age").err(), Some(CodecError::AmbiguousHeader("age".into())));
        assert_eq!(decoder(" \r\n").err(), Some(CodecError::BadHeader("empty")));
    }

    #[test]
    fn bad_input_is_refused_by_code() {
        for text in ["1,2", "1,2,3,4", "1,\"2,3", "1,\"2\"x,3", "1,2\n3,4", ",", "1,\r,2"] {
            assert_eq!(code(text.as_bytes()), RejectCode::Malformed, "{text:?}");
        }
        assert_eq!(code(b""), RejectCode::Empty);
        assert_eq!(code(b"1,\xff,3"), RejectCode::InvalidUtf8);
        assert_eq!(code(&vec![b','; DEFAULT_MAX_RECORD_BYTES + 1]), RejectCode::TooLarge);
    }

    proptest! {
        #[test]
        fn agrees_with_the_csv_crate(fields in prop::collection::vec("[a\",\r\n; é]{0,6}", 3)) {
            let mut writer = csv::WriterBuilder::new().from_writer(Vec::new());
            writer.write_record(&fields).unwrap();
            let line = writer.into_inner().unwrap();
            let mut ours = Vec::new();
            let encoder = CsvEncoder { columns: Vec::new(), delimiter: b',' };
            encoder.fields(0, fields.iter().map(String::as_str), &mut ours);
            CsvEncoder::end(0, &mut ours);
            prop_assert_eq!(&ours, &line);
            let mut decoder = decoder("id,age,job").unwrap();
            let record = decoder.decode(&line).unwrap();
            for (slot, field) in [(3, 0), (0, 1), (1, 2)] {
                prop_assert!(record.values[slot] == Value::Text(fields[field].as_str().into()));
            }
        }

        #[test]
        fn arbitrary_bytes_never_panic(
            bytes in prop::collection::vec(prop_oneof![Just(b'"'), Just(b','), any::<u8>()], 0..60),
        ) {
            let _ = decoder("id,age,job").unwrap().decode(&bytes);
            let _ = CsvHeader::parse(&bytes, None);
        }
    }
}
