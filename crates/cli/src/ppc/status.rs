//! `anamnesis ppc status`: how the runtimes of this machine are doing.

use std::io::Write;

use anamnesis_ppc::runtime::{ask, runtimes};
use serde_json::{Value, json};

use crate::args::{Color, PpcStatus};
use crate::exit::{Code, Failure, Stop};
use crate::output::table::{Column, Fit, Table};
use crate::output::text::{Bytes, Exact, clean};
use crate::output::{BOLD, REFUSED, Screen, Stdout, json};

pub(super) fn run(args: &PpcStatus, color: Color, out: &mut Stdout) -> Result<Code, Stop> {
    let pids = match args.pid {
        Some(pid) => vec![pid],
        None => runtimes().map_err(|e| Failure::new("io", e.to_string(), "is /proc mounted?"))?,
    };
    let mut all = Vec::new();
    for pid in pids {
        match ask(pid)
            .ok()
            .and_then(|answer| serde_json::from_str::<Value>(&answer).ok())
        {
            Some(status) => all.push(status),
            // one that ended meanwhile is not missed
            None if args.pid.is_none() => {}
            None => {
                let what = format!("process {pid} has no runtime that answers");
                return Err(Failure::new(
                    "unavailable",
                    what,
                    "`anamnesis ppc status` lists those there are",
                )
                .into());
            }
        }
    }
    if args.json {
        writeln!(
            out,
            "{}",
            json!({"version": json::VERSION, "runtimes": all})
        )?;
    } else if args.prometheus {
        let [one] = &*all else {
            let what = format!("{} runtimes", all.len());
            return Err(Failure::new("usage", what, "give the process of one").into());
        };
        write!(out, "{}", one["prometheus"].as_str().unwrap_or_default())?;
    } else if all.is_empty() {
        writeln!(out, "no runtime; `anamnesis ppc run` starts one")?;
    } else {
        let screen = Screen::new(color);
        for (number, status) in all.iter().enumerate() {
            if number > 0 {
                writeln!(out)?;
            }
            show(status, &screen, out)?;
        }
    }
    Ok(Code::Done)
}

fn show(status: &Value, screen: &Screen, out: &mut Stdout) -> Result<(), Stop> {
    let number = |group: &str, name: &str| status[group][name].as_u64().unwrap_or(0);
    let pid = status["pid"].as_u64().unwrap_or(0);
    let running = status["running"].as_f64().unwrap_or(0.0);
    writeln!(
        out,
        "{}",
        screen.paint(BOLD, format!("process {pid}, for {running:.0} s"))
    )?;
    let source = status["source"].as_str().unwrap_or_default();
    writeln!(
        out,
        "  events    {} from `{}`, {} lost, {} of other files",
        Exact(number("events", "told")),
        clean(source),
        Exact(number("events", "lost")),
        Exact(number("events", "outside")),
    )?;
    let hits = status["hit_rate"]
        .as_f64()
        .map(|rate| format!(", {:.1} % of what was read was there", rate * 100.0));
    writeln!(
        out,
        "  misses    {}, {}{}",
        Exact(number("events", "misses")),
        Bytes(number("events", "missed_bytes")),
        hits.unwrap_or_default()
    )?;
    writeln!(
        out,
        "  brought   {}, and {} was there; {} interrupts",
        Bytes(number("prefetch", "bytes_read")),
        Bytes(number("prefetch", "bytes_skipped")),
        Exact(number("prefetch", "interrupts")),
    )?;
    writeln!(
        out,
        "  let go    {} of {}; {} is mapped",
        Bytes(number("evict", "gone")),
        Bytes(number("evict", "asked")),
        Bytes(number("evict", "mapped")),
    )?;
    writeln!(
        out,
        "  memory    {} of {} used",
        Bytes(number("memory", "used")),
        Bytes(number("memory", "limit"))
    )?;
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
        Column::left("directory").fit(Fit::Middle(24)),
        Column::right("files"),
        Column::right("calls"),
        Column::right("longest"),
        Column::left("state").fit(Fit::Below),
    ];
    let mut table = Table::new(columns, 2);
    for policy in policies {
        let text = |name: &str| clean(policy[name].as_str().unwrap_or_default()).into_owned();
        let count = |name: &str| policy[name].as_u64().unwrap_or(0);
        table.cell(text("name"));
        table.cell(text("path"));
        table.cell(Exact(count("files")));
        table.cell(Exact(count("calls")));
        table.cell(format!("{:.1} ms", count("longest") as f64 / 1e6));
        match policy["lost"].as_str() {
            Some(why) => table.cell(screen.paint(REFUSED, clean(why))),
            None => table.cell("registered"),
        }
    }
    table.print(screen, out)?;
    Ok(())
}
