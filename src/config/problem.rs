//! What is wrong with a configuration: a [`Problem`] names a file, a line, and what to write instead.
//!
//! Invariant: a message never holds a value that came from a variable or a file.

use std::fmt;
use std::path::{Path, PathBuf};

/// One mistake in the configuration or in a file that it names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// The file, as the user would write it.
    pub file: PathBuf,
    /// The line, from 1; `None` if the file could not be read at all.
    pub line: Option<usize>,
    /// What is wrong and what to write instead: lowercase, no period.
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

/// Collects problems while one file is read, so that all of them can be told at once.
#[derive(Debug)]
pub(super) struct Problems {
    file: PathBuf,
    list: Vec<Problem>,
    warnings: Vec<Problem>,
}

impl Problems {
    /// No problem yet in `file`.
    pub(super) fn new(file: &Path) -> Self {
        Self { file: file.to_owned(), list: Vec::new(), warnings: Vec::new() }
    }

    /// A problem on a line of the configuration file.
    pub(super) fn add(&mut self, line: usize, message: impl Into<String>) {
        self.list.push(Problem { file: self.file.clone(), line: Some(line), message: message.into() });
    }

    /// A problem of the configuration file as a whole.
    pub(super) fn add_whole(&mut self, message: impl Into<String>) {
        self.list.push(Problem { file: self.file.clone(), line: None, message: message.into() });
    }

    /// A problem in a file that the configuration names.
    pub(super) fn add_elsewhere(&mut self, file: &Path, line: Option<usize>, message: impl Into<String>) {
        self.list.push(Problem { file: file.to_owned(), line, message: message.into() });
    }

    /// Something on a line of the configuration file that can be meant, and mostly is not.
    pub(super) fn warn(&mut self, line: usize, message: impl Into<String>) {
        self.warnings.push(Problem { file: self.file.clone(), line: Some(line), message: message.into() });
    }

    /// The warnings, by line.
    pub(super) fn into_warnings(mut self) -> Vec<Problem> {
        self.warnings.sort();
        self.warnings.dedup();
        self.warnings
    }

    /// How many problems there are so far, warnings aside.
    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    /// All of them: those of the configuration file by line, then those of other files.
    pub(super) fn into_sorted(mut self) -> Vec<Problem> {
        let own = self.file;
        self.list.sort_by(|a, b| (a.file != own, a).cmp(&(b.file != own, b)));
        self.list.dedup();
        self.list
    }
}

/// The one of `known` that `word` most likely stands for, if any is near.
pub(super) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // More than this many characters apart is another word, not a slip of the finger.
    const MAX_DISTANCE: usize = 2;
    let plain = |s: &str| s.to_lowercase().replace(['-', ' '], "_");
    let word = plain(word);
    // Words as long as this are never near a known one; the bound keeps the table below small.
    if word.len() > 64 {
        return None;
    }
    known
        .into_iter()
        .filter(|candidate| candidate.len().abs_diff(word.len()) <= MAX_DISTANCE)
        .map(|candidate| (distance(&word, &plain(candidate)), candidate))
        .filter(|(d, candidate)| *d <= MAX_DISTANCE.min(candidate.len() / 2))
        .min_by_key(|(d, _)| *d)
        .map(|(_, candidate)| candidate)
}

/// Edit distance with neighbouring letters swapped counted once.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let same = usize::from(a[i - 1] != b[j - 1]);
            let mut best = (rows[i - 1][j] + 1).min(row[j - 1] + 1).min(rows[i - 1][j - 1] + same);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
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
        let mut problems = Problems::new(Path::new("z.yaml"));
        problems.add_elsewhere(Path::new("a.csv"), Some(1), "ragged");
        problems.add(9, "late");
        problems.add(2, "early");
        let lines: Vec<String> = problems.into_sorted().iter().map(ToString::to_string).collect();
        assert_eq!(lines, ["z.yaml:2: early", "z.yaml:9: late", "a.csv:1: ragged"]);
    }
}
