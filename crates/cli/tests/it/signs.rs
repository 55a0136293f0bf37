//! Signs of quantisation that no scheme explains, by the command: `plan`, `remember`, `check` and `inspect` say the same of each, by its
//! name, and none of them passes it over.

use std::fs;
use std::path::Path;

use serde_json::{Map, Value, json};

use crate::process::{json_of, path_str, run};

mod layouts;

/// The name, dtype and shape of a tensor. Its bytes are small and not zero.
type Row = (&'static str, &'static str, &'static [usize]);

/// A checkpoint with a sign.
struct SignCase {
    name: &'static str,
    tensors: &'static [Row],
    /// Tensors that hold a text.
    texts: &'static [(&'static str, &'static str)],
    metadata: &'static [(&'static str, &'static str)],
    /// The text of `config.json`; empty if there is none.
    config: &'static str,
    said: Said,
}

const PLAIN_CASE: SignCase = SignCase {
    name: "",
    tensors: &[],
    texts: &[],
    metadata: &[],
    config: "",
    said: Said::Nothing,
};

/// The statement of every verb.
enum Said {
    /// A weight is refused.
    Refused(&'static str),
    /// A warning, and the weight is made.
    Warned(&'static str),
    Nothing,
}

impl SignCase {
    fn write(&self, directory: &Path) -> std::path::PathBuf {
        let mut header = Map::new();
        if !self.metadata.is_empty() {
            let all = self.metadata.iter();
            let all: Map<String, Value> = all.map(|(k, v)| ((*k).to_owned(), json!(v))).collect();
            header.insert("__metadata__".to_owned(), all.into());
        }
        let mut data: Vec<u8> = Vec::new();
        let mut add = |name: &str, dtype: &str, shape: &[usize], bytes: &[u8]| {
            let start = data.len();
            data.extend(bytes);
            let entry =
                json!({"dtype": dtype, "shape": shape, "data_offsets": [start, data.len()]});
            header.insert(name.to_owned(), entry);
        };
        for (name, dtype, shape) in self.tensors {
            let width = match *dtype {
                "I64" => 8,
                "F32" | "I32" | "U32" => 4,
                "F16" | "BF16" | "I16" => 2,
                _ => 1,
            };
            let bytes = vec![1; width * shape.iter().product::<usize>()];
            add(name, dtype, shape, &bytes);
        }
        for (name, text) in self.texts {
            add(name, "U8", &[text.len()], text.as_bytes());
        }
        let header = Value::from(header).to_string();
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend(header.as_bytes());
        bytes.extend(data);
        let path = directory.join("model.safetensors");
        fs::write(&path, bytes).unwrap();
        if !self.config.is_empty() {
            fs::write(directory.join("config.json"), self.config).unwrap();
        }
        path
    }

    /// The verbs that do not say it.
    fn failures(&self) -> Vec<String> {
        let directory = tempfile::tempdir().unwrap();
        let path = self.write(directory.path());
        let (path, out) = (path_str(&path), directory.path().join("out.safetensors"));
        let (text, is_refused) = match self.said {
            Said::Refused(text) => (text, true),
            Said::Warned(text) => (text, false),
            Said::Nothing => ("", false),
        };
        let mut failures = Vec::new();
        for args in [
            &["plan", path][..],
            &["remember", path, "-o", path_str(&out)],
        ] {
            let run = run(args);
            let said = [run.stdout, run.stderr].concat();
            if run.code != i32::from(is_refused) || !said.contains(text) {
                failures.push(format!("{} {}: {said}", args[0], run.code));
            }
            if text.is_empty() && said.contains("not known") {
                failures.push(format!("{}: {said}", args[0]));
            }
        }
        if out.exists() == is_refused {
            failures.push(format!("remember: an output: {}", out.exists()));
        }
        let report = run(&["check", path, "--json"]);
        let found: Value = serde_json::from_str(&report.stdout).unwrap();
        let all = found["models"][0]["findings"].as_array().unwrap();
        // a layout that is known and cannot be decoded is of the second rule
        let of_weights =
            |found: &&Value| found["rule"] == "unexplained" || found["rule"] == "undecodable";
        let unexplained = all.iter().filter(of_weights);
        let level = if is_refused { "error" } else { "warning" };
        let is_said = |found: &&Value| {
            (found["level"] == level || found["rule"] == "undecodable")
                && found["message"].as_str().unwrap().contains(text)
        };
        let unexplained: Vec<&Value> = unexplained.collect();
        let holds = match self.said {
            Said::Nothing => unexplained.is_empty(),
            _ => unexplained.iter().any(is_said) && report.code != 0,
        };
        if !holds {
            failures.push(format!("check {}: {unexplained:?}", report.code));
        }
        let inspect = run(&["inspect", path]);
        let said = [inspect.stdout, inspect.stderr].concat();
        if !said.contains(text) {
            failures.push(format!("inspect: {said}"));
        }
        let summary = json_of(&["inspect", path, "--json"]).to_string();
        // a text in JSON has its quotes escaped
        let escaped = json!(text).to_string();
        if !summary.contains(escaped.trim_matches('"')) {
            failures.push(format!("inspect --json: {summary}"));
        }
        failures
            .iter()
            .map(|failure| format!("{}: {failure}", self.name))
            .collect()
    }
}

#[test]
fn every_verb_says_each_sign() {
    let all = layouts::CASES.iter().copied().flatten();
    let failures: Vec<String> = all.flat_map(SignCase::failures).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
