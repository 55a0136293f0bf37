//! Sparse tensors: `_rebuild_sparse_tensor(layout, data)`, where `data` is the parts, then the shape.
//!
//! Source: `torch/_utils.py`. The parts (indices and values) are listed as tensors. Whether the indices are in range is
//! not checked here, because that reads all of them.

use crate::base::error::{Error, Result};
use crate::base::kernel::Dtype;
use crate::read::catalog::{Layout, Shape, Sparse, TensorInfo, quote};
use crate::read::format::pickle::globals::Global;
use crate::read::format::pickle::value_heap::{PickleValue, ValueHeap, ValueId};

use super::{CallInterpreter, no_bytes, unexpected_arguments};
use crate::read::format::pth::geometry::dims;

/// Layouts and the names of their parts, in the order of the arguments.
static LAYOUTS: &[(&str, &[&str])] = &[
    ("sparse_coo", &["indices", "values"]),
    ("sparse_csr", &["crow_indices", "col_indices", "values"]),
    ("sparse_csc", &["ccol_indices", "row_indices", "values"]),
    ("sparse_bsr", &["crow_indices", "col_indices", "values"]),
    ("sparse_bsc", &["ccol_indices", "row_indices", "values"]),
];

/// The name in a call such as `_get_layout('torch.sparse_coo')`.
pub(in crate::read::format::pth) fn layout_name<'h>(
    heap: &'h ValueHeap<'_>,
    args: &[ValueId],
) -> Result<&'h str> {
    match args {
        [name] => heap
            .text_of(*name)
            .ok_or_else(|| unexpected_arguments("a layout")),
        _ => Err(unexpected_arguments("a layout")),
    }
}

pub(in crate::read::format::pth) fn rebuild(
    interpreter: &CallInterpreter<'_, '_, '_>,
    layout: ValueId,
    data: ValueId,
) -> Result<TensorInfo> {
    let heap = interpreter.heap;
    let name = match heap.get(layout) {
        PickleValue::Call(index)
            if heap.call(index).callee == PickleValue::Global(Global::GetLayout) =>
        {
            layout_name(heap, heap.items(heap.call(index).args))?
        }
        _ => return Err(unexpected_arguments("a sparse tensor")),
    };
    let kind = LAYOUTS
        .iter()
        .find(|(kind, _)| name.strip_prefix("torch.") == Some(kind));
    let &(kind, names) =
        kind.ok_or_else(|| Error::malformed(format!("unknown sparse layout {}", quote(name))))?;
    let data = heap
        .sequence(data)
        .ok_or_else(|| unexpected_arguments("a sparse tensor"))?;
    let coo = kind == "sparse_coo";
    let (parts, size) = match data {
        // a COO tensor may have one more item: whether it is coalesced
        // `_rebuild_sparse_tensor` accepts both: older files lack the item
        [parts @ .., size, _] if coo && data.len() == names.len() + 2 => (parts, *size),
        [parts @ .., size] if data.len() == names.len() + 1 => (parts, *size),
        _ => return Err(unexpected_arguments("a sparse tensor")),
    };
    let parts: Vec<TensorInfo> = parts
        .iter()
        .zip(names)
        .map(|(&part, name)| interpreter.part_argument(part, name))
        .collect::<Result<_>>()?;
    let shape = dims(heap, size, "size")?;
    check(coo, &shape, &parts)?;
    let values = parts.last().expect("each kind has values");
    let mut info = TensorInfo::new("", shape, values.encoding.clone(), no_bytes(values));
    info.layout = Layout::Sparse(Box::new(Sparse { kind, parts }));
    Ok(info)
}

/// Checks the dtypes and shapes of the parts against the shape of the tensor.
fn check(coo: bool, shape: &Shape, parts: &[TensorInfo]) -> Result<()> {
    let unexpected_arguments = || {
        Error::malformed(
            "the dtypes or shapes of a sparse tensor's indices and values do not match its shape",
        )
    };
    let (values, indices) = parts.split_last().ok_or_else(unexpected_arguments)?;
    let whole = |part: &TensorInfo| {
        matches!(
            part.encoding,
            crate::read::catalog::Encoding::Plain(Dtype::I64 | Dtype::I32)
        )
    };
    if !indices.iter().all(whole) || crate::read::catalog::elements(shape).is_none() {
        return Err(unexpected_arguments());
    }
    let stored = values.shape.first().copied();
    let fits = if coo {
        match indices[0].shape[..] {
            [dims, n] => {
                // one column of indices per value; the dimensions are those that the indices address and those inside
                // a value
                stored == Some(n)
                    && dims.checked_add(values.shape.len() as u64 - 1) == Some(shape.len() as u64)
            }
            _ => false,
        }
    } else {
        // compressed layouts have two sparse dimensions; values have at least one dimension less than the tensor
        shape.len() >= 2 && values.shape.len() + 1 >= shape.len()
    };
    if fits {
        Ok(())
    } else {
        Err(unexpected_arguments())
    }
}
