//! The level of each label, for rows that show it beside the label (`policy.row_levels`).
//!
//! Rows that read alike must have the same levels, or the levels would tell rows apart that the gate has counted as one class. So the
//! level follows from the label and the hierarchy alone: it is the coarsest level at which the hierarchy has this label for the values
//! below it. A label may have been made at a finer level than that, as the common label of few rows.

use std::sync::LazyLock;

use rustc_hash::FxHashMap;

use super::GeneralizedBatch;
use crate::model::domain::Code;
use crate::model::lattice::Level;
use crate::model::recoding::{Column, GeneralizedValue};

/// The texts of all levels.
static TEXTS: LazyLock<Vec<String>> = LazyLock::new(|| (0..=Level::MAX).map(|level| level.to_string()).collect());

/// The level that is shown for a published code of a column.
pub(super) fn shown_level(column: &Column, code: Code) -> Level {
    let view = column.view();
    let GeneralizedValue { mut level, mut code } = column.value(code);
    while level < view.height() {
        let parent = view.level(level).parent()[code as usize];
        if view.level(level + 1).label(parent) != view.level(level).label(code) {
            break;
        }
        (level, code) = (level + 1, parent);
    }
    level
}

impl GeneralizedBatch {
    /// The texts of the levels of a class, where rows show them.
    pub(crate) fn level_texts(&self, class: usize) -> impl Iterator<Item = &'static str> {
        let columns = self.columns.iter().filter(|_| self.shows_levels);
        columns
            .zip(self.class_cells(class))
            .map(|(column, &code)| TEXTS[usize::from(shown_level(column, code))].as_str())
    }

    /// True if labels that read alike have the same level, where rows show levels.
    pub(crate) fn levels_follow_from_labels(&self) -> bool {
        !self.shows_levels
            || self.columns.iter().enumerate().all(|(attribute, column)| {
                let mut levels: FxHashMap<&str, Level> = FxHashMap::default();
                (0..self.class_count).all(|class| {
                    let code = self.class_cells(class)[attribute];
                    let level = shown_level(column, code);
                    *levels.entry(self.quasi[attribute].text(code)).or_insert(level) == level
                })
            })
    }
}
