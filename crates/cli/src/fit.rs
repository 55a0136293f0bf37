//! `anamnesis fit`: estimates the memory that models take.

mod candidates;
mod show;

use std::io::Write;
use std::path::Path;

use anamnesis::fit::{Estimate, fit_config};
use anamnesis::source::shown_path;
use anamnesis::{Checkpoint, ErrorKind, Fit, ModelConfig, OpenOptions};
use serde_json::json;

use crate::args::{Color, FitArgs};
use crate::checkpoint_warnings::{about_place, show_about_place};
use crate::exit::{Completion, RunError, again};
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::output::{Screen, Stdout, json};
use crate::paths::{self, InputPath, is_url};
use crate::request_stats;
use crate::shown_path::shown;

/// Further models that are loaded with each model.
struct Extras {
    draft: Option<Checkpoint>,
    projector: Option<Checkpoint>,
    adapters: Vec<Checkpoint>,
}

pub(crate) fn run(
    args: &FitArgs,
    color: Color,
    interrupt: &Interrupt,
    out: &mut Stdout,
) -> Result<Completion, RunError> {
    let screen = Screen::new(color);
    let options = args.opening.options().cancel(interrupt.token());
    let (mut estimates, mut failures) = (Vec::new(), Vec::new());
    // once for all models: a draft is the same for each of them
    match again(|| Extras::open(args, &options)) {
        Err(failure) => failures.push(failure),
        Ok(extras) => {
            let mut extras = Some(extras);
            for input in paths::expand_trees(&args.models, args.recursive, &options) {
                if interrupt.requested() {
                    return Ok(Completion::Interrupted);
                }
                let estimated = input.and_then(|input| {
                    again(|| {
                        let opened = match extras.take() {
                            Some(opened) => opened,
                            None => Extras::open(args, &options)?,
                        };
                        let estimated = estimate(&input, args, &opened, &options);
                        // one of these may be the model that was replaced: they are opened anew, and not before the pause
                        if !estimated.as_ref().is_err_and(Failure::is_replaced) {
                            extras = Some(opened);
                        }
                        estimated
                    })
                });
                match estimated {
                    Ok(estimate) => estimates.push(estimate),
                    Err(failure) => failures.push(failure),
                }
            }
        }
    }
    if args.json {
        let mut document = json!({"version": json::VERSION, "models": estimates});
        if let Some(first) = failures.first() {
            document["error"] = json!(first);
            document["errors"] = json!(failures);
        }
        request_stats::add_to(&mut document, &args.opening);
        json::write_line(&document, out)?;
    } else if estimates.len() > 1 && args.memory.is_some() {
        // the question is which of them fits
        candidates::show(&estimates, &screen, out)?;
    } else {
        show::all(&estimates, &screen, out)?;
    }
    // standard output first, so that a message on a terminal follows what was shown before it
    out.flush()?;
    failures.iter().for_each(Failure::report);
    let fits = |estimate: &Estimate| {
        estimate
            .memory
            .is_none_or(|memory| memory.fits == Some(true))
    };
    Ok(if !failures.is_empty() {
        Completion::Unreadable
    // several models are candidates for one device: the answer is yes if one of them fits
    } else if estimates.iter().any(fits) {
        Completion::Done
    } else {
        Completion::Failed
    })
}

impl Extras {
    fn open(args: &FitArgs, options: &OpenOptions) -> Result<Self, Failure> {
        let open = |path: &std::path::PathBuf| {
            let opened = options.open(path);
            opened.map_err(|e| Failure::from(e.in_file(path)))
        };
        Ok(Self {
            draft: args.draft.as_ref().map(open).transpose()?,
            projector: args.mmproj.as_ref().map(open).transpose()?,
            adapters: args.adapter.iter().map(open).collect::<Result<_, _>>()?,
        })
    }

    fn add_to<'c>(&'c self, mut fit: Fit<'c>) -> Fit<'c> {
        if let Some(model) = &self.draft {
            fit = fit.draft(model);
        }
        if let Some(model) = &self.projector {
            fit = fit.projector(model);
        }
        self.adapters.iter().fold(fit, Fit::adapter)
    }
}

fn estimate(
    input: &InputPath,
    args: &FitArgs,
    extras: &Extras,
    options: &OpenOptions,
) -> Result<Estimate, Failure> {
    let located = |e: anamnesis::Error| input.locate(Failure::from(e));
    let options = &input.options(options);
    if let Some(path) = input.path()
        // before the formats are tried: a `.json` is no tensor file, and its error would name no remedy
        && is_configuration(path)
    {
        return of_configuration(path, path, args, extras, options).map_err(located);
    }
    match input.open(options, !args.opening.no_map) {
        Ok(checkpoint) => {
            show_about_place(&checkpoint);
            let fit = extras.add_to(configured(anamnesis::fit(&checkpoint), args));
            let mut estimate = fit.estimate().map_err(located)?;
            if args.json {
                // a document stands alone
                estimate.notes.extend(about_place(&checkpoint));
            }
            Ok(estimate)
        }
        Err(error) => {
            if let (Some(path), ErrorKind::UnknownFormat { .. }) = (input.path(), error.kind()) {
                // a directory without weights is a model that is not downloaded yet, or a configuration alone
                let config = path.join("config.json");
                let found = options.clone().found_in(path);
                let read = || of_configuration(&config, path, args, extras, &found);
                if !is_url(path) && config.is_file() {
                    return read().map_err(located);
                }
                // at a URL, the request that reads it answers whether it is there
                if is_prefix(path)
                    && let Ok(estimate) = read()
                {
                    return Ok(estimate);
                }
            }
            Err(located(error))
        }
    }
}

/// Whether a path is a URL behind which there may be several files: of a bucket or of the hub.
fn is_prefix(path: &Path) -> bool {
    let text = path.to_str().filter(|_| is_url(path));
    text.is_some_and(|url| !url.to_ascii_lowercase().starts_with("http"))
}

/// Whether a path is a configuration and not an index of shards.
fn is_configuration(path: &Path) -> bool {
    let path = shown_path(path);
    let name = path
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    // an index has weights behind it
    name.ends_with(".json") && !name.ends_with(".index.json")
}

fn of_configuration(
    config: &Path,
    model: &Path,
    args: &FitArgs,
    extras: &Extras,
    options: &OpenOptions,
) -> anamnesis::Result<Estimate> {
    let config = ModelConfig::read_with(config, options)?;
    let mut estimate = extras
        .add_to(configured(fit_config(config), args))
        .estimate()?;
    estimate.path = Some(shown(model));
    Ok(estimate)
}

/// The estimate with the options of the arguments.
fn configured<'c>(fit: Fit<'c>, args: &FitArgs) -> Fit<'c> {
    let fit = fit
        .batch(args.batch)
        .tp(args.tp)
        .pp(args.pp)
        .ep(args.ep)
        .overhead(args.overhead.unwrap_or(0))
        .preallocated(args.r#static)
        .unified(args.kv_unified)
        .whole_windows(args.swa_full)
        .hybrid_allocator(!args.no_hybrid);
    // an option that was not given leaves the library's default, which depends on the model and the engine
    let fit = args.context.into_iter().fold(fit, Fit::context);
    let fit = args.engine.into_iter().fold(fit, Fit::engine);
    let fit = args
        .kv
        .into_iter()
        .fold(fit, |fit, (keys, values)| fit.cache(keys, values));
    let fit = args.dtype.into_iter().fold(fit, Fit::dtype);
    let fit = args.memory.into_iter().fold(fit, Fit::memory);
    let fit = args
        .encoder_tokens
        .into_iter()
        .fold(fit, Fit::encoder_tokens);
    let fit = args.ubatch.into_iter().fold(fit, Fit::step_tokens);
    args.block.into_iter().fold(fit, Fit::block)
}
