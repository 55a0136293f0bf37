//! A tensor cut from a storage: offset, sizes and strides, all of which a file may lie about.

use smallvec::SmallVec;

use crate::Dtype;
use crate::catalog::{
    ByteRange, Encoding, Layout, Member, Packing, Shape, TensorInfo, elements, span_of,
};
use crate::error::{Error, Result};
use crate::format::pickle::heap::{Heap, Id, Value};
use crate::format::pickle::world::{Global, TorchDtype};

use super::storage::{Storage, count, item_bytes};

/// Sizes or strides: a tuple, a list, or a `torch.Size` of one.
pub(super) fn dims(heap: &Heap<'_>, id: Id, what: &str) -> Result<Shape> {
    let inner = match heap.get(id) {
        Value::Call(index) => match heap.call(index) {
            call if call.callee == Value::Global(Global::Size) => {
                heap.items(call.args).first().copied().unwrap_or(id)
            }
            _ => id,
        },
        _ => id,
    };
    let wrong = || Error::malformed(format!("a tensor whose {what} is not a tuple of counts"));
    let items = heap.sequence(inner).ok_or_else(wrong)?;
    heap.budget()
        .memory(size_of_val(items) as u64 * 2, "a tensor's shape")?;
    items
        .iter()
        .map(|&item| count(heap, item).ok_or_else(wrong))
        .collect()
}

/// What describes a tensor beside its dtype.
pub(super) struct Geometry {
    offset: u64,
    shape: Shape,
    strides: SmallVec<[u64; 4]>,
    /// Elements from the first to behind the last that the strides reach.
    span: u64,
}

impl Geometry {
    #[inline]
    pub(super) fn parse(heap: &Heap<'_>, offset: Id, size: Id, stride: Id) -> Result<Self> {
        let offset = count(heap, offset)
            .ok_or_else(|| Error::malformed("a tensor whose storage offset is no count"))?;
        let shape = dims(heap, size, "size")?;
        let strides = dims(heap, stride, "stride")?;
        if shape.len() != strides.len() {
            return Err(Error::malformed(format!(
                "a tensor with {} sizes and {} strides",
                shape.len(),
                strides.len()
            )));
        }
        check_size(&shape)?;
        let span = span_of(&shape, &strides)
            .ok_or_else(|| Error::malformed("a tensor whose strides reach beyond 64 bits"))?;
        Ok(Self {
            offset,
            shape,
            strides,
            span,
        })
    }

    /// C order without gaps. The stride of a dimension of one element is never used.
    fn row_major(&self) -> bool {
        let mut expected = 1;
        for (&size, &stride) in self.shape.iter().zip(&self.strides).rev() {
            if size != 1 && stride != expected {
                return false;
            }
            expected *= size; // the product fits: `check_size`
        }
        true
    }

    /// The tensor in a storage. An empty one may claim any offset: PyTorch takes no bytes for it.
    #[inline]
    pub(super) fn place(
        self,
        storage: &Storage,
        member: &Member,
        dtype: TorchDtype,
    ) -> Result<TensorInfo> {
        let (item, per_item) = (item_bytes(dtype)?, dtype.per_item());
        let held = (storage.nbytes / item).saturating_mul(per_item);
        let end = self.offset.checked_add(self.span);
        if self.span > 0 && end.is_none_or(|end| end > held) {
            return Err(Error::malformed(format!(
                "a tensor takes elements {} to {} of a storage that has {held}",
                self.offset,
                end.map_or_else(|| "beyond 64 bits".to_owned(), |end| end.to_string()),
            )));
        }
        let empty = self.span == 0;
        let first = self.offset.min(held);
        let row_major = empty || self.row_major();
        // PyTorch counts the offset in bytes there, so that it reads others, and brings no strides into order
        if per_item > 1 && !(empty || row_major && first == 0) {
            return Err(Error::unsupported(format!(
                "a view of a part of torch.{}, whose codes share bytes: PyTorch reads none; dequantise it before it is cut",
                dtype.name()
            )));
        }
        let lead = storage.start + first / per_item * item; // inside the storage
        let mut info = described(self.shape, dtype)?;
        if storage.deflated {
            info.bytes = member.bytes;
            info.packing = Packing::Deflate {
                inflated: member.inflated,
                skip: lead,
            };
        } else {
            info.bytes = ByteRange::new(
                member.bytes.start + lead,
                self.span.div_ceil(per_item) * item,
            );
        }
        if !row_major {
            if info.encoding.item_bytes().is_none() {
                return Err(Error::unsupported(format!(
                    "a strided view of torch.{}",
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

/// A tensor without a place: its name comes later.
#[inline]
pub(super) fn described(mut shape: Shape, dtype: TorchDtype) -> Result<TensorInfo> {
    let Some(plain) = dtype.dtype() else {
        return Err(Error::unsupported(format!(
            "tensors of torch.{}",
            dtype.name()
        )));
    };
    if plain == Dtype::F4 {
        // PyTorch counts pairs; everyone else counts elements
        let Some(last) = shape.last_mut() else {
            return Err(Error::unsupported(
                "a scalar of torch.float4_e2m1fn_x2, which is two numbers",
            ));
        };
        *last = last
            .checked_mul(2)
            .ok_or_else(|| Error::malformed("a tensor whose size is beyond 64 bits"))?;
    }
    check_size(&shape)?;
    let info = TensorInfo::new("", shape, Encoding::Plain(plain), ByteRange::default());
    if info.encoding.nbytes(info.elements()).is_none() {
        return Err(Error::malformed("a tensor whose size is beyond 64 bits"));
    }
    Ok(info)
}

fn check_size(shape: &[u64]) -> Result<()> {
    // as PyTorch: zeros do not excuse what the other dimensions multiply to
    let product = shape
        .iter()
        .filter(|&&d| d != 0)
        .try_fold(1u64, |n, &d| n.checked_mul(d));
    match product.zip(elements(shape)) {
        Some((product, _)) if i64::try_from(product).is_ok() => Ok(()),
        _ => Err(Error::malformed("a tensor whose size is beyond 64 bits")),
    }
}
