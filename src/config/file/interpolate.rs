//! `${NAME}` and `${file:PATH}` in scalar values; `$$` is a dollar sign. Keys are never interpolated.
//!
//! Invariant: a value that was put in is marked and never printed. It is not searched for variables again.

use std::io;
use std::path::Path;

use super::problem::Problems;
use super::read;
use super::tree::{Interpolated, YamlNode, YamlValue, resolve, shown};

/// Larger: `${file:/dev/zero}` fills the memory. Smaller: certificates chains no longer fit.
const MAX_FILE_BYTES: u64 = 64 * 1024;

/// The part of a node that a failed interpolation leaves out.
pub(in crate::config) const NOT_INTERPOLATED: &str = "$";

/// Where values come from. Passed in, so that tests need no real environment.
pub(in crate::config) struct Sources<'a> {
    /// The value of an environment variable.
    pub(in crate::config) variable: &'a dyn Fn(&str) -> Option<String>,
    /// Relative paths start here.
    pub(in crate::config) base: &'a Path,
}

/// Replaces in the whole tree. A value that cannot be had becomes null and is left out by what follows.
pub(in crate::config) fn interpolate(node: &mut YamlNode, sources: &Sources<'_>, problems: &Problems) {
    match &mut node.value {
        YamlValue::Text(template) if template.contains('$') => match expand(template, sources) {
            Ok(Expanded { text, from_outside: false }) => node.value = YamlValue::Text(text),
            Ok(Expanded { text, from_outside: true }) => {
                let template = std::mem::take(template);
                // An empty variable is an empty text, not "nothing": a token must not vanish that way.
                node.value = if text.is_empty() { YamlValue::Text(String::new()) } else { resolve(&text) };
                node.interpolated = Some(Interpolated { template, text });
            }
            Err(message) => {
                problems.add(node.line, message);
                node.value = YamlValue::Null;
                node.lost.push(NOT_INTERPOLATED.into());
            }
        },
        YamlValue::List(items) => items.iter_mut().for_each(|item| interpolate(item, sources, problems)),
        YamlValue::Map(entries) => entries.iter_mut().for_each(|e| interpolate(&mut e.value, sources, problems)),
        _ => {}
    }
}

struct Expanded {
    text: String,
    from_outside: bool,
}

fn expand(text: &str, sources: &Sources<'_>) -> Result<Expanded, String> {
    let mut expanded = Expanded { text: String::with_capacity(text.len()), from_outside: false };
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        expanded.text.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        rest = if let Some(after) = after.strip_prefix('$') {
            expanded.text.push('$');
            after
        } else if let Some(inner) = after.strip_prefix('{') {
            let Some((name, after)) = inner.split_once('}') else {
                return Err("`${` is not closed: write `${NAME}`, or `$$` for a dollar sign".into());
            };
            expanded.text.push_str(&fetch(name.trim(), sources)?);
            expanded.from_outside = true;
            after
        } else {
            expanded.text.push('$');
            after
        };
    }
    expanded.text.push_str(rest);
    Ok(expanded)
}

fn fetch(name: &str, sources: &Sources<'_>) -> Result<String, String> {
    if let Some(path) = name.strip_prefix("file:") {
        return read_secret(path.trim(), sources.base);
    }
    let identifier = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.is_empty() || !name.chars().all(identifier) || name.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(format!("`${{{}}}` is not a variable: write `${{NAME}}` or `${{file:PATH}}`", shown(name)));
    }
    (sources.variable)(name).ok_or_else(|| {
        format!("the environment variable `{name}` is not set: set it, or use `${{file:PATH}}` to read a file")
    })
}

/// The file's text without its last line break.
fn read_secret(path: &str, base: &Path) -> Result<String, String> {
    if path.is_empty() {
        return Err("`${file:}` names no file: write `${file:PATH}`".into());
    }
    let bytes = read(&base.join(path), MAX_FILE_BYTES);
    let text = match bytes
        .and_then(|bytes| bytes.map(String::from_utf8).transpose().map_err(|_| io::ErrorKind::InvalidData.into()))
    {
        Err(error) => {
            return Err(format!(
                "cannot read `{}` ({}): check the path and its permissions",
                shown(path),
                super::why(&error)
            ));
        }
        Ok(None) => {
            return Err(format!("`{}` is larger than {MAX_FILE_BYTES} bytes: name a file with one value", shown(path)));
        }
        Ok(Some(text)) => text,
    };
    let line = text.strip_suffix('\n').map_or(text.as_str(), |line| line.strip_suffix('\r').unwrap_or(line));
    Ok(line.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tree::parse;
    use super::*;

    fn run(yaml: &str) -> (serde_json::Value, Vec<String>) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("token"), "s3cret\n").unwrap();
        std::fs::write(dir.path().join("binary"), [0xff, 0xfe]).unwrap();
        std::fs::write(dir.path().join("huge"), "x".repeat(70_000)).unwrap();
        let variable = |name: &str| match name {
            "FIVE" => Some("5".to_owned()),
            "EMPTY" => Some(String::new()),
            "TRICK" => Some("${FIVE}".to_owned()),
            _ => None,
        };
        let problems = Problems::new(Path::new("c"));
        let mut node = parse(yaml, &problems).unwrap();
        interpolate(&mut node, &Sources { variable: &variable, base: dir.path() }, &problems);
        (node.to_json(), problems.into_lines())
    }

    #[test]
    fn replaces_and_types_again() {
        let (json, problems) =
            run("a: ${FIVE}\nb: '${FIVE}'\nc: x${FIVE}y\nd: ${file:token}\ne: a$$b$c\nf: '${EMPTY}'\ng: ${TRICK}\n");
        assert!(problems.is_empty(), "{problems:?}");
        let expected = json!({ "a": 5, "b": 5, "c": "x5y", "d": "s3cret", "e": "a$b$c", "f": "", "g": "${FIVE}" });
        assert_eq!(json, expected);
    }

    #[test]
    fn what_cannot_be_had_is_told_by_line() {
        let (_, problems) = run(
            "a: ${NOT_SET}\nb: ${file:nowhere}\nc: ${\nd: ${a-b}\ne: ${file:binary}\nf: ${file:huge}\ng: ${file:}\n",
        );
        for (line, (problem, expected)) in problems
            .iter()
            .zip(["`NOT_SET` is not set", "`nowhere`", "not closed", "`${a-b}`", "`binary`", "`huge`", "names no file"])
            .enumerate()
        {
            assert!(problem.starts_with(&format!("c:{}: ", line + 1)) && problem.contains(expected), "{problem}");
        }
        assert_eq!(problems.len(), 7);
    }
}
