//! `anamnesis template` and the option `--record`: tables and JSON, comparison and merging, rules of parallelism, recordings
//! against predictions.

use serde_json::Value;

use crate::process::{command, finish, json_of, path_str, run, safetensors, stdout_of};

const MODEL: &str = "fixtures/model/scribe.safetensors";
const SHARDED: &str = "fixtures/safetensors/sharded";

#[test]
fn predict_and_show_match_their_snapshots() {
    let dir = tempfile::tempdir_in(crate::process::workspace().join("target")).unwrap();
    let path = dir.path().join("t.iot");
    let at = |width: &str, args: &[&str]| {
        let mut command = command(args);
        command.env("COLUMNS", width);
        let run = finish(command);
        assert_eq!(run.code, 0, "{}", run.stderr);
        run.stdout.replace(path_str(&path), "t.iot")
    };
    let predicted = at(
        "80",
        &[
            "template",
            "predict",
            MODEL,
            "-o",
            path_str(&path),
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
            at(width, &["template", "show", path_str(&path)])
        );
        insta::assert_snapshot!(
            format!("group_{width}"),
            at(width, &["t", "show", path_str(&path), "--group", "1"])
        );
    }
}

#[test]
fn the_binary_and_the_json_form_are_equivalent() {
    let dir = tempfile::tempdir().unwrap();
    let [binary, shown, predicted_json] =
        ["t.iot", "t.json", "u.json"].map(|name| dir.path().join(name));
    let parameters = ["--tp", "2", "--parameter", "loader=vllm"];
    stdout_of(
        &[
            &["template", "predict", SHARDED, "-o", path_str(&binary)],
            &parameters[..],
        ]
        .concat(),
    );
    stdout_of(
        &[
            &[
                "template",
                "predict",
                SHARDED,
                "-o",
                path_str(&predicted_json),
            ],
            &parameters[..],
        ]
        .concat(),
    );
    let document = stdout_of(&["template", "show", "--json", path_str(&binary)]);
    assert_eq!(
        document,
        std::fs::read_to_string(&predicted_json).unwrap() + "\n"
    );
    std::fs::write(&shown, &document).unwrap();
    for json_form in [&shown, &predicted_json] {
        assert_eq!(
            stdout_of(&["template", "diff", path_str(&binary), path_str(json_form)]),
            "no differences\n"
        );
    }
    let again = dir.path().join("again.iot");
    stdout_of(&[
        "template",
        "merge",
        path_str(&shown),
        "-o",
        path_str(&again),
    ]);
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
fn diff_coverage_and_merge_of_predicted_templates_are_consistent() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let (one_worker, two_workers, layers, other_tensors) = (
        at("one_worker.iot"),
        at("two_workers.iot"),
        at("layers.iot"),
        at("other_tensors.iot"),
    );
    stdout_of(&["template", "predict", MODEL, "-o", path_str(&one_worker)]);
    let predicted = json_of(&[
        "template",
        "predict",
        MODEL,
        "-o",
        path_str(&two_workers),
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
        std::fs::metadata(&two_workers).unwrap().len()
    );

    let compared = run(&[
        "template",
        "diff",
        path_str(&one_worker),
        path_str(&two_workers),
    ]);
    assert!(
        compared.code == 1 && compared.stderr.is_empty() && compared.stdout.contains("only in A"),
        "{}",
        compared.stdout
    );
    let compared = run(&[
        "template",
        "diff",
        "--json",
        path_str(&one_worker),
        path_str(&two_workers),
    ]);
    let document: Value = serde_json::from_str(&compared.stdout).unwrap();
    assert!(
        document["differ"] == true && document["groups"].as_array().unwrap().len() == 2,
        "{document}"
    );

    // two tensor-parallel workers together read all bytes
    let covered = json_of(&[
        "template",
        "coverage",
        "--json",
        path_str(&two_workers),
        path_str(&one_worker),
    ]);
    assert_eq!(
        (covered["share"].as_f64(), &covered["covered"]),
        (Some(1.0), &covered["nbytes"])
    );
    stdout_of(&[
        "template",
        "predict",
        MODEL,
        "-o",
        path_str(&layers),
        "--filter",
        "*.layers.*",
    ]);
    let partial = json_of(&[
        "template",
        "coverage",
        "--json",
        path_str(&layers),
        path_str(&one_worker),
    ]);
    assert!(
        partial["share"].as_f64() < Some(0.95) && partial["share"].as_f64() > Some(0.9),
        "{partial}"
    );
    assert!(
        stdout_of(&[
            "template",
            "coverage",
            path_str(&layers),
            path_str(&one_worker)
        ])
        .starts_with("93.")
    );
    stdout_of(&[
        "template",
        "predict",
        MODEL,
        "-o",
        path_str(&other_tensors),
        "-f",
        "model.embed_tokens.weight",
        "-f",
        "model.norm.weight",
    ]);
    let both = at("both.iot");
    stdout_of(&[
        "template",
        "merge",
        path_str(&layers),
        path_str(&other_tensors),
        "-o",
        path_str(&both),
    ]);
    let all = json_of(&[
        "template",
        "coverage",
        "--json",
        path_str(&both),
        path_str(&one_worker),
    ]);
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
            path_str(&path),
            "--tp",
            "2",
            "--overwrite",
            "--json",
        ];
        json_of(&[&args[..], more].concat())["template"]["nbytes"]
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
        stdout_of(&[
            "template",
            "predict",
            source,
            "-o",
            path_str(&predicted),
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
            path_str(&recorded),
        ];
        let document = json_of(&[&load[..], &["--repeat", "2"]].concat());
        assert_eq!(
            (
                &document["recorded"]["workers"],
                document["rounds"].as_array().unwrap().len()
            ),
            (&1.into(), 2)
        );
        let covered = json_of(&[
            "template",
            "coverage",
            "--json",
            path_str(&predicted),
            path_str(&recorded),
        ]);
        assert_eq!(covered["share"].as_f64(), Some(1.0), "{source}: {covered}");
        assert!(
            covered["order"].as_f64().is_none_or(|tau| tau == 1.0),
            "{source}: {covered}"
        );
    }
    // `remember` reads every stored tensor
    let (recorded, converted) = (at("remembered.iot"), at("out.safetensors"));
    let source = "fixtures/model/scribe-Q8_0.gguf";
    let remember = [
        "remember",
        source,
        "-o",
        path_str(&converted),
        "--record",
        path_str(&recorded),
    ];
    stdout_of(&[
        "template",
        "predict",
        source,
        "-o",
        path_str(&predicted),
        "--overwrite",
    ]);
    assert!(stdout_of(&remember).contains("1 worker reads"));
    // with several threads the order of the reads varies, so only the bytes are compared
    let covered = json_of(&[
        "template",
        "coverage",
        "--json",
        path_str(&predicted),
        path_str(&recorded),
    ]);
    assert_eq!(covered["share"].as_f64(), Some(1.0), "{covered}");
    stdout_of(&[&remember[..], &["--threads", "1", "--overwrite"]].concat());
    assert_eq!(
        json_of(&[
            "template",
            "diff",
            path_str(&predicted),
            path_str(&recorded),
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
    assert!(
        !crate::process::workspace()
            .join("other.safetensors")
            .exists()
    );
}

#[test]
fn an_existing_template_is_replaced_only_with_overwrite() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.iot");
    let predict = ["template", "predict", SHARDED, "-o", path_str(&path)];
    stdout_of(&predict);
    let first = std::fs::read(&path).unwrap();
    let beside = tempfile::tempdir().unwrap();
    let other = beside.path().join("other.iot");
    std::fs::copy(&path, &other).unwrap();
    for args in [
        &predict[..],
        &["template", "merge", path_str(&other), "-o", path_str(&path)],
        &["load", SHARDED, "--record", path_str(&path)],
    ] {
        let again = run(args);
        assert!(
            again.code == 1 && again.stderr.contains("--overwrite"),
            "{}",
            again.stderr
        );
        assert_eq!(std::fs::read(&path).unwrap(), first);
    }
    stdout_of(&[&predict[..], &["--overwrite", "--tp", "2"]].concat());
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
        path_str(dir.path()),
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
            &[&["template", "predict", MODEL, "-o", path_str(&path)], more].concat(),
            code,
            parts,
        );
    };
    predict(&["--tp", "0"], 2, &["scribe.safetensors", "tp is 0"]);
    predict(&["--tp", "70000"], 2, &["65536"]);
    predict(&["--tp", "4", "--ep", "3"], 2, &["ep 3"]);
    predict(&["--filter", "nothing"], 2, &["`nothing` of --filter"]);
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
    let (first, other) = (dir.path().join("first.iot"), dir.path().join("other.iot"));
    stdout_of(&[
        "template",
        "predict",
        path_str(&source),
        "-o",
        path_str(&first),
    ]);
    fails(
        &["template", "show", path_str(&first), "--group", "7"],
        1,
        &["no worker 7"],
    );
    safetensors(&source, "", &[("b", &[4, 4])]);
    stdout_of(&[
        "template",
        "predict",
        path_str(&source),
        "-o",
        path_str(&other),
    ]);
    fails(
        &[
            "template",
            "merge",
            path_str(&first),
            path_str(&other),
            "-o",
            path_str(&path),
        ],
        1,
        &["conflict", "m.safetensors"],
    );
    let compared = run(&["template", "diff", path_str(&first), path_str(&other)]);
    assert!(
        compared.code == 1
            && compared
                .stdout
                .contains("! file m.safetensors has different contents"),
        "{}",
        compared.stdout
    );
}
