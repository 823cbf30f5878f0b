//! Finds where the elements of a JSON array end, without reading them: brackets are counted outside strings. Whether an element
//! is JSON is for its decoder to say.

/// The place in an array that is not closed yet.
#[derive(Debug, Default)]
pub(super) struct ArrayScan {
    /// How many brackets of the element are open.
    depth: usize,
    in_string: bool,
    escaped: bool,
    /// The rest of an element that was too long is passed over.
    pub(super) skipping: bool,
}

/// What ended an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ArrayEnd {
    /// A comma.
    Next,
    /// The end of the array.
    Last,
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
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => self.in_string = false,
                _ => {}
            }
            return None;
        }
        match byte {
            b'"' => self.in_string = true,
            b'{' | b'[' => self.depth += 1,
            b']' if self.depth == 0 => return Some(ArrayEnd::Last),
            b'}' | b']' => self.depth = self.depth.saturating_sub(1),
            b',' if self.depth == 0 => return Some(ArrayEnd::Next),
            _ => {}
        }
        None
    }
}
