//! `anamnesis template`: predicting, showing and comparing I/O templates.

mod coverage;
mod diff;
mod keep;
mod predict;
mod show;

use std::path::Path;

use anamnesis::template::{Limits, Template, merge};
use serde_json::json;

use crate::args::{self, Color, Merge, Reading, TemplateVerb};
use crate::exit::{Code, Failure, Stop};
use crate::output::{Screen, Stdout, json};

pub(crate) use keep::{Kept, free, keep};

pub(crate) fn run(args: &args::Template, color: Color, out: &mut Stdout) -> Result<Code, Stop> {
    let screen = Screen::new(color);
    let (done, json) = match &args.verb {
        TemplateVerb::Predict(args) => (predict::run(args, out), args.json),
        TemplateVerb::Show(args) => (show::run(args, &screen, out), false),
        TemplateVerb::Diff(args) => (diff::run(args, &screen, out), args.json),
        TemplateVerb::Coverage(args) => (coverage::run(args, &screen, out), args.json),
        TemplateVerb::Merge(args) => (run_merge(args, out), args.json),
    };
    if let (Err(Stop::Failure(failure)), true) = (&done, json) {
        use std::io::Write;
        writeln!(
            out,
            "{}",
            json!({"version": json::VERSION, "error": failure})
        )?;
        out.flush()?;
    }
    done
}

/// Reads a template, in either form.
fn read(path: &Path, reading: &Reading) -> Result<Template, Failure> {
    let limits = if reading.no_limits {
        Limits::none()
    } else {
        Limits::default()
    };
    Ok(Template::load(path, &limits)?)
}

fn run_merge(args: &Merge, out: &mut Stdout) -> Result<Code, Stop> {
    free(&args.output, args.overwrite)?;
    let read = args.templates.iter().map(|path| read(path, &args.reading));
    let templates = read.collect::<Result<Vec<_>, _>>()?;
    let merged = match &templates[..] {
        // as it is, with what it reads twice
        [one] => one.clone(),
        several => merge(several).map_err(Failure::from)?,
    };
    keep(&merged, &args.output, args.overwrite)?.tell(args.json, out)?;
    Ok(Code::Done)
}
