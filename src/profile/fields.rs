//! The names of the fields of an input, by path, from its first records; and whether they are wrapped as Debezium does.

use crate::codec::survey::ENOUGH;
use crate::codec::{Decode, Format};
use crate::model::event::Event;
use crate::model::schema::Path;

/// The records in which fields are looked for. Larger: more memory before the first count. Smaller: a field that begins late is
/// missed.
pub(crate) const LOOKED_FOR: usize = 4096;
/// The most names that are counted. Larger: records with keys of their own take time. Smaller: wide records lose fields.
const MOST_NAMES: usize = 500;

/// The paths of all fields, in the order in which they appear. A key that few records have may be a person's name: it is not
/// taken, but where a header or schema gives the names. Of an object that is null in some records, its fields are taken.
pub(crate) fn discover(decoder: &dyn Decode, format: Format, first: &[Event]) -> Vec<Path> {
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
    let named = format != Format::Json;
    let common = |count: usize| (named || count >= ENOUGH as usize) && count * 200 >= records;
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
