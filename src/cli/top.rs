//! `veilstream top`: shows a running service in a terminal, from its `/status.json`.
//!
//! On a terminal it takes the whole screen and gives it back at the end. The first lines say what matters most, so a small
//! terminal shows the first lines and leaves out the rest. Colours follow the verdict and add nothing that is not in words.

use std::io::{self, IsTerminal as _, Read as _, Write as _};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use comfy_table::{ContentArrangement, Table, presets};
use crossterm::event::{self, Event, KeyCode, KeyEvent, KeyModifiers};
use crossterm::terminal;
use serde_json::Value;

use super::shared::{Failure, is_coloured, is_dumb, print, wrapped};
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
/// refreshes every second until q, Escape or Ctrl-C; in a pipe it prints one snapshot and ends.
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
    let first = fetch(&url, token.as_deref())?;
    if args.json || !io::stdout().is_terminal() || !io::stdin().is_terminal() || is_dumb() {
        return print(&if args.json { first.to_string() } else { text(&first) });
    }
    let screen = Screen::take()?;
    let mut status = first;
    loop {
        screen.show(&status)?;
        if screen.left_within(REFRESH, &status)? {
            return Ok(());
        }
        status = fetch(&url, token.as_deref())?;
    }
}

/// The terminal while it is ours: keys come at once, and what stood there before returns at the end.
struct Screen {
    coloured: bool,
}

impl Screen {
    fn take() -> Result<Self, Failure> {
        terminal::enable_raw_mode().map_err(|error| terminal_failed(&error))?;
        let screen = Self { coloured: is_coloured(true) };
        screen.write("\x1b[?1049h\x1b[?25l")?;
        Ok(screen)
    }

    fn show(&self, status: &Value) -> Result<(), Failure> {
        let (columns, rows) = terminal::size().unwrap_or((80, 24));
        let lines = fitted(&text(status), usize::from(columns), usize::from(rows));
        let colour = match status["verdict"]["state"].as_str() {
            Some("safe") => "\x1b[1;32m",
            Some("failing") => "\x1b[1;31m",
            _ => "\x1b[1;33m",
        };
        // The verdict is a sentence that can take several lines: it ends where the line about the recoding begins.
        let verdict = lines.iter().position(|line| line.starts_with("recoding: ")).unwrap_or(lines.len());
        let mut drawn = String::from("\x1b[H");
        for (at, line) in lines.iter().enumerate() {
            let start = if at > 0 { "\r\n" } else { "" };
            match at < verdict && self.coloured {
                true => drawn.push_str(&format!("{start}{colour}{line}\x1b[0m\x1b[K")),
                false => drawn.push_str(&format!("{start}{line}\x1b[K")),
            }
        }
        // Overwriting and then clearing the rest does not flicker.
        self.write(&format!("{drawn}\x1b[J"))
    }

    /// True if somebody asks to leave in this time. Draws again if the terminal gets another size.
    fn left_within(&self, time: Duration, status: &Value) -> Result<bool, Failure> {
        let end = Instant::now() + time;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if !event::poll(left).map_err(|error| terminal_failed(&error))? {
                return Ok(false);
            }
            match event::read().map_err(|error| terminal_failed(&error))? {
                Event::Key(key) if leaves(key) => return Ok(true),
                Event::Resize(..) => self.show(status)?,
                _ => {}
            }
        }
    }

    fn write(&self, text: &str) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        written.map_err(|error| Failure::io("cannot write to standard output", &error))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // Nothing is left to do if the terminal is gone.
        let _ = self.write("\x1b[?25h\x1b[?1049l");
        let _ = terminal::disable_raw_mode();
    }
}

fn terminal_failed(error: &io::Error) -> Failure {
    Failure::io("cannot use the terminal", error)
}

fn leaves(key: KeyEvent) -> bool {
    let control_c = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    control_c || matches!(key.code, KeyCode::Char('q' | 'Q') | KeyCode::Esc)
}

/// The lines that a terminal has room for: long ones are continued below, and of too many the first ones stay.
fn fitted(text: &str, columns: usize, rows: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for line in text.lines() {
        lines.extend(wrapped(line.trim_end(), columns));
    }
    let more = "q quits; the window is too small for the rest";
    if lines.len() > rows && rows > 1 {
        lines.truncate(rows - 1);
        lines.push(more.chars().take(columns).collect());
    }
    lines.truncate(rows);
    lines
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
    let verdict = status["verdict"]["sentence"].as_str().unwrap_or("no verdict");
    let mut text = format!(
        "{verdict}\nrecoding: {}; {} release{}, {} refused; {} MiB\n\
         records: {} read ({}/s), {} published, {} suppressed, {} held, {} rejected; {} in the window; lag {}\n",
        status["recoding"].as_str().unwrap_or("-"),
        number("releases"),
        if status["releases"] == 1 { "" } else { "s" },
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
    let criteria = rows("criteria").map(|c| {
        let asked = format!("{} {}", shown(&c["bound"]).replace('_', " "), shown(&c["required"]));
        [shown(&c["criterion"]), shown(&c["achieved"]), asked]
    });
    text.push_str(&table(["criterion", "reached", "asked"], criteria));
    let levels = rows("attributes").map(|a| ["attribute", "words"].map(|key| shown(&a[key])));
    text.push_str(&table(["attribute", "is published"], levels));
    if let Some(example) = status["example"].as_str().filter(|example| !example.is_empty()) {
        text.push_str(&format!("{example}\n"));
    }
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
    fn a_small_terminal_keeps_the_head() {
        let text = "verdict\nrecoding: local\n\nabcdefgh\nlast";
        assert_eq!(fitted(text, 80, 24), ["verdict", "recoding: local", "", "abcdefgh", "last"]);
        assert_eq!(fitted("abcdefgh\nx", 5, 9), ["abcde", "fgh", "x"], "long lines are continued");
        let small = fitted(text, 80, 3);
        assert_eq!((small.len(), &*small[0], &*small[1]), (3, "verdict", "recoding: local"));
        assert!(small[2].starts_with("q quits"));
        assert_eq!(fitted(text, 80, 1), ["verdict"]);
    }

    #[test]
    fn q_and_control_c_leave() {
        let key = |code, modifiers| leaves(KeyEvent::new(code, modifiers));
        assert!(key(KeyCode::Char('q'), KeyModifiers::NONE) && key(KeyCode::Char('c'), KeyModifiers::CONTROL));
        assert!(!key(KeyCode::Char('c'), KeyModifiers::NONE) && !key(KeyCode::Enter, KeyModifiers::NONE));
    }

    #[test]
    fn losses_are_a_line() {
        assert_eq!(spark(&[0.0, 0.5, 1.0]), "▁▅█");
        assert_eq!(spark(&[0.0]), "▁");
        assert_eq!(spark(&[]), "");
    }
}
