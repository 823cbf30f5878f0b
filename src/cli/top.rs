//! `veilstream top`: shows a running service in a terminal, from its `/status.json`.

use std::io::{self, IsTerminal as _, Read as _, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use comfy_table::{ContentArrangement, Table, presets};
use serde_json::Value;

use super::shared::{Failure, print};
use crate::plot::{count, figure};

/// How often the service is asked. Figures change per window: asking more often shows nothing new.
const REFRESH: Duration = Duration::from_secs(1);
/// How long the service may take to answer. Shorter gives up on a busy machine; longer looks frozen.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The largest answer that is read: a status has some tens of kilobytes.
const MAX_BYTES: u64 = 4 << 20;
/// Bars of one to eight eighths, for the line of losses.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Shows a running service in a terminal
///
/// Shows the figures of the console: records by outcome, loss, criteria, levels and the last releases. On a terminal it
/// refreshes every second until Ctrl-C; in a pipe it prints one snapshot and ends.
#[derive(Debug, Args)]
pub(super) struct TopArgs {
    /// The address of the service (`http.listen`)
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9464")]
    url: String,
    /// The file that holds the token (`http.token`) [default: the environment variable VEILSTREAM_TOKEN]
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Print one snapshot as one JSON object
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &TopArgs) -> Result<(), Failure> {
    let token = token(args)?;
    let url = address(&args.url);
    if args.json || !io::stdout().is_terminal() {
        let status = fetch(&url, token.as_deref())?;
        return print(&if args.json { status.to_string() } else { text(&status) });
    }
    loop {
        let status = fetch(&url, token.as_deref())?;
        // Overwriting and then clearing the rest does not flicker.
        let mut out = io::stdout().lock();
        let drawn = text(&status).replace('\n', "\x1b[K\n");
        let shown = write!(out, "\x1b[H{drawn}\x1b[K\n\x1b[J").and_then(|()| out.flush());
        shown.map_err(|error| Failure::io("cannot write to standard output", &error))?;
        drop(out);
        std::thread::sleep(REFRESH);
    }
}

/// `host:port`, or a whole URL.
fn address(given: &str) -> String {
    let with_scheme = if given.contains("://") { given.to_owned() } else { format!("http://{given}") };
    format!("{}/status.json", with_scheme.trim_end_matches('/'))
}

fn token(args: &TopArgs) -> Result<Option<String>, Failure> {
    match &args.token_file {
        Some(path) => {
            let read = std::fs::read_to_string(path);
            let text = read.map_err(|error| Failure::io(&format!("cannot read {}", path.display()), &error))?;
            Ok(Some(text.trim_end().to_owned()))
        }
        None => Ok(std::env::var("VEILSTREAM_TOKEN").ok().filter(|token| !token.is_empty())),
    }
}

fn fetch(url: &str, token: Option<&str>) -> Result<Value, Failure> {
    let config = ureq::Agent::config_builder().timeout_global(Some(TIMEOUT)).http_status_as_error(false).build();
    let agent: ureq::Agent = config.into();
    let mut request = agent.get(url);
    if let Some(token) = token {
        request = request.header("Authorization", format!("Bearer {token}"));
    }
    // The error does not hold the token.
    let mut response = request.call().map_err(|error| Failure::Outside(format!("no answer from {url}: {error}")))?;
    match response.status().as_u16() {
        200 => {}
        401 => return Err(Failure::Usage("the service asks for its token: give it with --token-file".into())),
        status => return Err(Failure::Outside(format!("{url} answered with {status}"))),
    }
    let mut body = String::new();
    let read = response.body_mut().as_reader().take(MAX_BYTES).read_to_string(&mut body);
    read.map_err(|error| Failure::io(&format!("cannot read from {url}"), &error))?;
    serde_json::from_str(&body).map_err(|_| Failure::Outside(format!("{url} did not answer with a veilstream status")))
}

/// The status as lines and tables.
fn text(status: &Value) -> String {
    let number = |key: &str| status[key].as_f64().map_or("-".into(), count);
    let state = match (status["unmet_reason"].as_str(), status["ready"].as_bool()) {
        (Some(unmet), _) => unmet,
        (None, Some(true)) => "publishing",
        (None, _) => "waiting for its input",
    };
    let mut text = format!(
        "veilstream: {state}; {} releases, {} refused; {} MiB\n\
         records: {} read ({}/s), {} published, {} suppressed, {} held, {} rejected; {} in the window; lag {}\n",
        number("releases"),
        number("releases_refused"),
        status["resident_memory_bytes"].as_u64().unwrap_or(0) >> 20,
        number("records_in"),
        number("records_per_second"),
        number("records_published"),
        number("records_suppressed"),
        number("records_held"),
        number("records_rejected"),
        number("window_records"),
        number("consumer_lag_records"),
    );
    let loss = &status["loss"];
    let losses: Vec<f64> = loss["history"].as_array().into_iter().flatten().filter_map(Value::as_f64).collect();
    text.push_str(&format!(
        "loss: {} {}  {}\n",
        loss["metric"].as_str().unwrap_or("-"),
        loss["last"].as_f64().map_or("-".into(), figure),
        spark(&losses)
    ));
    let rows = |key: &str| status[key].as_array().into_iter().flatten();
    let shown = |value: &Value| match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.as_f64().map_or("-".into(), figure),
        _ => "-".into(),
    };
    let criteria = rows("criteria").map(|c| ["criterion", "achieved", "bound", "required"].map(|key| shown(&c[key])));
    text.push_str(&table(["criterion", "reached", "asked", ""], criteria));
    let levels = rows("attributes").map(|a| ["attribute", "level", "height"].map(|key| shown(&a[key])));
    text.push_str(&table(["attribute", "level", "of"], levels));
    let metric = loss["metric"].as_str().unwrap_or_default().to_owned();
    let releases = rows("last_releases").map(|r| {
        [
            shown(&r["release_id"]),
            shown(&r["rows"]),
            shown(&r["records_suppressed"]),
            shown(&r["k_achieved"]),
            shown(&r["loss"][metric.as_str()]),
            shown(&r["search_ms"]),
            shown(&r["stop"]),
        ]
    });
    let head = ["release", "rows", "suppressed", "k", metric.as_str(), "search ms", "stop"];
    text.push_str(&table(head, releases));
    text.trim_end().to_owned()
}

fn table<const N: usize>(head: [&str; N], rows: impl Iterator<Item = [String; N]>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(head);
    for row in rows {
        table.add_row(row);
    }
    format!("\n{table}\n")
}

/// Losses as a line of bars from 0 to the greatest.
fn spark(values: &[f64]) -> String {
    let most = values.iter().copied().fold(0.0, f64::max);
    let bar = |value: &f64| {
        let share = if most > 0.0 { value / most } else { 0.0 };
        BARS[((share * (BARS.len() - 1) as f64).round() as usize).min(BARS.len() - 1)]
    };
    values.iter().map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_enough() {
        assert_eq!(address("localhost:9464"), "http://localhost:9464/status.json");
        assert_eq!(address("http://h:1/"), "http://h:1/status.json");
    }

    #[test]
    fn losses_are_a_line() {
        assert_eq!(spark(&[0.0, 0.5, 1.0]), "▁▅█");
        assert_eq!(spark(&[0.0]), "▁");
        assert_eq!(spark(&[]), "");
    }
}
