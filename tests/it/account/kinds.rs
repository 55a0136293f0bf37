//! Kinds of changes to the tensors of every quantised checkpoint of the fixtures, under whose unchanged configuration no weight may
//! become another without a word: scales of another shape or dtype, and codes of another dtype.

use anamnesis::plan::{PLAIN, Plan};
use anamnesis::{Checkpoint, remember};

use super::StoredCheckpoint;
use super::containers::written;
use super::said::outputs;
use crate::support::fixture;
use crate::support::scratch_dir::ScratchDir;
use crate::support::writers::StoredTensor;

/// A plan, and the bytes of its outputs by name.
pub(super) struct MadeOutputs {
    pub(super) plan: Plan,
    pub(super) outputs: Vec<(String, Vec<u8>)>,
}

impl MadeOutputs {
    /// `None` for a file that cannot be opened.
    pub(super) fn of(stored: &StoredCheckpoint) -> Option<Self> {
        let directory = ScratchDir::new("account-kinds");
        let path = stored.write(&directory, "model.safetensors");
        let (plan, outputs) = outputs(&Checkpoint::open(path).ok()?);
        Some(Self { plan, outputs })
    }

    /// The names of the quantised weights that are made.
    pub(super) fn quantised(&self) -> impl Iterator<Item = String> {
        let weights = self.plan.jobs.iter().filter(|job| job.scheme != PLAIN);
        weights.map(|job| job.output.name.to_string())
    }

    /// The first weight of `before` that is missing or has other bytes here, although neither refusal, warning nor note is new.
    pub(super) fn silently_other(&self, before: &Self) -> Option<String> {
        let is_new = |note: &String| !before.plan.notes.contains(note);
        let says = |plan: &Plan| {
            !plan.refused.is_empty()
                || !plan.unexplained.is_empty()
                || plan.notes.iter().any(is_new)
        };
        if says(&self.plan) {
            return None;
        }
        before.quantised().find(|name| {
            let bytes = |made: &Self| {
                let mut all = made.outputs.iter();
                all.find(|(other, _)| other == name)
                    .map(|(_, bytes)| bytes.clone())
            };
            bytes(self) != bytes(before)
        })
    }
}

/// Every checkpoint of the fixtures whose weights are all made: its folder below `fixtures/quant`, and its outputs.
pub(super) fn intact() -> Vec<(String, StoredCheckpoint, MadeOutputs)> {
    let all = written().into_iter().filter_map(|(path, stored)| {
        let made = MadeOutputs::of(&stored)?;
        let folder = path.parent()?.strip_prefix(fixture("quant")).ok()?;
        let case = folder.display().to_string();
        made.plan.refused.is_empty().then_some((case, stored, made))
    });
    all.collect()
}

/// The names of the parts that have one of these roles in the quantised weights of a checkpoint.
pub(super) fn part(stored: &StoredCheckpoint, roles: &[&str]) -> Vec<String> {
    let directory = ScratchDir::new("account-parts");
    let path = stored.write(&directory, "model.safetensors");
    let checkpoint = Checkpoint::open(path).unwrap();
    let plan = remember(&checkpoint).plan().unwrap();
    let weights = plan.jobs.iter().filter(|job| job.scheme != PLAIN);
    let parts = weights.flat_map(|job| &job.parts);
    let parts = parts.filter(|part| roles.contains(&part.role));
    let name = |tensor: usize| checkpoint.catalog().tensors()[tensor].name.to_string();
    parts.map(|part| name(part.tensor)).collect()
}

/// A change of one tensor; `false` if it has no place for it.
type TensorChange = fn(&mut StoredTensor) -> bool;

fn width(dtype: &str) -> usize {
    match dtype {
        "F64" | "I64" => 8,
        "F32" | "I32" | "U32" => 4,
        "F16" | "BF16" | "I16" => 2,
        _ => 1,
    }
}

/// The rows and columns of a tensor's last dimension, in bytes.
fn rows(tensor: &StoredTensor) -> Option<Vec<Vec<u8>>> {
    let last = usize::try_from(*tensor.shape.last()?).unwrap() * width(&tensor.dtype);
    (last > 0).then(|| tensor.bytes.chunks(last).map(<[u8]>::to_vec).collect())
}

fn half_rows(tensor: &mut StoredTensor) -> bool {
    let Some(first) = tensor
        .shape
        .first_mut()
        .filter(|size| **size > 1 && **size % 2 == 0)
    else {
        return false;
    };
    *first /= 2;
    tensor.bytes.truncate(tensor.bytes.len() / 2);
    true
}

fn double_rows(tensor: &mut StoredTensor) -> bool {
    let Some(first) = tensor.shape.first_mut() else {
        return false;
    };
    *first *= 2;
    tensor.bytes = tensor.bytes.repeat(2);
    true
}

fn half_columns(tensor: &mut StoredTensor) -> bool {
    let &[.., cols] = &tensor.shape[..] else {
        return false;
    };
    let Some(rows) = rows(tensor).filter(|_| cols > 1 && cols % 2 == 0) else {
        return false;
    };
    *tensor.shape.last_mut().unwrap() /= 2;
    tensor.bytes = rows
        .iter()
        .flat_map(|row| row[..row.len() / 2].to_vec())
        .collect();
    true
}

fn double_columns(tensor: &mut StoredTensor) -> bool {
    let Some(rows) = rows(tensor).filter(|_| tensor.shape.len() > 1) else {
        return false;
    };
    *tensor.shape.last_mut().unwrap() *= 2;
    tensor.bytes = rows.iter().flat_map(|row| row.repeat(2)).collect();
    true
}

fn transposed(tensor: &mut StoredTensor) -> bool {
    let &[high, wide] = &tensor.shape[..] else {
        return false;
    };
    if high == wide {
        return false;
    }
    let (rows, item) = (rows(tensor).unwrap(), width(&tensor.dtype));
    let columns = (0..usize::try_from(wide).unwrap()).flat_map(|col| {
        let column = rows
            .iter()
            .map(move |row| row[col * item..][..item].to_vec());
        column.collect::<Vec<_>>()
    });
    tensor.bytes = columns.flatten().collect();
    tensor.shape = vec![wide, high];
    true
}

/// Gives a tensor another dtype, with as many elements of some value that is none of its own.
fn recast(tensor: &mut StoredTensor, dtype: &str) -> bool {
    if tensor.dtype == dtype {
        return false;
    }
    let elements: u64 = tensor.shape.iter().product();
    tensor.dtype = dtype.to_owned();
    tensor.bytes = vec![0x38; usize::try_from(elements).unwrap() * width(dtype)];
    true
}

/// Applies changes to the parts of these roles of every checkpoint; `known` are failures with a reason, by the beginning of
/// their text.
fn hold(roles: &[&str], changes: &[(&str, TensorChange)], known: &[(&str, &str)], at_least: usize) {
    let (mut changed, mut failures) = (0, Vec::new());
    for (case, intact, before) in intact() {
        for name in part(&intact, roles) {
            for (what, change) in changes {
                let mut other = intact.clone();
                let mut tensors = other.tensors.iter_mut();
                let tensor = tensors.find(|tensor| tensor.name == name).unwrap();
                if !change(tensor) {
                    continue;
                }
                changed += 1;
                let after = MadeOutputs::of(&other);
                if let Some(weight) = after.and_then(|after| after.silently_other(&before)) {
                    failures.push(format!("{case} {what} {name}: {weight}"));
                }
            }
        }
    }
    let is_known = |failure: &String| known.iter().any(|(start, _)| failure.starts_with(start));
    failures.retain(|failure| !is_known(failure));
    assert!(
        failures.is_empty(),
        "{} of {changed}:\n{}",
        failures.len(),
        failures.join("\n")
    );
    assert!(changed >= at_least, "only {changed}");
}

#[test]
fn scales_of_another_shape_are_refused_or_named() {
    hold(
        &["scale", "scales"],
        &[
            ("half of the rows", half_rows),
            ("twice the rows", double_rows),
            ("half of the columns", half_columns),
            ("twice the columns", double_columns),
            ("transposed", transposed),
        ],
        SHAPES,
        300,
    );
}

/// Shapes that a writer of the same configuration may have stored.
static SHAPES: &[(&str, &str)] = &[];

#[test]
fn scales_of_another_dtype_are_refused_or_named() {
    hold(
        &["scale", "scales"],
        &[
            ("E4M3", |tensor| recast(tensor, "F8_E4M3")),
            ("E8M0", |tensor| recast(tensor, "F8_E8M0")),
            ("U8", |tensor| recast(tensor, "U8")),
            ("I8", |tensor| recast(tensor, "I8")),
            ("I64", |tensor| recast(tensor, "I64")),
        ],
        DTYPES,
        300,
    );
}

/// Dtypes that a writer of the same configuration may have stored: a byte may have the value of a float.
static DTYPES: &[(&str, &str)] = &[
    ("autoround/mxint4 E8M0", "U8 is E8M0 in other files"),
    ("ct_written/mxfp4 E8M0", "as above"),
    ("ct_written/mxfp6 E8M0", "as above"),
    ("ct_written/mxfp8 E8M0", "as above"),
    ("deepseek_v4 U8", "as above"),
    ("field/fused-scales U8", "as E8M0"),
    (
        "field/comfy-mxfp8-96x160-u8 E8M0",
        "U8 is E8M0 in other files",
    ),
    ("field/comfy-nvfp4-160x96 U8", "E4M3 may be stored as U8"),
    ("field/comfy-nvfp4-header U8", "as above"),
    ("field/comfy-nvfp4-prequant U8", "as above"),
    (
        "field/fused-scales E8M0",
        "the method of DeepSeek's files, whose scales are E8M0",
    ),
    ("modelopt/mxfp4 E8M0", "U8 is E8M0 in other files"),
    ("quark/fp4 E8M0", "as above"),
    ("quark/fp6_e2m3 E8M0", "as above"),
    ("quark/fp6_e3m2 E8M0", "as above"),
    ("torchao/mxfp4 U8", "as above"),
    ("torchao/mxfp4_swizzled U8", "as above"),
    ("torchao/mxfp8 U8", "as above"),
    ("torchao/nvfp4 U8", "E4M3 may be stored as U8"),
    ("torchao/nvfp4_swizzled U8", "as above"),
];

#[test]
fn zero_points_of_another_dtype_are_refused_or_named() {
    hold(
        &["zero_point", "zero", "zeros", "biases", "shift"],
        &[
            ("E4M3", |tensor| recast(tensor, "F8_E4M3")),
            ("E8M0", |tensor| recast(tensor, "F8_E8M0")),
            ("U8", |tensor| recast(tensor, "U8")),
            ("I8", |tensor| recast(tensor, "I8")),
            ("I16", |tensor| recast(tensor, "I16")),
        ],
        ZEROS,
        400,
    );
}

/// Dtypes that a writer of the same configuration may have stored. Floats and wide integers are the numbers themselves.
static ZEROS: &[(&str, &str)] = &[
    (
        "quanto/qint2 ",
        "bytes of quanto are zero points, and floats are products",
    ),
    ("quanto/qint2_whole ", "as above"),
    ("quanto/qint4 ", "as above"),
    ("quanto/qint4_f16 ", "as above"),
    ("quanto/qint4_whole ", "as above"),
    ("quanto/qint4_zero_points I8", "as above"),
    (
        "quark_more/int2_per_channel I8",
        "codes of two bits in any wider signed integer",
    ),
    ("quark_more/int2_per_group I8", "as above"),
    (
        "torchao/int4_npu I8",
        "the layout of XPUs, whose zero points are bytes",
    ),
];

#[test]
fn codes_of_another_dtype_are_refused_or_named() {
    hold(
        &["codes"],
        &[
            ("I64", |tensor| recast(tensor, "I64")),
            ("F32", |tensor| recast(tensor, "F32")),
            ("E8M0", |tensor| recast(tensor, "F8_E8M0")),
        ],
        CODES,
        300,
    );
}

/// Codes whose dtype is a matter of their writer.
static CODES: &[(&str, &str)] = &[(
    "quark_more/mx_",
    "scales are among the codes, so that nothing is beside them",
)];
