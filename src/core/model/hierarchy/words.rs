//! Levels as people say them: "as it is", "in steps of 5", "by year", "hidden". Every page, table and message that names a level
//! takes its wording from here, and so does `model/release/words.rs`, which speaks of whole recodings.
//!
//! The words follow from the configured hierarchy alone; no value that was read is among them.

use std::borrow::Cow;

use super::{Hierarchy, Kind};
use crate::model::lattice::Level;

impl Hierarchy {
    /// What a level does to a value, to be read behind the name of the attribute: "hidden" in "zip hidden".
    pub fn words(&self, level: Level) -> Cow<'static, str> {
        if level >= self.height() {
            return "hidden".into();
        }
        let at = usize::from(level);
        match &self.0 {
            // A time of day is never published.
            Kind::Dates(dates) => {
                dates.unit(level).map_or("hidden".into(), |unit| format!("by {}", unit.as_str()).into())
            }
            Kind::Places(places) if level == 0 => format!("in cells of {}", places.width(0)).into(),
            Kind::AnyOf(any) => any.at(level).map_or("hidden".into(), |(chain, level)| chain.words(level)),
            _ if level == 0 => "as it is".into(),
            Kind::Closed(closed) if closed.levels[at].len() == 1 => "hidden".into(),
            Kind::Closed(closed) => format!("in {} groups", closed.levels[at].len()).into(),
            Kind::Intervals(intervals) => format!("in steps of {}", intervals.width(level)).into(),
            Kind::Prefix(_) if level + 1 == self.height() => "by its first character".into(),
            Kind::Prefix(_) => format!("by its first {} characters", self.height() - level).into(),
            Kind::Networks(networks) => {
                let (v4, v6) = networks.lengths(level);
                format!("by network (/{v4}, IPv6 /{v6})").into()
            }
            Kind::Places(places) => format!("in cells of {}", places.width(level)).into(),
            Kind::Trivial => "as it is".into(),
        }
    }

    /// A made-up leaf, to show what the levels do without showing anybody's value; `None` where any value is a leaf.
    pub fn example(&self) -> Option<String> {
        match &self.0 {
            Kind::Closed(closed) => {
                // Not the first one: of ages that would be a newborn.
                let leaves: Vec<&str> = closed.levels[0].labels().filter(|leaf| !leaf.is_empty()).collect();
                leaves.get(leaves.len() * 31 / 100).map(|&leaf| leaf.to_owned())
            }
            Kind::Intervals(intervals) => Some(intervals.example()),
            Kind::Prefix(prefix) => Some(prefix.example()),
            Kind::Dates(dates) => Some(dates.example()),
            Kind::Networks(networks) => Some(networks.example()),
            Kind::Places(places) => Some(places.example()),
            Kind::AnyOf(any) => any.chains()[0].example(),
            Kind::Trivial => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{DateSpec, DateUnit, Decimal, GeohashSpec, IntervalSpec, IpSpec, Open, PrefixSpec};
    use super::*;

    fn all(hierarchy: &Hierarchy) -> Vec<String> {
        (0..=hierarchy.height()).map(|level| hierarchy.words(level).into_owned()).collect()
    }

    #[test]
    fn every_level_has_its_words() {
        let ages = IntervalSpec::new([Decimal::from(5), Decimal::new(125, 1) * Decimal::from(2)], 0.into(), 120.into());
        let ages = Hierarchy::intervals(IntervalSpec { open: Open::High, ..ages }).unwrap();
        assert_eq!(all(&ages), ["as it is", "in steps of 5", "in steps of 25", "hidden"]);
        let zip = Hierarchy::prefix(PrefixSpec::new(3)).unwrap();
        assert_eq!(all(&zip), ["as it is", "by its first 2 characters", "by its first character", "hidden"]);
        let born = Hierarchy::dates(DateSpec::new([DateUnit::Day, DateUnit::Year])).unwrap();
        assert_eq!(all(&born), ["by day", "by year", "hidden"]);
        let month = Hierarchy::dates(DateSpec::new([DateUnit::Month])).unwrap();
        assert_eq!(all(&month), ["by month", "hidden"]);
        assert_eq!(all(&Hierarchy::trivial()), ["as it is", "hidden"]);
        let hosts = Hierarchy::ip(IpSpec { v4: vec![16], v6: vec![48] }).unwrap();
        assert_eq!(all(&hosts), ["as it is", "by network (/16, IPv6 /48)", "hidden"]);
        let places = Hierarchy::geohash(GeohashSpec { lengths: vec![6, 4] }).unwrap();
        assert_eq!(all(&places), ["in cells of 1.2 km", "in cells of 39 km", "hidden"]);
        let jobs = Hierarchy::parse_csv(b"cook;x;all;*\nnurse;y;all;*\nclerk;y;all;*\n").unwrap();
        assert_eq!(all(&jobs), ["as it is", "in 2 groups", "hidden", "hidden"]);
    }

    #[test]
    fn examples_are_leaves() {
        let early = DateSpec { max: Some("1912-04-01".parse().unwrap()), ..DateSpec::new([DateUnit::Month]) };
        let tenths = IntervalSpec::new([Decimal::new(1, 1)], Decimal::new(-5, 1), Decimal::new(4, 1));
        let masked = PrefixSpec { mask: '3', ..PrefixSpec::new(12) };
        let hierarchies = [
            Hierarchy::dates(early),
            Hierarchy::intervals(tenths),
            Hierarchy::prefix(masked),
            Hierarchy::prefix(PrefixSpec { min_length: Some(4), ..PrefixSpec::new(9) }),
            Hierarchy::ip(IpSpec::default()),
            Hierarchy::geohash(GeohashSpec::default()),
            Hierarchy::parse_csv(b";y;*\nb;x;*\n"),
        ];
        for hierarchy in hierarchies.into_iter().flatten() {
            let leaf = hierarchy.example().unwrap();
            assert_eq!(hierarchy.canonical(&leaf).as_deref(), Some(&*leaf));
        }
        assert_eq!(Hierarchy::trivial().example(), None);
        let ages: String = (0..100).map(|age| format!("{age};*\n")).collect();
        assert_eq!(Hierarchy::parse_csv(ages.as_bytes()).unwrap().example().as_deref(), Some("31"));
    }
}
