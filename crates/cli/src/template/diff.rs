//! `anamnesis template diff`: what two templates differ in.

use std::io::Write;

use anamnesis::template::{Diff, diff};
use serde_json::{Value, json};

use super::read;
use crate::args::Compared;
use crate::exit::{Code, Stop};
use crate::output::table::{Column, Table};
use crate::output::text::{Bytes, clean};
use crate::output::{Screen, Stdout, json};

pub(super) fn run(args: &Compared, screen: &Screen, out: &mut Stdout) -> Result<Code, Stop> {
    let (a, b) = (read(&args.a, &args.reading)?, read(&args.b, &args.reading)?);
    let found = diff(&a, &b);
    let code = if found.is_empty() {
        Code::Done
    } else {
        Code::Failed
    };
    if args.json {
        writeln!(out, "{}", document(&found))?;
        return Ok(code);
    }
    for (sign, paths) in [("-", &found.only_a), ("+", &found.only_b)] {
        paths
            .iter()
            .try_for_each(|path| writeln!(out, "{sign} file {}", clean(path)))?;
    }
    found
        .changed
        .iter()
        .try_for_each(|path| writeln!(out, "! file {} is another", clean(path)))?;
    let columns = vec![
        Column::right("worker"),
        Column::right("only in A"),
        Column::right("only in B"),
        Column::right("in both"),
        Column::right("order"),
    ];
    let mut table = Table::new(columns, 0);
    let mut differing = found
        .groups
        .iter()
        .filter(|group| group.differs())
        .peekable();
    let any = differing.peek().is_some();
    for group in differing {
        table.cell(group.rank);
        table.cell(Bytes(group.only_a));
        table.cell(Bytes(group.only_b));
        table.cell(Bytes(group.both));
        table.cell(group.order.map_or(String::new(), |tau| format!("{tau:.3}")));
    }
    if any {
        table.print(screen, out)?;
    } else if found.is_empty() {
        writeln!(out, "no difference")?;
    }
    Ok(code)
}

fn document(found: &Diff) -> Value {
    let groups = found.groups.iter().map(|group| {
        json!({
            "rank": group.rank, "only_a": group.only_a, "only_b": group.only_b, "both": group.both,
            "order": group.order,
        })
    });
    json!({
        "version": json::VERSION, "differ": !found.is_empty(),
        "only_a": found.only_a, "only_b": found.only_b, "changed": found.changed,
        "groups": groups.collect::<Vec<_>>(),
    })
}
