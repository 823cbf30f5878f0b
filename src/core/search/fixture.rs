//! Small tables for the tests of searches.

use std::sync::Arc;

use super::evaluator::Evaluator;
use crate::encode::{Dictionaries, Encoded, Encoder};
use crate::frequency::counter;
use crate::frequency::store::FrequencySets;
use crate::model::batch::Rows;
use crate::model::event::{Millis, Position};
use crate::model::hierarchy::Hierarchy;
use crate::model::policy::{
    Criterion, Fallback, K, Loss, Policy, QuasiIdentifier, RecodingKind, Render, SuppressionAction, SuppressionLimit,
};
use crate::model::record::{Record, Value};
use crate::model::schema::{Role, Schema};
use crate::privacy::Rules;

/// A policy and the rows of one window.
pub(crate) struct Table {
    pub(crate) policy: Arc<Policy>,
    pub(crate) rules: Rules,
    pub(crate) rows: Arc<Rows>,
    pub(crate) dictionaries: Dictionaries,
}

/// A policy that asks k-anonymity of `quasi`, with further fields in other roles.
pub(crate) fn policy(quasi: Vec<(&str, Hierarchy)>, others: &[(&str, Role)], k: u32) -> Policy {
    let fields = quasi.iter().map(|(name, _)| (*name, Role::Quasi)).chain(others.iter().copied());
    let schema = Schema::new(fields);
    let quasi = quasi.into_iter().map(|(name, hierarchy)| QuasiIdentifier {
        name: name.into(),
        weight: 1.0,
        min_level: 0,
        max_level: hierarchy.height(),
        priority: 1,
        render: Render::Label,
        hierarchy: Arc::new(hierarchy),
    });
    Policy {
        quasi: quasi.collect(),
        schema,
        criteria: vec![Criterion::KAnonymity(K(k))],
        suppression: SuppressionLimit(0.0),
        action: SuppressionAction::Drop,
        recoding: RecodingKind::FullDomain,
        loss: Loss::Glm,
        unknown_value: Fallback::Reject,
        missing_value: Fallback::Reject,
        null_value: Fallback::Reject,
        sequential: None,
        fingerprint: String::new(),
    }
}

impl Table {
    /// Encodes `records`, whose cells come in the order of the policy's fields.
    pub(crate) fn new<S: AsRef<str>>(policy: Policy, records: &[Vec<S>]) -> Self {
        Self::after(policy, &[], records)
    }

    /// The same, with the values of `earlier` records known already.
    pub(crate) fn after<S: AsRef<str>>(policy: Policy, earlier: &[Vec<S>], records: &[Vec<S>]) -> Self {
        let policy = Arc::new(policy);
        let mut encoder = Encoder::new(Arc::clone(&policy));
        let mut rows = Rows::new(policy.quasi.len(), policy.schema.sensitive.len());
        for (offset, cells) in earlier.iter().chain(records).enumerate() {
            let mut record = Record::new(cells.len());
            for (value, cell) in record.values.iter_mut().zip(cells) {
                *value = Value::Text(cell.as_ref().into());
            }
            assert_eq!(encoder.encode(&record, None), Encoded::Row);
            if offset >= earlier.len() {
                rows.push(Position::new(0, offset as i64), Millis(0), encoder.row());
            }
        }
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
