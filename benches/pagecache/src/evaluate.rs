//! Every scene, every loader, every variant, in alternating order.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::device::Device;
use crate::program::said;
use crate::results::{self, Evaluation, Origin};
use crate::run::{Setting, run};
use crate::scene::{SCENES, Scene, VARIANTS, Variant};
use crate::warmth;
use crate::{Evaluate, Failure};

pub fn evaluate(args: &Evaluate) -> Result<(), Failure> {
    let model = args.places.dir.join("model");
    if !model.join("torch").exists() {
        eprintln!("making a model of {} GB in {}", args.gb, model.display());
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/model.py");
        said(
            Command::new(&args.python)
                .arg(script)
                .arg(&model)
                .arg("--gb")
                .arg(args.gb.to_string()),
        )?;
    }
    // what a run's own group reads goes with the group: the framework is to stay
    said(Command::new(&args.python).args(["-c", "import torch, safetensors"]))?;
    let device = Device::under(&model)?;
    let mut all: Vec<Evaluation> = results::read(&args.results)?.unwrap_or_default();
    all.push(Evaluation {
        run: Some(Origin::now(args.rounds, Ok(&args.python))),
        loads: Vec::new(),
    });
    let chosen =
        |given: &[String], name: &str| given.is_empty() || given.iter().any(|given| given == name);
    for scene in SCENES
        .iter()
        .filter(|scene| chosen(&args.scene, scene.name))
    {
        for loader in scene
            .loaders
            .iter()
            .filter(|loader| chosen(&args.loader, loader))
        {
            let variants: Vec<_> = VARIANTS
                .iter()
                .filter(|variant| chosen(&args.variant, variant.name))
                .filter(|variant| !variant.limited_only || scene.memory.is_some())
                .collect();
            cell(args, scene, loader, &variants, &model, &device, &mut all)?;
        }
    }
    Ok(())
}

/// One loader in one scene.
fn cell(
    args: &Evaluate,
    scene: &Scene,
    loader: &str,
    variants: &[&Variant],
    model: &Path,
    device: &Device,
    all: &mut [Evaluation],
) -> Result<(), Failure> {
    let model = model.join(if loader == "torch" {
        "torch"
    } else {
        "safetensors"
    });
    let template = args
        .places
        .dir
        .join(format!("{loader}-{}.iot", scene.workers));
    predict(args, scene, &model, &template)?;
    let files = warmth::files(&model)?;
    let nbytes = files
        .iter()
        .map(|path| Ok(fs::metadata(path)?.len()))
        .sum::<Result<u64, std::io::Error>>()?;
    let setting = Setting {
        args,
        scene,
        loader,
        model: &model,
        template: &template,
        nbytes,
        device,
    };
    let mut sums: HashMap<&str, u64> = HashMap::new();
    for round in 0..args.rounds {
        // ABBA: what drifts hits all alike
        let order: Vec<_> = if round % 2 == 0 {
            variants.to_vec()
        } else {
            variants.iter().rev().copied().collect()
        };
        for variant in order {
            let mut known = all
                .iter()
                .flat_map(|evaluation| &evaluation.loads)
                .map(|run| {
                    (&*run.scene, &*run.loader, &*run.variant, run.round)
                        == (scene.name, loader, variant.name, round)
                });
            if known.any(|known| known) {
                continue;
            }
            let (run, sum) = run(&setting, variant, round)?;
            if *sums.entry(loader).or_insert(sum) != sum {
                return Err(format!(
                    "{} of {loader} loaded other bytes than before",
                    variant.name
                )
                .into());
            }
            eprintln!(
                "{:<20} {:<6} {:<24} {round}: load {:.3} s, start {:.3} s, {} MB from the device",
                scene.name,
                loader,
                variant.name,
                run.load,
                run.start,
                run.device_bytes / 1_000_000
            );
            all.last_mut()
                .ok_or("no evaluation is under way")?
                .loads
                .push(run);
            results::write(&args.results, &all)?;
        }
    }
    Ok(())
}

/// The template, predicted before the first run.
fn predict(args: &Evaluate, scene: &Scene, model: &Path, template: &Path) -> Result<(), Failure> {
    let mut command = Command::new(&args.places.anamnesis);
    command
        .args(["template", "predict"])
        .arg(model)
        .arg("-o")
        .arg(template)
        .arg("--overwrite");
    command.args(["--tp", &scene.workers.to_string(), "--order", "file"]);
    said(&mut command).map(drop)
}
