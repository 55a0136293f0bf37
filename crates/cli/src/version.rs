//! What `--version` says: the version, and the instruction set that was detected.

/// A version text for a target, joined when compiling.
macro_rules! on {
    ($isa:literal) => {
        concat!(env!("CARGO_PKG_VERSION"), " (", $isa, ")")
    };
}

#[cfg(target_arch = "x86_64")]
pub(crate) fn version() -> &'static str {
    use std::is_x86_feature_detected as has;
    if has!("avx512f") && has!("avx512bw") && has!("avx512vl") {
        on!("x86-64 AVX-512")
    } else if has!("avx2") && has!("fma") && has!("f16c") {
        on!("x86-64 AVX2")
    } else {
        on!("x86-64")
    }
}

#[cfg(target_arch = "aarch64")]
pub(crate) fn version() -> &'static str {
    if std::arch::is_aarch64_feature_detected!("neon") {
        on!("AArch64 NEON")
    } else {
        on!("AArch64")
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) fn version() -> &'static str {
    on!("no vector instructions in use")
}
