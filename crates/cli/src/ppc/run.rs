//! `anamnesis ppc run`: runs policies until an interrupt, or until the given command ends.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anamnesis::quote::escape;
use anamnesis::source::local_path;
use anamnesis_ppc::cache::{self, JoinedCgroups};
use anamnesis_ppc::runtime::{RuntimeOptions, RuntimeStatus};
use anamnesis_ppc::source::{self, EventLog, LogFailure, LoggedSource};
use anamnesis_ppc::{EventSource, Namespace, PolicyLimits, Runtime};

use super::change::make_changes;
use super::policy::PolicyArgument;
use crate::args::PpcRunArgs;
use crate::checkpoint_warnings::found_path;
use crate::child::{ChildCommand, run_until, wait};
use crate::exit::{Completion, RunError};
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::shown_path::shown;
use crate::text::{ByteSize, ExactCount, plural};
use crate::warm::{WarmList, alongside};
use crate::warnings;
use crate::written_file::WrittenFile;

pub(super) fn run(args: &PpcRunArgs, interrupt: &Interrupt) -> Result<Completion, RunError> {
    warnings::show_from(args.log);
    if let Some(log) = &args.event_log {
        // a name that was mistyped, and not the lack of a right that a command has to live with
        check_log(log, &args.dir)?;
    }
    match prepare(args) {
        Ok(prepared) => run_prepared(args, interrupt, prepared),
        // the command is what matters: without the runtime it is a program like any other
        Err(failure) if !args.command.is_empty() && !args.require => {
            without_events(args, interrupt, &failure)
        }
        Err(failure) => Err(failure.into()),
    }
}

/// Checks that a log of events may be made at `path`.
fn check_log(path: &Path, dir: &Path) -> Result<(), Failure> {
    let checked = WrittenFile::checked(path, false, &[dir.to_owned()], |_| false);
    // a log is never replaced
    checked.map(drop).map_err(|failure| match path.is_file() {
        true => failure.with_remedy("choose another path, or move the file away"),
        false => failure,
    })
}

/// The parts of a run that exist before the command is started.
struct PreparedRun {
    runtime: Arc<Runtime>,
    source: Box<dyn EventSource>,
    /// The error that ended its log.
    log_failure: LogFailure,
    /// The limits of its policies.
    limits: PolicyLimits,
    /// Keeps this process in the control groups of `--join`.
    _joined: Option<JoinedCgroups>,
}

/// Registers the policies, and opens the source of their events.
fn prepare(args: &PpcRunArgs) -> Result<PreparedRun, Failure> {
    let failed = super::failure;
    let dir = found_path(&args.dir)?;
    // before any page is prefetched, so that pages are charged to these control groups
    let joined = args
        .join
        .map(cache::join_cgroups)
        .transpose()
        .map_err(failed)?;
    let defaults = RuntimeOptions::default();
    let prefetch = cache::PrefetchOptions {
        threads: args.threads.unwrap_or(defaults.prefetch.threads),
        bandwidth: args.bandwidth,
        ..defaults.prefetch
    };
    let options = RuntimeOptions {
        threshold: args.threshold.0,
        prefetch,
        ..defaults
    };
    let limits = options.policy_limits;
    let runtime = Arc::new(Runtime::new(options).map_err(failed)?);
    for policy in &args.policy {
        let registered = PolicyArgument::parse(policy, &dir)
            .and_then(|policy| policy.register(&runtime, limits));
        match registered {
            // the other policies and the command do not depend on it
            Err(failure) if !args.command.is_empty() && !args.require => failure.report(),
            registered => registered?,
        }
    }
    let (mut source, log_failure) = event_source(args, &dir, &runtime)?;
    // before the command starts, so that its first read is reported
    runtime.watch(&mut *source).map_err(failed)?;
    Ok(PreparedRun {
        runtime,
        source,
        log_failure,
        limits,
        _joined: joined,
    })
}

fn run_prepared(
    args: &PpcRunArgs,
    interrupt: &Interrupt,
    prepared: PreparedRun,
) -> Result<Completion, RunError> {
    let failed = super::failure;
    let PreparedRun {
        runtime,
        source,
        log_failure,
        limits,
        _joined,
    } = prepared;
    // the status is not what the command is for: without it, the runtime runs all the same
    let status_socket = runtime
        .serve_changes(make_changes(&runtime, limits))
        .inspect_err(|error| {
            let text = error.to_string();
            eprintln!(
                "anamnesis: `ppc status` cannot show this process: {}",
                escape(&text)
            );
        })
        .ok();
    interrupt.handle();
    // without a command the services run already, and their reads are no start
    if !args.command.is_empty() {
        runtime.notify_start();
    }
    let child = ChildCommand::start(&args.command)?;
    let (completion, result) = run_until(&runtime, source, |ended| wait(interrupt, child, ended));
    // before policies are removed: a change that arrives now would register one that nothing removes
    drop(status_socket);
    // before the policies are removed, whose counts are a part of it
    let status = runtime.status();
    for policy in runtime.policies().registrations() {
        let root = policy.origin().namespace.root().to_owned();
        if let Err(error) = runtime.unregister(&root) {
            failed(error).report();
        }
    }
    if !args.quiet {
        summary(&status);
    }
    let log_failed = args.event_log.as_deref().zip(log_failure.error());
    let log_failed = log_failed.map(|(path, error)| {
        let error = std::io::Error::new(error.kind(), error.to_string());
        Failure::io(error, path)
    });
    for failure in log_failed.into_iter().chain(result.err().map(failed)) {
        match completion {
            // reported, and the status of a command that failed is passed on; a run whose log is not whole is no success
            Completion::Child(status) if !status.success() => failure.report(),
            _ => return Err(failure.into()),
        }
    }
    Ok(completion)
}

/// Runs the command without events: what the first policy would prefetch is read as `anamnesis warm` reads it.
fn without_events(
    args: &PpcRunArgs,
    interrupt: &Interrupt,
    failure: &Failure,
) -> Result<Completion, RunError> {
    interrupt.handle();
    let policies = args.policy.iter();
    let model = policies.filter_map(|policy| {
        let dir = local_path(&args.dir).ok()?;
        PolicyArgument::parse(policy, &dir).ok()?.model()
    });
    let Some(model) = model.take(1).next() else {
        eprintln!(
            "anamnesis: warning: the policies are not run: {}",
            escape(&failure.text())
        );
        let child = ChildCommand::start(&args.command)?;
        return Ok(wait(interrupt, child, &AtomicBool::new(false)));
    };
    eprintln!(
        "anamnesis: warning: the model is read as by `anamnesis warm`, and no policy is run: {}",
        escape(&failure.text())
    );
    let options = cache::WarmOptions {
        threshold: args.threshold.0,
        threads: args.threads,
        bandwidth: args.bandwidth,
        ..cache::WarmOptions::default()
    };
    let list = || WarmList::of_policy(&model, &args.command);
    let (completion, report) = alongside(&args.command, interrupt, &options, list)?;
    report.report_failures();
    if !args.quiet {
        eprintln!("anamnesis: {}", report.summary());
    }
    Ok(completion)
}

/// The source of `--source`, or the best available one; with `--event-log`, its events are also logged.
fn event_source(
    args: &PpcRunArgs,
    dir: &Path,
    runtime: &Runtime,
) -> Result<(Box<dyn EventSource>, LogFailure), Failure> {
    let namespace = Namespace::scan(dir).map_err(super::failure)?;
    if !args.quiet {
        state_outside(&namespace);
    }
    let source = match &args.source {
        Some(name) => source::by_name(name, &namespace).map_err(super::failure)?,
        None => {
            let selected =
                source::for_policies(runtime.capture_mode(), &namespace).map_err(super::failure)?;
            if !args.quiet {
                eprintln!("anamnesis: {selected}");
            }
            selected.source
        }
    };
    let Some(path) = &args.event_log else {
        return Ok((source, LogFailure::default()));
    };
    let log = EventLog::create(path).map_err(|e| super::failure(e).in_file(path))?;
    let logged = LoggedSource::new(source, log);
    let failure = logged.failure();
    Ok((Box::new(logged), failure))
}

/// States which files of the directory are elsewhere: links of a hub's cache, or of its owner.
pub(crate) fn state_outside(namespace: &Namespace) {
    let count = namespace.outside().len();
    if let Some((name, path)) = namespace.outside().next() {
        let are = if count == 1 { "is a link" } else { "are links" };
        eprintln!(
            "anamnesis: {}: {} {are} to elsewhere, such as {} to {}",
            escape(&shown(namespace.root())),
            plural(count as u64, "file"),
            escape(&shown(name)),
            escape(&shown(path)),
        );
    }
}

/// Prints totals to standard error, because standard output belongs to the command.
fn summary(status: &RuntimeStatus) {
    let RuntimeStatus {
        events,
        prefetch,
        evict,
        ..
    } = status;
    eprintln!(
        "anamnesis: {} of {}; {} prefetched, {} evicted; {} lost",
        misses(events.misses),
        ByteSize(events.missed_bytes),
        ByteSize(prefetch.bytes_read),
        ByteSize(evict.bytes.freed),
        plural(events.lost, "event"),
    );
}

/// `1 miss`, `2 misses`.
fn misses(count: u64) -> String {
    if count == 1 {
        "1 miss".to_owned()
    } else {
        format!("{} misses", ExactCount(count))
    }
}
