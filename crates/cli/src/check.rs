//! `anamnesis check`: whether models are whole, and their values sane.

mod listed;
mod show;

use std::path::{Path, PathBuf};

use anamnesis::check::{
    Check, CheckReport, CheckedFile, DigestList, check_path, json_list, sha256_lines,
};
use anamnesis::{Checkpoint, ErrorKind, OpenOptions, check};
use anamnesis_os::files::is_same;
use serde_json::json;

use crate::args::{CheckArgs, Color};
use crate::checkpoint_warnings::found_path;
use crate::exit::{Completion, RunError};
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::name_filter::NameFilter;
use crate::output::{Screen, Stdout, json, progress};
use crate::paths::{self, InputPath};
use crate::written_file::WrittenFile;

pub(crate) use show::finding_text;

pub(crate) fn run(
    args: &CheckArgs,
    color: Color,
    interrupt: &Interrupt,
    out: &mut Stdout,
) -> Result<Completion, RunError> {
    let screen = Screen::new(color);
    let options = args.opening.options().cancel(interrupt.token());
    interrupt.handle();
    let filter = NameFilter::new(&args.filter);
    let (mut reports, mut failures) = (Vec::new(), Vec::new());
    match named_files(args, &options) {
        // without the list that was named nothing is checked: a run that reads all bytes and compares none would look
        // like a success
        Err(failure) => failures.push(failure),
        Ok((list, output)) => {
            for input in paths::expand_trees(&args.models, args.recursive, &options) {
                if interrupt.requested() {
                    return Ok(Completion::Interrupted);
                }
                // a model that cannot be read does not keep the others from being checked
                let report = input.and_then(|input| {
                    one(&input, args, &filter, list.as_ref(), &options, interrupt)
                });
                match report {
                    Ok(report) => reports.push(report),
                    Err(failure) => failures.push(failure),
                }
            }
            // a model that could not be read might have had a name that matches
            if failures.is_empty()
                && reports.iter().all(|report| report.readable)
                && let Err(failure) = filter.require_matches()
            {
                // findings about other names are no answer
                reports.clear();
                failures.push(failure);
            }
            if interrupt.requested() {
                return Ok(Completion::Interrupted);
            }
            if let Some(output) = output
                // a list of a part of the models would pass for the whole later
                && failures.is_empty()
                // and a list of nothing for one of a model
                && !reports.iter().any(CheckReport::is_empty)
                && let Err(failure) = write(&output, &args.models, &mut reports)
            {
                failures.push(failure);
            }
        }
    }
    // before findings are left out of the lists
    let found = reports.iter().any(|report| report.found(args.fail_on));
    let omitted: Vec<_> = reports.iter_mut().map(listed::cut).collect();
    if args.json {
        let models = reports.iter().zip(&omitted);
        let models: Vec<_> = models
            .map(|(report, omitted)| listed::document(report, omitted))
            .collect::<Result<_, _>>()
            .map_err(std::io::Error::from)?;
        let mut document = json!({"version": json::VERSION, "models": models});
        if let Some(first) = failures.first() {
            document["error"] = json!(first);
            document["errors"] = json!(failures);
        }
        json::write_line(&document, out)?;
    } else {
        show::all(&reports, &omitted, &screen, out)?;
    }
    // standard output first, so that a message on a terminal follows what was shown before it
    use std::io::Write;
    out.flush()?;
    failures.iter().for_each(Failure::report);
    let is_unreadable = |report: &CheckReport| !report.readable;
    // a filter for a tensor of one model leaves nothing of the others
    let read_nothing = match filter.is_empty() {
        true => reports.iter().any(CheckReport::is_empty),
        false => reports.iter().all(CheckReport::is_empty),
    };
    Ok(
        if !failures.is_empty() || reports.iter().any(is_unreadable) || read_nothing {
            Completion::Unreadable
        } else if found {
            Completion::Failed
        } else {
            Completion::Done
        },
    )
}

/// The list to compare with, and the file for the list of this run, before hours of reading.
fn named_files<'a>(
    args: &'a CheckArgs,
    options: &OpenOptions,
) -> Result<(Option<DigestList>, Option<WrittenFile<'a>>), Failure> {
    let list = |path: &Path| DigestList::read_with(path, options);
    let compared = args.manifest.as_deref().map(list).transpose()?;
    #[cfg(feature = "remote")]
    let compared = match &args.against {
        Some(url) => Some(DigestList::of_hub(url, options)?),
        None => compared,
    };
    let output = args.write.as_deref().map(|path| {
        // a list belongs beside the files that it is of
        // all lines of it are digests: a text that has one in it is no list
        let is_list = |path: &Path| list(path).is_ok_and(|list| list.unused_lines() == 0);
        WrittenFile::checked(path, args.overwrite, &args.models, is_list)
    });
    Ok((compared, output.transpose()?))
}

fn one(
    input: &InputPath,
    args: &CheckArgs,
    filter: &NameFilter<'_>,
    list: Option<&DigestList>,
    options: &OpenOptions,
    interrupt: &Interrupt,
) -> Result<CheckReport, Failure> {
    let located = |e: anamnesis::Error| input.locate(Failure::from(e));
    let opened: Checkpoint;
    let check = match input {
        // `check_path` opens a damaged model as far as it can; standard input can be read once, so that it is opened
        // whole or not at all
        InputPath::Path(path) | InputPath::Found { path, .. } => {
            // the check itself says why there is none
            let _ = found_path(path);
            check_path(path, &input.options(options))
        }
        InputPath::Stdin => {
            opened = input.open(options, !args.opening.no_map).map_err(located)?;
            check(&opened)
        }
    };
    let report = with_progress(configured(check, args, filter, list), interrupt);
    report.map_err(|error| match error.kind() {
        // the path is in the message
        ErrorKind::Cancelled => Failure::from(error),
        _ => located(error),
    })
}

/// Runs a check with a progress bar, until an interrupt.
pub(crate) fn with_progress(
    check: Check<'_>,
    interrupt: &Interrupt,
) -> anamnesis::Result<CheckReport> {
    // the total is known once the files are open: the first report sets it
    let bar = progress::bar("checking", u64::MAX);
    let check = check.cancel(interrupt.token());
    let report = check.progress(progress::on(&bar)).run();
    bar.finish_and_clear();
    report
}

/// The check with the options of the arguments.
fn configured<'c>(
    check: Check<'c>,
    args: &'c CheckArgs,
    filter: &'c NameFilter<'_>,
    list: Option<&DigestList>,
) -> Check<'c> {
    let mut check = check.threads(args.threads);
    if !filter.is_empty() {
        check = check.filter(|name| filter.passes(name));
    }
    if args.stats {
        check = check.statistics();
    }
    if args.headers {
        check = check.headers();
    }
    if let Some(path) = &args.write {
        check = if is_json(path) {
            check.tensor_digests()
        } else {
            check.file_digests()
        };
    }
    check = args
        .allow
        .iter()
        .fold(check, |check, rule| check.allow(rule));
    check = args.only.iter().fold(check, |check, rule| check.only(rule));
    list.cloned().into_iter().fold(check, Check::manifest)
}

fn is_json(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| extension == "json")
}

/// Writes the list of digests of the model, without the list itself, which may lie in the model's directory.
fn write(
    output: &WrittenFile<'_>,
    models: &[PathBuf],
    reports: &mut [CheckReport],
) -> Result<(), Failure> {
    let [report] = reports else {
        let message = "a list of digests is of one model";
        let failure = Failure::new("invalid_argument", message, "give one MODEL with --write");
        return Err(failure.in_file(output.path()));
    };
    // a pattern or a repository of a cache leads to the directory that the report names
    let found = report.path.as_deref().map(Path::new);
    let folders: Vec<&Path> = found
        .into_iter()
        .chain(models.iter().map(PathBuf::as_path))
        .collect();
    let is_list = |file: &CheckedFile| {
        let mut paths = folders.iter().map(|folder| folder.join(&file.path));
        paths.any(|path| is_same(&path, output.path()))
    };
    let list = report.files.iter().position(is_list);
    let list = list.map(|at| (at, report.files.remove(at)));
    let text = if is_json(output.path()) {
        json_list(report)
    } else {
        sha256_lines(report)
    };
    // it was looked at, and is counted
    if let Some((at, file)) = list {
        report.files.insert(at, file);
    }
    output.write(text.as_bytes())
}
