//! One load: prepares the machine, runs the workers in a control group, and collects their times.

use std::path::Path;
use std::process::{Command, Stdio};

use serde::Deserialize;

use crate::cgroup::ControlGroup;
use crate::device::Device;
use crate::results::LoadRun;
use crate::scenario::{Policy, Scenario, Variant};
use crate::subprocess::stdout_of;
use crate::{Evaluate, Failure, clock, page_cache};

/// The line of JSON that a worker prints.
#[derive(Debug, Deserialize)]
struct Worker {
    ready: f64,
    done: f64,
    checksum: u64,
    major_faults: u64,
}

/// The common part of all runs of one loader in one scenario.
pub struct RunSetup<'a> {
    pub args: &'a Evaluate,
    pub scenario: &'a Scenario,
    pub loader: &'a str,
    pub model: &'a Path,
    pub template: &'a Path,
    pub nbytes: u64,
    pub device: &'a Device,
}

/// Runs one load; returns the run and the checksum of the loaded bytes.
pub fn run(
    setup: &RunSetup<'_>,
    variant: &Variant,
    round: usize,
) -> Result<(LoadRun, u64), Failure> {
    let RunSetup {
        args,
        scenario,
        loader,
        model,
        nbytes,
        device,
        ..
    } = setup;
    let limit = scenario.memory.map(|share| (*nbytes as f64 * share) as u64);
    let group = ControlGroup::new(limit, scenario.throttle.map(|rate| (&*device.number, rate)))?;
    let _read_ahead = scenario
        .read_ahead
        .map(|kilobytes| device.read_ahead(kilobytes))
        .transpose()?;
    page_cache::evict(model)?;
    page_cache::touch_memory(usize::try_from(nbytes + nbytes / 4)?);
    if matches!(variant.policy, Policy::Cached) {
        let read = format!(
            "{} && cat {}/* > /dev/null",
            group.join_command(),
            model.display()
        );
        stdout_of(Command::new("sh").arg("-c").arg(&read))?;
    }
    let barrier = args.paths.dir.join("barrier");
    let _ = std::fs::remove_dir_all(&barrier); // left by an interrupted run
    std::fs::create_dir(&barrier)?;
    let loaders = commands(setup, &barrier);
    let recording = args.paths.dir.join("recorded.iot");
    let (anamnesis, dir) = (args.paths.anamnesis.display(), model.display());
    let command_line = match variant.policy {
        Policy::Native | Policy::Cached => {
            format!("{} && exec sh -c '{loaders}'", group.join_command())
        }
        Policy::Ppc(policy) => {
            let policy = policy.replace("{template}", &setup.template.display().to_string());
            format!(
                "{} && exec {anamnesis} ppc run --quiet --dir {dir} --policy {policy} -- sh -c '{loaders}'",
                group.join_command()
            )
        }
        Policy::Warm => {
            let template = setup.template.display();
            format!(
                "{} && exec {anamnesis} warm --quiet {template} --dir {dir} -- sh -c '{loaders}'",
                group.join_command()
            )
        }
        Policy::Recorded => {
            let out = recording.display();
            let record = format!(
                "{anamnesis} record --overwrite -o {out} --dir {dir} --workers env:LOCAL_RANK"
            );
            format!(
                "{} && exec {record} -- sh -c '{loaders}' 2>/dev/null",
                group.join_command()
            )
        }
    };
    let read_before = device.bytes_read();
    let begun = clock::now();
    let out = Command::new("sh")
        .arg("-c")
        .arg(&command_line)
        .stderr(Stdio::inherit())
        .output()?;
    let device_bytes = device.bytes_read() - read_before;
    std::fs::remove_dir_all(&barrier)?;
    if !out.status.success() {
        return Err(format!(
            "{} of {loader} ended with {}: {command_line}",
            variant.name, out.status
        )
        .into());
    }
    let workers: Vec<Worker> = String::from_utf8(out.stdout)?
        .lines()
        .filter(|line| line.starts_with('{')) // `record` prints a line of its own
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()
        .map_err(|e| format!("{} of {loader}: {e}", variant.name))?;
    if workers.len() != scenario.workers as usize {
        return Err(format!(
            "{} of {} workers reported their times",
            workers.len(),
            scenario.workers
        )
        .into());
    }
    let covered = match variant.policy {
        Policy::Recorded => Some(recorded_share(setup, &recording)?),
        _ => None,
    };
    let ready = workers
        .iter()
        .map(|worker| worker.ready)
        .fold(f64::INFINITY, f64::min);
    let done = workers.iter().map(|worker| worker.done).fold(0.0, f64::max);
    let run = LoadRun {
        scenario: scenario.name.into(),
        loader: (*loader).into(),
        variant: variant.name.into(),
        round,
        load: done - ready,
        start: done - begun,
        ready: ready - begun,
        device_bytes,
        peak_memory: group.peak(),
        major_faults: workers.iter().map(|worker| worker.major_faults).sum(),
        covered,
    };
    Ok((
        run,
        workers.iter().fold(0, |sum, worker| sum ^ worker.checksum),
    ))
}

/// Share of the predicted template's bytes that a recording contains.
fn recorded_share(setup: &RunSetup<'_>, recording: &Path) -> Result<f64, Failure> {
    let mut command = Command::new(&setup.args.paths.anamnesis);
    let out = command
        .args(["template", "coverage", "--json"])
        .args([recording, setup.template])
        .output()?;
    let document: serde_json::Value = serde_json::from_slice(&out.stdout)?;
    document["share"]
        .as_f64()
        .ok_or_else(|| format!("no share in {document}").into())
}

/// The shell command that runs the loaders of all workers in parallel. They wait for each other with files in the directory
/// `barrier`.
fn commands(setup: &RunSetup<'_>, barrier: &Path) -> String {
    let RunSetup {
        args,
        scenario,
        loader,
        model,
        ..
    } = setup;
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/loader.py");
    let worker = |rank: u32| {
        format!(
            "LOCAL_RANK={rank} {} {script} {loader} {} --world {} --barrier {} --anamnesis {}",
            args.python.display(),
            model.display(),
            scenario.workers,
            barrier.display(),
            args.paths.anamnesis.display()
        )
    };
    match scenario.workers {
        1 => format!("exec env {}", worker(0)),
        workers => {
            (0..workers)
                .map(|rank| format!("{} & ", worker(rank)))
                .collect::<String>()
                + "wait"
        }
    }
}
