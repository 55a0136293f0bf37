//! `anamnesis edit`: changes metadata and names of tensors in files that exist.

use std::io::Write;
use std::path::Path;
use std::time::Instant;

use anamnesis::quote::escape;
use anamnesis::sink::GGUF;
use anamnesis::{
    Edit, EditReport, EditWay, EditedFile, ErrorKind, Limits, OpenOptions, RecoveredEdit, edit,
};
use anamnesis_os::whole_file;
use serde_json::json;

use crate::args::{Color, EditArgs, check_new_keys, typed_value};
use crate::exit::{Completion, RunError, report_after};
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::name_filter::{NameChanges, of_missing_key};
use crate::output::{Screen, Stdout, WARNING, json, progress};
use crate::paths::is_url;
use crate::remedies::note_text;
use crate::shown_path::shown;
use crate::text::{ByteSize, plural};

/// Longest file of `--set-file`: a header of safetensors has at most 100 MB.
const LONGEST_VALUE: u64 = 100_000_000;

pub(crate) fn run(
    args: &EditArgs,
    color: Color,
    interrupt: &Interrupt,
    out: &mut Stdout,
) -> Result<Completion, RunError> {
    let (screen, started) = (Screen::new(color), Instant::now());
    match report(args, interrupt) {
        Ok(report) => {
            let done = "the edit is complete, and the report about it is not written";
            report_after(done, out, |out| match args.json {
                true => write_document(args, &report, started, out),
                false => write_lines(args, &report, &screen, out),
            })?;
            Ok(Completion::Done)
        }
        Err(failure) => failure.end(args.json, interrupt, out),
    }
}

fn report(args: &EditArgs, interrupt: &Interrupt) -> Result<EditReport, Failure> {
    let limits = match args.no_limits {
        true => Limits::none(),
        false => Limits::default(),
    };
    let edit = edit(&args.path).limits(limits);
    if args.recover {
        // an edit that is completed is not interrupted again
        interrupt.handle();
        return Ok(edit.recover()?);
    }
    let edit = configure(args, edit)?;
    check_against_file(args, limits, interrupt)?;
    // from here on files change, so an interrupt cancels instead of ending the process
    interrupt.handle();
    // the bytes to be copied are known when the run has begun
    let bar = progress::bar("copying", u64::MAX);
    let committed = edit
        .progress(progress::on(&bar))
        .cancel(interrupt.token())
        .commit();
    bar.finish_and_clear();
    committed.map_err(|error| missing_key(args, limits, error))
}

/// The failure of an edit, with the nearest keys for one that is not there.
fn missing_key(args: &EditArgs, limits: Limits, error: anamnesis::Error) -> Failure {
    let ErrorKind::NotFound { name, .. } = error.kind() else {
        return error.into();
    };
    let option = match args.unset.contains(name) {
        true => "--unset",
        false => "--rename-key",
    };
    let opened = OpenOptions::new()
        .mmap(false)
        .limits(limits)
        .open(&args.path);
    // it was opened for the edit, and is only gone if another process has removed it since
    let Ok(opened) = opened else {
        return error.into();
    };
    let keys = opened.catalog().metadata().iter();
    of_missing_key(error, option, keys.map(|(key, _)| key)).in_file(&args.path)
}

/// An [`edit`] with the changes of the arguments.
fn configure<'c>(args: &EditArgs, edit: Edit<'c>) -> Result<Edit<'c>, Failure> {
    let mut edit = edit.copy(args.copy).compact(args.compact);
    for (from, to) in &args.rename_key {
        edit = edit.rename_key(from, to);
    }
    for key in &args.unset {
        edit = edit.unset(key);
    }
    for (key, value) in &args.set {
        edit = edit.set(key, value.clone());
    }
    for (key, path) in &args.set_file {
        let (key, value) = typed_value(key, &text_of(path)?).map_err(|what| {
            let failure = Failure::new("invalid_argument", what, "correct the file, or the TYPE");
            failure.in_file(path)
        })?;
        edit = edit.set(&key, value);
    }
    for (from, to) in &args.rename {
        edit = edit.rename(from, to);
    }
    Ok(edit)
}

fn text_of(path: &Path) -> Result<String, Failure> {
    let bytes = whole_file::read(path, LONGEST_VALUE).map_err(|e| Failure::io(e, path))?;
    String::from_utf8(bytes).map_err(|_| {
        let what = "the file is not UTF-8, and values are texts";
        Failure::new("invalid_argument", what, "convert the file to UTF-8").in_file(path)
    })
}

/// Refuses a rename that is for no tensor, whose error in the library does not know the nearest names, and new keys of a GGUF with a
/// colon whose end is no type.
fn check_against_file(
    args: &EditArgs,
    limits: Limits,
    interrupt: &Interrupt,
) -> Result<(), Failure> {
    let has_colon = args.set.iter().any(|(key, _)| key.contains(':'));
    if is_url(&args.path) || (args.rename.is_empty() && !has_colon) {
        return Ok(());
    }
    let options = OpenOptions::new().mmap(false).limits(limits);
    // an edit that was interrupted is completed first
    let Ok(checkpoint) = options.cancel(interrupt.token()).open(&args.path) else {
        return Ok(());
    };
    let changes = NameChanges::new(None, &args.rename);
    for tensor in checkpoint.tensors() {
        changes.apply(&tensor.info().name);
    }
    let mut checked = changes.require_matches();
    if checkpoint.catalog().format() == GGUF.name {
        checked = checked.and_then(|()| check_new_keys(&checkpoint, &args.set));
    }
    checked.map_err(|failure| failure.in_file(&args.path))
}

fn recovered_text(outcome: RecoveredEdit) -> &'static str {
    match outcome {
        RecoveredEdit::Completed => "completed",
        RecoveredEdit::Undone => "undone, as it had changed nothing",
        RecoveredEdit::Forgotten => "forgotten, as its files were replaced since",
    }
}

fn way_text(way: EditWay) -> &'static str {
    match way {
        EditWay::Unchanged => "is as it was",
        EditWay::Room => "edited in its room",
        EditWay::Insert => "edited by inserted room",
        EditWay::Clone => "edited by a clone",
        EditWay::Copy => "edited by a copy",
        _ => "edited",
    }
}

fn write_lines(
    args: &EditArgs,
    report: &EditReport,
    screen: &Screen,
    out: &mut Stdout,
) -> Result<(), RunError> {
    for (journal, outcome) in &report.recovered {
        let (path, text) = (
            escape(&shown(journal)).into_owned(),
            recovered_text(*outcome),
        );
        writeln!(out, "{path}: an interrupted edit was {text}")?;
    }
    for part in &report.removed {
        let path = shown(part);
        let text = "removed, which a run had left that was killed";
        writeln!(out, "{}: {text}", escape(&path))?;
    }
    if args.recover && report.recovered.is_empty() && report.removed.is_empty() {
        let path = shown(&args.path);
        writeln!(out, "{}: no edit was interrupted", escape(&path))?;
    }
    for note in &report.notes {
        let text = note_text(note);
        writeln!(out, "{} {}", screen.paint(WARNING, "note:"), escape(&text))?;
    }
    let (changed, same): (Vec<_>, Vec<_>) = report
        .files
        .iter()
        .partition(|file| file.way != EditWay::Unchanged);
    for file in &changed {
        let (path, way) = (shown(&file.path), way_text(file.way));
        let written = ByteSize(file.bytes_written);
        writeln!(out, "{}: {way}, {written} written", escape(&path))?;
    }
    if changed.is_empty() && !same.is_empty() {
        let path = shown(&args.path);
        let files = plural(same.len() as u64, "file");
        writeln!(out, "{}: {files} as before, nothing written", escape(&path))?;
    }
    if changed.iter().any(|file| file.way == EditWay::Insert) {
        let path = shown(&args.path);
        let text = format!(
            "inserting has dropped the data from the page cache; `anamnesis warm {path}` reads them again"
        );
        writeln!(out, "{} {}", screen.paint(WARNING, "note:"), escape(&text))?;
    }
    Ok(())
}

fn write_document(
    args: &EditArgs,
    report: &EditReport,
    started: Instant,
    out: &mut Stdout,
) -> Result<(), RunError> {
    let file = |file: &EditedFile| {
        json!({
            "path": shown(&file.path),
            "way": file.way.name(),
            "bytes_written": file.bytes_written,
        })
    };
    let recovered = |(journal, outcome): &(std::path::PathBuf, RecoveredEdit)| json!({"journal": shown(journal), "outcome": outcome.name()});
    let document = json!({
        "version": json::VERSION,
        "path": shown(&args.path),
        "files": report.files.iter().map(file).collect::<Vec<_>>(),
        "recovered": report.recovered.iter().map(recovered).collect::<Vec<_>>(),
        "removed": report.removed.iter().map(|path| shown(path)).collect::<Vec<_>>(),
        "notes": report.notes.iter().map(note_text).collect::<Vec<_>>(),
        "seconds": started.elapsed().as_secs_f64(),
    });
    Ok(json::write_line(&document, out)?)
}
