//! The recodings side by side on the page of releases: in sentences first, then as a table.

use crate::model::event::Millis;
use crate::model::policy::RecodingKind;
use crate::plot::{count, percent, portion};
use crate::telemetry::html::{Html, time};
use crate::telemetry::tables::{NOTE, RecodingColumn, side_by_side};
use crate::telemetry::view::View;
use crate::usefulness::recodings::{RecodingFigures, Recodings};

/// A recoding that keeps at least this share of the loss is not worth a change. Smaller: advice that gains nothing. Larger: a
/// gain that readers would see is not told.
const WORTH_IT: f64 = 0.9;

/// What the recoding of the policy does.
pub(super) fn own_words(recoding: RecodingKind) -> String {
    let said = match recoding {
        RecodingKind::FullDomain => "every column is published at one level, the same for all records",
        RecodingKind::Subtree => "every value of a column has one level, the same for all records that have it",
        RecodingKind::Local => {
            "each record is published as finely as those that look like it allow, so a column mixes levels"
        }
    };
    format!("recoding: {}: {said}.", recoding.as_str())
}

/// What the recodings would make of the records of one window.
pub(super) fn shown(view: &View, at: Millis, recodings: &Recodings, html: &mut Html) {
    for sentence in sentences(view.policy.recoding, recodings) {
        html.text("p", &sentence);
    }
    let name = |kind: RecodingKind| {
        let own = if kind == view.policy.recoding { " (as published)" } else { "" };
        format!("{}{own}", kind.as_str())
    };
    let columns = made(recodings).map(|(kind, figures)| RecodingColumn {
        name: name(kind),
        classes: figures.classes,
        left_out: figures.left_out,
        useful: Some(&figures.usefulness),
    });
    let columns: Vec<RecodingColumn<'_>> = columns.collect();
    side_by_side(&view.policy, &columns, html);
    for (kind, made) in &recodings.made {
        match made {
            Ok(figures) => {
                let late = if figures.late { " (its search was out of time: there may be a better one)" } else { "" };
                html.text("p class=\"note\"", &format!("{}: {}{late}.", kind.as_str(), figures.words))
            }
            Err(reason) => html.text("p class=\"note\"", &format!("{}: left out, {reason}.", kind.as_str())),
        };
    }
    let compared = format!(
        "Compared on {} records of the window of {}: each recoding was searched anew on these records alone, so the figures of the \
         releases differ a little.",
        count(recodings.records as f64),
        time(at)
    );
    html.text("p class=\"note\"", &compared).text("p class=\"note\"", NOTE);
}

fn made(recodings: &Recodings) -> impl Iterator<Item = (RecodingKind, &RecodingFigures)> {
    recodings.made.iter().filter_map(|(kind, made)| Some((*kind, made.as_ref().ok()?)))
}

/// What the recoding of the policy costs whom, and what another one would gain and cost.
fn sentences(own: RecodingKind, recodings: &Recodings) -> Vec<String> {
    let Some((_, now)) = made(recodings).find(|(kind, _)| *kind == own) else {
        return vec!["The recoding of the policy could publish nothing of these records.".into()];
    };
    let useful = &now.usefulness;
    let worst =
        if useful.loss_p95 < 1.0 { format!("at least {}", percent(useful.loss_p95)) } else { "everything".into() };
    let mut said = vec![format!(
        "Of the records compared here, {} of the detail is given up ({}). Half of them lose at least {}, and one in twenty {worst}.",
        portion(now.loss),
        percent(now.loss),
        percent(useful.loss_median)
    )];
    let least = made(recodings).min_by(|(_, a), (_, b)| a.loss.total_cmp(&b.loss));
    let Some((kind, best)) = least.filter(|(kind, best)| *kind != own && best.loss < WORTH_IT * now.loss) else {
        let late = made(recodings).any(|(kind, figures)| kind != own && figures.late);
        let found = if late { ", as far as there was time to search" } else { "" };
        said.push(format!("No other recoding would give up noticeably less for the same promise{found}."));
        return said;
    };
    let narrowed = best.usefulness.attack.cells;
    let price = match narrowed > 0.0 {
        true => format!(
            " In return its columns mix levels, and a reader who knows how it is made can exclude a value in {} of the cells; every \
             class keeps as many people as the policy asks.",
            percent(narrowed)
        ),
        false => " In return its columns mix levels.".into(),
    };
    said.push(format!(
        "With recoding: {}, {} of the loss would be enough for the same promise: {} of the detail ({}).{price}",
        kind.as_str(),
        portion(best.loss / now.loss),
        portion(best.loss),
        percent(best.loss)
    ));
    said
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::usefulness::{AttackRate, Usefulness};

    fn figures(loss: f64, cells: f64) -> RecodingFigures {
        RecodingFigures {
            words: "zip hidden".into(),
            classes: 3,
            left_out: 0,
            loss,
            late: false,
            usefulness: Usefulness {
                loss_by_attribute: Vec::new(),
                loss_median: loss,
                loss_p95: 2.0 * loss,
                counts_by_one: 0.5,
                counts_by_two: None,
                classifier: None,
                attack: AttackRate { cells, ..AttackRate::default() },
            },
        }
    }

    #[test]
    fn what_another_recoding_gains_and_costs_is_said() {
        let recodings = |local: f64| Recodings {
            records: 1000,
            made: vec![
                (RecodingKind::FullDomain, Ok(figures(0.5, 0.0))),
                (RecodingKind::Subtree, Err("no".into())),
                (RecodingKind::Local, Ok(figures(local, 0.07))),
            ],
        };
        let said = sentences(RecodingKind::FullDomain, &recodings(0.25)).join(" ");
        assert!(
            said.starts_with("Of the records compared here, about half of the detail is given up (50 %)."),
            "{said}"
        );
        let gain = "With recoding: local, about half of the loss would be enough for the same promise: about a quarter of the detail";
        assert!(said.contains(gain) && said.contains("exclude a value in 7 % of the cells"), "{said}");
        let said = sentences(RecodingKind::FullDomain, &recodings(0.46)).join(" ");
        assert!(said.ends_with("No other recoding would give up noticeably less for the same promise."), "{said}");
        let said = sentences(RecodingKind::Local, &recodings(0.25)).join(" ");
        assert!(said.ends_with("No other recoding would give up noticeably less for the same promise."), "{said}");
        let said = sentences(RecodingKind::Subtree, &recodings(0.25));
        assert_eq!(said, ["The recoding of the policy could publish nothing of these records."]);
    }
}
