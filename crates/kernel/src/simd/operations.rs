//! How a token's operations are defined.

#![allow(unsafe_code)] // calls to functions with a target feature, proved by the token; see CONVENTIONS.md

/// Defines operations of a token, each compiled with the token's target features.
///
/// An intrinsic is inlined only into a function with its features, and a trait method cannot have any. So each operation is
/// an `#[inline(always)]` method around an inner function of the same name that has the features. The method is inlined
/// into the kernel, whose build has the features too, and then the inner function is.
macro_rules! operations {
    ($features:literal; $(fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $result:ty)? $body:block)*) => {$(
        #[inline(always)]
        #[allow(unsafe_code)]
        fn $name(self, $($arg: $type),*) $(-> $result)? {
            #[inline]
            #[target_feature(enable = $features)]
            fn $name($($arg: $type),*) $(-> $result)? $body
            // SAFETY: `self` is a token, which only a function with these features enabled can make (`new`). So this
            // machine has them.
            unsafe { $name($($arg),*) }
        }
    )*};
}
pub(crate) use operations;

/// Defines [`Simd::outline`](super::Simd::outline) with the target features of a token. `$token` is the token that stages
/// run with: it may be another one whose features are among those, so that both share the compiled stages.
macro_rules! outline {
    ($features:literal, $token:expr) => {
        #[inline(always)]
        #[allow(unsafe_code)]
        fn outline<T: $crate::simd::Stage>(self, stage: T) {
            #[inline(never)]
            #[target_feature(enable = $features)]
            fn outlined<S: Simd, T: $crate::simd::Stage>(simd: S, stage: T) {
                stage.run(simd);
            }
            // SAFETY: `self` is a token, as above
            unsafe { outlined($token, stage) }
        }
    };
}
pub(crate) use outline;
