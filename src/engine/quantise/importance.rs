//! ImportanceMatrix matrices: how much each column of a weight matters, measured by llama.cpp's `llama-imatrix`.
//!
//! Source: `common/imatrix-loader.cpp` of llama.cpp. A GGUF has sums of squares and counts for each matrix; the older form is a list
//! of names, numbers of calls and sums.

use std::path::Path;
use std::sync::Arc;

use anamnesis_os::whole_file;
use hashbrown::HashMap;

use crate::base::error::{Error, Result};
use crate::base::limits::{Budget, Limits, text_cost};
use crate::base::quote::quote;
use crate::read::catalog::Value;
use crate::read::checkpoint::OpenOptions;

const WHAT: &str = "the importance matrix";

/// How much each column of each weight matters.
///
/// ```no_run
/// use anamnesis::quantise::ImportanceMatrix;
///
/// let importance = ImportanceMatrix::read("imatrix.gguf")?.excluding(&["ffn_down"]);
/// println!("{} weights", importance.len());
/// # Ok::<(), anamnesis::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct ImportanceMatrix {
    /// As it was given.
    file: String,
    entries: HashMap<Box<str>, Arc<[f32]>>,
    dataset: Option<String>,
    chunks: u32,
}

impl ImportanceMatrix {
    /// Reads a file in either form. Its path becomes `quantize.imatrix.file` of the output, as it is given.
    ///
    /// # Errors
    /// I/O; a file in neither form; a number that is not finite; one over the default [`Limits`].
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        Self::read_within(path.as_ref(), Limits::default())
    }

    /// Like [`read`](Self::read), with other limits.
    ///
    /// # Errors
    /// The errors of [`read`](Self::read).
    pub fn read_within(path: &Path, limits: Limits) -> Result<Self> {
        let in_file = |error: Error| error.in_file(path);
        let start = whole_file::read_start(path, 4).map_err(|e| in_file(e.into()))?;
        let mut read = match &*start {
            b"GGUF" => of_gguf(path, limits)?,
            _ => of_list(path, limits).map_err(in_file)?,
        };
        read.file = path.to_string_lossy().into_owned();
        Ok(read)
    }

    /// Only the entries whose names have one of these texts in them.
    #[must_use]
    pub fn including(mut self, parts: &[impl AsRef<str>]) -> Self {
        self.entries.retain(|name, _| has_one(name, parts));
        self
    }

    /// Without the entries whose names have one of these texts in them.
    #[must_use]
    pub fn excluding(mut self, parts: &[impl AsRef<str>]) -> Self {
        self.entries.retain(|name, _| !has_one(name, parts));
        self
    }

    /// How many weights it is for.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether it is for no weight.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The numbers of a weight: one for each column, of each matrix of a stack.
    pub(super) fn of(&self, name: &str) -> Option<&Arc<[f32]>> {
        self.entries.get(name)
    }

    pub(super) fn file(&self) -> &str {
        &self.file
    }

    pub(super) fn dataset(&self) -> Option<&str> {
        self.dataset.as_deref()
    }

    pub(super) fn chunks(&self) -> u32 {
        self.chunks
    }

    fn add(&mut self, name: &str, values: Vec<f32>, budget: &Budget) -> Result<()> {
        budget.memory(text_cost(name.len()) + 64, WHAT)?;
        if let Some(value) = values.iter().find(|value| !value.is_finite()) {
            return Err(Error::malformed(format!(
                "the importance of {} has the value {value}: measure it again",
                quote(name)
            )));
        }
        self.entries.insert(name.into(), values.into());
        Ok(())
    }
}

fn has_one(name: &str, parts: &[impl AsRef<str>]) -> bool {
    parts.iter().any(|part| name.contains(part.as_ref()))
}

fn nothing() -> ImportanceMatrix {
    ImportanceMatrix {
        file: String::new(),
        entries: HashMap::new(),
        dataset: None,
        chunks: 0,
    }
}

/// The form of today: pairs of tensors `NAME.in_sum2` and `NAME.counts`.
fn of_gguf(path: &Path, limits: Limits) -> Result<ImportanceMatrix> {
    let checkpoint = OpenOptions::new().limits(limits).open(path)?;
    let budget = checkpoint.budget();
    let mut made = nothing();
    for key in [
        "imatrix.datasets",
        "imatrix.chunk_count",
        "imatrix.chunk_size",
    ] {
        if checkpoint.catalog().metadata().get(key).is_none() {
            let what = format!("no importance matrix: it has no key {key}");
            return Err(Error::malformed(what).in_file(path));
        }
    }
    if let Some(Value::Array(datasets)) = checkpoint.catalog().metadata().get("imatrix.datasets")
        && let Some(Value::Text(first)) = datasets.first.first()
    {
        made.dataset = Some(first.to_string());
    }
    let chunks = checkpoint
        .catalog()
        .metadata()
        .integer("imatrix.chunk_count");
    made.chunks = chunks.and_then(|n| u32::try_from(n).ok()).unwrap_or(0);
    for tensor in checkpoint.tensors() {
        let Some(name) = tensor.info().name.strip_suffix(".in_sum2") else {
            continue;
        };
        let counts = checkpoint
            .tensor(&format!("{name}.counts"))
            .ok_or_else(|| {
                Error::malformed(format!("it has no counts of {}", quote(name))).in_file(path)
            })?;
        let (mut sums, counts) = (floats(&tensor, &budget)?, floats(&counts, &budget)?);
        if counts.is_empty() || !sums.len().is_multiple_of(counts.len()) {
            let what = format!(
                "{} counts do not divide {} sums of {}",
                counts.len(),
                sums.len(),
                quote(name)
            );
            return Err(Error::malformed(what).in_file(path));
        }
        let columns = sums.len() / counts.len();
        for (matrix, count) in sums.chunks_mut(columns.max(1)).zip(counts) {
            // a number of tokens, which a float may miss
            let count = count.round();
            for sum in matrix {
                // an expert that no token has reached: every column alike
                *sum = if count > 0.0 { *sum / count } else { 1.0 };
            }
        }
        made.add(name, sums, &budget).map_err(|e| e.in_file(path))?;
    }
    Ok(made)
}

/// The elements of an F32 tensor.
fn floats(tensor: &crate::read::tensor::Tensor<'_>, budget: &Budget) -> Result<Vec<f32>> {
    let info = tensor.info();
    if info.encoding != crate::read::catalog::Encoding::Plain(crate::base::kernel::Dtype::F32) {
        let what = format!("tensor {} is {}, not F32", quote(&info.name), info.encoding);
        return Err(Error::malformed(what));
    }
    budget.memory(2 * info.nbytes(), WHAT)?;
    let bytes = tensor.bytes()?;
    let values = bytes.as_chunks().0.iter().copied();
    Ok(values.map(f32::from_le_bytes).collect())
}

/// The older form: a count of entries, each a name, its calls, and its numbers; then chunks and the name of the data.
fn of_list(path: &Path, limits: Limits) -> Result<ImportanceMatrix> {
    let budget = Budget::new(limits);
    let bytes = whole_file::read(path, limits.memory)?;
    budget.memory(bytes.len() as u64, WHAT)?;
    let mut list = EntryList {
        bytes: &bytes,
        at: 0,
    };
    let mut made = nothing();
    for _ in 0..list.count()? {
        let name = list.text()?;
        let (calls, count) = (list.number()?, list.count()?);
        let values = list.take(u64::from(count) * 4)?;
        budget.memory(values.len() as u64, WHAT)?;
        let values = values.as_chunks().0.iter().copied().map(f32::from_le_bytes);
        #[expect(clippy::cast_precision_loss, reason = "as the reference divides")]
        let values = values.map(|value| {
            if calls > 0 {
                value / calls as f32
            } else {
                value
            }
        });
        made.add(name, values.collect(), &budget)?;
    }
    if !list.is_at_end() {
        made.chunks = u32::try_from(list.number()?).unwrap_or(0);
    }
    if !list.is_at_end() {
        let text = list.text()?;
        made.dataset = (!text.is_empty()).then(|| text.to_owned());
    }
    Ok(made)
}

/// A list that is read from front to end.
struct EntryList<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl<'b> EntryList<'b> {
    fn is_at_end(&self) -> bool {
        self.at == self.bytes.len()
    }

    fn take(&mut self, nbytes: u64) -> Result<&'b [u8]> {
        let rest = &self.bytes[self.at..];
        let taken = usize::try_from(nbytes).ok().and_then(|n| rest.get(..n));
        let taken = taken.ok_or_else(|| {
            let what = "no importance matrix: neither a GGUF nor a list that ends within the file";
            Error::malformed(what).at(self.at as u64)
        })?;
        self.at += taken.len();
        Ok(taken)
    }

    fn number(&mut self) -> Result<i32> {
        let bytes = self.take(4)?;
        Ok(i32::from_le_bytes(bytes.try_into().expect("four bytes")))
    }

    fn count(&mut self) -> Result<u32> {
        let at = self.at as u64;
        let negative = |_| Error::malformed("no importance matrix: a count below 0").at(at);
        u32::try_from(self.number()?).map_err(negative)
    }

    fn text(&mut self) -> Result<&'b str> {
        let (at, len) = (self.at as u64, self.count()?);
        let bytes = self.take(len.into())?;
        std::str::from_utf8(bytes).map_err(|_| Error::malformed("a name that is no UTF-8").at(at))
    }
}
