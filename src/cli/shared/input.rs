//! The policy and the file that a command reads. The file is a path or `-`; its format follows from its first bytes, and of
//! text from its extension.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use clap::Args;

use super::{Failure, max_record_bytes};
use crate::codec::Format;
use crate::codec::encoding::TextEncoding;
use crate::config::{Config, Purpose, SourceConfig};
use crate::search::Algorithm;
use crate::source::{Input, InputBytes};

#[derive(Debug, Clone, Args)]
pub(in crate::cli) struct InputArgs {
    /// The policy, in YAML; a whole pipeline configuration will do
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
    /// The file to read; - is standard input
    #[arg(value_name = "FILE")]
    pub(in crate::cli) input: PathBuf,
    #[command(flatten)]
    open: OpenArgs,
}

/// How a file is to be read.
#[derive(Debug, Clone, Default, Args)]
pub(in crate::cli) struct OpenArgs {
    /// The format of the file: csv, jsonl, avro or parquet [default: by its first bytes, and of text by its extension]
    ///
    /// Text may be compressed with gzip or zstd. JSON is one object per line, or one array of objects.
    #[arg(long, value_name = "FORMAT")]
    format: Option<Format>,
    /// The delimiter of a CSV file: one character, or `tab` [default: detected in the header: comma, semicolon or tab]
    #[arg(long, value_name = "CHAR", value_parser = delimiter)]
    delimiter: Option<u8>,
    /// The encoding of a text: utf-8, latin-1 (and windows-1252), utf-16le or utf-16be [default: by its byte order mark, or
    /// else utf-8]
    #[arg(long, value_name = "NAME", value_parser = encoding)]
    encoding: Option<TextEncoding>,
}

impl InputArgs {
    /// The same arguments, gathered by another command.
    pub(in crate::cli) fn of(config: &Path, input: &Path, open: OpenArgs) -> Self {
        Self { config: config.to_owned(), input: input.to_owned(), open }
    }

    /// Loads the configuration.
    pub(in crate::cli) fn load(&self) -> Result<Config, Failure> {
        Ok(Config::load(&self.config, Purpose::Policy)?)
    }

    /// The name of the file in messages.
    pub(in crate::cli) fn name(&self) -> String {
        name(&self.input)
    }

    /// The name of the file without its folder, for documents that are handed on.
    pub(in crate::cli) fn file_name(&self) -> String {
        let name = self.input.file_name().filter(|_| !is_standard(&self.input));
        name.map_or("standard input".into(), |name| name.to_string_lossy().into_owned())
    }

    /// The section `policy` of the configuration as it is written; `None` if it does not stand on lines of its own. The rest may
    /// hold secrets.
    pub(in crate::cli) fn policy_text(&self) -> Option<String> {
        let text = fs::read_to_string(&self.config).ok()?;
        let inside = |line: &&str| line.is_empty() || line.starts_with([' ', '\t', '#', '-']);
        let mut lines = text.lines().skip_while(|line| line.trim_end() != "policy:");
        let first = lines.next()?;
        let section: Vec<&str> = [first].into_iter().chain(lines.take_while(inside)).collect();
        Some(section.join("\n").trim_end().to_owned())
    }

    /// Opens the file. Options that are missing on the command line come from `source.file` of the configuration.
    pub(in crate::cli) fn open(&self, config: &Config) -> Result<(InputBytes, Input), Failure> {
        let (from, input) = self.open.open(&self.input, max_record_bytes(config))?;
        let SourceConfig::File { format, delimiter, encoding, .. } = &config.source else { return Ok((from, input)) };
        let input = Input {
            likely: input.likely.or(*format),
            delimiter: input.delimiter.or(*delimiter),
            encoding: input.encoding.or(*encoding),
            ..input
        };
        Ok((from, input))
    }
}

impl OpenArgs {
    /// What was said of delimiter and encoding, as further keys of `source.file`.
    pub(in crate::cli) fn keys(&self) -> String {
        let delimiter = self.delimiter.map(|byte| format!(", delimiter: {}", serde_json::json!(char::from(byte))));
        let encoding = self.encoding.map(|encoding| format!(", encoding: {}", encoding.as_str()));
        [delimiter, encoding].into_iter().flatten().collect()
    }

    /// Opens a file, or standard input for `-`.
    pub(in crate::cli) fn open(&self, path: &Path, max_record_bytes: usize) -> Result<(InputBytes, Input), Failure> {
        let failed = |error: io::Error| Failure::io(&format!("cannot read {}", name(path)), &error);
        let from = match is_standard(path) {
            true => InputBytes::Stream(Box::new(io::stdin())),
            false => InputBytes::File(File::open(path).map_err(failed)?, None),
        };
        let likely = Format::of_path(path);
        let (format, delimiter, encoding) = (self.format, self.delimiter, self.encoding);
        Ok((from, Input { format, likely, delimiter, encoding, max_record_bytes }))
    }
}

fn name(path: &Path) -> String {
    if is_standard(path) { "standard input".into() } else { path.display().to_string() }
}

/// A rate in records per second.
pub(in crate::cli) fn rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if rate.is_finite() && rate >= 0.0 => Ok(rate),
        _ => Err("write a number of records per second, 0 for no limit".into()),
    }
}

/// True for `-`.
pub(in crate::cli) fn is_standard(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// The search called `name`, for the command line.
pub(in crate::cli) fn algorithm(name: &str) -> Result<Algorithm, String> {
    let known = || format!("write one of {}", Algorithm::ALL.map(Algorithm::as_str).join(", "));
    Algorithm::parse(name).ok_or_else(known)
}

/// Refuses an output that is the same regular file as `other`.
pub(in crate::cli) fn refuse_same_file(other: &Path, output: &Path, why: &str) -> Result<(), Failure> {
    let real = |path: &Path| match fs::canonicalize(path) {
        Ok(path) => path.is_file().then_some(path),
        Err(_) => std::path::absolute(path).ok(),
    };
    if !is_standard(other) && !is_standard(output) && real(other).is_some_and(|other| Some(other) == real(output)) {
        return Err(Failure::Usage(format!("{} {why}: write to another file", output.display())));
    }
    Ok(())
}

fn encoding(name: &str) -> Result<TextEncoding, String> {
    TextEncoding::parse(name).ok_or_else(|| "write utf-8, latin-1, utf-16le or utf-16be".into())
}

fn delimiter(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        b"tab" | b"\\t" => Ok(b'\t'),
        [byte] if byte.is_ascii() && !matches!(byte, b'"' | b'\n' | b'\r') => Ok(*byte),
        _ => Err("write one character such as ; or the word tab".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_checked() {
        assert_eq!(rate("2.5"), Ok(2.5));
        for bad in ["-1", "NaN", "inf", "fast"] {
            assert!(rate(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn delimiters_have_names() {
        assert_eq!((delimiter("tab"), delimiter(";"), delimiter("\\t")), (Ok(b'\t'), Ok(b';'), Ok(b'\t')));
        assert!(delimiter("").is_err() && delimiter("ab").is_err() && delimiter("\"").is_err());
    }
}
