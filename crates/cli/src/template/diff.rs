//! `anamnesis template diff`: the differences between two templates.

use std::io::Write;

use anamnesis::quote::escape;
use anamnesis::template::{Diff, diff};
use serde_json::{Value, json};

use super::read;
use crate::args::CompareArgs;
use crate::exit::{Completion, RunError};
use crate::output::table::{Column, Table};
use crate::output::{Screen, Stdout, json};
use crate::text::ByteSize;

pub(super) fn run(
    args: &CompareArgs,
    screen: &Screen,
    out: &mut Stdout,
) -> Result<Completion, RunError> {
    let (a, b) = (read(&args.a, &args.reading)?, read(&args.b, &args.reading)?);
    let difference = diff(&a, &b);
    let completion = if difference.is_empty() {
        Completion::Done
    } else {
        // status 1, as programs that compare files have it
        Completion::Failed
    };
    if args.json {
        json::write_line(&document(&difference), out)?;
        return Ok(completion);
    }
    for (sign, paths) in [("-", &difference.only_a), ("+", &difference.only_b)] {
        paths
            .iter()
            .try_for_each(|path| writeln!(out, "{sign} file {}", escape(path)))?;
    }
    difference
        .changed
        .iter()
        .try_for_each(|path| writeln!(out, "! file {} has different contents", escape(path)))?;
    let columns = vec![
        Column::right("worker"),
        Column::right("only in A"),
        Column::right("only in B"),
        Column::right("in both"),
        Column::right("order"),
    ];
    let mut table = Table::new(columns, 0);
    let mut differing = difference
        .groups
        .iter()
        .filter(|group| group.differs())
        .peekable();
    // files may differ while every worker reads the same bytes
    let has_rows = differing.peek().is_some();
    for group in differing {
        table.cell(group.rank);
        table.cell(ByteSize(group.only_a));
        table.cell(ByteSize(group.only_b));
        table.cell(ByteSize(group.both));
        table.cell(group.order.map_or(String::new(), |tau| format!("{tau:.3}")));
    }
    if has_rows {
        table.print(screen, out)?;
    } else if difference.is_empty() {
        writeln!(out, "no differences")?;
    }
    Ok(completion)
}

fn document(difference: &Diff) -> Value {
    let groups = difference.groups.iter().map(|group| {
        json!({
            "rank": group.rank, "only_a": group.only_a, "only_b": group.only_b, "both": group.both,
            "order": group.order,
        })
    });
    json!({
        "version": json::VERSION, "differ": !difference.is_empty(),
        "only_a": difference.only_a, "only_b": difference.only_b, "changed": difference.changed,
        "groups": groups.collect::<Vec<_>>(),
    })
}
