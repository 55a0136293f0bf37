//! `pagecache evaluate`: runs every variant of every loader in every scene, in alternating order.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::device::Device;
use crate::load_run::{RunSetup, run};
use crate::page_cache;
use crate::results::{self, Evaluation, Provenance};
use crate::scene::{SCENES, Scene, VARIANTS, Variant};
use crate::subprocess::stdout_of;
use crate::{Evaluate, Failure};

pub fn evaluate(args: &Evaluate) -> Result<(), Failure> {
    let model = args.paths.dir.join("model");
    if !model.join("torch").exists() {
        eprintln!(
            "generating a model of {} GB in {}",
            args.gb,
            model.display()
        );
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/model.py");
        stdout_of(
            Command::new(&args.python)
                .arg(script)
                .arg(&model)
                .arg("--gb")
                .arg(args.gb.to_string()),
        )?;
    }
    // page cache charged to a run's control group is freed with the group, so the framework is read before, outside of it
    stdout_of(Command::new(&args.python).args(["-c", "import torch, safetensors"]))?;
    let device = Device::under(&model)?;
    let mut all: Vec<Evaluation> = results::read(&args.results)?.unwrap_or_default();
    all.push(Evaluation {
        run: Some(Provenance::now(args.rounds, Ok(&args.python))),
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
            run_loader(args, scene, loader, &variants, &model, &device, &mut all)?;
        }
    }
    Ok(())
}

/// All rounds of one loader in one scene.
fn run_loader(
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
        .paths
        .dir
        .join(format!("{loader}-{}.iot", scene.workers));
    predict(args, scene, &model, &template)?;
    let files = page_cache::files(&model)?;
    let nbytes = files
        .iter()
        .map(|path| Ok(fs::metadata(path)?.len()))
        .sum::<Result<u64, std::io::Error>>()?;
    let setting = RunSetup {
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
        // ABBA order, so that drift of the machine affects all variants alike
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
                    "{} of {loader} loaded different bytes than the runs before",
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
                .ok_or("no evaluation has been started")?
                .loads
                .push(run);
            results::write(&args.results, &all)?;
        }
    }
    Ok(())
}

/// Predicts the template before the first run.
fn predict(args: &Evaluate, scene: &Scene, model: &Path, template: &Path) -> Result<(), Failure> {
    let mut command = Command::new(&args.paths.anamnesis);
    command
        .args(["template", "predict"])
        .arg(model)
        .arg("-o")
        .arg(template)
        .arg("--overwrite");
    command.args(["--tp", &scene.workers.to_string(), "--order", "file"]);
    stdout_of(&mut command).map(drop)
}
