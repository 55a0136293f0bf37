//! The text of `--version`: the version and the instruction set that the kernels detected.

/// The version with an instruction set. clap takes a `&'static str`, hence the concatenation at compile time.
macro_rules! with_isa {
    ($isa:literal) => {
        concat!(env!("CARGO_PKG_VERSION"), " (", $isa, ")")
    };
}

#[cfg(target_arch = "x86_64")]
pub(crate) fn version() -> &'static str {
    use std::is_x86_feature_detected as has;
    // the sets of features that the kernels are compiled for (`isa.rs` of anamnesis-kernel)
    let avx2 = has!("avx2") && has!("bmi2") && has!("f16c");
    let avx512 = has!("avx512f") && has!("avx512bw") && has!("avx512dq") && has!("avx512vl");
    if avx2 && avx512 {
        with_isa!("x86-64 AVX-512")
    } else if avx2 {
        with_isa!("x86-64 AVX2")
    } else {
        with_isa!("x86-64")
    }
}

#[cfg(target_arch = "aarch64")]
pub(crate) fn version() -> &'static str {
    if std::arch::is_aarch64_feature_detected!("neon") {
        with_isa!("AArch64 NEON")
    } else {
        with_isa!("AArch64")
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) fn version() -> &'static str {
    with_isa!("no vector instructions in use")
}
