//! The tables of the audiences of a release: its rows at coarser levels.
//!
//! An audience of a local or subtree release may ask for one level per column. That is a choice among the views of the release: the
//! coarsest level of each column keeps every row, and finer ones leave out the rows that are coarser somewhere, within the policy's
//! limit of suppression. Left out are whole classes, so that those that stay, merged, still have their people. Which level each
//! column has is found from the coarsest ones down, one column at a time, by the audience's own loss.
//!
//! A table is made of the rows that passed the gate, never of the records, and passes the gate by itself. Everything in it follows
//! from the release and the configuration, so a release that is made again after a crash has the same tables. Its manifest has no
//! figure of a field that the audience does not see.

use std::collections::BTreeSet;

use crate::gate::{self, Refusal, Release};
use crate::generalize::GeneralizedBatch;
use crate::loss;
use crate::model::lattice::Level;
use crate::model::policy::{Loss, Policy};
use crate::model::release::audience::Audience;
use crate::model::release::manifest::{AttributeLevel, Work};
use crate::privacy::Rules;
use crate::render::render;

/// The table of one audience. A criterion that a coarser table can break (min-security, for one) makes the gate refuse it.
pub fn view(release: &Release, audience: &Audience, policy: &Policy, rules: &Rules) -> Result<Release, Refusal> {
    let raised = release.batch().raised(&audience.finest);
    let Some(loss) = audience.one_level else { return counted(raised, audience, policy, rules) };
    let coarsest = coarsest(&raised);
    let chosen = best_levels(&raised, coarsest.clone(), loss, policy);
    let table = |levels: &[Level]| counted(at_one_level(&raised, levels), audience, policy, rules);
    // A criterion about the release as a whole can need the rows that were left out.
    table(&chosen).or_else(|refusal| if chosen == coarsest { Err(refusal) } else { table(&coarsest) })
}

/// The coarsest level in each column.
fn coarsest(batch: &GeneralizedBatch) -> Vec<Level> {
    let mut coarsest = vec![0; batch.columns.len()];
    for class in 0..batch.class_count {
        coarsest.iter_mut().zip(batch.levels_of(class)).for_each(|(most, level)| *most = level.max(*most));
    }
    coarsest
}

/// The levels of least loss, one per column, on the way down from the coarsest.
fn best_levels(batch: &GeneralizedBatch, coarsest: Vec<Level>, loss: Loss, policy: &Policy) -> Vec<Level> {
    let mut levels = vec![BTreeSet::new(); coarsest.len()];
    for class in 0..batch.class_count {
        levels.iter_mut().zip(batch.levels_of(class)).for_each(|(seen, level)| seen.extend([level]));
    }
    let (suppressed, may_go) = (batch.provenance.records_suppressed, policy.suppression.of(batch.len() as u64));
    let loss_at = |levels: &[Level]| {
        let table = batch.at_one_level(levels);
        let gone = (batch.len() - table.len()) as u64;
        loss::of_rows_by(loss, policy, &table, suppressed + gone).filter(|_| gone <= may_go)
    };
    let mut best = (loss_at(&coarsest), coarsest.clone());
    let mut at = coarsest;
    loop {
        let lowered = (0..at.len()).filter_map(|column| {
            let lower = *levels[column].range(..at[column]).next_back()?;
            let mut next = at.clone();
            next[column] = lower;
            Some((loss_at(&next)?, next))
        });
        let Some((loss, next)) = lowered.min_by(|(a, _), (b, _)| a.total_cmp(b)) else { return best.1 };
        at = next;
        if best.0.is_none_or(|least| loss < least) {
            best = (Some(loss), at.clone());
        }
    }
}

/// The rows at these levels, with what the manifest says of them.
fn at_one_level(batch: &GeneralizedBatch, levels: &[Level]) -> GeneralizedBatch {
    let mut table = batch.at_one_level(levels);
    let gone = batch.messages() - table.messages();
    table.provenance.records_published -= gone;
    table.provenance.records_suppressed += gone;
    for (shown, &level) in table.provenance.recoding.iter_mut().zip(levels) {
        *shown = AttributeLevel { level, finest: None, typical: None, cut: None, attribute: shown.attribute.clone() };
    }
    table
}

/// The table that the audience sees of these rows, counted.
fn counted(
    mut batch: GeneralizedBatch,
    audience: &Audience,
    policy: &Policy,
    rules: &Rules,
) -> Result<Release, Refusal> {
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
