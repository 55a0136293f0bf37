//! `anamnesis ls`: one line for each model of trees, caches and buckets.

mod parquet;
mod rows;
mod table;

use std::io::Write;
use std::path::PathBuf;

use anamnesis::{ErrorKind, ModelEntry, list};
use globset::GlobMatcher;

use crate::args::{Color, ListOrder, LsArgs};
use crate::exit::{Completion, RunError};
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::output::{Screen, Stdout};
use crate::written_file::WrittenFile;

use rows::{CsvRows, JsonRows};
use table::TableRows;

/// A form of output, which receives the models in their order.
trait RowWriter {
    fn add(&mut self, model: &ModelEntry, out: &mut Stdout) -> Result<(), RunError>;

    /// Writes what is left.
    fn finish(&mut self, out: &mut Stdout) -> Result<(), RunError>;
}

/// The models of a run, by number.
#[derive(Default)]
struct ListCounts {
    listed: u64,
    /// Listed ones that cannot be opened.
    broken: u64,
    /// Ones that cannot be opened, of which filters cannot tell.
    left_out: u64,
}

pub(crate) fn run(
    args: &LsArgs,
    color: Color,
    interrupt: &Interrupt,
    out: &mut Stdout,
) -> Result<Completion, RunError> {
    interrupt.handle();
    let roots = match args.paths.is_empty() {
        true => vec![PathBuf::from(".")],
        false => args.paths.clone(),
    };
    let mut writer = writer(args, &roots, color, out)?;
    let (mut counts, mut failures) = (ListCounts::default(), 0);
    let mut kept = Vec::new();
    for root in &roots {
        let listing = listing(args, root, interrupt);
        let models = match listing.run() {
            Ok(models) => models,
            Err(error) if matches!(error.kind(), ErrorKind::Cancelled) => {
                return Ok(Completion::Interrupted);
            }
            Err(error) => {
                out.flush()?;
                Failure::from(error).in_file(root).report();
                failures += 1;
                continue;
            }
        };
        for model in models {
            let model = match model {
                Ok(model) => model,
                // only an interrupt ends a walk: without it, its lines would pass for all
                Err(_) => return Ok(Completion::Interrupted),
            };
            if !counts.accepts(&model, args) {
                continue;
            }
            match args.sort {
                Some(_) => kept.push(model),
                None => writer.add(&model, out)?,
            }
        }
    }
    if let Some(by) = args.sort {
        sort(&mut kept, by, args.reverse);
        kept.iter().try_for_each(|model| writer.add(model, out))?;
    }
    if interrupt.requested() {
        return Ok(Completion::Interrupted);
    }
    writer.finish(out)?;
    // standard output first, so that a message on a terminal follows what was shown before it
    out.flush()?;
    Ok(counts.completion(failures))
}

fn listing<'a>(args: &'a LsArgs, root: &PathBuf, interrupt: &Interrupt) -> anamnesis::List<'a> {
    let listing = list(root)
        .open_options(args.opening.options())
        .all_snapshots(args.all)
        .threads(args.threads)
        .cancel(interrupt.token());
    args.has.iter().fold(listing, |listing, glob| {
        listing.has(move |name| glob.is_match(name))
    })
}

fn writer<'a>(
    args: &'a LsArgs,
    roots: &[PathBuf],
    color: Color,
    out: &mut Stdout,
) -> Result<Box<dyn RowWriter + 'a>, RunError> {
    let screen = Screen::new(color);
    Ok(match &args.parquet {
        Some(path) => {
            // before the work: a list of hours that cannot be written is lost
            let file = WrittenFile::checked(path, args.overwrite, roots, parquet::is_list)?;
            parquet::writer(file)?
        }
        None if args.json => Box::new(JsonRows::default()),
        None if args.csv => Box::new(CsvRows::start(&screen, out)?),
        None => Box::new(TableRows::new(screen)),
    })
}

impl ListCounts {
    /// Whether a model is listed, which is counted.
    fn accepts(&mut self, model: &ModelEntry, args: &LsArgs) -> bool {
        if model.error.is_some() && args.has_filter() {
            self.left_out += 1;
            return false;
        }
        let accepted = args.accepts(model);
        self.listed += u64::from(accepted);
        self.broken += u64::from(accepted && model.error.is_some());
        accepted
    }

    fn completion(&self, failures: u32) -> Completion {
        if self.left_out > 0 {
            let message = match self.left_out {
                1 => "a model cannot be opened, and may be one of those".to_owned(),
                n => format!("{n} models cannot be opened, and may be among those"),
            };
            Failure::new("unreadable", message, "`ls` without filters names them").report();
        }
        if failures > 0 {
            return Completion::Invalid;
        }
        if self.listed == 0 && self.left_out == 0 {
            Failure::new(
                "no_match",
                "no model was found",
                "name a directory with models, or use other filters",
            )
            .report();
        }
        match self.listed == 0 || self.broken + self.left_out > 0 {
            true => Completion::Failed,
            false => Completion::Done,
        }
    }
}

impl LsArgs {
    fn has_filter(&self) -> bool {
        !self.has.is_empty()
            || !self.arch.is_empty()
            || !self.quant.is_empty()
            || self.larger.is_some()
    }

    /// Whether the filters accept a model; `--has` was applied when it was opened.
    fn accepts(&self, model: &ModelEntry) -> bool {
        let matches = |globs: &[GlobMatcher], texts: &[&Option<String>]| {
            globs.is_empty()
                || texts
                    .iter()
                    .filter_map(|text| text.as_deref())
                    .any(|text| globs.iter().any(|glob| glob.is_match(text)))
        };
        let is_large = |least: u64| model.nbytes.is_some_and(|nbytes| nbytes >= least);
        matches(&self.arch, &[&model.architecture])
            && matches(&self.quant, &[&model.dtype, &model.quantisation])
            && self.larger.is_none_or(is_large)
    }
}

/// Sorts models; ties keep the order of paths, also in reverse.
fn sort(models: &mut [ModelEntry], by: ListOrder, reverse: bool) {
    let order = |a: &ModelEntry, b: &ModelEntry| match by {
        ListOrder::Path => a.path.cmp(&b.path),
        // unknown numbers are the smallest
        ListOrder::Size => b.nbytes.cmp(&a.nbytes),
        ListOrder::Parameters => b.parameters.cmp(&a.parameters),
        ListOrder::Context => b.context.cmp(&a.context),
        ListOrder::Architecture => a.architecture.cmp(&b.architecture),
    };
    match reverse {
        false => models.sort_by(order),
        true => models.sort_by(|a, b| order(b, a)),
    }
}
