//! The compact text of an offset set, for commit metadata and journal entries.
//!
//! The text lists, run by run, the distance from the end of the last run and the length less one. Each number has digits of
//! five bits, the lowest first; a sixth bit says that another digit follows. Most runs so take two letters; separators would
//! double that, and the space of a commit limits how many records can be held.

use crate::model::release::runs::Runs;

/// The text of a set; the first distance counts from `origin`.
pub fn write(runs: &Runs, origin: i64) -> String {
    let mut text = String::new();
    let mut last = origin;
    for run in runs.iter() {
        push_number(&mut text, run.first.0.wrapping_sub(last) as u64);
        push_number(&mut text, (run.last.0 - run.first.0) as u64);
        last = run.last.0;
    }
    text
}

/// The set that [`write`] wrote; `None` for any other text.
pub fn parse(text: &str, origin: i64) -> Option<Runs> {
    let mut runs = Runs::default();
    let (mut last, mut rest) = (origin, text.as_bytes());
    while !rest.is_empty() {
        let first = last.checked_add(number(&mut rest)?)?;
        let end = first.checked_add(number(&mut rest)?)?;
        // Runs that touch or overlap were never written.
        if runs.last().is_some_and(|last| first <= last.saturating_add(1)) {
            return None;
        }
        runs.insert(first, end);
        last = end;
    }
    Some(runs)
}

const DIGITS: &[u8; 64] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_";
const MORE: u64 = 32;

fn push_number(text: &mut String, mut number: u64) {
    loop {
        let more = if number < MORE { 0 } else { MORE };
        text.push(char::from(DIGITS[(number % MORE + more) as usize]));
        number /= MORE;
        if more == 0 {
            return;
        }
    }
}

fn number(rest: &mut &[u8]) -> Option<i64> {
    let mut number = 0u64;
    for shift in (0..64).step_by(5) {
        let (byte, others) = rest.split_first()?;
        *rest = others;
        let digit = DIGITS.iter().position(|d| d == byte)? as u64;
        let part = digit % MORE;
        number |= part.checked_mul(1 << shift).filter(|shifted| shifted >> shift == part)?;
        if digit < MORE {
            return i64::try_from(number).ok();
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn sets_come_back(offsets in prop::collection::btree_set(0i64..90, 0..60)) {
            let runs: Runs = offsets.into_iter().collect();
            prop_assert_eq!(parse(&write(&runs, 0), 0), Some(runs));
        }

        #[test]
        fn numbers_come_back(number in 0i64..=i64::MAX) {
            let runs = Runs::from_iter([number]);
            prop_assert_eq!(parse(&write(&runs, 0), 0), Some(runs));
        }

        #[test]
        fn any_text_parses_or_not_but_never_panics(text in "\\PC{0,40}", origin in any::<i64>()) {
            if let Some(runs) = parse(&text, origin) {
                prop_assert!(runs.as_slice().windows(2).all(|pair| pair[0].last < pair[1].first));
            }
        }
    }
}
