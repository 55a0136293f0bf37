//! The tree that a pickle built, as a list: tensors and metadata under dotted names.
//!
//! The walk keeps its own stack. A value may be reached by many paths, and each path is a name: what
//! that costs is charged as it is spent, so that ten levels of ten references end in a limit.

use crate::catalog::{Catalog, Refused, TensorInfo, quote};
use crate::error::{Error, Result};
use crate::format::pickle::heap::{Heap, Id, Value};
use crate::metadata;

use super::leaf::{key_len, leaf, write_key};
use super::rebuild::{Made, Rebuilt};
use super::subclass::{self, Subclass};

/// A container that is being walked through.
struct Frame<'h> {
    id: Id,
    children: &'h [Id],
    /// Whether `children` are keys and values by turns.
    keyed: bool,
    next: usize,
    /// Length of the container's own name.
    name_len: usize,
}

struct Walk<'h, 'b, 'c> {
    heap: &'h Heap<'b>,
    rebuilt: &'c Rebuilt,
    /// Name and tensor, an index into [`Rebuilt::tensors`], in the order of the walk.
    named: Vec<(Box<str>, usize)>,
    catalog: &'c mut Catalog,
    path: String,
    frames: Vec<Frame<'h>>,
    /// Containers between the root and here, by value: a tree that contains itself is not followed.
    open: Vec<bool>,
}

const WHAT: &str = "the tree of the pickle";

/// Lists everything under `root` in `catalog`.
pub(super) fn flatten(
    heap: &Heap<'_>,
    root: Id,
    mut rebuilt: Rebuilt,
    catalog: &mut Catalog,
) -> Result<()> {
    let named = walk(heap, root, &rebuilt, catalog)?;
    // a tensor that has several names is copied for all but the last of them
    let mut last = vec![usize::MAX; rebuilt.tensors.len()];
    named
        .iter()
        .enumerate()
        .for_each(|(row, &(_, index))| last[index] = row);
    let mut tensors: Vec<_> = rebuilt.tensors.into_iter().map(Some).collect();
    catalog.tensors.reserve_exact(named.len());
    for (row, (name, index)) in named.into_iter().enumerate() {
        let info = if last[index] == row {
            tensors[index].take()
        } else {
            tensors[index].clone()
        };
        let info = info.expect("taken under its last name");
        catalog.tensors.push(TensorInfo { name, ..info });
    }
    catalog.warnings.append(&mut rebuilt.warnings);
    catalog.members = rebuilt.members;
    Ok(())
}

fn walk(
    heap: &Heap<'_>,
    root: Id,
    rebuilt: &Rebuilt,
    catalog: &mut Catalog,
) -> Result<Vec<(Box<str>, usize)>> {
    heap.budget().memory(heap.len() as u64, WHAT)?;
    let open = vec![false; heap.len()];
    let named = Vec::with_capacity(rebuilt.tensors.len().min(1024));
    let mut walk = Walk {
        heap,
        rebuilt,
        named,
        catalog,
        path: String::new(),
        frames: Vec::new(),
        open,
    };
    walk.visit(root)?;
    while let Some(frame) = walk.frames.last_mut() {
        let step = if frame.keyed { 2 } else { 1 };
        let position = frame.next / step;
        let (key, child) = match frame.children.get(frame.next..frame.next + step) {
            Some(&[key, value]) => (Some(key), value),
            Some(&[item]) => (None, item),
            _ => {
                walk.open[frame.id.index()] = false;
                walk.frames.pop();
                continue;
            }
        };
        frame.next += step;
        walk.path.truncate(frame.name_len);
        if walk.frames.len() > 1 {
            walk.path.push('.');
        }
        let cost = key.map_or(0, |key| key_len(heap, key)) as u64 / 64;
        heap.budget().steps(1 + cost, WHAT)?;
        match key {
            Some(key) => write_key(heap, key, position, &mut walk.path),
            None => {
                use std::fmt::Write;
                write!(walk.path, "{position}").expect("writing to a string");
            }
        }
        walk.visit(child)?;
    }
    Ok(walk.named)
}

impl<'h> Walk<'h, '_, '_> {
    fn visit(&mut self, id: Id) -> Result<()> {
        let heap = self.heap;
        let Some((id, made)) = self.settle(id)? else {
            return Ok(());
        };
        match made {
            Some(&Made::Tensor(index)) => return self.tensor(index),
            Some(Made::Shown(value)) => return self.show(value.clone()),
            Some(Made::Refused(why)) => return self.refused(&why.clone()),
            Some(Made::Subclass(tensor)) => return self.subclass(&tensor.clone()),
            _ => {}
        }
        if let Some(value) = leaf(heap, id)? {
            return self.show(value);
        }
        let (children, keyed) = match heap.get(id) {
            Value::Tuple(span) => (heap.items(span), false),
            Value::List(index) | Value::Set(index) => (heap.open(index), false),
            Value::Dict { items, .. } => (heap.open(items), true),
            _ => return Ok(()),
        };
        if !keyed && let Some(list) = self.list(children)? {
            return self.show(list);
        }
        if self.open[id.index()] {
            if self.catalog.warnings.len() < 16 {
                self.catalog.warnings.push(format!(
                    "{} contains itself: not followed",
                    quote(&self.path)
                ));
            }
            return Ok(());
        }
        heap.budget().depth(self.frames.len() as u64 + 1, WHAT)?;
        heap.budget().memory(size_of::<Frame<'_>>() as u64, WHAT)?;
        self.open[id.index()] = true;
        self.frames.push(Frame {
            id,
            children,
            keyed,
            next: 0,
            name_len: self.path.len(),
        });
        Ok(())
    }

    /// Follows marks and objects to what they hold. An empty object, or one that only holds itself,
    /// is nothing.
    fn settle(&self, mut id: Id) -> Result<Option<(Id, Option<&Made>)>> {
        let mut hops = 0;
        loop {
            let Value::Call(index) = self.heap.get(id) else {
                return Ok(Some((id, None)));
            };
            match &self.rebuilt.made[index as usize] {
                Made::Same(inner) | Made::Object(Some(inner)) => id = *inner,
                Made::Object(None) => return Ok(None),
                made => return Ok(Some((id, Some(made)))),
            }
            hops += 1;
            self.heap.budget().depth(hops, WHAT)?;
            if hops > 1000 {
                return Err(Error::malformed("an object that holds only itself"));
            }
        }
    }

    /// A list of nothing but numbers, text and the like, as one value.
    fn list(&self, children: &[Id]) -> Result<Option<metadata::Value>> {
        let plain = |id: &Id| {
            matches!(
                self.heap.get(*id),
                Value::None | Value::Bool(_) | Value::Int(_) | Value::Float(_) | Value::Text(_)
            )
        };
        let plain_len = children.iter().take_while(|id| plain(id)).count();
        self.heap.budget().steps(plain_len as u64, WHAT)?;
        if plain_len < children.len() {
            return Ok(None);
        }
        let bytes = children.len() * size_of::<metadata::Value>();
        self.heap.budget().memory(bytes as u64, "the metadata")?;
        let values: Result<Vec<_>> = children
            .iter()
            .filter_map(|&id| leaf(self.heap, id).transpose())
            .collect();
        Ok(Some(metadata::Value::List(values?.into_boxed_slice())))
    }

    fn show(&mut self, value: metadata::Value) -> Result<()> {
        let bytes = self.path.len() + 2 * size_of::<(Box<str>, metadata::Value)>();
        self.heap.budget().memory(bytes as u64, "the metadata")?;
        self.catalog.metadata.push(&*self.path, value);
        Ok(())
    }

    fn refused(&mut self, why: &str) -> Result<()> {
        self.heap.budget().tensors(1)?;
        let bytes = self.path.len() + why.len() + size_of::<Refused>();
        self.heap
            .budget()
            .memory(bytes as u64, "the list of tensors")?;
        self.catalog.refused.push(Refused {
            name: (&*self.path).into(),
            reason: why.into(),
        });
        Ok(())
    }

    /// A tensor that is several: each under a name of its own, and what they are under this one.
    fn subclass(&mut self, tensor: &Subclass) -> Result<()> {
        self.heap
            .budget()
            .memory((tensor.room() + self.path.len()) as u64, "the metadata")?;
        self.show(metadata::Value::text(tensor.said()))?;
        let prefix = subclass::prefix(&self.path);
        let whole = std::mem::replace(&mut self.path, prefix.clone());
        for (name, index) in &tensor.parts {
            self.path.truncate(prefix.len());
            self.path.push_str(name);
            self.tensor(*index)?;
        }
        self.path = whole;
        Ok(())
    }

    fn tensor(&mut self, index: usize) -> Result<()> {
        let info = &self.rebuilt.tensors[index];
        self.heap.budget().tensors(1)?;
        // the name, the strides, and the parts of those that have any
        let parts = if info.quantizer.is_some() || matches!(info.layout, crate::Layout::Sparse(_)) {
            4
        } else {
            0
        };
        let more = self.path.len() + info.shape.len() * 16 + parts * size_of::<TensorInfo>();
        self.heap
            .budget()
            .memory(more as u64, "the list of tensors")?;
        self.named.push(((&*self.path).into(), index));
        Ok(())
    }
}
