//! Every scheme that is promised has fixtures, which come out by it; and combinations that no single fixture has.

use std::collections::BTreeSet;

use crate::support;
use crate::support::writers::{StoredTensor, safetensors as written};
use anamnesis::{Checkpoint, Dtype, remember};

/// Folders of `fixtures/quant` and what their weights are made by.
static PROMISED: &[(&str, &[&str])] = &[
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
];

/// That their bits are right is said by the tests of each scheme; this finds one that nothing is left of.
#[test]
fn every_promised_scheme_is_found_in_its_fixtures() {
    for (folder, schemes) in PROMISED {
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
                "{folder} has no {scheme}, but {found:?}"
            );
        }
    }
}

/// FP8, whole numbers, packed ones, FP4 and FP6 of compressed-tensors beside each other come out as each does alone.
#[test]
fn schemes_mix_in_one_checkpoint() {
    const MIXED: &[&str] = &[
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
    for &name in MIXED.iter().chain(FLOATS) {
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
            let made = remember(&alone)
                .dtype(Dtype::F32)
                .cast(true)
                .tensor(&job.output.name)
                .unwrap();
            expected.push((
                format!("{name}.{}", job.output.name),
                job.scheme,
                made.bytes,
            ));
        }
    }
    let config = br#"{"quant_method":"compressed-tensors","format":"mixed-precision"}"#;
    let mixed = Checkpoint::from_bytes(written(&all, &[])).unwrap();
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
