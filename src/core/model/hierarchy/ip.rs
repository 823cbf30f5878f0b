//! IP addresses by networks: 10.1.2.3, 10.1.2.0/24, 10.1.0.0/16, 10.0.0.0/8, *. The same levels hold for IPv6, with prefix
//! lengths of its own: 2001:db8:1:2::3, 2001:db8:1:2::/64, 2001:db8:1::/48.
//!
//! An IPv4 address that is written as an IPv6 one (`::ffff:10.1.2.3`) is that IPv4 address. For losses each family counts for
//! itself, and an IPv6 address by a quarter of its bits: otherwise no network of IPv4 would lose anything beside IPv6.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::borrow::Cow;

use schemars::JsonSchema;
use serde::Deserialize;

use super::closed::loss_of;
use super::{Errors, HierarchyError, TOP};
use crate::model::lattice::Level;

/// The bits that are counted of an address of either family.
const COUNTED_BITS: f64 = 32.0;

/// IP addresses.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct IpSpec {
    /// Prefix lengths of IPv4 networks, from long to short; one level each. Default: [24, 16, 8].
    #[schemars(length(min = 1))]
    pub v4: Vec<u8>,
    /// Prefix lengths of IPv6 networks, as many. Default: [64, 48, 32].
    #[schemars(length(min = 1))]
    pub v6: Vec<u8>,
}

impl Default for IpSpec {
    fn default() -> Self {
        Self { v4: vec![24, 16, 8], v6: vec![64, 48, 32] }
    }
}

#[derive(Hash)]
pub(super) struct Networks {
    v4: Vec<u8>,
    v6: Vec<u8>,
}

impl Networks {
    pub(super) fn new(spec: IpSpec) -> Result<Self, Vec<HierarchyError>> {
        let mut errors = Errors::default();
        for (key, lengths, bits) in [("v4", &spec.v4, 32), ("v6", &spec.v6, 128)] {
            if lengths.is_empty() {
                errors.push(None, format!("no prefix lengths in {key}; write some, such as [24, 16, 8]"));
            }
            if let Some(length) = lengths.iter().find(|&&length| length == 0 || length >= bits) {
                errors.push(None, format!("prefix length {length} in {key}; write 1 to {}", bits - 1));
            }
            if let Some(pair) = lengths.windows(2).find(|pair| pair[0] <= pair[1]) {
                let message =
                    format!("prefix length {} after {} in {key}; write them from long to short", pair[1], pair[0]);
                errors.push(None, message);
            }
        }
        if spec.v4.len() != spec.v6.len() {
            errors.push(
                None,
                format!("{} levels in v4 and {} in v6; write as many in both", spec.v4.len(), spec.v6.len()),
            );
        }
        errors.into_result()?;
        Ok(Self { v4: spec.v4, v6: spec.v6 })
    }

    pub(super) fn height(&self) -> Level {
        self.v4.len() as Level + 1
    }

    pub(super) fn canonical<'a>(&self, text: &'a str) -> Option<Cow<'a, str>> {
        let address = text.parse::<IpAddr>().ok()?.to_canonical().to_string();
        Some(if address == text { Cow::Borrowed(text) } else { Cow::Owned(address) })
    }

    pub(super) fn label<'a>(&self, leaf: &'a str, level: Level) -> Option<Cow<'a, str>> {
        let address = self.leaf(leaf)?;
        match level {
            0 => Some(Cow::Borrowed(leaf)),
            _ if level == self.height() => Some(Cow::Borrowed(TOP)),
            _ => {
                let length = self.length(address, level)?;
                Some(Cow::Owned(format!("{}/{length}", network(address, length))))
            }
        }
    }

    /// The prefix lengths of a level between the leaves and the top.
    pub(super) fn lengths(&self, level: Level) -> (u8, u8) {
        let at = usize::from(level) - 1;
        (self.v4[at], self.v6[at])
    }

    /// An address that is set aside for examples.
    pub(super) fn example(&self) -> String {
        "192.0.2.17".into()
    }

    pub(super) fn loss(&self, leaf: &str, level: Level) -> f64 {
        loss_of(self.leaves(leaf, level), COUNTED_BITS.exp2(), false)
    }

    /// Both families.
    pub(super) fn size(&self) -> f64 {
        2.0 * COUNTED_BITS.exp2()
    }

    /// How many of the counted addresses the leaf's network at a level below the top has.
    pub(super) fn leaves(&self, leaf: &str, level: Level) -> f64 {
        let bits = self.leaf(leaf).filter(|_| level > 0).and_then(|address| {
            let length = f64::from(self.length(address, level)?);
            Some(COUNTED_BITS - if address.is_ipv4() { length } else { length / 4.0 })
        });
        bits.unwrap_or(0.0).exp2()
    }

    /// The share of the counted bits that a level below the top keeps, the mean of both families.
    pub(super) fn quality(&self, level: Level) -> f64 {
        let (v4, v6) = self.lengths(level);
        // One bit tells the families apart.
        (1.0 + (f64::from(v4) + f64::from(v6) / 4.0) / 2.0) / (1.0 + COUNTED_BITS)
    }

    fn leaf(&self, leaf: &str) -> Option<IpAddr> {
        leaf.parse::<IpAddr>().ok().filter(|address| address.to_string() == leaf && address.to_canonical() == *address)
    }

    fn length(&self, address: IpAddr, level: Level) -> Option<u8> {
        let lengths = if address.is_ipv4() { &self.v4 } else { &self.v6 };
        lengths.get(usize::from(level).checked_sub(1)?).copied()
    }
}

fn network(address: IpAddr, length: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
            Ipv4Addr::from_bits(address.to_bits() & mask).into()
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
            Ipv6Addr::from_bits(address.to_bits() & mask).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::Hierarchy;
    use super::*;

    fn labels(h: &Hierarchy, text: &str) -> Vec<String> {
        let leaf = h.canonical(text).unwrap().into_owned();
        (0..=h.height()).map(|level| h.label(&leaf, level).unwrap().into_owned()).collect()
    }

    #[test]
    fn networks_of_both_families() {
        let h = Hierarchy::ip(IpSpec::default()).unwrap();
        assert_eq!(labels(&h, "10.1.2.3"), ["10.1.2.3", "10.1.2.0/24", "10.1.0.0/16", "10.0.0.0/8", "*"]);
        let v6 = ["2001:db8:1:2::3", "2001:db8:1:2::/64", "2001:db8:1::/48", "2001:db8::/32", "*"];
        assert_eq!(labels(&h, "2001:0DB8:1:2:0:0:0:3"), v6);
        assert_eq!(labels(&h, "::ffff:10.1.2.3")[0], "10.1.2.3");
        for text in ["", "10.1.2", "10.1.2.3/24", "10.1.2.256", "010.1.2.3", "localhost", "fe80::1%eth0"] {
            assert_eq!(h.canonical(text), None, "{text}");
        }
    }

    #[test]
    fn losses_count_each_family() {
        let h = Hierarchy::ip(IpSpec::default()).unwrap();
        assert_eq!(h.open_loss("10.1.2.3", 1), 255.0 / (2f64.powi(32) - 1.0));
        assert_eq!(h.open_loss("2001:db8::1", 3), h.open_loss("10.1.2.3", 3), "32 bits of 128, 8 bits of 32");
        assert_eq!((h.open_leaves("10.1.2.3", 0), h.open_leaves("10.1.2.3", 1)), (1.0, 256.0));
        assert!((0..h.height()).all(|level| h.quality(level) > h.quality(level + 1)));
    }

    #[test]
    fn lengths_are_checked() {
        for (v4, v6) in [(vec![], vec![]), (vec![32], vec![64]), (vec![8, 16], vec![64, 48]), (vec![24], vec![64, 48])]
        {
            assert!(Hierarchy::ip(IpSpec { v4, v6 }).is_err());
        }
    }

    proptest! {
        #[test]
        fn every_level_refines_the_next(a in any::<u128>(), flip in 0u32..128, v4 in any::<bool>()) {
            let h = Hierarchy::ip(IpSpec::default()).unwrap();
            let text = |bits: u128| if v4 {
                Ipv4Addr::from_bits(bits as u32).to_string()
            } else {
                Ipv6Addr::from_bits(bits).to_string()
            };
            let pair = [text(a), text(a ^ (1 << flip))].map(|text| h.canonical(&text).unwrap().into_owned());
            let mut met = false;
            for level in 0..=h.height() {
                let [one, other] = [0, 1].map(|i: usize| h.label(&pair[i], level).unwrap().into_owned());
                prop_assert!(!met || one == other);
                met |= one == other;
            }
            prop_assert!(met);
        }
    }
}
