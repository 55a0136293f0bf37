//! `anamnesis warm`: reads what a worker will read into the page cache, before a command or alongside it.

mod read_list;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anamnesis::quote::escape;
use anamnesis_ppc::Namespace;
use anamnesis_ppc::cache::{WarmOptions, WarmProgress, WarmState, Warmer, page_retention};
use serde_json::{Value, json};

use crate::args::WarmArgs;
use crate::child::{ChildCommand, wait};
use crate::exit::{Completion, RunError};
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::messages::message;
use crate::output::{Stdout, json, progress};
use crate::runtime_failure::failure;
use crate::shown_path::shown;
use crate::text::{ByteSize, plural};
use crate::warnings;
pub(crate) use read_list::{PolicyModel, WarmList};

/// Interval in which an interrupt and the end of the command are noticed.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// How far the processor priority is lowered alongside a command, whose own threads come first.
const NICE: i32 = 5;

/// Why reading ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WarmEnd {
    Complete,
    MemoryFull,
    Interrupted,
    /// The command had ended.
    Command,
}

/// The files and bytes that were read, and those that could not be.
#[derive(Debug)]
pub(crate) struct WarmReport {
    models: usize,
    progress: WarmProgress,
    failures: Vec<Failure>,
    seconds: f64,
    end: WarmEnd,
}

pub(crate) fn run(
    args: &WarmArgs,
    interrupt: &Interrupt,
    out: &mut Stdout,
) -> Result<Completion, RunError> {
    warnings::show();
    interrupt.handle();
    let options = WarmOptions {
        threshold: args.threshold.0,
        threads: args.threads,
        bandwidth: args.bandwidth,
        ..WarmOptions::default()
    };
    let list = || WarmList::of(args, interrupt);
    let never = AtomicBool::new(false);
    if !args.command.is_empty() && !args.wait {
        let (completion, report) = alongside(&args.command, interrupt, &options, list)?;
        print(args, &report, out)?;
        return Ok(completion);
    }
    let report = warm_settled(&list, |list| warm(list, &options, interrupt, &never, true));
    print(args, &report, out)?;
    if report.end == WarmEnd::Interrupted {
        return Ok(Completion::Interrupted);
    }
    // a model that cannot be read is no reason to refuse the command, which may not need it
    let Some(child) = ChildCommand::start(&args.command)? else {
        return Ok(if report.is_complete() {
            Completion::Done
        } else {
            let mut failures = report.failures.iter().map(Failure::completion);
            // a mistake in the arguments comes first: the status says whose fault it is
            let invalid = failures.find(|completion| *completion == Completion::Invalid);
            invalid.unwrap_or(Completion::Failed)
        });
    };
    Ok(wait(interrupt, Some(child), &never))
}

/// Starts a command, and reads alongside it until it ends.
///
/// # Errors
///
/// The command cannot be started.
pub(crate) fn alongside(
    command: &[std::ffi::OsString],
    interrupt: &Interrupt,
    options: &WarmOptions,
    list: impl FnOnce() -> Result<WarmList, Failure> + Send,
) -> Result<(Completion, WarmReport), Failure> {
    let child = ChildCommand::start(command)?;
    // inherited by the threads that read
    let _ = rustix::process::nice(NICE);
    let ended = AtomicBool::new(false);
    let both = std::thread::scope(|scope| {
        let reading = scope.spawn(|| warm(list(), options, interrupt, &ended, false));
        let completion = wait(interrupt, child, &AtomicBool::new(false));
        ended.store(true, Ordering::Relaxed);
        (completion, reading.join())
    });
    match both {
        (completion, Ok(report)) => Ok((completion, report)),
        // the panic hook has printed the panic; the command's status is what counts
        (completion, Err(_)) => Ok((completion, WarmReport::failed(Vec::new()))),
    }
}

/// Reads a list, and the one of the model that is there now, where another run has replaced the model before it was read.
fn warm_settled(
    list: &impl Fn() -> Result<WarmList, Failure>,
    mut warm: impl FnMut(Result<WarmList, Failure>) -> WarmReport,
) -> WarmReport {
    let read = || {
        let found = list();
        let files = found.as_ref().ok().map(WarmList::files);
        let report = warm(found);
        let is_whole = report.progress.unreadable == 0 || report.end != WarmEnd::Complete;
        match is_whole || list().ok().as_ref().map(WarmList::files) == files {
            true => Ok(report),
            false => Err(report),
        }
    };
    anamnesis::again_if_replaced(|_| true, read).unwrap_or_else(|last| last)
}

/// Reads a list until it is complete, memory is full, an interrupt, or `ended`.
fn warm(
    list: Result<WarmList, Failure>,
    options: &WarmOptions,
    interrupt: &Interrupt,
    ended: &AtomicBool,
    shows_progress: bool,
) -> WarmReport {
    let begun = Instant::now();
    let WarmList {
        models,
        namespace,
        lists,
        mut failures,
    } = match list {
        Ok(list) => list,
        // while the model was opened
        Err(_) if interrupt.requested() => {
            return WarmReport {
                end: WarmEnd::Interrupted,
                ..WarmReport::failed(Vec::new())
            };
        }
        Err(failure) => return WarmReport::failed(vec![failure]),
    };
    warn_uncached(&namespace);
    let mut warmer = match Warmer::start(&Arc::new(namespace), lists, options) {
        Ok(warmer) => warmer,
        Err(error) => {
            failures.push(failure(error));
            return WarmReport::failed(failures);
        }
    };
    let bar = if shows_progress {
        progress::bar("warming", warmer.progress().nbytes)
    } else {
        // the terminal belongs to the command
        indicatif::ProgressBar::hidden()
    };
    let end = loop {
        let state = warmer.wait(POLL_INTERVAL);
        let WarmProgress { read, cached, .. } = warmer.progress();
        bar.set_position(read.saturating_add(cached));
        match state {
            WarmState::Complete => break WarmEnd::Complete,
            WarmState::MemoryFull => break WarmEnd::MemoryFull,
            WarmState::Reading if interrupt.requested() => break WarmEnd::Interrupted,
            // the pages have no reader any more
            WarmState::Reading if ended.load(Ordering::Relaxed) => break WarmEnd::Command,
            WarmState::Reading => {}
        }
    };
    bar.finish_and_clear();
    let progress = warmer.progress();
    // before the time is taken: reads in progress end with it
    drop(warmer);
    WarmReport {
        models,
        progress,
        failures,
        seconds: begun.elapsed().as_secs_f64(),
        end,
    }
}

/// Warns where the page cache keeps nothing of the files for the program that opens them: only the server of their file system
/// may have cached what is read.
fn warn_uncached(namespace: &Namespace) {
    let found = page_retention(namespace, |_| true);
    if let Some(why) = found.values().find_map(|found| found.reason()) {
        let root = shown(namespace.root());
        message!(
            "anamnesis: warning: {}: this FUSE file system {why}: what is read now is requested from its server again; an \
             option of its mount, such as kernel_cache, may keep pages",
            escape(&root)
        );
    }
}

impl WarmReport {
    fn failed(failures: Vec<Failure>) -> Self {
        Self {
            models: 0,
            progress: WarmProgress::default(),
            failures,
            seconds: 0.0,
            end: WarmEnd::Complete,
        }
    }

    /// Whether everything could be read that memory had room for.
    fn is_complete(&self) -> bool {
        // full memory is no failure: a part of the model is warm, which is as much as was possible
        self.failures.is_empty() && self.progress.unreadable == 0
    }

    /// Reports what could not be read on standard error.
    pub(crate) fn report_failures(&self) {
        self.failures.iter().for_each(Failure::report);
        if let Some(error) = &self.progress.first_error {
            message!(
                "anamnesis: {} could not be read: {}",
                plural(self.progress.unreadable, "file"),
                escape(error)
            );
        }
    }

    /// One line: `warmed 1.20 GiB of 2.00 GiB in 1.30 s (947.20 MiB/s), 0.80 GiB were cached`.
    pub(crate) fn summary(&self) -> String {
        let WarmProgress {
            nbytes,
            read,
            cached,
            ..
        } = self.progress;
        // gaps between ranges are read as well, and are no part of the list
        let (read, wanted) = (read.min(nbytes), nbytes.saturating_sub(cached));
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "a rate for people"
        )]
        // a run may be shorter than the clock can tell
        let rate = (read as f64 / self.seconds.max(1e-9)) as u64;
        let mut line = format!(
            "warmed {} of {} in {:.2} s",
            ByteSize(read.min(wanted)),
            ByteSize(wanted),
            self.seconds
        );
        if read > 0 {
            line += &format!(" ({}/s)", ByteSize(rate));
        }
        if cached > 0 {
            line += &format!(", {} were cached", ByteSize(cached.min(nbytes)));
        }
        line += match self.end {
            WarmEnd::Complete => "",
            WarmEnd::MemoryFull => "; stopped: memory is full",
            WarmEnd::Interrupted => "; interrupted",
            WarmEnd::Command => "; stopped: the command has ended",
        };
        line
    }

    fn document(&self, args: &WarmArgs) -> Value {
        let WarmProgress {
            nbytes,
            read,
            cached,
            unreadable,
            ..
        } = self.progress;
        json!({
            "path": shown(&args.source),
            "models": self.models, "nbytes": nbytes, "read": read, "cached": cached,
            "seconds": self.seconds,
            "end": match self.end {
                WarmEnd::Complete => "complete",
                WarmEnd::MemoryFull => "memory",
                WarmEnd::Interrupted => "interrupted",
                WarmEnd::Command => "command",
            },
            "unreadable": unreadable,
            "errors": self.failures,
        })
    }
}

/// Prints the report: as JSON, or a summary. Standard output belongs to the command where there is one.
fn print(args: &WarmArgs, report: &WarmReport, out: &mut Stdout) -> std::io::Result<()> {
    use std::io::Write;
    report.report_failures();
    if args.json {
        let document = json!({"version": json::VERSION, "warm": report.document(args)});
        json::write_line(&document, out)?;
        // before the command of `--wait` writes
        return out.finish();
    }
    let is_empty = report.models == 0 && report.end != WarmEnd::Interrupted;
    if args.quiet || is_empty {
        return Ok(());
    }
    if args.command.is_empty() {
        writeln!(out, "{}", report.summary())
    } else {
        message!("anamnesis: {}", report.summary());
        Ok(())
    }
}
