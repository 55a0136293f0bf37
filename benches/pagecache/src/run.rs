//! One load: prepared, run in its group, and told.

use std::path::Path;
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use crate::cgroup::Group;
use crate::device::Device;
use crate::program::said;
use crate::scene::{Policy, Scene, Variant};
use crate::{Evaluate, Failure, clock, warmth};

/// One run, as it is kept.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Run {
    pub scene: String,
    pub loader: String,
    pub variant: String,
    pub round: usize,
    /// From when all workers are ready to load to when the last has loaded, in seconds.
    pub load: f64,
    /// From the start of the command to when the last has loaded.
    pub start: f64,
    /// When they were ready, since the start.
    pub ready: f64,
    pub device_bytes: u64,
    pub peak_memory: Option<u64>,
    pub major_faults: u64,
    /// Of the bytes that the predicted template reads, the share that was recorded; from 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub covered: Option<f64>,
    /// Time since the start, and bytes read until then.
    pub samples: Vec<(f64, u64)>,
}

/// What a worker prints.
#[derive(Debug, Deserialize)]
struct Worker {
    ready: f64,
    done: f64,
    checksum: u64,
    major_faults: u64,
}

pub struct Setting<'a> {
    pub args: &'a Evaluate,
    pub scene: &'a Scene,
    pub loader: &'a str,
    pub model: &'a Path,
    pub template: &'a Path,
    pub nbytes: u64,
    pub device: &'a Device,
}

/// Runs a load once; gives it and the sum over what was loaded.
pub fn run(setting: &Setting<'_>, variant: &Variant, round: usize) -> Result<(Run, u64), Failure> {
    let Setting {
        args,
        scene,
        loader,
        model,
        nbytes,
        device,
        ..
    } = setting;
    let limit = scene.memory.map(|share| (*nbytes as f64 * share) as u64);
    let group = Group::new(limit, scene.throttle.map(|rate| (&*device.number, rate)))?;
    let _read_ahead = scene
        .read_ahead
        .map(|kilobytes| device.read_ahead(kilobytes))
        .transpose()?;
    warmth::cool(model)?;
    warmth::heat(usize::try_from(nbytes + nbytes / 4)?);
    if matches!(variant.policy, Policy::Cached) {
        let read = format!("{} && cat {}/* > /dev/null", group.enter(), model.display());
        said(Command::new("sh").arg("-c").arg(&read))?;
    }
    let meet = args.places.dir.join("meet");
    let _ = std::fs::remove_dir_all(&meet); // of a run before this one
    std::fs::create_dir(&meet)?;
    let loaders = commands(setting, &meet);
    let recording = args.places.dir.join("recorded.iot");
    let (anamnesis, dir) = (args.places.anamnesis.display(), model.display());
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
    let sampler = device.sampled();
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
        .filter(|line| line.starts_with('{')) // a recording has a line of its own
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()
        .map_err(|e| format!("{} of {loader}: {e}", variant.name))?;
    if workers.len() != scene.workers as usize {
        return Err(format!(
            "{} workers of {} told their times",
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
    let run = Run {
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

/// How much of what the predicted template reads a recording reads too.
fn covered(setting: &Setting<'_>, recording: &Path) -> Result<f64, Failure> {
    let mut command = Command::new(&setting.args.places.anamnesis);
    let out = command
        .args(["template", "coverage", "--json"])
        .args([recording, setting.template])
        .output()?;
    let document: serde_json::Value = serde_json::from_slice(&out.stdout)?;
    document["share"]
        .as_f64()
        .ok_or_else(|| format!("no share in {document}").into())
}

/// The loaders of all workers, side by side, which meet in this directory when they are ready.
fn commands(setting: &Setting<'_>, meet: &Path) -> String {
    let Setting {
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
            args.places.anamnesis.display()
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
