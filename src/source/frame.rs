//! Splits a stream of bytes into lines, CSV records or the elements of a JSON array. Does no I/O: bytes in, records out.
//!
//! Memory is bounded: of a record that is too long, only the first `max + 1` bytes are kept, enough for the decoder to
//! reject it, and the rest of its line is skipped.

use bytes::{Buf as _, Bytes, BytesMut};

use super::array::{ArrayEnd, ArrayScan};

/// The end of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    /// A newline; or, if the input begins with an array of objects, the end of an element of it.
    Json,
    /// A newline outside quotes.
    Csv {
        /// Separates the fields: a quote opens only at the start of a field.
        delimiter: u8,
    },
}

/// The position of the scan in a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ScanState {
    FieldStart,
    Plain,
    Quoted,
    /// After a quote inside quotes: doubled, or closing.
    QuoteInQuoted,
    /// In the rest of a line that was too long.
    Skipping,
}

/// Splits bytes into records.
pub(super) struct Framer {
    framing: Framing,
    max: usize,
    buffer: BytesMut,
    /// How much of the buffer was scanned.
    scanned: usize,
    state: ScanState,
    /// The place in a JSON array; none in other inputs, and before the first character.
    array: Option<ArrayScan>,
    started: bool,
}

impl Framer {
    pub(super) fn new(framing: Framing, max_record_bytes: usize) -> Self {
        let (buffer, state) = (BytesMut::new(), ScanState::FieldStart);
        Self { framing, max: max_record_bytes, buffer, scanned: 0, state, array: None, started: false }
    }

    /// Changes the framing from the next record on: the delimiter is known only after the header.
    pub(super) fn set_framing(&mut self, framing: Framing) {
        self.framing = framing;
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next complete record, without its line end. Blank lines are not records.
    pub(super) fn next_record(&mut self) -> Option<Bytes> {
        if !self.started {
            self.start();
        }
        if self.array.is_some() {
            let element = self.next_element();
            if element.is_some() || self.array.is_some() {
                return element;
            }
        }
        loop {
            match self.find_end() {
                Some(end) => {
                    let was_skipping = self.state == ScanState::Skipping;
                    let line = self.buffer.split_to(end).freeze();
                    self.buffer.advance(1);
                    self.scanned = 0;
                    self.state = ScanState::FieldStart;
                    if !was_skipping && let Some(record) = self.record(line) {
                        return Some(record);
                    }
                }
                None if self.state == ScanState::Skipping => {
                    self.buffer.clear();
                    self.scanned = 0;
                    return None;
                }
                // One byte more than allowed, and one for a carriage return that may belong to the line end.
                None if self.buffer.len() > self.max + 1 => {
                    let kept = self.buffer.split_to(self.max + 1).freeze();
                    self.scanned = 0;
                    self.state = ScanState::Skipping;
                    return Some(kept);
                }
                None => return None,
            }
        }
    }

    /// Recognises an array of objects by its first two characters, and passes over its bracket. Other brackets begin a line, which the
    /// decoder rejects like any other that is no object.
    fn start(&mut self) {
        let text = self.buffer.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&self.buffer).trim_ascii_start();
        let Some(first) = text.first() else { return };
        if self.framing == Framing::Json && *first == b'[' {
            let Some(second) = text[1..].trim_ascii_start().first() else { return };
            if *second == b'{' {
                self.buffer.advance(self.buffer.len() - text.len() + 1);
                self.array = Some(ArrayScan::default());
            }
        }
        self.started = true;
    }

    /// The next whole element of the array; `None` also behind the array, where lines go on. Where there should be an element and is
    /// none, a piece that no decoder accepts.
    fn next_element(&mut self) -> Option<Bytes> {
        while let Some(array) = &mut self.array {
            let was_skipping = array.skipping;
            let Some((at, end)) = array.find_end(&self.buffer[self.scanned..]) else {
                let blank = self.buffer.len() - self.buffer.trim_ascii_start().len();
                self.buffer.advance(if array.skipping { self.buffer.len() } else { blank });
                self.scanned = self.buffer.len();
                if self.buffer.len() <= self.max {
                    return None;
                }
                array.skipping = true;
                self.scanned = 0;
                return Some(self.buffer.split().freeze().slice(..self.max + 1));
            };
            let element = self.buffer.split_to(self.scanned + at).freeze();
            self.buffer.advance(1);
            self.scanned = 0;
            if end == ArrayEnd::Last {
                self.array = None;
            }
            let blank = element.len() - element.trim_ascii_start().len();
            let element = element.slice(blank..blank + element.trim_ascii().len());
            match end {
                _ if was_skipping => {}
                ArrayEnd::Last if element.is_empty() => {}
                _ if element.is_empty() => return Some(Bytes::from_static(b",")),
                _ => return Some(if element.len() > self.max { element.slice(..self.max + 1) } else { element }),
            }
        }
        None
    }

    /// The last record, if the input did not end in a newline. An array that is not closed ends in one that no decoder accepts.
    pub(super) fn finish(&mut self) -> Option<Bytes> {
        if let Some(array) = self.array.take() {
            return (!array.skipping).then(|| Bytes::from_static(b"["));
        }
        let line = self.buffer.split().freeze();
        self.scanned = 0;
        if std::mem::replace(&mut self.state, ScanState::FieldStart) == ScanState::Skipping {
            return None;
        }
        self.record(line)
    }

    fn record(&self, line: Bytes) -> Option<Bytes> {
        let line = match line.last() {
            Some(b'\r') => line.slice(..line.len() - 1),
            _ => line,
        };
        // Of CSV, a line of blanks is a record: where tabs delimit, one tab is two empty fields.
        let blank_counts = matches!(self.framing, Framing::Csv { .. }) && !line.is_empty();
        if !blank_counts && line.iter().all(|b| matches!(b, b' ' | b'\t' | b'\r')) {
            return None;
        }
        Some(if line.len() > self.max { line.slice(..self.max + 1) } else { line })
    }

    /// The index of the newline that ends the record at the start of the buffer.
    fn find_end(&mut self) -> Option<usize> {
        let (mut at, bytes) = (self.scanned, &self.buffer[..]);
        let end = match (self.framing, self.state) {
            (Framing::Json, _) | (_, ScanState::Skipping) => memchr::memchr(b'\n', &bytes[at..]).map(|i| at + i),
            (Framing::Csv { delimiter }, _) => loop {
                let Some(&byte) = bytes.get(at) else { break None };
                self.state = match (self.state, byte) {
                    (ScanState::FieldStart | ScanState::Plain | ScanState::QuoteInQuoted, b'\n') => break Some(at),
                    (ScanState::FieldStart | ScanState::QuoteInQuoted, b'"') => ScanState::Quoted,
                    (ScanState::Quoted, b'"') => ScanState::QuoteInQuoted,
                    (ScanState::Quoted, _) => {
                        // Only a quote matters here.
                        at += memchr::memchr(b'"', &bytes[at..]).unwrap_or(bytes.len() - at);
                        continue;
                    }
                    (_, byte) if byte == delimiter => ScanState::FieldStart,
                    (_, _) => ScanState::Plain,
                };
                at += 1;
            },
        };
        self.scanned = end.unwrap_or(bytes.len());
        end
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CSV: Framing = Framing::Csv { delimiter: b',' };

    fn split(framing: Framing, max: usize, chunks: &[&[u8]]) -> Vec<Bytes> {
        let mut framer = Framer::new(framing, max);
        let mut records = Vec::new();
        for chunk in chunks {
            framer.push(chunk);
            records.extend(std::iter::from_fn(|| framer.next_record()));
            assert!(framer.buffer.len() <= max + 1, "memory is bounded");
        }
        records.extend(framer.finish());
        records
    }

    #[test]
    fn lines_end_in_either_way_or_not_at_all() {
        assert_eq!(split(Framing::Json, 9, &[b"a\r\nb\n\n \r\n", b"c", b"c\r", b"\nd"]), ["a", "b", "cc", "d"]);
        assert_eq!(split(Framing::Json, 9, &[b"", b"\n"]), Vec::<Bytes>::new());
    }

    #[test]
    fn overlong_records_are_cut_and_skipped() {
        let long = [b'x'; 50];
        assert_eq!(
            split(Framing::Json, 4, &[b"1234\r\n12345\n", &long, &long, b"x\nab\n", &long]),
            ["1234", "12345", "xxxxx", "ab", "xxxxx"]
        );
        assert_eq!(split(CSV, 4, &[b"\"a\nb", &long, b"\nok\n"]), ["\"a\nbx", "ok"], "found again at the next line");
        assert_eq!(split(Framing::Json, 4, &[b"1234", b"\r", b"\n5"]), ["1234", "5"]);
    }

    #[test]
    fn csv_records_span_lines_inside_quotes_only() {
        let records = split(CSV, 99, &[b"a,\"b\nc\"\r\n", b"5\" pipe,d\n\"x\"\"\ny\",1\n,\n\n"]);
        assert_eq!(records, ["a,\"b\nc\"", "5\" pipe,d", "\"x\"\"\ny\",1", ","]);
    }

    #[test]
    fn elements_of_an_array_are_records() {
        let records =
            split(Framing::Json, 99, &[b"\xef\xbb\xbf \n[{\"a\":\"],[\\\"\"},\n {\"b\":[1,{}]}\r", b"\n , 7]\n\n"]);
        assert_eq!(records, ["{\"a\":\"],[\\\"\"}", "{\"b\":[1,{}]}", "7"]);
        assert_eq!(split(Framing::Json, 99, &[b"[{}, ]\n"]), ["{}"]);
        assert_eq!(split(Framing::Json, 99, &[b"[{},,{}]"]), ["{}", ",", "{}"]);
        assert_eq!(split(Framing::Json, 99, &[b"[{}]{}\n{}"]), ["{}", "{}", "{}"], "nothing is lost behind an array");
        assert_eq!(split(Framing::Json, 99, &[b"[1]\n{}\n[ ]\n"]), ["[1]", "{}", "[ ]"], "lines that are arrays");
        assert_eq!(split(Framing::Json, 99, &[b"[", b" ", b"{}]"]), ["{}"]);
        assert_eq!(split(Framing::Json, 99, &[b"[{},{\"a\""]), ["{}", "["], "cut short");
        let long = [b'x'; 50];
        assert_eq!(split(Framing::Json, 4, &[b"[{}, \"", &long, b"],", &long, b"\" , 2 ]"]), ["{}", "\"xxxx", "2"]);
    }

    proptest! {
        #[test]
        fn elements_come_whole_in_any_pieces(at in prop::collection::vec(0usize..60, 0..6)) {
            let bytes = b"[{\"a\": \"x]\\\\\"}, [1, [2]],\n\"\\\"\" ,{}, null ]  ";
            let whole = split(Framing::Json, 100, &[bytes]);
            prop_assert_eq!(whole.len(), 5);
            let mut at: Vec<_> = at.into_iter().map(|i| i.min(bytes.len())).chain([0, bytes.len()]).collect();
            at.sort_unstable();
            let chunks: Vec<_> = at.windows(2).map(|w| &bytes[w[0]..w[1]]).collect();
            prop_assert_eq!(split(Framing::Json, 100, &chunks), whole);
        }

        #[test]
        fn chunks_do_not_matter(bytes in "[a,\"\r\n]{0,60}", at in prop::collection::vec(0usize..60, 0..6), csv in any::<bool>()) {
            let framing = if csv { CSV } else { Framing::Json };
            let whole = split(framing, 100, &[bytes.as_bytes()]);
            let mut at: Vec<_> = at.into_iter().map(|i| i.min(bytes.len())).chain([0, bytes.len()]).collect();
            at.sort_unstable();
            let chunks: Vec<_> = at.windows(2).map(|w| &bytes.as_bytes()[w[0]..w[1]]).collect();
            prop_assert_eq!(split(framing, 100, &chunks), whole);
        }
    }
}
