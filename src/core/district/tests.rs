//! Maps of generated people: even, determined by the records, moved and not made anew, silent about few.

use std::sync::{Arc, LazyLock};

use proptest::prelude::*;

use super::*;
use crate::model::hierarchy::{IntervalSpec, PrefixSpec};
use crate::model::policy::{
    Criterion, Fallback, K, Loss, QuasiIdentifier, RecodingKind, Render, SuppressionAction, SuppressionLimit,
};
use crate::model::record::Value;
use crate::model::schema::{Role, Schema};

fn policy(min_level: Level) -> Arc<Policy> {
    let quasi = |name: &str, hierarchy: Hierarchy| QuasiIdentifier {
        name: name.into(),
        weight: 1.0,
        min_level: min_level.min(hierarchy.height()),
        max_level: hierarchy.height(),
        priority: 1,
        render: Render::Label,
        hierarchy: Arc::new(hierarchy),
    };
    let widths = [5u32, 20].map(Into::into).to_vec();
    Arc::new(Policy {
        schema: Schema::new(["age", "zip", "land"].map(|name| (name, Role::Quasi))),
        quasi: vec![
            quasi("age", Hierarchy::intervals(IntervalSpec::new(widths, 0u32.into(), 120u32.into())).unwrap()),
            quasi("zip", Hierarchy::prefix(PrefixSpec::new(3)).unwrap()),
            quasi("land", Hierarchy::parse_csv(b"fr;west;*\nde;west;*\npl;east;*\ncz;east;*\n").unwrap()),
        ],
        criteria: vec![Criterion::KAnonymity(K(5))],
        suppression: SuppressionLimit(0.05),
        action: SuppressionAction::Drop,
        recoding: RecodingKind::FullDomain,
        loss: Loss::Glm,
        unknown_value: Fallback::Reject,
        missing_value: Fallback::Reject,
        null_value: Fallback::Reject,
        sequential: None,
        fingerprint: String::new(),
    })
}

/// People whose attributes follow from a number.
fn person(number: u64) -> Record<'static> {
    let mixed = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let part = |shift: u32, of: u64| (mixed >> shift) % of;
    let land = ["fr", "de", "pl", "cz"][(part(40, 7) % 4) as usize];
    // Skewed, as places are.
    let zip = part(8, 30) * part(20, 30);
    let values = [(16 + part(50, 70)).to_string(), format!("{zip:03}"), land.to_owned()];
    Record { values: values.into_iter().map(|text| Value::Text(text.into())).collect() }
}

fn sketch(policy: &Arc<Policy>, people: std::ops::Range<u64>) -> Sketch {
    let mut sketch = Sketch::new(policy);
    people.for_each(|number| assert!(sketch.add(&person(number))));
    sketch
}

fn sizes(districts: &Districts, outlets: u32, people: std::ops::Range<u64>) -> Vec<usize> {
    let mut sizes = vec![0; outlets as usize];
    people.for_each(|number| sizes[districts.outlet(&person(number), number) as usize] += 1);
    sizes
}

#[test]
fn outlets_are_even_also_for_records_that_come_later() {
    let policy = policy(0);
    let sketch = sketch(&policy, 0..6000);
    for outlets in [1, 2, 3, 4, 8] {
        let map = sketch.divide(outlets, None);
        assert!(!map.is_undivided(), "{outlets}");
        let sizes = sizes(&map.resolve(&policy).unwrap(), outlets, 6000..12_000);
        let most = *sizes.iter().max().unwrap() as f64 * f64::from(outlets) / 6000.0;
        assert!(most < 1.5 && sizes.iter().all(|size| *size > 0), "{outlets} outlets: {sizes:?}");
    }
}

#[test]
fn a_map_is_the_same_from_the_same_records_and_survives_its_text() {
    let policy = policy(0);
    let map = sketch(&policy, 0..4000).divide(8, None);
    assert_eq!(map, sketch(&policy, 0..4000).divide(8, None));
    let text = serde_json::to_string(&map).unwrap();
    let again: DistrictMap = serde_json::from_str(&text).unwrap();
    assert_eq!(again, map);
    let (one, other) = (map.resolve(&policy).unwrap(), again.resolve(&policy).unwrap());
    assert!((0..2000).all(|number| one.outlet(&person(number), 0) == other.outlet(&person(number), 0)));
}

#[test]
fn cuts_stay_above_the_levels_that_may_not_be_published_and_name_values_of_many() {
    fn levels(district: &District, each: &mut dyn FnMut(&DistrictCut)) {
        if let District::Cut(cut) = district {
            each(cut);
            levels(&cut.first, each);
            levels(&cut.rest, each);
        }
    }
    let policy = policy(1);
    let records = sketch(&policy, 0..4000);
    let map = records.divide(8, None);
    let mut cuts = 0;
    levels(&map.districts, &mut |cut| {
        cuts += 1;
        assert!(cut.level >= 1, "{cut:?}");
        let quasi = policy.quasi.iter().position(|quasi| *quasi.name == *cut.attribute).unwrap();
        let holds = |number: &u64| {
            let record = person(*number);
            let value = record.values[quasi].canonical().unwrap();
            policy.quasi[quasi].hierarchy.label(&value, cut.level).unwrap() == cut.to
        };
        assert!((0..4000).filter(holds).count() >= 5, "{cut:?}");
    });
    assert!(cuts > 2);
    // A map with a finer cut is refused by a policy that does not publish it.
    let finer = DistrictCut {
        attribute: "zip".into(),
        level: 0,
        to: "100".into(),
        first: District::Outlets(0, 1),
        rest: District::Outlets(1, 1),
    };
    let finer = DistrictMap { outlets: 2, districts: District::Cut(Box::new(finer)) };
    assert!(finer.resolve(&policy).is_none());
    assert!(finer.resolve(&super::tests::policy(0)).is_some());
    let beyond = DistrictMap { outlets: 2, districts: District::Outlets(1, 2) };
    assert!(beyond.resolve(&policy).is_none());
}

#[test]
fn few_records_are_not_divided_and_spread_over_all_outlets() {
    let policy = policy(0);
    let map = sketch(&policy, 0..100).divide(4, None);
    assert_eq!(map, DistrictMap::undivided(4));
    let sizes = sizes(&map.resolve(&policy).unwrap(), 4, 0..400);
    assert_eq!(sizes, [100, 100, 100, 100]);
}

#[test]
fn who_drifts_moves_the_cuts_and_leaves_the_attributes() {
    fn attributes(district: &District) -> Vec<String> {
        match district {
            District::Outlets(..) => Vec::new(),
            District::Cut(cut) => {
                let parts = [attributes(&cut.first), attributes(&cut.rest)].concat();
                [vec![format!("{}/{}", cut.attribute, cut.level)], parts].concat()
            }
        }
    }
    let policy = policy(0);
    let map = sketch(&policy, 0..4000).divide(4, None);
    let later = sketch(&policy, 50_000..54_000).divide(4, Some(&map));
    assert_eq!(attributes(&map.districts)[0], attributes(&later.districts)[0]);
}

proptest! {
    /// Every record has one outlet, whatever its values are, and values that are alike at the cuts share it.
    #[test]
    fn every_record_has_a_outlet(age in any::<u8>(), zip in "[0-9a-z]{0,4}", land in "[a-z]{0,2}", spread in any::<u64>()) {
        static DISTRICTS: LazyLock<Districts> = LazyLock::new(|| {
            let policy = policy(0);
            sketch(&policy, 0..1500).divide(3, None).resolve(&policy).unwrap()
        });
        let districts = &*DISTRICTS;
        let record = |zip: &str| Record {
            values: [age.to_string(), zip.to_owned(), land.clone()].into_iter().map(|text| Value::Text(text.into())).collect(),
        };
        prop_assert!(districts.outlet(&record(&zip), spread) < 3);
        prop_assert_eq!(districts.outlet(&record(&zip), spread), districts.outlet(&record(&format!(" {zip}\t")), spread));
    }
}
