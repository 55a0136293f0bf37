//! Planning: schemes claim their weights from the catalog, and the remaining tensors are plain.

use crate::base::error::{Error, Remedy, Result};
use crate::base::kernel::Dtype;
use crate::base::limits::{Budget, over, text_cost};
use crate::base::note::Note;
use crate::models::architectures::gguf_model;
use crate::models::conversion::{ConvertedJob, Model, Names, convert};
use crate::plan::decode::{Cast, cast::casts};
use crate::plan::{Grid, Job, JobWork, PLAIN, Plan, StoredPart, TensorSpec, addressable};
use crate::quant::account::{
    TensorClaim, UnclaimedTensor, claims, classify_unclaimed, recognises_any, sidecars,
};
use crate::quant::scheme::{Context, ContextCaches, QuantConfig, Sidecars, TextEdit, Weight};
use crate::read::catalog::{TensorInfo, elements, quote};
use crate::read::checkpoint::Checkpoint;

use crate::models::tokenizer;
use crate::read::slice::TensorSlice;

use super::slices::OutputSlices;
use super::{Remember, conv1d, tied};

pub(in crate::engine) const PLAN: &str = "the plan";

/// The configuration that the caller has set, or the one in the checkpoint's directory.
pub(in crate::engine) fn config(what: &Remember<'_>, budget: &Budget) -> Result<QuantConfig> {
    config_edited(what, &|_, text| Ok(text), budget)
}

/// The same, with texts that `edit` has changed, by the names of their files.
pub(in crate::engine) fn config_edited(
    what: &Remember<'_>,
    edit: &TextEdit<'_>,
    budget: &Budget,
) -> Result<QuantConfig> {
    let checkpoint = &*what.checkpoint;
    Ok(match (&what.config, checkpoint.path()) {
        (Some(config), _) => config.clone(),
        // the other formats describe their quantisation themselves, and their directory may hold the configuration of another
        // model
        (None, Some(path)) if matches!(checkpoint.catalog().format, "safetensors" | "pth") => {
            QuantConfig::load_edited(checkpoint, path, edit, budget)?
        }
        (None, _) => QuantConfig::default(),
    })
}

/// Reads the stored bytes of a tensor for schemes, which look into small ones.
pub(in crate::engine) fn reader(
    checkpoint: &Checkpoint,
) -> impl Fn(&TensorInfo) -> Result<Vec<u8>> {
    |info| checkpoint.tensor_of(info).small_bytes()
}

/// All that schemes are asked with.
pub(in crate::engine) fn context<'c>(
    what: &'c Remember<'_>,
    config: &'c QuantConfig,
    read: &'c dyn Fn(&TensorInfo) -> Result<Vec<u8>>,
    sidecars: &'c Sidecars,
    budget: &'c Budget,
) -> Context<'c> {
    Context {
        catalog: what.checkpoint.catalog(),
        config,
        read,
        native_rounding: what.native,
        assume_plain: what.checkpoint.assumes_plain() || what.ignore,
        sidecars,
        budget,
        caches: ContextCaches::default(),
    }
}

/// Whether the checkpoint has a configuration of quantisation, and no weight that a scheme recognises: its outputs are then as
/// they were, and the configuration describes them still.
pub(in crate::engine) fn stays_quantised(what: &Remember<'_>, budget: &Budget) -> Result<bool> {
    let checkpoint = &*what.checkpoint;
    let config = config(what, budget)?;
    if config.is_empty() {
        return Ok(false);
    }
    let read = reader(checkpoint);
    let sidecars = Sidecars::default();
    let cx = context(what, &config, &read, &sidecars, budget);
    Ok(!recognises_any(&cx)?)
}

pub(in crate::engine) fn plan(what: &Remember<'_>, budget: &Budget) -> Result<Plan> {
    let checkpoint = &*what.checkpoint;
    let config = config(what, budget)?;
    let dtype = what.dtype.resolve(checkpoint.catalog(), &config)?;
    // the dtypes that kernels write
    if !matches!(dtype, Dtype::BF16 | Dtype::F16 | Dtype::F32) {
        return Err(Error::invalid_argument(format!(
            "weights become BF16, F16 or F32, not {dtype}"
        )));
    }
    let read = reader(checkpoint);
    let sidecars = sidecars(checkpoint, budget)?;
    let cx = context(what, &config, &read, &sidecars, budget);
    let mut plan = Plan::default();
    let model = match what.names {
        Names::HuggingFace => gguf_model(checkpoint),
        Names::Stored => None,
    };
    // a filter selects outputs, whose names are made from the names of stored tensors below
    let wanted = |name: &str| model.is_some() || what.makes(name);
    let mut slots = claims(&cx, &mut plan, &wanted, &|| what.options.control.check())?;
    for (tensor, slot) in slots.iter_mut().enumerate() {
        // in file order, so that outputs are read in the order in which they are stored
        match std::mem::replace(slot, TensorClaim::Taken) {
            TensorClaim::Weight(weight) if wanted(&weight.name) => {
                let sound = weigh(&weight, dtype);
                let weight = conv1d::oriented(*weight, config.model().model_type());
                let job = decode_job(weight, dtype);
                let sound = sound.and_then(|()| fits(&cx, &job, checkpoint.limits().tile_bytes));
                match sound {
                    Ok(()) => budget.push(&mut plan.jobs, job, PLAN)?,
                    Err(error) => plan.refuse(&job.output.name, error, budget)?,
                }
            }
            TensorClaim::Free if wanted(&cx.info(tensor).name) => {
                match classify_unclaimed(&cx, tensor) {
                    Ok(UnclaimedTensor::Plain(from)) => {
                        let info = cx.info(tensor);
                        budget.memory(
                            PLAIN_JOB + text_cost(info.name.len()) + spilled(info.shape.len()),
                            PLAN,
                        )?;
                        let job = plain(&cx, tensor, from, what.cast.then_some(dtype));
                        budget.push(&mut plan.jobs, job, PLAN)?;
                    }
                    Ok(UnclaimedTensor::Dropped) => {}
                    Err(error) => plan.refuse(&cx.info(tensor).name, error, budget)?,
                }
                cx.check()?;
            }
            TensorClaim::Free
            | TensorClaim::Weight(_)
            | TensorClaim::Refused(_)
            | TensorClaim::Taken => {}
        }
    }
    // entries that the format lists and cannot read are outputs that would be missing
    for listed in cx
        .catalog
        .refused
        .iter()
        .filter(|listed| wanted(&listed.name))
    {
        let what = format!("{}: {}", quote(&listed.name), listed.reason);
        let error = Error::unsupported(what).with_remedy(Remedy::LeaveOut);
        plan.refuse(&listed.name, error, budget)?;
    }
    let is_renamed = |name: &str| {
        what.rename
            .as_ref()
            .is_some_and(|rename| rename(name) != name)
    };
    if !what.untie
        && let Some(note) = tied::leave_out(&mut plan, cx.catalog, &config, &is_renamed)
    {
        add_note(&mut plan, note.into(), budget)?;
    }
    if let Some(model) = &model {
        convert_names(model, &cx, &mut plan, what, dtype)?;
    } else if checkpoint.catalog().format() == "gguf" {
        add_note(&mut plan, stored_names(what), budget)?;
    }
    // between the conversion of names and `rename`: slices are chosen by the names before
    if !matches!(what.slices, OutputSlices::Whole) {
        slice_outputs(&cx, &mut plan, what)?;
    }
    if let Some(rename) = &what.rename {
        for job in &mut plan.jobs {
            let renamed = rename(&job.output.name);
            budget.memory(text_cost(renamed.len()), PLAN)?;
            job.output.name = renamed.into();
        }
    }
    // two schemes can give one name to different tensors (`X.qweight` and `X.weight_packed`), and so can the caller; a file
    // has room for one
    twice(&mut plan, Remedy::LeaveOutOrRename, budget)?;
    plan.quantised = cx.quantised();
    plan.notes = cx.take_notes();
    Ok(plan)
}

/// Reduces each output to the part of it that the caller has chosen.
fn slice_outputs(cx: &Context<'_>, plan: &mut Plan, what: &Remember<'_>) -> Result<()> {
    let checkpoint = &*what.checkpoint;
    let slices = what.slices.of(checkpoint, cx.budget)?;
    for mut job in std::mem::take(&mut plan.jobs) {
        let sound = match slices.apply(&mut job, cx.budget, PLAN)? {
            true => fits(cx, &job, checkpoint.limits().tile_bytes),
            false => Ok(()),
        };
        match sound {
            Ok(()) => cx.budget.push(&mut plan.jobs, job, PLAN)?,
            Err(error) => plan.refuse(&job.output.name, error, cx.budget)?,
        }
    }
    Ok(())
}

/// Replaces the outputs of stored tensors by the outputs of a Hugging Face checkpoint.
fn convert_names(
    model: &Model<'_>,
    cx: &Context<'_>,
    plan: &mut Plan,
    what: &Remember<'_>,
    dtype: Dtype,
) -> Result<()> {
    let (wanted, check) = (
        |name: &str| what.makes(name),
        || what.options.control.check(),
    );
    let stored = std::mem::take(&mut plan.jobs);
    let refused = std::mem::take(&mut plan.refused);
    let converted = convert(model, stored, refused, dtype, &wanted, &check, cx.budget)?;
    for ConvertedJob { job, changed } in converted.jobs {
        // a job that only got another name was checked with the stored weight
        let sound = if changed {
            let allowed = what.checkpoint.limits().tile_bytes;
            fills(&job).and_then(|()| fits(cx, &job, allowed))
        } else {
            Ok(())
        };
        match sound {
            Ok(()) => cx.budget.push(&mut plan.jobs, job, PLAN)?,
            Err(error) => plan.refuse(&job.output.name, error, cx.budget)?,
        }
    }
    for (name, error) in converted.refused {
        plan.refuse(&name, error, cx.budget)?;
    }
    if let Some(reason) = tokenizer::unsupported(&what.checkpoint) {
        add_note(plan, reason.into(), cx.budget)?;
    }
    for name in converted.unknown {
        let text = format!(
            "tensor {}: unknown in its architecture; its name is llama.cpp's",
            quote(&name)
        );
        add_note(plan, text.into(), cx.budget)?;
    }
    Ok(())
}

/// The note for a GGUF whose outputs have the names of the file.
fn stored_names(what: &Remember<'_>) -> Note {
    const STORED: &str = "the names of the outputs are llama.cpp's";
    match (what.names, Model::name(&what.checkpoint)) {
        (Names::Stored, _) if gguf_model(&what.checkpoint).is_some() => {
            Note::with_remedy(STORED, Remedy::NameAsTransformers)
        }
        (Names::Stored, _) => STORED.into(),
        (Names::HuggingFace, Some(name)) => Note::from(format!(
            "the architecture {} is unknown, or its metadata incomplete; {STORED}",
            quote(name)
        )),
        (Names::HuggingFace, None) => format!("the file names no architecture; {STORED}").into(),
    }
}

/// Memory of the decoder and the list of parts of a plain tensor.
const PLAIN_JOB: u64 = 128;

/// Memory of sizes that a shape does not hold inline.
fn spilled(rank: usize) -> u64 {
    if rank > 4 { 16 * rank as u64 } else { 0 }
}

/// Notes about outputs. Further ones are left out.
const MAX_NOTES: usize = 100;

/// Adds a note about the outputs.
pub(in crate::engine) fn add_note(plan: &mut Plan, note: Note, budget: &Budget) -> Result<()> {
    let note = match plan.output_notes.len() {
        // one note in place of all others
        MAX_NOTES => Note::from("further notes are left out"),
        more if more > MAX_NOTES => return Ok(()),
        _ => note,
    };
    budget.text(note.len(), PLAN)?;
    if plan.output_notes.is_empty() {
        // most plans have one note or none: room for more is made for the second
        budget.memory(size_of::<Note>() as u64, PLAN)?;
        plan.output_notes.reserve_exact(1);
    }
    budget.push(&mut plan.output_notes, note, PLAN)
}

/// A tile, what it reads, and what all of them share must fit in memory, once per thread.
pub(in crate::engine) fn fits(cx: &Context<'_>, job: &Job, allowed: u64) -> Result<()> {
    let JobWork::Tiles { decoder, rows } = &job.work else {
        return Ok(());
    };
    let grid = decoder.grid();
    // a small weight is one tile of fewer rows
    let rows = (*rows).min(grid.rows);
    if rows == 0 {
        return Ok(());
    }
    let output = rows
        .saturating_mul(grid.cols)
        .saturating_mul(job.output.dtype.bits())
        / 8;
    let spans = decoder.inputs(0..rows).into_iter().chain(decoder.shared());
    let inputs = spans
        .map(|span| span.bytes.nbytes())
        .fold(0, u64::saturating_add);
    let whole = job
        .parts
        .iter()
        .map(|part| cx.info(part.tensor))
        .filter(|info| !addressable(info));
    // a part that is not addressable is read whole before the first tile, so it counts fully
    let whole = whole.map(|info| info.nbytes()).fold(0, u64::saturating_add);
    let needed = output.saturating_add(inputs).saturating_add(whole);
    let what = || format!("a tile of weight {}", quote(&job.output.name));
    if needed > allowed {
        return Err(over(needed, allowed, what(), "tile_bytes"));
    }
    // Rust allocates no more than `isize::MAX` bytes at once
    if isize::try_from(needed).is_err() {
        return Err(Error::unsupported(format!(
            "{} needs {needed} bytes, which cannot be addressed",
            what()
        )));
    }
    Ok(())
}

/// Refuses a weight whose decoder makes another number of elements than its shape has.
fn weigh(weight: &Weight, dtype: Dtype) -> Result<()> {
    same_elements(&weight.name, &weight.shape, weight.decoder.grid(), dtype)
}

/// Like [`weigh`], for a job.
fn fills(job: &Job) -> Result<()> {
    let JobWork::Tiles { decoder, .. } = &job.work else {
        return Ok(());
    };
    let TensorSpec {
        name, shape, dtype, ..
    } = &job.output;
    same_elements(name, shape, decoder.grid(), *dtype)
}

fn same_elements(name: &str, shape: &[u64], grid: Grid, dtype: Dtype) -> Result<()> {
    let made = grid.rows.checked_mul(grid.cols);
    let shaped = elements(shape).filter(|&n| dtype.nbytes(n).is_some());
    if made.is_none() || made != shaped {
        let what = format!(
            "weight {}: {} rows of {} are not {shape:?}",
            quote(name),
            grid.rows,
            grid.cols,
        );
        return Err(Error::unexplained(what));
    }
    Ok(())
}

/// The job of a tensor that is not quantised, cast to a dtype if one is given.
pub(in crate::engine) fn plain(
    cx: &Context<'_>,
    tensor: usize,
    from: Dtype,
    cast: Option<Dtype>,
) -> Job {
    let info = cx.info(tensor);
    let to = cast.filter(|to| casts(from, *to)).unwrap_or(from);
    let work = if addressable(info) {
        let decoder = Cast {
            from,
            elements: info.elements(),
        };
        let rows = crate::plan::Decoder::grid(&decoder).rows_per_tile(to);
        JobWork::Tiles {
            decoder: std::sync::Arc::new(decoder),
            rows,
        }
    } else {
        JobWork::Stream {
            from,
            slice: TensorSlice::Whole,
        }
    };
    let parts = vec![StoredPart {
        role: "values",
        tensor,
    }];
    Job {
        output: TensorSpec::new(info.name.clone(), info.shape.clone(), to),
        scheme: PLAIN,
        parts,
        work,
    }
}

/// Refuses the later of two outputs with the same name.
pub(in crate::engine) fn twice(plan: &mut Plan, remedy: Remedy, budget: &Budget) -> Result<()> {
    // a hash table has up to 16/7 slots per entry
    const NAME: u64 = 3 * size_of::<&str>() as u64;
    let _seen = budget.temporary(NAME * plan.jobs.len() as u64, PLAN)?;
    let mut seen = std::collections::HashSet::with_capacity(plan.jobs.len());
    let names = plan.jobs.iter().map(|job| &*job.output.name);
    let repeated: Vec<usize> = names
        .enumerate()
        .filter_map(|(row, name)| (!seen.insert(name)).then_some(row))
        .collect();
    for &row in &repeated {
        let name = plan.jobs[row].output.name.clone();
        let error = Error::unexplained(format!("two weights would be called {}", quote(&name)))
            .with_remedy(remedy);
        plan.refuse(&name, error, budget)?;
    }
    let (mut row, mut repeated) = (0, repeated.into_iter().peekable());
    plan.jobs.retain(|_| {
        let keep = repeated.next_if_eq(&row).is_none();
        row += 1;
        keep
    });
    Ok(())
}

/// The job that dequantises a weight into `dtype`, tile by tile.
fn decode_job(weight: Weight, dtype: Dtype) -> Job {
    let rows = weight.decoder.grid().rows_per_tile(dtype);
    Job {
        output: TensorSpec::new(weight.name, weight.shape, dtype),
        scheme: weight.scheme,
        parts: weight.parts,
        work: JobWork::Tiles {
            decoder: weight.decoder,
            rows,
        },
    }
}
