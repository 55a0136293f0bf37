//! Rust types that elements can be viewed as.

use crate::base::kernel::Dtype;

mod sealed {
    /// Any bits are a valid value. Sealed, so that the crate that defines this property can be replaced.
    pub trait Viewable: bytemuck::AnyBitPattern {}

    impl<T: bytemuck::AnyBitPattern> Viewable for T {}
}

/// A Rust type that [`Tensor::view`](super::Tensor::view) can view elements as.
pub trait Element: sealed::Viewable {
    /// The dtype whose elements have this type's bits.
    const DTYPE: Dtype;
}

macro_rules! elements {
    ($($ty:ty => $dtype:ident),* $(,)?) => { $(impl Element for $ty { const DTYPE: Dtype = Dtype::$dtype; })* };
}
elements! {
    u8 => U8, i8 => I8, u16 => U16, i16 => I16, u32 => U32, i32 => I32, u64 => U64, i64 => I64,
    f32 => F32, f64 => F64, half::f16 => F16, half::bf16 => BF16,
}
