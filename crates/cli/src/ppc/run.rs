//! `anamnesis ppc run`: until it is told to stop, or the command that it started ends.

use std::sync::Arc;

use anamnesis_ppc::runtime::{Options, Status};
use anamnesis_ppc::source::{self, Log, Tee};
use anamnesis_ppc::{EventSource, Namespace, Runtime, cache};

use super::child::{Started, beside, watch};
use super::policy::Named;
use crate::args::PpcRun;
use crate::exit::{Code, Failure, Stop};
use crate::interrupt;
use crate::output::text::{Bytes, plural};
use crate::warnings;

pub(super) fn run(args: &PpcRun) -> Result<Code, Stop> {
    warnings::show();
    let failed = super::failure;
    // charged and limited as the service is
    let _joined = args.join.map(cache::join).transpose().map_err(failed)?;
    let defaults = Options::default();
    let prefetch = cache::Options {
        threads: args.threads.unwrap_or(defaults.prefetch.threads),
        bandwidth: args.bandwidth,
        ..defaults.prefetch
    };
    let options = Options {
        threshold: args.threshold.0,
        prefetch,
        ..defaults
    };
    let limits = options.limits;
    let runtime = Arc::new(Runtime::new(options).map_err(failed)?);
    for policy in &args.policy {
        Named::parse(policy, &args.dir).register(&runtime, limits)?;
    }
    let mut source = listen(args, &runtime)?;
    // before the command reads its first byte
    runtime.watch(&mut *source).map_err(failed)?;
    let door = runtime.open_door().map_err(failed)?;
    interrupt::is_noted();
    if !args.command.is_empty() {
        runtime.start();
    }
    let child = Started::new(&args.command)?;
    let code = beside(&runtime, source, |over| watch(child, over));
    drop(door);
    let status = runtime.status();
    for policy in runtime.policies().all() {
        let root = policy.origin().namespace.root().to_owned();
        if let Err(error) = runtime.rm_policy(&root) {
            failed(error).report();
        }
    }
    if !args.quiet {
        summary(&status);
    }
    Ok(code.map_err(failed)?)
}

/// The source that was asked for, or the best.
fn listen(args: &PpcRun, runtime: &Runtime) -> Result<Box<dyn EventSource>, Failure> {
    let namespace = Namespace::scan(&args.dir).map_err(super::failure)?;
    let source = match &args.source {
        Some(name) => source::by_name(name, &namespace).map_err(super::failure)?,
        None => {
            let choice =
                source::for_policies(runtime.wanted(), &namespace).map_err(super::failure)?;
            if !args.quiet {
                eprintln!("anamnesis: {choice}");
            }
            choice.source
        }
    };
    let Some(path) = &args.log else {
        return Ok(source);
    };
    let log = Log::create(path).map_err(|e| super::failure(e).in_file(path))?;
    Ok(Box::new(Tee::new(source, log)))
}

/// What was done, on standard error: the output is the command's.
fn summary(status: &Status) {
    let Status {
        events,
        prefetch,
        evict,
        ..
    } = status;
    eprintln!(
        "anamnesis: waited {} for {}; {} brought, {} let go; {} lost",
        plural(events.misses, "time"),
        Bytes(events.missed_bytes),
        Bytes(prefetch.bytes_read),
        Bytes(evict.bytes.gone),
        plural(events.lost, "event"),
    );
}
