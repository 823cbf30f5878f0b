//! The tables of the audiences of a release: its rows at coarser levels.
//!
//! A table is made of the rows that passed the gate, never of the records, and passes the gate by itself. Everything in it follows
//! from the release and the configuration, so a release that is made again after a crash has the same tables.

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
    gate::verify(batch, rules)
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
