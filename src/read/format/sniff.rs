//! Recognises files that no format reads, from their first bytes.
//!
//! HTML error pages, Git LFS pointers and files of other tools are often opened by mistake. The error names the kind of
//! file and what to do.

use crate::base::error::{Error, ErrorKind};

use super::Head;

/// Magic numbers of files that are mistaken for tensor files, and the text of the error.
static MAGICS: &[(&[u8], &str)] = &[
    (
        b"\x89HDF\r\n\x1a\n",
        "an HDF5 file (Keras .h5 or MATLAB v7.3); read it with h5py",
    ),
    (b"\x1f\x8b", "gzip data; unpack it first"),
    (b"\x28\xb5\x2f\xfd", "zstd data; unpack it first"),
    (b"\xfd7zXZ\0", "xz data; unpack it first"),
    (b"BZh", "bzip2 data; unpack it first"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive; unpack it first"),
    (b"Rar!\x1a\x07", "a RAR archive; unpack it first"),
    (b"\x7fELF", "an ELF program or library"),
    (
        b"MZqFpD",
        "a llamafile or another program of Cosmopolitan; its GGUF is a member of the archive at its end: `unzip FILE '*.gguf'`",
    ),
    (
        b"|TZR|",
        "a file of tensorizer; load it with that library, and save the tensors as safetensors",
    ),
    (b"MZ", "a Windows program or library"),
    (b"\x89PNG", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"%PDF", "a PDF document"),
    (b"PAR1", "a Parquet file"),
    (b"ARROW1", "an Arrow file"),
    (b"SQLite format 3\0", "an SQLite database"),
    (
        b"ggjt",
        "a GGJT file, the llama.cpp format before GGUF (2023); convert it again from the original",
    ),
    (
        b"tjgg",
        "a GGJT file, the llama.cpp format before GGUF (2023); convert it again from the original",
    ),
    (
        b"fmgg",
        "a GGMF file, the llama.cpp format before GGUF (2023); convert it again from the original",
    ),
    (
        b"lmgg",
        "a GGML file, the llama.cpp format before GGUF (2023); convert it again from the original",
    ),
    (b"MATLAB 5.0", "a MATLAB v5 file; read it with scipy.io"),
];

/// Whether a file is one of a model by its first bytes, also one that is damaged behind them: of a format that is read, or of
/// another one with tensors. 64 bytes are enough.
///
/// ```
/// use anamnesis::format::begins_as_model;
///
/// let bytes = std::fs::read("fixtures/gguf/plain_v3.gguf")?;
/// assert!(begins_as_model(&bytes[..64]));
/// assert!(!begins_as_model(b"<!doctype html>"));
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn begins_as_model(bytes: &[u8]) -> bool {
    const NPY: &[u8] = b"\x93NUMPY";
    const OTHERS: [&[u8]; 6] = [
        b"GGUF",
        NPY,
        b"\x89HDF\r\n\x1a\n",
        b"|TZR|",
        b"ggjt",
        b"tjgg",
    ];
    // the length of a header, and the header
    let is_safetensors = bytes.split_first_chunk::<8>().is_some_and(|(len, text)| {
        let inside = text.trim_ascii_start().strip_prefix(b"{");
        let first = inside.and_then(|inside| inside.trim_ascii_start().first());
        u64::from_le_bytes(*len) <= 1 << 32 && matches!(first, Some(b'"' | b'}'))
    });
    // a protocol with a number, by which pickles of tensors begin
    let is_pickle = matches!(bytes, [0x80, 2..=5, ..]);
    is_safetensors
        || is_pickle
        || is_archive(bytes)
        || OTHERS.iter().any(|magic| bytes.starts_with(magic))
        || without_magic(bytes).is_some()
}

/// Whether a file is a pointer of Git LFS, which stands for the file itself.
pub(crate) fn is_lfs_pointer(bytes: &[u8]) -> bool {
    bytes.starts_with(b"version https://git-lfs.github.com/spec/")
}

/// Whether a file begins as a zip archive does: with a member, or with the end of an empty one.
pub(crate) fn is_archive(bytes: &[u8]) -> bool {
    bytes.starts_with(b"PK\x03\x04") || bytes.starts_with(b"PK\x05\x06")
}

/// Describes the file if its first bytes certainly begin no tensor file.
pub(crate) fn not_tensors(bytes: &[u8]) -> Option<String> {
    // before every other test: an empty file begins with nothing
    if bytes.is_empty() {
        return Some("the file is empty; was the download interrupted?".into());
    }
    if is_lfs_pointer(bytes) {
        // a pointer is three lines (version, oid, size) and fits in the bytes of a probe; its size shows that the
        // clone skipped a large file, which is the usual reason for finding one
        let size = std::str::from_utf8(bytes)
            .ok()
            .and_then(|t| t.lines().find_map(|l| l.strip_prefix("size ")));
        let size = size.map_or(String::new(), |s| format!(" for {s} bytes"));
        return Some(format!(
            "a Git LFS pointer{size}, not the file itself; run `git lfs pull`"
        ));
    }
    // servers put blanks or a newline before the document, and write the doctype in either case
    let text = bytes.trim_ascii_start();
    let begins = |with: &str| {
        text.len() >= with.len() && text[..with.len()].eq_ignore_ascii_case(with.as_bytes())
    };
    if begins("<!doctype html") || begins("<html") || begins("<head") {
        return Some(
            "an HTML page, probably an error or login page that was saved under this name".into(),
        );
    }
    if begins("<?xml") {
        return Some("an XML document, probably an error from an object store".into());
    }
    let magic = MAGICS.iter().find(|(magic, _)| bytes.starts_with(magic));
    let known = magic
        .map(|(_, what)| *what)
        .or_else(|| without_magic(bytes));
    known.map(Into::into)
}

/// Files of other tools that have no magic number at their beginning.
fn without_magic(bytes: &[u8]) -> Option<&'static str> {
    if bytes.get(4..8) == Some(b"TFL3") {
        return Some(
            "a TFLite model; convert it with the tools of TensorFlow, or fetch the original",
        );
    }
    match *bytes {
        // fields 1 and 2 of ONNX' ModelProto: the version, and the name of the producer
        [0x08, 1..=31, 0x12, len, first, ..]
            if (1..64).contains(&len) && first.is_ascii_alphabetic() =>
        {
            Some(
                "an ONNX model; read its initializers with the package onnx, or fetch the PyTorch or safetensors files",
            )
        }
        // a map of msgpack whose first key is a short text
        [0x81..=0x8f | 0xde, 0xa1..=0xbf, first, ..] if first.is_ascii_alphabetic() => Some(
            "msgpack, as Flax saves parameters; load it with `flax.serialization`, and save the arrays as safetensors",
        ),
        _ => None,
    }
}

/// Describes a file that no format recognises.
pub(crate) fn resembles(head: &Head<'_>) -> String {
    let bytes = head.bytes;
    if head.archive.is_some() {
        return "a zip archive with neither .npy arrays nor a data.pkl in it".into();
    }
    // the magic number of tar is at the end of the first header, after name, mode, owner, size, time and link
    if bytes.get(257..262) == Some(b"ustar") {
        return "a tar archive (NeMo's .nemo is one, and PyTorch wrote these before 0.1.10); unpack it first".into();
    }
    let trimmed = bytes.trim_ascii_start();
    if trimmed.starts_with(b"{") || trimmed.starts_with(b"[") {
        let is_manifest = b"application/vnd.docker.distribution.manifest";
        if bytes
            .windows(is_manifest.len())
            .any(|text| text == is_manifest)
        {
            return "a manifest of Ollama; the model is the blob that its layer of the type `…image.model` names".into();
        }
        return format!("JSON text, {}", preview(bytes));
    }
    if bytes
        .iter()
        // UTF-8 beyond ASCII counts as text
        .all(|&b| b >= 0x20 || matches!(b, b'\n' | b'\r' | b'\t'))
    {
        return format!("text, {}", preview(bytes));
    }
    format!("the first bytes are {}", preview(bytes))
}

pub(crate) fn unknown(looks_like: String) -> Error {
    Error::new(ErrorKind::UnknownFormat { looks_like })
}

/// The first bytes for an error message: as text if they are printable, else in hexadecimal.
pub(crate) fn preview(bytes: &[u8]) -> String {
    const MOST: usize = 16;
    let first = &bytes[..bytes.len().min(MOST)];
    let more = if bytes.len() > MOST { "…" } else { "" };
    if first
        .iter()
        .all(|&b| (0x20..0x7f).contains(&b) || matches!(b, b'\n' | b'\r' | b'\t'))
    {
        return format!("\"{}{more}\"", first.escape_ascii());
    }
    let hex: Vec<String> = first.iter().map(|b| format!("{b:02x}")).collect();
    format!("{}{more}", hex.join(" "))
}
