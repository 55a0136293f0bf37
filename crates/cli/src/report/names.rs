//! The names of tensors as a tree of their dotted components, which is how the page holds them: an expert's name repeats the
//! words of ten thousand others.

use std::collections::HashMap;

use serde::Serialize;

/// Components of a name that are nodes of their own; the last one holds the rest.
const MAX_DEPTH: usize = 24;

/// A tree of names in the order of a walk that visits parents first, and children in the order in which they first occurred.
#[derive(Debug, Default, Serialize)]
pub(super) struct NameTree {
    /// The distinct components.
    words: Vec<String>,
    /// By node, its depth; 0 for the first component of a name.
    depth: Vec<u8>,
    /// By node, its component, as an index into `words`.
    word: Vec<u32>,
}

/// A tree, and the names in its order.
pub(super) struct OrderedNames {
    pub(super) tree: NameTree,
    /// Pairs of a node of the tree and the index of the name that ends there.
    pub(super) order: Vec<(u32, usize)>,
}

#[derive(Default)]
struct NameNode {
    word: u32,
    children: Vec<u32>,
    names: Vec<usize>,
}

/// The components of a name that are words of the tree.
pub(super) fn components(name: &str) -> impl Iterator<Item = &str> {
    // bounds the depth of the tree, which the file would set otherwise
    name.splitn(MAX_DEPTH, '.')
}

/// The tree of names, which are shown as they are: the caller has escaped them.
pub(super) fn tree<'n>(names: impl Iterator<Item = &'n str>) -> OrderedNames {
    let mut words: HashMap<String, u32> = HashMap::new();
    let mut list = Vec::new();
    // the root is no component
    let mut nodes = vec![NameNode::default()];
    let mut edges: HashMap<(u32, u32), u32> = HashMap::new();
    for (index, name) in names.enumerate() {
        let mut at = 0u32;
        for word in components(name) {
            let word = *words.entry(word.to_owned()).or_insert_with(|| {
                list.push(word.to_owned());
                number(list.len() - 1)
            });
            at = *edges.entry((at, word)).or_insert_with(|| {
                let node = number(nodes.len());
                nodes.push(NameNode {
                    word,
                    ..NameNode::default()
                });
                nodes[at as usize].children.push(node);
                node
            });
        }
        nodes[at as usize].names.push(index);
    }
    let mut tree = NameTree {
        words: list,
        ..NameTree::default()
    };
    let mut order = Vec::new();
    // a stack instead of a recursion; reversed, so that the first child is popped first
    let mut left: Vec<(u32, u8)> = nodes[0].children.iter().rev().map(|n| (*n, 0)).collect();
    while let Some((at, depth)) = left.pop() {
        let node = &nodes[at as usize];
        let place = number(tree.word.len());
        tree.word.push(node.word);
        tree.depth.push(depth);
        order.extend(node.names.iter().map(|name| (place, *name)));
        left.extend(node.children.iter().rev().map(|n| (*n, depth + 1)));
    }
    OrderedNames { tree, order }
}

fn number(index: usize) -> u32 {
    u32::try_from(index).expect("a page shows fewer names than 2^32 / 24")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names of a tree, as the page reads them.
    fn names(ordered: &OrderedNames) -> Vec<(usize, String)> {
        let tree = &ordered.tree;
        let name = |node: u32| {
            let (mut parts, mut below) = (Vec::new(), u8::MAX);
            for at in (0..=node as usize).rev() {
                if tree.depth[at] < below {
                    below = tree.depth[at];
                    parts.push(tree.words[tree.word[at] as usize].clone());
                }
            }
            parts.reverse();
            parts.join(".")
        };
        ordered
            .order
            .iter()
            .map(|(node, index)| (*index, name(*node)))
            .collect()
    }

    #[test]
    fn names_are_read_back_from_the_tree() {
        let given = [
            "a.b.w",
            "a.c.w",
            "a",
            "a.b.s",
            "",
            "..",
            "x",
            "a.b.w",
            &"d.".repeat(60),
        ];
        let ordered = tree(given.iter().copied());
        let mut found = names(&ordered);
        let order: Vec<usize> = found.iter().map(|(index, _)| *index).collect();
        assert_eq!(order, [2, 0, 7, 3, 1, 4, 5, 6, 8]);
        found.sort();
        let found: Vec<&str> = found.iter().map(|(_, name)| name.as_str()).collect();
        assert_eq!(found, given);
        assert!(
            ordered
                .tree
                .depth
                .iter()
                .all(|depth| usize::from(*depth) < MAX_DEPTH)
        );
        assert_eq!(
            ordered
                .tree
                .words
                .iter()
                .filter(|word| *word == "w")
                .count(),
            1
        );
    }
}
