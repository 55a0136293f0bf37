//! Flattens the tree of containers that a pickle builds into a list of tensors and metadata under dotted names.
//!
//! `{"model": {"weight": t}}` becomes `model.weight`; items of lists and tuples are named by their position. Two tensors can
//! have one such name: in `{"a": {"b": t}, "a.b": u}`, or where keys are `1` and `"1"`. Their names, and no others, are then
//! spelt with quotes around each key that contains a dot or could be of another type: `a.b` and `"a.b"`.
//!
//! The walk uses an explicit stack, because the file controls the depth. A value may be reached by many paths, and each
//! path is a name of its own: ten levels of ten shared references are 10^10 names from a few hundred bytes. Each step
//! is therefore charged to the budget before it is taken.

use std::borrow::Cow;

use crate::base::error::{Error, Result};
use crate::base::limits::text_cost;
use crate::base::note::Note;
use crate::read::catalog::metadata;
use crate::read::catalog::{Catalog, Refused, TensorInfo, quote};
use crate::read::format::pickle::value_heap::{PickleValue, ValueHeap, ValueId};

use super::attributes::attributes;
use super::not_shown::NotShown;
use super::open_container::{ChildName, ContainerKind, OpenContainer};
use super::plain_values::{key_len, leaf};
use super::rebuild::opaque;
use super::rebuild::subclass::{self, TensorSubclass};
use super::rebuild::{CallResult, RebuiltTensors};

struct TreeWalk<'h, 'b, 'c> {
    heap: &'h ValueHeap<'b>,
    rebuilt: &'c RebuiltTensors,
    /// Name and tensor, an index into [`RebuiltTensors::tensors`], in the order of the walk.
    named: Vec<(Box<str>, usize)>,
    catalog: &'c mut Catalog,
    path: String,
    containers: Vec<OpenContainer<'h>>,
    not_shown: NotShown,
    /// Per value: whether it is on the current path. A container that contains itself is not entered again.
    on_path: Vec<bool>,
    /// The rows of `named` whose names are spelt with quotes, in order. Not empty in a repeated walk only.
    quoted: &'c [usize],
}

const TREE: &str = "the tree of the pickle";

/// Adds the tensors, the metadata and the refused tensors under `root` to the catalog.
pub(super) fn flatten(
    heap: &ValueHeap<'_>,
    root: ValueId,
    mut rebuilt: RebuiltTensors,
    catalog: &mut Catalog,
) -> Result<()> {
    let named = walk(heap, root, &rebuilt, &[], catalog)?;
    // for each tensor, its last name and itself until that is reached
    let _rows = heap.budget().temporary(
        (rebuilt.tensors.len() * size_of::<(usize, Option<TensorInfo>)>()) as u64,
        TREE,
    )?;
    // a tensor with several names is cloned for each name but the last, which takes it
    // a tensor of a state dict usually has one name, so that most are moved and few are cloned
    let mut last = vec![usize::MAX; rebuilt.tensors.len()];
    named
        .iter()
        .enumerate()
        .for_each(|(row, &(_, index))| last[index] = row);
    let tensors = std::mem::take(&mut rebuilt.tensors);
    let mut tensors: Vec<_> = tensors.into_iter().map(Some).collect();
    heap.budget()
        .reserve(&mut catalog.tensors, named.len(), "the list of tensors")?;
    for (row, (name, index)) in named.into_iter().enumerate() {
        let info = if last[index] == row {
            tensors[index].take()
        } else {
            tensors[index].clone()
        };
        let info = info.expect("taken under its last name");
        catalog.tensors.push(TensorInfo { name, ..info });
    }
    let warnings = std::mem::take(&mut rebuilt.warnings).into_iter();
    catalog.warnings.extend(warnings.map(Note::from));
    catalog
        .warnings
        .extend(opaque::warning(heap, &rebuilt.opaque).map(Note::from));
    catalog.members = std::mem::take(&mut rebuilt.members);
    distinguish_names(heap, root, &rebuilt, catalog)
}

/// Quoted names can equal names of other tensors, which are then quoted too: in this many rounds.
const QUOTING_ROUNDS: usize = 3;

/// Spells the names that several tensors have with quotes. A name that two tensors have even so is one key twice, and is
/// refused where the names of every format are checked.
fn distinguish_names(
    heap: &ValueHeap<'_>,
    root: ValueId,
    rebuilt: &RebuiltTensors,
    catalog: &mut Catalog,
) -> Result<()> {
    let budget = heap.budget();
    let mut quoted = Vec::new();
    for _ in 0..QUOTING_ROUNDS {
        if catalog.index_unique_names(budget)? {
            return Ok(());
        }
        let tensors = &catalog.tensors;
        let _rows = budget.temporary((3 * tensors.len() * size_of::<usize>()) as u64, TREE)?;
        let mut rows: Vec<usize> = (0..tensors.len()).collect();
        rows.sort_unstable_by(|&a, &b| tensors[a].name.cmp(&tensors[b].name));
        let before = quoted.len();
        rows.chunk_by(|&a, &b| tensors[a].name == tensors[b].name)
            .filter(|same| same.len() > 1)
            .for_each(|same| quoted.extend(same));
        quoted.sort_unstable();
        quoted.dedup();
        if quoted.len() == before {
            break;
        }
        // metadata and warnings come from the first walk
        let named = walk(heap, root, rebuilt, &quoted, &mut Catalog::new(""))?;
        for (tensor, (name, _)) in catalog.tensors.iter_mut().zip(named) {
            tensor.name = name;
        }
    }
    Ok(())
}

/// For each tensor that a call describes, its first row in the catalog.
pub(super) fn first_rows(
    heap: &ValueHeap<'_>,
    root: ValueId,
    rebuilt: &RebuiltTensors,
) -> Result<Vec<Option<u32>>> {
    let budget = heap.budget();
    budget.memory(
        (rebuilt.tensors.len() * size_of::<Option<u32>>()) as u64,
        TREE,
    )?;
    let mut rows = vec![None; rebuilt.tensors.len()];
    let named = walk(heap, root, rebuilt, &[], &mut Catalog::new(""))?;
    for (row, (_, index)) in (0u32..).zip(named) {
        rows[index].get_or_insert(row);
    }
    Ok(rows)
}

fn walk(
    heap: &ValueHeap<'_>,
    root: ValueId,
    rebuilt: &RebuiltTensors,
    quoted: &[usize],
    catalog: &mut Catalog,
) -> Result<Vec<(Box<str>, usize)>> {
    heap.budget().memory(heap.len() as u64, TREE)?;
    let on_path = vec![false; heap.len()];
    let mut walk = TreeWalk {
        heap,
        rebuilt,
        named: Vec::new(),
        catalog,
        path: String::new(),
        containers: Vec::new(),
        not_shown: NotShown::default(),
        on_path,
        quoted,
    };
    walk.visit(root, true)?;
    while let Some(container) = walk.containers.last_mut() {
        let Some(child) = container.next_child(heap) else {
            walk.on_path[container.id.index()] = false;
            walk.containers.pop();
            continue;
        };
        let (name, is_root) = (container.current, container.is_root);
        // one buffer for all names: the path of a container is a prefix of its children's names
        walk.path.truncate(container.name_len);
        let is_named = !matches!(name, ChildName::None);
        walk.append(name, is_named && !is_root)?;
        walk.visit(child, is_root && !is_named)?;
    }
    let warning = walk.not_shown.warning();
    walk.catalog.warnings.extend(warning.map(Note::from));
    Ok(walk.named)
}

/// Bytes of a position and a dot; of keys that are not text, more than [`key_len`] says.
const SHORT_KEY: usize = 64;

impl<'h> TreeWalk<'h, '_, '_> {
    /// Appends a name to the path, behind a dot if `dotted`. Every node passes here: a call each is .2 % of an opening.
    #[inline(always)]
    fn append(&mut self, name: ChildName, dotted: bool) -> Result<()> {
        // a step stands for constant work; copying a long key is charged as one step per 64 bytes
        let key_len = match name {
            ChildName::Key(key, _) => key_len(self.heap, key),
            _ => 0,
        };
        self.heap.budget().steps(1 + key_len as u64 / 64, TREE)?;
        self.reserve_path(key_len + SHORT_KEY)?;
        if dotted {
            self.path.push('.');
        }
        name.write(self.heap, false, &mut self.path);
        Ok(())
    }

    /// Makes room for `n` more bytes of the path, and charges it. A key can be a part of many paths.
    fn reserve_path(&mut self, n: usize) -> Result<()> {
        let room = self.path.capacity() - self.path.len();
        if room < n {
            let more = n.max(self.path.capacity());
            self.heap.budget().memory(more as u64, TREE)?;
            self.path.reserve_exact(more);
        }
        Ok(())
    }

    /// Adds a value to the lists, or opens it if it is a container. `is_root` is as in [`OpenContainer`].
    fn visit(&mut self, id: ValueId, is_root: bool) -> Result<()> {
        let heap = self.heap;
        let tensor = id;
        let Some((id, made)) = self.resolve(id)? else {
            let text = metadata::Value::text("an object without state");
            return self.add_not_shown("objects without state", text);
        };
        match made {
            Some(&CallResult::Tensor(index)) => {
                self.add_tensor(index, None)?;
                return self.add_attributes(tensor);
            }
            Some(CallResult::Metadata(value)) => {
                heap.budget().memory(value.memory(), "the metadata")?;
                return self.add_metadata(value.clone());
            }
            Some(CallResult::NotShown(what, value)) => {
                return self.add_not_shown(what, value.clone());
            }
            Some(CallResult::Refused(why)) => return self.add_refused(&why.clone()),
            Some(CallResult::Subclass(tensor)) => return self.add_subclass(&tensor.clone()),
            _ => {}
        }
        if let PickleValue::Persistent(_) = heap.get(id) {
            let text = metadata::Value::text("a storage");
            return self.add_not_shown("storages without a tensor", text);
        }
        if let Some(value) = leaf(heap, id)? {
            return self.add_metadata(value);
        }
        let (children, kind) = match heap.get(id) {
            PickleValue::Tuple(span) => (heap.items(span), ContainerKind::Items),
            PickleValue::List(index) | PickleValue::Set(index) => {
                (heap.container(index), ContainerKind::Items)
            }
            PickleValue::Dict { items, .. } => (heap.container(items), ContainerKind::Keyed),
            PickleValue::Call(index) => {
                let call = heap.call(index);
                let Some(name) = call.opaque() else {
                    return Ok(());
                };
                let class = heap.text(name);
                heap.budget().text(class.len(), "the metadata")?;
                self.add_metadata(metadata::Value::text(class))?;
                let parts = ContainerKind::Opaque {
                    state: call.state,
                    items: call.items,
                };
                (heap.items(call.args), parts)
            }
            _ => return Ok(()),
        };
        // an optimiser numbers its parameters in lists of thousands of integers, which would bury the tensors as one
        // value each
        if matches!(kind, ContainerKind::Items)
            && let Some(list) = self.plain_list(children)?
        {
            return self.add_metadata(list);
        }
        // only the current path matters: a value that is reached again by another path is listed again
        if self.on_path[id.index()] {
            // a few suffice: a file may have any number of such containers
            if self.catalog.warnings.len() < 16 {
                self.catalog.warnings.push(Note::from(format!(
                    "container {} contains itself; the inner occurrence is not listed",
                    quote(&self.path)
                )));
            }
            return Ok(());
        }
        heap.budget()
            .depth(self.containers.len() as u64 + 1, TREE)?;
        self.on_path[id.index()] = true;
        let container = OpenContainer {
            id,
            kind,
            children,
            next: 0,
            current: ChildName::None,
            is_root,
            name_len: self.path.len(),
        };
        heap.budget().push(&mut self.containers, container, TREE)
    }

    /// Follows type marks and objects to the value that they hold. `None`: an object without state.
    fn resolve(&self, mut id: ValueId) -> Result<Option<(ValueId, Option<&CallResult>)>> {
        let mut hops = 0;
        loop {
            let PickleValue::Call(index) = self.heap.get(id) else {
                return Ok(Some((id, None)));
            };
            match &self.rebuilt.results[index as usize] {
                CallResult::PassThrough(inner) | CallResult::Object(Some(inner)) => id = *inner,
                CallResult::Object(None) => return Ok(None),
                made => return Ok(Some((id, Some(made)))),
            }
            hops += 1;
            self.heap.budget().depth(hops, TREE)?;
            // `Limits::none` allows any depth, and a cycle of marks would never end
            if hops > 1000 {
                return Err(Error::malformed(
                    "an object is wrapped more than 1000 times or contains only itself",
                ));
            }
        }
    }

    /// A list of scalars and text only, as one metadata value; `None` if an item is a container, tensor or call.
    fn plain_list(&self, children: &[ValueId]) -> Result<Option<metadata::Value>> {
        // bytes, dtypes and other globals are not listed in a row: each becomes an entry of its own
        let plain = |id: &ValueId| {
            matches!(
                self.heap.get(*id),
                PickleValue::None
                    | PickleValue::Bool(_)
                    | PickleValue::Int(_)
                    | PickleValue::Float(_)
                    | PickleValue::Text(_)
            )
        };
        let plain_len = children.iter().take_while(|id| plain(id)).count();
        self.heap.budget().steps(plain_len as u64, TREE)?;
        if plain_len < children.len() {
            return Ok(None);
        }
        // a list that doubles as it grows
        let bytes = 2 * children.len().max(4) * size_of::<metadata::Value>();
        self.heap.budget().memory(bytes as u64, "the metadata")?;
        let values: Result<Vec<_>> = children
            .iter()
            .filter_map(|&id| leaf(self.heap, id).transpose())
            .collect();
        Ok(Some(metadata::Value::List(values?.into_boxed_slice())))
    }

    fn add_metadata(&mut self, value: metadata::Value) -> Result<()> {
        let budget = self.heap.budget();
        self.catalog
            .metadata
            .push_charged(&self.path, value, budget)
    }

    /// Adds the attributes of a tensor to the metadata, under its name.
    fn add_attributes(&mut self, tensor: ValueId) -> Result<()> {
        let heap = self.heap;
        let end = self.path.len();
        for items in attributes(heap, tensor)? {
            for (position, pair) in items.as_chunks::<2>().0.iter().enumerate() {
                let &[key, value] = pair;
                self.append(ChildName::Key(key, position), true)?;
                match leaf(heap, value)? {
                    Some(value) => self.add_metadata(value)?,
                    None => {
                        let text = metadata::Value::text("an object");
                        self.add_not_shown("attributes of tensors", text)?;
                    }
                }
                self.path.truncate(end);
            }
        }
        Ok(())
    }

    /// Counts a value that is not shown, and adds what it is to the metadata.
    fn add_not_shown(&mut self, what: &'static str, value: metadata::Value) -> Result<()> {
        self.not_shown.count(what, &self.path);
        let budget = self.heap.budget();
        budget.memory(value.memory(), "the metadata")?;
        self.add_metadata(value)
    }

    fn add_refused(&mut self, why: &str) -> Result<()> {
        const WHAT: &str = "the list of tensors";
        let budget = self.heap.budget();
        budget.tensors(1)?;
        budget.memory(text_cost(self.path.len()) + text_cost(why.len()), WHAT)?;
        let row = Refused {
            name: (&*self.path).into(),
            reason: why.into(),
        };
        budget.push(&mut self.catalog.refused, row, WHAT)
    }

    /// Adds the parts of a tensor subclass, each under its own name, and a description under the name of the whole.
    fn add_subclass(&mut self, tensor: &TensorSubclass) -> Result<()> {
        self.heap.budget().memory(
            (2 * tensor.memory() + 4 * self.path.len()) as u64,
            "the metadata",
        )?;
        self.add_metadata(metadata::Value::text(tensor.torchao_json()))?;
        tensor
            .parts
            .iter()
            .try_for_each(|(part, index)| self.add_tensor(*index, Some(part)))
    }

    /// Adds a tensor under the current path; or a part of it, under the name that torchao gives it.
    fn add_tensor(&mut self, index: usize, part: Option<&str>) -> Result<()> {
        const WHAT: &str = "the list of tensors";
        let budget = self.heap.budget();
        let quoted = self.quoted.binary_search(&self.named.len()).is_ok();
        let longest = match (quoted, part) {
            (false, None) => self.path.len(),
            // every character escaped, in a text that doubles as it grows
            _ => 8 * (self.path.len() + self.containers.len() + part.unwrap_or_default().len()),
        };
        budget.memory(text_cost(longest), WHAT)?;
        let whole = if quoted {
            self.quoted_path().into()
        } else {
            Cow::Borrowed(&*self.path)
        };
        let name = match part {
            Some(part) => (subclass::prefix(&whole) + part).into(),
            None => (*whole).into(),
        };
        // a repeated walk adds names only
        if let Some(info) = self.rebuilt.tensors.get(index) {
            budget.tensors(1)?;
            budget.memory(info.boxed_memory(), WHAT)?;
        }
        budget.push(&mut self.named, (name, index), WHAT)
    }

    /// The current path with quotes around each key that could be taken for several or for one of another type.
    fn quoted_path(&self) -> String {
        let mut path = String::new();
        for container in &self.containers {
            let name = container.current;
            if !matches!(name, ChildName::None) && !container.is_root {
                path.push('.');
            }
            name.write(self.heap, true, &mut path);
        }
        path
    }
}
