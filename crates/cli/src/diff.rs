//! `anamnesis diff`: what differs between two checkpoints.

mod show;

use std::path::Path;

use anamnesis::catalog::natural_order;
use anamnesis::diff::{Differences, TensorDifference, ValueTolerance};
use anamnesis::{Checkpoint, OpenOptions, diff};
use serde_json::{Value, json};

use crate::args::{Color, DiffArgs, DiffOrder};
use crate::exit::{Completion, RunError, again};
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::name_filter::{NameFilter, without_match};
use crate::output::{Screen, Stdout, json, progress};
use crate::paths::InputPath;
use crate::request_stats;

pub(crate) fn run(
    args: &DiffArgs,
    color: Color,
    interrupt: &Interrupt,
    out: &mut Stdout,
) -> Result<Completion, RunError> {
    let screen = Screen::new(color);
    match again(|| differences(args, interrupt)) {
        Ok(mut found) => {
            sort(&mut found.tensors, args.sort);
            let completion = match (found.same, found.compared) {
                (true, _) => Completion::Done,
                // nothing that is equal, and nothing that differs
                (false, 0) => Completion::Unreadable,
                (false, _) => Completion::Failed,
            };
            if args.json {
                json::write_line(&document(&found, args), out)?;
            } else if !args.quiet {
                show::differences(&found, args, &screen, out)?;
            }
            Ok(completion)
        }
        // status 1 is an answer
        Err(failure) => Ok(match failure.end(args.json, interrupt, out)? {
            Completion::Failed => Completion::Unreadable,
            completion => completion,
        }),
    }
}

fn differences(args: &DiffArgs, interrupt: &Interrupt) -> Result<Differences, Failure> {
    let options = args.opening.options().cancel(interrupt.token());
    let filter = NameFilter::new(&args.filter).excluding(&args.exclude);
    let a = open(&args.a, args, &options)?;
    let b = open(&args.b, args, &options)?;
    // from here on an interrupt cancels, so that the progress bar is cleared
    interrupt.handle();
    // the greater side decides whether a bar is worth its place; the comparison then reports its own total
    let bar = progress::bar("comparing", a.catalog().nbytes().max(b.catalog().nbytes()));
    let mut diff = diff(&a, &b)
        .values(args.values)
        .metadata(args.metadata)
        .config(!args.no_config)
        .headers_only(args.quick)
        .verdict_only(args.quiet)
        .list_equal(args.all)
        .filter(|name| filter.selects(name))
        .exclude(|name| filter.excludes(name))
        .progress(progress::on(&bar))
        .cancel(interrupt.token());
    if args.nmse.is_some() || args.max_abs.is_some() {
        let (nmse, max_abs) = (args.nmse, args.max_abs);
        diff = diff.tolerance(ValueTolerance { nmse, max_abs });
    }
    for (from, to) in &args.rename {
        diff = diff.rename(from, to);
    }
    let found = diff.run();
    // before an error is returned: a message must not appear behind a bar
    bar.finish_and_clear();
    let found = found?;
    filter.require_matches()?;
    if let Some(from) = found.unused_renames.first() {
        let tensors = a.catalog().tensors().iter();
        let names = tensors.map(|tensor| &*tensor.name);
        return Err(without_match("--rename", from, names));
    }
    Ok(found)
}

fn open(path: &Path, args: &DiffArgs, options: &OpenOptions) -> Result<Checkpoint, Failure> {
    let input = match path.as_os_str() == "-" {
        true => InputPath::Stdin,
        false => InputPath::Path(path.to_owned()),
    };
    let opened = input.open(options, !args.opening.no_map);
    opened.map_err(|e| input.locate(Failure::from(e)))
}

fn sort(tensors: &mut [TensorDifference], by: Option<DiffOrder>) {
    let name = |row: &TensorDifference| row.a.clone().or_else(|| row.b.clone());
    match by {
        // tensors without a distance last; equal ones in file order, as the sort is stable
        Some(DiffOrder::Nmse) => tensors.sort_by(|x, y| {
            let nmse = |row: &TensorDifference| row.nmse.unwrap_or(-1.0);
            nmse(y).total_cmp(&nmse(x))
        }),
        // digits as numbers, or `layers.10` would precede `layers.2`
        Some(DiffOrder::Name) => tensors.sort_by(|x, y| {
            natural_order(&name(x).unwrap_or_default(), &name(y).unwrap_or_default())
        }),
        Some(DiffOrder::Size) => tensors.sort_by_key(|row| std::cmp::Reverse(row.nbytes)),
        None => {}
    }
}

fn document(found: &Differences, args: &DiffArgs) -> Value {
    let mut document = json!({"version": json::VERSION});
    if let (Some(document), Ok(Value::Object(fields))) =
        (document.as_object_mut(), serde_json::to_value(found))
    {
        document.extend(fields);
    }
    request_stats::add_to(&mut document, &args.opening);
    document
}
