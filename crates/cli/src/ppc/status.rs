//! `anamnesis ppc status`: the status of the runtimes on this machine.

use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;

use anamnesis::quote::{escape, is_hidden};
use anamnesis_ppc::host::LibraryPolicy;
use anamnesis_ppc::runtime::{RunningRuntimes, query_all, query_status};
use serde_json::{Value, json};

use super::metrics_server;
use crate::args::{Color, PpcStatusArgs};
use crate::exit::{Completion, RunError};
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::output::table::{Column, ColumnFit, Table};
use crate::output::{BOLD, REFUSED, Screen, Stdout, json};
use crate::text::{ByteSize, ExactCount, plural};

pub(super) fn run(
    args: &PpcStatusArgs,
    color: Color,
    interrupt: &Interrupt,
    out: &mut Stdout,
) -> Result<Completion, RunError> {
    if let Some(at) = args.listen {
        return listen(at, interrupt);
    }
    let found = match args.pid {
        Some(pid) => {
            let document = query_status(pid).map_err(|error| unavailable(pid, &error))?;
            RunningRuntimes {
                documents: vec![(pid, document)],
                ..RunningRuntimes::default()
            }
        }
        None => {
            let found = running()?;
            if found.untrusted > 0 {
                // a status is not taken from just anyone: its texts are shown, and its numbers are scraped
                let sockets = plural(found.untrusted as u64, "status socket");
                eprintln!("anamnesis: {sockets} of other users not read");
            }
            found
        }
    };
    let mut all = Vec::new();
    for (_, document) in &found.documents {
        match serde_json::from_str::<Value>(document) {
            Ok(status) => all.push(status),
            // without PID, a runtime that ends meanwhile is omitted
            Err(_) if args.pid.is_none() => {}
            Err(error) => {
                let message = format!("the status is not JSON: {error}");
                return Err(Failure::new("unavailable", message, "try again").into());
            }
        }
    }
    if args.json {
        let unresponsive = found.unresponsive;
        let document =
            json!({"version": json::VERSION, "runtimes": all, "unresponsive": unresponsive});
        json::write_line(&document, out)?;
    } else if args.prometheus {
        write!(out, "{}", metrics(&found))?;
    } else if all.is_empty() && found.unresponsive.is_empty() {
        writeln!(
            out,
            "no runtime is running; start one with `anamnesis ppc run`"
        )?;
        if let Some(why) = LibraryPolicy::UNAVAILABLE {
            show_libraries(why, "", out)?;
        }
    } else {
        let screen = Screen::new(color);
        for (number, status) in all.iter().enumerate() {
            if number > 0 {
                writeln!(out)?;
            }
            show(status, &screen, out)?;
        }
        for (number, pid) in found.unresponsive.iter().enumerate() {
            if number == 0 && !all.is_empty() {
                writeln!(out)?;
            }
            let line = format!("process {pid} does not respond; it may be stopped");
            writeln!(out, "{}", screen.paint(REFUSED, line))?;
        }
    }
    Ok(Completion::Done)
}

/// The metrics of these runtimes. Other processes wrote the labels: only line ends act on a terminal.
fn metrics(found: &RunningRuntimes) -> String {
    let shown = |c| {
        if c != '\n' && is_hidden(c) {
            '\u{fffd}'
        } else {
            c
        }
    };
    found.prometheus().chars().map(shown).collect()
}

/// All runtimes that this user may trust.
pub(super) fn running() -> Result<RunningRuntimes, Failure> {
    query_all().map_err(|e| Failure::new("io", e.to_string(), "check that /proc is mounted"))
}

/// Serves the metrics of all runtimes over HTTP until an interrupt.
fn listen(at: SocketAddr, interrupt: &Interrupt) -> Result<Completion, RunError> {
    let failed = |error: std::io::Error| {
        let message = format!("{at}: {error}");
        Failure::new("io", message, "choose another address for --listen")
    };
    let listener = TcpListener::bind(at).map_err(failed)?;
    // port 0 asks for any free port: the real one is shown
    let at = listener.local_addr().map_err(failed)?;
    eprintln!("anamnesis: metrics at http://{at}/metrics");
    interrupt.handle();
    // without /proc, no runtime is up
    let scraped = || metrics(&query_all().unwrap_or_default());
    metrics_server::serve(&listener, interrupt, scraped).map_err(failed)?;
    Ok(Completion::Done)
}

pub(super) fn unavailable(pid: u32, error: &std::io::Error) -> Failure {
    if error.kind() == std::io::ErrorKind::PermissionDenied {
        let message = format!("the status socket of process {pid} belongs to another user");
        return Failure::new("unavailable", message, "run the command as that user");
    }
    if error.kind() == std::io::ErrorKind::TimedOut {
        let message = format!("the runtime in process {pid} does not respond");
        return Failure::new(
            "unavailable",
            message,
            "check that the process is not stopped",
        );
    }
    let message = format!("no runtime responds in process {pid}");
    let remedy = "list the runtimes with `anamnesis ppc status`";
    Failure::new("unavailable", message, remedy)
}

fn show(status: &Value, screen: &Screen, out: &mut Stdout) -> Result<(), RunError> {
    // a runtime of another version may lack a field: the rest is shown all the same
    let number = |group: &str, name: &str| status[group][name].as_u64().unwrap_or(0);
    let pid = status["pid"].as_u64().unwrap_or(0);
    let uptime = status["uptime_s"].as_f64().unwrap_or(0.0);
    writeln!(
        out,
        "{}",
        screen.paint(BOLD, format!("process {pid}, running for {uptime:.0} s"))
    )?;
    let source = status["source"].as_str().unwrap_or_default();
    writeln!(
        out,
        "  events    {} from source `{}`; {} lost, {} of files without a policy",
        ExactCount(number("events", "received")),
        escape(source),
        ExactCount(number("events", "lost")),
        ExactCount(number("events", "unmatched")),
    )?;
    let hits = status["hit_rate"]
        .as_f64()
        .map(|rate| format!("; {:.1} % of the accessed bytes were cached", rate * 100.0));
    writeln!(
        out,
        "  misses    {} of {}{}",
        ExactCount(number("events", "misses")),
        ByteSize(number("events", "missed_bytes")),
        hits.unwrap_or_default()
    )?;
    writeln!(
        out,
        "  prefetch  {} read, {} already cached; {} interrupts",
        ByteSize(number("prefetch", "bytes_read")),
        ByteSize(number("prefetch", "bytes_skipped")),
        ExactCount(number("prefetch", "interrupts")),
    )?;
    writeln!(
        out,
        "  evicted   {} of {} requested; {} kept because a process maps them",
        ByteSize(number("evict", "freed")),
        ByteSize(number("evict", "requested")),
        ByteSize(number("evict", "mapped")),
    )?;
    writeln!(
        out,
        "  memory    {} used of {}",
        ByteSize(number("memory", "used")),
        ByteSize(number("memory", "limit"))
    )?;
    if let Some(why) = status["libraries_unavailable"].as_str() {
        show_libraries(&escape(why), "  libraries ", out)?;
    }
    let policies = status["policies"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    if policies.is_empty() {
        return Ok(());
    }
    writeln!(out)?;
    let columns = vec![
        Column::left("policy"),
        Column::left("directory").fit(ColumnFit::Middle(24)),
        Column::right("files"),
        Column::right("calls"),
        Column::right("longest call"),
        Column::right("prefetched"),
        Column::right("wasted"),
        Column::left("state").fit(ColumnFit::Below),
    ];
    let mut table = Table::new(columns, 2);
    for policy in policies {
        let text = |name: &str| escape(policy[name].as_str().unwrap_or_default()).into_owned();
        let count = |name: &str| policy[name].as_u64().unwrap_or(0);
        table.cell(text("name"));
        table.cell(text("path"));
        table.cell(ExactCount(count("files")));
        table.cell(ExactCount(count("calls")));
        table.cell(format!("{:.1} ms", count("longest_call_ns") as f64 / 1e6));
        table.cell(ByteSize(count("prefetched")));
        table.cell(ByteSize(count("wasted")));
        match policy["failure"].as_str() {
            Some(why) => table.cell(screen.paint(REFUSED, escape(why))),
            None => table.cell("registered"),
        }
    }
    table.print(screen, out)?;
    show_services(policies, screen, out)
}

/// Says that a process runs no policies in shared libraries.
fn show_libraries(why: &str, label: &str, out: &mut Stdout) -> Result<(), RunError> {
    writeln!(
        out,
        "{label}policies in shared libraries are unavailable: {why}"
    )?;
    Ok(())
}

/// The work of the policies for each model, if they report it.
fn show_services(policies: &[Value], screen: &Screen, out: &mut Stdout) -> Result<(), RunError> {
    let columns = vec![
        Column::left("model").fit(ColumnFit::Middle(24)),
        Column::left("phase"),
        Column::right("wanted"),
        Column::right("prefetched"),
        Column::right("wasted"),
        Column::left("reason").fit(ColumnFit::Below),
    ];
    let mut table = Table::new(columns, 2);
    let mut any = false;
    for policy in policies {
        let directory = policy["path"].as_str().unwrap_or_default();
        for service in policy["services"].as_array().into_iter().flatten() {
            let text = |name: &str| service[name].as_str().unwrap_or_default();
            let bytes = |name: &str| ByteSize(service[name].as_u64().unwrap_or(0));
            let model = Path::new(directory).join(text("model"));
            table.cell(escape(&model.to_string_lossy()));
            match text("phase") {
                "recording" => table.cell(format!("recording, {} so far", bytes("recorded"))),
                // a newer runtime may have phases that this command does not know
                phase => table.cell(escape(phase)),
            }
            table.cell(bytes("wanted"));
            table.cell(bytes("prefetched"));
            table.cell(bytes("wasted"));
            table.cell(escape(text("reason")));
            any = true;
        }
    }
    if any {
        writeln!(out)?;
        table.print(screen, out)?;
    }
    Ok(())
}
