//! One load: prepared, run in its group, and told.

use std::path::Path;
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use crate::cgroup::ControlGroup;
use crate::device::Device;
use crate::scene::{Policy, Scene, Variant};
use crate::subprocess::stdout_of;
use crate::{Evaluate, Failure, clock, page_cache};

/// One run as stored in the results.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct LoadRun {
    pub scene: String,
    pub loader: String,
    pub variant: String,
    pub round: usize,
    /// Seconds from the first worker being ready to load until the last has loaded.
    pub load: f64,
    /// Seconds from the start of the command until the last worker has loaded.
    pub start: f64,
    /// Seconds from the start of the command until the first worker is ready.
    pub ready: f64,
    pub device_bytes: u64,
    pub peak_memory: Option<u64>,
    pub major_faults: u64,
    /// Share of the predicted template's bytes that the recording contains, from 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub covered: Option<f64>,
    /// Seconds since the start, and bytes read from the device until then.
    pub samples: Vec<(f64, u64)>,
}

/// The line of JSON that a worker prints.
#[derive(Debug, Deserialize)]
struct Worker {
    ready: f64,
    done: f64,
    checksum: u64,
    major_faults: u64,
}

pub struct RunSetup<'a> {
    pub args: &'a Evaluate,
    pub scene: &'a Scene,
    pub loader: &'a str,
    pub model: &'a Path,
    pub template: &'a Path,
    pub nbytes: u64,
    pub device: &'a Device,
}

/// Runs one load; returns the run and the checksum of the loaded bytes.
pub fn run(
    setting: &RunSetup<'_>,
    variant: &Variant,
    round: usize,
) -> Result<(LoadRun, u64), Failure> {
    let RunSetup {
        args,
        scene,
        loader,
        model,
        nbytes,
        device,
        ..
    } = setting;
    let limit = scene.memory.map(|share| (*nbytes as f64 * share) as u64);
    let group = ControlGroup::new(limit, scene.throttle.map(|rate| (&*device.number, rate)))?;
    let _read_ahead = scene
        .read_ahead
        .map(|kilobytes| device.read_ahead(kilobytes))
        .transpose()?;
    page_cache::evict(model)?;
    page_cache::touch_memory(usize::try_from(nbytes + nbytes / 4)?);
    if matches!(variant.policy, Policy::Cached) {
        let read = format!("{} && cat {}/* > /dev/null", group.enter(), model.display());
        stdout_of(Command::new("sh").arg("-c").arg(&read))?;
    }
    let meet = args.paths.dir.join("meet");
    let _ = std::fs::remove_dir_all(&meet); // left by an interrupted run
    std::fs::create_dir(&meet)?;
    let loaders = commands(setting, &meet);
    let recording = args.paths.dir.join("recorded.iot");
    let (anamnesis, dir) = (args.paths.anamnesis.display(), model.display());
    let line = match variant.policy {
        Policy::Native | Policy::Cached => format!("{} && exec sh -c '{loaders}'", group.enter()),
        Policy::Ppc(policy) => {
            let policy = policy.replace("{template}", &setting.template.display().to_string());
            format!(
                "{} && exec {anamnesis} ppc run --quiet --dir {dir} --policy {policy} -- sh -c '{loaders}'",
                group.enter()
            )
        }
        Policy::Recorded => {
            let out = recording.display();
            let record = format!(
                "{anamnesis} record --overwrite -o {out} --dir {dir} --workers env:LOCAL_RANK"
            );
            format!(
                "{} && exec {record} -- sh -c '{loaders}' 2>/dev/null",
                group.enter()
            )
        }
    };
    let sampler = device.start_sampling();
    let begun = clock::now();
    let out = Command::new("sh")
        .arg("-c")
        .arg(&line)
        .stderr(Stdio::inherit())
        .output()?;
    let samples = sampler.end();
    std::fs::remove_dir_all(&meet)?;
    if !out.status.success() {
        return Err(format!(
            "{} of {loader} ended with {}: {line}",
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
    if workers.len() != scene.workers as usize {
        return Err(format!(
            "{} of {} workers reported their times",
            workers.len(),
            scene.workers
        )
        .into());
    }
    let covered = match variant.policy {
        Policy::Recorded => Some(covered(setting, &recording)?),
        _ => None,
    };
    let ready = workers
        .iter()
        .map(|worker| worker.ready)
        .fold(f64::INFINITY, f64::min);
    let done = workers.iter().map(|worker| worker.done).fold(0.0, f64::max);
    let run = LoadRun {
        scene: scene.name.into(),
        loader: (*loader).into(),
        variant: variant.name.into(),
        round,
        load: done - ready,
        start: done - begun,
        ready: ready - begun,
        device_bytes: samples.last().map_or(0, |&(_, bytes)| bytes),
        peak_memory: group.peak(),
        major_faults: workers.iter().map(|worker| worker.major_faults).sum(),
        covered,
        samples: samples
            .into_iter()
            .map(|(at, bytes)| (at - begun, bytes))
            .collect(),
    };
    Ok((
        run,
        workers.iter().fold(0, |sum, worker| sum ^ worker.checksum),
    ))
}

/// Share of the predicted template's bytes that a recording contains.
fn covered(setting: &RunSetup<'_>, recording: &Path) -> Result<f64, Failure> {
    let mut command = Command::new(&setting.args.paths.anamnesis);
    let out = command
        .args(["template", "coverage", "--json"])
        .args([recording, setting.template])
        .output()?;
    let document: serde_json::Value = serde_json::from_slice(&out.stdout)?;
    document["share"]
        .as_f64()
        .ok_or_else(|| format!("no share in {document}").into())
}

/// The shell command that runs the loaders of all workers in parallel; they wait for each other in the directory `meet`.
fn commands(setting: &RunSetup<'_>, meet: &Path) -> String {
    let RunSetup {
        args,
        scene,
        loader,
        model,
        ..
    } = setting;
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/loader.py");
    let one = |rank: u32| {
        format!(
            "LOCAL_RANK={rank} {} {script} {loader} {} --world {} --meet {} --anamnesis {}",
            args.python.display(),
            model.display(),
            scene.workers,
            meet.display(),
            args.paths.anamnesis.display()
        )
    };
    match scene.workers {
        1 => format!("exec env {}", one(0)),
        workers => {
            (0..workers)
                .map(|rank| format!("{} & ", one(rank)))
                .collect::<String>()
                + "wait"
        }
    }
}
