//! The sections around the policy as written: search, window, source, sink, http, limits.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

use super::{RawEnvelope, RawKafkaSink, RawKafkaSource};
use crate::codec::Format;
use crate::codec::encoding::TextEncoding;
use crate::config::file::scalar::{RawAddress, RawDuration, RawExtent, RawSecret, RawShare, RawSize};
use crate::search::Algorithm;
use crate::search::front::objectives::Objective;
use crate::window::Scope;

/// How the best generalization is looked for.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawSearch {
    /// The algorithm. Default: `auto`, a proven optimum where lattice and budget allow.
    pub algorithm: Algorithm,
    /// The longest time one search may take. Default: 200ms in `run`, well inside the time in which the next window fills;
    /// none in commands that make one release.
    pub time_budget: Option<RawDuration>,
    /// The seed of randomised searches and of the row order; the same seed gives the same result. Default: a new one
    /// for every run that nobody can guess, because a reader who knows the seed can undo the shuffle of the rows. With Kafka it is
    /// always a new one: it names releases.
    pub seed: Option<u64>,
    /// With `levels: sticky`: keep the last recoding while it is at most this much worse than the best, by what the algorithm
    /// is after: the policy's loss; for `top-down` the score of priorities; for `granulation-ga` security times quality; for
    /// `subtree-bottom-up` with a `label` what the classes say about it (`cm`); for `pbg-ea` its preference, and then only
    /// if it meets the bounds that the best meets. Default: 2%.
    pub keep_within: Option<RawShare>,
    /// With `window.sliding`: how much memory may hold frequency sets from one search to the next. Default: 64MiB.
    pub warm_memory: Option<RawSize>,
    /// The most node checks of one search. Default: no bound but the time budget.
    #[schemars(range(min = 1))]
    pub max_checks: Option<u64>,
    /// How many nodes live at a time, in evolutionary searches. Default: as in the paper, 20 (`pbg-ea`: 25, `granulation-ga`: 30).
    #[schemars(range(min = 2, max = 10000))]
    pub population: Option<u32>,
    /// How many generations, in evolutionary searches (`tabu`: steps). Default: as in the paper, 20 for `tabu-ga` and what
    /// `auto` falls back to, 300 for `genetic` and `tabu`, 100 for `pbg-ea`; 50 for `granulation-ga`.
    #[schemars(range(min = 1))]
    pub iterations: Option<u32>,
    /// With `tabu-ga`, `genetic` and `auto`: at how many points a pair of nodes is cut and exchanged, 1 or 2. Default: 1, as in
    /// the paper.
    #[schemars(range(min = 1, max = 2))]
    pub crossover_points: Option<u32>,
    /// With `tabu-ga`, `tabu` and `auto`: how a tabu search walks from node to node. Default: as in the paper.
    pub tabu: Option<RawTabu>,
    /// With `pbg-ea`: what to trade off. Default: k and glm.
    pub objectives: Vec<Objective>,
    /// With `pbg-ea`: which point of the trade-off to release, among those that satisfy the policy. Default: `knee`.
    pub prefer: Option<RawPrefer>,
    /// With `pbg-ea`: how different two points must be in an objective to be both kept, as objective: difference.
    /// Default: 1 for k and l, a thousandth of the range for the others.
    pub epsilon: Option<BTreeMap<String, f64>>,
    /// With `pbg-ea` and `granulation-ga`: how likely two parents are crossed. Default: 80%.
    pub crossover: Option<RawShare>,
    /// With `pbg-ea` and `genetic`: how likely each attribute of a child moves by one level; with `granulation-ga`: how likely each
    /// bit of its code flips. Default: one of them per child on average.
    pub mutation: Option<RawShare>,
    /// With `top-down` and `top-down-extended`: the p of k + p, by which the groups of each attribute alone exceed k where the
    /// search starts. More starts coarser. Default: 0.
    pub margin: Option<u32>,
    /// True runs `subtree-bottom-up`, `top-down-extended` and `pbg-ea` as their papers print them: cuts are not refined, the extension
    /// repairs two steps at most, and every offspring is counted. Default: false.
    pub as_printed: bool,
    /// True takes as the population's share of a confidential sentence without a `prior` how often it was true in the windows before,
    /// for `granulation-ga` and the objective `sf`. `min-security` counts the release alone. Not with `sliding`. Default: false, its
    /// share of the release.
    pub learn_priors: bool,
}

/// How a tabu search walks: every cycle draws candidates from the neighbours of the nodes at hand and goes on from them.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawTabu {
    /// With `tabu-ga` and `auto`: how many cycles a walk has (`tabu` alone: see `iterations`). Default: 20.
    #[schemars(range(min = 1))]
    pub cycles: Option<u32>,
    /// How many candidates a cycle draws. More look at more nodes per cycle. Default: 20.
    #[schemars(range(min = 1, max = 10000))]
    pub candidates: Option<u32>,
    /// How many nodes are tabu at most. Default: 6.
    pub length: Option<u32>,
    /// How many cycles a node stays tabu. Default: 7.
    #[schemars(range(min = 1))]
    pub life: Option<u32>,
    /// The probability that a candidate satisfies the policy, where there are nodes of both kinds. Default: 70%.
    pub satisfying: Option<RawShare>,
    /// True lets a walk return to the best node that it has met although that is tabu. Default: false.
    pub aspiration: bool,
}

/// Which point of a trade-off to release.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RawPrefer {
    /// Where giving up more of one objective begins to buy little of the others: the greatest sum of all objectives, each
    /// scaled from 0 to 1 over the trade-off. Counts (k, l, s_k, s_l) count by the risk 1/count that they leave, so that k
    /// from 5 to 10 matters and from 5,000 to 10,000 does not; `aecs` by its logarithm; shares as they are.
    Knee,
    /// At least (losses: at most) so much of each objective named, in the release as it is published; the knee of those points
    /// that meet all bounds. Where none does, the nearest to them, and log, metrics, manifest and console say which bounds are not met.
    Bounds(BTreeMap<String, f64>),
}

/// When a window closes, and how the recoding may move.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawWindow {
    /// Windows that follow one another; each record is published at most once. Default: with all its defaults.
    pub tumbling: RawTumbling,
    /// One window that moves on, instead of `tumbling`: every slide publishes a snapshot of the whole window. Whoever puts
    /// any number of them side by side finds no group of records that breaks the policy: records come, leave and are
    /// written otherwise only with enough others, wait in the window until they can, and never return once they have left.
    /// With Kafka it needs `journal`; a new assignment starts with an empty window. Default: none.
    pub sliding: Option<RawSliding>,
    /// How the recoding may move from release to release. Default: `sticky`, because free choice is unsafe where people
    /// return. With `sliding` no choice lets a record be told apart by recodings that cross: `free` and `sticky` get finer
    /// only where that makes good, in four windows' time, the records that snapshots must be without until the window has
    /// been replaced; `monotone` and `fixed` never leave records out for it.
    pub levels: RawLevels,
    /// With `levels: fixed`: the level of each quasi-identifier. Default: the recoding of the first release.
    pub fixed_levels: Option<BTreeMap<String, u8>>,
    /// Whose records go into one window. Default: `instance`, because people hide better among more.
    pub scope: Scope,
}

/// Windows that follow one another.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawTumbling {
    /// Closes at this many records. Default: 50000, which bounds memory.
    #[schemars(range(min = 1))]
    pub max_records: Option<u64>,
    /// Closes this long after its first record. Default: 30s; none if `size` is given.
    pub max_age: Option<RawDuration>,
    /// The length of event-time windows. Default: none, event time does not close windows.
    pub size: Option<RawDuration>,
    /// Where the event time stands: `timestamp` (the source's own) or `{ field: NAME }` (ISO 8601 or milliseconds since
    /// 1970). Default: `timestamp`. Needs `size`. A record dated more than an hour (or a window, if that is longer) ahead of the
    /// others, or a minute ahead of the clock, goes with the window that is open, unless ten in a row agree on the jump.
    pub event_time: Option<RawEventTime>,
    /// How long an event-time window waits for late records. Default: 0s. Needs `size`.
    pub allowed_lateness: Option<RawDuration>,
}

/// One window that moves on. `size`, `slide` and `max_hold` are all in records, or all in time by the clock:
/// `{ size: 10000, slide: 1000 }` or `{ size: 10m, slide: 1m }`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawSliding {
    /// How far back the window reaches: the newest records, by number or by age.
    pub size: RawExtent,
    /// How far it moves from snapshot to snapshot; at most `size`.
    pub slide: RawExtent,
    /// How long a record may stay in snapshots after it left the window, because too few of those leave with it that came
    /// with it into its class. Then all of these leave. Default: as much as `size`.
    #[serde(default)]
    pub max_hold: Option<RawExtent>,
    /// In time only: the most records in the window; older ones leave before their time. Default: 50000, which bounds
    /// memory.
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub max_records: Option<u64>,
    /// The rows that a slide publishes. Default: `snapshots`, which every reader can use as they are.
    #[serde(default)]
    pub publish: RawPublish,
}

/// The rows that the slide of a window publishes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RawPublish {
    /// The whole snapshot.
    #[default]
    Snapshots,
    /// A changelog from which a reader keeps the snapshot: the field `change` is `=` for a row of a whole snapshot that replaces
    /// everything before it, `+` for a row that comes, and `-` for a row that leaves, which reads as when it came. The first release
    /// is whole, and each one after the recoding has moved. Goes with rules that hold for a class whoever joins it.
    Changes,
}

/// Where the event time stands.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RawEventTime {
    /// The source's own timestamp.
    Timestamp,
    /// A field of the record.
    Field(String),
}

/// How the recoding may move from release to release.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RawLevels {
    /// Any recoding; with `tumbling` safe only if nobody is in two windows.
    Free,
    /// The last one while it satisfies and is within `keep_within` of the best, by what the algorithm is after.
    #[default]
    Sticky,
    /// Only coarser.
    Monotone,
    /// Never.
    Fixed,
}

/// Where records come from.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RawSource {
    /// A file.
    File(RawFileSource),
    /// Standard input.
    Stdio(RawStdio),
    /// A synthetic population.
    Generator(RawGenerator),
    /// Kafka topics. The sink must be Kafka too.
    Kafka(Box<RawKafkaSource>),
}

/// A file to read.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawFileSource {
    /// Its path.
    pub path: PathBuf,
    /// Its format. Default: by extension (.csv, .tsv, .jsonl, .ndjson, .json, .avro, .parquet; text also with .gz or .zst
    /// behind), or else by its first bytes. Gzip and zstd are unpacked whatever the name is.
    #[serde(default)]
    pub format: Option<Format>,
    /// The CSV delimiter, one character. Default: sniffed from the header (`,` `;` tab).
    #[serde(default)]
    pub delimiter: Option<char>,
    /// The envelope around the row in a record of JSON or Avro. Default: none.
    #[serde(default)]
    pub envelope: Option<RawEnvelope>,
    /// The fields that it has elsewhere than the policy says: the path in the policy, and the path or column in the file. Default: none.
    #[serde(default)]
    pub fields: BTreeMap<String, String>,
    /// The array that holds a record in each element, as in `source.kafka`. Not in CSV. Default: none.
    #[serde(default)]
    pub explode: Option<String>,
    /// The encoding of text. Default: UTF-16 if a byte order mark says so, otherwise UTF-8.
    #[serde(default)]
    pub encoding: Option<TextEncoding>,
}

/// Standard input or output.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawStdio {
    /// The format. Default: of a source by its first bytes, of a sink `jsonl`.
    pub format: Option<Format>,
}

/// A synthetic population.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawGenerator {
    /// How many records. Default: no end.
    pub records: Option<u64>,
    /// Records per second; positive. Default: as fast as they are taken.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub rate: Option<f64>,
    /// The seed. Default: 0.
    pub seed: u64,
    /// How many different people. Default: 10000.
    #[schemars(range(min = 1))]
    pub subjects: Option<u64>,
}

/// Where releases go.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RawSink {
    /// A file.
    File(RawFileSink),
    /// Standard output.
    Stdio(RawStdio),
    /// Kafka topics. The source must be Kafka too.
    Kafka(Box<RawKafkaSink>),
}

/// A file to write.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawFileSink {
    /// Its path. A file that is there is continued if it holds rows of the same fields in the same format, else the start is
    /// refused, as it is while another process writes it. A pipe or a character device is written to as a stream; a symbolic
    /// link to a file is refused. Each release is written whole; a release that a crash cut short is taken back at the next
    /// start, by `PATH.undo`. No offsets are kept: a restart reads its source from the beginning.
    pub path: PathBuf,
    /// Its format. Default: by extension (.csv, .tsv, .jsonl, .ndjson, .json, .avro; text is compressed if .gz or .zst is behind).
    /// Not Parquet, which cannot be continued after a release.
    #[serde(default)]
    pub format: Option<Format>,
    /// Where the release manifests go, one JSON object per line; continued as `path` is. Default: nowhere.
    #[serde(default)]
    pub manifest: Option<PathBuf>,
    /// Where it is written down for operators which records each release finished, by position and never by value, one JSON
    /// object per line. Not for readers of the rows: positions of single records tell which of them were held. Default: nowhere.
    #[serde(default)]
    pub journal: Option<PathBuf>,
}

/// Metrics, health and console over HTTP.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawHttp {
    /// The address and port. Other than loopback it needs a `token`. Default: 127.0.0.1:9464.
    pub listen: Option<RawAddress>,
    /// The bearer token that callers must show; from `${file:PATH}` or `${NAME}`. Default: none, on loopback only.
    pub token: Option<RawSecret>,
}

/// Routes records by their generalized values, so that instances that share the input do not separate people who are alike.
/// `veilstream route` reads the source's topics and writes every message, unchanged, to the partition of its district; `veilstream run`
/// with the same file reads that topic instead of the source's.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("required" = ["topic"], "x-section" = true))]
pub(crate) struct RawRoute {
    /// The topic of the routed messages, in the source's cluster. It holds what the input holds: give it the input's access rules, and a
    /// retention that is longer than `run` may be away. Each partition is a district.
    pub topic: Option<String>,
    /// The compacted topic for the map of districts, and with `policy.subject` for a hash and the partition of each person. It needs the
    /// input's access rules. Default: the topic's name and `-state`.
    pub state: Option<String>,
    /// How many partitions the topic gets if `create_topics` makes it: as many as instances of `run`, or a multiple of that. Default: as
    /// many as the input has.
    #[schemars(range(min = 1, max = 1000))]
    pub partitions: Option<u32>,
    /// With `policy.subject`: how long a person without new records stays assigned to the same partition. Longer than records may
    /// wait in `run`, and than releases may lie apart that `sequential` compares. Default: 24h. Longer: more people are kept in memory,
    /// about 50 bytes each, and the districts follow drift later.
    pub stays: Option<RawDuration>,
}

/// Bounds.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawLimits {
    /// The largest record; larger ones are rejected. Default: 1MiB, as Kafka brokers have it.
    pub max_record_bytes: Option<RawSize>,
    /// How much memory the process may take: messages on their way, windows, waiting records, frequency sets, releases and queues have
    /// parts of it. Who has no room waits for it, up to the source, which pauses (with Kafka: the partitions). A window whose records
    /// reach a 32nd of it closes early, a sliding one lets its oldest rows leave before their time, and of waiting records beyond as
    /// much the oldest are suppressed. At least 64MiB; write what the container gets. Default: no bound but `max_records` and 64MiB of fetched messages.
    pub memory: Option<RawSize>,
}
