//! Places by geohash, cut off character by character: u33db2m, u33db2, u33db, ... Each character fewer is a cell 32 times as large.
//!
//! Read are geohashes, and pairs of latitude and longitude in degrees (`52.52,13.405`, also with `;`, blanks or brackets), which
//! become the geohash of their cell. The finest cells are level 0: what is more exact in the input is never published.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::Deserialize;

use super::closed::loss_of;
use super::{Errors, HierarchyError, TOP};
use crate::model::lattice::Level;

/// The digits of a geohash.
const DIGITS: &[u8; 32] = b"0123456789bcdefghjkmnpqrstuvwxyz";
/// Longer ones are finer than a hand.
const MAX_LENGTH: u8 = 12;
/// How far a cell reaches at most, from west to east at the equator, by the length of its geohash.
const WIDTHS: [&str; MAX_LENGTH as usize] =
    ["5,000 km", "1,250 km", "156 km", "39 km", "5 km", "1.2 km", "153 m", "38 m", "5 m", "1.2 m", "15 cm", "4 cm"];

/// Places.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GeohashSpec {
    /// Lengths of the geohashes, from long to short; the first is how exact a value is. Default: [7, 6, 5, 4, 3, 2].
    #[schemars(length(min = 1))]
    pub lengths: Vec<u8>,
}

impl Default for GeohashSpec {
    fn default() -> Self {
        Self { lengths: vec![7, 6, 5, 4, 3, 2] }
    }
}

#[derive(Hash)]
pub(super) struct Geohash {
    lengths: Vec<u8>,
}

impl Geohash {
    pub(super) fn new(spec: GeohashSpec) -> Result<Self, Vec<HierarchyError>> {
        let mut errors = Errors::default();
        if spec.lengths.is_empty() {
            errors.push(None, "no lengths of geohashes; write some, such as [7, 6, 5, 4]");
        }
        if let Some(length) = spec.lengths.iter().find(|&&length| length == 0 || length > MAX_LENGTH) {
            errors.push(None, format!("length {length} of a geohash; write 1 to {MAX_LENGTH}"));
        }
        if let Some(pair) = spec.lengths.windows(2).find(|pair| pair[0] <= pair[1]) {
            errors.push(None, format!("length {} after {}; write lengths from long to short", pair[1], pair[0]));
        }
        errors.into_result()?;
        Ok(Self { lengths: spec.lengths })
    }

    pub(super) fn height(&self) -> Level {
        self.lengths.len() as Level
    }

    pub(super) fn canonical<'a>(&self, text: &'a str) -> Option<Cow<'a, str>> {
        let length = usize::from(self.lengths[0]);
        if text.len() == length && is_geohash(text) {
            return Some(Cow::Borrowed(text));
        }
        let lower = text.to_ascii_lowercase();
        if lower.len() >= length && is_geohash(&lower) {
            return Some(Cow::Owned(lower[..length].to_owned()));
        }
        let (latitude, longitude) = pair(text)?;
        Some(Cow::Owned(encode(latitude, longitude, length)))
    }

    pub(super) fn label<'a>(&self, leaf: &'a str, level: Level) -> Option<Cow<'a, str>> {
        if leaf.len() != usize::from(self.lengths[0]) || !is_geohash(leaf) {
            return None;
        }
        match self.lengths.get(usize::from(level)) {
            Some(&length) => Some(Cow::Borrowed(&leaf[..usize::from(length)])),
            None => (level == self.height()).then_some(Cow::Borrowed(TOP)),
        }
    }

    /// How large the cells of a level below the top are.
    pub(super) fn width(&self, level: Level) -> &'static str {
        let length = self.lengths.get(usize::from(level)).map_or(0, |&length| usize::from(length));
        WIDTHS.get(length.wrapping_sub(1)).copied().unwrap_or("any size")
    }

    /// A place in the sea off Denmark, where geohashes are explained.
    pub(super) fn example(&self) -> String {
        encode(57.649_11, 10.407_44, usize::from(self.lengths[0]))
    }

    pub(super) fn loss(&self, level: Level) -> f64 {
        loss_of(self.leaves(level), self.size(), false)
    }

    pub(super) fn size(&self) -> f64 {
        cells(self.lengths[0])
    }

    /// How many of the finest cells a cell of a level below the top has.
    pub(super) fn leaves(&self, level: Level) -> f64 {
        self.lengths.get(usize::from(level)).map_or(self.size(), |&length| cells(self.lengths[0] - length))
    }

    /// The share of its characters that a level below the top keeps.
    pub(super) fn quality(&self, level: Level) -> f64 {
        self.lengths.get(usize::from(level)).map_or(0.0, |&length| f64::from(length) / f64::from(self.lengths[0]))
    }
}

fn cells(length: u8) -> f64 {
    32f64.powi(i32::from(length))
}

fn is_geohash(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| DIGITS.contains(&byte))
}

/// Latitude and longitude in degrees, as they are written side by side.
fn pair(text: &str) -> Option<(f64, f64)> {
    let text = text.trim_start_matches(['(', '[']).trim_end_matches([')', ']']).trim();
    let (latitude, longitude) = match text.split_once(';') {
        // With a semicolon, a comma is the decimal point.
        Some((one, other)) => (one.replace(',', "."), other.replace(',', ".")),
        None => {
            let (one, other) = text.split_once(',').or_else(|| text.split_once(' '))?;
            (one.to_owned(), other.to_owned())
        }
    };
    let degrees = |text: &str, most: f64| {
        let text = text.trim();
        let plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'-' | b'+'));
        text.parse::<f64>().ok().filter(|degrees| plain && degrees.abs() <= most)
    };
    Some((degrees(&latitude, 90.0)?, degrees(&longitude, 180.0)?))
}

/// Halves the longitude and the latitude in turn; five halves are one digit.
fn encode(latitude: f64, longitude: f64, length: usize) -> String {
    let mut ranges = [(-180.0, 180.0), (-90.0, 90.0)];
    let place = [longitude, latitude];
    let mut bit = 0;
    let mut digit = || {
        let mut number = 0;
        for _ in 0..5 {
            let (low, high) = &mut ranges[bit % 2];
            let middle = f64::midpoint(*low, *high);
            let upper = place[bit % 2] >= middle;
            *(if upper { low } else { high }) = middle;
            number = number * 2 + usize::from(upper);
            bit += 1;
        }
        char::from(DIGITS[number])
    };
    (0..length).map(|_| digit()).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::Hierarchy;
    use super::*;

    #[test]
    fn geohashes_and_pairs_are_cut_off() {
        let h = Hierarchy::geohash(GeohashSpec { lengths: vec![6, 4, 1] }).unwrap();
        let leaf = h.canonical("57.64911,10.40744").unwrap().into_owned();
        let labels: Vec<_> = (0..=h.height()).map(|level| h.label(&leaf, level).unwrap().into_owned()).collect();
        assert_eq!(labels, ["u4pruy", "u4pr", "u", "*"]);
        for text in ["u4pruydqqvj", "U4PRUY", "(57.64911, 10.40744)", "57,64911;10,40744", "57.64911 10.40744"] {
            assert_eq!(h.canonical(text).as_deref(), Some("u4pruy"), "{text}");
        }
        for text in ["", "u4pr", "u4pruya", "91,0", "0,181", "NaN,0", "1e1,2", "52.5", ",", "é"] {
            assert_eq!(h.canonical(text), None, "{text}");
        }
    }

    #[test]
    fn losses_count_cells() {
        let h = Hierarchy::geohash(GeohashSpec { lengths: vec![3, 2, 1] }).unwrap();
        assert_eq!(h.open_loss("u4p", 1), 31.0 / 32_767.0);
        assert_eq!((h.size(), h.open_leaves("u4p", 2)), (Some(32_768.0), 1024.0));
        assert_eq!([0, 1, 2, 3].map(|level| h.quality(level)), [1.0, 2.0 / 3.0, 1.0 / 3.0, 0.0]);
        for lengths in [vec![], vec![13], vec![4, 5], vec![0]] {
            assert!(Hierarchy::geohash(GeohashSpec { lengths }).is_err());
        }
    }

    proptest! {
        #[test]
        fn a_pair_lies_in_its_cell_and_levels_refine(
            one in (-90.0f64..=90.0, -180.0f64..=180.0), near in (-0.01f64..0.01, -0.01f64..0.01),
        ) {
            let h = Hierarchy::geohash(GeohashSpec::default()).unwrap();
            let other = ((one.0 + near.0).clamp(-90.0, 90.0), (one.1 + near.1).clamp(-180.0, 180.0));
            let leaf = |(lat, lon): (f64, f64)| h.canonical(&format!("{lat:.6},{lon:.6}")).unwrap().into_owned();
            let pair = [leaf(one), leaf(other)];
            let mut met = false;
            for level in 0..=h.height() {
                let same = h.label(&pair[0], level) == h.label(&pair[1], level);
                prop_assert!(!met || same);
                met |= same;
            }
            prop_assert!(met);
        }
    }
}
