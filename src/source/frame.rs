//! Splits a stream of bytes into lines or CSV records. Does no I/O: bytes in, records out.
//!
//! Memory is bounded: of a record that is too long, only the first `max + 1` bytes are kept, enough for the decoder to
//! reject it, and the rest of its line is skipped.

use bytes::{Buf as _, Bytes, BytesMut};

/// The end of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    /// A newline.
    Lines,
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
}

impl Framer {
    pub(super) fn new(framing: Framing, max_record_bytes: usize) -> Self {
        Self { framing, max: max_record_bytes, buffer: BytesMut::new(), scanned: 0, state: ScanState::FieldStart }
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

    /// The last record, if the input did not end in a newline.
    pub(super) fn finish(&mut self) -> Option<Bytes> {
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
            (Framing::Lines, _) | (_, ScanState::Skipping) => memchr::memchr(b'\n', &bytes[at..]).map(|i| at + i),
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
        assert_eq!(split(Framing::Lines, 9, &[b"a\r\nb\n\n \r\n", b"c", b"c\r", b"\nd"]), ["a", "b", "cc", "d"]);
        assert_eq!(split(Framing::Lines, 9, &[b"", b"\n"]), Vec::<Bytes>::new());
    }

    #[test]
    fn overlong_records_are_cut_and_skipped() {
        let long = [b'x'; 50];
        assert_eq!(
            split(Framing::Lines, 4, &[b"1234\r\n12345\n", &long, &long, b"x\nab\n", &long]),
            ["1234", "12345", "xxxxx", "ab", "xxxxx"]
        );
        assert_eq!(split(CSV, 4, &[b"\"a\nb", &long, b"\nok\n"]), ["\"a\nbx", "ok"], "found again at the next line");
        assert_eq!(split(Framing::Lines, 4, &[b"1234", b"\r", b"\n5"]), ["1234", "5"]);
    }

    #[test]
    fn csv_records_span_lines_inside_quotes_only() {
        let records = split(CSV, 99, &[b"a,\"b\nc\"\r\n", b"5\" pipe,d\n\"x\"\"\ny\",1\n,\n\n"]);
        assert_eq!(records, ["a,\"b\nc\"", "5\" pipe,d", "\"x\"\"\ny\",1", ","]);
    }

    proptest! {
        #[test]
        fn chunks_do_not_matter(bytes in "[a,\"\r\n]{0,60}", at in prop::collection::vec(0usize..60, 0..6), csv in any::<bool>()) {
            let framing = if csv { CSV } else { Framing::Lines };
            let whole = split(framing, 100, &[bytes.as_bytes()]);
            let mut at: Vec<_> = at.into_iter().map(|i| i.min(bytes.len())).chain([0, bytes.len()]).collect();
            at.sort_unstable();
            let chunks: Vec<_> = at.windows(2).map(|w| &bytes.as_bytes()[w[0]..w[1]]).collect();
            prop_assert_eq!(split(framing, 100, &chunks), whole);
        }
    }
}
