//! Pieces of configuration to paste: a point that was chosen in a picture, as keys of the file.

use serde_json::json;

use crate::model::lattice::Node;
use crate::model::policy::Policy;

/// The levels of `node` as `fixed_levels` reads them.
fn levels(policy: &Policy, node: &Node) -> String {
    let one = |(quasi, level): (&crate::model::policy::QuasiIdentifier, &u8)| format!("{}: {level}", key(&quasi.name));
    format!("{{ {} }}", policy.quasi.iter().zip(node.levels()).map(one).collect::<Vec<_>>().join(", "))
}

/// The `window` section that publishes every release at `node`.
pub(crate) fn fixed_window(policy: &Policy, node: &Node) -> String {
    format!("window:\n  levels: fixed\n  fixed_levels: {}\n", levels(policy, node))
}

/// A field's name as a YAML key; quoted unless it is plainly a word.
fn key(name: &str) -> String {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let reserved = ["null", "true", "false", "yes", "no", "on", "off", "y", "n"];
    let plain = name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(word)
        && !reserved.contains(&name.to_ascii_lowercase().as_str());
    if plain { name.into() } else { json!(name).to_string() }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::{Config, Purpose};

    #[test]
    fn keys_that_yaml_would_misread_are_quoted() {
        assert_eq!((key("age"), key("native-country")), ("age".into(), "native-country".into()));
        for odd in ["no", "1st", "a: b", "", "Größe", "#x"] {
            assert!(key(odd).starts_with('"'), "{odd}");
        }
    }

    #[test]
    fn what_is_pasted_is_understood() {
        let policy = "policy:\n  quasi_identifiers: [{ name: 'no: 1', hierarchy: { prefix: { length: 3 } } }, { name: b, \
                      hierarchy: trivial }]\n  privacy: [{ k-anonymity: 2 }]\n";
        let parse = |text: &str| Config::parse(text, Path::new("x.yaml"), Purpose::Policy).unwrap();
        let node = Node::new([2, 1]);
        let text = format!("{policy}{}", fixed_window(&parse(policy).policy, &node));
        assert_eq!(parse(&text).choice.levels, crate::search::choose::Levels::Fixed(Some(node)));
    }
}
