//! Where a field stands in a record: the names of the objects around it and its own, from the outside in.
//!
//! A path has one spelling, which is also the attribute's name in manifests, reports, metrics and CSV headers: names joined by
//! dots, and a name in double quotes where it has a dot or a quote itself (`"a.b".c`; a quote inside is doubled). Decoders find
//! fields and encoders lay out rows by a [`PathTree`]: the same paths as nested objects.

use std::fmt;
use std::sync::Arc;

/// The most names in a path. Larger: readers recurse that deep, once per name. Smaller: deep records cannot be named.
const MAX_NAMES: usize = 32;

/// The place of a field in a record.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Path {
    names: Arc<[Arc<str>]>,
    text: Arc<str>,
}

/// Why a text is not a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// Nothing before, between or after dots.
    #[error("has an empty name: write one name, or names joined by single dots")]
    EmptyName,
    /// A quote without its end, or with text around it.
    #[error("has a double quote out of place: quote a whole name, as in \"a.b\".c, and double a quote inside it")]
    Quote,
    /// More names than a reader follows.
    #[error("has more than {MAX_NAMES} names")]
    TooLong,
}

impl Path {
    /// Reads the text of a path.
    pub fn parse(text: &str) -> Result<Self, PathError> {
        let mut names = Vec::new();
        let mut rest = text;
        loop {
            let (name, after) = first_name(rest)?;
            names.push(Arc::from(name));
            match after {
                Some(after) => rest = after,
                None => break,
            }
        }
        if names.len() > MAX_NAMES { Err(PathError::TooLong) } else { Ok(Self::from_names(names)) }
    }

    /// The path that `text` is, or else the field of that very name.
    pub fn of(text: &str) -> Self {
        Self::parse(text).unwrap_or_else(|_| Self::from_names(vec![text.into()]))
    }

    /// The path of these names, from the outside in.
    pub fn from_names(names: Vec<Arc<str>>) -> Self {
        let quoted = |name: &str| match name.contains(['.', '"']) {
            true => format!("\"{}\"", name.replace('"', "\"\"")),
            false => name.to_owned(),
        };
        let text = names.iter().map(|name| quoted(name)).collect::<Vec<_>>().join(".");
        Self { names: names.into(), text: text.into() }
    }

    /// The same field in a record that lies in the object at `outer`.
    pub fn below(&self, outer: &[&str]) -> Self {
        let outer = outer.iter().map(|name| Arc::from(*name));
        Self::from_names(outer.chain(self.names.iter().cloned()).collect())
    }

    /// Its names, from the outside in; at least one.
    pub fn names(&self) -> &[Arc<str>] {
        &self.names
    }

    /// Its one spelling.
    pub fn text(&self) -> &Arc<str> {
        &self.text
    }

    /// Its column in a flat file: the name itself if it is one, else the text.
    pub fn column(&self) -> &Arc<str> {
        if let [name] = &*self.names { name } else { &self.text }
    }

    /// True if `other` stands in the object that this path names, or is the same.
    pub fn contains(&self, other: &Self) -> bool {
        other.names.starts_with(&self.names)
    }
}

impl fmt::Debug for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Path({})", self.text)
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The first name of `text`, and what follows its dot.
fn first_name(text: &str) -> Result<(String, Option<&str>), PathError> {
    let (name, after) = match text.strip_prefix('"') {
        Some(inner) => {
            let mut end = 0;
            loop {
                end += inner[end..].find('"').ok_or(PathError::Quote)?;
                if !inner[end + 1..].starts_with('"') {
                    break;
                }
                end += 2;
            }
            (inner[..end].replace("\"\"", "\""), &inner[end + 1..])
        }
        None => {
            let end = text.find('.').unwrap_or(text.len());
            (text[..end].to_owned(), &text[end..])
        }
    };
    match after.strip_prefix('.') {
        _ if name.trim().is_empty() => Err(PathError::EmptyName),
        _ if !text.starts_with('"') && name.contains('"') => Err(PathError::Quote),
        Some("") => Err(PathError::EmptyName),
        Some(after) => Ok((name, Some(after))),
        None if after.is_empty() => Ok((name, None)),
        None => Err(PathError::Quote),
    }
}

/// Paths as nested objects; each leaf has the number that belongs to its path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathTree {
    /// The end of a path.
    Leaf(usize),
    /// An object on the way of some paths, with its members in the order in which the paths were given.
    Object(Vec<(Arc<str>, PathTree)>),
}

impl PathTree {
    /// The tree of `paths`; an object, also if there are none. A path that leads through the end of another, or ends where
    /// another goes on, is left out: configurations with such paths are refused.
    pub fn of<'a>(paths: impl IntoIterator<Item = (&'a Path, usize)>) -> Self {
        let mut root = Vec::new();
        for (path, number) in paths {
            insert(&mut root, path.names(), number);
        }
        Self::Object(root)
    }

    /// The members of an object; none of a leaf.
    pub fn members(&self) -> &[(Arc<str>, Self)] {
        match self {
            Self::Leaf(_) => &[],
            Self::Object(members) => members,
        }
    }

    /// The member of this name.
    #[inline]
    pub fn get(&self, name: &str) -> Option<&Self> {
        self.members().iter().find(|(member, _)| &**member == name).map(|(_, tree)| tree)
    }

    /// The numbers of all leaves, depth first.
    pub fn leaves(&self) -> Vec<usize> {
        match self {
            Self::Leaf(number) => vec![*number],
            Self::Object(members) => members.iter().flat_map(|(_, tree)| tree.leaves()).collect(),
        }
    }
}

fn insert(members: &mut Vec<(Arc<str>, PathTree)>, names: &[Arc<str>], number: usize) {
    let [name, rest @ ..] = names else { return };
    let known = members.iter().position(|(member, _)| member == name);
    match (known, rest) {
        (None, []) => members.push((Arc::clone(name), PathTree::Leaf(number))),
        (None, _) => {
            let mut inner = Vec::new();
            insert(&mut inner, rest, number);
            members.push((Arc::clone(name), PathTree::Object(inner)));
        }
        (Some(at), [_, ..]) => {
            if let PathTree::Object(inner) = &mut members[at].1 {
                insert(inner, rest, number);
            }
        }
        (Some(_), []) => {}
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_path_has_one_spelling() {
        let names = |text: &str| Path::parse(text).unwrap().names().iter().map(|n| n.to_string()).collect::<Vec<_>>();
        assert_eq!(names("customer.address.zip"), ["customer", "address", "zip"]);
        assert_eq!(names(r#""a.b".c"#), ["a.b", "c"]);
        assert_eq!(names(r#""say ""hi""".x"#), [r#"say "hi""#, "x"]);
        assert_eq!(&**Path::parse(r#""age""#).unwrap().text(), "age");
        assert_eq!(&**Path::parse(r#""a.b""#).unwrap().column(), "a.b");
        assert_eq!(&**Path::parse(r#""a.b".c"#).unwrap().column(), r#""a.b".c"#);
        for (text, error) in [
            ("", PathError::EmptyName),
            (".a", PathError::EmptyName),
            ("a.", PathError::EmptyName),
            ("a..b", PathError::EmptyName),
            (r#"""."#, PathError::EmptyName),
            (r#""a"#, PathError::Quote),
            (r#""a"b"#, PathError::Quote),
            (r#"a"b"#, PathError::Quote),
        ] {
            assert_eq!(Path::parse(text), Err(error), "{text}");
        }
        assert_eq!(Path::parse(&["a"; 33].join(".")), Err(PathError::TooLong));
    }

    #[test]
    fn paths_that_collide_do_not_share_a_leaf() {
        let paths = ["a.b", "c", "a.d.e", "a", "c.x"].map(Path::of);
        let tree = PathTree::of(paths.iter().zip(0..));
        assert_eq!(tree.leaves(), [0, 2, 1]);
        assert_eq!(tree.get("a").and_then(|a| a.get("d")).map(PathTree::leaves), Some(vec![2]));
        assert!(paths[3].contains(&paths[0]) && !paths[0].contains(&paths[3]));
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(names in prop::collection::vec("[a\". é]{0,3}b", 1..5)) {
            let path = Path::from_names(names.iter().map(|n| n.as_str().into()).collect());
            prop_assert_eq!(Path::parse(path.text()), Ok(path));
        }
    }
}
