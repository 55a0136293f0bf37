//! Runs the `anamnesis` binary in the root directory of the workspace.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The exit status and output of a process.
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

pub(crate) fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The command, without the environment variables that change its output.
pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_anamnesis"));
    for name in ["COLUMNS", "NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE"] {
        command.env_remove(name);
    }
    command
        .args(args)
        .current_dir(workspace())
        .stdin(Stdio::null());
    command
}

pub(crate) fn finish(mut command: Command) -> Run {
    let output = command.output().expect("the binary runs");
    Run {
        code: output.status.code().expect("not ended by a signal"),
        stdout: String::from_utf8(output.stdout).expect("UTF-8"),
        stderr: String::from_utf8(output.stderr).expect("UTF-8"),
    }
}

pub(crate) fn run(args: &[&str]) -> Run {
    finish(command(args))
}

/// Standard output of a run that must succeed and print nothing to standard error.
#[allow(dead_code)] // each test file compiles this module and not all of them use it
pub(crate) fn ok(args: &[&str]) -> String {
    let run = run(args);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{args:?}");
    run.stdout
}

/// Writes a safetensors file of F32 zeros with these names and shapes. `metadata` is a JSON object or empty.
#[allow(dead_code)] // each test file compiles this module and not all of them use it
pub(crate) fn safetensors(path: &Path, metadata: &str, tensors: &[(&str, &[usize])]) {
    let mut header = String::from("{");
    if !metadata.is_empty() {
        header.push_str(&format!("\"__metadata__\":{metadata},"));
    }
    let mut end = 0;
    for (name, shape) in tensors {
        let start = end;
        end += 4 * shape.iter().product::<usize>();
        let name = serde_json::to_string(name).expect("a string");
        header.push_str(&format!(
            "{name}:{{\"dtype\":\"F32\",\"shape\":{shape:?},\"data_offsets\":[{start},{end}]}},"
        ));
    }
    header.pop();
    header.push('}');
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.resize(bytes.len() + end, 0);
    std::fs::write(path, bytes).expect("a writable directory");
}
