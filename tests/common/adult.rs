//! The census table of the literature: 30,162 records, and a hierarchy for each of its nine columns. It is not ours to ship, so it is
//! looked for in `$VEILSTREAM_DATA`, or in `../shared/data` beside the repository.
#![allow(dead_code, unreachable_pub)]

use std::path::{Path, PathBuf};

use veilstream::model::hierarchy::Hierarchy;

/// The table as it is written.
pub struct Adult {
    folder: PathBuf,
    pub header: Vec<String>,
    lines: Vec<String>,
}

impl Adult {
    /// The table, where it is there.
    pub fn find() -> Option<Self> {
        let beside = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../shared/data");
        let folder = std::env::var_os("VEILSTREAM_DATA").map_or_else(beside, PathBuf::from);
        let text = std::fs::read_to_string(folder.join("adult/adult.csv")).ok()?;
        let mut lines = text.lines().map(str::to_owned);
        let header = lines.next().expect("a header").split(';').map(str::to_owned).collect();
        Some(Self { folder, header, lines: lines.collect() })
    }

    /// The columns but for some.
    pub fn columns_without(&self, others: &[&str]) -> Vec<&str> {
        self.header.iter().map(String::as_str).filter(|name| !others.contains(name)).collect()
    }

    /// The usual hierarchies of some columns.
    pub fn hierarchies<'a>(&self, columns: &[&'a str]) -> Vec<(&'a str, Hierarchy)> {
        self.hierarchies_in("adult", columns)
    }

    /// Those of another folder beside that of the table.
    pub fn hierarchies_in<'a>(&self, folder: impl AsRef<Path>, columns: &[&'a str]) -> Vec<(&'a str, Hierarchy)> {
        let folder = self.folder.join(folder);
        let hierarchy = |name: &&'a str| {
            let csv = std::fs::read(folder.join(format!("{name}.csv"))).expect("a hierarchy per column");
            (*name, Hierarchy::parse_csv(&csv).expect("a valid hierarchy"))
        };
        columns.iter().map(hierarchy).collect()
    }

    /// The cells of these columns, record by record.
    pub fn records(&self, columns: &[&str]) -> impl Iterator<Item = Vec<&str>> {
        let at = |name: &&str| self.header.iter().position(|column| column == name).expect("a column");
        let columns: Vec<usize> = columns.iter().map(at).collect();
        self.lines.iter().map(move |line| {
            let cells: Vec<&str> = line.split(';').collect();
            columns.iter().map(|&column| cells[column]).collect()
        })
    }
}
