//! An open checkpoint against what a manifest says is in it.

use std::collections::{BTreeSet, HashMap};

use anamnesis::catalog::{Packing, Quantizer};
use anamnesis::{Checkpoint, Layout, Tensor, TensorInfo};

use super::corpus::{Entry, Scale, Want};
use super::manifest_exceptions::Instead;
use super::{manifest_dtypes, sha256, stored_sha256};

impl Entry {
    /// Where a listing and its bytes differ from the manifest.
    pub fn differences(&self, checkpoint: &Checkpoint) -> Vec<String> {
        let mut wrong = self.names(checkpoint);
        for want in self.tensors() {
            let want = self.amended(want);
            let mut said = |what: String| wrong.push(format!("{:?}: {what}", want.name));
            let Some(tensor) = checkpoint.tensor(&want.name) else {
                said("missing".into());
                continue;
            };
            described(&want, tensor.info(), &mut said);
            placed(&want, tensor.info(), checkpoint, &mut said);
            quantized(&want, tensor.info(), &mut said);
            hashed(&want, &tensor, &mut said);
        }
        wrong.extend(ties(self.tensors(), checkpoint));
        wrong
    }

    /// The names, in the order of the file.
    fn names(&self, checkpoint: &Checkpoint) -> Vec<String> {
        let also: Vec<&str> = self
            .exceptions()
            .flat_map(|e| {
                if let Instead::AlsoLists(names) = e {
                    *names
                } else {
                    &[]
                }
            })
            .copied()
            .collect();
        let listed = || checkpoint.catalog().tensors().iter().map(|t| &*t.name);
        let found: BTreeSet<&str> = listed().filter(|name| also.contains(name)).collect();
        let mut wrong = Vec::new();
        if found.len() != also.len() {
            wrong.push(format!("of {also:?} only {found:?} are listed"));
        }
        let mut names: Vec<&str> = listed().filter(|name| !also.contains(name)).collect();
        let mut expected: Vec<&str> = self.tensors().iter().map(|t| &*t.name).collect();
        if self.exceptions().any(|e| matches!(e, Instead::ByOffset)) {
            names.sort_unstable();
            expected.sort_unstable();
            if !checkpoint
                .catalog()
                .tensors()
                .is_sorted_by_key(|t| (t.bytes.file, t.bytes.start))
            {
                wrong.push("not in the order of the file".into());
            }
        }
        if names != expected {
            wrong.push(format!(
                "other names, or in another order: {names:?} instead of {expected:?}"
            ));
        }
        wrong
    }

    /// A tensor in our spelling, with the exceptions applied.
    fn amended(&self, want: &Want) -> Want {
        let mut want = want.clone();
        let mut dtype = None;
        for exception in self.exceptions() {
            match exception {
                Instead::Dtypes(names) => {
                    dtype = dtype.or(names
                        .iter()
                        .find(|(theirs, _)| *theirs == want.dtype)
                        .map(|(_, ours)| *ours));
                }
                Instead::Pairs => {
                    *want.shape.last_mut().unwrap() *= 2;
                    let (_, outer) = want.stride.as_mut().unwrap().split_last_mut().unwrap();
                    outer.iter_mut().for_each(|s| *s *= 2);
                }
                _ => {}
            }
        }
        want.dtype = dtype
            .unwrap_or_else(|| manifest_dtypes::ours(&self.format, &want.dtype))
            .to_owned();
        want
    }
}

/// Dtype, shape, layout and size.
fn described(want: &Want, info: &TensorInfo, said: &mut impl FnMut(String)) {
    if info.shape[..] != want.shape[..] {
        said(format!(
            "shape {:?} instead of {:?}",
            info.shape, want.shape
        ));
    }
    if info.encoding.name() != want.dtype {
        said(format!("dtype {} instead of {}", info.encoding, want.dtype));
    }
    if let Some(nbytes) = want.nbytes
        && info.nbytes() != nbytes
    {
        said(format!("{} bytes instead of {nbytes}", info.nbytes()));
    }
    let layout = want.layout.as_deref().map(|theirs| match theirs {
        "torch.strided" => "absent", // described as dense, and without data
        other => other.strip_prefix("torch.").unwrap(),
    });
    if want.sha256.is_none() != layout.is_some()
        || layout.is_some_and(|layout| info.layout.name() != layout)
    {
        said(format!(
            "laid out as {} instead of {layout:?}",
            info.layout.name()
        ));
    }
}

/// Strides, and the place in the storage.
fn placed(want: &Want, info: &TensorInfo, checkpoint: &Checkpoint, said: &mut impl FnMut(String)) {
    if let Some(fortran) = want.fortran_order
        && fortran != (info.layout == Layout::ColumnMajor)
    {
        said(format!(
            "laid out as {}, Fortran order {fortran}",
            info.layout.name()
        ));
    }
    if let Some(stride) = &want.stride
        && info.elements() > 0
    {
        // what a dimension of one element says does not matter
        let matter = |strides: &[u64]| -> Vec<u64> {
            strides
                .iter()
                .zip(&info.shape)
                .filter(|(_, d)| **d > 1)
                .map(|(s, _)| *s)
                .collect()
        };
        let ours = strides(info);
        if ours.len() != stride.len() || matter(&ours) != matter(stride) {
            said(format!("strides {ours:?} instead of {stride:?}"));
        }
    }
    let member = info
        .member
        .map(|m| &checkpoint.catalog().members()[m as usize]);
    if let (Some(member), Some(nbytes)) = (member, want.storage_nbytes)
        && member.inflated != nbytes
    {
        said(format!(
            "a storage of {} bytes instead of {nbytes}",
            member.inflated
        ));
    }
    if let (Some(member), Some(offset), Some(item)) =
        (member, want.storage_offset, info.encoding.item_bytes())
        && info.elements() > 0
    {
        let ours = match info.packing {
            Packing::Deflate { skip, .. } => skip,
            Packing::Raw => info.bytes.start - member.bytes.start,
        };
        if ours != offset * item {
            said(format!(
                "begins {ours} bytes into its storage instead of {offset} times {item}"
            ));
        }
    }
}

/// The strides in elements that a layout means.
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

fn quantized(want: &Want, info: &TensorInfo, said: &mut impl FnMut(String)) {
    let right = match (info.quantizer(), want.qscheme.as_deref(), &want.scale) {
        (None, None, None) => true,
        (
            Some(Quantizer::PerTensor { scale, .. }),
            Some("torch.per_tensor_affine"),
            Some(Scale::PerTensor(wanted)),
        ) => scale == wanted,
        (
            Some(Quantizer::PerChannel {
                scales,
                zero_points,
                axis,
            }),
            Some("torch.per_channel_affine"),
            Some(Scale::PerChannel(wanted)),
        ) => {
            let channels = wanted.len() as u64;
            let axis = usize::try_from(*axis).unwrap();
            scales.shape[..] == [channels]
                && zero_points.shape[..] == [channels]
                && info.shape[axis] == channels
        }
        _ => false,
    };
    if !right {
        said(format!(
            "quantised by {:?} instead of {:?} {:?}",
            info.quantizer(),
            want.qscheme,
            want.scale
        ));
    }
}

/// The bytes.
fn hashed(want: &Want, tensor: &Tensor<'_>, said: &mut impl FnMut(String)) {
    let hashes = [
        ("sha256", &want.sha256, sha256 as fn(&Tensor<'_>) -> _),
        ("raw_sha256", &want.raw_sha256, stored_sha256),
    ];
    for (name, wanted, hash) in hashes {
        let Some(wanted) = wanted else { continue };
        match hash(tensor) {
            Ok(found) if found == *wanted => {}
            Ok(found) => said(format!("{name} {found} instead of {wanted}")),
            Err(e) => said(format!("cannot be read: {e}")),
        }
    }
}

/// Tied tensors share their storage, and only they.
fn ties(tensors: &[Want], checkpoint: &Checkpoint) -> Vec<String> {
    let (mut ours, mut theirs) = (HashMap::new(), HashMap::new());
    let mut wrong = Vec::new();
    for want in tensors {
        // PyTorch gives all empty storages one address
        let Some(id) = want.storage_id.filter(|_| want.nbytes != Some(0)) else {
            continue;
        };
        let Some(info) = checkpoint.catalog().get(&want.name) else {
            continue;
        };
        let (member, name) = (info.member, &*want.name);
        let &mut (expected, with) = ours.entry(id).or_insert((member, name));
        if expected != member {
            wrong.push(format!("{name:?} is not tied to {with:?}"));
        }
        let &mut (expected, with) = theirs.entry(member).or_insert((id, name));
        if expected != id {
            wrong.push(format!("{name:?} is tied to {with:?}"));
        }
    }
    wrong
}
