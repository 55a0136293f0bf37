//! Checks of quantisation schemes: checkpoints built from parts, dequantised in memory, and comparison with the reference
//! outputs in `fixtures/quant` (`fixtures/README.md` names the library that made each).

use std::path::Path;

use anamnesis::{Checkpoint, Dtype, QuantConfig, Remembered, Result, remember};

use super::random::random_bytes;
use super::{compare_bits, fixture};

/// A stored tensor: name, dtype, shape, bytes.
pub type StoredPart<'s> = (&'s str, &'s str, &'s [u64], Vec<u8>);

/// A safetensors file.
pub fn safetensors(tensors: &[StoredPart<'_>]) -> Vec<u8> {
    safetensors_with("{}", tensors)
}

/// Like [`safetensors`], with this JSON as `__metadata__`.
pub fn safetensors_with(metadata: &str, tensors: &[StoredPart<'_>]) -> Vec<u8> {
    let mut header = format!("{{\"__metadata__\":{metadata}");
    let mut data = Vec::new();
    for (name, dtype, shape, bytes) in tensors {
        let (start, end) = (data.len(), data.len() + bytes.len());
        header += &format!(
            ",\"{name}\":{{\"dtype\":\"{dtype}\",\"shape\":{shape:?},\"data_offsets\":[{start},{end}]}}"
        );
        data.extend(bytes);
    }
    header += "}";
    header += &" ".repeat(header.len().next_multiple_of(8) - header.len());
    [
        &(header.len() as u64).to_le_bytes(),
        header.as_bytes(),
        &data,
    ]
    .concat()
}

pub fn f32_bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|x| x.to_le_bytes()).collect()
}

pub fn f16_bytes(values: &[f32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|x| half::f16::from_f32(*x).to_le_bytes())
        .collect()
}

pub fn bf16_bytes(values: &[f32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|x| half::bf16::from_f32(*x).to_le_bytes())
        .collect()
}

pub fn i32_bytes(values: &[i32]) -> Vec<u8> {
    values.iter().flat_map(|x| x.to_le_bytes()).collect()
}

pub fn i64_bytes(values: &[i64]) -> Vec<u8> {
    values.iter().flat_map(|x| x.to_le_bytes()).collect()
}

/// `n` scales between 0.01 and 1.01.
pub fn random_scales(seed: u64, n: usize) -> Vec<f32> {
    random_bytes(seed, n)
        .into_iter()
        .map(|b| f32::from(b) / 257.0 + 0.01)
        .collect()
}

fn config(json: &str) -> QuantConfig {
    QuantConfig::from_json(json.as_bytes()).unwrap()
}

/// Dequantises one weight of a file in memory.
pub fn dequantise(file: Vec<u8>, json: &str, name: &str, dtype: Dtype) -> Result<Remembered> {
    let checkpoint = Checkpoint::from_bytes(file)?;
    remember(&checkpoint)
        .config(config(json))
        .dtype(dtype)
        .tensor(name)
}

/// The shape and the F32 values of one dequantised weight. Checks that BF16 and F16 outputs, made with three threads, are the
/// F32 values rounded once.
pub fn dequantised(file: Vec<u8>, json: &str, name: &str) -> (Vec<u64>, Vec<f32>) {
    let checkpoint = Checkpoint::from_bytes(file).unwrap();
    let remember = remember(&checkpoint).config(config(json));
    let plan = remember.plan().unwrap();
    assert!(plan.refused.is_empty(), "{:?}", plan.refused);
    let found = remember
        .clone()
        .dtype(Dtype::F32)
        .tensor(name)
        .unwrap_or_else(|e| panic!("{e}"));
    let values: Vec<f32> = found
        .bytes
        .as_chunks()
        .0
        .iter()
        .map(|b| f32::from_le_bytes(*b))
        .collect();
    for (dtype, expected) in [
        (Dtype::BF16, bf16_bytes(&values)),
        (Dtype::F16, f16_bytes(&values)),
    ] {
        let narrow = remember
            .clone()
            .dtype(dtype)
            .threads(3)
            .tensor(name)
            .unwrap();
        compare_bits(&narrow.bytes, &expected, dtype)
            .unwrap_or_else(|difference| panic!("{name} {dtype}: {difference}"));
    }
    (found.spec.shape.to_vec(), values)
}

/// The names of the outputs of a file.
pub fn output_names(file: Vec<u8>, json: &str) -> Vec<String> {
    let checkpoint = Checkpoint::from_bytes(file).unwrap();
    let plan = remember(&checkpoint).config(config(json)).plan().unwrap();
    assert!(plan.refused.is_empty(), "{:?}", plan.refused);
    plan.jobs
        .iter()
        .map(|job| job.output.name.to_string())
        .collect()
}

/// The notes of the plan of a file.
pub fn plan_notes(file: Vec<u8>, json: &str) -> Vec<String> {
    let checkpoint = Checkpoint::from_bytes(file).unwrap();
    remember(&checkpoint)
        .config(config(json))
        .plan()
        .unwrap()
        .notes
}

/// The error of the only weight of a file, which planning refuses. Checks that the error contains `name`.
pub fn refusal(file: Vec<u8>, json: &str, name: &str) -> String {
    let checkpoint = Checkpoint::from_bytes(file).unwrap();
    let plan = remember(&checkpoint).config(config(json)).plan().unwrap();
    let [refused] = plan.refused.as_slice() else {
        panic!(
            "{name}: {} refusals, {} jobs",
            plan.refused.len(),
            plan.jobs.len()
        )
    };
    let text = refused.error.to_string();
    assert!(text.contains(name), "{text:?} does not name {name}");
    text
}

/// Compares bit by bit, where any NaN equals any NaN.
#[track_caller]
pub fn assert_same_bits(found: &[f32], expected: &[f32]) {
    compare_bits(&f32_bytes(found), &f32_bytes(expected), Dtype::F32).unwrap();
}

/// Compares every checkpoint of `fixtures/quant/{folder}` with its reference outputs: in F32, rounded once to BF16, and, if it
/// has `oracle.native.safetensors`, with native rounding. Returns the number of checkpoints.
pub fn compare_with_oracles(folder: &str) -> usize {
    let checkpoints: Vec<_> = std::fs::read_dir(fixture("quant").join(folder))
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    for checkpoint in &checkpoints {
        let model =
            ["model.safetensors", "model.pth", "qmodel.pt"].map(|name| checkpoint.join(name));
        let model = model
            .iter()
            .find(|path| path.exists())
            .unwrap_or_else(|| panic!("{} contains no checkpoint", checkpoint.display()));
        compare_with_oracle(model, &checkpoint.join("oracle.f32.safetensors"), false);
        let native = checkpoint.join("oracle.native.safetensors");
        if native.exists() {
            compare_with_oracle(model, &native, true);
        }
    }
    checkpoints.len()
}

fn compare_with_oracle(model: &Path, oracle: &Path, native: bool) {
    let (checkpoint, oracle) = (
        Checkpoint::open(model).unwrap(),
        Checkpoint::open(oracle).unwrap(),
    );
    let remember = remember(&checkpoint).native_rounding(native).cast(true);
    let plan = remember.plan().unwrap();
    assert!(
        plan.refused.is_empty(),
        "{}: {:?}",
        model.display(),
        plan.refused
    );
    assert_eq!(
        plan.jobs.len(),
        oracle.tensors().len(),
        "{}: {:?}",
        model.display(),
        plan.jobs
    );
    for tensor in oracle.tensors() {
        let anamnesis::Encoding::Plain(dtype) = tensor.info().encoding else {
            panic!("{dtype:?}", dtype = tensor.info())
        };
        let name = &*tensor.info().name;
        let expected = tensor.bytes().unwrap();
        let check = |dtype: Dtype, expected: &[u8]| {
            let found = remember
                .clone()
                .dtype(dtype)
                .tensor(name)
                .unwrap_or_else(|e| panic!("{}: {e}", model.display()));
            assert_eq!(
                found.spec.shape,
                tensor.info().shape,
                "{}: {name}",
                model.display()
            );
            compare_bits(&found.bytes, expected, dtype).unwrap_or_else(|difference| {
                panic!("{} {name} {dtype}: {difference}", model.display())
            });
        };
        check(dtype, &expected);
        if dtype == Dtype::F32 {
            let values: Vec<f32> = expected
                .as_chunks()
                .0
                .iter()
                .map(|b| f32::from_le_bytes(*b))
                .collect();
            check(Dtype::BF16, &bf16_bytes(&values));
        }
    }
}

/// The value of an FP8 code by the definition of its type. `ocp`: the types of the OCP specification (E4M3 and E5M2), else the
/// FNUZ types.
pub fn fp8_value(code: u8, mantissa_bits: i32, bias: i32, ocp: bool) -> f32 {
    let (exponent, mantissa) = (
        i32::from(code & 0x7f) >> mantissa_bits,
        i32::from(code & 0x7f) & ((1 << mantissa_bits) - 1),
    );
    let magnitude = match (ocp, mantissa_bits, code & 0x7f) {
        (false, _, 0) if code == 0x80 => return f32::NAN,
        (true, 3, 0x7f) | (true, 2, 0x7d..) => f32::NAN,
        (true, 2, 0x7c) => f32::INFINITY,
        #[allow(clippy::cast_precision_loss)]
        _ => {
            let significand = if exponent == 0 {
                mantissa
            } else {
                mantissa + (1 << mantissa_bits)
            };
            significand as f32 * 2f32.powi(exponent.max(1) - bias - mantissa_bits)
        }
    };
    if code < 0x80 { magnitude } else { -magnitude }
}
