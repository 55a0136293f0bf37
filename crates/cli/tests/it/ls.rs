//! `ls`: tables, JSON lines, CSV and Parquet; filters, statuses, trees of other verbs, and buckets.

use std::path::Path;

use serde_json::Value;

use crate::process::{Run, command, finish, path_str, run, safetensors};

/// A tree with a directory of a model, two files, a broken one and a name that acts on a terminal.
fn tree() -> tempfile::TempDir {
    let scratch = tempfile::tempdir().unwrap();
    let path = |name: &str| scratch.path().join(name);
    for folder in ["hf", "loras/deep", "broken"] {
        std::fs::create_dir_all(path(folder)).unwrap();
    }
    let config = r#"{"model_type": "qwen3", "max_position_embeddings": 40960}"#;
    std::fs::write(path("hf/config.json"), config).unwrap();
    safetensors(&path("hf/model.safetensors"), "", &[("w", &[300, 4])]);
    safetensors(
        &path("loras/deep/a,\"b\".safetensors"),
        "",
        &[("x.lora_A.weight", &[2, 3])],
    );
    safetensors(
        &path("loras/new\nline \x1b[31m.safetensors"),
        "",
        &[("y", &[1])],
    );
    std::fs::copy(
        "../../fixtures/model/scribe-Q8_0.gguf",
        path("loras/s.gguf"),
    )
    .unwrap();
    std::fs::write(path("broken/cut.safetensors"), "abc").unwrap();
    scratch
}

fn ls(root: &Path, args: &[&str]) -> Run {
    run(&[&["ls", path_str(root)], args].concat())
}

fn json_rows(root: &Path, args: &[&str]) -> Vec<Value> {
    let run = ls(root, &[&["--json"], args].concat());
    let lines = run.stdout.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn names(root: &Path, args: &[&str]) -> Vec<String> {
    let rows = json_rows(root, args);
    let path = |row: &Value| row["path"].as_str().unwrap().to_owned();
    let below = rows.iter().map(|row| {
        let path = path(row);
        path[path_str(root).len() + 1..].to_owned()
    });
    below.collect()
}

/// A model that opens is not for that what it seems.
#[test]
fn half_changed_models_and_broken_configurations_have_a_note() {
    for (file, text, expected) in [
        (
            ".anamnesis-edit",
            "anamnesis edit journal 1\n\x12\0\0\0\0\0\0\0model.safetensors\"",
            "an edit of it was interrupted",
        ),
        (
            ".anamnesis-0123456789abcdef-1-1.config.json.old",
            "{}",
            "was replacing this checkpoint",
        ),
        ("config.json", "{\"model_type\": ", "not JSON"),
    ] {
        let scratch = tree();
        std::fs::write(scratch.path().join("hf").join(file), text).unwrap();
        let rows = json_rows(scratch.path(), &[]);
        let note = rows[1]["note"].as_str().unwrap_or_default();
        assert!(note.contains(expected), "{file}: {}", rows[1]);
        // files that an edit has left may have names of two moments
        let is_error = file == ".anamnesis-edit";
        assert_eq!(rows[1]["error"].is_string(), is_error, "{}", rows[1]);
        let table = ls(scratch.path(), &[]);
        assert!(table.stdout.contains(expected), "{file}: {}", table.stdout);
    }
}

#[test]
fn json_lines_have_one_object_for_each_model() {
    let scratch = tree();
    let rows = json_rows(scratch.path(), &[]);
    assert_eq!(
        names(scratch.path(), &[]),
        [
            "broken/cut.safetensors",
            "hf",
            "loras/deep/a,\"b\".safetensors",
            "loras/new\nline \x1b[31m.safetensors",
            "loras/s.gguf"
        ]
    );
    let keys: Vec<_> = rows[0].as_object().unwrap().keys().collect();
    assert_eq!(
        keys,
        [
            "path",
            "format",
            "architecture",
            "parameters",
            "dtype",
            "quantisation",
            "nbytes",
            "context",
            "files",
            "error",
            "note"
        ]
    );
    let main = &rows[1];
    assert_eq!(main["architecture"], "qwen3");
    assert_eq!(
        (&main["parameters"], &main["context"], &main["files"]),
        (&1200.into(), &40960.into(), &1.into())
    );
    assert_eq!(
        (&main["error"], &main["note"]),
        (&Value::Null, &Value::Null)
    );
    assert_eq!(rows[4]["quantisation"], "Q8_0");
    assert!(rows[0]["error"].is_string() && rows[0]["parameters"].is_null());
    let raw = ls(scratch.path(), &["--json"]);
    assert!(
        !raw.stdout.contains('\x1b') && raw.code == 1,
        "{}",
        raw.stdout
    );
}

#[test]
fn the_table_fits_the_screen_and_is_whole_in_a_pipe() {
    let scratch = tree();
    for width in [40, 80, 120, 200] {
        let mut command = command(&["ls", path_str(scratch.path())]);
        command.env("COLUMNS", width.to_string());
        let run = finish(command);
        let lines: Vec<_> = run.stdout.lines().collect();
        // a heading, five models, and the error below its path, in several lines if one is too short
        let of_error = lines.iter().filter(|line| line.starts_with("  ")).count();
        assert_eq!(lines.len(), 6 + of_error, "{}", run.stdout);
        assert!(
            of_error > 0 && run.stdout.contains("malfor"),
            "{}",
            run.stdout
        );
        // at 40 columns nothing is left to cut
        if width >= 80 {
            let widest = lines.iter().map(|line| line.chars().count()).max().unwrap();
            assert!(widest <= width, "{widest} of {width}:\n{}", run.stdout);
        }
        assert!(!run.stdout.contains('\x1b'), "{}", run.stdout);
    }
    let whole = ls(scratch.path(), &[]);
    let long = scratch.path().join("loras/deep/a,\"b\".safetensors");
    assert!(whole.stdout.contains(path_str(&long)), "{}", whole.stdout);
    assert!(whole.stdout.contains("1.20 K") && whole.stdout.contains("40,960"));
}

#[test]
fn csv_has_the_same_rows() {
    let scratch = tree();
    let text = ls(scratch.path(), &["--csv"]).stdout;
    let records = records(&text);
    let rows = json_rows(scratch.path(), &[]);
    assert_eq!(records.len(), rows.len() + 1);
    for (record, row) in records[1..].iter().zip(&rows) {
        for (name, cell) in records[0].iter().zip(record) {
            let value = match &row[name] {
                Value::Null => String::new(),
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            assert_eq!(*cell, value, "{name}");
        }
    }
}

/// The cells of comma-separated values.
fn records(text: &str) -> Vec<Vec<String>> {
    let (mut records, mut cell, mut quoted) = (vec![vec![]], String::new(), false);
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => {
                chars.next();
                cell.push('"');
            }
            '"' => quoted = !quoted,
            ',' | '\n' if !quoted => {
                records.last_mut().unwrap().push(std::mem::take(&mut cell));
                if c == '\n' {
                    records.push(vec![]);
                }
            }
            c => cell.push(c),
        }
    }
    assert_eq!(records.pop(), Some(vec![]), "the last line ends");
    records
}

#[cfg(feature = "parquet")]
#[test]
fn parquet_has_the_same_rows() {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::Field;

    let scratch = tree();
    let out = tempfile::tempdir().unwrap();
    let file = out.path().join("models.parquet");
    let written = ls(scratch.path(), &["--parquet", path_str(&file)]);
    assert_eq!(
        (written.code, &*written.stdout),
        (1, ""),
        "{}",
        written.stderr
    );
    let reader = SerializedFileReader::new(std::fs::File::open(&file).unwrap()).unwrap();
    let found: Vec<_> = reader
        .get_row_iter(None)
        .unwrap()
        .map(Result::unwrap)
        .collect();
    let rows = json_rows(scratch.path(), &[]);
    assert_eq!(found.len(), rows.len());
    let columns = &records(&ls(scratch.path(), &["--csv"]).stdout)[0];
    for (found, row) in found.iter().zip(&rows) {
        let names = found.get_column_iter().map(|(name, _)| &**name);
        assert!(names.eq(columns), "the columns of CSV: {columns:?}");
        for (name, field) in found.get_column_iter() {
            let value = match field {
                Field::Null => Value::Null,
                Field::Str(text) => text.as_str().into(),
                Field::ULong(number) => (*number).into(),
                other => panic!("{other:?}"),
            };
            assert_eq!(value, row[name], "{name}");
        }
    }
    // a file that is there is replaced on request only
    let again = ls(scratch.path(), &["--parquet", path_str(&file)]);
    assert!(again.stderr.contains("--overwrite"), "{}", again.stderr);
    let again = ls(
        scratch.path(),
        &["--parquet", path_str(&file), "--overwrite"],
    );
    assert_eq!(again.code, 1, "{}", again.stderr);
    let model = scratch.path().join("hf/model.safetensors");
    let replaced = ls(
        scratch.path(),
        &["--parquet", path_str(&model), "--overwrite"],
    );
    assert!(replaced.stderr.contains("a file of"), "{}", replaced.stderr);
}

#[test]
fn filters_combine() {
    let scratch = tree();
    let root = scratch.path();
    for (args, wanted) in [
        (&["--arch", "QWEN*"][..], &["hf"][..]),
        (
            &["--has", "*.lora_A.*"],
            &["loras/deep/a,\"b\".safetensors"],
        ),
        (&["--quant", "q8_0"], &["loras/s.gguf"]),
        (&["--quant", "F32", "--larger", "4KiB"], &["hf"]),
        (
            &["--min-size", "4KiB", "--arch", "qwen3", "--arch", "none"],
            &["hf"],
        ),
        (&["--has", "w", "--has", "none"], &[]),
    ] {
        assert_eq!(names(root, args), wanted, "{args:?}");
    }
    let filtered = ls(root, &["--arch", "qwen3"]);
    // the broken one may be one of those
    assert_eq!(filtered.code, 1);
    assert!(
        filtered.stderr.contains("cannot be opened"),
        "{}",
        filtered.stderr
    );
    let sizes: Vec<_> = json_rows(root, &["--sort", "size"])
        .iter()
        .map(|row| row["nbytes"].as_u64().unwrap())
        .collect();
    assert!(sizes.is_sorted_by(|a, b| a >= b), "{sizes:?}");
    let reversed: Vec<_> = json_rows(root, &["--sort", "size", "--reverse"])
        .iter()
        .map(|row| row["nbytes"].as_u64().unwrap())
        .collect();
    assert!(reversed.is_sorted(), "{reversed:?}");
}

#[test]
fn the_status_says_whether_all_is_well() {
    let scratch = tree();
    let path = |name: &str| scratch.path().join(name);
    for (root, args, code, said) in [
        ("hf", &[][..], 0, ""),
        ("", &[], 1, ""),
        ("hf", &["--arch", "none"], 1, "no model was found"),
        ("nosuch", &[], 2, "nosuch"),
        ("loras/s.gguf", &[], 0, ""),
    ] {
        let run = ls(&path(root), args);
        assert_eq!(run.code, code, "{root}: {}", run.stderr);
        assert!(run.stderr.contains(said), "{}", run.stderr);
        assert!(code != 0 || run.stderr.is_empty(), "{}", run.stderr);
    }
    let empty = tempfile::tempdir().unwrap();
    assert_eq!(ls(empty.path(), &[]).code, 1);
    // the others are listed all the same
    let both = run(&[
        "ls",
        "--json",
        path_str(&path("nosuch")),
        path_str(&path("hf")),
    ]);
    assert_eq!((both.code, both.stdout.lines().count()), (2, 1));
}

#[test]
fn trees_are_searched_by_other_verbs() {
    let scratch = tree();
    std::fs::remove_dir_all(scratch.path().join("broken")).unwrap();
    let root = path_str(scratch.path());
    let inspected = crate::process::json_of(&["inspect", "--recursive", "--json", root]);
    let checkpoints = inspected["checkpoints"].as_array().unwrap();
    assert_eq!(checkpoints.len(), 4);
    assert_eq!(checkpoints[0]["architecture"], "qwen3");
    assert_eq!(checkpoints[0]["parameters"], 1200);
    assert_eq!(checkpoints[0]["context"], 40960);
    assert_eq!(
        checkpoints[0]["tensors"].as_array().unwrap().len(),
        0,
        "a summary each"
    );
    let text = run(&["inspect", "--recursive", root]).stdout;
    assert!(
        text.contains("qwen3") && text.contains("40960 tokens"),
        "{text}"
    );
    let checked = run(&["check", "--recursive", "--json", root]);
    let checked: Value = serde_json::from_str(&checked.stdout).unwrap();
    assert_eq!(checked["models"].as_array().unwrap().len(), 4);
    let fitted = run(&["fit", "--recursive", "--json", root]);
    let fitted: Value = serde_json::from_str(&fitted.stdout).unwrap();
    let estimated = fitted["models"].as_array().unwrap().len();
    let failed = fitted["errors"].as_array().map_or(0, Vec::len);
    assert_eq!(estimated + failed, 4, "{fitted}");
    let none = tempfile::tempdir().unwrap();
    let none = run(&["inspect", "--recursive", path_str(none.path())]);
    assert_eq!(none.code, 1);
    assert!(
        none.stderr.contains("no model was found"),
        "{}",
        none.stderr
    );
}

/// A bucket of pages: a request for each page of its list and one or two for each model.
#[cfg(feature = "remote")]
#[test]
fn a_bucket_costs_its_pages_and_a_request_or_two_for_each_model() {
    use crate::remote::{serve, server_command};
    use crate::web_server::TestServer;

    let server = TestServer::start();
    let scratch = tree();
    let put = |key: &str, from: &str| {
        let bytes = std::fs::read(scratch.path().join(from)).unwrap();
        server.put(&format!("/paged/models/{key}"), bytes);
    };
    put("hf/config.json", "hf/config.json");
    put("hf/model.safetensors", "hf/model.safetensors");
    put("broken/cut.safetensors", "broken/cut.safetensors");
    for number in 0..10 {
        put(
            &format!("loras/{number}/style.safetensors"),
            "hf/model.safetensors",
        );
        server.put(&format!("/paged/models/loras/{number}/README.md"), "text");
    }
    serve(&server, "/paged/models/s.gguf", "model/scribe-Q8_0.gguf");
    server.answered();
    let listed = finish(server_command(
        &server,
        &["ls", "--json", "s3://paged/models"],
    ));
    assert_eq!(listed.code, 1, "{}", listed.stderr);
    let rows: Vec<Value> = listed
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let paths: Vec<_> = rows
        .iter()
        .map(|row| row["path"].as_str().unwrap())
        .collect();
    assert_eq!(paths.len(), 13, "{paths:?}");
    assert!(paths.is_sorted(), "{paths:?}");
    assert_eq!(paths[0], "s3://paged/models/broken/cut.safetensors");
    assert_eq!(paths[1], "s3://paged/models/hf");
    assert_eq!(
        (&rows[1]["architecture"], &rows[1]["context"]),
        (&"qwen3".into(), &40960.into())
    );
    // the same file in both places
    assert_eq!(rows[1]["nbytes"], rows[2]["nbytes"]);
    assert!(rows[0]["error"].is_string());
    let requests = server.answered();
    let pages = requests
        .iter()
        .filter(|request| request.query.contains("list-type=2"));
    // 24 objects in pages of 7
    assert_eq!(pages.count(), 4);
    assert!(requests.len() <= 4 + 13 + 2, "{}", requests.len());
    assert!(
        requests
            .iter()
            .all(|request| !request.path.contains("README"))
    );
}
