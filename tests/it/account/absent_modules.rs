//! Settings of single modules that name none of the file's, and those whose names end as several do.

use serde_json::{Map, Value, json};

use super::StoredCheckpoint;
use super::changes::{check, set};
use super::said::Said::{Nothing, Warned};
use super::said::{mentions, statements};
use super::uploads::with_file;
use crate::support::scratch_dir::ScratchDir;

#[test]
fn settings_of_no_module_are_named() {
    const QUARK: &str = "quark/int4_group_order";
    const AUTOROUND: &str = "autoround/auto_gptq";
    const GPTQ: &str = "gptq/4bit_act_asym_v2";
    let layer = |name: &str| json!({name: {"weight": {"dtype": "int4", "qscheme": "per_group", "group_size": 32}}});
    let own = json!({"bits": 4});
    check(vec![
        (
            QUARK,
            set("layer_quant_config", layer("x.absent")),
            Warned("`x.absent` in layer_quant_config"),
        ),
        (
            QUARK,
            set("layer_quant_config", layer("*absent*")),
            Warned("`*absent*` in layer_quant_config"),
        ),
        (QUARK, set("layer_quant_config", layer("*")), Nothing),
        (
            QUARK,
            set("exclude", json!(["x.absent"])),
            Warned("`x.absent` in exclude"),
        ),
        // Quark's templates for all models, and a tied output layer
        (
            QUARK,
            set("exclude", json!(["lm_head", "*.gate", "re:.*router"])),
            Nothing,
        ),
        (
            AUTOROUND,
            set("extra_config", json!({"x.absent": own})),
            Warned("`x.absent` in extra_config"),
        ),
        (
            AUTOROUND,
            set("extra_config", json!({r".*\.absent": own})),
            Warned(r".absent` in extra_config"),
        ),
        (
            AUTOROUND,
            set("extra_config", json!({r".*\.absent": {"bits": 16}})),
            Nothing,
        ),
        (AUTOROUND, set("extra_config", json!({".*": own})), Nothing),
        (
            GPTQ,
            set("dynamic", json!({r"+:.*\.absent": own})),
            Warned(r".absent` in dynamic"),
        ),
        (GPTQ, set("dynamic", json!({r"-:.*\.absent": {}})), Nothing),
        (GPTQ, set("dynamic", json!({r"+:.*": own})), Nothing),
        // behind one that matches all names, a pattern is of none, and no other is meant by it
        (
            GPTQ,
            set("dynamic", json!({r".*": own, r".*proj": own})),
            Nothing,
        ),
    ]);
}

#[test]
fn a_check_has_a_finding_for_them() {
    let path = crate::support::fixture("quant/autoround/auto_gptq/model.safetensors");
    let mut model = StoredCheckpoint::read(&path);
    assert!(model.change_settings(&|map| {
        map.insert("extra_config".to_owned(), json!({"x.absent": {"bits": 4}}));
    }));
    let directory = ScratchDir::new("absent-modules");
    let path = model.write(&directory, "model.safetensors");
    let report = anamnesis::check::check_path(path, &anamnesis::OpenOptions::new())
        .run()
        .unwrap();
    let mut findings = report.findings.iter();
    let found = findings.find(|finding| finding.message.contains("`x.absent` in extra_config"));
    let found = found.expect("a finding");
    assert_eq!(found.rule, "unexplained");
    assert_eq!(found.level, anamnesis::check::FindingLevel::Warning);
}

/// 4 bits in groups of 64, or 8 bits in groups of 32: which of the two is in the settings alone.
fn mlx(modules: &[&str], settings: Value) -> StoredCheckpoint {
    let mut made = StoredCheckpoint::default();
    for module in modules {
        let names = ["weight", "scales", "biases"].map(|part| format!("{module}.{part}"));
        let shapes: [&[usize]; 3] = [&[4, 32], &[4, 4], &[4, 4]];
        for ((name, shape), dtype) in names.iter().zip(shapes).zip(["U32", "F32", "F32"]) {
            let count: usize = shape.iter().product();
            made.add_tensor(name, dtype, shape, &vec![1; 4 * count]);
        }
    }
    let mut all = json!({"bits": 4, "group_size": 64});
    let (Value::Object(all), Value::Object(settings)) = (&mut all, settings) else {
        panic!()
    };
    all.extend(settings);
    let config: Map<String, Value> = [("quantization".to_owned(), json!(all))]
        .into_iter()
        .collect();
    with_file(made, "config.json", &json!(config).to_string())
}

#[test]
fn settings_of_mlx_are_those_of_the_exact_module() {
    let own = || json!({"bits": 8, "group_size": 32});
    let columns = |modules: &[&str], settings: Value| {
        let plan = mlx(modules, settings).plan("model.safetensors");
        assert!(plan.refused.is_empty(), "{}", statements(&plan));
        let columns: Vec<u64> = plan.jobs.iter().map(|job| job.output.shape[1]).collect();
        (columns, plan)
    };
    let (long, short) = (256, 128);
    const Q: &str = "model.layers.0.q";
    const VISION: &str = "vision.model.layers.0.q";
    const LANGUAGE: &str = "language_model.model.layers.0.q";
    let rows: Vec<(&[&str], &str, Vec<u64>, bool)> = vec![
        (&[Q], Q, vec![short], true),
        // the module of that name has them, and none that ends alike
        (&[Q, VISION], Q, vec![short, long], true),
        (&[Q, VISION], VISION, vec![long, short], true),
        // one of the two programs has the prefix
        (&[LANGUAGE], Q, vec![short], true),
        (&[Q], LANGUAGE, vec![short], true),
        // one of two that end alike may be meant
        (&[LANGUAGE, VISION], Q, vec![long, long], false),
        (&[Q, "model.layers.1.q"], "q", vec![long, long], false),
        (&[Q], "model.layers.1.q", vec![long], false),
    ];
    for (modules, name, expected, is_used) in rows {
        let (found, plan) = columns(modules, json!({name: own()}));
        assert_eq!(found, expected, "{modules:?} {name}");
        let is_named = mentions(&plan, &format!("`{name}` in quantization"));
        assert_eq!(
            is_named,
            !is_used,
            "{modules:?} {name}: {}",
            statements(&plan)
        );
    }
    // two names that end as the module does, with different settings
    let both =
        json!({"a.model.layers.0.q": own(), "b.model.layers.0.q": {"bits": 4, "group_size": 64}});
    let (found, plan) = columns(&[Q], both);
    assert_eq!(found, [long]);
    assert!(mentions(&plan, "in quantization"), "{}", statements(&plan));
}
