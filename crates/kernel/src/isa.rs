#![allow(unsafe_code)] // calls a build whose instruction set was detected; see CONVENTIONS.md

//! Multiversioning: one body, compiled once per instruction set, and the best build chosen at run time.
//!
//! `kernel!` turns a generic body into a `static KERNEL` with a [`Build`] for each [`Isa`]. [`Kernel::best`] picks the first
//! one that this machine supports; detection is cached by `std`, so a choice costs a few loads.

use crate::dtype::Dtype;
use crate::error::{Error, Result};
#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
use crate::simd::Neon;
#[cfg(target_arch = "x86_64")]
use crate::simd::{Avx2, Avx512};
use crate::simd::{Baseline, Simd};

/// An instruction set that kernels are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Isa {
    /// The features that the compilation target guarantees, such as SSE2 on x86-64.
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

    /// Whether this machine has the features that `kernel!` enables for this instruction set. The two lists must agree:
    /// [`Build::run`] relies on it.
    fn is_supported(self) -> bool {
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
                Self::Avx2.is_supported()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
            }
            #[cfg(target_arch = "x86_64")]
            Self::Avx512Bf16 => {
                Self::Avx512.is_supported() && is_x86_feature_detected!("avx512bf16")
            }
            #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
            Self::Neon => std::arch::is_aarch64_feature_detected!("neon"),
        }
    }
}

/// A kernel for one instruction set and output type: geometry and input parts in, elements out. It is safe but for its
/// target features.
pub(crate) type Decode<G> = unsafe fn(&G, &[&[u8]], &mut [u8]);

/// A kernel compiled for one instruction set, one function per output type.
pub(crate) struct Build<G: 'static> {
    pub(crate) isa: Isa,
    pub(crate) f32: Decode<G>,
    pub(crate) f16: Decode<G>,
    pub(crate) bf16: Decode<G>,
}

impl<G> Build<G> {
    /// Decodes `parts` to `out` as `dtype`. The caller has checked that geometry, parts and output agree; a body panics
    /// otherwise, since it is safe code.
    ///
    /// # Errors
    /// `dtype` is not F32, F16 or BF16.
    ///
    /// # Panics
    /// This machine does not support the build's instruction set.
    pub(crate) fn run(
        &self,
        dtype: Dtype,
        geometry: &G,
        parts: &[&[u8]],
        out: &mut [u8],
    ) -> Result<()> {
        // asserted on every call, as the call below is sound only then and `Build` is plain data. `std` caches what it
        // detected, so this costs a few loads for a whole tile
        assert!(
            self.isa.is_supported(),
            "the machine lacks this build's instruction set"
        );
        let decode = match dtype {
            Dtype::F32 => self.f32,
            Dtype::F16 => self.f16,
            Dtype::BF16 => self.bf16,
            other => {
                return Err(Error::Mismatch(format!(
                    "kernels write F32, F16 or BF16, not {other}"
                )));
            }
        };
        // SAFETY: the function is safe but for its target features. The assertion above has detected them on this machine.
        unsafe { decode(geometry, parts, out) };
        Ok(())
    }
}

/// All builds of a kernel, fastest first; the last one is the baseline.
///
/// `G` is the geometry, what a kernel needs besides its input bytes: `()` for block types, whose layout is fixed.
pub(crate) struct Kernel<G: 'static = ()> {
    pub(crate) builds: &'static [Build<G>],
}

impl<G> Kernel<G> {
    /// The builds that this machine can run, fastest first.
    pub(crate) fn supported(&self) -> impl Iterator<Item = &'static Build<G>> + use<G> {
        self.builds.iter().filter(|build| build.isa.is_supported())
    }

    /// The fastest build that this machine can run.
    pub(crate) fn best(&self) -> &'static Build<G> {
        self.supported()
            .next()
            .expect("the baseline is always supported")
    }
}

/// A computation in plain Rust that is compiled for every instruction set: the compiler vectorises its loops for each.
///
/// `run`, `run_fused` and all that they call is `#[inline(always)]`, for the reason that [`kernel!`] states.
pub(crate) trait Computation: Copy {
    type Output;

    fn run(self) -> Self::Output;

    /// Gives the same result as `run`, where a multiplication and an addition are one instruction: `mul_add` is fast.
    #[inline(always)]
    fn run_fused(self) -> Self::Output {
        self.run()
    }
}

/// The instruction sets that computations are compiled for, fastest first.
// Not the BF16 instructions, to which plain Rust does not compile; NEON is in the baseline of aarch64.
const COMPUTATION_ISAS: &[Isa] = &[
    #[cfg(target_arch = "x86_64")]
    Isa::Avx512,
    #[cfg(target_arch = "x86_64")]
    Isa::Avx2,
    Isa::Baseline,
];

/// Whether this machine has the features that [`compute_with`] enables: the instruction set's own, and with them the one
/// that multiplies and adds in one instruction, which kernels do without.
fn computes_with(isa: Isa) -> bool {
    #[cfg(target_arch = "x86_64")]
    if isa != Isa::Baseline && !is_x86_feature_detected!("fma") {
        return false;
    }
    isa.is_supported()
}

/// Runs the fastest build of a computation that this machine supports.
pub(crate) fn compute<C: Computation>(computation: C) -> C::Output {
    let mut supported = COMPUTATION_ISAS.iter().filter(|isa| computes_with(**isa));
    compute_with(
        *supported.next().expect("the baseline is always supported"),
        computation,
    )
}

/// The results of all builds of a computation that this machine supports.
#[cfg(test)]
pub(crate) fn compute_each<C: Computation>(computation: C) -> Vec<(&'static str, C::Output)> {
    let supported = COMPUTATION_ISAS.iter().filter(|isa| computes_with(**isa));
    supported
        .map(|isa| (isa.name(), compute_with(*isa, computation)))
        .collect()
}

fn compute_with<C: Computation>(isa: Isa, computation: C) -> C::Output {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx2,bmi2,f16c,fma")]
        fn avx2<C: Computation>(computation: C) -> C::Output {
            computation.run_fused()
        }

        #[target_feature(enable = "avx2,bmi2,f16c,fma,avx512f,avx512bw,avx512dq,avx512vl")]
        fn avx512<C: Computation>(computation: C) -> C::Output {
            computation.run_fused()
        }

        if isa == Isa::Avx512 && computes_with(isa) {
            // SAFETY: the function is safe but for its target features, which were detected in the condition
            return unsafe { avx512(computation) };
        }
        if isa == Isa::Avx2 && computes_with(isa) {
            // SAFETY: as above
            return unsafe { avx2(computation) };
        }
    }
    // the target's own features; on AArch64 they include NEON, which fuses
    let _ = isa;
    if cfg!(target_arch = "aarch64") {
        computation.run_fused()
    } else {
        computation.run()
    }
}

/// A computation in the operations of [`Simd`], compiled for every instruction set.
///
/// `run` and all that it calls is `#[inline(always)]`, for the reason that [`kernel!`] states.
pub(crate) trait Vectorised {
    type Output;

    fn run<S: Simd>(self, simd: S) -> Self::Output;
}

/// The instruction sets that a [`Vectorised`] computation is compiled for, fastest first.
// AVX-512's BF16 instructions serve conversions only
const VECTOR_ISAS: &[Isa] = &[
    #[cfg(target_arch = "x86_64")]
    Isa::Avx512,
    #[cfg(target_arch = "x86_64")]
    Isa::Avx2,
    #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
    Isa::Neon,
    Isa::Baseline,
];

/// The instruction sets with which this machine runs a [`Vectorised`] computation, fastest first.
pub(crate) fn vector_isas() -> impl Iterator<Item = Isa> {
    VECTOR_ISAS.iter().copied().filter(|isa| isa.is_supported())
}

/// Runs the build of a computation for an instruction set; the baseline's where the machine lacks it.
pub(crate) fn run_vectorised<V: Vectorised>(isa: Isa, computation: V) -> V::Output {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx2,bmi2,f16c")]
        fn avx2<V: Vectorised>(computation: V) -> V::Output {
            computation.run(Avx2::new())
        }

        #[target_feature(enable = "avx2,bmi2,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
        fn avx512<V: Vectorised>(computation: V) -> V::Output {
            computation.run(Avx512::new())
        }

        if isa == Isa::Avx512 && isa.is_supported() {
            // SAFETY: the function is safe but for its target features, which were detected in the condition
            return unsafe { avx512(computation) };
        }
        if isa == Isa::Avx2 && isa.is_supported() {
            // SAFETY: as above
            return unsafe { avx2(computation) };
        }
    }
    #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
    {
        #[target_feature(enable = "neon")]
        fn neon<V: Vectorised>(computation: V) -> V::Output {
            computation.run(Neon::new())
        }

        if isa == Isa::Neon && isa.is_supported() {
            // SAFETY: as above
            return unsafe { neon(computation) };
        }
    }
    let _ = isa;
    computation.run(Baseline)
}

/// Compiles a body for every instruction set and output type, as `static KERNEL`.
///
/// `kernel!(body)` takes an `#[inline(always)] fn body<S: Simd, O: OutputElement>(simd: S, blocks: &[u8], out: &mut [u8])`.
/// `kernel!(body, Geometry)` takes one with `(simd: S, geometry: &Geometry, parts: &[&[u8]], out: &mut [u8])`.
///
/// # Everything that a body calls is `#[inline(always)]`, and nothing in it is a closure
///
/// The emitted functions have target features; the generic body and its callees have none of their own. Only what is
/// inlined into the emitted function is compiled for the instruction set. A function that stays outside is compiled for
/// the baseline, and each SIMD operation in it becomes a call. A closure cannot be marked `#[inline(always)]`, so bodies
/// use loops and [`unroll!`](crate::unroll) instead. A lapse does not show in results but in speed: 2.5 to 10 times
/// slower, and only in some programs, since inlining depends on the rest of the code unit (experiments 32 and 41).
/// `tests/it/simd_closures.rs` rejects closures in the sources, and `benches/guard` counts instructions of every build.
macro_rules! kernel {
    ($body:ident) => {
        $crate::kernel!(@builds (), |simd, _geometry, parts, out| {
            for blocks in parts {
                $body::<_, O>(simd, blocks, out);
            }
        });
    };
    ($body:ident, $geometry:ty) => {
        $crate::kernel!(@builds $geometry, |simd, geometry, parts, out| $body::<_, O>(simd, geometry, parts, out));
    };
    (@builds $geometry:ty, |$simd:ident, $g:ident, $parts:ident, $out:ident| $call:expr) => {
        pub(crate) static KERNEL: $crate::Kernel<$geometry> = {
            use $crate::element::{Bf16, OutputElement, F16, F32};
            use $crate::isa::{Build, Isa};
            use $crate::simd::Baseline;
            #[cfg(target_arch = "x86_64")]
            use $crate::simd::{Avx2, Avx512, Avx512Bf16};
            #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
            use $crate::simd::Neon;

            fn baseline<O: OutputElement>($g: &$geometry, $parts: &[&[u8]], $out: &mut [u8]) {
                let $simd = Baseline;
                $call;
            }

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,bmi2,f16c")]
            fn avx2<O: OutputElement>($g: &$geometry, $parts: &[&[u8]], $out: &mut [u8]) {
                let $simd = Avx2::new();
                $call;
            }

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,bmi2,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
            fn avx512<O: OutputElement>($g: &$geometry, $parts: &[&[u8]], $out: &mut [u8]) {
                let $simd = Avx512::new();
                $call;
            }

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,bmi2,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
            fn avx512bf16<O: OutputElement>($g: &$geometry, $parts: &[&[u8]], $out: &mut [u8]) {
                let $simd = Avx512Bf16::new();
                $call;
            }

            #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
            #[target_feature(enable = "neon")]
            fn neon<O: OutputElement>($g: &$geometry, $parts: &[&[u8]], $out: &mut [u8]) {
                let $simd = Neon::new();
                $call;
            }

            $crate::Kernel {
                builds: &[
                    #[cfg(target_arch = "x86_64")]
                    Build {
                        isa: Isa::Avx512Bf16,
                        // the extension converts to BF16 only
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
