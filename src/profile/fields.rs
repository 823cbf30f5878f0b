//! The names of the fields of an input, by path, from its first records; and whether they are wrapped as Debezium does.

use crate::codec::Decode;
use crate::model::event::Event;
use crate::model::hierarchy::Date;
use crate::model::record::canonical_number;
use crate::model::schema::Path;

/// The records in which fields are looked for. Larger: more memory before the first count. Smaller: a field that begins late is
/// missed.
pub(crate) const LOOKED_FOR: usize = 4096;
/// The most names that are counted. Larger: records with keys of their own take time. Smaller: wide records lose fields.
const MOST_NAMES: usize = 500;
/// A key counts as a field if so many records have it, and one in two hundred.
const OFTEN: usize = 5;

/// The paths of all fields, in the order in which they appear. A key that few records have may be a person's name: it is not
/// taken. Of an object that is null in some records, its fields are taken.
pub(crate) fn discover(decoder: &dyn Decode, first: &[Event]) -> Vec<Path> {
    let (mut counted, mut records): (Vec<(Path, usize)>, usize) = (Vec::new(), 0);
    for payload in first.iter().filter_map(|event| event.payload.as_deref()) {
        let found = decoder.fields(payload);
        records += usize::from(!found.is_empty());
        for path in found {
            let full = counted.len() >= MOST_NAMES;
            match counted.iter_mut().find(|(known, _)| *known == path) {
                Some((_, count)) => *count += 1,
                None if full => {}
                None => counted.push((path, 1)),
            }
        }
    }
    let common = |count: usize| count >= records.min(OFTEN) && count * 200 >= records;
    let paths: Vec<Path> = counted.into_iter().filter(|(_, count)| common(*count)).map(|(path, _)| path).collect();
    let outer = |path: &Path| paths.iter().any(|other| other != path && path.contains(other));
    paths.iter().filter(|path| !outer(path)).cloned().collect()
}

/// True if the fields are those of a change event of Debezium, with or without its schema part.
pub(crate) fn is_change_event(paths: &[Path]) -> bool {
    let has = |start: &[&str]| {
        let begins =
            |path: &Path| path.names().len() >= start.len() && start.iter().zip(path.names()).all(|(a, b)| **a == **b);
        paths.iter().any(begins)
    };
    has(&["op"]) && has(&["after"]) || has(&["payload", "op"]) && has(&["payload", "after"])
}

/// True if the names look like the values of a person: a file without a header has a record in its first line.
pub(crate) fn look_like_values(names: &[String]) -> bool {
    let value = |name: &String| {
        let name = name.trim_matches('"');
        name.is_empty() || canonical_number(name).is_some() || name.contains('@') || name.parse::<Date>().is_ok()
    };
    names.iter().any(value)
}
