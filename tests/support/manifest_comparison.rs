//! Compares an open checkpoint with the description of it in a corpus manifest.

use std::collections::{BTreeSet, HashMap};

use anamnesis::catalog::{Packing, Quantizer};
use anamnesis::{Checkpoint, Layout, Tensor, TensorInfo};

use super::corpus::{CorpusEntry, ExpectedTensor, Scale};
use super::manifest_exceptions::Deviation;
use super::{manifest_dtypes, sha256, stored_sha256};

impl CorpusEntry {
    /// The differences between the manifest and the listed tensors with their bytes.
    pub fn differences(&self, checkpoint: &Checkpoint) -> Vec<String> {
        let mut differences = self.compare_names(checkpoint);
        for expected in self.tensors() {
            let expected = self.with_deviations(expected);
            let mut report =
                |what: String| differences.push(format!("{:?}: {what}", expected.name));
            let Some(tensor) = checkpoint.tensor(&expected.name) else {
                report("missing".into());
                continue;
            };
            compare_description(&expected, tensor.info(), &mut report);
            compare_location(&expected, tensor.info(), checkpoint, &mut report);
            compare_quantizer(&expected, tensor.info(), &mut report);
            compare_hashes(&expected, &tensor, &mut report);
        }
        differences.extend(compare_tied_tensors(self.tensors(), checkpoint));
        differences
    }

    /// The tensor names, which are listed in file order.
    fn compare_names(&self, checkpoint: &Checkpoint) -> Vec<String> {
        let additional: Vec<&str> = self
            .deviations()
            .flat_map(|e| {
                if let Deviation::AdditionalTensors(names) = e {
                    *names
                } else {
                    &[]
                }
            })
            .copied()
            .collect();
        let listed = || checkpoint.catalog().tensors().iter().map(|t| &*t.name);
        let found: BTreeSet<&str> = listed().filter(|name| additional.contains(name)).collect();
        let mut differences = Vec::new();
        if found.len() != additional.len() {
            differences.push(format!("of {additional:?} only {found:?} are listed"));
        }
        let mut names: Vec<&str> = listed().filter(|name| !additional.contains(name)).collect();
        let mut expected: Vec<&str> = self.tensors().iter().map(|t| &*t.name).collect();
        if self
            .deviations()
            .any(|e| matches!(e, Deviation::OffsetOrder))
        {
            names.sort_unstable();
            expected.sort_unstable();
            if !checkpoint
                .catalog()
                .tensors()
                .is_sorted_by_key(|t| (t.bytes.file, t.bytes.start))
            {
                differences.push("not in the order of the file".into());
            }
        }
        if names != expected {
            differences.push(format!(
                "other names, or in another order: {names:?} instead of {expected:?}"
            ));
        }
        differences
    }

    /// The tensor with dtypes as this library spells them and with the deviations of this entry.
    fn with_deviations(&self, manifest: &ExpectedTensor) -> ExpectedTensor {
        let mut expected = manifest.clone();
        let mut dtype = None;
        for exception in self.deviations() {
            match exception {
                Deviation::DtypeNames(names) => {
                    dtype = dtype.or(names
                        .iter()
                        .find(|(theirs, _)| *theirs == expected.dtype)
                        .map(|(_, ours)| *ours));
                }
                Deviation::TwoElementsPerByte => {
                    *expected.shape.last_mut().unwrap() *= 2;
                    let (_, outer) = expected.stride.as_mut().unwrap().split_last_mut().unwrap();
                    outer.iter_mut().for_each(|s| *s *= 2);
                }
                _ => {}
            }
        }
        expected.dtype = dtype
            .unwrap_or_else(|| manifest_dtypes::library_name(&self.format, &expected.dtype))
            .to_owned();
        expected
    }
}

/// Dtype, shape, layout and size.
fn compare_description(
    expected: &ExpectedTensor,
    info: &TensorInfo,
    report: &mut impl FnMut(String),
) {
    if info.shape[..] != expected.shape[..] {
        report(format!(
            "shape {:?} instead of {:?}",
            info.shape, expected.shape
        ));
    }
    if info.encoding.name() != expected.dtype {
        report(format!(
            "dtype {} instead of {}",
            info.encoding, expected.dtype
        ));
    }
    if let Some(nbytes) = expected.nbytes
        && info.nbytes() != nbytes
    {
        report(format!("{} bytes instead of {nbytes}", info.nbytes()));
    }
    let layout = expected.layout.as_deref().map(|theirs| match theirs {
        "torch.strided" => "absent", // PyTorch describes a tensor without data as dense
        other => other.strip_prefix("torch.").unwrap(),
    });
    if expected.sha256.is_none() != layout.is_some()
        || layout.is_some_and(|layout| info.layout.name() != layout)
    {
        report(format!(
            "layout {} instead of {layout:?}",
            info.layout.name()
        ));
    }
}

/// Strides, and the offset in the storage.
fn compare_location(
    expected: &ExpectedTensor,
    info: &TensorInfo,
    checkpoint: &Checkpoint,
    report: &mut impl FnMut(String),
) {
    if let Some(fortran) = expected.fortran_order
        && fortran != (info.layout == Layout::ColumnMajor)
    {
        report(format!(
            "layout {}, Fortran order {fortran}",
            info.layout.name()
        ));
    }
    if let Some(stride) = &expected.stride
        && info.elements() > 0
    {
        // the stride of a dimension of one element addresses nothing
        let significant = |strides: &[u64]| -> Vec<u64> {
            strides
                .iter()
                .zip(&info.shape)
                .filter(|(_, d)| **d > 1)
                .map(|(s, _)| *s)
                .collect()
        };
        let found = strides(info);
        if found.len() != stride.len() || significant(&found) != significant(stride) {
            report(format!("strides {found:?} instead of {stride:?}"));
        }
    }
    let member = info
        .member
        .map(|m| &checkpoint.catalog().members()[m as usize]);
    if let (Some(member), Some(nbytes)) = (member, expected.storage_nbytes)
        && member.inflated != nbytes
    {
        report(format!(
            "a storage of {} bytes instead of {nbytes}",
            member.inflated
        ));
    }
    if let (Some(member), Some(offset), Some(item)) =
        (member, expected.storage_offset, info.encoding.item_bytes())
        && info.elements() > 0
    {
        let found = match info.packing {
            Packing::Deflate { skip, .. } | Packing::DeflatedLatin1 { skip, .. } => skip,
            Packing::Raw | Packing::Latin1 => info.bytes.start - member.bytes.start,
        };
        if found != offset * item {
            report(format!(
                "starts {found} bytes into its storage instead of {offset} times {item}"
            ));
        }
    }
}

/// The strides of a layout, in elements.
fn strides(info: &TensorInfo) -> Vec<u64> {
    if let Layout::Strided(strides) = &info.layout {
        return strides.to_vec();
    }
    let mut strides = Vec::new();
    let mut step = 1;
    for d in info.shape.iter().rev() {
        strides.push(step);
        step *= d;
    }
    strides.reverse();
    strides
}

fn compare_quantizer(
    expected: &ExpectedTensor,
    info: &TensorInfo,
    report: &mut impl FnMut(String),
) {
    let matches = match (
        info.quantizer(),
        expected.qscheme.as_deref(),
        &expected.scale,
    ) {
        (None, None, None) => true,
        (
            Some(Quantizer::PerTensor { scale, .. }),
            Some("torch.per_tensor_affine"),
            Some(Scale::PerTensor(expected)),
        ) => scale == expected,
        (
            Some(Quantizer::PerChannel {
                scales,
                zero_points,
                axis,
            }),
            Some("torch.per_channel_affine"),
            Some(Scale::PerChannel(expected)),
        ) => {
            let channels = expected.len() as u64;
            let axis = usize::try_from(*axis).unwrap();
            scales.shape[..] == [channels]
                && zero_points.shape[..] == [channels]
                && info.shape[axis] == channels
        }
        _ => false,
    };
    if !matches {
        report(format!(
            "quantiser {:?} instead of {:?} {:?}",
            info.quantizer(),
            expected.qscheme,
            expected.scale
        ));
    }
}

/// SHA-256 of the logical and of the stored bytes.
fn compare_hashes(expected: &ExpectedTensor, tensor: &Tensor<'_>, report: &mut impl FnMut(String)) {
    let hashes = [
        ("sha256", &expected.sha256, sha256 as fn(&Tensor<'_>) -> _),
        ("raw_sha256", &expected.raw_sha256, stored_sha256),
    ];
    for (name, expected, hash) in hashes {
        let Some(expected) = expected else { continue };
        match hash(tensor) {
            Ok(found) if found == *expected => {}
            Ok(found) => report(format!("{name} {found} instead of {expected}")),
            Err(e) => report(format!("cannot be read: {e}")),
        }
    }
}

/// Tied tensors share their storage, and other tensors do not.
fn compare_tied_tensors(tensors: &[ExpectedTensor], checkpoint: &Checkpoint) -> Vec<String> {
    // the first tensor of each storage of the manifest, and of each member of the file
    let (mut by_storage, mut by_member) = (HashMap::new(), HashMap::new());
    let mut differences = Vec::new();
    for expected in tensors {
        // empty storages have one address in PyTorch
        let Some(id) = expected.storage_id.filter(|_| expected.nbytes != Some(0)) else {
            continue;
        };
        let Some(info) = checkpoint.catalog().get(&expected.name) else {
            continue;
        };
        let (member, name) = (info.member, &*expected.name);
        let &mut (first_member, first) = by_storage.entry(id).or_insert((member, name));
        if first_member != member {
            differences.push(format!("{name:?} is not tied to {first:?}"));
        }
        let &mut (first_id, first) = by_member.entry(member).or_insert((id, name));
        if first_id != id {
            differences.push(format!("{name:?} is tied to {first:?}"));
        }
    }
    differences
}
