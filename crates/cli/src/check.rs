//! `anamnesis check`: whether models are whole, and their values sane.

mod show;

use std::path::Path;

use anamnesis::check::{Check, CheckReport, DigestList, check_path, json_list, sha256_lines};
use anamnesis::{Checkpoint, ErrorKind, OpenOptions, check};
use serde_json::json;

use crate::args::{CheckArgs, Color};
use crate::exit::{Completion, Failure, RunError};
use crate::interrupt::Interrupt;
use crate::output::{Screen, Stdout, json, progress};
use crate::paths::{self, InputPath};
use crate::select;

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
    let (mut reports, mut failures) = (Vec::new(), Vec::new());
    let manifest = args.manifest.as_deref();
    let list = manifest.map(|path| DigestList::read_with(path, &options));
    let list = list.transpose();
    match list {
        // without the list that was named nothing is checked: a run that reads all bytes and compares none would look
        // like a success
        Err(error) => failures.push(Failure::from(error)),
        Ok(list) => {
            for input in paths::expand(&args.models) {
                if interrupt.requested() {
                    return Ok(Completion::Interrupted);
                }
                // a model that cannot be read does not keep the others from being checked
                match input.and_then(|input| one(&input, args, list.as_ref(), &options, interrupt))
                {
                    Ok(report) => reports.push(report),
                    Err(failure) => failures.push(failure),
                }
            }
        }
    }
    if interrupt.requested() {
        return Ok(Completion::Interrupted);
    }
    if let Some(path) = &args.write
        // a list of a part of the models would pass for the whole later
        && failures.is_empty()
        && let Err(failure) = write(path, &reports)
    {
        failures.push(failure);
    }
    if args.json {
        let mut document = json!({"version": json::VERSION, "models": reports});
        if let Some(first) = failures.first() {
            document["error"] = json!(first);
            document["errors"] = json!(failures);
        }
        json::write_line(&document, out)?;
    } else {
        show::all(&reports, &screen, out)?;
    }
    // standard output first, so that a message on a terminal follows what was shown before it
    use std::io::Write;
    out.flush()?;
    failures.iter().for_each(Failure::report);
    let is_unreadable = |report: &CheckReport| !report.readable;
    Ok(
        if !failures.is_empty() || reports.iter().any(is_unreadable) {
            Completion::Unreadable
        } else if reports.iter().any(|report| report.found(args.fail_on)) {
            Completion::Failed
        } else {
            Completion::Done
        },
    )
}

fn one(
    input: &InputPath,
    args: &CheckArgs,
    list: Option<&DigestList>,
    options: &OpenOptions,
    interrupt: &Interrupt,
) -> Result<CheckReport, Failure> {
    let located = |e: anamnesis::Error| input.locate(Failure::from(e));
    let opened: Checkpoint;
    let check = match input {
        // `check_path` opens a damaged model as far as it can; standard input can be read once, so that it is opened
        // whole or not at all
        InputPath::Path(path) => check_path(path, options),
        InputPath::Stdin => {
            opened = input.open(options, !args.opening.no_map).map_err(located)?;
            check(&opened)
        }
    };
    let report = with_progress(configured(check, args, list), interrupt);
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
fn configured<'c>(check: Check<'c>, args: &'c CheckArgs, list: Option<&DigestList>) -> Check<'c> {
    let mut check = check.threads(args.threads);
    if !args.filter.is_empty() {
        check = check.filter(|name| select::passes(&args.filter, name));
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

/// Writes the list of digests of all models.
fn write(path: &Path, reports: &[CheckReport]) -> Result<(), Failure> {
    let wrong = |message: &'static str, remedy| {
        Failure::new("invalid_argument", message, remedy).in_file(path)
    };
    let [report] = reports else {
        return Err(wrong(
            "a list of digests is of one model",
            "give one MODEL with --write",
        ));
    };
    // a list that replaces a part of the model would destroy it
    let model = report.path.as_deref().map(Path::new);
    let same = |file: &Path| {
        // by what the paths lead to: `./model.gguf` and a link name the same file
        let of = |path: &Path| path.canonicalize().ok();
        of(file).is_some_and(|file| of(path) == Some(file))
    };
    let is_own = model.is_some_and(|model| {
        let root = if model.is_dir() {
            model
        } else {
            model.parent().unwrap_or(Path::new(""))
        };
        // lists that lie next to the model are read as its files, and may be replaced by new ones
        let is_list = |name: &str| name.ends_with("SUMS") || is_json(Path::new(name));
        let files = report.files.iter().filter(|file| !is_list(&file.path));
        same(model)
            || files
                .map(|file| root.join(&file.path))
                .any(|file| same(&file))
    });
    if is_own {
        return Err(wrong(
            "this is a file of the model",
            "choose another path for --write",
        ));
    }
    let text = if is_json(path) {
        json_list(report)
    } else {
        sha256_lines(report)
    };
    std::fs::write(path, text)
        .map_err(|error| Failure::from(anamnesis::Error::from(error)).in_file(path))
}
