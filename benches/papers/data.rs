//! Tables for the benches: rows of text under hierarchies, counted and ready to search.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use veilstream::encode::{Encoded, Encoder};
use veilstream::frequency::counter;
use veilstream::frequency::store::FrequencySets;
use veilstream::model::batch::Rows;
use veilstream::model::counting::Facet;
use veilstream::model::event::{Millis, Position};
use veilstream::model::hierarchy::Hierarchy;
use veilstream::model::policy::{
    Criterion, Fallback, K, Loss, Policy, QuasiIdentifier, RecodingKind, Render, SuppressionAction, SuppressionLimit,
};
use veilstream::model::record::{Record, Value};
use veilstream::model::schema::{Role, Schema};
use veilstream::privacy::Rules;

/// A policy, its rules, and the counted rows.
pub struct Table {
    pub policy: Policy,
    pub rules: Rules,
    pub sets: Arc<dyn FrequencySets>,
}

/// A k-anonymity policy over these quasi-identifiers.
pub fn policy(quasi: Vec<(&str, Hierarchy)>, others: &[(&str, Role)], k: u32, suppression: f64, loss: Loss) -> Policy {
    let roles = quasi.iter().map(|(name, _)| (*name, Role::Quasi)).chain(others.iter().copied());
    let schema = Schema::new(roles);
    let identifier = |(name, hierarchy): (&str, Hierarchy)| QuasiIdentifier {
        name: name.into(),
        weight: 1.0,
        min_level: 0,
        max_level: hierarchy.height(),
        priority: 1,
        render: Render::Label,
        hierarchy: Arc::new(hierarchy),
    };
    Policy {
        schema,
        quasi: quasi.into_iter().map(identifier).collect(),
        criteria: vec![Criterion::KAnonymity(K(k))],
        suppression: SuppressionLimit(suppression),
        action: SuppressionAction::Hold { max_hold: Duration::ZERO },
        recoding: RecodingKind::FullDomain,
        loss,
        unknown_value: Fallback::Reject,
        missing_value: Fallback::Reject,
        null_value: Fallback::Reject,
        sequential: None,
        fingerprint: String::new(),
    }
}

impl Table {
    /// Counts `rows`; each maps a field's name to its text.
    pub fn new<'a, R>(policy: Policy, facets: &[Facet], header: &[&str], rows: impl Iterator<Item = R>) -> Self
    where
        R: IntoIterator<Item = &'a str>,
    {
        let mut encoder = Encoder::new(Arc::new(policy.clone()));
        let slots: Vec<Option<usize>> = header.iter().map(|name| policy.schema.slot(name)).collect();
        let mut counted = Rows::new(policy.quasi.len(), policy.schema.sensitive.len());
        for (offset, row) in rows.enumerate() {
            let mut record = Record::new(policy.schema.attributes().len());
            for (slot, text) in slots.iter().zip(row) {
                if let Some(slot) = slot {
                    record.values[*slot] = Value::Text(text.into());
                }
            }
            assert_eq!(encoder.encode(&record, None), Encoded::Row, "row {offset}");
            counted.push(Position::new(0, offset as i64), Millis(0), encoder.row());
        }
        let rules = Rules::new(&policy).also_counting(facets.iter().copied());
        let mut counter = counter::counter(&encoder.sizes(), rules.counting()).expect("the keys fit");
        counter.add(&counted, 0..counted.len());
        let sets = counter.store(&encoder.dictionaries().quasi);
        Self { policy, rules, sets }
    }
}

/// Where the Adult data is, if it is there.
pub fn folder() -> Option<PathBuf> {
    let beside = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../shared/data");
    let folder = std::env::var_os("VEILSTREAM_DATA").map_or_else(beside, PathBuf::from);
    folder.join("adult/adult.csv").is_file().then_some(folder)
}

/// The mean.
pub fn mean(values: impl IntoIterator<Item = f64>) -> f64 {
    let values: Vec<f64> = values.into_iter().collect();
    values.iter().sum::<f64>() / values.len() as f64
}
