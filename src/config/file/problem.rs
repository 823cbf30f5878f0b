//! Problems of a configuration: a [`Problem`] names a file, a line, the mistake, and what to write instead.
//!
//! Invariant: a message never holds a value that came from a variable or a file.

use std::cell::RefCell;
use std::fmt;
use std::path::{Path, PathBuf};

use strsim::osa_distance;

/// One mistake in the configuration or in a file that it names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// The file, as the user would write it.
    pub file: PathBuf,
    /// The line, from 1; `None` if the file could not be read at all.
    pub line: Option<usize>,
    /// The mistake and its remedy: lowercase, no period.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.file.display(), self.message),
            None => write!(f, "{}: {}", self.file.display(), self.message),
        }
    }
}

impl std::error::Error for Problem {}

/// Collects the problems and warnings of one file, so that all of them can be reported at once.
#[derive(Debug)]
pub(in crate::config) struct Problems {
    file: PathBuf,
    found: RefCell<Vec<Problem>>,
    warnings: RefCell<Vec<Problem>>,
}

impl Problems {
    /// No problem yet in `file`.
    pub(in crate::config) fn new(file: &Path) -> Self {
        Self { file: file.to_owned(), found: RefCell::default(), warnings: RefCell::default() }
    }

    /// A problem on a line of the configuration file.
    pub(in crate::config) fn add(&self, line: usize, message: impl Into<String>) {
        self.add_elsewhere(&self.file, Some(line), message);
    }

    /// A problem of the configuration file as a whole.
    pub(in crate::config) fn add_whole(&self, message: impl Into<String>) {
        self.add_elsewhere(&self.file, None, message);
    }

    /// A problem in a file that the configuration names.
    pub(in crate::config) fn add_elsewhere(&self, file: &Path, line: Option<usize>, message: impl Into<String>) {
        self.found.borrow_mut().push(Problem { file: file.to_owned(), line, message: message.into() });
    }

    /// A setting that is valid but rarely intended.
    pub(in crate::config) fn warn(&self, line: usize, message: impl Into<String>) {
        let warning = Problem { file: self.file.clone(), line: Some(line), message: message.into() };
        self.warnings.borrow_mut().push(warning);
    }

    /// The number of problems so far, without warnings.
    pub(in crate::config) fn len(&self) -> usize {
        self.found.borrow().len()
    }

    /// The warnings by line if there is no problem. Otherwise the problems: those of the configuration file by line, then
    /// those of other files.
    pub(in crate::config) fn into_result(self) -> Result<Vec<Problem>, Vec<Problem>> {
        let (own, found, warnings) = (self.file, self.found.into_inner(), self.warnings.into_inner());
        let is_problem = !found.is_empty();
        let mut list = if is_problem { found } else { warnings };
        list.sort_by(|a, b| (a.file != own, a).cmp(&(b.file != own, b)));
        list.dedup();
        if is_problem { Err(list) } else { Ok(list) }
    }

    #[cfg(test)]
    pub(in crate::config) fn into_lines(self) -> Vec<String> {
        self.into_result().map_or_else(|found| found.iter().map(ToString::to_string).collect(), |_| Vec::new())
    }
}

/// The one of `known` that `word` most likely stands for, if any is near.
pub(in crate::config) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // More than this many characters apart is another word, not a slip of the finger.
    const MAX_DISTANCE: usize = 2;
    let plain = |s: &str| s.to_lowercase().replace(['-', ' '], "_");
    let word = plain(word);
    // Words as long as this are never near a known one.
    if word.len() > 64 {
        return None;
    }
    known
        .into_iter()
        .filter(|candidate| candidate.len().abs_diff(word.len()) <= MAX_DISTANCE)
        .map(|candidate| (osa_distance(&word, &plain(candidate)), candidate))
        .filter(|(d, candidate)| *d <= MAX_DISTANCE.min(candidate.len() / 2))
        .min_by_key(|(d, _)| *d)
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_finds_slips_and_nothing_else() {
        let known = ["max_records", "max_age", "size", "k-anonymity"];
        assert_eq!(nearest("max-records", known), Some("max_records"));
        assert_eq!(nearest("max_reocrds", known), Some("max_records"));
        assert_eq!(nearest("k_anonymity", known), Some("k-anonymity"));
        assert_eq!(nearest("Max_Age", known), Some("max_age"));
        assert_eq!(nearest("colour", known), None);
        assert_eq!(nearest("", known), None);
    }

    #[test]
    fn own_file_first_then_by_line() {
        let problems = Problems::new(Path::new("z.yaml"));
        problems.add_elsewhere(Path::new("a.csv"), Some(1), "ragged");
        problems.add(9, "late");
        problems.add(2, "early");
        assert_eq!(problems.into_lines(), ["z.yaml:2: early", "z.yaml:9: late", "a.csv:1: ragged"]);
    }
}
