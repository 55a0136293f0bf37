//! `anamnesis template show`: files and workers, or every access of one.

use std::io::Write;

use anamnesis::template::{Access, Group, Template};

use super::keep::{Said, counted};
use super::read;
use crate::args::Show;
use crate::exit::{Code, Failure, Stop};
use crate::output::table::{Column, Fit, Table};
use crate::output::text::{Bytes, Exact, clean};
use crate::output::{BOLD, DIM, Screen, Stdout};

pub(super) fn run(args: &Show, screen: &Screen, out: &mut Stdout) -> Result<Code, Stop> {
    let template = read(&args.template, &args.reading)?;
    if args.json {
        writeln!(out, "{}", template.to_json())?;
        return Ok(Code::Done);
    }
    let group = match args.group {
        None => None,
        Some(rank) => Some(template.group(rank).ok_or_else(|| {
            let what = format!("there is no worker {rank}");
            Failure::new(
                "no_match",
                what,
                "`template show` without --group lists them",
            )
            .in_file(&args.template)
        })?),
    };
    writeln!(
        out,
        "{}",
        screen.paint(BOLD, clean(&args.template.display().to_string()))
    )?;
    writeln!(out, "  {}", Said::of(&template))?;
    if let Some(id) = template.service() {
        writeln!(out, "  service     {id}")?;
    }
    if template.parameters().len() > 0 {
        let pairs: Vec<_> = template
            .parameters()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        writeln!(out, "  parameters  {}", clean(&pairs.join(" ")))?;
    }
    match group {
        Some(group) => accesses(&template, group, screen, out)?,
        None => {
            files(&template, screen, out)?;
            groups(&template, screen, out)?;
        }
    }
    Ok(Code::Done)
}

fn files(template: &Template, screen: &Screen, out: &mut Stdout) -> Result<(), Stop> {
    let mut read = vec![0u64; template.files().len()];
    for (_, access) in template.accesses() {
        let sum = &mut read[usize::try_from(access.runs.file).expect("an index of the template")];
        *sum = sum.saturating_add(access.runs.nbytes());
    }
    let columns = vec![
        Column::left("file").fit(Fit::Middle(24)),
        Column::right("bytes"),
        Column::right("read by all"),
        Column::left("key").fit(Fit::End).style(DIM),
    ];
    let mut table = Table::new(columns, 0);
    for (file, read) in template.files().iter().zip(read) {
        table.cell(clean(&file.path));
        table.cell(Bytes(file.nbytes));
        table.cell(Bytes(read));
        table.cell(file.key.map_or(String::new(), |key| key.to_string()));
    }
    writeln!(out)?;
    Ok(table.print(screen, out)?)
}

fn groups(template: &Template, screen: &Screen, out: &mut Stdout) -> Result<(), Stop> {
    let columns = vec![
        Column::right("worker"),
        Column::left("name").style(DIM),
        Column::right("accesses"),
        Column::right("bytes"),
        Column::left("first").fit(Fit::Middle(24)),
        Column::left("where").style(DIM),
    ];
    let mut table = Table::new(columns, 0);
    for group in template.groups() {
        table.cell(group.rank());
        table.cell(clean(group.name()));
        table.cell(Exact(group.accesses().len() as u64));
        table.cell(Bytes(group.nbytes()));
        let first = group.accesses().first();
        table.cell(first.map_or(String::new(), |access| path(template, access)));
        table.cell(first.map_or(String::new(), place));
    }
    writeln!(out)?;
    Ok(table.print(screen, out)?)
}

fn accesses(
    template: &Template,
    group: &Group,
    screen: &Screen,
    out: &mut Stdout,
) -> Result<(), Stop> {
    let title = if group.name().is_empty() {
        String::new()
    } else {
        format!(" ({})", clean(group.name()))
    };
    let count = counted(group.accesses().len() as u64);
    writeln!(
        out,
        "  worker {}{title}: {count}, {}",
        group.rank(),
        Bytes(group.nbytes())
    )?;
    let columns = vec![
        Column::left("file").fit(Fit::Middle(24)),
        Column::left("where"),
        Column::right("bytes"),
        Column::right("µs").style(DIM),
    ];
    let mut table = Table::new(columns, 0);
    for access in group.accesses() {
        table.cell(path(template, access));
        table.cell(place(access));
        table.cell(Bytes(access.runs.nbytes()));
        table.cell(access.at.map_or(String::new(), |at| Exact(at).to_string()));
    }
    writeln!(out)?;
    Ok(table.print(screen, out)?)
}

fn path(template: &Template, access: &Access) -> String {
    let file = usize::try_from(access.runs.file)
        .ok()
        .and_then(|file| template.files().get(file));
    file.map_or(String::new(), |file| clean(&file.path).into_owned())
}

/// Where the bytes lie: `2,048..6,144`, or `2,048+128 ×4,096 every 2,048`.
fn place(access: &Access) -> String {
    let runs = &access.runs;
    match runs.count {
        1 => format!("{}..{}", Exact(runs.start), Exact(runs.end())),
        n => format!(
            "{}+{} ×{} every {}",
            Exact(runs.start),
            Exact(runs.len),
            Exact(n.into()),
            Exact(runs.stride)
        ),
    }
}
