//! `anamnesis template coverage`: the share of one template's bytes that another template also reads.

use std::io::Write;

use anamnesis::quote::escape;
use anamnesis::template::{Coverage, coverage};
use serde_json::{Value, json};

use super::read;
use crate::args::CompareArgs;
use crate::exit::{Completion, RunError};
use crate::output::table::{Column, ColumnFit, Table};
use crate::output::{Screen, Stdout, json};
use crate::shown_path::shown;
use crate::text::ByteSize;

pub(super) fn run(
    args: &CompareArgs,
    screen: &Screen,
    out: &mut Stdout,
) -> Result<Completion, RunError> {
    let (a, b) = (read(&args.a, &args.reading)?, read(&args.b, &args.reading)?);
    let coverage_of_b = coverage(&b, &a);
    if args.json {
        json::write_line(&document(&coverage_of_b), out)?;
        return Ok(Completion::Done);
    }
    let (of, by) = (shown(&args.b), shown(&args.a));
    let share = percent(coverage_of_b.covered, coverage_of_b.nbytes);
    writeln!(
        out,
        "{share} of the bytes in {} are also in {}",
        escape(&of),
        escape(&by)
    )?;
    writeln!(
        out,
        "  bytes  {} of {}",
        ByteSize(coverage_of_b.covered),
        ByteSize(coverage_of_b.nbytes)
    )?;
    if let Some(tau) = coverage_of_b.order {
        writeln!(
            out,
            "  order  {tau:.3} (Kendall's τ: 1 same order, 0 unrelated, -1 reverse)"
        )?;
    }
    let columns = vec![
        Column::left("file").fit(ColumnFit::Middle(24)),
        Column::right("bytes"),
        Column::right("covered"),
        Column::right("share"),
    ];
    let mut table = Table::new(columns, 0);
    for file in &coverage_of_b.files {
        table.cell(escape(&file.path));
        table.cell(ByteSize(file.nbytes));
        table.cell(ByteSize(file.covered));
        table.cell(percent(file.covered, file.nbytes));
    }
    writeln!(out)?;
    table.print(screen, out)?;
    Ok(Completion::Done)
}

/// A share in percent with two decimals, rounded down so that only a complete one is 100.00 %.
fn percent(part: u64, whole: u64) -> String {
    let hundredths = if whole == 0 {
        // nothing is wanted, and all of it is there
        10_000
    } else {
        u128::from(part) * 10_000 / u128::from(whole)
    };
    format!("{}.{:02} %", hundredths / 100, hundredths % 100)
}

fn document(coverage_of_b: &Coverage) -> Value {
    let files = coverage_of_b
        .files
        .iter()
        .map(|file| json!({"path": file.path, "nbytes": file.nbytes, "covered": file.covered, "share": file.share()}));
    json!({
        "version": json::VERSION, "nbytes": coverage_of_b.nbytes, "covered": coverage_of_b.covered, "share": coverage_of_b.share(),
        "order": coverage_of_b.order, "files": files.collect::<Vec<_>>(),
    })
}
