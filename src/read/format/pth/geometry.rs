//! A tensor as a view of a storage: offset, sizes and strides in elements, checked against the size of the storage.
//!
//! All three come from the pickle and are untrusted: products and sums are checked for overflow, and the last element
//! that the strides reach must be inside the storage.

use crate::base::error::{Error, Result};
use crate::base::kernel::Dtype;
use crate::read::catalog::{
    ByteRange, Encoding, Layout, Member, Packing, Shape, TensorInfo, elements, span_of,
};
use crate::read::format::pickle::globals::{Global, TorchDtype};
use crate::read::format::pickle::value_heap::{PickleValue, ValueHeap, ValueId};

use super::storage::{Storage, item_bytes, non_negative};

/// Reads sizes or strides: a tuple or list of counts, or `torch.Size` of one.
pub(in crate::read::format) fn dims(
    heap: &ValueHeap<'_>,
    id: ValueId,
    what: &str,
) -> Result<Shape> {
    let inner = match heap.get(id) {
        PickleValue::Call(index) => match heap.call(index) {
            call if call.callee == PickleValue::Global(Global::Size) => {
                heap.items(call.args).first().copied().unwrap_or(id)
            }
            _ => id,
        },
        _ => id,
    };
    let invalid = || {
        Error::malformed(format!(
            "the {what} of a tensor is not a tuple of non-negative integers"
        ))
    };
    let items = heap.sequence(inner).ok_or_else(invalid)?;
    // a shape that is not inline doubles as it grows
    let bytes = if items.len() > 4 { 24 * items.len() } else { 0 };
    heap.budget().memory(bytes as u64, "a tensor's shape")?;
    items
        .iter()
        .map(|&item| non_negative(heap, item).ok_or_else(invalid))
        .collect()
}

/// Offset, shape and strides of a tensor in its storage, in elements.
pub(super) struct StridedView {
    offset: u64,
    shape: Shape,
    /// In elements, one per dimension; [`dims`] reads them as it reads sizes.
    strides: Shape,
    /// Number of elements from the first to the last that the strides reach, both included; 0 if the tensor is empty.
    span: u64,
}

impl StridedView {
    #[inline]
    pub(super) fn parse(
        heap: &ValueHeap<'_>,
        offset: ValueId,
        size: ValueId,
        stride: ValueId,
    ) -> Result<Self> {
        let offset = non_negative(heap, offset).ok_or_else(|| {
            Error::malformed("the storage offset of a tensor is not a non-negative integer")
        })?;
        let shape = dims(heap, size, "size")?;
        let strides = dims(heap, stride, "stride")?;
        if shape.len() != strides.len() {
            return Err(Error::malformed(format!(
                "a tensor has {} sizes but {} strides",
                shape.len(),
                strides.len()
            )));
        }
        check_size(&shape)?;
        let span = span_of(&shape, &strides).ok_or_else(|| {
            Error::malformed("the extent of a tensor's strides does not fit in 64 bits")
        })?;
        Ok(Self {
            offset,
            shape,
            strides,
            span,
        })
    }

    /// Whether the elements are contiguous in row-major order. The stride of a dimension of size 1 is never used, and
    /// PyTorch writes any value there.
    fn row_major(&self) -> bool {
        let mut expected = 1;
        for (&size, &stride) in self.shape.iter().zip(&self.strides).rev() {
            if size != 1 && stride != expected {
                return false;
            }
            expected *= size; // fits: `check_size` checked the product
        }
        true
    }

    /// The tensor at its bytes in the storage. An empty tensor may have any offset, because it reads no bytes.
    #[inline]
    pub(super) fn locate(
        self,
        storage: &Storage,
        member: &Member,
        dtype: TorchDtype,
    ) -> Result<TensorInfo> {
        let (item, per_item) = (item_bytes(dtype)?, dtype.elements_per_item());
        // a storage may end with a part of an item, which no tensor can use
        let held = (storage.nbytes / item).saturating_mul(per_item);
        let end = self.offset.checked_add(self.span);
        if self.span > 0 && end.is_none_or(|end| end > held) {
            return Err(Error::malformed(format!(
                "a tensor needs elements {} to {} of a storage of {held} elements",
                self.offset,
                end.map_or_else(|| "beyond 64 bits".to_owned(), |end| end.to_string()),
            )));
        }
        // an empty slice keeps its offset, which may be the end of the storage
        let empty = self.span == 0;
        let first = self.offset.min(held);
        let row_major = empty || self.row_major();
        // for these dtypes PyTorch counts the offset in bytes, so it reads other elements than were saved, and it does
        // not reorder by strides: there is no correct result to agree with
        if per_item > 1 && !(empty || row_major && first == 0) {
            return Err(Error::unsupported(format!(
                "a view of a part of a torch.{} tensor, whose codes share bytes, cannot be read, not even by PyTorch; dequantise the tensor before slicing it",
                dtype.name()
            )));
        }
        let lead = storage.start + first / per_item * item; // inside the storage: `first` is at most `held`
        let mut info = unplaced_tensor(self.shape, dtype)?;
        if storage.deflated {
            info.bytes = member.bytes;
            info.packing = Packing::Deflate {
                inflated: member.inflated,
                skip: lead,
            };
        } else {
            // from the first to the last element that the strides reach, so that a view of a large storage reads only
            // its own part
            info.bytes = ByteRange::new(
                member.bytes.start + lead,
                self.span.div_ceil(per_item) * item,
            );
        }
        if !row_major {
            if info.encoding.item_bytes().is_none() {
                return Err(Error::unsupported(format!(
                    "a strided view of a torch.{} tensor cannot be read",
                    dtype.name()
                )));
            }
            info.layout = Layout::Strided(self.strides.to_vec().into_boxed_slice());
        }
        info.endian = storage.endian;
        info.member = Some(storage.member);
        Ok(info)
    }
}

/// A tensor without name and byte range, which the caller fills in.
#[inline]
pub(in crate::read::format) fn unplaced_tensor(
    mut shape: Shape,
    dtype: TorchDtype,
) -> Result<TensorInfo> {
    let Some(plain) = dtype.dtype() else {
        return Err(Error::unsupported(format!(
            "tensors of torch.{} cannot be read",
            dtype.name()
        )));
    };
    if plain == Dtype::F4 {
        // PyTorch counts pairs of elements; safetensors and this library count elements
        let Some(last) = shape.last_mut() else {
            return Err(Error::unsupported(
                "a scalar of torch.float4_e2m1fn_x2 holds two numbers and has no shape in elements",
            ));
        };
        *last = last
            .checked_mul(2)
            .ok_or_else(|| Error::malformed("the size of a tensor exceeds 63 bits"))?;
    }
    check_size(&shape)?;
    // sizes are checked here, once, so that `TensorInfo::elements` cannot wrap later
    let info = TensorInfo::new("", shape, Encoding::Plain(plain), ByteRange::default());
    if info.encoding.nbytes(info.elements()).is_none() {
        return Err(Error::malformed("the size of a tensor exceeds 63 bits"));
    }
    Ok(info)
}

pub(super) fn check_size(shape: &[u64]) -> Result<()> {
    // as in PyTorch, the product of the other dimensions must fit even if one dimension is 0
    let product = shape
        .iter()
        .filter(|&&d| d != 0)
        .try_fold(1u64, |n, &d| n.checked_mul(d));
    match product.zip(elements(shape)) {
        Some((product, _)) if i64::try_from(product).is_ok() => Ok(()),
        _ => Err(Error::malformed("the size of a tensor exceeds 63 bits")),
    }
}
