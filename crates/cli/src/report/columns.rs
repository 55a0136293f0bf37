//! The tensors as columns of small numbers. Tensors of one dtype, shape, role and scheme are of one kind, of which a model
//! has tens, so that a row is its node in the tree of names, its kind and its place in a file.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;

use anamnesis::Summary;
use anamnesis::inspect::{TensorSummary, WeightSummary};
use anamnesis::quote::{escape, is_hidden};
use serde::Serialize;

use super::names::{NameTree, components, tree};
use crate::output::tensors::{TensorNotes, name};
use crate::text::shortened;

/// Tensors that a page shows at most.
const MAX_TENSORS: usize = 120_000;
/// Bytes of text of the tensors that a page shows, before equal words are combined.
const MAX_TEXT: usize = 16 << 20;
/// Bytes of distinct words and kinds: names that have nothing in common are a page of two megabytes, where the names of a
/// hundred thousand experts need a few kilobytes.
const MAX_DISTINCT: usize = 700 << 10;
/// Bytes of a kind in its columns, besides its texts.
const KIND: usize = 64;
/// Characters of a name, and of a shape or note.
const MAX_NAME: usize = 240;
const MAX_WORD: usize = 120;

/// The tensors that a page shows, in the order of the tree of their names.
#[derive(Debug, Serialize)]
pub(super) struct TensorColumns {
    names: NameTree,
    kinds: TensorKinds,
    /// By tensor, the number of nodes from the one before.
    node: Vec<u32>,
    /// By tensor, an index into the kinds.
    kind: Vec<u32>,
    /// By tensor, an index into the files.
    file: Vec<u32>,
    /// By tensor, the bytes from the end of the tensor before that is in the same file; `null` where nothing is stored.
    gap: Vec<Option<i128>>,
    /// Tensors, elements and bytes that are not shown.
    omitted: [u64; 3],
    /// By tensor, its index in the summary.
    #[serde(skip)]
    rows: Vec<usize>,
}

/// Properties that tensors have in common, by kind.
#[derive(Debug, Default, Serialize)]
struct TensorKinds {
    dtype: Vec<String>,
    shape: Vec<String>,
    elements: Vec<u64>,
    nbytes: Vec<u64>,
    /// Elements of the weights of which the tensor holds the codes; 0 for scales and the like.
    weights: Vec<u64>,
    role: Vec<&'static str>,
    scheme: Vec<&'static str>,
    notes: Vec<String>,
}

/// A kind, by which equal ones are found.
#[derive(PartialEq, Eq, Hash)]
struct TensorKind {
    dtype: String,
    shape: String,
    elements: u64,
    nbytes: u64,
    weights: u64,
    role: &'static str,
    scheme: &'static str,
    notes: String,
}

/// The role of a tensor in the quantised weights that it is a part of.
#[derive(Clone, Copy)]
struct TensorRole {
    role: &'static str,
    scheme: &'static str,
    /// Elements of those weights, if it holds their codes.
    weights: u64,
}

impl TensorColumns {
    pub(super) fn new(summary: &Summary) -> Self {
        let roles = roles(&summary.weights);
        let notes = TensorNotes::new(&summary.tensors);
        let (shown, omitted) = shown(&summary.tensors);
        let names: Vec<String> = shown
            .iter()
            .map(|row| shortened(&name(&summary.tensors[*row].name), MAX_NAME))
            .collect();
        let ordered = tree(names.iter().map(String::as_str));
        let mut columns = Self {
            names: ordered.tree,
            kinds: TensorKinds::default(),
            node: Vec::with_capacity(shown.len()),
            kind: Vec::with_capacity(shown.len()),
            file: Vec::with_capacity(shown.len()),
            gap: Vec::with_capacity(shown.len()),
            omitted,
            rows: Vec::with_capacity(shown.len()),
        };
        let mut kinds = HashMap::new();
        let (mut last, mut ends) = (0, HashMap::new());
        for (node, index) in ordered.order {
            let row = shown[index];
            columns.rows.push(row);
            let tensor = &summary.tensors[row];
            columns.node.push(node - last);
            last = node;
            let kind = TensorKind::new(tensor, roles.get(tensor.name.as_str()), &notes);
            let next = kinds.len();
            let kind = *kinds.entry(kind).or_insert_with_key(|kind| {
                columns.kinds.push(kind);
                u32::try_from(next).expect("no more kinds than tensors")
            });
            columns.kind.push(kind);
            columns.file.push(tensor.file);
            columns.gap.push(tensor.offset.map(|offset| {
                let end = i128::from(offset) + i128::from(tensor.nbytes);
                // tensors follow each other in a file, so that most differences are 0 and compress well; i128 holds any
                // of two offsets
                i128::from(offset) - ends.insert(tensor.file, end).unwrap_or(0)
            }));
        }
        columns
    }

    /// Elements of all weights that are shown, as they are after dequantisation.
    pub(super) fn weights(&self) -> u64 {
        let kinds = self
            .kind
            .iter()
            .map(|kind| self.kinds.weights[*kind as usize]);
        kinds.fold(0, u64::saturating_add)
    }

    /// By tensor, its index in the summary.
    pub(super) fn rows(&self) -> &[usize] {
        &self.rows
    }

    /// Number of tensors that are not shown.
    pub(super) fn omitted(&self) -> u64 {
        self.omitted[0]
    }

    /// Whether all tensors are shown.
    pub(super) fn is_complete(&self) -> bool {
        self.omitted() == 0
    }
}

impl TensorKinds {
    fn push(&mut self, kind: &TensorKind) {
        self.dtype.push(kind.dtype.clone());
        self.shape.push(kind.shape.clone());
        self.elements.push(kind.elements);
        self.nbytes.push(kind.nbytes);
        self.weights.push(kind.weights);
        self.role.push(kind.role);
        self.scheme.push(kind.scheme);
        self.notes.push(kind.notes.clone());
    }
}

impl TensorKind {
    fn new(tensor: &TensorSummary, role: Option<&TensorRole>, notes: &TensorNotes) -> Self {
        // no escapes: a shape is digits
        let sizes = tensor.shape.iter().take(MAX_WORD).map(u64::to_string);
        let shape = sizes.collect::<Vec<_>>().join(" × ");
        let elements = tensor.elements();
        Self {
            dtype: shortened(&escape(&tensor.dtype), MAX_WORD),
            shape: shortened(&shape, MAX_WORD),
            elements,
            nbytes: tensor.nbytes,
            weights: role.map_or(elements, |role| role.weights),
            role: role.map_or("", |role| role.role),
            scheme: role.map_or("", |role| role.scheme),
            notes: shortened(&escape(&notes.of(tensor)), MAX_WORD),
        }
    }
}

/// The role of each part of a quantised weight, by its name.
fn roles(weights: &[WeightSummary]) -> HashMap<&str, TensorRole> {
    let mut roles = HashMap::new();
    for weight in weights {
        let Some(scheme) = weight.scheme else {
            continue; // refused: its tensors are shown as they are stored
        };
        let elements = weight
            .shape
            .iter()
            .try_fold(1u64, |n, size| n.checked_mul(*size));
        for (number, part) in weight.parts.iter().enumerate() {
            let role = roles.entry(part.name.as_str()).or_insert(TensorRole {
                role: part.role,
                scheme,
                weights: 0,
            });
            // the codes are the first part; one tensor may hold the codes of several weights
            if number == 0 {
                role.weights = role.weights.saturating_add(elements.unwrap_or(u64::MAX));
            }
        }
    }
    roles
}

/// The indices of the tensors to show: all of them, or the largest if there are too many for a page; and what is left out.
fn shown(tensors: &[TensorSummary]) -> (Vec<usize>, [u64; 3]) {
    let text = |tensor: &TensorSummary| {
        // names are cut by characters, and a character has up to four bytes
        tensor.name.len().min(4 * MAX_NAME) + (8 * tensor.shape.len()).min(4 * MAX_WORD)
    };
    let mut by_size: Vec<usize> = (0..tensors.len()).collect();
    by_size.sort_by_key(|index| std::cmp::Reverse(tensors[*index].nbytes));
    let (mut used, mut distinct) = (0, 0);
    let (mut words, mut kinds) = (HashSet::new(), HashSet::new());
    let fits = by_size.iter().take(MAX_TENSORS).take_while(|index| {
        let tensor = &tensors[**index];
        used += text(tensor);
        for word in components(&tensor.name) {
            distinct += if words.insert(word) {
                page_bytes(word)
            } else {
                0
            };
        }
        if kinds.insert((tensor.dtype.as_str(), &tensor.shape[..])) {
            distinct += KIND + tensor.dtype.len() + (8 * tensor.shape.len()).min(MAX_WORD);
        }
        used <= MAX_TEXT && distinct <= MAX_DISTINCT
    });
    let count = fits.count();
    let mut omitted = [0u64; 3];
    for tensor in by_size.split_off(count).into_iter().map(|i| &tensors[i]) {
        let sums = [1, tensor.elements(), tensor.nbytes];
        for (sum, n) in omitted.iter_mut().zip(sums) {
            *sum = sum.saturating_add(n);
        }
    }
    // back to the order of the summary, which the tree of names keeps
    by_size.sort_unstable();
    (by_size, omitted)
}

/// Bytes of a word in the data of the page, with quotes and comma, and of a node of the tree.
fn page_bytes(word: &str) -> usize {
    let bytes = |c: char| match c {
        '<' | '>' | '&' => r"\u003c".len(),
        '"' | '\\' => 2,
        c if is_hidden(c) => 1 + c.escape_default().len(),
        c => c.len_utf8(),
    };
    11 + word.chars().take(MAX_NAME).map(bytes).sum::<usize>()
}
