//! `inspect --tree`: tensors as a tree of their dotted names. Numbered siblings with equal subtrees share one line.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt::Write as _;
use std::io::{self, Write};

use anamnesis::Summary;
use anamnesis::inspect::TensorSummary;
use anamnesis::quote::escape;

use super::table::{Column, ColumnFit, Table};
use super::tensors::{ShapeText, TensorNotes, name};
use super::{DIM, DTYPE, Screen};
use crate::text::{ByteSize, plural};

/// Maximum depth of the tree: the remaining components of a longer name form one leaf. It bounds the recursion, which
/// the file would control otherwise.
const MAX_DEPTH: usize = 48;
/// Maximum number of ranges in a label such as `{0..3,8,11}`.
const MAX_RANGES: usize = 6;
/// Up to this number of children a linear search is used instead of a hash map.
const LINEAR_SEARCH_MAX: usize = 16;

#[derive(Default)]
struct TreeNode<'s> {
    children: Vec<(&'s str, TreeNode<'s>)>,
    /// Index of each child by name; empty up to [`LINEAR_SEARCH_MAX`] children.
    by_name: HashMap<&'s str, usize>,
    tensor: Option<&'s TensorSummary>,
    tensors: u64,
    nbytes: u64,
    /// Class of equal subtrees, set by [`TreeNode::classify`].
    class: u32,
}

impl<'s> TreeNode<'s> {
    /// The tree of all tensors.
    fn of(summary: &'s Summary) -> Self {
        let mut root = Self::default();
        for tensor in &summary.tensors {
            root.insert(tensor.name.splitn(MAX_DEPTH, '.'), tensor);
        }
        root.classify(&mut HashMap::new());
        root
    }

    fn insert(&mut self, mut names: std::str::SplitN<'s, char>, tensor: &'s TensorSummary) {
        self.tensors += 1;
        self.nbytes = self.nbytes.saturating_add(tensor.nbytes);
        let Some(part) = names.next() else {
            self.tensor = Some(tensor);
            return;
        };
        let at = self.position(part).unwrap_or_else(|| self.add(part));
        self.children[at].1.insert(names, tensor);
    }

    fn position(&self, part: &str) -> Option<usize> {
        // files list tensors of a layer together, so the last child is usually the one
        if self.children.last().is_some_and(|(last, _)| *last == part) {
            return Some(self.children.len() - 1);
        }
        match self.children.len() {
            0..=LINEAR_SEARCH_MAX => self.children.iter().position(|(name, _)| *name == part),
            _ => self.by_name.get(part).copied(),
        }
    }

    fn add(&mut self, part: &'s str) -> usize {
        let at = self.children.len();
        self.children.push((part, TreeNode::default()));
        match at + 1 {
            0..=LINEAR_SEARCH_MAX => {}
            // once a search becomes long, all children are entered, those from before included
            n if n == LINEAR_SEARCH_MAX + 1 => self.by_name.extend(
                self.children
                    .iter()
                    .enumerate()
                    .map(|(i, (name, _))| (*name, i)),
            ),
            _ => drop(self.by_name.insert(part, at)),
        }
        at
    }

    /// Assigns equal subtrees the same class, from the leaves up.
    fn classify(&mut self, classes: &mut HashMap<SubtreeKey<'s>, u32>) {
        self.children
            .iter_mut()
            .for_each(|(_, child)| child.classify(classes));
        // classes of the children instead of their subtrees: comparing two nodes takes as long as they have children,
        // whatever lies below
        let key = SubtreeKey {
            tensor: self
                .tensor
                .map(|t| (t.dtype.as_str(), t.shape.as_slice(), t.layout, t.nbytes)),
            children: self
                .children
                .iter()
                .map(|(part, child)| (*part, child.class))
                .collect(),
        };
        let next = u32::try_from(classes.len()).unwrap_or(u32::MAX);
        self.class = *classes.entry(key).or_insert(next);
    }
}

/// The properties in which two subtrees must agree to share a line.
#[derive(PartialEq, Eq, Hash)]
struct SubtreeKey<'s> {
    tensor: Option<(&'s str, &'s [u64], &'static str, u64)>,
    children: Vec<(&'s str, u32)>,
}

pub(crate) fn show(
    summary: &Summary,
    all: bool,
    screen: &Screen,
    out: &mut impl Write,
) -> io::Result<()> {
    if summary.tensors.is_empty() {
        return Ok(());
    }
    writeln!(out)?;
    let root = TreeNode::of(summary);
    TreePrinter::filled(&root, summary, all, usize::MAX)
        .table
        .print(screen, out)
}

/// Shows as many levels of the tree as have at most this many rows, and how the rest is shown.
pub(crate) fn show_fitting(
    summary: &Summary,
    rows: usize,
    screen: &Screen,
    out: &mut impl Write,
) -> io::Result<()> {
    if summary.tensors.is_empty() {
        return Ok(());
    }
    writeln!(out)?;
    let root = TreeNode::of(summary);
    let mut shown = TreePrinter::filled(&root, summary, false, 1);
    while shown.has_hidden {
        let deeper = TreePrinter::filled(&root, summary, false, shown.depth + 1);
        if deeper.table.rows() > rows {
            break;
        }
        shown = deeper;
    }
    let cut = shown.table.rows().saturating_sub(rows) as u64;
    shown.table.truncate(rows);
    shown.table.print(screen, out)?;
    let hidden = match (cut, shown.has_hidden) {
        (0, false) => return Ok(()),
        (0, true) => "… the levels below: --tree; every tensor: --list".to_owned(),
        (cut, _) => format!(
            "… {} more: --tree; every tensor: --list",
            plural(cut, "row")
        ),
    };
    writeln!(out, "{}", screen.paint(DIM, hidden))
}

struct TreePrinter {
    table: Table,
    notes: TensorNotes,
    all: bool,
    /// Number of levels that have rows.
    depth: usize,
    /// Whether some node has children without rows.
    has_hidden: bool,
}

impl TreePrinter {
    /// A table with the rows of the upper levels.
    fn filled(root: &TreeNode<'_>, summary: &Summary, all: bool, depth: usize) -> Self {
        let columns = vec![
            Column::left("name").fit(ColumnFit::Middle(32)),
            Column::left("dtype").style(DTYPE),
            Column::left("shape"),
            Column::right("bytes"),
            Column::left("notes").fit(ColumnFit::End).style(DIM),
        ];
        let mut printer = Self {
            table: Table::new(columns, 0),
            notes: TensorNotes::new(&summary.tensors),
            all,
            depth,
            has_hidden: false,
        };
        printer.children(root, None, depth);
        printer
    }

    /// Adds the rows below a node. `prefix` is the tree drawing before them, `None` at the root; `levels` have rows.
    fn children(&mut self, node: &TreeNode<'_>, prefix: Option<&str>, levels: usize) {
        if levels == 0 {
            self.has_hidden |= !node.children.is_empty();
            return;
        }
        let groups = self.groups(node);
        for (i, members) in groups.iter().enumerate() {
            let last = i + 1 == groups.len();
            let (branch, below) = match (prefix, last) {
                (None, _) => (String::new(), String::new()),
                (Some(prefix), true) => (format!("{prefix}└─ "), format!("{prefix}   ")),
                (Some(prefix), false) => (format!("{prefix}├─ "), format!("{prefix}│  ")),
            };
            self.group(node, members, &branch, &below, levels);
        }
    }

    /// Indices of children that share a row: numbered children of the same class, and each other child alone; in order of
    /// first appearance.
    fn groups(&self, node: &TreeNode<'_>) -> Vec<Vec<usize>> {
        let mut groups: Vec<Vec<usize>> = Vec::new();
        let mut group_of_class: HashMap<u32, usize> = HashMap::new();
        for (i, (part, child)) in node.children.iter().enumerate() {
            // words are not combined even if their subtrees are equal: `q_proj` and `k_proj` differ in meaning
            if self.all || number(part).is_none() {
                groups.push(vec![i]);
                continue;
            }
            match group_of_class.entry(child.class) {
                Entry::Occupied(group) => groups[*group.get()].push(i),
                Entry::Vacant(free) => {
                    free.insert(groups.len());
                    groups.push(vec![i]);
                }
            }
        }
        groups
    }

    fn label(&self, parent: &TreeNode<'_>, members: &[usize]) -> String {
        match members {
            [one] => name(parent.children[*one].0).into_owned(),
            several => number_ranges(
                several
                    .iter()
                    .filter_map(|i| number(parent.children[*i].0))
                    .collect(),
            ),
        }
    }

    fn group(
        &mut self,
        parent: &TreeNode<'_>,
        members: &[usize],
        prefix: &str,
        child_prefix: &str,
        levels: usize,
    ) {
        let mut count = members.len() as u64;
        let mut label = self.label(parent, members);
        let mut node = &parent.children[members[0]].1;
        // a node with a single row below it is joined with that row
        // bounded by `MAX_DEPTH`, as the recursion is
        while let (None, [only]) = (node.tensor, self.groups(node).as_slice()) {
            let _ = write!(label, ".{}", self.label(node, only));
            count *= only.len() as u64;
            node = &node.children[only[0]].1;
        }
        if count > 1 {
            let _ = write!(label, " ×{count}");
        }
        self.table.cell_with_prefix(prefix, label);
        match node.tensor {
            Some(tensor) => {
                self.table.cell(escape(&tensor.dtype));
                self.table.cell(ShapeText(&tensor.shape));
            }
            None => {
                self.table.cell("");
                let each = if count > 1 {
                    format!("{count} × ")
                } else {
                    String::new()
                };
                self.table
                    .cell(format_args!("{each}{}", plural(node.tensors, "tensor")));
            }
        }
        self.table.cell(ByteSize(node.nbytes.saturating_mul(count)));
        match node.tensor {
            Some(tensor) if count == 1 => self.table.cell(self.notes.of(tensor)),
            // the bytes in the row are of all; notes may differ between them
            Some(_) => self
                .table
                .cell(format_args!("{} each", ByteSize(node.nbytes))),
            None => self.table.cell(""),
        }
        self.children(node, Some(child_prefix), levels - 1);
    }
}

/// The number that a name component consists of; `None` with leading zeros, which a range would lose.
fn number(part: &str) -> Option<u64> {
    if part.is_empty()
        || !part.bytes().all(|b| b.is_ascii_digit())
        || (part.len() > 1 && part.starts_with('0'))
    {
        return None;
    }
    part.parse().ok()
}

/// A list of numbers as ranges: `{0..3,8,11}`.
fn number_ranges(mut list: Vec<u64>) -> String {
    list.sort_unstable();
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for n in list {
        match ranges.last_mut() {
            Some((_, end)) if *end + 1 == n => *end = n,
            _ => ranges.push((n, n)),
        }
    }
    let mut out = String::from("{");
    for (i, (from, to)) in ranges.iter().enumerate().take(MAX_RANGES) {
        let comma = if i > 0 { "," } else { "" };
        let _ = match to - from {
            0 => write!(out, "{comma}{from}"),
            // two numbers are no longer than their range
            1 => write!(out, "{comma}{from},{to}"),
            _ => write!(out, "{comma}{from}..{to}"),
        };
    }
    out.push_str(if ranges.len() > MAX_RANGES {
        ",…}"
    } else {
        "}"
    });
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_ranges_joins_consecutive_numbers_and_elides_many() {
        assert_eq!(number_ranges((0..32).collect()), "{0..31}");
        assert_eq!(number_ranges(vec![3, 0, 1, 11, 8, 2]), "{0..3,8,11}");
        assert_eq!(number_ranges(vec![0, 1]), "{0,1}");
        assert_eq!(
            number_ranges((0..20).step_by(2).collect()),
            "{0,2,4,6,8,10,…}"
        );
    }
}
