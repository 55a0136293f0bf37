//! `anamnesis template` and the option `--record`, run as processes.

mod common;

use std::path::Path;

use common::{command, finish, ok, run, safetensors};
use serde_json::Value;

const MODEL: &str = "fixtures/model/scribe.safetensors";
const SHARDED: &str = "fixtures/safetensors/sharded";

fn text(path: &Path) -> &str {
    path.to_str().expect("a path of this test")
}

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&ok(args)).unwrap()
}

#[test]
fn predict_and_show_print_their_tables() {
    let dir = tempfile::tempdir_in(common::workspace().join("target")).unwrap();
    let path = dir.path().join("t.iot");
    let at = |width: &str, args: &[&str]| {
        let mut command = command(args);
        command.env("COLUMNS", width);
        let run = finish(command);
        assert_eq!(run.code, 0, "{}", run.stderr);
        run.stdout.replace(text(&path), "t.iot")
    };
    let predicted = at(
        "80",
        &[
            "template",
            "predict",
            MODEL,
            "-o",
            text(&path),
            "--tp",
            "2",
            "--order",
            "layer",
        ],
    );
    insta::assert_snapshot!("predicted", predicted);
    for width in ["60", "200"] {
        insta::assert_snapshot!(
            format!("shown_{width}"),
            at(width, &["template", "show", text(&path)])
        );
        insta::assert_snapshot!(
            format!("group_{width}"),
            at(width, &["t", "show", text(&path), "--group", "1"])
        );
    }
}

#[test]
fn the_binary_and_the_json_form_are_equivalent() {
    let dir = tempfile::tempdir().unwrap();
    let [binary, shown, other] = ["t.iot", "t.json", "u.json"].map(|name| dir.path().join(name));
    let parameters = ["--tp", "2", "--parameter", "loader=vllm"];
    ok(&[
        &["template", "predict", SHARDED, "-o", text(&binary)],
        &parameters[..],
    ]
    .concat());
    ok(&[
        &["template", "predict", SHARDED, "-o", text(&other)],
        &parameters[..],
    ]
    .concat());
    let document = ok(&["template", "show", "--json", text(&binary)]);
    assert_eq!(document, std::fs::read_to_string(&other).unwrap() + "\n");
    std::fs::write(&shown, &document).unwrap();
    for other in [&shown, &other] {
        assert_eq!(
            ok(&["template", "diff", text(&binary), text(other)]),
            "no differences\n"
        );
    }
    let again = dir.path().join("again.iot");
    ok(&["template", "merge", text(&shown), "-o", text(&again)]);
    assert_eq!(
        std::fs::read(&binary).unwrap(),
        std::fs::read(again).unwrap()
    );
    let document: Value = serde_json::from_str(&document).unwrap();
    assert_eq!(
        document["parameters"],
        serde_json::json!({"loader": "vllm", "tp": "2"})
    );
}

#[test]
fn diff_coverage_and_merge_agree() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let (one, two, layers, rest) = (
        at("one.iot"),
        at("two.iot"),
        at("layers.iot"),
        at("rest.iot"),
    );
    ok(&["template", "predict", MODEL, "-o", text(&one)]);
    let predicted = json(&[
        "template",
        "predict",
        MODEL,
        "-o",
        text(&two),
        "--tp",
        "2",
        "--json",
    ]);
    let template = &predicted["template"];
    assert_eq!(
        (
            &template["workers"],
            &template["files"],
            &template["parameters"]["tp"]
        ),
        (&2.into(), &1.into(), &"2".into())
    );
    assert_eq!(
        template["template_nbytes"],
        std::fs::metadata(&two).unwrap().len()
    );

    let differ = run(&["template", "diff", text(&one), text(&two)]);
    assert!(
        differ.code == 1 && differ.stderr.is_empty() && differ.stdout.contains("only in A"),
        "{}",
        differ.stdout
    );
    let differ = run(&["template", "diff", "--json", text(&one), text(&two)]);
    let document: Value = serde_json::from_str(&differ.stdout).unwrap();
    assert!(
        document["differ"] == true && document["groups"].as_array().unwrap().len() == 2,
        "{document}"
    );

    // two tensor-parallel workers together read all bytes
    let covered = json(&["template", "coverage", "--json", text(&two), text(&one)]);
    assert_eq!(
        (covered["share"].as_f64(), &covered["covered"]),
        (Some(1.0), &covered["nbytes"])
    );
    ok(&[
        "template",
        "predict",
        MODEL,
        "-o",
        text(&layers),
        "--filter",
        "*.layers.*",
    ]);
    let some = json(&["template", "coverage", "--json", text(&layers), text(&one)]);
    assert!(
        some["share"].as_f64() < Some(0.95) && some["share"].as_f64() > Some(0.9),
        "{some}"
    );
    assert!(ok(&["template", "coverage", text(&layers), text(&one)]).starts_with("93."));
    ok(&[
        "template",
        "predict",
        MODEL,
        "-o",
        text(&rest),
        "-f",
        "model.embed_tokens.weight",
        "-f",
        "model.norm.weight",
    ]);
    let both = at("both.iot");
    ok(&[
        "template",
        "merge",
        text(&layers),
        text(&rest),
        "-o",
        text(&both),
    ]);
    let all = json(&["template", "coverage", "--json", text(&both), text(&one)]);
    assert_eq!(all["share"].as_f64(), Some(1.0));
}

#[test]
fn rules_of_the_command_line_precede_the_built_in_ones() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.json");
    let predict = |more: &[&str]| {
        let args = [
            "template",
            "predict",
            MODEL,
            "-o",
            text(&path),
            "--tp",
            "2",
            "--overwrite",
            "--json",
        ];
        json(&[&args[..], more].concat())["template"]["nbytes"]
            .as_u64()
            .unwrap()
    };
    let split = predict(&[]);
    let matrices: u64 = (2 * 160 * 64 + 64 * 160 + 4 * 64 * 64) * 2;
    assert_eq!(
        predict(&["--rule", "model.layers.0.*=replicated"]),
        split + matrices
    );
    // the first matching rule applies
    assert_eq!(
        predict(&[
            "--rule",
            "*.norm.*=row",
            "--rule",
            "*layers.0.*=replicated",
            "--rule",
            "*=column"
        ]),
        { split + matrices }
    );
    assert_eq!(predict(&["--rule", "*=replicated"]), predict(&["--whole"]));
    assert_eq!(predict(&["--whole"]), 2 * 203_496);
    // the rows are shorter than a page, so joining small gaps makes each worker read most pages
    assert!(predict(&["--gap", "4095"]) > split + 50_000);
}

#[test]
fn recorded_templates_cover_the_predicted_ones() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let predicted = at("predicted.iot");
    for (source, loader) in [
        (SHARDED, "pread"),
        (MODEL, "mmap"),
        ("fixtures/npz/all_le_compressed.npz", "auto"),
    ] {
        ok(&[
            "template",
            "predict",
            source,
            "-o",
            text(&predicted),
            "--overwrite",
        ]);
        let recorded = at("recorded.iot");
        let load = [
            "load",
            source,
            "--loader",
            loader,
            "--json",
            "--overwrite",
            "--record",
            text(&recorded),
        ];
        let document = json(&[&load[..], &["--repeat", "2"]].concat());
        assert_eq!(
            (
                &document["recorded"]["workers"],
                document["rounds"].as_array().unwrap().len()
            ),
            (&1.into(), 2)
        );
        let covered = json(&[
            "template",
            "coverage",
            "--json",
            text(&predicted),
            text(&recorded),
        ]);
        assert_eq!(covered["share"].as_f64(), Some(1.0), "{source}: {covered}");
        assert!(
            covered["order"].as_f64().is_none_or(|tau| tau == 1.0),
            "{source}: {covered}"
        );
    }
    // `remember` reads every stored tensor
    let (recorded, made) = (at("remembered.iot"), at("out.safetensors"));
    let source = "fixtures/model/scribe-Q8_0.gguf";
    let remember = [
        "remember",
        source,
        "-o",
        text(&made),
        "--record",
        text(&recorded),
    ];
    ok(&[
        "template",
        "predict",
        source,
        "-o",
        text(&predicted),
        "--overwrite",
    ]);
    assert!(ok(&remember).contains("1 worker reads"));
    // with several threads the order of the reads varies, so only the bytes are compared
    let covered = json(&[
        "template",
        "coverage",
        "--json",
        text(&predicted),
        text(&recorded),
    ]);
    assert_eq!(covered["share"].as_f64(), Some(1.0), "{covered}");
    ok(&[&remember[..], &["--threads", "1", "--overwrite"]].concat());
    assert_eq!(
        json(&[
            "template",
            "diff",
            text(&predicted),
            text(&recorded),
            "--json"
        ])["differ"],
        false
    );
    let again = run(&[&remember[..3], &["other.safetensors"], &remember[4..]].concat());
    assert!(
        again.code == 1 && again.stderr.contains("exists"),
        "{}",
        again.stderr
    );
    assert!(!common::workspace().join("other.safetensors").exists());
}

#[test]
fn an_existing_template_is_replaced_only_with_overwrite() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.iot");
    let predict = ["template", "predict", SHARDED, "-o", text(&path)];
    ok(&predict);
    let first = std::fs::read(&path).unwrap();
    for args in [
        &predict[..],
        &["template", "merge", text(&path), "-o", text(&path)],
        &["load", SHARDED, "--record", text(&path)],
    ] {
        let again = run(args);
        assert!(
            again.code == 1 && again.stderr.contains("--overwrite"),
            "{}",
            again.stderr
        );
        assert_eq!(std::fs::read(&path).unwrap(), first);
    }
    ok(&[&predict[..], &["--overwrite", "--tp", "2"]].concat());
    assert_ne!(std::fs::read(&path).unwrap(), first);
    let names: Vec<_> = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(names, ["t.iot"], "no temporary file is left");
    let directory = run(&[
        "template",
        "predict",
        SHARDED,
        "-o",
        text(dir.path()),
        "--overwrite",
    ]);
    assert!(
        directory.code == 1 && directory.stderr.contains("directory"),
        "{}",
        directory.stderr
    );
}

#[test]
fn failures_name_the_file_and_a_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.iot");
    let fails = |args: &[&str], code: i32, parts: &[&str]| {
        let run = run(args);
        assert_eq!(run.code, code, "{args:?}: {}", run.stderr);
        parts
            .iter()
            .for_each(|part| assert!(run.stderr.contains(part), "{part}: {}", run.stderr));
        assert!(!path.exists(), "{args:?}");
    };
    let predict = |more: &[&str], code, parts: &[&str]| {
        fails(
            &[&["template", "predict", MODEL, "-o", text(&path)], more].concat(),
            code,
            parts,
        );
    };
    predict(&["--tp", "0"], 1, &["scribe.safetensors", "tp is 0"]);
    predict(&["--tp", "70000"], 1, &["65536"]);
    predict(&["--tp", "4", "--ep", "3"], 1, &["ep 3"]);
    predict(&["--filter", "nothing"], 1, &["check --filter"]);
    predict(&["--rule", "*=diagonal"], 2, &["diagonal", "gate-up"]);
    predict(&["--rule", "column"], 2, &["PATTERN=RULE"]);
    predict(&["--parameter", "=x"], 2, &["KEY=VALUE"]);
    predict(&["--order", "random"], 2, &["layer"]);
    fails(
        &["template", "show", "missing.iot"],
        1,
        &["missing.iot", "check the path"],
    );
    fails(
        &["template", "show", MODEL],
        1,
        &["malformed", "record the template again"],
    );
    fails(&["template", "merge"], 2, &["--output"]);
    let source = dir.path().join("m.safetensors");
    safetensors(&source, "", &[("a", &[4, 4])]);
    let (good, other) = (dir.path().join("good.iot"), dir.path().join("other.iot"));
    ok(&["template", "predict", text(&source), "-o", text(&good)]);
    fails(
        &["template", "show", text(&good), "--group", "7"],
        1,
        &["no worker 7"],
    );
    safetensors(&source, "", &[("b", &[4, 4])]);
    ok(&["template", "predict", text(&source), "-o", text(&other)]);
    fails(
        &[
            "template",
            "merge",
            text(&good),
            text(&other),
            "-o",
            text(&path),
        ],
        1,
        &["conflict", "m.safetensors"],
    );
    let differ = run(&["template", "diff", text(&good), text(&other)]);
    assert!(
        differ.code == 1
            && differ
                .stdout
                .contains("! file m.safetensors has different contents"),
        "{}",
        differ.stdout
    );
}
