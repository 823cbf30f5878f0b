//! A categorical tree, as it is written in the configuration: `{ Europe: [DE, FR], Asia: { East: [JP], South: [IN] } }`.
//!
//! Levels are counted from the root, so a leaf that lies higher than others is repeated upward: with the tree above DE
//! is DE at levels 0 and 1, Europe at level 2.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::Deserialize;

use super::closed::{Builder, Closed, MAX_COLUMNS};
use super::{Errors, HierarchyError, TOP};
use crate::model::record::canonical_text;

/// A node of a written-out tree; one without children is a value.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TreeNode {
    /// The label, or the value at a leaf.
    pub label: String,
    /// The finer values it stands for. Default: none, it is a value.
    #[serde(default)]
    pub children: Vec<TreeNode>,
}

/// With several roots, or one root without children, `*` is put on top.
pub(super) fn build(roots: &[TreeNode]) -> Result<Closed, Vec<HierarchyError>> {
    let mut errors = Errors::default();
    if roots.is_empty() {
        errors.push(None, "the tree is empty; write at least one group, such as `Europe: [DE, FR]`");
        return Err(errors.into_list());
    }
    let mut ancestors = match roots {
        [root] if !root.children.is_empty() => Vec::new(),
        _ => vec![Cow::Borrowed(TOP)],
    };
    let depth = ancestors.len() + roots.iter().map(|root| depth(root, MAX_COLUMNS)).max().unwrap_or(0);
    if depth > MAX_COLUMNS {
        errors.push(None, format!("the tree is too deep; write at most {MAX_COLUMNS} levels"));
        return Err(errors.into_list());
    }
    let mut builder = Builder::new(depth, errors);
    for root in roots {
        walk(root, &mut ancestors, depth, &mut builder);
    }
    builder.finish()
}

/// How many levels lie in the tree under `node`, itself included; stops counting a little above `limit`.
fn depth(node: &TreeNode, limit: usize) -> usize {
    if limit == 0 {
        return 1;
    }
    1 + node.children.iter().map(|child| depth(child, limit - 1)).max().unwrap_or(0)
}

fn walk<'a>(node: &'a TreeNode, ancestors: &mut Vec<Cow<'a, str>>, columns: usize, builder: &mut Builder) {
    ancestors.push(canonical_text(&node.label));
    if node.children.is_empty() {
        let leaf = std::iter::repeat_n(canonical_text(&node.label), columns - ancestors.len());
        let path: Vec<_> = leaf.chain(ancestors.iter().rev().cloned()).collect();
        builder.add(&path, None);
    }
    for child in &node.children {
        walk(child, ancestors, columns, builder);
    }
    ancestors.pop();
}

#[cfg(test)]
mod tests {
    use super::super::Hierarchy;
    use super::*;

    fn group(label: impl Into<String>, children: impl Into<Vec<TreeNode>>) -> TreeNode {
        TreeNode { label: label.into(), children: children.into() }
    }

    fn leaves(labels: &[&str]) -> Vec<TreeNode> {
        labels.iter().map(|&label| group(label, [])).collect()
    }

    fn world() -> Vec<TreeNode> {
        let asia = [group("East", leaves(&["JP", "CN"])), group("South", leaves(&["IN"]))];
        vec![group("Europe", leaves(&["DE", "FR"])), group("Asia", asia)]
    }

    #[test]
    fn short_branches_repeat_their_leaf() {
        let h = Hierarchy::tree(&world()).unwrap();
        let labels = |leaf| (0..=h.height()).map(|l| h.label(leaf, l).unwrap().into_owned()).collect::<Vec<_>>();
        assert_eq!(labels("DE"), ["DE", "DE", "Europe", "*"]);
        assert_eq!(labels("JP"), ["JP", "East", "Asia", "*"]);
        assert_eq!(h.leaves().unwrap().collect::<Vec<_>>(), ["DE", "FR", "JP", "CN", "IN"]);
        assert_eq!(h.canonical("Europe"), None);
    }

    #[test]
    fn one_root_is_the_top() {
        let h = Hierarchy::tree(&[group("World", world())]).unwrap();
        assert_eq!((h.height(), h.top_label()), (3, "World"));
        let single = Hierarchy::tree(&leaves(&["only"])).unwrap();
        assert_eq!((single.height(), single.top_label()), (1, "*"));
    }

    #[test]
    fn wrong_trees_are_refused() {
        assert!(Hierarchy::tree(&[]).is_err());
        let twice = [group("A", leaves(&["x", "y"])), group("B", leaves(&["x", "y"]))];
        assert_eq!(Hierarchy::tree(&twice).unwrap_err().len(), 2);
        let east = |root, leaf| group(root, [group("East", leaves(&[leaf]))]);
        let errors = Hierarchy::tree(&[east("Europe", "PL"), east("Asia", "JP")]).unwrap_err();
        assert!(
            errors[0].to_string().starts_with("`East` at level 1 has two parents: `Europe`, `Asia` here"),
            "{errors:?}"
        );
        let deep = (0..300).fold(group("x", []), |node, i| group(format!("{i}"), [node]));
        assert!(Hierarchy::tree(&[deep]).unwrap_err()[0].message.contains("too deep"));
    }
}
