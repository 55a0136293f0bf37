//! Tensors as a tree of their dotted names. Numbered siblings that hold the same become one line.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt::Write as _;
use std::io::{self, Write};

use anamnesis::Summary;
use anamnesis::inspect::TensorSummary;

use super::table::{Column, Fit, Table};
use super::tensors::{Dims, Notes, name};
use super::text::{Bytes, clean, plural};
use super::{DIM, DTYPE, Screen};

/// Parts of a name that become levels; the rest of a longer name stays together.
const DEPTH: usize = 48;
/// Runs of numbers that a line lists before it gives only their count.
const RUNS: usize = 6;
/// Children that are looked through one by one.
const FEW: usize = 16;

#[derive(Default)]
struct Node<'s> {
    children: Vec<(&'s str, Node<'s>)>,
    /// Where each child is, once there are more than a look along the list finds quickly.
    by_name: HashMap<&'s str, usize>,
    tensor: Option<&'s TensorSummary>,
    tensors: u64,
    nbytes: u64,
    /// Equal for subtrees that look the same.
    kind: u32,
}

impl<'s> Node<'s> {
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
        // names mostly come in order: the last child is usually the next one
        if self.children.last().is_some_and(|(last, _)| *last == part) {
            return Some(self.children.len() - 1);
        }
        match self.children.len() {
            0..=FEW => self.children.iter().position(|(name, _)| *name == part),
            _ => self.by_name.get(part).copied(),
        }
    }

    fn add(&mut self, part: &'s str) -> usize {
        let at = self.children.len();
        self.children.push((part, Node::default()));
        match at + 1 {
            0..=FEW => {}
            n if n == FEW + 1 => self.by_name.extend(
                self.children
                    .iter()
                    .enumerate()
                    .map(|(i, (name, _))| (*name, i)),
            ),
            _ => drop(self.by_name.insert(part, at)),
        }
        at
    }

    /// Gives equal subtrees equal kinds, from the leaves up.
    fn classify(&mut self, kinds: &mut HashMap<Shape<'s>, u32>) {
        self.children
            .iter_mut()
            .for_each(|(_, child)| child.classify(kinds));
        let shape = Shape {
            tensor: self
                .tensor
                .map(|t| (t.dtype.as_str(), t.shape.as_slice(), t.layout, t.nbytes)),
            children: self
                .children
                .iter()
                .map(|(part, child)| (*part, child.kind))
                .collect(),
        };
        let next = u32::try_from(kinds.len()).unwrap_or(u32::MAX);
        self.kind = *kinds.entry(shape).or_insert(next);
    }
}

/// What makes two subtrees look the same.
#[derive(PartialEq, Eq, Hash)]
struct Shape<'s> {
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
    let mut root = Node::default();
    for tensor in &summary.tensors {
        root.insert(tensor.name.splitn(DEPTH, '.'), tensor);
    }
    root.classify(&mut HashMap::new());
    let columns = vec![
        Column::left("name").fit(Fit::Middle(32)),
        Column::left("dtype").style(DTYPE),
        Column::left("shape"),
        Column::right("bytes"),
        Column::left("notes").fit(Fit::End).style(DIM),
    ];
    let mut printer = Printer {
        table: Table::new(columns, 0),
        notes: Notes::new(&summary.tensors),
        all,
    };
    printer.children(&root, None);
    printer.table.print(screen, out)
}

struct Printer {
    table: Table,
    notes: Notes,
    all: bool,
}

impl Printer {
    /// The lines below a node. `front` is what stands before them, `None` at the root.
    fn children(&mut self, node: &Node<'_>, front: Option<&str>) {
        let groups = self.groups(node);
        for (i, members) in groups.iter().enumerate() {
            let last = i + 1 == groups.len();
            let (branch, below) = match (front, last) {
                (None, _) => (String::new(), String::new()),
                (Some(front), true) => (format!("{front}└─ "), format!("{front}   ")),
                (Some(front), false) => (format!("{front}├─ "), format!("{front}│  ")),
            };
            self.group(node, members, &branch, &below);
        }
    }

    /// Numbered children of one kind together, each other child alone; in order of first appearance.
    fn groups(&self, node: &Node<'_>) -> Vec<Vec<usize>> {
        let mut groups: Vec<Vec<usize>> = Vec::new();
        let mut of_kind: HashMap<u32, usize> = HashMap::new();
        for (i, (part, child)) in node.children.iter().enumerate() {
            if self.all || number(part).is_none() {
                groups.push(vec![i]);
                continue;
            }
            match of_kind.entry(child.kind) {
                Entry::Occupied(group) => groups[*group.get()].push(i),
                Entry::Vacant(free) => {
                    free.insert(groups.len());
                    groups.push(vec![i]);
                }
            }
        }
        groups
    }

    fn label(&self, parent: &Node<'_>, members: &[usize]) -> String {
        match members {
            [one] => name(parent.children[*one].0).into_owned(),
            several => numbers(
                several
                    .iter()
                    .filter_map(|i| number(parent.children[*i].0))
                    .collect(),
            ),
        }
    }

    fn group(&mut self, parent: &Node<'_>, members: &[usize], front: &str, below: &str) {
        let mut times = members.len() as u64;
        let mut label = self.label(parent, members);
        let mut node = &parent.children[members[0]].1;
        // what has one line below it shares that line
        while let (None, [only]) = (node.tensor, self.groups(node).as_slice()) {
            let _ = write!(label, ".{}", self.label(node, only));
            times *= only.len() as u64;
            node = &node.children[only[0]].1;
        }
        if times > 1 {
            let _ = write!(label, " ×{times}");
        }
        self.table.cell_after(front, label);
        match node.tensor {
            Some(tensor) => {
                self.table.cell(clean(&tensor.dtype));
                self.table.cell(Dims(&tensor.shape));
            }
            None => {
                self.table.cell("");
                let each = if times > 1 {
                    format!("{times} × ")
                } else {
                    String::new()
                };
                self.table
                    .cell(format_args!("{each}{}", plural(node.tensors, "tensor")));
            }
        }
        self.table.cell(Bytes(node.nbytes.saturating_mul(times)));
        match node.tensor {
            Some(tensor) if times == 1 => self.table.cell(self.notes.of(tensor)),
            Some(_) => self.table.cell(format_args!("{} each", Bytes(node.nbytes))),
            None => self.table.cell(""),
        }
        self.children(node, Some(below));
    }
}

/// The number that a part of a name is.
fn number(part: &str) -> Option<u64> {
    if part.is_empty()
        || !part.bytes().all(|b| b.is_ascii_digit())
        || (part.len() > 1 && part.starts_with('0'))
    {
        return None;
    }
    part.parse().ok()
}

/// Numbers as runs: `{0..3,8,11}`.
fn numbers(mut list: Vec<u64>) -> String {
    list.sort_unstable();
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for n in list {
        match runs.last_mut() {
            Some((_, end)) if *end + 1 == n => *end = n,
            _ => runs.push((n, n)),
        }
    }
    let mut out = String::from("{");
    for (i, (from, to)) in runs.iter().enumerate().take(RUNS) {
        let comma = if i > 0 { "," } else { "" };
        let _ = match to - from {
            0 => write!(out, "{comma}{from}"),
            1 => write!(out, "{comma}{from},{to}"),
            _ => write!(out, "{comma}{from}..{to}"),
        };
    }
    out.push_str(if runs.len() > RUNS { ",…}" } else { "}" });
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_listed_as_runs() {
        assert_eq!(numbers((0..32).collect()), "{0..31}");
        assert_eq!(numbers(vec![3, 0, 1, 11, 8, 2]), "{0..3,8,11}");
        assert_eq!(numbers(vec![0, 1]), "{0,1}");
        assert_eq!(numbers((0..20).step_by(2).collect()), "{0,2,4,6,8,10,…}");
    }
}
