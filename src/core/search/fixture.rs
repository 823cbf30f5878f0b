//! Small tables for the tests of searches.

#[path = "../../../tests/common/fixture.rs"]
mod common;

use std::sync::Arc;

use super::evaluator::Evaluator;
pub(crate) use common::{choice, policy};
use common::{encoded, text};
use proptest::prelude::*;

use crate::encode::Dictionaries;
use crate::frequency::counter;
use crate::frequency::store::FrequencySets;
use crate::model::batch::Rows;
use crate::model::hierarchy::Hierarchy;
use crate::model::policy::Policy;
use crate::privacy::Rules;

/// A policy and the rows of one window.
pub(crate) struct Table {
    pub(crate) policy: Arc<Policy>,
    pub(crate) rules: Rules,
    pub(crate) rows: Arc<Rows>,
    pub(crate) dictionaries: Dictionaries,
}

impl Table {
    /// Encodes `records`, whose cells come in the order of the policy's fields.
    pub(crate) fn new<S: AsRef<str>>(policy: Policy, records: &[Vec<S>]) -> Self {
        Self::after(policy, &[], records)
    }

    /// The same, with the values of `earlier` records known already.
    pub(crate) fn after<S: AsRef<str>>(policy: Policy, earlier: &[Vec<S>], records: &[Vec<S>]) -> Self {
        let records = earlier.iter().chain(records).map(|cells| cells.iter().map(|cell| text(cell.as_ref())));
        let (encoder, rows) = encoded(&policy, records);
        let (policy, rows) = (Arc::new(policy), rows.filtered(|i| i >= earlier.len()));
        let dictionaries = encoder.dictionaries();
        Self { rules: Rules::new(&policy), policy, rows: Arc::new(rows), dictionaries }
    }

    pub(crate) fn sets(&self) -> Arc<dyn FrequencySets> {
        counter::count(&self.rows, &self.rules.counting(), &self.dictionaries.quasi, usize::MAX).unwrap()
    }

    pub(crate) fn evaluator(&self) -> Evaluator<'_> {
        Evaluator::new(&self.policy, &self.rules, self.sets())
    }
}

pub(crate) fn csv(text: &str) -> Hierarchy {
    Hierarchy::parse_csv(text.as_bytes()).unwrap()
}

/// A random hierarchy of at most so many leaves over three levels, as a file.
pub(crate) fn taxonomy(leaves: usize) -> impl Strategy<Value = String> {
    (1..=leaves, 1_usize..5, 1_usize..3).prop_map(|(leaves, groups, upper)| {
        (0..leaves).map(|i| format!("v{i};g{};u{};*\n", i % groups, i % groups % upper)).collect()
    })
}

/// Attributes with these hierarchies.
pub(crate) fn attributes(taxonomies: &[String]) -> Vec<(&'static str, Hierarchy)> {
    ["a", "b", "c", "d"].into_iter().zip(taxonomies.iter().map(|text| csv(text))).collect()
}

/// Records of a leaf of each hierarchy and of further cells, each one of so many values behind a letter.
pub(crate) fn records(taxonomies: &[String], others: &[(&str, u64)], count: usize, seed: u64) -> Vec<Vec<String>> {
    let leaves = taxonomies.iter().map(|text| ("v", text.lines().count() as u64));
    let cells: Vec<(&str, u64)> = leaves.chain(others.iter().copied()).collect();
    let mut state = seed;
    let mut draw = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    (0..count).map(|_| cells.iter().map(|&(letter, values)| format!("{letter}{}", draw(values))).collect()).collect()
}
