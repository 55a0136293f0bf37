//! `anamnesis record` by the shim: a program that maps its model is refused, and a recording of little says so. The messages of the shim
//! are written by the test.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use crate::process::{Run, command, path_str, safetensors, send_signal};
use crate::runtime_process::TIMEOUT;

const READ: u64 = 2;
const MAP: u64 = 3;

/// Records a command that the shim reports these accesses of: kind, offset and length.
fn record(dir: &Path, template: &Path, accesses: &[(u64, u64, u64)]) -> Run {
    record_until(dir, template, accesses, |_, end| drop(File::create(end)))
}

/// The same; `end` ends the recording, or makes the file that ends the command.
fn record_until(
    dir: &Path,
    template: &Path,
    accesses: &[(u64, u64, u64)],
    end_by: impl FnOnce(&Child, &Path),
) -> Run {
    let scratch = tempfile::tempdir().unwrap();
    let (pipe, end) = (scratch.path().join("pipe"), scratch.path().join("end"));
    let source = format!("shim:{}", pipe.display());
    let wait = format!("while [ ! -e '{}' ]; do sleep 0.01; done", end.display());
    let mut record = command(&["record", "--source", &source, "-o", path_str(template)]);
    record.args(["--dir", path_str(dir), "--", "sh", "-c", &wait]);
    record.stdout(std::process::Stdio::piped());
    let recording = record.stderr(std::process::Stdio::piped()).spawn().unwrap();
    let begun = Instant::now();
    let mut to = loop {
        assert!(begun.elapsed() < TIMEOUT);
        match OpenOptions::new().write(true).open(&pipe) {
            Ok(to) => break to,
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    };
    let model = File::open(dir.join("model.safetensors")).unwrap();
    let model = model.metadata().unwrap();
    for &(kind, offset, len) in accesses {
        // a process that does not exist: one that has ended
        let process = 0x7fff_fff0;
        let words = [
            0x616e_7331 | kind << 32,
            model.dev(),
            model.ino(),
            offset,
            len,
            process,
            1,
            0,
        ];
        to.write_all(&words.map(u64::to_ne_bytes).concat()).unwrap();
    }
    end_by(&recording, &end);
    let done = recording.wait_with_output().unwrap();
    Run {
        code: done.status.code().unwrap(),
        stdout: String::from_utf8(done.stdout).unwrap(),
        stderr: String::from_utf8(done.stderr).unwrap(),
    }
}

#[test]
fn a_recording_is_refused_or_says_that_it_has_little() {
    let dir = tempfile::tempdir().unwrap();
    let model = dir.path().join("model.safetensors");
    safetensors(&model, "", &[("a", &[1 << 20]), ("b", &[1 << 20])]);
    let len = std::fs::metadata(&model).unwrap().len();
    let template = dir.path().join("t.iot");
    let mapped = record(dir.path(), &template, &[(READ, 0, 4096), (MAP, 0, len)]);
    assert!(
        mapped.code == 1
            && mapped.stderr.contains("mapped 8.00 MiB of the model")
            && !template.exists(),
        "{}",
        mapped.stderr
    );
    let little = record(dir.path(), &template, &[(READ, 0, 4096)]);
    assert!(
        little.code == 0
            && little
                .stderr
                .contains("the template has 4.00 KiB of 8.00 MiB"),
        "{}",
        little.stderr
    );
    std::fs::remove_file(&template).unwrap();
    let whole = record(dir.path(), &template, &[(READ, 0, len)]);
    assert!(
        whole.code == 0 && !whole.stderr.contains("the template has"),
        "{}",
        whole.stderr
    );
    assert!(template.exists(), "{}", whole.stdout);
    assert!(!whole.stderr.contains("interrupted"), "{}", whole.stderr);
}

/// The template of a server that is ended by Ctrl-C is written, and said to be one until then.
#[test]
fn an_interrupted_recording_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let model = dir.path().join("model.safetensors");
    safetensors(&model, "", &[("a", &[1 << 20])]);
    let template = dir.path().join("t.iot");
    let accesses = [(READ, 0, 1 << 20)];
    let stopped = record_until(dir.path(), &template, &accesses, |recording, _| {
        // the runtime reads the pipe meanwhile
        std::thread::sleep(Duration::from_millis(500));
        send_signal(recording, "-INT");
    });
    let said = "the recording was interrupted";
    assert!(stopped.stderr.contains(said), "{}", stopped.stderr);
    assert_ne!(stopped.code, 0, "{}", stopped.stdout);
    assert!(template.exists(), "{}", stopped.stderr);
}
