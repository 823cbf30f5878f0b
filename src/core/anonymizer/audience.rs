//! The tables of the audiences of a release: its rows at coarser levels.
//!
//! A table is made of the rows that passed the gate, never of the records, and passes the gate by itself. Everything in it follows
//! from the release and the configuration, so a release that is made again after a crash has the same tables. Its manifest has no
//! figure of a field that the audience does not see.

use crate::gate::{self, Refusal, Release};
use crate::loss;
use crate::model::policy::Policy;
use crate::model::release::audience::Audience;
use crate::model::release::manifest::{AttributeLevel, Work};
use crate::privacy::Rules;
use crate::render::render;

/// The table of one audience. A criterion that a coarser table can break (min-security, for one) makes the gate refuse it.
pub fn view(release: &Release, audience: &Audience, policy: &Policy, rules: &Rules) -> Result<Release, Refusal> {
    let mut batch = release.batch().raised(&audience.finest);
    let seen = audience.seen(&policy.schema);
    batch.unseen = (0..).zip(seen).filter(|(_, seen)| !seen).map(|(at, _)| at).collect();
    let columns = batch.columns.clone();
    render(&mut batch, &columns, policy);
    for (level, &finest) in batch.provenance.recoding.iter_mut().zip(&audience.finest) {
        raise(level, finest);
    }
    batch.provenance.unmet_bounds.clear();
    batch.provenance.work = Work::default();
    batch.provenance.losses = loss::published(policy, &batch, batch.provenance.records_suppressed);
    let release = gate::verify(batch, rules)?;
    let hidden = hidden_fields(audience, policy);
    Ok(release.with_figures(|criterion| match criterion.split_once('/') {
        Some((_, rest)) => !hidden.iter().any(|field| is_about(rest, field)),
        None => hidden.is_empty() || criterion.starts_with("k-anonymity"),
    }))
}

/// The names of the fields that are sensitive or kept and that the audience does not see.
fn hidden_fields<'p>(audience: &Audience, policy: &'p Policy) -> Vec<&'p str> {
    let schema = &policy.schema;
    let names = schema.sensitive.iter().chain(&schema.keep).map(|&slot| &**schema.name(slot));
    names.zip(audience.seen(schema)).filter(|(_, seen)| !seen).map(|(name, _)| name).collect()
}

/// True if a criterion is about a field, by what stands in its name behind its kind.
fn is_about(rest: &str, field: &str) -> bool {
    rest.strip_prefix(field).is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', ' ']))
}

/// Says of a column what became of it. The values of a cut are no longer all of its table's.
fn raise(shown: &mut AttributeLevel, finest: u8) {
    if finest == 0 {
        return;
    }
    let mixed = shown.cut.is_some() || shown.finest.is_some();
    shown.finest = mixed.then(|| shown.finest().max(finest));
    shown.typical = shown.typical.map(|typical| typical.max(finest));
    shown.level = shown.level.max(finest);
    shown.cut = None;
}
