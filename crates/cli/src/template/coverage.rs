//! `anamnesis template coverage`: how much of one template another one has.

use std::io::Write;

use anamnesis::template::{Coverage, coverage};
use serde_json::{Value, json};

use super::read;
use crate::args::Compared;
use crate::exit::{Code, Stop};
use crate::output::table::{Column, Fit, Table};
use crate::output::text::{Bytes, clean};
use crate::output::{Screen, Stdout, json};

pub(super) fn run(args: &Compared, screen: &Screen, out: &mut Stdout) -> Result<Code, Stop> {
    let (a, b) = (read(&args.a, &args.reading)?, read(&args.b, &args.reading)?);
    let found = coverage(&b, &a);
    if args.json {
        writeln!(out, "{}", document(&found))?;
        return Ok(Code::Done);
    }
    let (of, by) = (args.b.display().to_string(), args.a.display().to_string());
    let share = percent(found.covered, found.nbytes);
    writeln!(out, "{share} of {} is in {}", clean(&of), clean(&by))?;
    writeln!(
        out,
        "  bytes  {} of {}",
        Bytes(found.covered),
        Bytes(found.nbytes)
    )?;
    if let Some(tau) = found.order {
        writeln!(
            out,
            "  order  {tau:.3} (1: the same, 0: unrelated, -1: backwards)"
        )?;
    }
    let columns = vec![
        Column::left("file").fit(Fit::Middle(24)),
        Column::right("bytes"),
        Column::right("covered"),
        Column::right("share"),
    ];
    let mut table = Table::new(columns, 0);
    for file in &found.files {
        table.cell(clean(&file.path));
        table.cell(Bytes(file.nbytes));
        table.cell(Bytes(file.covered));
        table.cell(percent(file.covered, file.nbytes));
    }
    writeln!(out)?;
    table.print(screen, out)?;
    Ok(Code::Done)
}

/// A share with two decimals, and 100.00 % only for all of it.
fn percent(part: u64, whole: u64) -> String {
    let hundredths = if whole == 0 {
        10_000
    } else {
        u128::from(part) * 10_000 / u128::from(whole)
    };
    format!("{}.{:02} %", hundredths / 100, hundredths % 100)
}

fn document(found: &Coverage) -> Value {
    let files = found
        .files
        .iter()
        .map(|file| json!({"path": file.path, "nbytes": file.nbytes, "covered": file.covered, "share": file.share()}));
    json!({
        "version": json::VERSION, "nbytes": found.nbytes, "covered": found.covered, "share": found.share(),
        "order": found.order, "files": files.collect::<Vec<_>>(),
    })
}
