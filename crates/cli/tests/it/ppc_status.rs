//! `anamnesis ppc status`: which runtimes are shown, and their metrics. Most tests need CAP_PERFMON and a file system on a device, and
//! are skipped with a message elsewhere.

use serde_json::Value;

use crate::process::{command, path_str, run};
use crate::runtime_process::{RuntimeProcess, uncached_model};

#[test]
fn a_stopped_runtime_is_listed() {
    let Some(dir) = uncached_model() else { return };
    let args = ["--dir", path_str(dir.path()), "--policy", "eager"];
    let (stopped, running) = (RuntimeProcess::start(&args), RuntimeProcess::start(&args));
    stopped.signal(rustix::process::Signal::STOP);
    let pid = stopped.0.id().to_string();
    // standard error counts the runtimes of other users, which other tests start
    let status = |options: &[&str]| {
        let shown = run(&[&["ppc", "status"], options].concat());
        assert_eq!(shown.code, 0, "{}", shown.stderr);
        shown.stdout
    };
    let listed = status(&[]);
    let own = format!("process {}, running", running.0.id());
    let silent = format!("process {pid} does not respond");
    assert!(
        listed.contains(&own) && listed.contains(&silent),
        "{listed}"
    );
    let document: Value = serde_json::from_str(&status(&["--json"])).unwrap();
    let unresponsive = document["unresponsive"].as_array().unwrap();
    assert!(unresponsive.contains(&stopped.0.id().into()), "{document}");
    let scraped = status(&["--prometheus"]);
    let answering = running.0.id().to_string();
    for (pid, up) in [(&pid, 0), (&answering, 1)] {
        let line = format!("anamnesis_ppc_up{{pid=\"{pid}\"}} {up}\n");
        assert!(scraped.contains(&line), "{scraped}");
    }
    let named = run(&["ppc", "status", &pid]);
    assert!(
        named.code == 1 && named.stderr.contains("does not respond"),
        "{}",
        named.stderr
    );
    stopped.signal(rustix::process::Signal::CONT);
    stopped.wait_for("the runtime that goes on", |_| true);
}

#[test]
fn metrics_are_served_over_http() {
    use std::io::{BufRead, BufReader, Read, Write};
    use std::process::Stdio;

    let mut serve = command(&["ppc", "status", "--prometheus", "--listen", "127.0.0.1:0"]);
    let mut serving = serve.stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let printed = serving.stderr.take().unwrap();
    BufReader::new(printed).read_line(&mut line).unwrap();
    let address = line.trim().split("http://").nth(1).unwrap();
    let address = address.strip_suffix("/metrics").unwrap();
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: {address}\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(
        answer.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4"),
        "{answer}"
    );
    crate::process::send_signal(&serving, "-TERM");
    assert_eq!(serving.wait().unwrap().code(), Some(0));
}

/// A socket of this user whose status is false in every field: it may show false figures, and act on no terminal.
#[test]
fn a_forged_status_is_escaped() {
    use std::io::Write;
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener};
    use std::sync::{Arc, Mutex};

    // escape sequences, C1 controls, a change of the writing direction, an invisible character, line ends
    let text = "\u{1b}[2J\u{9b}31m\u{7f}\u{202e}\u{200b}\r\n\u{2028}\0\u{7}";
    let service = serde_json::json!({"model": text, "phase": text, "reason": text, "wanted": -1, "wasted": text});
    let policy = serde_json::json!({"name": text, "path": text, "failure": text, "files": text, "calls": -1, "services": [service, 7]});
    let document = serde_json::json!({
        "pid": text, "uptime_s": 1e300, "source": text, "limitations": text, "libraries_unavailable": text, "hit_rate": -1e300, "prometheus": text,
        "policies": [policy, 7, text, {text: text}], "events": {"received": u64::MAX, text: text}, text: text,
    });
    let pid = std::process::id();
    // not the name of a runtime of this process, which other tests may start
    let name = format!("anamnesis-ppc/{pid}/forged");
    let address = SocketAddr::from_abstract_name(name).unwrap();
    let listener = UnixListener::bind_addr(&address).unwrap();
    let documents = [
        document.to_string(),
        format!("{text} is no JSON"),
        "[".repeat(1 << 20),
        String::new(),
        "null".into(),
    ];
    let pid = pid.to_string();
    let served = Arc::new(Mutex::new(String::new()));
    let current = Arc::clone(&served);
    // until the process ends; tests of other runtimes may connect, too
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let document = current.lock().unwrap().clone();
            let _ = stream.unwrap().write_all(document.as_bytes()); // the client may have enough of it
        }
    });
    for (number, document) in documents.into_iter().enumerate() {
        *served.lock().unwrap() = document;
        for option in ["--color=always", "--json", "--prometheus"] {
            let shown = run(&["ppc", "status", option, &pid]);
            let printed = format!("{}{}", shown.stdout, shown.stderr);
            assert!(
                printed.len() < 10_000,
                "{number} {option}: {}",
                printed.len()
            );
            // the command's own styles
            let printed = ["0", "1", "2", "31"]
                .iter()
                .fold(printed, |printed, style| {
                    printed.replace(&format!("\u{1b}[{style}m"), "")
                });
            let acts = |c: char| c != '\n' && anamnesis::quote::is_hidden(c);
            assert!(!printed.chars().any(acts), "{number} {option}: {printed:?}");
            assert!([0, 1].contains(&shown.code), "{number} {option}: {printed}");
            // a process of a static build says so; the others do not
            let libraries =
                printed.contains("\n  libraries policies in shared libraries are unavailable: ");
            assert_eq!(
                libraries,
                number == 0 && option == "--color=always",
                "{printed}"
            );
            assert_eq!(
                shown.code,
                i32::from(number > 0 && number < 4),
                "{number} {option}: {printed}"
            );
        }
    }
}
