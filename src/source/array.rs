//! Finds where the elements of a JSON array end, without reading them: brackets are counted outside strings. Whether an element
//! is JSON is for its decoder to say.
//!
//! A missing quote or bracket moves the borders of everything behind it. So the scan checks what it needs to be sure of a border:
//! a string has punctuation around it and no line break in it, a bracket closes one of its kind, and a comma stands between elements.
//! Where that does not hold, the array is damaged and no border behind is believed.

/// The place in an array that is not closed yet.
#[derive(Debug, Default)]
pub(super) struct ArrayScan {
    /// How many brackets of the element are open.
    depth: u32,
    /// For each open bracket one bit, set for an object. Decoders refuse what is deeper; there, only the number of brackets counts.
    objects: u128,
    in_string: bool,
    escaped: bool,
    last: Last,
    /// The rest of an element that was too long is passed over.
    pub(super) skipping: bool,
}

/// What the scan met last, blanks aside.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Last {
    /// An opening bracket or a comma.
    #[default]
    Begun,
    Colon,
    /// A string or a closing bracket: only punctuation may follow.
    Whole,
    /// Part of a number or of a word.
    Word,
}

/// What ended an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ArrayEnd {
    /// A comma.
    Next,
    /// The end of the array.
    Last,
    /// Damage: where this element ends cannot be told, nor where later ones do.
    Damaged,
}

impl ArrayScan {
    /// The end of the element that is being scanned, by its index in `bytes`. Bytes without an end must not be given again.
    pub(super) fn find_end(&mut self, bytes: &[u8]) -> Option<(usize, ArrayEnd)> {
        let end = bytes.iter().enumerate().find_map(|(at, &byte)| Some((at, self.step(byte)?)))?;
        self.skipping = false;
        Some(end)
    }

    fn step(&mut self, byte: u8) -> Option<ArrayEnd> {
        if self.in_string {
            match byte {
                b'\n' | b'\r' => return Some(ArrayEnd::Damaged),
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => self.in_string = false,
                _ => {}
            }
            return None;
        }
        if byte.is_ascii_whitespace() {
            return None;
        }
        let last = std::mem::take(&mut self.last);
        let fits = match byte {
            b'"' => {
                (self.in_string, self.last) = (true, Last::Whole);
                matches!(last, Last::Begun | Last::Colon)
            }
            b'{' | b'[' => {
                let value = last == Last::Colon || last == Last::Begun && !self.in_an(b'{');
                self.open(byte == b'{');
                value
            }
            b'}' | b']' if self.depth > 0 => {
                let own = self.in_an(if byte == b'}' { b'{' } else { b'[' }) || self.depth > u128::BITS;
                (self.depth, self.last) = (self.depth - 1, Last::Whole);
                own
            }
            b']' => return Some(ArrayEnd::Last),
            b',' if self.depth == 0 => return Some(ArrayEnd::Next),
            b',' => true,
            b':' => {
                self.last = Last::Colon;
                self.depth > 0
            }
            b'}' => false,
            _ => {
                self.last = Last::Word;
                last != Last::Whole
            }
        };
        (!fits).then_some(ArrayEnd::Damaged)
    }

    fn open(&mut self, object: bool) {
        let bit = 1_u128.checked_shl(self.depth).unwrap_or(0);
        self.objects = if object { self.objects | bit } else { self.objects & !bit };
        self.depth = self.depth.saturating_add(1);
    }

    /// True if the innermost open bracket is this one, as far as it is remembered.
    fn in_an(&self, bracket: u8) -> bool {
        let level = self.depth.checked_sub(1).filter(|level| *level < u128::BITS);
        level.is_some_and(|level| (self.objects >> level & 1 == 1) == (bracket == b'{'))
    }
}
