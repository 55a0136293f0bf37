//! Where we differ from a manifest on purpose: every case, what is expected instead, and why.
//!
//! A row replaces an expectation by another one, as exact; it never takes one away.

use super::corpus::Entry;

/// What is expected instead of what the manifest says.
pub enum Instead {
    /// Refused, with this kind of error, whose text has this in it.
    Refused(&'static str, &'static str),
    /// These tensors are listed too.
    AlsoLists(&'static [&'static str]),
    /// In the order of their offsets.
    ByOffset,
    /// Tensors of the one dtype are listed as the other.
    Dtypes(&'static [(&'static str, &'static str)]),
    /// The last dimension counts elements, where the manifest counts bytes of two.
    Pairs,
    /// It opens by its path, and its bytes alone are refused.
    OnlyByPath,
}
use Instead::{AlsoLists, ByOffset, Dtypes, OnlyByPath, Pairs, Refused};

pub struct Exception {
    /// What the entry's path contains.
    pub at: &'static str,
    pub instead: Instead,
    pub why: &'static str,
}

const fn row(at: &'static str, instead: Instead, why: &'static str) -> Exception {
    Exception { at, instead, why }
}

const NO_CODE: &str =
    "the pickle names a class or function that is not data: the refusal must name it";
const PICKLED: &str = "an array of pickled objects and nothing else";
const PACKED: &str =
    "float4_e2m1fn_x2 is F4 here; the manifest has PyTorch's shape, of bytes that hold two";
const LOST: &str = "NPY has no names for the dtypes of ml_dtypes: they are written as raw items";

pub static EXCEPTIONS: &[Exception] = &[
    row("pth/evil/", Refused("refused_global", ""), NO_CODE),
    row("pth/whole_module.", Refused("refused_global", ""), NO_CODE),
    row(
        "npz/method_bzip2.npz",
        Refused("unsupported", "bzip2"),
        "numpy cannot write it; a decoder is not worth it",
    ),
    row(
        "npz/method_lzma.npz",
        Refused("unsupported", "lzma"),
        "numpy cannot write it; a decoder is not worth it",
    ),
    row("-objarr.np", Refused("unsupported", "pickle"), PICKLED),
    row(
        "gguf/v1.gguf",
        Refused("unsupported", "version 1"),
        "no reader since 2023 takes it",
    ),
    row(
        "silero_vad.jit",
        AlsoLists(&["_state", "_context"]),
        "state_dict() leaves out plain attributes of TorchScript",
    ),
    row("pth/dtype/t_f4x2.", Pairs, PACKED),
    row("npy/bf16.npy", Dtypes(&[("bfloat16", "V2")]), LOST),
    row(
        "npz/ml_dtypes.npz",
        Dtypes(&[
            ("bfloat16", "V2"),
            ("float8_e4m3fn", "V1"),
            ("float8_e4m3fnuz", "V1"),
            ("float8_e5m2fnuz", "V1"),
            ("float8_e8m0fnu", "V1"),
            ("float8_e4m3b11fnuz", "V1"),
            ("int4", "V1"),
            ("uint4", "V1"),
            ("float4_e2m1fn", "V1"),
        ]),
        LOST,
    ),
    row(
        "npz/odd_dtypes.npz",
        Dtypes(&[("structured", "V20")]),
        "the manifest says what it is, not how wide",
    ),
    row(
        "fftpack__tests__test.npz",
        AlsoLists(&["__version__", "__header__"]),
        "the manifest leaves out strings (`|S3`, `|S75`) and notes that",
    ),
    row(
        "npz/prefixed.npz",
        OnlyByPath,
        "a zip archive behind other bytes: only its name says what it is",
    ),
    row(
        ".safetensors",
        ByOffset,
        "the manifest has the order in which a reader gave the names, not the file's",
    ),
    row(
        ".safetensors.index.json",
        OnlyByPath,
        "the shards it names lie beside it",
    ),
];

impl Entry {
    /// What is expected instead of what the manifest says, row by row.
    pub fn exceptions(&self) -> impl Iterator<Item = &'static Instead> {
        EXCEPTIONS
            .iter()
            .filter(|row| self.name.contains(row.at))
            .map(|row| &row.instead)
    }

    /// The error that a good or bad entry must end in, if it must be a certain one.
    pub fn refusal(&self) -> Option<(&'static str, &'static str)> {
        self.exceptions().find_map(|e| {
            if let Refused(kind, text) = e {
                Some((*kind, *text))
            } else {
                None
            }
        })
    }
}
