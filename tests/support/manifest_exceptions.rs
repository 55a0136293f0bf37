//! Intended deviations of the library from the corpus manifests, each with its reason.
//!
//! A deviation replaces an expectation with another one that is as exact; none removes an expectation.

use super::corpus::CorpusEntry;

/// An expectation that replaces one of the manifest.
pub enum Deviation {
    /// Rejected with an error of this kind whose text contains this; an empty kind stands for any.
    Refused(&'static str, &'static str),
    /// These tensors are listed as well.
    AdditionalTensors(&'static [&'static str]),
    /// The tensors are listed in the order of their offsets.
    OffsetOrder,
    /// `(dtype in the manifest, dtype of the library)`.
    DtypeNames(&'static [(&'static str, &'static str)]),
    /// The last dimension counts elements; the manifest's counts bytes of two elements each.
    TwoElementsPerByte,
    /// The file opens by its path; its bytes without a name are rejected.
    OpensByPathOnly,
}
use Deviation::{
    AdditionalTensors, DtypeNames, OffsetOrder, OpensByPathOnly, Refused, TwoElementsPerByte,
};

pub struct Exception {
    /// A part of the path of the entries to which the exception applies.
    pub path_contains: &'static str,
    pub deviation: Deviation,
    pub reason: &'static str,
}

const fn row(path_contains: &'static str, deviation: Deviation, reason: &'static str) -> Exception {
    Exception {
        path_contains,
        deviation,
        reason,
    }
}

const NOT_DATA: &str =
    "the pickle refers to a class or function that is not data: the error names it";
const PICKLED_OBJECTS: &str = "the only array contains pickled objects";
const PACKED_FP4: &str = "float4_e2m1fn_x2 is F4 in the library; the manifest has PyTorch's shape, in bytes of two elements";
const NO_NPY_NAME: &str =
    "NPY has no names for the dtypes of ml_dtypes: numpy writes them as raw items";

pub static EXCEPTIONS: &[Exception] = &[
    row("pth/evil/", Refused("refused_global", ""), NOT_DATA),
    row("pth/whole_module.", Refused("refused_global", ""), NOT_DATA),
    row(
        "npz/method_bzip2.npz",
        Refused("unsupported", "bzip2"),
        "numpy cannot write this compression method, and no decoder is planned",
    ),
    row(
        "npz/method_lzma.npz",
        Refused("unsupported", "lzma"),
        "numpy cannot write this compression method, and no decoder is planned",
    ),
    row(
        "-objarr.np",
        Refused("unsupported", "pickle"),
        PICKLED_OBJECTS,
    ),
    row(
        "gguf/v1.gguf",
        Refused("unsupported", "version 1"),
        "llama.cpp has not read version 1 since 2023",
    ),
    row(
        "silero_vad.jit",
        AdditionalTensors(&["_state", "_context"]),
        "state_dict(), from which the manifest is made, omits plain attributes of TorchScript",
    ),
    row(
        "pth/numpy_array.",
        AdditionalTensors(&["arr"]),
        "arrays of numpy are tensors too; the manifest has those of PyTorch",
    ),
    row("pth/dtype/t_f4x2.", TwoElementsPerByte, PACKED_FP4),
    row(
        "npy/bf16.npy",
        DtypeNames(&[("bfloat16", "V2")]),
        NO_NPY_NAME,
    ),
    row(
        "npz/ml_dtypes.npz",
        DtypeNames(&[
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
        NO_NPY_NAME,
    ),
    row(
        "npz/odd_dtypes.npz",
        DtypeNames(&[("structured", "V20")]),
        "the manifest gives no item size for structured dtypes",
    ),
    row(
        "fftpack__tests__test.npz",
        AdditionalTensors(&["__version__", "__header__"]),
        "the manifest omits strings (`|S3`, `|S75`), as it notes",
    ),
    row(
        "npz/prefixed.npz",
        Refused("", ""),
        "bytes precede the archive: without its name, the file is of an unknown format",
    ),
    row(
        ".safetensors",
        OffsetOrder,
        "the manifest has the order in which its reader listed the names, not the file order",
    ),
    row(
        ".safetensors.index.json",
        OpensByPathOnly,
        "the shards that it names are siblings of its path",
    ),
];

impl CorpusEntry {
    /// The deviations that apply to this entry.
    pub fn deviations(&self) -> impl Iterator<Item = &'static Deviation> {
        EXCEPTIONS
            .iter()
            .filter(|exception| self.name.contains(exception.path_contains))
            .map(|exception| &exception.deviation)
    }

    /// The kind of the error in which opening this entry must end, and a part of its text, if a deviation says so.
    pub fn refusal(&self) -> Option<(&'static str, &'static str)> {
        self.deviations().find_map(|e| {
            if let Refused(kind, text) = e {
                Some((*kind, *text))
            } else {
                None
            }
        })
    }
}
