//! Every verb that works for long, ended by SIGINT and by SIGTERM.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
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
    let mut slow = Vec::new();
    for verb in &busy_verbs(model, other, out, directory) {
        // closing an unfinished file waits for pages of it that are being written
        let most = if matches!(verb[0], "remember" | "convert" | "edit") {
            6 * MOST
        } else {
            MOST
        };
        // a device that is faster than the verb
        let ends = EndsEarly::Skipped;
        slow.extend(too_slow(verb, most, ends, &command));
    }
    assert!(slow.is_empty(), "{}", slow.join("\n"));
}

/// Verbs that are at work for seconds.
pub(crate) fn busy_verbs<'a>(
    model: &'a str,
    other: &'a str,
    out: &'a str,
    directory: &'a str,
) -> Vec<Vec<&'a str>> {
    vec![
        vec!["inspect", "--hash", model],
        vec!["remember", model, "-o", out, "--overwrite"],
        vec!["convert", model, "-o", out, "--overwrite"],
        vec!["load", model, "--loader", "pread", "--repeat", "100"],
        vec!["load", model, "--loader", "mmap", "--repeat", "100"],
        vec!["check", model],
        // never changed: each run is interrupted
        vec!["edit", model, "--copy", "--set", "a=b"],
        vec!["diff", model, other],
        vec!["report", model, "-o", out, "--stats"],
        vec!["warm", model],
        vec!["warm", model, "--", "sleep", "60"],
        vec!["record", "-o", out, "--dir", directory, "--", "sleep", "60"],
        vec!["ppc", "run", "--dir", directory, "--policy", "none"],
        vec![
            "ppc", "run", "--dir", directory, "--policy", "eager", "--", "sleep", "60",
        ],
    ]
}

/// The meaning of an end before the interrupt.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EndsEarly {
    Skipped,
    Fails,
}

/// Interrupts a verb by each signal, and returns those by which it does not end in `most`.
fn too_slow(
    verb: &[&str],
    most: Duration,
    ends: EndsEarly,
    command: &dyn Fn(&[&str]) -> Command,
) -> Vec<String> {
    let mut slow = Vec::new();
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
                let said = String::from_utf8_lossy(&output.stderr).into_owned();
                assert!(ends == EndsEarly::Skipped, "{verb:?} has ended: {said}");
                eprintln!("SKIPPED: {verb:?}: {said}");
                best = Duration::ZERO;
                break;
            }
            // held open, as a writer does that sends nothing
            let input = child.stdin.take();
            let sent = Instant::now();
            send_signal(&child, signal);
            // a verb that does not end would keep the test for ever
            let ended = end_of(&mut child);
            best = best.min(ended.map_or(Duration::MAX, |_| sent.elapsed()));
            drop(input);
            // a runtime without a command is a service, which is ended in no other way
            let is_service = verb[0] == "ppc" && !verb.contains(&"--");
            if let Some(status) = ended {
                assert_eq!(status.code() == Some(0), is_service, "{verb:?}");
            }
            if best < most || ended.is_none() {
                break;
            }
        }
        println!("{best:>8.1?} {signal} {}", verb.join(" "));
        if best >= most {
            slow.push(format!("{verb:?} {signal}: {best:?}"));
        }
    }
    slow
}

/// Waits for the end of a process that has got a signal. `None` for one that goes on, which is killed.
fn end_of(child: &mut Child) -> Option<ExitStatus> {
    let mut messages = child.stderr.take().unwrap();
    // read to its end as well, so that nothing waits for a full pipe
    let reading = std::thread::spawn(move || std::io::copy(&mut messages, &mut std::io::sink()));
    let until = Instant::now() + Duration::from_secs(20);
    let mut ended = child.try_wait().unwrap();
    while ended.is_none() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
        ended = child.try_wait().unwrap();
    }
    if ended.is_none() {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    reading.join().unwrap().unwrap();
    ended
}

/// Verbs that read a model, `M`; `O` is another one, and `D/…` an output.
pub(crate) static READERS: &[&[&str]] = &[
    &["inspect", "M"],
    &["inspect", "--hash", "M"],
    &["ls", "M"],
    &["check", "M"],
    &["check", "M", "--stats", "--json"],
    &["report", "M", "-o", "D/page.html"],
    &["report", "--check", "M", "-o", "D/page.html"],
    &["fit", "M"],
    &["diff", "M", "O"],
    &["diff", "O", "M"],
    &["plan", "M"],
    &["load", "M"],
    &["remember", "M", "-o", "D/out.safetensors"],
    &["convert", "M", "-o", "D/out.safetensors"],
    &["template", "predict", "M", "-o", "D/out.json"],
    &["warm", "M"],
    &["warm", "M", "--", "sleep", "60"],
];

fn with<'a>(verb: &[&'a str], model: &'a str, paths: &'a [(&'a str, String)]) -> Vec<&'a str> {
    let arg = |arg: &&'a str| {
        let known = paths.iter().find(|(name, _)| name == arg);
        known.map_or(*arg, |(_, path)| path)
    };
    let args = verb.iter().map(arg);
    args.map(|arg| if arg == "M" { model } else { arg })
        .collect()
}

fn paths(scratch: &Path) -> Vec<(&'static str, String)> {
    let other = scratch.join("other.safetensors");
    crate::process::safetensors(&other, "", &[("w", &[4])]);
    let names = ["page.html", "out.safetensors", "out.json"];
    let keys = ["D/page.html", "D/out.safetensors", "D/out.json"];
    let out = |name| path_str(&scratch.join(name)).to_owned();
    let mut paths: Vec<_> = keys.into_iter().zip(names.map(out)).collect();
    paths.push(("O", path_str(&other).to_owned()));
    paths
}

/// No process writes to the pipe, or a writer is there and writes nothing.
#[test]
fn an_interrupt_ends_every_verb_that_waits_for_a_pipe() {
    let scratch = tempfile::tempdir().unwrap();
    let paths = paths(scratch.path());
    let fifo = |name: &str| {
        let path = scratch.path().join(name);
        let made = Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success());
        path_str(&path).to_owned()
    };
    let (alone, silent) = (fifo("alone"), fifo("silent"));
    // a writer that is a reader too opens the FIFO without waiting
    let writer = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(&silent);
    let mut slow = Vec::new();
    for verb in READERS {
        for model in ["-", &alone, &silent] {
            // the others read paths
            let has_input = matches!(verb[0], "inspect" | "check" | "report" | "fit" | "diff")
                && !verb.contains(&"--hash");
            if model == "-" && !has_input {
                continue;
            }
            let piped = |args: &[&str]| {
                let mut command = command(args);
                command.stdin(Stdio::piped());
                command
            };
            let verb = with(verb, model, &paths);
            slow.extend(too_slow(&verb, MOST, EndsEarly::Fails, &piped));
        }
    }
    drop(writer.unwrap());
    assert!(slow.is_empty(), "{}", slow.join("\n"));
}

/// A server that accepts connections and answers nothing, as a source and as the place of an output.
#[cfg(feature = "remote")]
#[test]
fn an_interrupt_ends_every_verb_that_waits_for_a_server() {
    let scratch = tempfile::tempdir().unwrap();
    let paths = paths(scratch.path());
    // connections wait in its queue
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let in_bucket = |args: &[&str]| {
        let mut command = command(args);
        command
            .env("AWS_ENDPOINT_URL", &address)
            .env("AWS_ALLOW_HTTP", "true")
            .env("AWS_REGION", "r")
            .env("AWS_ACCESS_KEY_ID", "id")
            .env("AWS_SECRET_ACCESS_KEY", "key");
        command
    };
    let mut slow = Vec::new();
    let url = format!("{address}/m.safetensors");
    for verb in READERS {
        // pages are warmed of local files
        if verb[0] == "warm" {
            continue;
        }
        for model in [&*url, "s3://bucket/m.safetensors", "s3://bucket/m/"] {
            let verb = with(verb, model, &paths);
            slow.extend(too_slow(&verb, MOST, EndsEarly::Fails, &in_bucket));
        }
    }
    for output in ["s3://bucket/m/", "s3://bucket/m.safetensors"] {
        let verb = with(&["remember", "O", "-o", "M"], output, &paths);
        slow.extend(too_slow(&verb, MOST, EndsEarly::Fails, &in_bucket));
    }
    assert!(slow.is_empty(), "{}", slow.join("\n"));
}
