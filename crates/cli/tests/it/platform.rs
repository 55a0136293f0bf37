//! The page for platforms and the files that it names: every command line has only arguments that the command knows, every document of
//! YAML is one, manifests are valid by Kubernetes' schemas, and units by systemd.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::process::{command, finish, path_str, workspace};

/// Pages with commands for operators.
const PAGES: [&str; 2] = ["docs/platform.md", "docs/containers.md"];

/// The blocks of a page in this language.
fn blocks(page: &str, language: &str) -> Vec<String> {
    let text = fs::read_to_string(workspace().join(page)).unwrap();
    let begin = format!("```{language}\n");
    let blocks = text.split(&begin).skip(1);
    let blocks = blocks.map(|rest| rest.split("```").next().unwrap().to_owned());
    blocks.collect()
}

/// The files of the examples with this ending.
fn examples(folder: &str, ending: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(workspace().join(folder)).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let paths: Vec<PathBuf> = paths
        .filter(|path| path_str(path).ends_with(ending))
        .collect();
    assert!(!paths.is_empty(), "{folder}");
    paths
}

/// The documents of a file of YAML; `None`, with a message, without PyYAML.
pub(crate) fn yaml_of(path: &Path) -> Option<Value> {
    let script = "import json, sys, yaml; print(json.dumps(yaml.safe_load(open(sys.argv[1]))))";
    let script =
        format!("import sys\ntry: import yaml\nexcept ImportError: sys.exit(77)\n{script}");
    let parsed = Command::new("python3")
        .args(["-c", &script, path_str(path)])
        .output();
    match parsed {
        Ok(parsed) if parsed.status.code() != Some(77) => {
            let errors = String::from_utf8_lossy(&parsed.stderr);
            assert!(parsed.status.success(), "{}: {errors}", path.display());
            serde_json::from_slice(&parsed.stdout).ok()
        }
        _ => {
            eprintln!("SKIPPED: YAML is parsed by PyYAML");
            None
        }
    }
}

/// The command lines of a document of YAML.
fn command_lines(value: &Value, lines: &mut Vec<Vec<String>>) {
    match value {
        Value::Array(items) => {
            let words: Option<Vec<String>> = items
                .iter()
                .map(|item| item.as_str().map(str::to_owned))
                .collect();
            match words {
                Some(words) if words.first().is_some_and(|word| word == "anamnesis") => {
                    lines.push(words);
                }
                _ => items.iter().for_each(|item| command_lines(item, lines)),
            }
        }
        Value::Object(fields) => fields.values().for_each(|item| command_lines(item, lines)),
        _ => {}
    }
}

/// Whether the command understands the arguments: with `--help`, it prints the help after them, and does nothing.
fn is_understood(words: &[String]) -> bool {
    let own = words.split(|word| word == "--").next().unwrap();
    let mut args: Vec<&str> = own[1..].iter().map(String::as_str).collect();
    args.push("--help");
    finish(command(&args)).code == 0
}

#[test]
fn commands_have_options_that_exist() {
    let mut lines = Vec::new();
    for page in PAGES {
        for line in blocks(page, "sh").iter().flat_map(|block| block.lines()) {
            let words = line.split_whitespace().map(str::to_owned);
            let words: Vec<String> = words.collect();
            // also behind another program, as `kubectl exec POD -- anamnesis`
            if let Some(at) = words.iter().position(|word| word == "anamnesis") {
                lines.push(words[at..].to_vec());
            }
        }
    }
    assert!(lines.len() > 10, "{lines:?}");
    for path in examples("docs/examples", ".service") {
        let text = fs::read_to_string(path).unwrap();
        let exec = text
            .lines()
            .find_map(|line| line.strip_prefix("ExecStart=/usr/bin/"));
        lines.push(exec.unwrap().split(' ').map(str::to_owned).collect());
    }
    for path in examples("docs/examples/containers", ".yaml") {
        let Some(document) = yaml_of(&path) else {
            return;
        };
        let before = lines.len();
        command_lines(&document, &mut lines);
        assert!(lines.len() > before, "{}", path.display());
    }
    for words in &lines {
        assert!(is_understood(words), "{words:?}");
        // a command behind `--` may be this one
        if let Some(at) = words.iter().skip(1).position(|word| word == "anamnesis") {
            assert!(is_understood(&words[at + 1..]), "{words:?}");
        }
    }
    let wrong = ["anamnesis", "warm", "model", "--no-such-option"].map(str::to_owned);
    assert!(!is_understood(&wrong));
}

#[test]
fn blocks_of_yaml_are_yaml() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("block.yaml");
    for block in PAGES.iter().flat_map(|page| blocks(page, "yaml")) {
        fs::write(&path, &block).unwrap();
        if let Some(document) = yaml_of(&path) {
            assert!(document.is_object(), "{block}");
        }
    }
}

/// The schemas are in the Python package `kubernetes-validate`.
#[test]
fn manifests_are_valid_by_the_schemas_of_kubernetes() {
    let script = "import sys\ntry: import yaml, kubernetes_validate as schemas\nexcept ImportError: sys.exit(77)\n\
        for path in sys.argv[1:]: schemas.validate(yaml.safe_load(open(path)), schemas.latest_version(), strict=True)";
    let paths = examples("docs/examples/containers", ".yaml");
    let manifests: Vec<&str> = paths
        .iter()
        .map(|path| path_str(path))
        .filter(|path| !path.ends_with("compose.yaml"))
        .collect();
    let run = |paths: &[&str]| {
        let mut python = Command::new("python3");
        python.args(["-c", script]).args(paths).output()
    };
    let Some(checked) = run(&manifests)
        .ok()
        .filter(|checked| checked.status.code() != Some(77))
    else {
        eprintln!("SKIPPED: Kubernetes' schemas are in the Python package kubernetes-validate");
        return;
    };
    let errors = String::from_utf8_lossy(&checked.stderr);
    assert!(checked.status.success(), "{errors}");
    // a field that does not exist is found
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("wrong.yaml");
    let text = fs::read_to_string(manifests[0]).unwrap();
    assert!(text.contains("\nspec:\n"));
    fs::write(
        &path,
        text.replace("\nspec:\n", "\nspec:\n  noSuchField: 1\n"),
    )
    .unwrap();
    assert!(!run(&[path_str(&path)]).unwrap().status.success());
}

#[test]
fn units_are_valid() {
    let mut systemd = Command::new("systemd-analyze");
    let scratch = tempfile::tempdir().unwrap();
    let mut units = Vec::new();
    for path in examples("docs/examples", ".service") {
        let name = path.file_name().unwrap().to_str().unwrap();
        let text = fs::read_to_string(&path).unwrap();
        // the program is not installed there
        let text = text.replace("/usr/bin/anamnesis", env!("CARGO_BIN_EXE_anamnesis"));
        let unit = scratch.path().join(name.replace('@', "@llama"));
        fs::write(&unit, text.replace("Documentation=", "# Documentation=")).unwrap();
        units.push(unit);
    }
    match systemd.arg("verify").args(&units).output() {
        Err(error) => eprintln!("SKIPPED: units are verified by systemd-analyze: {error}"),
        Ok(found) => {
            let said = String::from_utf8_lossy(&found.stderr).into_owned();
            let names = units
                .iter()
                .map(|unit| unit.file_name().unwrap().to_str().unwrap());
            let names: Vec<&str> = names.collect();
            let own = said
                .lines()
                .filter(|line| names.iter().any(|name| line.contains(name)));
            let own: Vec<&str> = own.collect();
            assert!(own.is_empty(), "{own:?}");
        }
    }
}

#[test]
fn every_file_is_named_in_the_page() {
    let page = fs::read_to_string(workspace().join(PAGES[0])).unwrap();
    for path in examples("docs/examples", ".service") {
        let name = path.file_name().unwrap().to_str().unwrap();
        assert!(page.contains(&format!("(examples/{name})")), "{name}");
    }
}
