#![allow(unsafe_code)] // calling the build that was chosen; see CONVENTIONS.md

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
}

impl Isa {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Baseline => "baseline",
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => "avx512",
        }
    }

    /// Whether this machine can run it: exactly the features that `kernel!` enables.
    fn usable(self) -> bool {
        match self {
            Self::Baseline => true,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("bmi2"),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => {
                is_x86_feature_detected!("avx2")
                    && is_x86_feature_detected!("bmi2")
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
            }
        }
    }
}

/// Blocks in, elements out.
pub(crate) type Decode = unsafe fn(&[u8], &mut [u8]);

/// A kernel compiled for one instruction set, per output element.
pub(crate) struct Build {
    pub(crate) isa: Isa,
    pub(crate) f32: Decode,
    pub(crate) f16: Decode,
    pub(crate) bf16: Decode,
}

impl Build {
    /// Runs it. Only builds that [`Kernel::usable`] gave out exist outside this file.
    pub(crate) fn run(&self, dtype: Dtype, blocks: &[u8], out: &mut [u8]) -> Result<()> {
        assert!(self.isa.usable(), "a build for another machine");
        let decode = match dtype {
            Dtype::F32 => self.f32,
            Dtype::F16 => self.f16,
            Dtype::BF16 => self.bf16,
            other => return Err(Error::misuse(format!("kernels give F32, F16 or BF16, not {other}"))),
        };
        // SAFETY: the function is safe but for needing its instruction set, which the line above
        // has seen on this machine.
        unsafe { decode(blocks, out) };
        Ok(())
    }
}

/// All builds of a block type's kernel, fastest first; the last one runs everywhere.
pub(crate) struct Kernel {
    pub(crate) builds: &'static [Build],
}

impl Kernel {
    pub(crate) fn usable(&self) -> impl Iterator<Item = &'static Build> + use<> {
        self.builds.iter().filter(|build| build.isa.usable())
    }

    pub(crate) fn best(&self) -> &'static Build {
        self.usable().next().expect("the baseline runs everywhere")
    }
}

/// Compiles `body`, an `#[inline(always)] fn body<O: Element>(blocks: &[u8], out: &mut [u8])`, for each
/// instruction set.
macro_rules! kernel {
    ($body:ident) => {
        pub(crate) static KERNEL: $crate::kernel::Kernel = {
            use $crate::kernel::element::{Bf16, Element, F16, F32};
            use $crate::kernel::isa::{Build, Isa};

            fn baseline<O: Element>(blocks: &[u8], out: &mut [u8]) {
                $body::<O>(blocks, out);
            }

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,bmi2")]
            fn avx2<O: Element>(blocks: &[u8], out: &mut [u8]) {
                $body::<O>(blocks, out);
            }

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,bmi2,avx512f,avx512bw,avx512dq,avx512vl")]
            fn avx512<O: Element>(blocks: &[u8], out: &mut [u8]) {
                $body::<O>(blocks, out);
            }

            $crate::kernel::Kernel {
                builds: &[
                    #[cfg(target_arch = "x86_64")]
                    Build { isa: Isa::Avx512, f32: avx512::<F32>, f16: avx512::<F16>, bf16: avx512::<Bf16> },
                    #[cfg(target_arch = "x86_64")]
                    Build { isa: Isa::Avx2, f32: avx2::<F32>, f16: avx2::<F16>, bf16: avx2::<Bf16> },
                    Build { isa: Isa::Baseline, f32: baseline::<F32>, f16: baseline::<F16>, bf16: baseline::<Bf16> },
                ],
            }
        };
    };
}
pub(crate) use kernel;
