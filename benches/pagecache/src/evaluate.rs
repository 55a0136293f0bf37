//! `pagecache evaluate`: runs every variant of every loader in every scenario, in alternating order.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::device::Device;
use crate::load_run::{RunSetup, run};
use crate::page_cache;
use crate::results::{self, Evaluation, Provenance};
use crate::scenario::{SCENARIOS, Scenario, VARIANTS, Variant};
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
    // pages are freed with the control group that they are charged to, so the framework is read first, outside of a group
    stdout_of(Command::new(&args.python).args(["-c", "import torch, safetensors"]))?;
    let device = Device::under(&model)?;
    let mut all: Vec<Evaluation> = results::read(&args.results)?.unwrap_or_default();
    all.push(Evaluation {
        run: Some(Provenance::now(args.rounds, Ok(&args.python))),
        loads: Vec::new(),
    });
    let is_selected =
        |names: &[String], name: &str| names.is_empty() || names.iter().any(|given| given == name);
    for scenario in SCENARIOS
        .iter()
        .filter(|scenario| is_selected(&args.scenario, scenario.name))
    {
        for loader in scenario
            .loaders
            .iter()
            .filter(|loader| is_selected(&args.loader, loader))
        {
            let variants: Vec<_> = VARIANTS
                .iter()
                .filter(|variant| is_selected(&args.variant, variant.name))
                .filter(|variant| !variant.limited_only || scenario.memory.is_some())
                .collect();
            run_loader(args, scenario, loader, &variants, &model, &device, &mut all)?;
        }
    }
    Ok(())
}

/// All rounds of one loader in one scenario.
fn run_loader(
    args: &Evaluate,
    scenario: &Scenario,
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
        .join(format!("{loader}-{}.iot", scenario.workers));
    predict(args, scenario, &model, &template)?;
    let files = page_cache::files(&model)?;
    let nbytes = files
        .iter()
        .map(|path| Ok(fs::metadata(path)?.len()))
        .sum::<Result<u64, std::io::Error>>()?;
    let setup = RunSetup {
        args,
        scenario,
        loader,
        model: &model,
        template: &template,
        nbytes,
        device,
    };
    let mut checksums: HashMap<&str, u64> = HashMap::new();
    for round in 0..args.rounds {
        // forwards and backwards in turn, so that drift of the machine affects all variants alike
        let order: Vec<_> = if round % 2 == 0 {
            variants.to_vec()
        } else {
            variants.iter().rev().copied().collect()
        };
        for variant in order {
            let mut measured = all
                .iter()
                .flat_map(|evaluation| &evaluation.loads)
                .map(|run| {
                    (&*run.scenario, &*run.loader, &*run.variant, run.round)
                        == (scenario.name, loader, variant.name, round)
                });
            if measured.any(|measured| measured) {
                continue;
            }
            let (run, checksum) = run(&setup, variant, round)?;
            if *checksums.entry(loader).or_insert(checksum) != checksum {
                return Err(format!(
                    "{} of {loader} loaded different bytes than the runs before",
                    variant.name
                )
                .into());
            }
            eprintln!(
                "{:<20} {:<6} {:<24} {round}: load {:.3} s, start {:.3} s, {} MB from the device",
                scenario.name,
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
fn predict(
    args: &Evaluate,
    scenario: &Scenario,
    model: &Path,
    template: &Path,
) -> Result<(), Failure> {
    let mut command = Command::new(&args.paths.anamnesis);
    command
        .args(["template", "predict"])
        .arg(model)
        .arg("-o")
        .arg(template)
        .arg("--overwrite");
    command.args(["--tp", &scenario.workers.to_string(), "--order", "file"]);
    stdout_of(&mut command).map(drop)
}
