//! Every documented scheme has a fixture whose weights it decodes; and a checkpoint that mixes schemes, against the same weights
//! in checkpoints of one scheme.

use std::collections::BTreeSet;

use crate::support;
use crate::support::writers::{StoredTensor, safetensors};
use anamnesis::{Checkpoint, Dtype, remember};

/// Folders of `fixtures/quant` and the schemes that decode their weights.
static FIXTURE_SCHEMES: &[(&str, &[&str])] = &[
    (
        "ct_written",
        &[
            "fp8",
            "int8",
            "compressed-tensors",
            "nvfp4",
            "mxfp4",
            "mxfp6",
        ],
    ),
    ("ct", &["compressed-tensors"]),
    ("deepseek_v4", &["fp8", "mxfp4"]),
    ("fbgemm", &["fp8"]),
    ("gptoss", &["mxfp4"]),
    ("modelopt", &["fp8", "int8", "int4", "mxfp4", "nvfp4"]),
    ("gptq", &["gptq"]),
    ("awq", &["awq"]),
    ("awq_fast", &["awq"]),
    ("autoround", &["auto-round", "mxint4", "mxfp4", "amdfp4"]),
    ("bnb", &["bitsandbytes"]),
    ("hqq", &["hqq"]),
    ("mlx", &["mlx"]),
    ("quanto", &["quanto"]),
    ("torchao", &["torchao"]),
    ("torchao_pickled", &["torchao"]),
    ("quark", &["quark", "mxfp4", "mxfp6"]),
    ("quark_more", &["quark", "amdfp4"]),
    ("bitnet", &["bitnet"]),
    ("torch", &["pth_quantizer"]),
    ("field", &["nvfp4", "mxfp8", "int8", "int4", "awq", "fp8"]),
];

/// Finds a scheme that no longer claims its weights. The values are compared in the tests of each scheme.
#[test]
fn every_scheme_decodes_a_weight_of_its_fixtures() {
    for (folder, schemes) in FIXTURE_SCHEMES {
        let mut found = BTreeSet::new();
        for path in support::files_below(&support::fixture(&format!("quant/{folder}"))) {
            let name = path.file_name().unwrap().to_string_lossy();
            let model = ["safetensors", "pth", "pt"]
                .iter()
                .any(|end| name.ends_with(&format!(".{end}")));
            if !model || name.contains("oracle") {
                continue;
            }
            let checkpoint = Checkpoint::open(&path).unwrap();
            let plan = remember(&checkpoint).plan().unwrap();
            assert!(
                plan.refused.is_empty(),
                "{}: {:?}",
                path.display(),
                plan.refused
            );
            found.extend(plan.jobs.iter().map(|job| job.scheme));
        }
        for scheme in *schemes {
            assert!(
                found.contains(scheme),
                "{folder}: no weight of scheme {scheme}, only {found:?}"
            );
        }
    }
}

/// FP8, INT8, packed integers, FP4 and FP6 of compressed-tensors.
#[test]
fn mixed_checkpoint_gives_the_weights_of_its_separate_checkpoints() {
    const INTEGER_AND_FP8: &[&str] = &[
        "fp8_block",
        "fp8_channel_bf16",
        "int8_channel_asym",
        "w4a16_asym_g128",
        "w8a16_sym_g128",
    ];
    const FLOATS: &[&str] = &[
        "nvfp4",
        "mxfp4",
        "mxfp6",
        "mxfp8",
        "fp8_group64",
        "int8_tensor",
    ];
    let (mut all, mut expected) = (Vec::new(), Vec::new());
    for &name in INTEGER_AND_FP8.iter().chain(FLOATS) {
        let path = support::fixture(&format!("quant/ct_written/{name}/model.safetensors"));
        let alone = Checkpoint::open(&path).unwrap();
        for tensor in alone.tensors() {
            let info = tensor.info();
            let bytes = tensor.bytes().unwrap().into_owned();
            all.push(StoredTensor::new(
                &format!("{name}.{}", info.name),
                info.encoding.name(),
                &info.shape,
                bytes,
            ));
        }
        for job in remember(&alone).plan().unwrap().jobs {
            let weight = remember(&alone)
                .dtype(Dtype::F32)
                .cast(true)
                .tensor(&job.output.name)
                .unwrap();
            expected.push((
                format!("{name}.{}", job.output.name),
                job.scheme,
                weight.bytes,
            ));
        }
    }
    let config = br#"{"quant_method":"compressed-tensors","format":"mixed-precision"}"#;
    let mixed = Checkpoint::from_bytes(safetensors(&all, &[])).unwrap();
    let remember = remember(&mixed)
        .dtype(Dtype::F32)
        .cast(true)
        .config(anamnesis::QuantConfig::from_json(config).unwrap());
    let plan = remember.plan().unwrap();
    assert!(plan.refused.is_empty(), "{:?}", plan.refused);
    assert_eq!(plan.jobs.len(), expected.len());
    for (name, scheme, bytes) in &expected {
        let job = plan
            .jobs
            .iter()
            .find(|job| *job.output.name == **name)
            .unwrap_or_else(|| panic!("{name} is missing"));
        assert_eq!(job.scheme, *scheme, "{name}");
        assert!(remember.tensor(name).unwrap().bytes == *bytes, "{name}");
    }
    let schemes: BTreeSet<_> = expected.iter().map(|(_, scheme, _)| *scheme).collect();
    assert!(schemes.len() >= 6, "{schemes:?}");
}
