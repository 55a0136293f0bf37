//! Runs the `anamnesis` binary in the root directory of the workspace.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

/// The exit status and output of a process.
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Whether the tests run as root, which alone can give files to others. If not, says what is left out.
#[cfg(target_os = "linux")]
pub(crate) fn is_root(what: &str) -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        eprintln!("SKIPPED: {what} need root");
    }
    is_root
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

/// Runs the command to its end.
pub(crate) fn finish(mut command: Command) -> Run {
    let output = command.output().expect("the binary runs");
    Run {
        code: output.status.code().expect("not ended by a signal"),
        stdout: String::from_utf8(output.stdout).expect("UTF-8"),
        stderr: String::from_utf8(output.stderr).expect("UTF-8"),
    }
}

/// Sends a running process a signal, by its option of kill(1).
pub(crate) fn send_signal(running: &std::process::Child, signal: &str) {
    let mut kill = Command::new("kill");
    kill.args([signal, &running.id().to_string()]);
    assert_eq!(finish(kill).code, 0);
}

/// Checks that a process has not ended `before` something that a test waits for: otherwise the test would wait for its whole
/// timeout, and then tell of that alone. The process stays to be waited for.
#[cfg(unix)]
pub(crate) fn assert_runs(child: &std::process::Child, before: &str) {
    use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let ended = waitid(WaitId::Pid(Pid::from_child(child)), options).expect("a child");
    assert!(
        ended.is_none(),
        "the process ended before {before}: {ended:?}"
    );
}

pub(crate) fn run(args: &[&str]) -> Run {
    finish(command(args))
}

/// Standard output of a run that must succeed and print nothing to standard error.
pub(crate) fn stdout_of(args: &[&str]) -> String {
    let run = run(args);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{args:?}");
    run.stdout
}

/// Standard output of a run that must succeed, as JSON.
pub(crate) fn json_of(args: &[&str]) -> Value {
    serde_json::from_str(&stdout_of(args)).expect("one JSON document")
}

/// A path as an argument.
pub(crate) fn path_str(path: &Path) -> &str {
    path.to_str().expect("a path of a test is UTF-8")
}

/// Writes a safetensors file of F32 zeros with these names and shapes. `metadata` is a JSON object or empty.
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

/// Writes a safetensors file of tensors of these dtypes, shapes and bytes.
pub(crate) fn stored_tensors(path: &Path, tensors: &[(&str, &str, &[u64], &[u8])]) {
    let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
    for (name, dtype, shape, bytes) in tensors {
        let start = data.len();
        data.extend_from_slice(bytes);
        let described = serde_json::json!({"dtype": dtype, "shape": shape, "data_offsets": [start, data.len()]});
        header.insert((*name).to_owned(), described);
    }
    let header = serde_json::Value::Object(header).to_string();
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.extend(data);
    std::fs::write(path, bytes).unwrap();
}
