//! What the tests of quantisation schemes share: checkpoints made of parts, and reference outputs.

use std::path::Path;

use anamnesis::{Checkpoint, Dtype, QuantConfig, Remembered, Result, remember};

use super::{fixture, same_bits};

/// A tensor to be stored: name, dtype, shape, bytes.
pub type Stored<'s> = (&'s str, &'s str, &'s [u64], Vec<u8>);

/// A safetensors file of these tensors.
pub fn safetensors(tensors: &[Stored<'_>]) -> Vec<u8> {
    safetensors_with("{}", tensors)
}

/// As [`safetensors`], with this `__metadata__`.
pub fn safetensors_with(metadata: &str, tensors: &[Stored<'_>]) -> Vec<u8> {
    let mut header = format!("{{\"__metadata__\":{metadata}");
    let mut data = Vec::new();
    for (name, dtype, shape, bytes) in tensors {
        let (from, to) = (data.len(), data.len() + bytes.len());
        header += &format!(
            ",\"{name}\":{{\"dtype\":\"{dtype}\",\"shape\":{shape:?},\"data_offsets\":[{from},{to}]}}"
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

pub fn f32s(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|x| x.to_le_bytes()).collect()
}

pub fn f16s(values: &[f32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|x| half::f16::from_f32(*x).to_le_bytes())
        .collect()
}

pub fn bf16s(values: &[f32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|x| half::bf16::from_f32(*x).to_le_bytes())
        .collect()
}

pub fn i32s(values: &[i32]) -> Vec<u8> {
    values.iter().flat_map(|x| x.to_le_bytes()).collect()
}

pub fn i64s(values: &[i64]) -> Vec<u8> {
    values.iter().flat_map(|x| x.to_le_bytes()).collect()
}

/// Reproducible bytes.
pub fn noise(seed: u64, n: usize) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        state.to_be_bytes()[0]
    };
    (0..n).map(|_| next()).collect()
}

/// Reproducible scales between about 0.01 and 1.
pub fn scales(seed: u64, n: usize) -> Vec<f32> {
    noise(seed, n)
        .into_iter()
        .map(|b| f32::from(b) / 257.0 + 0.01)
        .collect()
}

fn config(json: &str) -> QuantConfig {
    QuantConfig::from_json(json.as_bytes()).unwrap()
}

/// One weight of a file in memory.
pub fn made(file: Vec<u8>, json: &str, name: &str, dtype: Dtype) -> Result<Remembered> {
    let checkpoint = Checkpoint::from_bytes(file)?;
    remember(&checkpoint)
        .config(config(json))
        .dtype(dtype)
        .tensor(name)
}

/// One weight of a file in memory, as numbers; the same with few threads and many, and rounded once where
/// the output is narrower.
pub fn weight(file: Vec<u8>, json: &str, name: &str) -> (Vec<u64>, Vec<f32>) {
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
    for (dtype, expected) in [(Dtype::BF16, bf16s(&values)), (Dtype::F16, f16s(&values))] {
        let narrow = remember
            .clone()
            .dtype(dtype)
            .threads(3)
            .tensor(name)
            .unwrap();
        same_bits(&narrow.bytes, &expected, dtype)
            .unwrap_or_else(|what| panic!("{name} {dtype}: {what}"));
    }
    (found.spec.shape.to_vec(), values)
}

/// Names of everything that comes out of a file.
pub fn outputs(file: Vec<u8>, json: &str) -> Vec<String> {
    let checkpoint = Checkpoint::from_bytes(file).unwrap();
    let plan = remember(&checkpoint).config(config(json)).plan().unwrap();
    assert!(plan.refused.is_empty(), "{:?}", plan.refused);
    plan.jobs
        .iter()
        .map(|job| job.output.name.to_string())
        .collect()
}

/// What a plan notes.
pub fn notes(file: Vec<u8>, json: &str) -> Vec<String> {
    let checkpoint = Checkpoint::from_bytes(file).unwrap();
    remember(&checkpoint)
        .config(config(json))
        .plan()
        .unwrap()
        .notes
}

/// Why the only weight of a file is refused; the text must name it.
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

/// Equal numbers, bit for bit (a NaN equals a NaN).
#[track_caller]
pub fn same(found: &[f32], expected: &[f32]) {
    same_bits(&f32s(found), &f32s(expected), Dtype::F32).unwrap();
}

/// Every checkpoint of `fixtures/quant/{scheme}` against its reference outputs: in F32, rounded once to BF16,
/// and, where there is an `oracle.native`, rounded as the reference rounds. Says how many there are.
pub fn meets_oracles(scheme: &str) -> usize {
    let folders: Vec<_> = std::fs::read_dir(fixture("quant").join(scheme))
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    for folder in &folders {
        let model = ["model.safetensors", "model.pth", "qmodel.pt"].map(|name| folder.join(name));
        let model = model
            .iter()
            .find(|path| path.exists())
            .unwrap_or_else(|| panic!("{}", folder.display()));
        meets_oracle(model, &folder.join("oracle.f32.safetensors"), false);
        let native = folder.join("oracle.native.safetensors");
        if native.exists() {
            meets_oracle(model, &native, true);
        }
    }
    folders.len()
}

fn meets_oracle(model: &Path, oracle: &Path, native: bool) {
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
            same_bits(&found.bytes, expected, dtype)
                .unwrap_or_else(|what| panic!("{} {name} {dtype}: {what}", model.display()));
        };
        check(dtype, &expected);
        if dtype == Dtype::F32 {
            let values: Vec<f32> = expected
                .as_chunks()
                .0
                .iter()
                .map(|b| f32::from_le_bytes(*b))
                .collect();
            check(Dtype::BF16, &bf16s(&values));
        }
    }
}

/// What a code of FP8 is worth by the definition of its type: bits of the mantissa, bias, and whether it is of OCP.
pub fn fp8(code: u8, mantissa: i32, bias: i32, ocp: bool) -> f32 {
    let (high, fraction) = (
        i32::from(code & 0x7f) >> mantissa,
        i32::from(code & 0x7f) & ((1 << mantissa) - 1),
    );
    let worth = match (ocp, mantissa, code & 0x7f) {
        (false, _, 0) if code == 0x80 => return f32::NAN,
        (true, 3, 0x7f) | (true, 2, 0x7d..) => f32::NAN,
        (true, 2, 0x7c) => f32::INFINITY,
        #[allow(clippy::cast_precision_loss)]
        _ => {
            let whole = if high == 0 {
                fraction
            } else {
                fraction + (1 << mantissa)
            };
            whole as f32 * 2f32.powi(high.max(1) - bias - mantissa)
        }
    };
    if code < 0x80 { worth } else { -worth }
}
