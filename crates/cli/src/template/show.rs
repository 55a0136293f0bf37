//! `anamnesis template show`: the files and workers of a template, or every access of one worker.

use std::io::Write;

use anamnesis::quote::escape;
use anamnesis::template::{Access, AccessGroup, Template};

use super::read;
use super::save::{TemplateTotals, access_count, shown_parameters};
use crate::args::ShowArgs;
use crate::exit::{Completion, RunError};
use crate::failure::Failure;
use crate::output::table::{Column, ColumnFit, Table};
use crate::output::{BOLD, DIM, Screen, Stdout};
use crate::shown_path::shown;
use crate::text::{ByteSize, ExactCount};

pub(super) fn run(
    args: &ShowArgs,
    screen: &Screen,
    out: &mut Stdout,
) -> Result<Completion, RunError> {
    let template = read(&args.template, &args.reading)?;
    if args.json {
        writeln!(out, "{}", template.to_json())?;
        return Ok(Completion::Done);
    }
    let group = match args.group {
        None => None,
        Some(rank) => Some(template.group(rank).ok_or_else(|| {
            let message = format!("no worker {rank} in this template");
            Failure::new(
                "no_match",
                message,
                "list the workers with `template show` without --group",
            )
            .in_file(&args.template)
        })?),
    };
    writeln!(
        out,
        "{}",
        screen.paint(BOLD, escape(&shown(&args.template)))
    )?;
    writeln!(out, "  {}", TemplateTotals::of(&template))?;
    if let Some(id) = template.service() {
        writeln!(out, "  service     {id}")?;
    }
    if template.parameters().len() > 0 {
        let pairs: Vec<_> = shown_parameters(&template)
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        writeln!(out, "  parameters  {}", escape(&pairs.join(" ")))?;
    }
    match group {
        Some(group) => accesses(&template, group, screen, out)?,
        None => {
            files(&template, screen, out)?;
            groups(&template, screen, out)?;
        }
    }
    Ok(Completion::Done)
}

fn files(template: &Template, screen: &Screen, out: &mut Stdout) -> Result<(), RunError> {
    let mut read = vec![0u64; template.files().len()];
    for (_, access) in template.accesses() {
        let sum =
            &mut read[usize::try_from(access.file).expect("file indices of a template are valid")];
        // workers may read the same bytes: the sum may exceed the file, and the counts come from an untrusted template
        *sum = sum.saturating_add(access.bytes.nbytes());
    }
    let columns = vec![
        Column::left("file").fit(ColumnFit::Middle(24)),
        Column::right("bytes"),
        Column::right("total read"),
        Column::left("key").fit(ColumnFit::End).style(DIM),
    ];
    let mut table = Table::new(columns, 0);
    for (file, nbytes) in template.files().iter().zip(read) {
        table.cell(escape(&file.path));
        table.cell(ByteSize(file.nbytes));
        table.cell(ByteSize(nbytes));
        table.cell(file.key.map_or(String::new(), |key| key.to_string()));
    }
    writeln!(out)?;
    Ok(table.print(screen, out)?)
}

fn groups(template: &Template, screen: &Screen, out: &mut Stdout) -> Result<(), RunError> {
    let columns = vec![
        Column::right("worker"),
        Column::left("name").style(DIM),
        Column::right("accesses"),
        Column::right("bytes"),
        Column::left("first file").fit(ColumnFit::Middle(24)),
        Column::left("byte range").style(DIM),
    ];
    let mut table = Table::new(columns, 0);
    for group in template.groups() {
        table.cell(group.rank());
        table.cell(escape(group.name()));
        table.cell(ExactCount(group.accesses().len() as u64));
        table.cell(ByteSize(group.nbytes()));
        let first = group.accesses().first();
        table.cell(first.map_or(String::new(), |access| path(template, access)));
        table.cell(first.map_or(String::new(), byte_range));
    }
    writeln!(out)?;
    Ok(table.print(screen, out)?)
}

fn accesses(
    template: &Template,
    group: &AccessGroup,
    screen: &Screen,
    out: &mut Stdout,
) -> Result<(), RunError> {
    let name = if group.name().is_empty() {
        String::new()
    } else {
        format!(" ({})", escape(group.name()))
    };
    let count = access_count(group.accesses().len() as u64);
    writeln!(
        out,
        "  worker {}{name}: {count}, {}",
        group.rank(),
        ByteSize(group.nbytes())
    )?;
    let columns = vec![
        Column::left("file").fit(ColumnFit::Middle(24)),
        Column::left("byte range"),
        Column::right("bytes"),
        Column::right("time (µs)").style(DIM),
    ];
    let mut table = Table::new(columns, 0);
    for access in group.accesses() {
        table.cell(path(template, access));
        table.cell(byte_range(access));
        table.cell(ByteSize(access.bytes.nbytes()));
        table.cell(
            access
                .at
                .map_or(String::new(), |at| ExactCount(at).to_string()),
        );
    }
    writeln!(out)?;
    Ok(table.print(screen, out)?)
}

fn path(template: &Template, access: &Access) -> String {
    let file = usize::try_from(access.file)
        .ok()
        .and_then(|file| template.files().get(file));
    file.map_or(String::new(), |file| escape(&file.path).into_owned())
}

/// The byte range of an access: `2,048..6,144`. A strided range is `start+len ×count every stride`:
/// `2,048+128 ×4,096 every 2,048`.
fn byte_range(access: &Access) -> String {
    let runs = &access.bytes;
    match runs.count {
        1 => format!("{}..{}", ExactCount(runs.start), ExactCount(runs.end())),
        n => format!(
            "{}+{} ×{} every {}",
            ExactCount(runs.start),
            ExactCount(runs.len),
            ExactCount(n),
            ExactCount(runs.stride)
        ),
    }
}
