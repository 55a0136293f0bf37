//! Messages that say what is the case, and documents that have them too.

use std::fs;
use std::path::Path;

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::process::{path_str, run, safetensors};

const MODEL: &str = "fixtures/model/scribe.safetensors";

fn document(args: &[&str]) -> (Value, i32) {
    let run = run(args);
    let parsed = serde_json::from_str(&run.stdout);
    let parsed = parsed.unwrap_or_else(|e| panic!("{args:?}: {e}: {}", run.stdout));
    (parsed, run.code)
}

#[test]
fn failures_are_documents_too() {
    for args in [
        &["plan", "--json", "nope"][..],
        &["plan", "--json", MODEL, "--filter", "typo*"],
        &["template", "show", "--json", "nope"],
        &["template", "show", "--json", MODEL],
    ] {
        let (document, code) = document(args);
        assert!(
            document["error"]["message"].is_string(),
            "{args:?}: {document}"
        );
        assert!((1..=2).contains(&code), "{args:?}: {code}");
    }
}

#[test]
fn a_directory_of_several_models_is_said_in_documents() {
    let dir = tempfile::tempdir().unwrap();
    let model = dir.path().join("m");
    fs::create_dir(&model).unwrap();
    safetensors(&model.join("model.safetensors"), "", &[("w", &[4, 4])]);
    safetensors(&model.join("other.safetensors"), "", &[("v", &[4, 4])]);
    let (model, out) = (path_str(&model), dir.path().join("out"));
    let out = path_str(&out);
    let template = format!("{out}.iot");
    for args in [
        &["plan", "--json", model][..],
        &["remember", "--json", model, "-o", out],
        &["load", "--json", model],
        &["fit", "--json", model],
        &["template", "predict", "--json", model, "-o", &template],
    ] {
        let (document, _) = document(args);
        let notes = match args[0] {
            "fit" => &document["models"][0]["notes"],
            "template" => &document["template"]["notes"],
            _ => &document["notes"],
        };
        let notes = notes
            .as_array()
            .unwrap_or_else(|| panic!("{args:?}: {document}"));
        let named = notes.iter().filter_map(Value::as_str);
        let named = named.filter(|note| note.contains("other.safetensors"));
        assert_eq!(named.count(), 1, "{args:?}: {notes:?}");
    }
}

#[test]
fn a_number_that_lacks_its_unit_is_no_size_of_shards() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let args = |verb, size| [verb, MODEL, "-o", path_str(&out), "--shard-size", size];
    for verb in ["remember", "convert"] {
        for (size, said) in [("4.5", "write 4.5GB"), ("1.5", "write 1.5GB")] {
            let refused = run(&args(verb, size));
            assert_eq!(refused.code, 2, "{verb} {size}: {}", refused.stdout);
            assert!(
                refused.stderr.contains(said),
                "{verb} {size}: {}",
                refused.stderr
            );
            assert!(!out.exists());
        }
    }
    // one of bytes, as in transformers
    let split = run(&args("convert", "5000"));
    assert_eq!(split.code, 0, "{}", split.stderr);
    fs::remove_dir_all(&out).unwrap();
    let template = dir.path().join("t.iot");
    let predict = ["template", "predict", MODEL, "-o", path_str(&template)];
    let refused = run(&[&predict[..], &["--gap", "4.5"]].concat());
    assert_eq!(refused.code, 2, "{}", refused.stdout);
    assert!(
        refused.stderr.contains("write 4.5KiB"),
        "{}",
        refused.stderr
    );
    assert_eq!(run(&[&predict[..], &["--gap", "4095"]].concat()).code, 0);
    for verb in ["remember", "convert"] {
        assert_eq!(run(&args(verb, "5000000000")).code, 0);
        fs::remove_dir_all(&out).unwrap();
    }
}

/// A file that is immutable is no link, and an error about one keeps its own remedy.
#[test]
fn an_immutable_output_is_taken_for_no_link() {
    let dir = tempfile::tempdir().unwrap();
    let (out, folder) = (dir.path().join("o.safetensors"), dir.path().join("f"));
    fs::copy(crate::process::workspace().join(MODEL), &out).unwrap();
    fs::create_dir(&folder).unwrap();
    let inside = folder.join("o.safetensors");
    for (protected, target) in [(&out, &out), (&folder, &inside)] {
        let protect = |flag: &str| {
            let mut chattr = std::process::Command::new("chattr");
            let done = chattr.arg(flag).arg(protected).output();
            done.is_ok_and(|done| done.status.success())
        };
        if !protect("+i") {
            eprintln!("SKIPPED: no file can be made immutable here");
            return;
        }
        let refused = run(&["convert", "--overwrite", MODEL, "-o", path_str(target)]);
        assert!(protect("-i"));
        assert_eq!(refused.code, 1, "{}", refused.stdout);
        assert!(!refused.stderr.contains("link"), "{}", refused.stderr);
        assert!(refused.stderr.contains("permissions"), "{}", refused.stderr);
    }
}

#[test]
fn impossible_degrees_of_parallelism_are_arguments() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("t.iot");
    for tp in ["0", "70000", "4294967295"] {
        for args in [
            &[
                "template",
                "predict",
                MODEL,
                "-o",
                path_str(&out),
                "--tp",
                tp,
            ][..],
            &["fit", MODEL, "--tp", tp],
            #[cfg(target_os = "linux")]
            &["warm", MODEL, "--tp", tp],
        ] {
            let refused = run(args);
            assert_eq!(
                refused.code, 2,
                "{args:?}: {}{}",
                refused.stdout, refused.stderr
            );
        }
    }
    assert!(!out.exists());
}

#[test]
fn a_digest_alone_is_of_the_file_of_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    safetensors(&path("m.safetensors"), "", &[("w", &[4])]);
    let digest = |path: &Path| {
        let digest = Sha256::digest(fs::read(path).unwrap());
        let text: Vec<String> = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        text.concat()
    };
    let right = digest(&path("m.safetensors"));
    let wrong = right.replace(|c: char| c.is_ascii_digit(), "a");
    for (text, code) in [(&right, 0), (&wrong, 1)] {
        fs::write(path("m.sha256"), text).unwrap();
        for model in [dir.path(), &path("m.safetensors")] {
            let (document, found) =
                document(&["check", "--json", "--only", "hash", path_str(model)]);
            assert_eq!(found, code, "{document}");
            assert_eq!(
                document["models"][0]["evidence"][0]["compared"], 1,
                "{document}"
            );
        }
    }
    // a list of the other file says nothing about this one
    safetensors(&path("n.safetensors"), "", &[("w", &[4])]);
    fs::write(path("m.sha256"), &right).unwrap();
    let (document, code) = document(&[
        "check",
        "--json",
        "--headers",
        path_str(&path("n.safetensors")),
    ]);
    assert_eq!(
        (&document["models"][0]["findings"], code),
        (&serde_json::json!([]), 0)
    );
}

#[test]
fn manual_pages_are_written_to_no_url() {
    let dir = tempfile::tempdir().unwrap();
    for out in ["gs://bucket/man", "-"] {
        let mut man = crate::process::command(&["man", "--out", out]);
        man.current_dir(dir.path());
        let refused = crate::process::finish(man);
        assert_eq!(refused.code, 2, "{out}: {}", refused.stderr);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "{out}");
    }
}

#[test]
fn a_parameter_that_is_a_url_is_shown_without_its_query() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("t.iot");
    let predict = [
        "template",
        "predict",
        MODEL,
        "-o",
        path_str(&out),
        "--overwrite",
    ];
    let parameter = ["--parameter", "source=https://user:secret@h/m?token=secret"];
    for last in [&[][..], &["--json"]] {
        let predicted = run(&[&predict[..], &parameter, last].concat());
        assert_eq!(predicted.code, 0, "{}", predicted.stderr);
        let shown = run(&["template", "show", path_str(&out)]);
        assert!(
            shown.stdout.contains("source=https://h/m"),
            "{}",
            shown.stdout
        );
        for text in [predicted.stdout, predicted.stderr, shown.stdout] {
            assert!(!text.contains("secret"), "{text}");
        }
    }
}

/// Endings in capitals are endings, also where a directory is searched for several models.
#[cfg(target_os = "linux")]
#[test]
fn files_with_endings_in_capitals_are_found_below_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["a.GGUF", "b.Gguf"] {
        fs::copy(
            crate::process::workspace().join("fixtures/gguf/plain_v3.gguf"),
            dir.path().join(name),
        )
        .unwrap();
    }
    let (document, code) = document(&["warm", "--json", path_str(dir.path())]);
    assert_eq!(code, 0, "{document}");
    let bytes = fs::metadata(dir.path().join("a.GGUF")).unwrap().len();
    let text = document.to_string();
    assert!(bytes > 0 && !text.contains("\"nbytes\":0,"), "{text}");
}

/// Before the command runs, whose work would be lost.
#[cfg(target_os = "linux")]
#[test]
fn a_recording_to_a_directory_that_is_not_there_starts_no_command() {
    let dir = tempfile::tempdir().unwrap();
    let (out, ran) = (dir.path().join("none/t.iot"), dir.path().join("ran"));
    let touch = format!("touch '{}'", path_str(&ran));
    let words = ["record", "-o", path_str(&out), "--dir", "fixtures/model"];
    let refused = run(&[&words[..], &["--", "sh", "-c", &touch]].concat());
    assert_eq!(refused.code, 1, "{}", refused.stderr);
    assert!(
        refused.stderr.contains("make its directory first"),
        "{}",
        refused.stderr
    );
    assert!(!ran.exists());
}

/// A log is not replaced, and no flag is advised that would do it.
#[cfg(target_os = "linux")]
#[test]
fn advice_about_a_log_that_exists_has_no_flag() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    fs::write(&log, "kept").unwrap();
    let words = [
        "ppc",
        "run",
        "--dir",
        "fixtures/model",
        "--event-log",
        path_str(&log),
    ];
    let refused = run(&[&words[..], &["--", "true"]].concat());
    assert_eq!(refused.code, 1, "{}", refused.stderr);
    assert!(
        !refused.stderr.contains("--overwrite"),
        "{}",
        refused.stderr
    );
    assert!(
        refused.stderr.contains("move the file away"),
        "{}",
        refused.stderr
    );
    assert_eq!(fs::read_to_string(log).unwrap(), "kept");
}

/// A query would become a part of the names of objects.
#[test]
fn an_output_with_a_query_is_refused_without_it() {
    for url in [
        "s3://bucket/x.safetensors?sig=SECRET",
        "gs://bucket/m/#SECRET",
        "az://bucket/m?SECRET",
    ] {
        for verb in ["remember", "convert"] {
            let refused = run(&[verb, MODEL, "-o", url]);
            let text = format!("{}{}", refused.stdout, refused.stderr);
            assert_eq!(refused.code, 2, "{verb} {url}: {text}");
            assert!(text.contains("no query"), "{verb} {url}: {text}");
            assert!(!text.contains("SECRET"), "{verb} {url}: {text}");
            let document = run(&[verb, MODEL, "-o", url, "--json"]);
            assert!(!document.stdout.contains("SECRET"), "{}", document.stdout);
        }
    }
}

/// A parser may divide a URL at its `=`, `:` or `,`, and repeat a part in which no URL can be recognised.
#[test]
fn no_parser_repeats_a_secret_of_its_value() {
    let url = "https://host/x?sig=SECRET";
    for args in [
        &["template", "predict", MODEL, "-o", "t.iot", "--rule", url][..],
        &["template", "predict", MODEL, "-o", "t.iot", "--gap", url],
        &["template", "predict", MODEL, "-o", "t.iot", "--tp", url],
        &["convert", MODEL, "-o", "o.gguf", "--shard-size", url],
        &["convert", MODEL, "-o", "o.gguf", "--dtype", url],
        &["fit", MODEL, "--memory", url],
        &["check", MODEL, "--only", url],
        &["inspect", MODEL, "--filter", "https://host/x?sig=SECRET["],
    ] {
        let refused = run(args);
        assert_eq!(refused.code, 2, "{args:?}: {}", refused.stderr);
        let text = format!("{}{}", refused.stdout, refused.stderr);
        assert!(!text.contains("SECRET"), "{args:?}: {text}");
    }
    // without a secret the parser's own words stay
    let plain = run(&["template", "predict", MODEL, "-o", "t.iot", "--rule", "a=b"]);
    assert!(
        !plain.stderr.contains("it is not valid"),
        "{}",
        plain.stderr
    );
}

/// A template that cannot be written is found out before the work; one that fails at the end says that the output is there.
#[cfg(target_os = "linux")]
#[test]
fn a_record_that_cannot_be_written_leaves_no_output() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("o.safetensors");
    let long = dir.path().join("n".repeat(300));
    // no file can be created there, by root neither
    for record in [Path::new("/proc/self/t.iot"), &long] {
        for verb in ["remember", "convert"] {
            let args = [
                verb,
                MODEL,
                "-o",
                path_str(&out),
                "--record",
                path_str(record),
            ];
            let refused = run(&args);
            assert_eq!(refused.code, 1, "{args:?}: {}", refused.stdout);
            assert!(!out.exists(), "{args:?}: {}", refused.stderr);
        }
    }
    // root may write there by the permissions, and yet creates nothing: known at the end only
    for verb in ["remember", "convert"] {
        let failed = run(&[verb, MODEL, "-o", path_str(&out), "--record", "/proc/t.iot"]);
        let text = &failed.stderr;
        assert_eq!(failed.code, 1, "{verb}: {text}");
        let is_said = text.contains("the output is complete");
        assert_eq!(out.exists(), is_said, "{verb}: {text}");
        let _ = fs::remove_file(&out);
    }
}

/// Pages are written all or not at all.
#[test]
fn manual_pages_that_fail_in_the_middle_leave_none() {
    let dir = tempfile::tempdir().unwrap();
    let pages = dir.path().join("man");
    fs::create_dir_all(pages.join("anamnesis-plan.1")).unwrap();
    fs::write(pages.join("anamnesis.1"), "old").unwrap();
    let refused = run(&["man", "--out", path_str(&pages), "--overwrite"]);
    assert_eq!(refused.code, 1, "{}", refused.stderr);
    let entries = fs::read_dir(&pages).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["anamnesis-plan.1", "anamnesis.1"]);
    assert_eq!(
        fs::read_to_string(pages.join("anamnesis.1")).unwrap(),
        "old"
    );
}

/// A key that no source has is a mistake of the caller's, as a pattern without a match is.
#[test]
fn a_dropped_key_without_a_match_is_an_argument() {
    let dir = tempfile::tempdir().unwrap();
    for out in ["o.safetensors", "o.gguf"] {
        let out = dir.path().join(out);
        let args = [
            "convert",
            MODEL,
            "-o",
            path_str(&out),
            "--drop-metadata",
            "formta",
        ];
        let refused = run(&args);
        assert_eq!(refused.code, 2, "{}", refused.stderr);
        let says = ["`formta` of --drop-metadata", "`format`"];
        let said = says.iter().all(|text| refused.stderr.contains(text));
        assert!(said, "{}", refused.stderr);
        assert!(!out.exists());
    }
}
