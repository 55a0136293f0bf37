#![allow(unsafe_code)] // calling the build that was chosen, and what it is made of; see CONVENTIONS.md

//! Instruction sets, and the builds of a kernel for them.

use crate::dtype::Dtype;
use crate::error::{Error, Result};

/// An instruction set that kernels are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Isa {
    /// What the target has at least.
    Baseline,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "x86_64")]
    Avx512Bf16,
    #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
    Neon,
}

impl Isa {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Baseline => "baseline",
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => "avx512",
            #[cfg(target_arch = "x86_64")]
            Self::Avx512Bf16 => "avx512bf16",
            #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
            Self::Neon => "neon",
        }
    }

    /// Whether this machine can run it: exactly the features that `kernel!` enables.
    fn usable(self) -> bool {
        match self {
            Self::Baseline => true,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => {
                is_x86_feature_detected!("avx2")
                    && is_x86_feature_detected!("bmi2")
                    && is_x86_feature_detected!("f16c")
            }
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => {
                Self::Avx2.usable()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
            }
            #[cfg(target_arch = "x86_64")]
            Self::Avx512Bf16 => Self::Avx512.usable() && is_x86_feature_detected!("avx512bf16"),
            #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
            Self::Neon => std::arch::is_aarch64_feature_detected!("neon"),
        }
    }
}

/// Geometry and parts in, elements out.
pub(crate) type Decode<G> = unsafe fn(&G, &[&[u8]], &mut [u8]);

/// A kernel compiled for one instruction set, per output element.
pub(crate) struct Build<G: 'static> {
    pub(crate) isa: Isa,
    pub(crate) f32: Decode<G>,
    pub(crate) f16: Decode<G>,
    pub(crate) bf16: Decode<G>,
}

impl<G> Build<G> {
    /// Runs it.
    pub(crate) fn run(
        &self,
        dtype: Dtype,
        geometry: &G,
        parts: &[&[u8]],
        out: &mut [u8],
    ) -> Result<()> {
        assert!(self.isa.usable(), "a build for another machine");
        let decode = match dtype {
            Dtype::F32 => self.f32,
            Dtype::F16 => self.f16,
            Dtype::BF16 => self.bf16,
            other => {
                return Err(Error::Misfit(format!(
                    "kernels give F32, F16 or BF16, not {other}"
                )));
            }
        };
        // SAFETY: the function is safe but for needing its instruction set, which the assertion above
        // has seen on this machine.
        unsafe { decode(geometry, parts, out) };
        Ok(())
    }
}

/// All builds of a kernel, fastest first; the last one runs everywhere.
///
/// `G` is what a kernel needs to know besides the bytes of its parts: `()` for the block types.
pub(crate) struct Kernel<G: 'static = ()> {
    pub(crate) builds: &'static [Build<G>],
}

impl<G> Kernel<G> {
    pub(crate) fn usable(&self) -> impl Iterator<Item = &'static Build<G>> + use<G> {
        self.builds.iter().filter(|build| build.isa.usable())
    }

    pub(crate) fn best(&self) -> &'static Build<G> {
        self.usable().next().expect("the baseline runs everywhere")
    }
}

/// Compiles a body for each instruction set.
///
/// `kernel!(body)` takes an `#[inline(always)] fn body<S: Lanes, O: Element>(s: S, blocks: &[u8], out: &mut [u8])`;
/// `kernel!(body, Geometry)` one with `(s: S, geometry: &Geometry, parts: &[&[u8]], out: &mut [u8])`, whose caller
/// has checked that the geometry, the parts and the output fit each other.
///
/// Whatever the body calls must be `#[inline(always)]` too: else it is compiled for the baseline. A closure cannot be, so
/// none does anything with lanes or with many elements: loops and [`each`] stand in their place. Whether all of it was put in
/// its place does not show in the results, but in the guard's counts.
macro_rules! kernel {
    ($body:ident) => {
        $crate::kernel!(@builds (), |s, _geometry, parts, out| {
            for blocks in parts {
                $body::<_, O>(s, blocks, out);
            }
        });
    };
    ($body:ident, $geometry:ty) => {
        $crate::kernel!(@builds $geometry, |s, geometry, parts, out| $body::<_, O>(s, geometry, parts, out));
    };
    (@builds $geometry:ty, |$s:ident, $g:ident, $parts:ident, $out:ident| $call:expr) => {
        pub(crate) static KERNEL: $crate::Kernel<$geometry> = {
            use $crate::element::{Bf16, Element, F16, F32};
            use $crate::isa::{Build, Isa};
            use $crate::lanes::Baseline;
            #[cfg(target_arch = "x86_64")]
            use $crate::lanes::{Avx2, Avx512, Avx512Bf16};
            #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
            use $crate::lanes::Neon;

            fn baseline<O: Element>($g: &$geometry, $parts: &[&[u8]], $out: &mut [u8]) {
                let $s = Baseline;
                $call;
            }

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,bmi2,f16c")]
            fn avx2<O: Element>($g: &$geometry, $parts: &[&[u8]], $out: &mut [u8]) {
                let $s = Avx2::here();
                $call;
            }

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,bmi2,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
            fn avx512<O: Element>($g: &$geometry, $parts: &[&[u8]], $out: &mut [u8]) {
                let $s = Avx512::here();
                $call;
            }

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,bmi2,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
            fn avx512bf16<O: Element>($g: &$geometry, $parts: &[&[u8]], $out: &mut [u8]) {
                let $s = Avx512Bf16::here();
                $call;
            }

            #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
            #[target_feature(enable = "neon")]
            fn neon<O: Element>($g: &$geometry, $parts: &[&[u8]], $out: &mut [u8]) {
                let $s = Neon::here();
                $call;
            }

            $crate::Kernel {
                builds: &[
                    #[cfg(target_arch = "x86_64")]
                    Build {
                        isa: Isa::Avx512Bf16,
                        // the others have no use for it
                        f32: avx512::<F32>,
                        f16: avx512::<F16>,
                        bf16: avx512bf16::<Bf16>,
                    },
                    #[cfg(target_arch = "x86_64")]
                    Build { isa: Isa::Avx512, f32: avx512::<F32>, f16: avx512::<F16>, bf16: avx512::<Bf16> },
                    #[cfg(target_arch = "x86_64")]
                    Build { isa: Isa::Avx2, f32: avx2::<F32>, f16: avx2::<F16>, bf16: avx2::<Bf16> },
                    #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
                    Build { isa: Isa::Neon, f32: neon::<F32>, f16: neon::<F16>, bf16: neon::<Bf16> },
                    Build { isa: Isa::Baseline, f32: baseline::<F32>, f16: baseline::<F16>, bf16: baseline::<Bf16> },
                ],
            }
        };
    };
}
pub(crate) use kernel;

/// `map` over what is listed, written out: a closure would be a function of its own, which the compiler may not put
/// where it is called.
macro_rules! each {
    ($x:pat in [$($item:expr),+ $(,)?] => $body:expr) => {[$({
        let $x = $item;
        $body
    }),+]};
}
pub(crate) use each;

/// Writes a token's operations, each as a function that is compiled with the token's features.
#[cfg(any(
    target_arch = "x86_64",
    all(target_arch = "aarch64", target_endian = "little")
))]
macro_rules! primitives {
    ($features:literal; $(fn $name:ident($($arg:ident: $type:ty),*) $(-> $result:ty)? $body:block)*) => {$(
        #[inline(always)]
        #[allow(unsafe_code)]
        fn $name(self, $($arg: $type),*) $(-> $result)? {
            #[inline]
            #[target_feature(enable = $features)]
            fn $name($($arg: $type),*) $(-> $result)? $body
            // SAFETY: `self` was made where these features are enabled, so this machine has them.
            unsafe { $name($($arg),*) }
        }
    )*};
}
#[cfg(any(
    target_arch = "x86_64",
    all(target_arch = "aarch64", target_endian = "little")
))]
pub(crate) use primitives;
