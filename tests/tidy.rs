//! The house stays as the map in `src/lib.rs` says: edges between modules, headers, file lengths, nothing left undone.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Longer files hold more than one thought. The tests at the end of a file count less.
const MAX_LINES: usize = 750;
const MAX_LINES_BEFORE_TESTS: usize = 500;
/// Longer functions do more than one thing; fuller folders need a map of their own.
const MAX_FUNCTION: usize = 60;
const MAX_FILES: usize = 12;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every Rust file below `folder`, relative to the root.
fn rust_files(folder: &str) -> Vec<PathBuf> {
    files(folder, "rs")
}

fn files(folder: &str, wanted: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for entry in entries {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == wanted) {
                files.push(path.strip_prefix(root()).unwrap().to_owned());
            }
        }
    }
    assert!(!files.is_empty() || folder == "benches");
    files.sort();
    files
}

fn read(path: &Path) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

/// The text before the tests at its end; empty for files that are tests as a whole.
fn before_tests<'a>(path: &Path, text: &'a str) -> &'a str {
    let stem = path.file_stem().unwrap().to_str().unwrap();
    let parent = path.parent().unwrap();
    let above = [parent.join("mod.rs"), parent.join("lib.rs")].into_iter().find(|p| root().join(p).exists());
    let only_for_tests = above.is_some_and(|above| {
        let above = read(&above);
        ["", "pub(crate) ", "pub(super) "]
            .iter()
            .any(|seen| above.contains(&format!("#[cfg(test)]\n{seen}mod {stem};")))
    });
    if only_for_tests || path.components().any(|part| part.as_os_str() == "tests") {
        return "";
    }
    text.split("\nmod tests {").next().unwrap()
}

/// The room that a file stands in: the first folder, or the file itself, below `src` or below the core.
fn room(path: &Path) -> String {
    let mut parts = path.components().skip(1).map(|part| part.as_os_str().to_str().unwrap());
    let first = parts.next().unwrap();
    let room = if first == "core" { parts.next().unwrap() } else { first };
    room.trim_end_matches(".rs").to_owned()
}

/// The edges listed in the map.
fn map() -> BTreeMap<String, BTreeSet<String>> {
    let names =
        |list: &str| list.split(',').map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).collect();
    read(Path::new("src/lib.rs"))
        .lines()
        .filter_map(|line| line.strip_prefix("//! ")?.split_once("->"))
        .filter(|(from, _)| from.trim().chars().all(|c| c.is_ascii_lowercase() || c == '_'))
        .map(|(from, to)| (from.trim().to_owned(), names(to)))
        .collect()
}

#[test]
fn only_listed_edges_exist() {
    let map = map();
    let mut strangers = BTreeSet::new();
    for path in rust_files("src") {
        let from = room(&path);
        if matches!(from.as_str(), "lib" | "main") {
            continue;
        }
        let Some(allowed) = map.get(&from) else {
            strangers.insert(format!("{from} is not in the map"));
            continue;
        };
        let text = read(&path);
        for line in before_tests(&path, &text).lines().filter(|line| !line.trim_start().starts_with("//")) {
            for (at, _) in line.match_indices("crate::") {
                let to: String = line[at + 7..].chars().take_while(|c| c.is_ascii_lowercase() || *c == '_').collect();
                if !to.is_empty() && to != from && !allowed.contains(&to) {
                    strangers.insert(format!("{from} -> {to} ({})", path.display()));
                }
            }
        }
    }
    assert!(strangers.is_empty(), "not in the map of src/lib.rs: {strangers:#?}");
}

/// That the core does no I/O is Cargo's to enforce: it is a package of its own, without the crates for it.
#[test]
fn the_core_stays_pure() {
    let cargo = read(Path::new("src/core/Cargo.toml"));
    for edge in ["rdkafka", "tokio", "ureq", "axum", "tracing", "tempfile"] {
        assert!(!cargo.contains(edge), "the core must not use {edge}");
    }
    for path in rust_files("src/core") {
        let text = read(&path);
        let code = before_tests(&path, &text);
        let store = path == Path::new("src/core/frequency/store.rs");
        assert!(store || !code.contains("dashmap::"), "{} names dashmap", path.display());
        for edge in ["std::fs", "std::net", "std::process", "SystemTime::now"] {
            let failpoint = path == Path::new("src/core/failpoint.rs");
            assert!(failpoint || !code.contains(edge), "{} uses {edge}", path.display());
        }
    }
}

#[test]
fn a_type_name_means_one_thing() {
    let mut files: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for path in rust_files("src") {
        let text = read(&path);
        for line in before_tests(&path, &text).lines().map(str::trim_start) {
            let Some(rest) = line.strip_prefix("pub") else { continue };
            let rest = if rest.starts_with('(') { rest.split_once(") ").map_or("", |(_, rest)| rest) } else { rest };
            let mut words = rest.split_whitespace();
            if matches!(words.next(), Some("struct" | "enum" | "trait" | "type")) {
                let name = words.next().unwrap_or_default();
                let name: String = name.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                files.entry(name).or_default().push(path.display().to_string());
            }
        }
    }
    let twice: Vec<_> = files.iter().filter(|(_, files)| files.len() > 1).collect();
    assert!(twice.is_empty(), "public types of one name: {twice:#?}");
}

/// The paths of one `use` statement: `a::{b, c::{d}}` is a::b and a::c::d.
fn expanded(path: &str) -> Vec<String> {
    let Some((head, rest)) = path.split_once('{') else { return vec![path.trim().to_owned()] };
    let inner = rest.rsplit_once('}').map_or(rest, |(inner, _)| inner);
    let (mut parts, mut depth, mut start) = (Vec::new(), 0, 0);
    for (at, c) in inner.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&inner[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&inner[start..]);
    let parts = parts.into_iter().filter(|part| !part.trim().is_empty());
    parts.flat_map(|part| expanded(part.trim())).map(|part| format!("{}{part}", head.trim())).collect()
}

/// The module of a file: `src/core/gate/count.rs` is gate::count, and a `mod.rs` is its folder.
fn module(path: &Path) -> Vec<String> {
    let parts = path.components().skip(1).map(|part| part.as_os_str().to_str().unwrap().trim_end_matches(".rs"));
    parts.filter(|part| !matches!(*part, "core" | "mod" | "lib")).map(str::to_owned).collect()
}

/// Files of a room import one another in one direction. A folder's `mod.rs` and the files below it are one unit seen from
/// outside, so imports between a file and its own folder do not count.
#[test]
fn no_import_cycles_within_a_room() {
    let files: Vec<PathBuf> = rust_files("src");
    let modules: BTreeSet<Vec<String>> = files.iter().map(|path| module(path)).collect();
    let mut edges: BTreeMap<Vec<String>, BTreeSet<Vec<String>>> = BTreeMap::new();
    for path in &files {
        let (from, text) = (module(path), read(path));
        let code = before_tests(path, &text);
        let uses = code.split(";\n").filter_map(|statement| {
            let line = statement.rsplit_once("use ").map(|(before, path)| (before.rsplit('\n').next(), path));
            line.filter(|(before, _)| before.is_some_and(|b| b.is_empty() || b.starts_with("pub")))
                .map(|(_, path)| path)
        });
        for path in uses.flat_map(expanded) {
            let mut target: Vec<String> = path.split("::").map(|part| part.trim().to_owned()).collect();
            let base = match target[0].as_str() {
                "crate" => Vec::new(),
                "self" => from.clone(),
                "super" => from[..from.len().saturating_sub(1)].to_vec(),
                _ => continue,
            };
            target.splice(..1, base);
            while let Some(at) = target.iter().position(|part| part == "super").filter(|at| *at > 0) {
                target.drain(at - 1..=at);
            }
            while !target.is_empty() && !modules.contains(&target) {
                target.pop();
            }
            if target.first() == from.first() && !target.starts_with(&from) && !from.starts_with(&target) {
                edges.entry(from.clone()).or_default().insert(target);
            }
        }
    }
    let mut found = BTreeSet::new();
    for start in edges.keys() {
        let (mut seen, mut next) = (BTreeSet::new(), vec![start]);
        while let Some(at) = next.pop() {
            for to in edges.get(at).into_iter().flatten() {
                if to == start {
                    found.insert(start.join("::"));
                }
                if seen.insert(to) {
                    next.push(to);
                }
            }
        }
    }
    assert!(found.is_empty(), "files import each other in a circle: {found:#?}");
}

/// rustfmt closes a function with a brace at the indentation of its `fn`.
#[test]
fn functions_are_short() {
    let mut found = BTreeSet::new();
    for path in rust_files("src") {
        let text = read(&path);
        let lines: Vec<&str> = before_tests(&path, &text).lines().collect();
        for (at, line) in lines.iter().enumerate() {
            let code = line.trim_start();
            let words: Vec<&str> = code.split('(').next().unwrap_or_default().split_whitespace().collect();
            let starts = code.starts_with("fn ")
                || (code.starts_with("pub") && code.contains(" fn "))
                || words.first() == Some(&"async");
            if !starts || code.starts_with("//") || line.ends_with('}') || line.ends_with(';') {
                continue;
            }
            let end = format!("{}}}", &line[..line.len() - code.len()]);
            let length = lines[at..].iter().position(|line| *line == end).map_or(0, |length| length + 1);
            if length > MAX_FUNCTION {
                let name = code.split("fn ").nth(1).and_then(|rest| rest.split(['(', '<']).next()).unwrap_or_default();
                found.insert(format!("{} {name}", path.display()));
            }
        }
    }
    assert!(found.is_empty(), "functions of more than {MAX_FUNCTION} lines: {found:#?}");
}

#[test]
fn functions_have_few_arguments() {
    let allows = |path: &PathBuf| read(path).contains("too_many_arguments");
    let found: Vec<PathBuf> = rust_files("src").into_iter().filter(allows).collect();
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn folders_are_small() {
    let mut files: BTreeMap<PathBuf, usize> = BTreeMap::new();
    rust_files("src").iter().for_each(|path| *files.entry(path.parent().unwrap().to_owned()).or_default() += 1);
    let full: Vec<_> = files.into_iter().filter(|(_, files)| *files > MAX_FILES).collect();
    assert!(full.is_empty(), "more than {MAX_FILES} files: {full:#?}");
}

#[test]
fn files_have_a_header_and_an_end() {
    let mut wrong = Vec::new();
    for path in ["src", "tests", "benches"].into_iter().flat_map(rust_files) {
        let text = read(&path);
        if !text.starts_with("//!") {
            wrong.push(format!("{}: no `//!` header", path.display()));
        }
        let (all, before) = (text.lines().count(), before_tests(&path, &text).lines().count());
        if all > MAX_LINES || before > MAX_LINES_BEFORE_TESTS {
            wrong.push(format!("{}: {all} lines, {before} before its tests", path.display()));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn nothing_is_left_undone() {
    // Put together here, so that this file does not find itself.
    let marks = ["todo", "unimplemented", "dbg"].map(|name| format!("{name}!("));
    let ignored = ["#[", "ignore"].concat();
    let mut found = Vec::new();
    for path in ["src", "tests", "benches"].into_iter().flat_map(rust_files) {
        let text = read(&path);
        for (number, line) in text.lines().enumerate() {
            let macros = marks.iter().any(|mark| line.contains(mark.as_str()));
            if macros || line.trim_start().starts_with(&ignored) {
                found.push(format!("{}:{}", path.display(), number + 1));
            }
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn the_tests_of_the_threat_model_exist() {
    let mut there = BTreeSet::new();
    for path in rust_files("src").into_iter().chain(rust_files("tests")) {
        // What comes after a test's attribute, or inside `proptest!`, where it is written the same way.
        let text = read(&path);
        let mut test = false;
        for line in text.lines().map(str::trim_start) {
            test |= line == "#[test]" || line.starts_with("#[tokio::test");
            if let Some(name) = line.trim_start_matches("async ").strip_prefix("fn ")
                && std::mem::take(&mut test)
            {
                there.insert(name.split('(').next().unwrap().to_owned());
            }
        }
    }
    for path in files("tests", "py") {
        let text = read(&path);
        there.extend(text.lines().filter_map(|line| Some(line.strip_prefix("def ")?.split('(').next()?.to_owned())));
    }
    let model = read(Path::new("THREAT_MODEL.md"));
    let rows: Vec<&str> = model.lines().filter(|line| line.starts_with("| T")).collect();
    assert!(rows.len() > 15, "{} attacks", rows.len());
    for row in rows {
        let tests = row.split('|').nth(4).unwrap();
        let named: Vec<&str> = tests.split('`').skip(1).step_by(2).collect();
        assert!(!named.is_empty(), "no test: {row}");
        for name in named {
            let program = ["tests/", "tests/kafka/"].iter().any(|folder| {
                ["", ".rs", ".py"].iter().any(|end| root().join(format!("{folder}{name}{end}")).is_file())
            });
            assert!(program || there.contains(name), "no test has the name {name}");
        }
    }
    assert!(read(Path::new("README.md")).contains("THREAT_MODEL.md"));
}
