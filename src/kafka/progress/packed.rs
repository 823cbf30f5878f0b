//! The compact text of a list of small numbers, for commit metadata and journal entries: `BITS.COUNT.BASE64`, each number with as
//! many bits as the largest one takes.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// The text of a list.
pub fn write(numbers: &[u32]) -> String {
    let bits = numbers.iter().map(|number| (u32::BITS - number.leading_zeros()) as usize).max().unwrap_or(1).max(1);
    let mut packed = vec![0u8; (numbers.len() * bits).div_ceil(8)];
    for (at, number) in numbers.iter().enumerate() {
        for bit in (0..bits).filter(|bit| number >> bit & 1 == 1) {
            let place = at * bits + bit;
            packed[place / 8] |= 1 << (place % 8);
        }
    }
    format!("{bits}.{}.{}", numbers.len(), URL_SAFE_NO_PAD.encode(packed))
}

/// The list that [`write`] wrote; `None` for any other text.
pub fn parse(text: &str) -> Option<Vec<u32>> {
    let mut parts = text.splitn(3, '.');
    let bits: usize = parts.next()?.parse().ok().filter(|bits| (1..=32).contains(bits))?;
    let count: usize = parts.next()?.parse().ok()?;
    let packed = URL_SAFE_NO_PAD.decode(parts.next()?).ok()?;
    let set = |place: usize| u32::from(packed[place / 8] >> (place % 8) & 1);
    let number = |at: usize| (0..bits).map(|bit| set(at * bits + bit) << bit).sum();
    (count.checked_mul(bits)?.div_ceil(8) == packed.len()).then(|| (0..count).map(number).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn comes_back_as_it_was(numbers in prop::collection::vec(prop_oneof![0u32..9, any::<u32>()], 0..80)) {
            prop_assert_eq!(parse(&write(&numbers)), Some(numbers));
        }

        #[test]
        fn odd_text_is_refused_and_never_panics(text in "[0-9]{1,3}[.][0-9]{1,20}[.][0-9a-zA-Z_.-]{0,40}") {
            let _ = parse(&text);
        }
    }
}
