//! `anamnesis record`: records the reads of a program as an I/O template.

mod mapped_files;
mod process_tree;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anamnesis::Checkpoint;
use anamnesis::predict::complete;
use anamnesis::quote::escape;
use anamnesis::template::{Template, TemplateLimits, coverage};
use anamnesis_maio::Maio;
use anamnesis_ppc::cache::{Evictor, MappingProcesses};
use anamnesis_ppc::runtime::RuntimeOptions;
use anamnesis_ppc::source::{self, CaptureMode};
use anamnesis_ppc::{self as ppc, EventSource, FileEntry, Namespace, Runtime};

use crate::args::RecordArgs;
use crate::checkpoint_warnings::{found_path, show_about_place};
use crate::child::{ChildCommand, run_until, wait};
use crate::exit::{Completion, RunError};
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::model_argument::model_among;
use crate::output::Stdout;
use crate::ppc::run::state_outside;
use crate::runtime_failure::failure;
use crate::shown_path::shown;
use crate::template::{check_output, save};
use crate::text::{ByteSize, plural};
use crate::warnings;
use mapped_files::MappedFiles;
use process_tree::ProcessTree;

/// Service name, which is also the file name of the recorded template.
const SERVICE: &str = "recording";

pub(crate) fn run(
    args: &RecordArgs,
    interrupt: &Interrupt,
    out: &mut Stdout,
) -> Result<Completion, RunError> {
    warnings::show();
    let dir = model_directory(args)?;
    check_output(&args.out, args.overwrite, std::slice::from_ref(&dir))?;
    let recording_dir = RecordingDir::new()?;
    // a recording must not drop events, and a model's reads arrive in bursts: a queue of 4 Mi calls
    let limits = ppc::PolicyLimits {
        queued_calls: 1 << 22,
        ..ppc::PolicyLimits::default()
    };
    let options = RuntimeOptions {
        // nothing is prefetched or evicted, so memory usage is of no interest
        threshold: None,
        policy_limits: limits,
        ..RuntimeOptions::default()
    };
    let runtime = Arc::new(Runtime::new(options).map_err(failure)?);
    let parameters: String = args
        .parameters
        .iter()
        .map(|given| format!(",param.{given}"))
        .collect();
    // `complete` fills the gaps between touched pages from the catalog; with --raw, accesses up to 2 MiB apart are joined
    let gap = if args.raw { "2M" } else { "0" };
    let config = format!(
        "templates={},service={SERVICE},generate=yes,prefetch=no,evict=no,idle=1000000s,gap={gap},workers={}{parameters}",
        recording_dir.0.display(),
        args.workers
    );
    let registered = runtime
        .register(&dir, "record", Box::new(Maio::new()), &config)
        .map_err(failure)?;
    let namespace = &registered.origin().namespace;
    if !args.command.is_empty() && !args.warm {
        evict_model(namespace);
    }
    let mut source = event_source(args, &dir, namespace)?;
    // before the command starts, so that its first read is reported
    runtime.watch(&mut *source).map_err(failure)?;
    interrupt.handle();
    let child = ChildCommand::start(&args.command)?;
    let root = child.as_ref().map(ChildCommand::pid).or(args.pid);
    let source: Box<dyn EventSource> = match root {
        // other programs may read the model meanwhile, such as an indexer or a backup
        Some(root) => Box::new(ProcessTree::new(source, root)),
        None => source,
    };
    let reports_mapped_accesses = source.name() != "shim";
    let (source, mapped) = MappedFiles::new(source);
    let source = Box::new(source);
    let (completion, result) = run_until(&runtime, source, |ended| {
        let completion = wait_for_end(interrupt, child, args.pid, ended);
        // the source reports the last events with a delay; an interrupt is not kept waiting for all of them
        let delay = if interrupt.requested() { 50 } else { 300 };
        std::thread::sleep(std::time::Duration::from_millis(delay));
        completion
    });
    let status = runtime.status();
    // lost by the kernel's ring, or dropped from a full queue of the policy: both leave gaps
    let lost = status.events.lost
        + status
            .policies
            .iter()
            .map(|policy| policy.dropped)
            .sum::<u64>();
    // the policy writes its template when it is removed
    runtime.unregister(&dir).map_err(failure)?;
    result.map_err(failure)?;
    let mapped = mapped.load(Ordering::Relaxed);
    if mapped > 0 && !reports_mapped_accesses {
        let message = format!(
            "the program mapped {} of the model, and the shim reports no accesses to mapped memory: no template is written",
            ByteSize(mapped)
        );
        let remedy = "record it by the kernel's events (without --source), or predict the template with `anamnesis template predict`";
        // no warning here: the reads that are missing are most of them, and a policy would follow the rest
        return Err(Failure::new("incomplete", message, remedy)
            .in_file(&dir)
            .into());
    }
    let model_nbytes: u64 = namespace.entries().iter().map(|entry| entry.len).sum();
    let template = recording_dir.template(&dir)?;
    let template = completed_template(args, &dir, template);
    if lost > 0 {
        eprintln!(
            "anamnesis: warning: {} lost; the template may be incomplete",
            plural(lost, "event")
        );
    }
    warn_of_little(&template, model_nbytes);
    let mut notes = Vec::new();
    if interrupt.requested() {
        // a server is recorded so, and a program that was about to read more is too
        let note = "the recording was interrupted: the template has the reads until then";
        eprintln!("anamnesis: warning: {note}");
        notes.push(note.to_owned());
    }
    let saved = save(&template, &args.out, args.overwrite)?;
    saved.with_notes(notes).print(args.json, out)?;
    Ok(completion)
}

/// A template that reads less than this fraction of its model is taken to be incomplete.
const LITTLE_FRACTION: u64 = 10;

/// Warns if a template reads little of its model.
fn warn_of_little(template: &Template, model_nbytes: u64) {
    // each byte once
    let nbytes = coverage(template, template).nbytes;
    if nbytes < model_nbytes / LITTLE_FRACTION {
        eprintln!(
            "anamnesis: warning: the template has {} of {}: the program read little of the model, or in a way that was not observed",
            ByteSize(nbytes),
            ByteSize(model_nbytes)
        );
    }
}

/// The model's directory: `--dir`, or the first argument of the command that opens as a checkpoint.
fn model_directory(args: &RecordArgs) -> Result<PathBuf, Failure> {
    if let Some(dir) = &args.dir {
        return Ok(found_path(dir)?);
    }
    model_among(&args.command).ok_or_else(|| {
        Failure::new(
            "usage",
            "no argument of the command is a model",
            "name the model's directory with --dir",
        )
    })
}

/// Evicts the model from the page cache. Reads of cached pages cause no event, so the recording would miss them.
fn evict_model(namespace: &Arc<Namespace>) {
    let all = namespace
        .entries()
        .iter()
        .map(FileEntry::whole)
        .collect::<Vec<_>>()
        .into();
    // pages that a process maps are in use and stay
    let evicted = Evictor::new(namespace)
        .mapping_processes(MappingProcesses::None)
        .evict(&all);
    if evicted.remaining > 0 {
        let left = ByteSize(evicted.remaining);
        eprintln!(
            "anamnesis: warning: {left} of the model stay cached because another process uses them; reads of these bytes may be missed"
        );
    }
}

/// The source of `--source`, or the best available one for recording.
fn event_source(
    args: &RecordArgs,
    dir: &Path,
    namespace: &Namespace,
) -> Result<Box<dyn EventSource>, Failure> {
    if let Some(name) = &args.source {
        return source::by_name(name, namespace).map_err(failure);
    }
    let selected = source::best(CaptureMode::Recording, namespace).map_err(failure)?;
    state_outside(namespace);
    eprintln!("anamnesis: recording {}; {selected}", escape(&shown(dir)));
    Ok(selected.source)
}

/// Waits until the command or the process of `--pid` ends, or until an interrupt.
fn wait_for_end(
    interrupt: &Interrupt,
    child: Option<ChildCommand>,
    pid: Option<u32>,
    source_ended: &AtomicBool,
) -> Completion {
    let Some(pid) = pid else {
        return wait(interrupt, child, source_ended);
    };
    // not a child, so it cannot be waited for
    while Path::new("/proc").join(pid.to_string()).exists()
        && !interrupt.requested()
        && !source_ended.load(Ordering::Relaxed)
    {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    Completion::Done
}

/// The template with tensors completed from the checkpoint's catalog, unless `--raw` excludes that; unchanged if `dir` is no
/// checkpoint. A directory of several models is said to be one.
fn completed_template(args: &RecordArgs, dir: &Path, template: Template) -> Template {
    let opened = Checkpoint::open(dir).inspect(show_about_place);
    if args.raw {
        return template;
    }
    let completed = opened.and_then(|checkpoint| complete(&checkpoint, &template));
    completed.unwrap_or_else(|error| {
        eprintln!("anamnesis: warning: tensors are not completed, because the checkpoint cannot be opened: {error}");
        template
    })
}

/// A temporary directory for the recording, removed on drop.
struct RecordingDir(PathBuf);

impl RecordingDir {
    fn new() -> Result<Self, Failure> {
        let dir = std::env::temp_dir().join(format!("anamnesis-record-{}", std::process::id()));
        // fails if the name exists: a directory that another user made is not used
        let made = fs::create_dir(&dir);
        made.map_err(|e| {
            Failure::new("io", e.to_string(), "set TMPDIR to a writable directory").in_file(&dir)
        })?;
        Ok(Self(dir))
    }

    fn template(&self, dir: &Path) -> Result<Template, Failure> {
        let path = self.0.join(format!("{SERVICE}.iot"));
        if !path.exists() {
            let message = "no reads of the model were observed";
            return Err(Failure::new(
                "empty",
                message,
                "check that the program reads from this directory",
            )
            .in_file(dir));
        }
        // this process has written it
        Ok(Template::load(&path, &TemplateLimits::none())?)
    }
}

impl Drop for RecordingDir {
    fn drop(&mut self) {
        // a leftover directory of a few kilobytes is not worth a message at the end
        let _ = fs::remove_dir_all(&self.0);
    }
}
