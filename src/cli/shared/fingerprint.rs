//! The fingerprint of a published file, and the report that names it.
//!
//! `anonymize --report` writes the SHA-256 of the bytes that it published and the fingerprint of the policy; `verify --report`
//! reads both and compares. It shows whether the report is about the file and the policy; its author is not proven.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;

use openssl::sha::Sha256;

use super::Failure;

/// The element of a page, and with underscores the key of a JSON report, that holds the SHA-256.
pub(in crate::cli) const PUBLISHED: &str = "published-sha256";
/// The same for the fingerprint of the policy.
pub(in crate::cli) const POLICY: &str = "policy-fingerprint";

/// How much is hashed at once. Larger: more memory. Smaller: more system calls.
const CHUNK: usize = 256 << 10;

/// The SHA-256 of bytes that come one after another.
#[derive(Default)]
pub(in crate::cli) struct FileDigest(Sha256);

impl FileDigest {
    /// More bytes.
    pub(in crate::cli) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// In hexadecimal digits.
    pub(in crate::cli) fn finish(self) -> String {
        self.0.finish().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The fingerprint of a file.
    fn of_file(path: &Path) -> std::io::Result<String> {
        let (mut file, mut buffer, mut hash) = (File::open(path)?, vec![0; CHUNK], Self::default());
        loop {
            match file.read(&mut buffer)? {
                0 => return Ok(hash.finish()),
                read => hash.update(&buffer[..read]),
            }
        }
    }
}

/// Fails unless the report at `report` is about the bytes of `file` and the policy with this fingerprint.
pub(in crate::cli) fn check_report(report: &Path, file: &Path, policy: &str) -> Result<(), Failure> {
    let failed = |path: &Path, error: &std::io::Error| Failure::io(&format!("cannot read {}", path.display()), error);
    let text = fs::read_to_string(report).map_err(|error| failed(report, &error))?;
    let said = |name: &str| {
        named(&text, name).ok_or_else(|| {
            Failure::Usage(format!(
                "{} names no {name}: give a report that `anonymize --report` wrote with a release",
                report.display()
            ))
        })
    };
    let (published, of_policy) = (said(PUBLISHED)?, said(POLICY)?);
    let found = FileDigest::of_file(file).map_err(|error| failed(file, &error))?;
    let differs = |what: &str, found: &str, said: &str| {
        Err(Failure::NotMet(format!("{} is about another {what}: it names {said}, here is {found}", report.display())))
    };
    if published != found {
        return differs("file", &found, &published);
    }
    if of_policy != policy {
        return differs("policy", policy, &of_policy);
    }
    Ok(())
}

/// What a report says under a name, as a page or as JSON.
fn named(report: &str, name: &str) -> Option<String> {
    if let Ok(json) = serde_json::from_str::<serde_json::Value>(report) {
        return json.get(name.replace('-', "_"))?.as_str().map(str::to_owned);
    }
    let (_, rest) = report.split_once(&format!("<code id=\"{name}\">"))?;
    rest.split_once("</code>").map(|(text, _)| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_names_its_file_and_its_policy() {
        let folder = tempfile::tempdir().unwrap();
        let (file, report) = (folder.path().join("out.csv"), folder.path().join("report"));
        fs::write(&file, "abc").unwrap();
        let hash = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let page = format!("<p><code id=\"{PUBLISHED}\">{hash}</code><code id=\"{POLICY}\">00ff</code>");
        for text in [page, format!("{{\"published_sha256\":\"{hash}\",\"policy_fingerprint\":\"00ff\"}}")] {
            fs::write(&report, text).unwrap();
            assert!(check_report(&report, &file, "00ff").is_ok());
            assert!(matches!(check_report(&report, &file, "00fe"), Err(Failure::NotMet(_))), "another policy");
            fs::write(&file, "abd").unwrap();
            assert!(matches!(check_report(&report, &file, "00ff"), Err(Failure::NotMet(_))), "one byte differs");
            fs::write(&file, "abc").unwrap();
        }
        fs::write(&report, "{\"published_sha256\":null}").unwrap();
        assert!(matches!(check_report(&report, &file, "00ff"), Err(Failure::Usage(_))), "nothing was published");
    }
}
