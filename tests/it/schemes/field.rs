//! Layouts as people upload them: the fixtures of `fixtures/quant/field` against the outputs of their definers, and all cases of
//! the shared corpus where it is installed.

use std::path::Path;

use anamnesis::{Checkpoint, Dtype, remember};
use serde_json::Value;

use crate::support::fixture;

/// Names of the folders, and by how much of the largest value a rotated or smoothed weight may differ.
static FIXTURES: &[(&str, f64)] = &[
    ("comfy-nvfp4-header", 0.0),
    ("comfy-nvfp4-160x96", 0.0),
    ("comfy-nvfp4-prequant", 1e-6),
    ("comfy-mxfp8-96x160-u8", 0.0),
    ("comfy-int8-48x128", 0.0),
    ("comfy-int8-convrot64", 1e-5),
    ("comfy-int8-convrot256-params", 1e-5),
    ("comfy-w4a4-64x256-g256", 1e-5),
    ("comfy-awq-32x128", 1e-6),
    ("comfy-float8_e5m2-16x40", 0.0),
    ("comfy-scaled-fp8-old", 0.0),
    ("musubi-block-fp8", 0.0),
    ("modelopt-compressed-fp8", 0.0),
    ("modelopt-compressed-nvfp4", 1e-6),
    ("fused-scales", 0.0),
];

#[test]
fn fixtures_decode_as_their_definers_do() {
    for (name, tolerance) in FIXTURES {
        let directory = fixture("quant/field").join(name);
        compare(
            &directory.join("model.safetensors"),
            &directory.join("oracle.f32.safetensors"),
            *tolerance,
        )
        .unwrap_or_else(|difference| panic!("{name}: {difference}"));
    }
}

fn values(checkpoint: &Checkpoint, name: &str) -> Option<(Vec<u64>, Vec<f32>)> {
    let one = remember(checkpoint)
        .dtype(Dtype::F32)
        .cast(true)
        .tensor(name)
        .ok()?;
    let values = one
        .bytes
        .as_chunks()
        .0
        .iter()
        .map(|b| f32::from_le_bytes(*b));
    Some((one.spec.shape.to_vec(), values.collect()))
}

fn compare(path: &Path, oracle: &Path, tolerance: f64) -> Result<(), String> {
    let checkpoint = Checkpoint::open(path).map_err(|e| e.to_string())?;
    let plan = remember(&checkpoint).plan().map_err(|e| e.to_string())?;
    if let Some(refused) = plan.refused.first() {
        return Err(refused.error.to_string());
    }
    let oracle = Checkpoint::open(oracle).unwrap();
    assert!(oracle.tensors().len() > 0);
    for expected in oracle.tensors() {
        let name = &*expected.info().name;
        if !matches!(expected.info().encoding.name(), "F32" | "F16" | "BF16") {
            continue;
        }
        let (shape, want) = values(&oracle, name).unwrap();
        let (found, got) = values(&checkpoint, name).ok_or_else(|| format!("{name} is missing"))?;
        if shape != found {
            return Err(format!("{name} is {found:?}, not {shape:?}"));
        }
        let most = want
            .iter()
            .fold(0f64, |most, w| most.max(f64::from(w.abs())));
        for (got, want) in got.iter().zip(&want) {
            let off = (f64::from(*got) - f64::from(*want)).abs();
            if !(got == want || (got.is_nan() && want.is_nan()) || off <= tolerance * most) {
                return Err(format!("{name}: {got} instead of {want}"));
            }
        }
    }
    // nothing that described the stored bytes is left
    let expected = |name: &str| oracle.catalog().get(name).is_some();
    let left = plan.jobs.iter().find(|job| {
        !expected(&job.output.name)
            && ["scale", "comfy_quant", "quantizer", "zeros"]
                .iter()
                .any(|word| job.output.name.contains(word))
    });
    left.map_or(Ok(()), |job| Err(format!("{} is left", job.output.name)))
}

/// Cases of the corpus that are not read as it expects, each with what is said instead.
static OPEN: &[(&str, &str)] = &[];

#[test]
fn cases_of_the_corpus_decode_or_are_refused_by_name() {
    let default = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/corpus");
    let root = std::env::var_os("ANAMNESIS_CORPUS").map_or_else(default, Into::into);
    let root = root.join("field");
    let Ok(text) = std::fs::read(root.join("manifest.json")) else {
        println!("SKIPPED: the shared corpus is not installed");
        return;
    };
    let manifest: Value = serde_json::from_slice(&text).unwrap();
    let cases = manifest["cases"].as_array().unwrap();
    let (mut failures, mut decoded) = (Vec::new(), 0);
    for case in cases {
        let id = case["id"].as_str().unwrap();
        let expect = case["expect"].as_str().unwrap();
        // the command is opened with options, or the output by a client
        if case.get("args").is_some() || !matches!(expect, "decode" | "refuse") {
            continue;
        }
        let path = root.join(case["path"].as_str().unwrap());
        let result = match case["values"].as_str() {
            Some(values) => {
                decoded += 1;
                let tolerance = case["tolerance"].as_f64().unwrap_or(0.0);
                compare(&path, &root.join(values), tolerance)
            }
            None => refused(&path, case),
        };
        let open = OPEN.iter().find(|(known, _)| *known == id);
        match (result, open) {
            (Ok(()), None) => {}
            (Err(why), Some((_, said))) if why.contains(said) => {}
            (Ok(()), Some(_)) => failures.push(format!("{id} is no longer open")),
            (Err(why), _) => failures.push(format!("{id}: {why}")),
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(decoded > 40, "only {decoded} cases");
}

/// Whether the case is refused with one of the words that its message must have.
fn refused(path: &Path, case: &Value) -> Result<(), String> {
    let said = match Checkpoint::open(path).and_then(|c| remember(&c).plan()) {
        Err(error) => error.to_string(),
        Ok(plan) => match plan.refused.first() {
            None => return Err("it was not refused".to_owned()),
            Some(first) => first.error.to_string(),
        },
    };
    let lower = said.to_lowercase();
    let wrong = ["damaged", "malformed"]
        .iter()
        .any(|word| lower.contains(word));
    let has = |words: &Value| {
        words
            .as_array()
            .unwrap()
            .iter()
            .any(|word| lower.contains(&word.as_str().unwrap().to_lowercase()))
    };
    match case["says"]
        .as_array()
        .is_none_or(|all| all.iter().all(has))
        && !wrong
    {
        true => Ok(()),
        false => Err(said),
    }
}
