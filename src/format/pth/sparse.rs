//! Sparse tensors: `_rebuild_sparse_tensor(layout, data)`.

use crate::Dtype;
use crate::catalog::{Layout, Shape, Sparse, TensorInfo};
use crate::error::{Error, Result};
use crate::format::pickle::heap::{Heap, Id, Value};
use crate::format::pickle::world::Global;

use super::geometry::dims;
use super::rebuild::{Work, nowhere, wrong};

/// Kinds, and the names of their parts in PyTorch's order.
static KINDS: &[(&str, &[&str])] = &[
    ("sparse_coo", &["indices", "values"]),
    ("sparse_csr", &["crow_indices", "col_indices", "values"]),
    ("sparse_csc", &["ccol_indices", "row_indices", "values"]),
    ("sparse_bsr", &["crow_indices", "col_indices", "values"]),
    ("sparse_bsc", &["ccol_indices", "row_indices", "values"]),
];

/// `_get_layout('torch.sparse_coo')`.
pub(super) fn layout_name<'h>(heap: &'h Heap<'_>, args: &[Id]) -> Result<&'h str> {
    match args {
        [name] => heap.text_of(*name).ok_or_else(|| wrong("a layout")),
        _ => Err(wrong("a layout")),
    }
}

pub(super) fn rebuild(work: &Work<'_, '_, '_>, layout: Id, data: Id) -> Result<TensorInfo> {
    let heap = work.heap;
    let name = match heap.get(layout) {
        Value::Call(index) if heap.call(index).callee == Value::Global(Global::GetLayout) => {
            layout_name(heap, heap.items(heap.call(index).args))?
        }
        _ => return Err(wrong("a sparse tensor")),
    };
    let kind = KINDS
        .iter()
        .find(|(kind, _)| name.strip_prefix("torch.") == Some(kind));
    let &(kind, names) =
        kind.ok_or_else(|| Error::malformed("a sparse tensor of an unknown layout"))?;
    let data = heap
        .sequence(data)
        .ok_or_else(|| wrong("a sparse tensor"))?;
    let coo = kind == "sparse_coo";
    let (parts, size) = match data {
        // a COO tensor may also say whether its indices are in order
        [parts @ .., size, _] if coo && data.len() == names.len() + 2 => (parts, *size),
        [parts @ .., size] if data.len() == names.len() + 1 => (parts, *size),
        _ => return Err(wrong("a sparse tensor")),
    };
    let parts: Vec<TensorInfo> = parts
        .iter()
        .zip(names)
        .map(|(&part, name)| work.part(part, name))
        .collect::<Result<_>>()?;
    let shape = dims(heap, size, "size")?;
    check(coo, &shape, &parts)?;
    let values = parts.last().expect("each kind has values");
    let mut info = TensorInfo::new("", shape, values.encoding.clone(), nowhere(values));
    info.layout = Layout::Sparse(Box::new(Sparse { kind, parts }));
    Ok(info)
}

/// What can be seen without reading the indices: their dtype, and how many there are.
fn check(coo: bool, shape: &Shape, parts: &[TensorInfo]) -> Result<()> {
    let wrong = || Error::malformed("a sparse tensor whose indices and values do not fit together");
    let (values, indices) = parts.split_last().ok_or_else(wrong)?;
    let whole = |part: &TensorInfo| {
        matches!(
            part.encoding,
            crate::Encoding::Plain(Dtype::I64 | Dtype::I32)
        )
    };
    if !indices.iter().all(whole) || crate::catalog::elements(shape).is_none() {
        return Err(wrong());
    }
    let stored = values.shape.first().copied();
    let fits = if coo {
        match indices[0].shape[..] {
            [dims, n] => {
                stored == Some(n)
                    && dims.checked_add(values.shape.len() as u64 - 1) == Some(shape.len() as u64)
            }
            _ => false,
        }
    } else {
        shape.len() >= 2 && values.shape.len() + 1 >= shape.len()
    };
    if fits { Ok(()) } else { Err(wrong()) }
}
