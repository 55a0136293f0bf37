//! Every verb that works for long, ended by SIGINT and by SIGTERM.

use std::fs::File;
use std::io::Write;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::process::{command, path_str, send_signal};

/// The time from the signal to the end, in the best of a few runs. It is below 100 ms on an idle machine; here tests run beside
/// each other, and share the device.
const MOST: Duration = Duration::from_millis(500);
const RUNS: usize = 8;

/// Tensors of zeros, in a file with holes: 8 GB, which take seconds.
const TENSORS: u64 = 240;
const NBYTES: u64 = 32 << 20;

#[test]
fn an_interrupt_ends_every_verb() {
    let scratch = tempfile::tempdir().unwrap();
    let directory = scratch.path().join("m");
    std::fs::create_dir(&directory).unwrap();
    let tensors = (0..TENSORS).map(|n| {
        let (start, end) = (n * NBYTES, (n + 1) * NBYTES);
        format!(
            "\"w{n}\":{{\"dtype\":\"F16\",\"shape\":[4096,4096],\"data_offsets\":[{start},{end}]}}"
        )
    });
    let header = format!("{{{}}}", tensors.collect::<Vec<_>>().join(","));
    for name in ["model.safetensors", "other.safetensors"] {
        let mut file = File::create(directory.join(name)).unwrap();
        file.write_all(&(header.len() as u64).to_le_bytes())
            .unwrap();
        file.write_all(header.as_bytes()).unwrap();
        file.set_len(8 + header.len() as u64 + TENSORS * NBYTES)
            .unwrap();
    }
    let (model, other) = (
        directory.join("model.safetensors"),
        directory.join("other.safetensors"),
    );
    let (model, other) = (path_str(&model), path_str(&other));
    let out = scratch.path().join("out.safetensors");
    let out = path_str(&out);
    let directory = path_str(&directory);
    let verbs: &[&[&str]] = &[
        &["inspect", "--hash", model],
        &["remember", model, "-o", out, "--overwrite"],
        &["load", model, "--loader", "pread", "--repeat", "100"],
        &["load", model, "--loader", "mmap", "--repeat", "100"],
        &["check", model],
        &["diff", model, other],
        &["report", model, "-o", out, "--stats"],
        &["warm", model],
        &["warm", model, "--", "sleep", "60"],
        &["record", "-o", out, "--dir", directory, "--", "sleep", "60"],
        &["ppc", "run", "--dir", directory, "--policy", "none"],
        &[
            "ppc", "run", "--dir", directory, "--policy", "eager", "--", "sleep", "60",
        ],
    ];
    let mut slow = Vec::new();
    for verb in verbs {
        // closing an unfinished file waits for pages of it that are being written
        let most = if verb[0] == "remember" {
            6 * MOST
        } else {
            MOST
        };
        for signal in ["-INT", "-TERM"] {
            let mut best = Duration::MAX;
            for run in 0..RUNS {
                let mut child = command(verb)
                    .stdout(Stdio::null())
                    .stderr(Stdio::piped())
                    .spawn()
                    .unwrap();
                std::thread::sleep(Duration::from_millis(150 + 50 * run as u64));
                if child.try_wait().unwrap().is_some() {
                    let output = child.wait_with_output().unwrap();
                    eprintln!(
                        "SKIPPED: {verb:?}: {}",
                        String::from_utf8_lossy(&output.stderr)
                    );
                    best = Duration::ZERO;
                    break;
                }
                let sent = Instant::now();
                send_signal(&child, signal);
                // read to its end as well, so that nothing waits for a full pipe
                let output = child.wait_with_output().unwrap();
                best = best.min(sent.elapsed());
                // a runtime without a command is a service, which is ended in no other way
                let is_service = verb[0] == "ppc" && !verb.contains(&"--");
                assert_eq!(output.status.code() == Some(0), is_service, "{verb:?}");
                if best < most {
                    break;
                }
            }
            println!("{best:>8.1?} {signal} {}", verb.join(" "));
            if best >= most {
                slow.push(format!("{verb:?} {signal}: {best:?}"));
            }
        }
    }
    assert!(slow.is_empty(), "{}", slow.join("\n"));
}
