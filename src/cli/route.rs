//! `veilstream route`: routes records by their generalized values, from topic to topic.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;

use super::run::{ahead, leave, message_readers, opened, part, schemas};
use super::shared::{Failure, keep_little, now, print, runtime};
use crate::config::{Config, Purpose, RouteConfig, SinkConfig, SourceConfig};
use crate::kafka::client::{KafkaSinkConfig, KafkaSourceConfig, RouteTopics};
use crate::kafka::route::RouteSink;
use crate::kafka::route::state::StateReader;
use crate::kafka::session::Session;
use crate::kafka::source as kafka_source;
use crate::kafka::topics::Topics;
use crate::model::policy::Policy;
use crate::route::{Dispatcher, Router};
use crate::shutdown::{self, Stop};
use crate::telemetry::{Telemetry, http};
use crate::window::WindowRules;

/// Routes records to the partitions of their districts, so that instances of `run` do not separate people who are alike
///
/// Needs a `route` section, a Kafka source and a Kafka sink. Reads the source's topics in a group of its own (the group's name and
/// `-route`) and writes every message unchanged, exactly once, to the partition of its district in `route.topic`, which `veilstream run`
/// with the same file then reads. Run as many instances as the input needs. Ends on SIGTERM or SIGINT.
#[derive(Debug, Args)]
pub(super) struct RouteArgs {
    /// The pipeline, in YAML
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
}

pub(super) fn run(args: &RouteArgs) -> Result<(), Failure> {
    let config = Config::load(&args.config, Purpose::Pipeline)?;
    keep_little(&config);
    config.warnings.iter().for_each(|warning| tracing::warn!(%warning, "a setting is valid but rarely intended"));
    let (Some(route), SourceConfig::Kafka(source), SinkConfig::Kafka(sink)) =
        (&config.route, &config.source, &config.sink)
    else {
        return Err(Failure::Usage(format!(
            "{}: there is no `route` section: write `route: {{ topic: NAME }}`",
            args.config.display()
        )));
    };
    let routed = runtime()?.block_on(serve(&config, route, source, sink))?;
    print(&serde_json::json!({ "records_routed": routed }).to_string())
}

async fn serve(
    config: &Config,
    route: &RouteConfig,
    source: &KafkaSourceConfig,
    sink: &KafkaSinkConfig,
) -> Result<u64, Failure> {
    let policy = Arc::new(seen_by_all(config));
    let telemetry = Telemetry::new(&policy).map_err(|error| Failure::Outside(error.to_string()))?;
    let telemetry = Arc::new(telemetry);
    telemetry.started(now());
    let (stopper, mut stop) = shutdown::channel();
    shutdown::on_signals(stopper).map_err(|error| Failure::io("cannot listen for signals", &error))?;
    if let Some(http) = &config.http {
        let failed = |error: io::Error| Failure::Outside(format!("cannot listen on {}: {error}", http.listen));
        http::serve(http.listen, http.token.clone(), Arc::clone(&telemetry), now).await.map_err(failed)?;
    }
    let sink = KafkaSinkConfig { unsent: part(config), ..sink.of_route(source, &route.topic) };
    let source = source.before_route(&sink);
    let session =
        Session::new(Topics::new(source.topics.clone()), source.start, source.on_gap, Arc::clone(telemetry.meter()));
    let session = Arc::new(session);
    let schemas = schemas(&source, &policy.schema);
    let readers = message_readers(config, &source, &schemas, &policy.schema)?;
    let (events, consumer, left) =
        kafka_source::open(source.clone(), Arc::clone(&session), schemas, ahead(config), None)?;
    let topics = RouteTopics { routed: route.topic.clone(), state: route.state.clone(), partitions: route.partitions };
    let shared = Arc::clone(&session);
    let opened = opened(&mut stop, move || RouteSink::open(sink, shared, consumer, topics)).await;
    let routed = match (opened, readers.into_iter().next()) {
        (Ok(Some(sink)), Some(reader)) => {
            let state = Arc::new(StateReader::open(sink.cluster(), &route.state)?);
            let (records, window) = open_windows(&config.windows);
            let dispatcher = Dispatcher::new(&policy, sink.outlets(), route.stays, records);
            let router = Router { reader, dispatcher, sink, state, telemetry, window, untold: None };
            router.run(events, Stop::clone(&stop)).await.map_err(Failure::from)
        }
        (opened, _) => opened.map(|_| 0),
    };
    session.finish();
    leave(left).await;
    routed
}

/// The policy with the levels that every audience may see: a district is told by the release that shows a record.
fn seen_by_all(config: &Config) -> Policy {
    let mut policy = config.policy.clone();
    for audience in &config.audiences {
        for (quasi, finest) in policy.quasi.iter_mut().zip(&audience.finest) {
            quasi.min_level = quasi.min_level.max(*finest);
        }
    }
    policy
}

/// The most records of a window, and how long it is open.
fn open_windows(windows: &WindowRules) -> (usize, Duration) {
    match windows {
        WindowRules::Tumbling(rules) => (rules.max_records, rules.max_age),
        WindowRules::Sliding(_) => (usize::MAX, Duration::MAX),
    }
}
