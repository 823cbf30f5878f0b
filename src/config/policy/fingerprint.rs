//! A stable 128-bit hash that names the policy of a release.
//!
//! Invariant: the same on every machine and in every build. Not a cryptographic hash: it tells versions apart, it does
//! not defend against somebody who looks for collisions.

/// FNV-1a with 128 bits. `std` hashers may change between releases, so they cannot name a policy in a manifest.
pub(super) struct Fingerprint(u128);

impl Fingerprint {
    const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;

    /// Of nothing yet.
    pub(super) fn new() -> Self {
        Self(Self::OFFSET)
    }

    /// Takes in one part. Its length goes in too, so that parts cannot be cut differently.
    pub(super) fn part(&mut self, bytes: &[u8]) {
        self.bytes(&(bytes.len() as u64).to_le_bytes());
        self.bytes(bytes);
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |hash, &byte| (hash ^ u128::from(byte)).wrapping_mul(Self::PRIME));
    }

    /// As hex.
    pub(super) fn finish(self) -> String {
        format!("{:032x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_fnv1a() {
        // Published test vectors of FNV-1a 128.
        let of = |text: &str| {
            let mut hash = Fingerprint::new();
            hash.bytes(text.as_bytes());
            hash.finish()
        };
        assert_eq!(of(""), "6c62272e07bb014262b821756295c58d");
        assert_eq!(of("a"), "d228cb696f1a8caf78912b704e4a8964");
        assert_eq!(of("foobar"), "343e1662793c64bf6f0d3597ba446f18");
    }

    #[test]
    fn parts_do_not_run_together() {
        let of = |parts: [&str; 2]| {
            let mut hash = Fingerprint::new();
            parts.iter().for_each(|p| hash.part(p.as_bytes()));
            hash.finish()
        };
        assert_ne!(of(["ab", "c"]), of(["a", "bc"]));
    }
}
