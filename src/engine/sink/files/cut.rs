//! The outputs cut into files: one implementation for a sink that writes all of them, and for workers that write one each.

use serde_json::json;

use crate::base::error::{Error, Result};
use crate::engine::sink::container::{
    ContainerForm, FileContent, FileForm, FormOptions, HeaderValue, HeaderValues, SAFETENSORS,
    SeveralFiles,
};
use crate::plan::{PLAN_ID_KEY, PlanId, TensorSpec};

use super::Sharding;

/// Which outputs each file has, at which offsets, and the files' other bytes.
#[derive(Debug)]
pub(super) struct FileCut {
    pub(super) files: Vec<FileForm>,
    /// How several files are one model.
    pub(super) several: Option<SeveralFiles>,
}

impl FileCut {
    pub(super) fn new(
        outputs: &[TensorSpec],
        distributed: Vec<OutputsOfFile>,
        form: &ContainerForm,
        metadata: &HeaderValues,
        id: Option<PlanId>,
    ) -> Result<Self> {
        form.check(outputs)?;
        let count = distributed.len();
        let container = form.container;
        if count > 1 && container.several.is_none() {
            let what = format!(
                "several files are no one model in the container {}: write one file, or leave tensors out",
                container.name
            );
            return Err(Error::invalid_argument(what));
        }
        // other containers have the keys of the model alone
        let (first, others) = match *container == SAFETENSORS {
            true => (
                file_metadata(metadata, true, id),
                file_metadata(metadata, false, id),
            ),
            false => (metadata.clone(), HeaderValues::new()),
        };
        let files = distributed.into_iter().enumerate();
        let files = files.map(|(number, (numbers, tensor_bytes))| {
            form.lay_out(&FileContent {
                outputs,
                numbers,
                tensor_bytes,
                metadata: if number == 0 { &first } else { &others },
                file: (number, count),
                options: FormOptions {
                    empty_metadata: number == 0 && form.options.empty_metadata,
                    ..form.options
                },
            })
        });
        Ok(Self {
            files: files.collect::<Result<_>>()?,
            several: container.several,
        })
    }

    pub(super) fn count(&self) -> usize {
        self.files.len()
    }

    /// The length of a file.
    pub(super) fn file_bytes(&self, file: usize) -> u64 {
        self.files[file].nbytes
    }

    /// Whether there is an index.
    pub(super) fn has_index(&self) -> bool {
        self.count() > 1 && self.several == Some(SeveralFiles::Index)
    }

    /// The text of the index, for files of these names.
    pub(super) fn index(&self, outputs: &[TensorSpec], names: &[String]) -> String {
        let mut files = vec![0; outputs.len()];
        for (file, form) in self.files.iter().enumerate() {
            for &(output, _) in &form.outputs {
                files[output] = file;
            }
        }
        let map = outputs
            .iter()
            .zip(files)
            .map(|(output, file)| (output.name.to_string(), json!(names[file])));
        let map: serde_json::Map<_, _> = map.collect();
        // `total_size` counts the tensors without headers, as transformers writes it
        let size: u64 = self.files.iter().map(|form| form.tensor_bytes).sum();
        let text = json!({"metadata": {"total_size": size}, "weight_map": map});
        format!("{text:#}\n")
    }
}

/// The numbers of a file's outputs, and their bytes.
pub(super) type OutputsOfFile = (Vec<usize>, u64);

/// Distributes the outputs over files, in order, by their bytes.
pub(super) fn by_bytes(outputs: &[TensorSpec], sharding: &Sharding) -> Result<Vec<OutputsOfFile>> {
    let max_bytes = match sharding {
        Sharding::SingleFile => u64::MAX,
        Sharding::Shards(bytes) => *bytes,
    };
    let mut files = vec![(Vec::new(), 0u64)];
    for (number, output) in outputs.iter().enumerate() {
        let nbytes = nbytes(output)?;
        let (numbers, filled) = files.last_mut().expect("the list starts with one file");
        // a tensor is never divided: no reader joins parts of one
        if !numbers.is_empty() && filled.saturating_add(nbytes) > max_bytes {
            files.push((vec![number], nbytes));
        } else {
            numbers.push(number);
            *filled = filled.checked_add(nbytes).ok_or_else(|| too_long(output))?;
        }
    }
    Ok(files)
}

/// The same, by the number of outputs of each file.
pub(super) fn by_counts(outputs: &[TensorSpec], counts: &[usize]) -> Result<Vec<OutputsOfFile>> {
    let (mut first, mut files) = (0, Vec::new());
    for count in counts {
        let numbers: Vec<usize> = (first..outputs.len().min(first + count)).collect();
        first += numbers.len();
        let own = numbers.iter().map(|&number| &outputs[number]);
        let bytes = own.into_iter().try_fold(0u64, |sum, output| {
            let sum = sum.checked_add(nbytes(output)?);
            sum.ok_or_else(|| too_long(output))
        })?;
        files.push((numbers, bytes));
    }
    match first == outputs.len() {
        true => Ok(files),
        false => Err(Error::invalid_argument(format!(
            "{} outputs, and files for {first}",
            outputs.len()
        ))),
    }
}

fn nbytes(output: &TensorSpec) -> Result<u64> {
    output.nbytes().ok_or_else(|| too_long(output))
}

#[cold]
fn too_long(output: &TensorSpec) -> Error {
    Error::unsupported(format!("{output} takes more than 2⁶⁴ bytes"))
}

/// The metadata of a safetensors file. Only the first carries all of it: a tokenizer of megabytes is not repeated in every shard.
/// `format`, without which transformers refuses a file, and the id of the plan are in each.
pub(crate) fn file_metadata(
    metadata: &HeaderValues,
    is_first: bool,
    id: Option<PlanId>,
) -> HeaderValues {
    let id = id.map(|id| (PLAN_ID_KEY.to_owned(), HeaderValue::Text(id.to_string())));
    metadata
        .iter()
        .filter(|(key, _)| is_first || key == "format")
        .cloned()
        .chain(id)
        .collect()
}

/// The header of a file that is made alone, and its length.
pub(crate) fn file_form(outputs: &[TensorSpec], metadata: &HeaderValues) -> Result<(Vec<u8>, u64)> {
    let form = alone(outputs, metadata, &ContainerForm::PLAIN)?;
    Ok((form.head, form.nbytes))
}

/// The header of a safetensors file with these tensors, and the indices of the tensors in the order of their bytes behind it. For
/// programs that keep a file in memory, or send it; [`FileSink`](super::FileSink) writes files. `metadata` is the header's
/// `__metadata__`, which it also has where the list is empty, and not with `None`.
///
/// ```
/// use anamnesis::catalog::Shape;
/// use anamnesis::plan::TensorSpec;
/// use anamnesis::sink::safetensors_header;
/// use anamnesis::{Dtype, OpenOptions};
///
/// let tensor = |name: &str, dtype| TensorSpec::new(name, Shape::from_slice(&[2]), dtype);
/// let (mut bytes, order) = safetensors_header(&[tensor("b", Dtype::U8), tensor("w", Dtype::F32)], None)?;
/// // the widest elements are first
/// assert_eq!(order, [1, 0]);
/// bytes.extend([0; 8 + 2]);
/// assert_eq!(OpenOptions::new().from_bytes(bytes)?.tensors().len(), 2);
/// # Ok::<(), anamnesis::Error>(())
/// ```
///
/// # Errors
/// A name that is there twice; a name, shape or dtype that the format does not have; a header that would not be read at default
/// limits.
pub fn safetensors_header(
    tensors: &[TensorSpec],
    metadata: Option<&[(String, String)]>,
) -> Result<(Vec<u8>, Vec<usize>)> {
    let mut plain = ContainerForm::PLAIN;
    plain.options.empty_metadata = metadata.is_some();
    let pairs = metadata.unwrap_or_default().iter();
    let values = pairs.map(|(key, text)| (key.clone(), text.clone().into()));
    let form = alone(tensors, &values.collect(), &plain)?;
    let order = form.outputs.iter().map(|(number, _)| *number);
    Ok((form.head, order.collect()))
}

/// The form of a file that has all outputs.
fn alone(
    outputs: &[TensorSpec],
    metadata: &HeaderValues,
    form: &ContainerForm,
) -> Result<FileForm> {
    let all = by_bytes(outputs, &Sharding::SingleFile)?;
    let mut cut = FileCut::new(outputs, all, form, metadata, None)?;
    Ok(cut.files.swap_remove(0))
}
