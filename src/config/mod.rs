//! The configuration: [`RawConfig`] mirrors the file, [`Config`] is valid by construction.
//!
//! The walk: YAML text -> tree with lines -> interpolation -> structural check along the JSON Schema -> [`RawConfig`] ->
//! checks for sense -> [`Config`]. Every step goes on as far as it can, so that all problems of a file are told at once.
//! Invariant: no message and no `Debug` shows what came from a variable or a file.

mod check;
mod criteria;
mod fingerprint;
mod hierarchy;
mod interpolate;
mod kafka;
mod pipeline;
mod policy;
mod problem;
mod properties;
pub mod raw;
mod render;
pub mod scalar;
mod sliding;
pub mod snippet;
#[cfg(test)]
mod tests;
mod topics;
mod tree;
mod tuning;

use std::fs::File;
use std::io::Read as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use schemars::generate::SchemaSettings;
use secrecy::SecretString;
use serde::Deserialize as _;

use self::interpolate::{Sources, interpolate};
use self::problem::Problems;
use self::tree::At;
use crate::codec::Format;
use crate::kafka::client::{KafkaSinkConfig, KafkaSourceConfig};
use crate::model::policy::Policy;
use crate::search::choose::{Choice, Levels};
use crate::search::{Algorithm, Tuning};
use crate::window::{self, CloseRules, Scope, SlideRules, WindowRules};

pub use self::problem::Problem;
pub use self::raw::RawConfig;

/// Larger: a wrong path fills the memory. Smaller: written-out trees no longer fit; those belong into a CSV file anyway.
const MAX_BYTES: u64 = 4 * 1024 * 1024;

/// What a configuration is loaded for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// One release from a file (`anonymize`, `verify`, `search`, `frontier`): only the policy has to make sense. Other
    /// sections may be there, and are checked.
    Policy,
    /// The service (`run`): policy and windows must fit together.
    Pipeline,
}

/// A whole configuration, valid by construction.
#[derive(Debug, Clone)]
pub struct Config {
    /// The file it came from.
    pub path: PathBuf,
    /// What a release must satisfy, and what it may cost.
    pub policy: Policy,
    /// How the best generalization is looked for.
    pub search: SearchConfig,
    /// When a window closes, and how the recoding may move.
    pub window: WindowConfig,
    /// Where records come from.
    pub source: SourceConfig,
    /// Where releases go.
    pub sink: SinkConfig,
    /// Metrics, health and console; `None`: nothing listens.
    pub http: Option<HttpConfig>,
    /// Bounds.
    pub limits: LimitsConfig,
    /// What can be meant so, and mostly is not.
    pub warnings: Vec<Problem>,
}

/// How the best generalization is looked for.
#[derive(Debug, Clone, PartialEq)]
pub struct SearchConfig {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// The longest time one search may take; positive. Endless for commands that make one release, unless configured.
    pub time_budget: Duration,
    /// The seed of everything random; without one every run has its own.
    pub seed: Option<u64>,
    /// With [`Levels::Sticky`]: how much worse than the best the last recoding may be, in [0, 1].
    pub keep_within: f64,
    /// How many bytes of frequency sets a sliding window keeps from one search to the next.
    pub warm_memory: usize,
    /// The most node checks; positive.
    pub max_checks: Option<u64>,
    /// Parameters of the evolutionary searches.
    pub tuning: Tuning,
}

/// When a window closes, and how the recoding may move.
#[derive(Debug, Clone, PartialEq)]
pub struct WindowConfig {
    /// One window that moves on; what else is said of closing does not apply then.
    pub sliding: Option<SlideRules>,
    /// Closes at this many records; positive.
    pub max_records: u64,
    /// Closes this long after its first record; positive. There is none only if event time closes windows.
    pub max_age: Option<Duration>,
    /// Event-time boundaries.
    pub event_time: Option<EventTime>,
    /// How the recoding may move from release to release.
    pub levels: Levels,
    /// Whose records go into one window.
    pub scope: Scope,
}

/// Windows by event time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventTime {
    /// Where the event time stands. A field is also in the policy's schema.
    pub source: EventTimeSource,
    /// The length of a window; positive.
    pub size: Duration,
    /// How long a window waits for late records.
    pub allowed_lateness: Duration,
}

/// Where the event time stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventTimeSource {
    /// The source's own timestamp.
    Timestamp,
    /// A field of the record.
    Field(Arc<str>),
}

/// Where records come from. Paths are ready to open.
#[derive(Debug, Clone)]
pub enum SourceConfig {
    /// A file.
    File {
        /// Its path.
        path: PathBuf,
        /// Its format.
        format: Format,
        /// The CSV delimiter; sniffed if there is none.
        delimiter: Option<u8>,
    },
    /// Standard input.
    Stdio {
        /// The format.
        format: Format,
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
    /// What callers must show.
    pub token: Option<SecretString>,
}

/// Bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitsConfig {
    /// The largest record, in bytes; positive.
    pub max_record_bytes: u64,
    /// A quarter of so many bytes may be fetched ahead of the windows.
    pub memory: Option<u64>,
}

/// Stands for "never" where a window needs an age: as long as any duration of a configuration may be.
const NEVER: Duration = Duration::from_secs(36_525 * 86_400);

/// The JSON Schema of [`RawConfig`].
pub fn json_schema() -> serde_json::Value {
    SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<RawConfig>().to_value()
}

impl Config {
    /// How to search, and how to choose among what is found.
    pub fn choice(&self) -> Choice {
        Choice {
            algorithm: self.search.algorithm,
            time_budget: self.search.time_budget,
            max_checks: self.search.max_checks,
            levels: self.window.levels.clone(),
            keep_within: self.search.keep_within,
            tuning: self.search.tuning.clone(),
        }
    }

    /// Which windows there are.
    pub fn window_rules(&self) -> WindowRules {
        let window = &self.window;
        if let Some(sliding) = &window.sliding {
            return WindowRules::Sliding(SlideRules { warm_memory: self.search.warm_memory, ..sliding.clone() });
        }
        WindowRules::Tumbling(CloseRules {
            max_records: usize::try_from(window.max_records).unwrap_or(usize::MAX),
            max_age: window.max_age.unwrap_or(NEVER),
            event_time: window
                .event_time
                .as_ref()
                .map(|e| window::EventTime { size: e.size, allowed_lateness: e.allowed_lateness }),
        })
    }

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
    pub fn load_with(
        path: &Path,
        purpose: Purpose,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, Vec<Problem>> {
        let mut problems = Problems::new(path);
        let config = read(path, &mut problems).and_then(|text| build(&text, path, purpose, variable, &mut problems));
        told(config, problems)
    }

    /// Reads a configuration that is already text, such as one built in; `path` is what messages call it, and where
    /// relative paths start.
    ///
    /// # Errors
    /// Every problem of the text and of the files it names, by line.
    pub fn parse(text: &str, path: &Path, purpose: Purpose) -> Result<Self, Vec<Problem>> {
        let mut problems = Problems::new(path);
        let config = build(text, path, purpose, &|name| std::env::var(name).ok(), &mut problems);
        told(config, problems)
    }
}

/// A configuration counts only if nothing at all is wrong.
fn told(config: Option<Config>, problems: Problems) -> Result<Config, Vec<Problem>> {
    match config {
        Some(config) if problems.len() == 0 => Ok(Config { warnings: problems.into_warnings(), ..config }),
        _ => Err(problems.into_sorted()),
    }
}

/// The file's text, without a byte order mark.
fn read(path: &Path, problems: &mut Problems) -> Option<String> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut bytes));
    match read {
        Err(error) => problems.add_whole(format!("cannot be read ({}): check the path", error.kind())),
        Ok(n) if n as u64 > MAX_BYTES => {
            problems.add_whole(format!("larger than {MAX_BYTES} bytes: move large hierarchies into CSV files"));
        }
        Ok(_) => match String::from_utf8(bytes) {
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

/// The walk from text to configuration. `None` if there is none; problems say why.
fn build(
    text: &str,
    path: &Path,
    purpose: Purpose,
    variable: &dyn Fn(&str) -> Option<String>,
    problems: &mut Problems,
) -> Option<Config> {
    let base = path.parent().unwrap_or(Path::new(""));
    let mut file = tree::parse(text, problems)?;
    interpolate(&mut file, &Sources { variable, base }, problems);
    let checked = check::check(&file, &json_schema(), problems)?;
    let raw = match RawConfig::deserialize(checked.to_json()) {
        Ok(raw) => raw,
        Err(error) => {
            // The structural check should have said it better. What serde says may quote a value.
            let detail = if At::root(&file).is_from_outside() { String::new() } else { format!(": {error}") };
            problems.add_whole(format!("cannot be understood{detail}"));
            return None;
        }
    };
    let at = At::root(&checked);

    let windowed = purpose == Purpose::Pipeline || ["window", "source", "sink"].iter().any(|s| at.key(s).is_present());
    let around = policy::Surroundings {
        base,
        max_records: windowed.then(|| pipeline::shown_max_records(&raw.window, at)).flatten(),
        event_time: pipeline::event_time_field(&raw.window, at.key("window")),
    };
    let policy = policy::build(&raw.policy, at.key("policy"), &around, problems);
    let search = pipeline::search(&raw.search, purpose, at.key("search"), problems);
    pipeline::check_search(&search, &raw.policy, at, problems);
    tuning::check(&raw.search, &raw.policy, at, problems);
    let window = pipeline::window(&raw.window, at.key("window"), &policy, problems);
    let around = kafka::Surroundings {
        root: at,
        base,
        variable,
        time_budget: raw.search.time_budget.map_or(Duration::ZERO, |d| d.0),
        max_records: window.max_records,
        schema: policy.policy.as_ref().map(|policy| &policy.schema),
        // A snapshot is planned by what it shows; later ones start anew.
        journal: match &raw.policy.sequential {
            Some(sequential) => Some((sequential.releases as usize).saturating_sub(1)),
            None => raw.window.sliding.as_ref().map(|_| 0),
        },
    };
    let source = pipeline::source(raw.source.as_ref(), at.key("source"), &around, problems);
    let sink = pipeline::sink(raw.sink.as_ref(), at.key("sink"), source.as_ref(), &around, problems);
    kafka::check_both(raw.source.as_ref(), raw.sink.as_ref(), &raw.search, at, problems);
    sliding::check(&raw, at, problems);
    criteria::check_sequential(&raw, at, problems);
    pipeline::check_files(raw.source.as_ref(), raw.sink.as_ref(), at, base, problems);
    let http = raw.http.as_ref().map(|http| pipeline::http(http, at.key("http"), problems));
    let limits = pipeline::limits(&raw.limits, at.key("limits"), problems);
    Some(Config {
        path: path.to_owned(),
        policy: policy.policy?,
        search,
        window,
        source: source?,
        sink: sink?,
        http,
        limits,
        warnings: Vec::new(),
    })
}
