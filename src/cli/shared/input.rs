//! The policy and the file that a command reads. The file is a path or `-`; its format follows from its extension, or from
//! its first bytes.

use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Read};
use std::path::{Path, PathBuf};

use clap::Args;

use super::{Failure, max_record_bytes};
use crate::codec::Format;
use crate::config::{Config, Purpose};
use crate::search::Algorithm;
use crate::source::Input;

/// How much is read to recognise the format; far more than any format needs. A pipe gives what it has.
const PEEK_BYTES: usize = 64 << 10;

#[derive(Debug, Clone, Args)]
pub(in crate::cli) struct InputArgs {
    /// The policy, in YAML; a whole pipeline configuration will do
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
    /// The file to read; - is standard input
    #[arg(value_name = "FILE")]
    pub(in crate::cli) input: PathBuf,
    /// The format of the file: csv, jsonl or avro [default: by its extension, or else by its first bytes]
    #[arg(long, value_name = "FORMAT")]
    format: Option<Format>,
    /// The delimiter of a CSV file: one character, or `tab` [default: detected in the header: comma, semicolon or tab]
    #[arg(long, value_name = "CHAR", value_parser = delimiter)]
    delimiter: Option<u8>,
}

impl InputArgs {
    /// Loads the configuration.
    pub(in crate::cli) fn load(&self) -> Result<Config, Failure> {
        Ok(Config::load(&self.config, Purpose::Policy)?)
    }

    /// The name of the file in messages.
    pub(in crate::cli) fn name(&self) -> String {
        if is_standard(&self.input) { "standard input".into() } else { self.input.display().to_string() }
    }

    /// Opens the file.
    pub(in crate::cli) fn open(&self, config: &Config) -> Result<(Box<dyn Read>, Input), Failure> {
        let failed = |error: io::Error| Failure::io(&format!("cannot read {}", self.name()), &error);
        let read: Box<dyn Read> = match is_standard(&self.input) {
            true => Box::new(io::stdin()),
            false => Box::new(File::open(&self.input).map_err(failed)?),
        };
        let mut read = BufReader::with_capacity(PEEK_BYTES, read);
        let known = self.format.or_else(|| Format::of_path(&self.input));
        let first = read.fill_buf().map_err(failed)?;
        let format = known.unwrap_or_else(|| sniff(first));
        let input = Input { format, delimiter: self.delimiter, max_record_bytes: max_record_bytes(config) };
        Ok((Box::new(read), input))
    }
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

/// The format that the first bytes belong to.
fn sniff(bytes: &[u8]) -> Format {
    let text = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    if bytes.starts_with(b"Obj\x01") {
        Format::Avro
    } else if text.trim_ascii_start().first() == Some(&b'{') {
        Format::Json
    } else {
        Format::Csv
    }
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
    fn formats_show_in_the_first_bytes() {
        assert_eq!(sniff(b"Obj\x01..."), Format::Avro);
        assert_eq!(sniff(b"\xef\xbb\xbf {\"a\":1}"), Format::Json);
        assert_eq!(sniff(b"a;b\n1;2\n"), Format::Csv);
        assert_eq!(sniff(b""), Format::Csv);
    }

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
