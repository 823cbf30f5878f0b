//! Hierarchies: from what the file says to what the engine uses. The only place of `config` that reads other files.

use std::path::Path;

use crate::config::file::{self, At};
use crate::config::raw::{RawDate, RawDecimalMark, RawHierarchy, RawTree};
use crate::model::hierarchy::{Date, DateSpec, Hierarchy, HierarchyError, IntervalSpec};

/// Larger: a wrong path (a device, a database) fills the memory. Smaller: real hierarchies of a million values no longer fit.
const MAX_CSV_BYTES: u64 = 256 * 1024 * 1024;

/// A hierarchy, and its definition as bytes that are the same on every machine.
pub(super) struct BuiltHierarchy {
    pub(super) hierarchy: Hierarchy,
    pub(super) definition: Vec<u8>,
}

/// Builds the hierarchy at `at`; `None` if it cannot be used, and problems say why.
pub(super) fn build(raw: &RawHierarchy, at: At<'_>, base: &Path) -> Option<BuiltHierarchy> {
    if at.lost_any() {
        // The rest of it would only cause a second message about the same mistake.
        return None;
    }
    let (key, built) = match raw {
        RawHierarchy::Csv(path) => return read_csv(path, at.key("csv"), base),
        RawHierarchy::Intervals(raw) => (
            "intervals",
            Hierarchy::intervals(IntervalSpec {
                widths: raw.widths.iter().map(|w| w.0).collect(),
                min: raw.min.0,
                max: raw.max.0,
                origin: raw.origin.map(|o| o.0).unwrap_or_default(),
                open: raw.open,
                decimal_comma: raw.decimal == RawDecimalMark::Comma,
            }),
        ),
        RawHierarchy::Prefix(spec) => ("prefix", Hierarchy::prefix(spec.clone())),
        RawHierarchy::Ip(spec) => ("ip", Hierarchy::ip(spec.clone())),
        RawHierarchy::Geohash(spec) => ("geohash", Hierarchy::geohash(spec.clone())),
        RawHierarchy::Date(raw) => ("date", Hierarchy::dates(dates(raw, at.key("date"))?)),
        RawHierarchy::Tree(RawTree::Root(root)) => ("tree", Hierarchy::tree(std::slice::from_ref(root))),
        RawHierarchy::Tree(RawTree::Roots(roots)) => ("tree", Hierarchy::tree(roots)),
        RawHierarchy::Trivial => ("trivial", Ok(Hierarchy::trivial())),
        RawHierarchy::AnyOf(raw) => return alternatives(raw, at.key("any_of"), base),
    };
    match built {
        Ok(hierarchy) => {
            let mut definition = at.to_json();
            definition.sort_all_objects();
            Some(BuiltHierarchy { hierarchy, definition: definition.to_string().into_bytes() })
        }
        Err(errors) => {
            refuse(&errors, key, at.key(key));
            None
        }
    }
}

/// Hierarchies of the same values.
fn alternatives(raw: &[RawHierarchy], at: At<'_>, base: &Path) -> Option<BuiltHierarchy> {
    let built = raw.iter().enumerate().map(|(i, raw)| build(raw, at.index(i), base));
    let built: Vec<BuiltHierarchy> = built.collect::<Vec<_>>().into_iter().collect::<Option<_>>()?;
    let mut definition = b"any_of".to_vec();
    for part in built.iter().map(|built| &built.definition) {
        definition.extend_from_slice(format!(" {} ", part.len()).as_bytes());
        definition.extend_from_slice(part);
    }
    match Hierarchy::any_of(built.into_iter().map(|built| built.hierarchy).collect()) {
        Ok(hierarchy) => Some(BuiltHierarchy { hierarchy, definition }),
        Err(errors) => {
            refuse(&errors, "any_of", at);
            None
        }
    }
}

fn refuse(errors: &[HierarchyError], key: &str, at: At<'_>) {
    for error in errors {
        let message = if at.is_from_outside() {
            // The message may quote a value that came from a variable.
            format!("the values of `{key}` do not fit together: check what the variables hold")
        } else {
            error.message.clone()
        };
        blamed(at, error).refuse(message);
    }
}

/// The key that an error is about, as far as its words tell.
fn blamed<'a>(at: At<'a>, error: &HierarchyError) -> At<'a> {
    let clause = error.message.split(';').next().unwrap_or_default();
    let keys = [
        ("width", "widths"),
        ("min ", "min"),
        ("alphabet", "alphabet"),
        ("min_length", "min_length"),
        ("in v4", "v4"),
        ("in v6", "v6"),
        ("length", "lengths"),
        ("length", "length"),
        ("mask", "mask"),
        ("format", "formats"),
        ("format", "format"),
        ("unit", "units"),
        ("week", "units"),
        ("after `", "units"),
    ];
    let key = keys.iter().find(|(word, key)| clause.contains(word) && at.key(key).is_present());
    key.map_or(at, |(_, key)| at.key(key))
}

fn read_csv(path: &Path, at: At<'_>, base: &Path) -> Option<BuiltHierarchy> {
    let shown = at.show(path.display());
    let bytes = match file::read(&base.join(path), MAX_CSV_BYTES) {
        Ok(Some(bytes)) => bytes,
        Ok(None) => {
            at.refuse(format!("the hierarchy {shown} is larger than {MAX_CSV_BYTES} bytes: make it smaller"));
            return None;
        }
        Err(error) => {
            at.refuse(format!(
                "cannot read the hierarchy {shown} ({}): check the path, which is relative to this file",
                file::why(&error)
            ));
            return None;
        }
    };
    match Hierarchy::parse_csv(&bytes) {
        Ok(hierarchy) => {
            // Byte order mark and line ends come and go with editors and checkouts; they are not part of the definition.
            let text = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes);
            let definition = text.iter().copied().filter(|&b| b != b'\r').collect();
            Some(BuiltHierarchy { hierarchy, definition })
        }
        Err(errors) => {
            for error in errors {
                at.refuse_elsewhere(Path::new(shown.trim_matches('`')), error.line, error.message);
            }
            None
        }
    }
}

fn dates(raw: &RawDate, at: At<'_>) -> Option<DateSpec> {
    let raw = match raw {
        RawDate::Units(list) => return Some(DateSpec::new(list.clone())),
        RawDate::Full(raw) => raw,
    };
    let before = at.problems();
    let day = |key: &str, text: &Option<String>| -> Option<Date> {
        let (text, at) = (text.as_deref()?, at.key(key));
        let date = text.trim().parse().ok();
        if date.is_none() {
            at.refuse(format!("`{key}` is {}: write a day such as 1900-01-31", at.show(text)));
        }
        date
    };
    let (min, max) = (day("min", &raw.min), day("max", &raw.max));
    let formats = match (&raw.formats, &raw.format) {
        (Some(_), Some(_)) => {
            at.key("format").refuse("`format` and `formats` say the same: write `formats` alone");
            return None;
        }
        (Some(formats), None) if formats.is_empty() => {
            at.key("formats").refuse("`formats` is empty: write some, such as [iso, \"%d.%m.%Y\"], or leave it away");
            return None;
        }
        (Some(formats), None) => formats.clone(),
        (None, format) => format.iter().cloned().collect(),
    };
    let spec = DateSpec { units: raw.units.clone(), min, max, formats };
    (at.problems() == before).then_some(spec)
}
