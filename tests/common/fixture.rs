//! A plain policy, records encoded by it, and a search without limits. Tests of the core, the tests here and the benches start from these
//! and change what they are about.
#![allow(dead_code, unreachable_pub)]

use std::sync::Arc;
use std::time::Duration;

use veilstream::anonymizer::Closing;
use veilstream::encode::{Encoded, Encoder};
use veilstream::gate::Release;
use veilstream::model::batch::Rows;
use veilstream::model::event::{Millis, Position};
use veilstream::model::hierarchy::Hierarchy;
use veilstream::model::policy::{
    Criterion, Fallback, K, Loss, Policy, QuasiIdentifier, RecodingKind, Render, SuppressionAction, SuppressionLimit,
};
use veilstream::model::record::{Record, Value};
use veilstream::model::schema::{Role, Schema};
use veilstream::search::choose::{Choice, Levels};
use veilstream::search::{Algorithm, Tuning};

/// A Tuesday in 2023.
pub const NOW: i64 = 1_700_000_000_000;

/// Asks k-anonymity of `quasi`, which stand before the fields in other roles: one level each, by `glm`, and nothing is left out.
pub fn policy(quasi: Vec<(&str, Hierarchy)>, others: &[(&str, Role)], k: u32) -> Policy {
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
        fingerprint: "test".into(),
    }
}

/// Encodes records, whose values come in the order of the policy's fields. What a record lacks at its end is missing.
pub fn encoded<'a, R>(policy: &Policy, records: impl IntoIterator<Item = R>) -> (Encoder, Rows)
where
    R: IntoIterator<Item = Value<'a>>,
{
    let mut encoder = Encoder::new(Arc::new(policy.clone()));
    let mut rows = Rows::new(policy.quasi.len(), policy.schema.sensitive.len());
    for (offset, values) in (0..).zip(records) {
        let mut record = Record::new(policy.schema.attributes().len());
        record.values.iter_mut().zip(values).for_each(|(to, value)| *to = value);
        assert_eq!(encoder.encode(&record, None), Encoded::Row, "record {offset}");
        rows.push(Position::new(0, offset), Millis(0), encoder.row());
    }
    (encoder, rows)
}

/// A text as a value.
pub fn text(text: &str) -> Value<'_> {
    Value::Text(text.into())
}

/// Searches as long as it takes.
pub fn choice(algorithm: Algorithm, levels: Levels) -> Choice {
    let time_budget = Duration::from_secs(3600);
    Choice { algorithm, time_budget, max_checks: None, levels, keep_within: 0.02, tuning: Tuning::default() }
}

/// The release of a window that the gate lets through.
#[track_caller]
pub fn released(closing: Closing) -> Box<Release> {
    match closing {
        Closing::Release(release) => release,
        Closing::Refused(refusal) => panic!("refused: {refusal}"),
    }
}
