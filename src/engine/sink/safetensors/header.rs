//! The layout of safetensors files: which outputs go into which file, at which offsets, and the headers.

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::json;

use crate::base::error::{Error, Remedy, Result};
use crate::base::kernel::Dtype;
use crate::plan::TensorSpec;
use crate::read::catalog::{quote, repeated};

use super::Sharding;

/// The longest header that the `safetensors` crate reads, in bytes.
const MAX_HEADER: usize = 100_000_000;

/// The outputs of one file.
#[derive(Debug)]
pub(super) struct FileLayout {
    /// Indices of the outputs, and their offsets behind the header.
    pub(super) outputs: Vec<(usize, u64)>,
    pub(super) nbytes: u64,
}

/// Distributes the outputs over files, in order, and lays out each file.
pub(super) fn layouts(outputs: &[TensorSpec], sharding: &Sharding) -> Result<Vec<FileLayout>> {
    let max_bytes = match sharding {
        Sharding::SingleFile => u64::MAX,
        Sharding::Shards(bytes) => *bytes,
    };
    if let Some(name) = repeated(outputs.iter().map(|output| &*output.name)) {
        return Err(
            Error::malformed(format!("two weights would be called {}", quote(name)))
                .with_remedy(Remedy::LeaveOutOrRename),
        );
    }
    let mut files = vec![(Vec::new(), 0u64)];
    for (number, output) in outputs.iter().enumerate() {
        if !storable(output.dtype) {
            let what = format!(
                "safetensors has no dtype {}, which {} has",
                output.dtype,
                quote(&output.name)
            );
            return Err(Error::unsupported(what).with_remedy(Remedy::LeaveOut));
        }
        let too_long = || Error::unsupported(format!("{output} takes more than 2⁶⁴ bytes"));
        let nbytes = output.nbytes().ok_or_else(too_long)?;
        let (numbers, filled) = files.last_mut().expect("the list starts with one file");
        // a tensor is never divided: no reader joins parts of one
        if !numbers.is_empty() && filled.saturating_add(nbytes) > max_bytes {
            files.push((vec![number], nbytes));
        } else {
            numbers.push(number);
            *filled = filled.checked_add(nbytes).ok_or_else(too_long)?;
        }
    }
    Ok(files
        .into_iter()
        .map(|(numbers, nbytes)| lay_out(numbers, nbytes, outputs))
        .collect())
}

/// Lays out one file: widest elements first, so that every tensor is aligned to its elements; otherwise in order.
fn lay_out(mut numbers: Vec<usize>, nbytes: u64, outputs: &[TensorSpec]) -> FileLayout {
    // stable, so that tensors of one width stay in plan order
    numbers.sort_by_key(|&n| std::cmp::Reverse(outputs[n].dtype.bits()));
    let mut start = 0;
    let offset = |n: usize| {
        let at = start;
        start += outputs[n].nbytes().expect("counted above");
        (n, at)
    };
    FileLayout {
        outputs: numbers.into_iter().map(offset).collect(),
        nbytes,
    }
}

fn storable(dtype: Dtype) -> bool {
    use Dtype::{C32, C128, QINT8, QINT32, QUINT2X4, QUINT4X2, QUINT8};
    !matches!(
        dtype,
        // dtypes that the format does not name; readers refuse a header that contains one
        C32 | C128 | QINT8 | QUINT8 | QINT32 | QUINT4X2 | QUINT2X4
    )
}

/// Serialises pairs as a map, in this order.
struct SerializedPairs<'m>(&'m [(String, String)]);

impl Serialize for SerializedPairs<'_> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_map(self.0.iter().map(|(key, value)| (key, value)))
    }
}

/// The header: its length, and JSON padded to 8 bytes.
pub(super) fn header(
    file: &FileLayout,
    outputs: &[TensorSpec],
    metadata: &[(String, String)],
) -> Result<Vec<u8>> {
    if file
        .outputs
        .iter()
        .any(|&(number, _)| &*outputs[number].name == "__metadata__")
    {
        let what = "a tensor is called `__metadata__`, a name that is reserved in safetensors";
        return Err(Error::unsupported(what).with_remedy(Remedy::LeaveOutOrRename));
    }
    let mut text = Vec::new();
    let mut json = serde_json::Serializer::new(&mut text);
    let written = json.serialize_map(None).and_then(|mut map| {
        if !metadata.is_empty() {
            // first, as the reference writes it; its keys keep their order, so that two runs write the same bytes
            map.serialize_entry("__metadata__", &SerializedPairs(metadata))?;
        }
        for &(number, start) in &file.outputs {
            let output = &outputs[number];
            let end = start + output.nbytes().expect("counted above");
            let entry = json!({"dtype": output.dtype, "shape": output.shape.as_slice(), "data_offsets": [start, end]});
            map.serialize_entry(&*output.name, &entry)?;
        }
        map.end()
    });
    written.expect("strings and numbers serialise to JSON");
    // the writer of the `safetensors` crate pads in the same way, so that the tensors of a mapped file are aligned to
    // 8 bytes
    text.resize(text.len().next_multiple_of(8), b' ');
    if text.len() > MAX_HEADER {
        return Err(Error::unsupported(format!(
            "the header has {} bytes; readers accept {MAX_HEADER}",
            text.len()
        )));
    }
    Ok([&(text.len() as u64).to_le_bytes()[..], &text].concat())
}
