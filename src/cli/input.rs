//! The file that a command reads: a path or `-`, its format by extension or by its first bytes.

use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Read};
use std::path::{Path, PathBuf};

use clap::Args;

use super::Failure;
use crate::codec::Format;
use crate::config::Config;
use crate::source::Input;

/// Large enough for the longest sign of a format, with room; a pipe gives what it has.
const PEEK_BYTES: usize = 64 << 10;

/// Which file to read, and how.
#[derive(Debug, Clone, Args)]
pub struct InputArgs {
    /// The file to read; - is standard input
    #[arg(value_name = "FILE")]
    pub input: PathBuf,
    /// Its format: csv, jsonl or avro [default: by extension, else by its first bytes]
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<Format>,
    /// What separates the fields of a CSV file: one character, or `tab` [default: sniffed from the header]
    #[arg(long, value_name = "CHAR", value_parser = delimiter)]
    pub delimiter: Option<u8>,
}

impl InputArgs {
    /// Opens the file.
    pub(super) fn open(&self, config: &Config) -> Result<(Box<dyn Read>, Input), Failure> {
        let failed = |error: io::Error| Failure::io(&format!("cannot read {}", name(&self.input)), &error);
        let read: Box<dyn Read> = if is_standard(&self.input) {
            Box::new(io::stdin())
        } else {
            Box::new(File::open(&self.input).map_err(failed)?)
        };
        let mut read = BufReader::with_capacity(PEEK_BYTES, read);
        let known = self.format.or_else(|| Format::of_path(&self.input));
        let first = read.fill_buf().map_err(failed)?;
        let format = known.unwrap_or_else(|| sniff(first));
        let max_record_bytes = usize::try_from(config.limits.max_record_bytes).unwrap_or(usize::MAX);
        Ok((Box::new(read), Input { format, delimiter: self.delimiter, max_record_bytes }))
    }
}

/// True for `-`.
pub(super) fn is_standard(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// The file as messages call it.
pub(super) fn name(path: &Path) -> String {
    if is_standard(path) { "standard input".into() } else { path.display().to_string() }
}

/// Refuses an output that is the same file as `other`. Streams may be the same.
pub(super) fn refuse_same_file(other: &Path, output: &Path, why: &str) -> Result<(), Failure> {
    let real = |path: &Path| match fs::canonicalize(path) {
        Ok(path) => path.is_file().then_some(path),
        Err(_) => std::path::absolute(path).ok(),
    };
    if !is_standard(other) && !is_standard(output) && real(other).is_some_and(|other| Some(other) == real(output)) {
        return Err(Failure::Usage(format!("{} {why}: write to another file", output.display())));
    }
    Ok(())
}

/// The format that the first bytes show.
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
    fn delimiters_have_names() {
        assert_eq!((delimiter("tab"), delimiter(";"), delimiter("\\t")), (Ok(b'\t'), Ok(b';'), Ok(b'\t')));
        assert!(delimiter("").is_err() && delimiter("ab").is_err() && delimiter("\"").is_err());
    }
}
