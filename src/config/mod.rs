//! The configuration: [`raw::RawConfig`] mirrors the file, [`Config`] is valid by construction.
//!
//! ```text
//! text ─file/tree→ tree with lines ─file/interpolate→ values put in ─file/check→ structure as in the JSON Schema
//!      ─serde→ RawConfig ─policy/, stream/→ checks for sense → Config
//! ```
//! Every step continues after a problem as far as it can, so that all problems of a file are reported at once.
//! Invariant: no message and no `Debug` shows a value that came from a variable or a file.

mod file;
mod policy;
mod raw;
pub(crate) mod snippet;
mod stream;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use schemars::generate::SchemaSettings;
use secrecy::SecretString;
use serde::Deserialize as _;

use self::file::interpolate::{Sources, interpolate};
use self::file::{At, Problems, check, tree};
use self::raw::RawConfig;
use crate::codec::Format;
use crate::codec::encoding::TextEncoding;
use crate::kafka::client::{KafkaSinkConfig, KafkaSourceConfig};
use crate::model::policy::Policy;
use crate::model::release::audience::{Audience, AudienceTable};
use crate::model::schema::Placement;
use crate::search::choose::Choice;
use crate::window::{Scope, WindowRules};

pub use self::file::problem::Problem;

/// Larger: a wrong path fills the memory. Smaller: written-out trees no longer fit; those belong into a CSV file anyway.
const MAX_BYTES: u64 = 4 * 1024 * 1024;

/// The commands that a configuration is loaded for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// One release from a file (`anonymize`, `verify`, `search`, `frontier`): only the policy has to make sense. Other
    /// sections may be there, and are checked.
    Policy,
    /// The service (`run`): policy and windows must fit together.
    Pipeline,
}

/// The stage that routes records by their generalized values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteConfig {
    /// The topic of the routed messages.
    pub topic: String,
    /// The topic of the map and of the partitions of people.
    pub state: String,
    /// How many partitions the topic gets if it is made here.
    pub partitions: Option<u32>,
    /// How long a person without new records stays assigned to the same partition.
    pub stays: Duration,
}

/// A whole configuration, valid by construction.
#[derive(Debug, Clone)]
pub struct Config {
    /// The file it came from.
    pub path: PathBuf,
    /// The conditions for every release, and what it may cost.
    pub policy: Policy,
    /// How to search, and how to choose among the results.
    pub choice: Choice,
    /// The seed of everything random; without one every run has its own.
    pub seed: Option<u64>,
    /// When windows close.
    pub windows: WindowRules,
    /// Whose records go into one window.
    pub scope: Scope,
    /// Where records come from.
    pub source: SourceConfig,
    /// Where releases go.
    pub sink: SinkConfig,
    /// The stage that routes records before `run` reads them, if there is one.
    pub route: Option<RouteConfig>,
    /// The audiences: readers with a table of their own of every release.
    pub audiences: Vec<Audience>,
    /// Metrics, health and console; `None`: nothing listens.
    pub http: Option<HttpConfig>,
    /// Bounds.
    pub limits: LimitsConfig,
    /// Settings that are valid but rarely intended.
    pub warnings: Vec<Problem>,
}

/// Where records come from. Paths are ready to open.
#[derive(Debug, Clone)]
pub enum SourceConfig {
    /// A file.
    File {
        /// Its path.
        path: PathBuf,
        /// Its format; by the first bytes, and of text by its name, if there is none.
        format: Option<Format>,
        /// The CSV delimiter; sniffed if there is none.
        delimiter: Option<u8>,
        /// The encoding of text; by its byte order mark, or UTF-8, if there is none.
        encoding: Option<TextEncoding>,
        /// Where its records have the fields of the policy.
        placement: Placement,
    },
    /// Standard input.
    Stdio {
        /// The format; by the first bytes if there is none.
        format: Option<Format>,
    },
    /// A synthetic population.
    Generator {
        /// How many records; endless if there is none.
        records: Option<u64>,
        /// Records per second, positive; as fast as they are taken if there is none.
        rate: Option<f64>,
        /// The seed.
        seed: u64,
        /// How many different people; positive.
        subjects: u64,
    },
    /// Kafka topics; then the sink is Kafka too.
    Kafka(Box<KafkaSourceConfig>),
}

impl SourceConfig {
    /// Where its records have the fields of the policy, if it says so for all of them.
    fn placement(&self) -> Option<&Placement> {
        match self {
            Self::File { placement, .. } => Some(placement),
            Self::Kafka(kafka) => kafka.placements.first(),
            Self::Stdio { .. } | Self::Generator { .. } => None,
        }
    }
}

/// Where releases go. Paths are ready to open.
#[derive(Debug, Clone)]
pub enum SinkConfig {
    /// A file.
    File {
        /// Its path.
        path: PathBuf,
        /// Its format.
        format: Format,
        /// Where the release manifests go.
        manifest: Option<PathBuf>,
        /// Where it is written down which records each release finished.
        journal: Option<PathBuf>,
        /// The tables of the audiences.
        audiences: Vec<AudienceTable<PathBuf>>,
    },
    /// Standard output.
    Stdio {
        /// The format.
        format: Format,
    },
    /// Kafka topics; then the source is Kafka too.
    Kafka(Box<KafkaSinkConfig>),
}

/// Metrics, health and console over HTTP.
#[derive(Debug, Clone)]
pub struct HttpConfig {
    /// Where to listen; loopback if there is no token.
    pub listen: SocketAddr,
    /// The token that callers must show.
    pub token: Option<SecretString>,
}

/// Bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitsConfig {
    /// The largest record, in bytes; positive.
    pub max_record_bytes: u64,
    /// Memory in bytes; a quarter of it may hold records that were fetched ahead of the windows.
    pub memory: Option<u64>,
}

/// The JSON Schema of [`RawConfig`].
pub fn json_schema() -> serde_json::Value {
    SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<RawConfig>().to_value()
}

/// Reads another document that a user writes in YAML, such as the cases of `veilstream test`. Nothing is interpolated, and keys that
/// the type does not know are refused if it denies them.
///
/// # Errors
/// Every problem of the text; of its structure the first.
pub(crate) fn read_document<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T, Vec<Problem>> {
    let problems = Problems::new(path);
    let tree = read(path, &problems).and_then(|text| tree::parse(&text, &problems));
    let document = tree.and_then(|tree| match T::deserialize(tree.to_json()) {
        Ok(document) => Some(document),
        Err(error) => {
            problems.add_whole(format!("cannot be understood: {error}"));
            None
        }
    });
    match (document, problems.into_result()) {
        (Some(document), Ok(_)) => Ok(document),
        (_, problems) => Err(problems.err().unwrap_or_default()),
    }
}

impl Config {
    /// Reads a configuration, with the variables of the process.
    ///
    /// # Errors
    /// Every problem of the file and of the files it names, by line.
    pub fn load(path: &Path, purpose: Purpose) -> Result<Self, Vec<Problem>> {
        Self::load_with(path, purpose, &|name| std::env::var(name).ok())
    }

    /// Reads a configuration, with variables from `variable`.
    ///
    /// # Errors
    /// Every problem of the file and of the files it names, by line.
    pub fn load_with(path: &Path, purpose: Purpose, variable: Variables<'_>) -> Result<Self, Vec<Problem>> {
        let problems = Problems::new(path);
        let text = read(path, &problems);
        Self::built(text.as_deref(), path, purpose, variable, problems)
    }

    /// Reads a configuration that is already text, such as one built in; `path` is its name in messages, and relative paths
    /// start there.
    ///
    /// # Errors
    /// Every problem of the text and of the files it names, by line.
    pub fn parse(text: &str, path: &Path, purpose: Purpose) -> Result<Self, Vec<Problem>> {
        Self::built(Some(text), path, purpose, &|name| std::env::var(name).ok(), Problems::new(path))
    }

    /// A configuration counts only if nothing at all is wrong.
    fn built(
        text: Option<&str>,
        path: &Path,
        purpose: Purpose,
        variable: Variables<'_>,
        problems: Problems,
    ) -> Result<Self, Vec<Problem>> {
        let config = text.and_then(|text| {
            let base = path.parent().unwrap_or(Path::new(""));
            let mut file = tree::parse(text, &problems)?;
            interpolate(&mut file, &Sources { variable, base }, &problems);
            let (raw, checked) = understood(&file, &problems)?;
            build(&raw, At::root(&checked, &problems), path, purpose, variable)
        });
        match (config, problems.into_result()) {
            (Some(config), Ok(warnings)) => Ok(Self { warnings, ..config }),
            (_, problems) => Err(problems.err().unwrap_or_default()),
        }
    }
}

/// The value of an environment variable.
type Variables<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The file's text, without a byte order mark.
fn read(path: &Path, problems: &Problems) -> Option<String> {
    match file::read(path, MAX_BYTES) {
        Err(error) => problems.add_whole(format!("cannot be read ({}): check the path", file::why(&error))),
        Ok(None) => {
            problems.add_whole(format!("larger than {MAX_BYTES} bytes: move large hierarchies into CSV files"));
        }
        Ok(Some(bytes)) => match String::from_utf8(bytes) {
            Ok(text) => return Some(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text)),
            Err(error) => {
                let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
                let line = valid.iter().filter(|&&b| b == b'\n').count() + 1;
                problems.add(line, "not UTF-8: save the file as UTF-8");
            }
        },
    }
    None
}

/// The usable part of the file, as raw configuration and as tree.
fn understood(file: &tree::YamlNode, problems: &Problems) -> Option<(RawConfig, tree::YamlNode)> {
    let checked = check::check(file, &json_schema(), problems)?;
    match RawConfig::deserialize(checked.to_json()) {
        Ok(raw) => Some((raw, checked)),
        Err(error) => {
            // The structural check should have reported it. The text of serde may quote a value.
            let outside = At::root(file, problems).is_from_outside();
            let detail = if outside { String::new() } else { format!(": {error}") };
            problems.add_whole(format!("cannot be understood{detail}"));
            None
        }
    }
}

/// Checks the sense of each section and builds it; `None` if a section cannot be built. The problems are reported at `at`.
fn build(raw: &RawConfig, at: At<'_>, path: &Path, purpose: Purpose, variable: Variables<'_>) -> Option<Config> {
    let base = path.parent().unwrap_or(Path::new(""));
    let windowed = purpose == Purpose::Pipeline || ["window", "source", "sink"].iter().any(|s| at.key(s).is_present());
    let around = policy::PolicySurroundings {
        base,
        recoding: stream::recoding(raw),
        max_records: windowed.then(|| stream::shown_max_records(&raw.window, at)).flatten(),
        event_time: stream::event_time_field(&raw.window, at.key("window")),
        audiences: (&raw.audiences, at.key("audiences")),
        envelope: stream::envelope(raw.source.as_ref(), at.key("source")),
        placements: stream::placement_parts(raw.source.as_ref()),
        changelog: purpose == Purpose::Pipeline && stream::publishes_changes(&raw.window),
    };
    let policy = policy::build(&raw.policy, at.key("policy"), &around);
    let levels = stream::levels(&raw.window, at.key("window"), &policy);
    let choice = stream::choice(raw, purpose, levels, at.key("search"));
    let windows = stream::windows(&raw.window, raw.search.warm_memory, at.key("window"));
    let around = stream::StreamSurroundings {
        root: at,
        base,
        variable,
        time_budget: raw.search.time_budget.map_or(Duration::ZERO, |d| d.0),
        max_records: stream::max_records(&raw.window),
        schema: policy.policy.as_ref().map(|policy| &policy.schema),
        audiences: (&raw.audiences, &policy.audiences),
        // A snapshot is planned by the records that it shows; later ones start anew.
        journal: match &raw.policy.sequential {
            Some(sequential) => Some((sequential.releases as usize).saturating_sub(1)),
            None => raw.window.sliding.as_ref().map(|_| 0),
        },
    };
    let source = stream::source(raw.source.as_ref(), at.key("source"), &around);
    let sink = stream::sink(raw.sink.as_ref(), at.key("sink"), source.as_ref(), &around);
    let route = raw.route.as_ref().map(|route| stream::route(route, at.key("route"), source.as_ref(), sink.as_ref()));
    check_together(raw, policy.policy.as_ref(), at, base);
    let http = raw.http.as_ref().map(|http| stream::http(http, at.key("http")));
    let limits = stream::limits(&raw.limits, at.key("limits"));
    let (mut policy, audiences, source) = (policy.policy?, policy.audiences, source?);
    if let Some(placement) = source.placement() {
        policy.schema = policy.schema.placed(placement);
    }
    Some(Config {
        path: path.to_owned(),
        policy,
        choice,
        seed: raw.search.seed,
        windows: windows?,
        scope: raw.window.scope,
        source,
        sink: sink?,
        route: match route {
            Some(route) => Some(route?),
            None => None,
        },
        audiences,
        http,
        limits,
        warnings: Vec::new(),
    })
}

/// Refuses parts that make no sense together.
fn check_together(raw: &RawConfig, policy: Option<&Policy>, at: At<'_>, base: &Path) {
    stream::check_search(&raw.search, &raw.policy, at);
    stream::check_recoding(raw, at);
    stream::check_alternatives(raw, at);
    stream::check_both(raw.source.as_ref(), raw.sink.as_ref(), at);
    stream::check_sliding(raw, at);
    stream::check_explode(raw, at);
    stream::check_memory(raw, at);
    stream::check_changes(raw, policy, at);
    stream::check_files(raw.source.as_ref(), raw.sink.as_ref(), at, base);
}
