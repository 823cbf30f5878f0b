//! Text in Latin-1 and UTF-16 as UTF-8, while it is read.
//!
//! Anything that is no character (half of a surrogate pair, half of a unit at the end) becomes a byte that is no UTF-8, so that the record
//! around it is rejected, and only that.

use std::io::{self, Read};

use schemars::JsonSchema;
use serde::Deserialize;

/// How much is read at once. Larger: more memory. Smaller: more calls.
const READ_BYTES: usize = 64 << 10;
/// Never part of UTF-8.
const INVALID: u8 = 0xff;

/// How text is written in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
pub enum TextEncoding {
    /// UTF-8, with or without a byte order mark.
    #[serde(rename = "utf-8")]
    Utf8,
    /// Latin-1 (ISO 8859-1) and Windows-1252, which has letters where Latin-1 has control characters.
    #[serde(rename = "latin-1", alias = "windows-1252", alias = "iso-8859-1")]
    Latin1,
    /// UTF-16, little endian. With a byte order mark it is detected.
    #[serde(rename = "utf-16le", alias = "utf-16")]
    Utf16Le,
    /// UTF-16, big endian. With a byte order mark it is detected.
    #[serde(rename = "utf-16be")]
    Utf16Be,
}

impl TextEncoding {
    /// The encoding called `name`.
    pub fn parse(name: &str) -> Option<Self> {
        match name.to_ascii_lowercase().as_str() {
            "utf-8" | "utf8" => Some(Self::Utf8),
            "latin-1" | "latin1" | "iso-8859-1" | "windows-1252" | "cp1252" => Some(Self::Latin1),
            "utf-16le" | "utf-16" => Some(Self::Utf16Le),
            "utf-16be" => Some(Self::Utf16Be),
            _ => None,
        }
    }

    /// Its name in a configuration.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Utf8 => "utf-8",
            Self::Latin1 => "latin-1",
            Self::Utf16Le => "utf-16le",
            Self::Utf16Be => "utf-16be",
        }
    }

    /// The encoding that a byte order mark tells; UTF-8 has none that matters.
    pub(crate) fn of_mark(first: &[u8]) -> Option<Self> {
        match first {
            [0xff, 0xfe, ..] => Some(Self::Utf16Le),
            [0xfe, 0xff, ..] => Some(Self::Utf16Be),
            _ => None,
        }
    }

    /// True if characters take two bytes.
    pub(crate) fn is_wide(self) -> bool {
        matches!(self, Self::Utf16Le | Self::Utf16Be)
    }
}

/// The letters that Windows-1252 has at 0x80 to 0x9f; five places are empty.
const WINDOWS: [char; 32] = [
    '€', '\u{81}', '‚', 'ƒ', '„', '…', '†', '‡', 'ˆ', '‰', 'Š', '‹', 'Œ', '\u{8d}', 'Ž', '\u{8f}', '\u{90}', '‘', '’',
    '“', '”', '•', '–', '—', '˜', '™', 'š', '›', 'œ', '\u{9d}', 'ž', 'Ÿ',
];

/// Reads text in another encoding as UTF-8.
pub(crate) struct Utf8Reader<R> {
    read: R,
    encoding: TextEncoding,
    /// Bytes of a unit or pair that has not come whole.
    rest: Vec<u8>,
    text: Vec<u8>,
    taken: usize,
    started: bool,
}

impl<R: Read> Utf8Reader<R> {
    pub(crate) fn new(read: R, encoding: TextEncoding) -> Self {
        Self { read, encoding, rest: Vec::new(), text: Vec::new(), taken: 0, started: false }
    }

    /// Decodes what has come; `last` if nothing follows.
    fn decode(&mut self, last: bool) {
        self.text.clear();
        self.taken = 0;
        match self.encoding {
            TextEncoding::Utf8 => self.text.append(&mut self.rest),
            TextEncoding::Latin1 => {
                let letter = |byte: u8| match byte {
                    0x80..=0x9f => WINDOWS[usize::from(byte - 0x80)],
                    other => char::from(other),
                };
                self.rest.drain(..).for_each(|byte| push(letter(byte), &mut self.text));
            }
            TextEncoding::Utf16Le => self.wide(u16::from_le_bytes, last),
            TextEncoding::Utf16Be => self.wide(u16::from_be_bytes, last),
        }
    }

    fn wide(&mut self, unit: fn([u8; 2]) -> u16, last: bool) {
        let units: Vec<u16> = self.rest.chunks_exact(2).map(|pair| unit([pair[0], pair[1]])).collect();
        // The first half of a pair waits for the second.
        let waits = usize::from(!last && units.last().is_some_and(|unit| (0xd800..0xdc00).contains(unit)));
        let whole = &units[..units.len() - waits];
        let marked = !self.started;
        self.started |= !whole.is_empty();
        for (i, character) in char::decode_utf16(whole.iter().copied()).enumerate() {
            match character {
                Ok('\u{feff}') if i == 0 && marked => {}
                Ok(character) => push(character, &mut self.text),
                Err(_) => self.text.push(INVALID),
            }
        }
        self.rest.drain(..whole.len() * 2);
        if last && !self.rest.is_empty() {
            self.text.push(INVALID);
            self.rest.clear();
        }
    }
}

fn push(character: char, text: &mut Vec<u8>) {
    text.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
}

impl<R: Read> Read for Utf8Reader<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.taken == self.text.len() {
            let start = self.rest.len();
            self.rest.resize(start + READ_BYTES, 0);
            let read = self.read.read(&mut self.rest[start..]);
            self.rest.truncate(start + *read.as_ref().unwrap_or(&0));
            let ended = read? == 0;
            self.decode(ended);
            if ended && self.text.is_empty() {
                return Ok(0);
            }
        }
        let size = into.len().min(self.text.len() - self.taken);
        into[..size].copy_from_slice(&self.text[self.taken..self.taken + size]);
        self.taken += size;
        Ok(size)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Gives a few bytes at a time.
    struct Trickle<'a>(&'a [u8], usize);

    impl Read for Trickle<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let size = self.1.min(self.0.len()).min(into.len());
            into[..size].copy_from_slice(&self.0[..size]);
            self.0 = &self.0[size..];
            Ok(size)
        }
    }

    fn all(bytes: &[u8], size: usize, encoding: TextEncoding) -> Vec<u8> {
        let mut text = Vec::new();
        Utf8Reader::new(Trickle(bytes, size), encoding).read_to_end(&mut text).unwrap();
        text
    }

    #[test]
    fn what_is_no_character_is_no_utf8() {
        assert_eq!(all(b"a\0\0\xd8b\0c", 3, TextEncoding::Utf16Le), b"a\xffb\xff");
        assert_eq!(all(b"\0a\xdc\0", 1, TextEncoding::Utf16Be), b"a\xff");
    }

    proptest! {
        #[test]
        fn pieces_do_not_matter(text in "\\PC{0,40}|[a\u{10ffff}\u{feff}]{0,9}", size in 1usize..9) {
            let little: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
            let big: Vec<u8> = text.encode_utf16().flat_map(u16::to_be_bytes).collect();
            let plain = text.strip_prefix('\u{feff}').unwrap_or(&text);
            prop_assert_eq!(all(&little, size, TextEncoding::Utf16Le), plain.as_bytes());
            prop_assert_eq!(all(&big, size, TextEncoding::Utf16Be), plain.as_bytes());
            prop_assert_eq!(all(text.as_bytes(), size, TextEncoding::Utf8), text.as_bytes());
        }

        #[test]
        fn every_byte_is_a_letter(bytes in prop::collection::vec(any::<u8>(), 0..40), size in 1usize..9) {
            let text = String::from_utf8(all(&bytes, size, TextEncoding::Latin1)).unwrap();
            prop_assert_eq!(text.chars().count(), bytes.len());
        }
    }
}
