//! A policy before it is written: roles, hierarchies, criteria, and the text of the configuration with a reason beside each choice.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::codec::Format;
use crate::model::policy::{Fallback, RecodingKind};
use crate::model::schema::Envelope;
use crate::profile::hierarchies::HierarchyProposal;
use crate::profile::{ProposedRole, RoleProposal, TableProfile};

/// Who will read the releases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Readers {
    /// Colleagues who are bound by the same rules: k = 5
    Internal,
    /// A partner under contract: k = 10, and two different sensitive values in each class
    Partner,
    /// Everybody: k = 20, and three different sensitive values in each class
    Public,
}

impl Readers {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Internal => "internal",
            Self::Partner => "partner",
            Self::Public => "public",
        }
    }

    /// The smallest class.
    pub(super) fn k(self) -> u32 {
        match self {
            Self::Internal => 5,
            Self::Partner => 10,
            Self::Public => 20,
        }
    }

    /// How many sensitive values a class needs; 1 asks for nothing.
    fn l(self) -> u64 {
        match self {
            Self::Internal => 1,
            Self::Partner => 2,
            Self::Public => 3,
        }
    }
}

/// Where records come from and releases go.
pub(super) enum Ends {
    /// Files, as the configuration writes them.
    Files {
        /// The input.
        input: PathBuf,
        /// The releases.
        output: PathBuf,
        /// The format of both.
        format: Format,
        /// How the input is to be read, where that was said: more keys of the source.
        reading: String,
    },
    /// Standard input and output.
    Stdio(Format),
    /// Topics.
    Topics {
        /// The brokers.
        brokers: String,
        /// The input.
        topic: String,
    },
}

/// A policy before it is written.
pub(super) struct PolicyDraft<'a> {
    pub(super) profile: &'a TableProfile,
    pub(super) roles: Vec<RoleProposal>,
    /// Per field; only quasi-identifiers have one.
    pub(super) hierarchies: Vec<Option<HierarchyProposal>>,
    pub(super) readers: Readers,
    pub(super) recoding: RecodingKind,
    /// The share of records that may be left out, in percent.
    pub(super) limit: u32,
    /// What becomes of a record without a value in a quasi-identifier.
    pub(super) missing: Fallback,
    pub(super) ends: Ends,
    pub(super) max_records: usize,
}

impl PolicyDraft<'_> {
    /// True if some records have no value in a quasi-identifier.
    pub(super) fn lacks_values(&self) -> bool {
        self.with(ProposedRole::Quasi).any(|field| self.profile.columns[field].missing > 0)
    }

    /// The fields with a role, in the order of the input.
    pub(super) fn with(&self, role: ProposedRole) -> impl Iterator<Item = usize> + '_ {
        (0..self.roles.len()).filter(move |field| self.roles[*field].role == role)
    }

    /// The configuration. `intro` are comment lines at its head.
    pub(super) fn yaml(&self, intro: &[String]) -> String {
        let mut out = String::new();
        for line in intro {
            let _ = writeln!(out, "# {line}");
        }
        out.push_str(
            "policy:\n  quasi_identifiers:      # others may know them: generalized before they are published\n",
        );
        for field in self.with(ProposedRole::Quasi) {
            let name = match &self.hierarchies[field] {
                Some(HierarchyProposal::Longitude(_)) => continue,
                Some(HierarchyProposal::Coordinates { name, longitude }) => {
                    format!("{}\n      from: [{}, {}]", quoted(name), self.name(field), quoted(longitude))
                }
                _ => self.name(field),
            };
            let _ = writeln!(out, "    # {}", self.reason(field));
            let hierarchy = self.hierarchy(field);
            let space = if hierarchy.starts_with('\n') { "" } else { " " };
            let _ = writeln!(out, "    - name: {name}\n      hierarchy:{space}{hierarchy}");
        }
        self.list(&mut out, ProposedRole::Sensitive, "sensitive", "published as they are; the criteria protect them");
        self.list(&mut out, ProposedRole::Keep, "keep", "passed through unless they identify people");
        self.list(&mut out, ProposedRole::Identifier, "identifiers", "never read, never published");
        if let Some(subject) = self.with(ProposedRole::Subject).next() {
            let _ = writeln!(
                out,
                "  subject: {}      # whose the record is: k counts people by it; never published",
                self.name(subject)
            );
        }
        self.criteria(&mut out);
        let _ = writeln!(
            out,
            "  suppression: {{ limit: {}% }}      # at most this share of the records may be left out",
            self.limit
        );
        let _ = writeln!(out, "  recoding: {}", self.recoding.as_str());
        out.push_str("  unknown_value: top      # a value that the hierarchy does not have is published as its top\n");
        if self.lacks_values() {
            let (word, meaning) = match self.missing {
                Fallback::Top => ("top", "many records have no value in a field: it is published as its top"),
                _ => ("suppress", "some records have no value in a field: they are left out, within the limit"),
            };
            let _ = writeln!(out, "  missing_value: {word}      # {meaning}\n  null_value: {word}");
        }
        let left: Vec<usize> = self.with(ProposedRole::Leave).collect();
        if !left.is_empty() {
            out.push_str("# Fields that are not named are dropped:\n");
            for field in left {
                let _ = writeln!(out, "#   {}: {}", plain(&self.profile.names[field]), self.reason(field));
            }
        }
        self.stream(&mut out);
        out
    }

    fn list(&self, out: &mut String, role: ProposedRole, key: &str, meaning: &str) {
        let fields: Vec<usize> = self.with(role).collect();
        if fields.is_empty() {
            return;
        }
        let _ = writeln!(out, "  {key}:      # {meaning}");
        for field in fields {
            let name = self.name(field);
            let item = if role == ProposedRole::Sensitive { format!("{{ name: {name} }}") } else { name };
            let _ = writeln!(out, "    - {item}      # {}", self.reason(field));
        }
    }

    fn criteria(&self, out: &mut String) {
        let people = if self.with(ProposedRole::Subject).next().is_some() { "people" } else { "records" };
        let (k, l) = (self.readers.k(), self.readers.l());
        let _ = writeln!(
            out,
            "  privacy:      # what every class of a release must satisfy; readers: {}",
            self.readers.as_str()
        );
        let _ = writeln!(
            out,
            "    - {{ k-anonymity: {k} }}      # every combination that is published belongs to at least {k} {people}"
        );
        for field in self.with(ProposedRole::Sensitive) {
            let column = &self.profile.columns[field];
            // Of two values, both.
            let l = l.min(column.distinct().0 - u64::from(column.missing > 0));
            if l > 1 {
                let name = self.name(field);
                let _ = writeln!(
                    out,
                    "    - {{ l-diversity: {{ field: {name}, l: {l}, variant: distinct }} }}      # and has at least {l} different values of {name}"
                );
            }
        }
    }

    fn stream(&self, out: &mut String) {
        let _ = writeln!(
            out,
            "window: {{ tumbling: {{ max_records: {}, max_age: 60s }} }}      # one release of each window",
            self.max_records
        );
        let envelope = match self.profile.envelope {
            // A profile takes no array apart.
            Envelope::None | Envelope::Array => "",
            Envelope::Debezium => ", envelope: debezium",
        };
        let _ = match &self.ends {
            Ends::Stdio(format) => {
                writeln!(out, "source: {{ stdio: {{ format: {format} }} }}\nsink: {{ stdio: {{ format: {format} }} }}")
            }
            Ends::Files { input, output, format, reading } => {
                let stem = output.file_stem().unwrap_or_default().to_string_lossy();
                writeln!(
                    out,
                    "source: {{ file: {{ path: {}, format: {format}{reading}{envelope} }} }}\n\
                     # A second run reads the file from its beginning and appends: remove the output first, or the same people are in it twice.\n\
                     sink:\n  file:\n    path: {}\n    format: {}\n    \
                     manifest: {}      # what each release satisfies and loses; may be handed on with the rows\n    \
                     journal: {}      # which records each release finished, by position; for operators only\n\
                     # http: {{ listen: 127.0.0.1:9464 }}      # metrics and the console, for a service that runs on",
                    quoted(&input.to_string_lossy()),
                    quoted(&output.to_string_lossy()),
                    // Releases cannot be appended to a Parquet file.
                    if *format == Format::Parquet { Format::Json } else { *format },
                    quoted(&format!("{stem}-manifests.jsonl")),
                    quoted(&format!("{stem}-journal.jsonl")),
                )
            }
            Ends::Topics { brokers, topic } => writeln!(
                out,
                "source:\n  kafka: {{ brokers: {}, topics: [{}], group: {}{envelope} }}\nsink:\n  kafka: {{ topic: {}, create_topics: true }}      # and its topics of manifests and of the journal\n\
                 http: {{ listen: 127.0.0.1:9464 }}      # metrics and the console",
                quoted(brokers),
                quoted(topic),
                quoted(&format!("{topic}-veil")),
                quoted(&format!("{topic}-safe"))
            ),
        };
    }

    fn name(&self, field: usize) -> String {
        quoted(&self.profile.names[field])
    }

    fn reason(&self, field: usize) -> String {
        plain(&self.roles[field].reason)
    }

    fn hierarchy(&self, field: usize) -> String {
        match self.hierarchies[field].as_ref().unwrap_or(&HierarchyProposal::Trivial) {
            HierarchyProposal::File(path) => format!("{{ csv: {} }}", quoted(&path.to_string_lossy())),
            HierarchyProposal::Dates(notations) if notations.are_usual() => {
                "{ date: [day, month, year, decade] }".into()
            }
            HierarchyProposal::Dates(notations) => {
                let formats: Vec<String> = notations.formats().map(quoted).collect();
                let formats = match formats.as_slice() {
                    [only] => format!("format: {only}"),
                    several => format!("formats: [{}]", several.join(", ")),
                };
                format!("{{ date: {{ units: [day, month, year, decade], {formats} }} }}")
            }
            HierarchyProposal::Intervals { widths: [a, b, c], min, max, comma } => {
                let decimal = if *comma { ", decimal: comma" } else { "" };
                format!("{{ intervals: {{ widths: [{a}, {b}, {c}], min: {min}, max: {max}, open: both{decimal} }} }}")
            }
            HierarchyProposal::Prefix { length, min_length, digits } => {
                let least = min_length.map_or(String::new(), |least| format!(", min_length: {least}"));
                let alphabet = if *digits { "" } else { ", alphabet: 36" };
                format!("{{ prefix: {{ length: {length}{least}{alphabet} }} }}")
            }
            HierarchyProposal::Ip => "{ ip: {} }".into(),
            HierarchyProposal::Geohash(7) | HierarchyProposal::Coordinates { .. } => "{ geohash: {} }".into(),
            HierarchyProposal::Geohash(length) => {
                let lengths: Vec<String> = (2..=*length).rev().map(|length| length.to_string()).collect();
                format!("{{ geohash: {{ lengths: [{}] }} }}", lengths.join(", "))
            }
            HierarchyProposal::Groups { frequent, others } => {
                let leaves = |values: &[String]| {
                    values.iter().map(|value| format!("{{ label: {} }}", quoted(value))).collect::<Vec<_>>().join(", ")
                };
                format!(
                    "\n        tree:      # by frequency: regroup it by meaning\n          - {{ label: other, children: [{}] }}\n{}",
                    leaves(others),
                    frequent
                        .iter()
                        .map(|value| format!("          - {{ label: {} }}", quoted(value)))
                        .collect::<Vec<_>>()
                        .join("\n")
                )
            }
            // The pair stands under the name of its place.
            HierarchyProposal::Trivial | HierarchyProposal::Longitude(_) => "trivial".into(),
        }
    }
}

/// A path as a configuration at `config` must write it to mean the same file: relative to its folder if it is in there.
pub(super) fn seen_from(config: &Path, path: &Path) -> PathBuf {
    match path.strip_prefix(config.parent().unwrap_or(Path::new(""))) {
        Ok(inside) if !path.is_absolute() => inside.to_owned(),
        _ => std::path::absolute(path).unwrap_or_else(|_| path.to_owned()),
    }
}

/// A text as YAML reads it back: bare where that is safe, else as a JSON string.
fn quoted(text: &str) -> String {
    const WORDS: [&str; 10] = ["true", "false", "null", "yes", "no", "on", "off", "y", "n", "nan"];
    let bare = text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "_-./".contains(c))
        && !WORDS.contains(&text.to_ascii_lowercase().as_str());
    // A dollar sign would begin a variable.
    if bare { text.to_owned() } else { serde_json::Value::from(text).to_string().replace('$', "$$") }
}

/// A text that stays in its comment.
fn plain(text: &str) -> String {
    text.replace(char::is_control, " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_beside_the_configuration_are_named_from_there() {
        let seen = |config: &str, path: &str| seen_from(Path::new(config), Path::new(path)).display().to_string();
        assert_eq!(seen("p.yaml", "age.csv"), "age.csv");
        assert_eq!(seen("p.yaml", "data/age.csv"), "data/age.csv");
        assert_eq!(seen("data/p.yaml", "data/trees/age.csv"), "trees/age.csv");
        assert!(seen("policies/p.yaml", "data/age.csv").ends_with("/data/age.csv"));
        assert_eq!(seen("data/p.yaml", "/data/age.csv"), "/data/age.csv");
    }

    #[test]
    fn texts_are_read_back_as_they_were() {
        assert_eq!(quoted("native-country"), "native-country");
        assert_eq!(quoted("no"), "\"no\"");
        assert_eq!(quoted("a: b"), "\"a: b\"");
        assert_eq!(quoted("${HOME}"), "\"$${HOME}\"");
        assert_eq!(quoted("12"), "\"12\"");
        assert_eq!(quoted("%d/%m/%Y"), "\"%d/%m/%Y\"");
        assert_eq!(quoted("a\n\"b\""), "\"a\\n\\\"b\\\"\"");
    }
}
