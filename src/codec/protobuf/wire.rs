//! Protobuf's wire format, field by field: every length is checked against what is left before it is believed.

use crate::codec::MAX_DEPTH;
use crate::model::event::RejectCode;

/// The bytes of one field, by wire type.
#[derive(Clone, Copy)]
pub(super) enum Raw<'a> {
    Varint(u64),
    Fixed64([u8; 8]),
    Bytes(&'a [u8]),
    /// The bytes between the start and the end of a group.
    Group(&'a [u8]),
    Fixed32([u8; 4]),
}

/// A place in a message.
#[derive(Clone, Copy)]
pub(super) struct WireReader<'a> {
    rest: &'a [u8],
}

impl<'a> WireReader<'a> {
    pub(super) fn new(message: &'a [u8]) -> Self {
        Self { rest: message }
    }

    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// The number and the bytes of the next field; `None` at the end.
    #[inline]
    pub(super) fn field(&mut self) -> Result<Option<(u32, Raw<'a>)>, RejectCode> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let (number, wire) = self.tag()?;
        let raw = match wire {
            0 => Raw::Varint(self.varint()?),
            1 => Raw::Fixed64(self.array()?),
            2 => Raw::Bytes(self.bytes()?),
            3 => Raw::Group(self.group(number)?),
            5 => Raw::Fixed32(self.array()?),
            _ => return Err(RejectCode::Malformed),
        };
        Ok(Some((number, raw)))
    }

    fn tag(&mut self) -> Result<(u32, u8), RejectCode> {
        let tag = u32::try_from(self.varint()?).map_err(|_| RejectCode::Malformed)?;
        let number = tag >> 3;
        if number == 0 { Err(RejectCode::Malformed) } else { Ok((number, (tag & 7) as u8)) }
    }

    #[inline]
    pub(super) fn varint(&mut self) -> Result<u64, RejectCode> {
        if let [byte @ ..0x80, rest @ ..] = self.rest {
            self.rest = rest;
            return Ok(u64::from(*byte));
        }
        let mut value = 0u64;
        for (i, byte) in self.rest.iter().enumerate().take(10) {
            let bits = u64::from(byte & 0x7f);
            if i == 9 && bits > 1 {
                break;
            }
            value |= bits << (7 * i);
            if byte & 0x80 == 0 {
                self.rest = &self.rest[i + 1..];
                return Ok(value);
            }
        }
        Err(RejectCode::Malformed)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], RejectCode> {
        let (array, rest) = self.rest.split_first_chunk().ok_or(RejectCode::Malformed)?;
        self.rest = rest;
        Ok(*array)
    }

    /// Bytes with their length in front.
    pub(super) fn bytes(&mut self) -> Result<&'a [u8], RejectCode> {
        let length = usize::try_from(self.varint()?).map_err(|_| RejectCode::Malformed)?;
        let (bytes, rest) = self.rest.split_at_checked(length).ok_or(RejectCode::Malformed)?;
        self.rest = rest;
        Ok(bytes)
    }

    /// The bytes before the end of group `number`, whose start was read. Without recursion: groups hold groups.
    fn group(&mut self, number: u32) -> Result<&'a [u8], RejectCode> {
        let (all, mut open) = (self.rest, vec![number]);
        loop {
            let before = self.rest.len();
            let (number, wire) = self.tag()?;
            match wire {
                0 => self.varint().map(|_| ())?,
                1 => self.array::<8>().map(|_| ())?,
                2 => self.bytes().map(|_| ())?,
                3 if open.len() >= MAX_DEPTH => return Err(RejectCode::TooDeep),
                3 => open.push(number),
                4 if open.pop() != Some(number) => return Err(RejectCode::Malformed),
                4 if open.is_empty() => return Ok(&all[..all.len() - before]),
                4 => {}
                5 => self.array::<4>().map(|_| ())?,
                _ => return Err(RejectCode::Malformed),
            }
        }
    }
}

/// A zigzag number as the signed one that it stands for.
pub(super) fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}
