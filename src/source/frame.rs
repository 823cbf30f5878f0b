//! Splits a stream of bytes into lines, CSV records or the elements of a JSON array. Does no I/O: bytes in, records out.
//!
//! Memory is bounded: of a record that is too long, only the first `max + 1` bytes are kept, enough for the decoder to
//! reject it, and the rest of its line is skipped.
//!
//! Damage costs the damaged record, never those behind it. A quote that opens a field of CSV and is not closed would swallow the lines
//! that follow. So a record of several lines must end within `max` bytes, with as many fields as there are columns and quotes only
//! around whole fields; otherwise its first line is a record by itself, which the decoder rejects, and the lines behind it are split
//! anew. In a JSON array no place is safe to go on from: there the input ends as damaged.

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
        /// The number of fields; unknown in the header.
        columns: Option<usize>,
    },
}

/// What keeps a JSON array from being split any further.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ArrayDamage {
    /// The borders of its elements cannot be told.
    #[error(
        "an element is damaged (a quote, a bracket or a comma is missing or too many), and where the next one begins cannot be told"
    )]
    Borders,
    /// It is not closed.
    #[error("the array is cut short")]
    CutShort,
}

/// The position of the scan in a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ScanState {
    FieldStart,
    Plain,
    Quoted,
    /// After a quote inside quotes: doubled, or closing.
    QuoteInQuoted,
    /// After text behind a closing quote: no quote of this line means anything.
    Malformed,
    /// In the rest of a line that was too long.
    Skipping,
}

/// How far a record was scanned.
#[derive(Debug, Clone, Copy)]
struct Scan {
    /// How much of the buffer.
    at: usize,
    state: ScanState,
    /// How many delimiters outside quotes.
    delimiters: usize,
    /// The first newline, which is inside quotes.
    line_end: Option<usize>,
}

impl Scan {
    const START: Self = Self { at: 0, state: ScanState::FieldStart, delimiters: 0, line_end: None };
}

/// Splits bytes into records.
pub(super) struct Framer {
    framing: Framing,
    max: usize,
    buffer: BytesMut,
    scan: Scan,
    /// The place in a JSON array; none in other inputs, and before the first character.
    array: Option<ArrayScan>,
    damage: Option<ArrayDamage>,
    started: bool,
    ended: bool,
}

impl Framer {
    pub(super) fn new(framing: Framing, max_record_bytes: usize) -> Self {
        Self {
            framing,
            max: max_record_bytes,
            buffer: BytesMut::new(),
            scan: Scan::START,
            array: None,
            damage: None,
            started: false,
            ended: false,
        }
    }

    /// Changes the framing from the next record on: delimiter and columns are known only after the header.
    pub(super) fn set_framing(&mut self, framing: Framing) {
        self.framing = framing;
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Nothing follows: what is left makes the last records.
    pub(super) fn finish(&mut self) {
        self.ended = true;
    }

    /// True if no further record can come.
    pub(super) fn is_over(&self) -> bool {
        self.damage.is_some() || self.ended && self.buffer.is_empty() && self.array.is_none()
    }

    /// Why there is no further record, if that is not the end of the input.
    pub(super) fn damage(&self) -> Option<ArrayDamage> {
        self.damage
    }

    /// The next complete record, without its line end. Blank lines are not records.
    pub(super) fn next_record(&mut self) -> Option<Bytes> {
        if !self.started {
            self.start();
        }
        if self.array.is_some() || self.damage.is_some() {
            let element = self.next_element();
            if element.is_some() || self.array.is_some() || self.damage.is_some() {
                return element;
            }
        }
        loop {
            let skipping = self.scan.state == ScanState::Skipping;
            let line = match self.find_end() {
                Some(end) => {
                    let line = self.buffer.split_to(end).freeze();
                    self.buffer.advance(1);
                    self.scan = Scan::START;
                    line
                }
                None if skipping => {
                    self.buffer.clear();
                    self.scan.at = 0;
                    return None;
                }
                // One byte more than allowed, and one for a carriage return that may belong to the line end.
                None if self.buffer.len() > self.max + 1 => {
                    let kept = self.buffer.split_to(self.max + 1).freeze();
                    self.scan = Scan { state: ScanState::Skipping, ..Scan::START };
                    return Some(kept);
                }
                None if self.ended && !self.buffer.is_empty() => {
                    self.scan = Scan::START;
                    self.buffer.split().freeze()
                }
                None => return None,
            };
            if !skipping && let Some(record) = self.record(line) {
                return Some(record);
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
            if matches!(*second, b'{' | b']') {
                self.buffer.advance(self.buffer.len() - text.len() + 1);
                self.array = Some(ArrayScan::default());
            }
        }
        self.started = true;
        self.scan = Scan::START;
    }

    /// The next whole element of the array; `None` also behind the array, where lines go on. Where there should be an element and is
    /// none, a piece that no decoder accepts.
    fn next_element(&mut self) -> Option<Bytes> {
        while let Some(array) = &mut self.array {
            let was_skipping = array.skipping;
            let Some((at, end)) = array.find_end(&self.buffer[self.scan.at..]) else {
                let blank = self.buffer.len() - self.buffer.trim_ascii_start().len();
                self.buffer.advance(if array.skipping { self.buffer.len() } else { blank });
                self.scan.at = self.buffer.len();
                if self.ended {
                    return self.stop(ArrayDamage::CutShort);
                }
                if self.buffer.len() <= self.max {
                    return None;
                }
                array.skipping = true;
                self.scan.at = 0;
                return Some(self.buffer.split().freeze().slice(..self.max + 1));
            };
            if end == ArrayEnd::Damaged {
                return self.stop(ArrayDamage::Borders);
            }
            let element = self.buffer.split_to(self.scan.at + at).freeze();
            self.buffer.advance(1);
            self.scan.at = 0;
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

    fn stop(&mut self, damage: ArrayDamage) -> Option<Bytes> {
        (self.array, self.damage) = (None, Some(damage));
        self.buffer.clear();
        None
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

    /// The index of the newline that ends the record at the start of the buffer. Of what looked like a record of several lines and is
    /// none, the newline that ends its first line. A line in which such a record would begin closes the quotes of an earlier one, so
    /// each byte is scanned once for every column at most.
    fn find_end(&mut self) -> Option<usize> {
        let Framing::Csv { delimiter, columns } = self.framing else { return self.newline() };
        if let Some(end) = self.end_of_plain_line() {
            return Some(end);
        }
        loop {
            let Scan { at, state, delimiters, line_end } = self.scan;
            if matches!(state, ScanState::Skipping | ScanState::Malformed) {
                return self.newline();
            }
            let byte = self.buffer.get(at).copied();
            let over = byte == Some(b'\n') && state != ScanState::Quoted || byte.is_none() && self.ended;
            if line_end.is_some() {
                let fields = columns.is_none_or(|columns| delimiters < columns && (!over || delimiters + 1 == columns));
                let open = over && state == ScanState::Quoted;
                if at > self.max + 1 || !fields || open {
                    return line_end;
                }
            }
            let byte = byte?;
            if over {
                return Some(at);
            }
            self.scan.state = match (state, byte) {
                (ScanState::Quoted, b'"') => ScanState::QuoteInQuoted,
                (ScanState::Quoted, b'\n') => {
                    self.scan.line_end = line_end.or(Some(at));
                    ScanState::Quoted
                }
                (ScanState::Quoted, _) => {
                    // Only quotes and newlines matter here.
                    let rest = &self.buffer[at..];
                    self.scan.at += memchr::memchr2(b'"', b'\n', rest).unwrap_or(rest.len());
                    continue;
                }
                (ScanState::FieldStart | ScanState::QuoteInQuoted, b'"') => ScanState::Quoted,
                (_, byte) if byte == delimiter => {
                    self.scan.delimiters += 1;
                    ScanState::FieldStart
                }
                // In truth it opens a field, or closes one: the quotes before it are out of step.
                (ScanState::Plain, b'"') if line_end.is_some() => return line_end,
                (ScanState::Plain, _) => {
                    let rest = &self.buffer[at..];
                    self.scan.at += memchr::memchr3(delimiter, b'\n', b'"', rest).map_or(rest.len(), |i| i.max(1));
                    continue;
                }
                // A carriage return may belong to the line end.
                (ScanState::QuoteInQuoted, byte) if byte != b'\r' => match line_end {
                    None => ScanState::Malformed,
                    first => return first,
                },
                (_, _) => ScanState::Plain,
            };
            self.scan.at += 1;
        }
    }

    /// The newline behind a line without quotes, as most are: there, delimiters do not matter.
    fn end_of_plain_line(&self) -> Option<usize> {
        let fresh = (self.scan.at == 0).then_some(&self.buffer[..])?;
        let end = memchr::memchr2(b'\n', b'"', fresh)?;
        (self.buffer[end] == b'\n').then_some(end)
    }

    /// The index of the next newline.
    fn newline(&mut self) -> Option<usize> {
        let end = memchr::memchr(b'\n', &self.buffer[self.scan.at..]).map(|i| self.scan.at + i);
        self.scan.at = end.unwrap_or(self.buffer.len());
        end
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CSV: Framing = Framing::Csv { delimiter: b',', columns: None };

    fn split(framing: Framing, max: usize, chunks: &[&[u8]]) -> Vec<Bytes> {
        let mut framer = Framer::new(framing, max);
        let mut records = Vec::new();
        for chunk in chunks {
            framer.push(chunk);
            records.extend(std::iter::from_fn(|| framer.next_record()));
            assert!(framer.buffer.len() <= max + 1, "memory is bounded");
        }
        framer.finish();
        records.extend(std::iter::from_fn(|| framer.next_record()));
        records.extend(framer.damage().map(|damage| Bytes::from(format!("{damage:?}"))));
        records
    }

    /// In pieces that end at these places.
    fn pieces(framing: Framing, bytes: &[u8], at: Vec<usize>) -> Vec<Bytes> {
        let mut at: Vec<_> = at.into_iter().map(|i| i.min(bytes.len())).chain([0, bytes.len()]).collect();
        at.sort_unstable();
        let chunks: Vec<_> = at.windows(2).map(|w| &bytes[w[0]..w[1]]).collect();
        split(framing, 100, &chunks)
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
        assert_eq!(split(CSV, 4, &[b"\"a\nb", &long, b"\nok\n"]), ["\"a", "bxxxx", "ok"], "its lines by themselves");
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
        assert_eq!(split(Framing::Json, 99, &[b"[ ]\n{}"]), ["{}"], "an array without elements");
        assert_eq!(split(Framing::Json, 99, &[b"[{},{\"a\""]), ["{}", "CutShort"]);
        let long = [b'x'; 50];
        assert_eq!(split(Framing::Json, 4, &[b"[{}, \"", &long, b"],", &long, b"\" , 2 ]"]), ["{}", "\"xxxx", "2"]);
    }

    proptest! {
        #[test]
        fn elements_come_whole_in_any_pieces(at in prop::collection::vec(0usize..60, 0..6)) {
            let bytes = b"[{\"a\": \"x]\\\\\"}, [1, [2]],\n\"\\\"\" ,{}, null ]  ";
            let whole = split(Framing::Json, 100, &[bytes]);
            prop_assert_eq!(whole.len(), 5);
            prop_assert_eq!(pieces(Framing::Json, bytes, at), whole);
        }

        #[test]
        fn chunks_do_not_matter(bytes in "[a,\"\r\n]{0,60}", at in prop::collection::vec(0usize..60, 0..6), columns in prop::option::of(0usize..3)) {
            let framing = columns.map_or(Framing::Json, |n| Framing::Csv { delimiter: b',', columns: Some(n).filter(|n| *n > 0) });
            let whole = split(framing, 100, &[bytes.as_bytes()]);
            prop_assert_eq!(pieces(framing, bytes.as_bytes(), at), whole);
        }

        #[test]
        fn one_damaged_line_of_csv_costs_one_record(
            fields in prop::collection::vec(("[a-c]{0,3}", "[a-c,]{0,4}", any::<bool>()), 1..30),
            line in any::<prop::sample::Index>(),
            at in any::<prop::sample::Index>(),
            dropped in any::<bool>(),
        ) {
            let mut lines: Vec<String> = fields.iter().map(|(plain, quoted, first)| match first {
                true => format!("\"{quoted}\",{plain}x"),
                false => format!("{plain}x,\"{quoted}\""),
            }).collect();
            let sound = lines.clone();
            let line = line.index(lines.len());
            // A quote too many or too few.
            let damaged = &mut lines[line];
            let quotes: Vec<usize> = damaged.match_indices('"').map(|(i, _)| i).collect();
            match dropped {
                true => drop(damaged.remove(quotes[at.index(2)])),
                false => damaged.insert(at.index(damaged.len() + 1), '"'),
            }
            let framing = Framing::Csv { delimiter: b',', columns: Some(2) };
            let records = split(framing, 400, &[(lines.join("\n") + "\n").as_bytes()]);
            prop_assert_eq!(records.len(), lines.len(), "{:?}", records);
            for (i, (record, sound)) in records.iter().zip(&sound).enumerate() {
                prop_assert!(i == line || record == sound.as_bytes(), "{:?}", records);
            }
        }

        #[test]
        fn damage_of_an_array_is_noticed(
            elements in prop::collection::vec(("[a-c]{1,3}", 0u8..9, any::<bool>()), 1..9),
            place in any::<prop::sample::Index>(),
        ) {
            let text = |(key, number, nested): &(String, u8, bool)| match nested {
                true => format!("{{\"{key}\":[{{\"x\":\"{number}\"}},{number}]}}"),
                false => format!("{{\"{key}\":{number},\"y\":\"{key}\"}}"),
            };
            let elements: Vec<String> = elements.iter().map(text).collect();
            let whole = format!("[{}]", elements.join(","));
            prop_assert_eq!(split(Framing::Json, 400, &[whole.as_bytes()]), elements);
            let marks: Vec<usize> = whole.match_indices(['"', '{', '}', '[', ']']).map(|(i, _)| i).skip(2).collect();
            let mut damaged = whole;
            damaged.remove(marks[place.index(marks.len())]);
            let records = split(Framing::Json, 400, &[damaged.as_bytes()]);
            let told = records.last().is_some_and(|last| matches!(&last[..], b"Borders" | b"CutShort"));
            prop_assert!(told, "{:?}", damaged);
        }
    }

    #[test]
    fn lines_that_each_open_a_quote_are_split_in_linear_time() {
        let text = "a\",,\"b\n".repeat(200_000);
        for columns in [2, 3, 9] {
            let framing = Framing::Csv { delimiter: b',', columns: Some(columns) };
            assert_eq!(split(framing, 1 << 20, &[text.as_bytes()]).len(), 200_000);
        }
    }
}
