//! `anamnesis remember`: weights back to full precision, into safetensors.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::time::Instant;

use anamnesis::load::{Facts, Recording, choose};
use anamnesis::plan::PLAIN;
use anamnesis::sink::Extent;
use anamnesis::{Checkpoint, Plan, remember};
use serde_json::json;

use crate::args::{Color, Remember, Weights};
use crate::exit::{Code, Failure, Stop};
use crate::output::text::{Bytes, clean, plural};
use crate::output::{Screen, Stdout, WARNING, json, progress};
use crate::template::Kept;
use crate::{interrupt, select, template};

pub(crate) fn run(args: &Remember, color: Color, out: &mut Stdout) -> Result<Code, Stop> {
    let screen = Screen::new(color);
    let begun = Instant::now();
    match write(args, &screen) {
        Ok(done) if args.json => {
            let files: Vec<_> = done
                .files
                .iter()
                .map(|file| file.display().to_string())
                .collect();
            let document = json!({
                "version": json::VERSION,
                "source": args.source.display().to_string(),
                "files": files,
                "dtype": args.weights.dtype,
                "weights": done.weights,
                "plain": done.plain,
                "nbytes": done.nbytes,
                "seconds": begun.elapsed().as_secs_f64(),
                "notes": done.notes,
                "recorded": done.recorded.as_ref().map(Kept::facts),
            });
            writeln!(out, "{document}")?;
            Ok(Code::Done)
        }
        Ok(done) => {
            for note in &done.notes {
                writeln!(out, "{} {}", screen.paint(WARNING, "note:"), clean(note))?;
            }
            let mut line = format!(
                "{}: {}",
                clean(&args.output.display().to_string()),
                made(&done, args.weights.dtype)
            );
            if std::io::stdout().is_terminal() {
                let seconds = begun.elapsed().as_secs_f64();
                #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
                // shown to two digits
                let rate = (done.nbytes as f64 / seconds.max(1e-9)) as u64;
                line.push_str(&format!(", in {seconds:.2} s ({}/s)", Bytes(rate)));
            }
            writeln!(out, "{line}")?;
            done.recorded
                .iter()
                .try_for_each(|recorded| writeln!(out, "{recorded}"))?;
            Ok(Code::Done)
        }
        Err(failure) => {
            if args.json {
                writeln!(
                    out,
                    "{}",
                    json!({"version": json::VERSION, "error": failure})
                )?;
                out.flush()?;
            }
            failure.report();
            Ok(if interrupt::asked() {
                Code::Interrupted
            } else {
                Code::Failed
            })
        }
    }
}

/// What a run made.
struct Done {
    files: Vec<PathBuf>,
    weights: usize,
    plain: usize,
    nbytes: u64,
    notes: Vec<String>,
    recorded: Option<Kept>,
}

fn made(done: &Done, dtype: anamnesis::Dtype) -> String {
    let mut parts = Vec::new();
    if done.weights > 0 {
        parts.push(format!(
            "{} as {dtype}",
            plural(done.weights as u64, "weight")
        ));
    }
    if done.plain > 0 {
        parts.push(plural(done.plain as u64, "plain tensor"));
    }
    if done.files.len() > 1 {
        parts.push(plural(done.files.len() as u64, "file"));
    }
    parts.push(Bytes(done.nbytes).to_string());
    parts.join(", ")
}

fn write(args: &Remember, screen: &Screen) -> Result<Done, Failure> {
    if let Some(path) = &args.record {
        template::free(path, args.overwrite)?;
    }
    let checkpoint = args.opening.options().open(&args.source)?;
    let how = how(&checkpoint, &args.weights)
        .threads(args.threads)
        .overwrite(args.overwrite);
    let recording = args
        .record
        .as_ref()
        .map(|_| Recording::new(choose(&Facts::of(&checkpoint), true).loader));
    let how = recording
        .iter()
        .cloned()
        .fold(how, anamnesis::Remember::loader);
    let mut plan = how.plan()?;
    if plan.jobs.is_empty() && plan.refused.is_empty() {
        let failure = Failure::new(
            "no_match",
            "no weight is left to write",
            "check --filter and --exclude",
        );
        return Err(failure.in_file(&args.source));
    }
    for refused in plan.refused.iter().skip(1) {
        eprintln!(
            "{} {}",
            screen.paint(crate::output::REFUSED, "refused:"),
            clean(&refused.error.to_string())
        );
    }
    let extent = args.shard_size.map_or(Extent::File, Extent::Shards);
    let mut sink = how.safetensors(&args.output, extent)?;
    let done = |plan: &Plan| {
        let plain = plan.jobs.iter().filter(|job| job.scheme == PLAIN).count();
        (plan.jobs.len() - plain, plain, plan.nbytes())
    };
    let (weights, plain, nbytes) = done(&plan);
    interrupt::is_noted();
    let bar = progress::bar("writing", nbytes);
    let mut watch = |progress: anamnesis::execute::Progress| {
        bar.set_position(progress.done);
        interrupt::flow()
    };
    let run = how.run(&mut plan, &mut sink, &mut watch);
    bar.finish_and_clear();
    run.map_err(|e| Failure::from(e.in_file(&args.source)))?;
    let recorded = recording
        .zip(args.record.as_ref())
        .map(|(recording, path)| {
            let template = recording
                .template()
                .map_err(|e| Failure::from(e.in_file(&args.source)))?;
            template::keep(&template, path, args.overwrite)
        });
    let recorded = recorded.transpose()?;
    let files = sink.files().map(std::path::Path::to_owned).collect();
    Ok(Done {
        files,
        weights,
        plain,
        nbytes,
        notes: plan.notes,
        recorded,
    })
}

/// The weights that were asked for, and what they become.
pub(crate) fn how<'c>(checkpoint: &'c Checkpoint, args: &'c Weights) -> anamnesis::Remember<'c> {
    remember(checkpoint)
        .dtype(args.dtype)
        .cast(args.cast)
        .native_rounding(args.native_rounding)
        .filter(|name| {
            select::passes(&args.filter, name) && !args.exclude.iter().any(|x| x.is_match(name))
        })
}
