//! `anamnesis template`: predicts, shows, compares and merges I/O templates.

mod coverage;
mod diff;
mod predict;
mod save;
mod show;

use std::path::Path;

use anamnesis::template::{Template, TemplateLimits, merge};

use crate::args::{Color, MergeArgs, TemplateArgs, TemplateReadArgs, TemplateVerb};
use crate::exit::{Completion, RunError};
use crate::failure::Failure;
use crate::output::{Screen, Stdout, json};

#[cfg(target_os = "linux")]
pub(crate) use predict::{filter_of, prediction};
pub(crate) use save::{SavedTemplate, check_output, save};

pub(crate) fn run(
    args: &TemplateArgs,
    color: Color,
    out: &mut Stdout,
) -> Result<Completion, RunError> {
    let screen = Screen::new(color);
    let (result, json) = match &args.verb {
        TemplateVerb::Predict(args) => (predict::run(args, out), args.json),
        TemplateVerb::Show(args) => (show::run(args, &screen, out), args.json),
        TemplateVerb::Diff(args) => (diff::run(args, &screen, out), args.json),
        TemplateVerb::Coverage(args) => (coverage::run(args, &screen, out), args.json),
        TemplateVerb::Merge(args) => (run_merge(args, out), args.json),
    };
    if let (Err(RunError::Failure(failure)), true) = (&result, json) {
        json::write_failure(failure, out)?;
    }
    result
}

/// Reads a template in binary or JSON form.
fn read(path: &Path, reading: &TemplateReadArgs) -> Result<Template, Failure> {
    let limits = if reading.no_limits {
        TemplateLimits::none()
    } else {
        TemplateLimits::default()
    };
    Ok(Template::load(path, &limits)?)
}

fn run_merge(args: &MergeArgs, out: &mut Stdout) -> Result<Completion, RunError> {
    check_output(&args.output, args.overwrite, &args.templates)?;
    let read = args.templates.iter().map(|path| read(path, &args.reading));
    let templates = read.collect::<Result<Vec<_>, _>>()?;
    let merged = match &templates[..] {
        // unchanged: `merge` would drop repeated accesses
        [one] => one.clone(),
        several => merge(several).map_err(Failure::from)?,
    };
    save(&merged, &args.output, args.overwrite)?.print(args.json, out)?;
    Ok(Completion::Done)
}
