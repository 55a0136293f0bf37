//! The plan of a conversion: one job for each stored tensor, which copies it.

use std::sync::Arc;

use crate::base::error::{Error, Remedy, Result};
use crate::base::kernel::Dtype;
use crate::base::limits::{Budget, text_cost};
use crate::base::note::Note;
use crate::engine::companions::adapter_entries_that_stay;
use crate::engine::remember::planning::{PLAN, config, context, fits, plain, reader, twice};
use crate::engine::remember::tied;
use crate::models::parallel::WorkerShares;
use crate::plan::decode::StoredBlocks;
use crate::plan::{Decoder, Job, JobWork, Plan, addressable};
use crate::quant::account::sidecars;
use crate::quant::scheme::Context;
use crate::read::catalog::{Encoding, Endian, Layout, quote, repeated};
use crate::read::rename::Renames;

use super::weight_parts::{groups, selected};
use super::{Convert, shares, written_plan};

/// The scheme of tensors that are copied as parts of a quantised weight.
pub(super) const STORED: &str = "stored";

/// The note about a worker's share.
const SHARE: &str = "one worker's share: the configuration beside it is of the whole model";

/// Memory of a job and its decoder.
const JOB: u64 = 512;

/// The plan of weights that are dequantised, under their new names.
pub(super) fn dequantised(what: &Convert<'_>, renames: &Renames) -> Result<Plan> {
    let weights = match what.exclude.clone() {
        Some(leave) => {
            let selection = what.weights.options.selection.clone();
            what.weights
                .clone()
                .filter(move |name| selection.contains(name) && !leave(name))
        }
        None => what.weights.clone(),
    };
    let mut plan = weights.plan()?;
    // a conversion keeps the names, of whichever program they are
    let is_of_names = |note: &Note| note.remedy() == Some(Remedy::NameAsTransformers);
    plan.output_notes.retain(|note| !is_of_names(note));
    let budget = what.weights.checkpoint.budget();
    if let Some(parallel) = &what.parallel {
        let shares = parallel.shares(&what.weights.checkpoint, &budget)?;
        let names = || plan.jobs.iter().map(|job| &*job.output.name);
        let about_heads = shares.check_heads(names())?;
        let is_cut = names().any(|name| shares.divides(name));
        check_cut(&plan, &shares, is_cut)?;
        plan.notes.extend(about_heads);
    }
    rename(&mut plan, renames, &budget)?;
    Ok(plan)
}

/// The plan of tensors that are copied.
pub(super) fn stored(what: &Convert<'_>, renames: &Renames) -> Result<Plan> {
    let weights = &what.weights;
    let checkpoint = &*weights.checkpoint;
    let budget = checkpoint.budget();
    let config = config(weights, &budget)?;
    let read = reader(checkpoint);
    let sidecars = sidecars(checkpoint, &budget)?;
    let cx = context(weights, &config, &read, &sidecars, &budget);
    let check = || weights.options.control.check();
    let mut plan = Plan::default();
    let weights_of_source = groups(&cx, &mut plan, &check)?;
    let groups = &weights_of_source.groups;
    // copies are as they were, whatever explains them
    let unexplained = std::mem::take(&mut plan.unexplained);
    let includes = |name: &str| weights.options.selection.contains(name);
    let excludes = |name: &str| what.excludes(name);
    let kept = selected(&cx, groups, &includes, &excludes)?;
    plan.notes.extend(weights_of_source.note(&cx, &kept)?);
    let mut is_part = vec![false; kept.len()];
    for group in groups {
        group.tensors.iter().for_each(|&part| is_part[part] = true);
    }
    for tensor in (0..kept.len()).filter(|&tensor| kept[tensor]) {
        check()?;
        let info = cx.info(tensor);
        budget.memory(JOB + text_cost(info.name.len()), PLAN)?;
        let allowed = checkpoint.limits().tile_bytes;
        let job = copy(&cx, tensor).and_then(|job| fits(&cx, &job, allowed).map(|()| job));
        match job {
            Ok(mut job) => {
                if is_part[tensor] {
                    job.scheme = STORED;
                }
                // the only array of a file that names none
                let can_be_alone = matches!(cx.catalog.format, "npy" | "pth");
                if can_be_alone && info.name.is_empty() && cx.catalog.tensors().len() == 1 {
                    job.output.name = unnamed(checkpoint).into();
                }
                budget.push(&mut plan.jobs, job, PLAN)?;
            }
            Err(error) => plan.refuse(&info.name, error, &budget)?,
        }
    }
    let listed = cx.catalog.refused.iter();
    for listed in listed.filter(|listed| includes(&listed.name) && !excludes(&listed.name)) {
        let text = format!("{}: {}", quote(&listed.name), listed.reason);
        let error = Error::unsupported(text).with_remedy(Remedy::LeaveOut);
        plan.refuse(&listed.name, error, &budget)?;
    }
    let is_renamed = |name: &str| renames.preview(name) != name;
    if !weights.untie
        && checkpoint.catalog().format() == "pth"
        && let Some(note) = tied::leave_out(&mut plan, cx.catalog, &config, &is_renamed)
    {
        plan.output_notes.push(note.into());
    }
    rename(&mut plan, renames, &budget)?;
    if !renames.is_empty() {
        let names = what.renamed_tensors(renames);
        let note = adapter_entries_that_stay(checkpoint, &names, &budget)?;
        plan.output_notes.extend(note);
    }
    plan.quantised = cx.quantised();
    plan.notes.extend(cx.take_notes());
    plan.notes.dedup();
    if plan.refused.is_empty() {
        let source = (&weights_of_source, &*kept);
        let notes = written_plan::check(&cx, what, renames, &plan, source, &unexplained)?;
        plan.output_notes.extend(notes);
    }
    if let Some(parallel) = &what.parallel {
        let shares = parallel.shares(checkpoint, &budget)?;
        let names = plan.jobs.iter().map(|job| cx.info(job.parts[0].tensor));
        let about_heads = shares.check_heads(names.map(|info| &*info.name))?;
        let is_cut = shares::cut(&cx, &mut plan, &weights_of_source, &shares)?;
        check_cut(&plan, &shares, is_cut)?;
        plan.notes.extend(about_heads);
        plan.notes.push(SHARE.to_owned());
    }
    Ok(plan)
}

/// Refuses a share that is all of every tensor: it is one in name only.
fn check_cut(plan: &Plan, shares: &WorkerShares<'_>, is_cut: bool) -> Result<()> {
    let workers = shares.workers();
    match plan.jobs.first() {
        Some(job) if !is_cut && workers > 1 => Err(Error::invalid_argument(format!(
            "no tensor is divided among {workers} workers, such as {}: no rule of tensor parallelism is for these names, or their shapes have nothing to divide",
            quote(&job.output.name)
        ))),
        _ => Ok(()),
    }
}

/// Gives the outputs their new names, and refuses those that two would have.
fn rename(plan: &mut Plan, renames: &Renames, budget: &Budget) -> Result<()> {
    if !renames.is_empty() {
        for job in &mut plan.jobs {
            let renamed = renames.apply(&job.output.name);
            budget.memory(text_cost(renamed.len()), PLAN)?;
            job.output.name = renamed.into();
        }
    }
    let remedy = match renames.swap() {
        true => Remedy::RenameApart,
        false => Remedy::LeaveOutOrRename,
    };
    if !renames.is_empty()
        && let Some(name) = repeated(plan.jobs.iter().map(|job| &*job.output.name))
    {
        let what = format!("two tensors would be called {}", quote(name));
        return Err(Error::invalid_argument(what).with_remedy(remedy));
    }
    twice(plan, remedy, budget)
}

/// The job that copies a tensor.
fn copy(cx: &Context<'_>, tensor: usize) -> Result<Job> {
    let info = cx.info(tensor);
    let refused = |what: &str, remedy| {
        let what = format!("tensor {}: {what}", quote(&info.name));
        Err(Error::unsupported(what).with_remedy(remedy))
    };
    match &info.layout {
        Layout::Absent => {
            let what = "it was saved without data (PyTorch's meta device)";
            return refused(what, Remedy::LeaveOut);
        }
        Layout::Sparse(_) => {
            let what = "it is sparse, and must be made dense before it is saved";
            return refused(what, Remedy::LeaveOut);
        }
        _ => {}
    }
    match &info.encoding {
        Encoding::Plain(dtype) => Ok(plain(cx, tensor, *dtype, None)),
        Encoding::Block(format) => blocks(cx, tensor, format),
        Encoding::Opaque(item) => {
            let is_void = item.name.starts_with('V') && item.fields.is_empty();
            let remedy = match is_void {
                true => Remedy::LeaveOutOrReadItems,
                false => Remedy::LeaveOut,
            };
            refused(
                &format!("its items {} have no dtype", info.encoding),
                remedy,
            )
        }
    }
}

/// The job that copies the blocks of a tensor.
fn blocks(
    cx: &Context<'_>,
    tensor: usize,
    format: &'static anamnesis_kernel::BlockFormat,
) -> Result<Job> {
    let info = cx.info(tensor);
    if !addressable(info) {
        let what = format!(
            "tensor {}: its blocks are not stored as such",
            quote(&info.name)
        );
        return Err(Error::unsupported(what).with_remedy(Remedy::LeaveOut));
    }
    let decoder = StoredBlocks {
        format,
        count: info.elements() / u64::from(format.block_len),
        big: info.endian == Endian::Big,
    };
    let mut job = plain(cx, tensor, Dtype::U8, None);
    job.work = JobWork::Tiles {
        rows: decoder.grid().rows_per_tile(Dtype::U8),
        decoder: Arc::new(decoder),
    };
    job.output.block = Some(format);
    // a converter has flattened the rows, which were shorter than a block
    let len = u64::from(format.block_len);
    if info
        .shape
        .last()
        .is_some_and(|row| !row.is_multiple_of(len))
    {
        job.output.shape = [info.elements() / len, len].into_iter().collect();
    }
    Ok(job)
}

/// The name of the only array of a file that names none: the file's.
fn unnamed(checkpoint: &crate::read::checkpoint::Checkpoint) -> String {
    let stem = checkpoint.path().and_then(std::path::Path::file_stem);
    stem.map_or("array".into(), |stem| stem.to_string_lossy().into_owned())
}
