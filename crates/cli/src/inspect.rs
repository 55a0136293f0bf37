//! `anamnesis inspect`: open each path, sum it up, show it.

use std::io::Write;

use anamnesis::inspect::to_json;
use anamnesis::{OpenOptions, Summary, Value};

use crate::args::{Color, Inspect};
use crate::exit::{Code, Failure, Stop};
use crate::output::json::Document;
use crate::output::{Screen, Stdout, head, metadata, tensors, tree};
use crate::paths::{self, Target};
use crate::{hash, select};

/// What is shown of one checkpoint.
struct Look {
    summary: Summary,
    /// Tensors before the filter.
    listed: usize,
    /// The whole value of the key that was asked for.
    value: Option<Value>,
    /// What went wrong after the listing was complete.
    failure: Option<Failure>,
}

pub(crate) fn run(args: &Inspect, color: Color, out: &mut Stdout) -> Result<Code, Stop> {
    let screen = Screen::new(color);
    let options = args.opening.options();
    let mut document = args.json.then(|| Document::begin(args, out)).transpose()?;
    let mut code = Code::Done;
    let mut shown = 0;
    for target in paths::expand(&args.paths) {
        let failure = match target.and_then(|target| look(&target, args, &options)) {
            Err(failure) => Some(failure),
            Ok(look) => {
                match &mut document {
                    Some(document) => document.checkpoint(&look.summary, out)?,
                    None => show(&look, args, &screen, shown > 0, out)?,
                }
                shown += 1;
                look.failure
            }
        };
        if let Some(failure) = failure {
            out.flush()?;
            failure.report();
            document
                .iter_mut()
                .for_each(|document| document.failure(failure.clone()));
            code = Code::Failed;
        }
    }
    if let Some(document) = document {
        document.end(out)?;
    }
    Ok(code)
}

fn look(target: &Target, args: &Inspect, options: &OpenOptions) -> Result<Look, Failure> {
    let mut look = open(target, args, options).map_err(|failure| target.place(failure))?;
    look.failure = look.failure.map(|failure| target.place(failure));
    Ok(look)
}

fn open(target: &Target, args: &Inspect, options: &OpenOptions) -> Result<Look, Failure> {
    let checkpoint = target.open(options, !args.opening.no_map)?;
    let value = match &args.metadata {
        Some(Some(key)) => Some(checkpoint.metadata(key)?.ok_or_else(|| {
            let message = format!("no metadata key `{key}`");
            Failure::new(
                "no_such_key",
                message,
                "`--metadata` without a key lists the keys there are",
            )
        })?),
        _ => None,
    };
    let mut summary = checkpoint.inspect();
    if let (Some(Some(key)), Some(value), true) = (&args.metadata, &value, args.json) {
        summary.metadata.insert(key.clone(), to_json(value));
    }
    let wanted = |name: &str| select::passes(&args.filter, name);
    let failure = if args.hash {
        hash::fill(&checkpoint, &mut summary, wanted).err()
    } else {
        None
    };
    let listed = summary.tensors.len();
    if !args.filter.is_empty() {
        summary.retain(|tensor| wanted(&tensor.name));
    }
    if args.summary {
        summary.tensors.clear();
    }
    select::sort(&mut summary, args.sort, args.reverse);
    Ok(Look {
        summary,
        listed,
        value,
        failure,
    })
}

fn show(
    look: &Look,
    args: &Inspect,
    screen: &Screen,
    again: bool,
    out: &mut Stdout,
) -> Result<(), Stop> {
    let Look {
        summary,
        listed,
        value,
        ..
    } = look;
    if let Some(value) = value {
        if args.paths.len() > 1 || again {
            metadata::of(summary, screen, out)?;
        }
        return Ok(metadata::whole(value, screen, out)?);
    }
    if again {
        writeln!(out)?;
    }
    head::show(summary, *listed, !args.filter.is_empty(), screen, out)?;
    if args.metadata.is_some() {
        metadata::list(summary, screen, out)?;
    }
    if args.tree {
        tree::show(summary, args.all, screen, out)?;
    } else if args.metadata.is_none() && !args.summary {
        tensors::show(summary, args.hash, screen, out)?;
    }
    Ok(head::remarks(summary, screen, out)?)
}
