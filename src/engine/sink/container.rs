//! The containers that files are written in: one row each, of plain functions.
//!
//! A container decides what a file has beside the bytes of its tensors, and where these are. Everything else (staging, locks, names,
//! uploads, companion files) is common to all and in `files`.

mod gguf;
mod npy;
mod npz;
mod safetensors;

use crate::base::error::{Error, Remedy, Result};
use crate::base::limits::{Budget, Limits};
use crate::plan::TensorSpec;
use crate::read::catalog::{quote, repeated};
use crate::read::format::{self, Format, ReadOptions};
use crate::read::source::cursor::Cursor;
use crate::read::source::{FnSource, Source};

pub use crate::read::format::gguf::{GgufType, GgufValue};
pub(crate) use gguf::MAX_NAME as MAX_GGUF_NAME;

/// A kind of file that tensors are written to.
///
/// ```
/// use anamnesis::sink::Container;
///
/// assert_eq!(Container::for_extension("GGUF").map(|container| container.name), Some("gguf"));
/// assert!(Container::for_extension("bin").is_none());
/// ```
#[derive(Debug)]
pub struct Container {
    /// Its name, as [`Catalog::format`](crate::Catalog::format) has it; also the ending of its files.
    pub name: &'static str,
    /// How several files are one model; `None` if a file stands alone.
    pub(crate) several: Option<SeveralFiles>,
    /// Refuses an output that a file cannot have.
    check: fn(&TensorSpec, &FormOptions) -> Result<()>,
    /// Lays out one file.
    lay_out: fn(&FileContent<'_>) -> Result<FileForm>,
    /// The bytes of a file that follow from the checksums of its outputs, if it has checksums.
    pub(crate) complete: Option<CompleteFile>,
}

/// The bytes that a file has in places that are known before, by the CRC-32 of each output of the form, in its order.
pub(crate) type CompleteFile = fn(&FileForm, &[TensorSpec], &[crc32fast::Hasher]) -> Vec<Gap>;

/// How several files are one model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SeveralFiles {
    /// An index names the file of each tensor.
    Index,
    /// The files are found by the numbers in their names, from the first one on.
    Numbers,
}

/// Safetensors files.
pub static SAFETENSORS: Container = Container {
    name: "safetensors",
    several: Some(SeveralFiles::Index),
    check: safetensors::check,
    lay_out: safetensors::lay_out,
    complete: None,
};

/// GGUF files.
pub static GGUF: Container = Container {
    name: "gguf",
    several: Some(SeveralFiles::Numbers),
    check: gguf::check,
    lay_out: gguf::lay_out,
    complete: None,
};

/// NPZ archives, uncompressed.
pub static NPZ: Container = Container {
    name: "npz",
    several: None,
    check: npy::check,
    lay_out: npz::lay_out,
    complete: Some(npz::complete),
};

/// NPY files, of one tensor each.
pub static NPY: Container = Container {
    name: "npy",
    several: None,
    check: npy::check,
    lay_out: npy::lay_out,
    complete: None,
};

/// All containers.
static CONTAINERS: &[&Container] = &[&SAFETENSORS, &GGUF, &NPZ, &NPY];

impl Container {
    /// The container of files with this ending, in any case of letters.
    pub fn for_extension(extension: &str) -> Option<&'static Self> {
        let found = CONTAINERS.iter().copied();
        let mut found = found.filter(|container| container.name.eq_ignore_ascii_case(extension));
        found.next()
    }

    /// All containers that can be written.
    pub fn all() -> impl Iterator<Item = &'static Self> {
        CONTAINERS.iter().copied()
    }
}

impl PartialEq for Container {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

/// The form of the files of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ContainerForm {
    pub(crate) container: &'static Container,
    pub(crate) options: FormOptions,
}

/// Choices about the form of files.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FormOptions {
    /// Whether a header gets room for later edits: to a multiple of [`ROOM_UNIT`], and at least [`ROOM`].
    pub(crate) room: bool,
    /// Whether floats that NumPy does not have are written as items without a type.
    pub(crate) void: bool,
    /// The alignment of tensors of a GGUF; 0 for the usual one.
    pub(crate) alignment: u32,
    /// Whether the header of a safetensors file has `__metadata__` without a key, too.
    pub(crate) empty_metadata: bool,
}

/// The least room in a header, in bytes.
pub(crate) const ROOM: usize = 1 << 10;

/// Headers with room end at a multiple of this: the block of most file systems, so that a longer header can be inserted in front
/// of the data, and data be shared with a copy of the file.
pub(crate) const ROOM_UNIT: usize = 4096;

/// The value of a key in a header.
#[derive(Clone, Debug, PartialEq)]
pub enum HeaderValue {
    /// A text; the only kind that safetensors has.
    Text(String),
    /// A value of a GGUF, with its type.
    Gguf(GgufValue),
}

impl HeaderValue {
    /// The value that replaces a key's old one: a key keeps its type.
    ///
    /// # Errors
    /// If it has another type, or is a text that is no value of the type.
    pub(crate) fn in_place_of(&self, old: &GgufValue, key: &str) -> Result<GgufValue> {
        match self {
            Self::Text(text) => {
                let value = old.parse_alike(text);
                value.map_err(|e| e.context(&format!("key {}", quote(key))))
            }
            Self::Gguf(new) if new.is_like(old) => Ok(new.clone()),
            Self::Gguf(new) => Err(Error::invalid_argument(format!(
                "the key {} has the type {}, and keeps it: {} is another one",
                quote(key),
                old.type_name(),
                new.type_name()
            ))),
        }
    }

    /// The key that `KEY`, or `KEY:TYPE`, names, and a value of a text: with a type of a GGUF, of that type
    /// ([`GgufValue::parse_named`]); otherwise the text. A part behind a colon that is no type belongs to the key.
    ///
    /// ```
    /// use anamnesis::sink::{GgufType, GgufValue, HeaderValue};
    ///
    /// let (key, value) = HeaderValue::of_key("x.size:u32", "7")?;
    /// assert_eq!((key, value), ("x.size", GgufValue::parse(GgufType::U32, "7")?.into()));
    /// assert_eq!(HeaderValue::of_key("hash:sha256", "ab")?, ("hash:sha256", "ab".into()));
    /// # Ok::<(), anamnesis::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the text is no value of the type.
    pub fn of_key<'k>(key: &'k str, text: &str) -> Result<(&'k str, Self)> {
        let typed = key
            .rsplit_once(':')
            .and_then(|(key, kind)| Some((key, GgufValue::parse_named(kind, text)?)));
        match typed {
            None => match key.rsplit_once(':') {
                Some((_, kind)) if looks_like_a_type(kind) => Err(no_type(kind)),
                // keys of other programs have colons too
                _ => Ok((key, Self::from(text))),
            },
            Some((key, value)) => {
                let value = value.map_err(|e| e.context(&format!("key {}", quote(key))))?;
                Ok((key, Self::Gguf(value)))
            }
        }
    }

    /// Refuses a new key of a GGUF with a colon, whose end is no type, although the value has none: `x.size:word`. The key
    /// `x.size:word` is set with its type behind it, `x.size:word:str`.
    ///
    /// ```
    /// use anamnesis::sink::HeaderValue;
    ///
    /// let (key, value) = HeaderValue::of_key("x.size:word", "7")?;
    /// assert!(value.check_new_key(key).is_err());
    /// let (key, value) = HeaderValue::of_key("x.size:word:str", "7")?;
    /// assert!(key == "x.size:word" && value.check_new_key(key).is_ok());
    /// # Ok::<(), anamnesis::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the key has such an end.
    pub fn check_new_key(&self, key: &str) -> Result<()> {
        match (self, key.rsplit_once(':')) {
            (Self::Text(_), Some((_, word))) => {
                Err(no_type(word).context(&format!("no key is called {}", quote(key))))
            }
            _ => Ok(()),
        }
    }
}

/// The error of a word behind the colon of a key that is no type.
fn no_type(word: &str) -> Error {
    Error::invalid_argument(format!(
        "{} is no type of a GGUF: u8, i8, u16, i16, u32, i32, u64, i64, f32, f64, bool, str, or one of them in brackets",
        quote(word)
    ))
}

/// Whether the end of a key was meant as a type: `float32`, `U32`, `[[u8]]`.
fn looks_like_a_type(end: &str) -> bool {
    let bare = end.trim().trim_matches(['[', ']']).to_ascii_lowercase();
    let word = bare.trim_end_matches(|c: char| c.is_ascii_digit());
    let is_sized = word.len() < bare.len();
    match word {
        "u" | "i" | "f" | "bf" => is_sized,
        "int" | "uint" | "float" | "double" | "bool" | "boolean" | "str" | "string" | "text" => {
            true
        }
        _ => false,
    }
}

impl From<String> for HeaderValue {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&str> for HeaderValue {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<GgufValue> for HeaderValue {
    fn from(value: GgufValue) -> Self {
        Self::Gguf(value)
    }
}

/// Why a key of a safetensors header has no value with a type.
pub(crate) const TYPED_KEY: &str = "has a type: values of safetensors are texts";

/// Keys of a header and their values, in order.
pub(crate) type HeaderValues = Vec<(String, HeaderValue)>;

/// The content of one file.
pub(crate) struct FileContent<'f> {
    /// All outputs of the run.
    pub(crate) outputs: &'f [TensorSpec],
    /// The numbers of the outputs in this file, in order.
    pub(crate) numbers: Vec<usize>,
    /// Bytes of the outputs in this file.
    pub(crate) tensor_bytes: u64,
    pub(crate) metadata: &'f HeaderValues,
    /// The number of this file, from 0, and the count of files.
    pub(crate) file: (usize, usize),
    pub(crate) options: FormOptions,
}

impl FileContent<'_> {
    /// The outputs of this file with their numbers and bytes.
    fn each(&self) -> impl Iterator<Item = (usize, &TensorSpec, u64)> {
        self.numbers.iter().map(|&number| {
            let output = &self.outputs[number];
            (number, output, output.nbytes().expect("counted before"))
        })
    }
}

/// Bytes at an offset of a file that are not a tensor's.
pub(crate) type Gap = (u64, Vec<u8>);

/// One file: where the bytes of its outputs are, and all other bytes.
#[derive(Debug)]
pub(crate) struct FileForm {
    /// The bytes from the beginning to the first tensor.
    pub(crate) head: Vec<u8>,
    /// The numbers of the outputs, and their offsets in the file, ascending.
    pub(crate) outputs: Vec<(usize, u64)>,
    /// Bytes of the outputs.
    pub(crate) tensor_bytes: u64,
    /// The bytes between the tensors and behind them, ascending.
    pub(crate) gaps: Vec<Gap>,
    /// The length of the file.
    pub(crate) nbytes: u64,
}

impl ContainerForm {
    /// Safetensors without room: what transformers writes.
    pub(crate) const PLAIN: Self = Self {
        container: &SAFETENSORS,
        options: FormOptions {
            room: false,
            void: false,
            alignment: 0,
            empty_metadata: false,
        },
    };

    /// Refuses the first output that a file cannot have, or of a name that another one has.
    pub(crate) fn check(&self, outputs: &[TensorSpec]) -> Result<()> {
        if let Some(name) = repeated(outputs.iter().map(|output| &*output.name)) {
            return Err(
                Error::malformed(format!("two weights would be called {}", quote(name)))
                    .with_remedy(Remedy::LeaveOutOrRename),
            );
        }
        outputs.iter().try_for_each(|output| {
            check_shape(output)?;
            (self.container.check)(output, &self.options)
        })
    }

    /// Lays out a file, whose header the reader opens at its default limits.
    pub(crate) fn lay_out(&self, content: &FileContent<'_>) -> Result<FileForm> {
        let form = (self.container.lay_out)(content)?;
        // the list of an archive is at its end
        if !form.head.is_empty() && *self.container != NPZ {
            let source = with_header(&form.head, form.nbytes);
            let format = Format::from_name(self.container.name).expect("containers are formats");
            check_opens(&source, format)?;
        }
        Ok(form)
    }
}

/// Refuses a shape whose sizes, but for 0, are together more than 64 bits count: other readers multiply them in their order.
fn check_shape(output: &TensorSpec) -> Result<()> {
    let sizes = output.shape.iter().filter(|&&size| size != 0);
    let mut sizes = sizes.copied();
    match sizes.try_fold(1_u64, u64::checked_mul) {
        Some(_) => Ok(()),
        None => {
            let what = format!(
                "tensor {}: its shape {:?} has sizes that together do not fit in 64 bits, which readers refuse",
                quote(&output.name),
                output.shape.as_slice()
            );
            Err(Error::unsupported(what).with_remedy(Remedy::LeaveOut))
        }
    }
}

/// A file that begins with a header, and has zeros behind it.
pub(crate) fn with_header(header: &[u8], nbytes: u64) -> impl Source + '_ {
    FnSource::new(nbytes, move |at, buf: &mut [u8]| {
        buf.fill(0);
        let at = usize::try_from(at).unwrap_or(usize::MAX);
        if let Some(rest) = header.get(at..) {
            let len = rest.len().min(buf.len());
            buf[..len].copy_from_slice(&rest[..len]);
        }
        Ok(())
    })
}

/// Refuses a header that cannot be read at default limits, whatever its own writer's limits are.
pub(crate) fn check_opens(source: &dyn Source, format: &'static Format) -> Result<()> {
    let budget = Budget::new(Limits::default());
    let mut cursor = Cursor::new(source, &budget);
    let options = ReadOptions {
        format: Some(format),
        ..ReadOptions::default()
    };
    let read = format::read_file(&mut cursor, None, options);
    read.map(drop).map_err(|error| {
        let what = format!("the header would not be read again: {}", error.kind());
        Error::unsupported(what)
    })
}

/// The error of an output of a dtype that a container does not have.
fn no_dtype(container: &str, output: &TensorSpec) -> Error {
    let what = format!(
        "{container} has no dtype {}, which {} has",
        output.encoding(),
        quote(&output.name)
    );
    let remedy = match output.block {
        Some(_) => Remedy::LeaveOutOrDequantise,
        None => Remedy::LeaveOut,
    };
    Error::unsupported(what).with_remedy(remedy)
}
