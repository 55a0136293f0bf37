//! The output of one checkpoint: planned first, then written.

use std::path::Path;

use anamnesis::sink::Sharding;
use anamnesis::{Checkpoint, Dtype, Names, OutputDtype, Plan};

use super::{OutputNames, configure, wrapper_prefix};
use crate::args::RememberArgs;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::name_filter::NameFilter;
use crate::output::{Screen, progress};
use crate::written_run::{RecordedRun, WrittenReport, WrittenRun, notes_of, show_refused};

/// The output of one checkpoint, which is planned and not yet written.
pub(super) struct PlannedOutput<'c> {
    args: &'c RememberArgs,
    checkpoint: &'c Checkpoint,
    source: &'c Path,
    output: &'c Path,
    sharding: Sharding,
    pub(super) remember: anamnesis::Remember<'c>,
    recording: Option<RecordedRun<'c>>,
    pub(super) plan: Plan,
}

impl<'c> PlannedOutput<'c> {
    pub(super) fn new(
        args: &'c RememberArgs,
        names: &'c OutputNames<'_>,
        checkpoint: &'c Checkpoint,
        source: &'c Path,
        output: &'c Path,
        screen: &Screen,
    ) -> Result<Self, Failure> {
        let remember = configure(checkpoint, &args.weights, &names.filter);
        let sharding = remember.sharding(output, args.shard_size)?;
        let default = match sharding {
            // clients take the dtype from the configuration next to the shards; a single file has none
            Sharding::Shards(_) => OutputDtype::Auto,
            Sharding::SingleFile => Dtype::BF16.into(),
        };
        let kind_of_names = match sharding {
            // clients open a directory, and find tensors by the names of their classes
            Sharding::Shards(_) => Names::HuggingFace,
            Sharding::SingleFile => Names::Stored,
        };
        let remember = remember
            .dtype(args.weights.dtype.unwrap_or(default))
            .names(args.weights.names.unwrap_or(kind_of_names))
            .threads(args.threads)
            .code(args.code)
            .untie(args.untie)
            .for_output(&sharding)
            .overwrite(args.overwrite);
        let remember = match names.changes.is_empty() {
            true => remember,
            false => remember.rename(|name| names.changes.apply(name)),
        };
        let recording = RecordedRun::new(args.record.as_ref(), checkpoint);
        let loader = recording.iter().map(|recording| recording.loader.clone());
        let remember = loader.fold(remember, anamnesis::Remember::loader);
        // made before the sink: a refused checkpoint must not leave an empty output
        let plan = remember.plan()?;
        // a pattern without a match is named before anything else
        let nothing = plan.jobs.is_empty() && plan.refused.is_empty();
        let required = nothing.then(|| names.filter.require_matches());
        required
            .transpose()
            .map_err(|failure| failure.in_file(source))?;
        require_weights(&plan, checkpoint, source, &names.filter)?;
        show_refused(&plan, screen);
        Ok(Self {
            args,
            checkpoint,
            source,
            output,
            sharding,
            remember,
            recording,
            plan,
        })
    }

    pub(super) fn write(self, interrupt: &Interrupt) -> Result<WrittenReport, Failure> {
        let dtype = self.remember.output_dtype()?;
        let mut notes = notes_of(&self.plan);
        notes.extend(wrapper_prefix(self.checkpoint, &self.plan, self.args));
        let sink = self.remember.safetensors(self.output, self.sharding)?;
        let run = WrittenRun {
            checkpoint: self.checkpoint,
            source: self.source,
            output: self.output,
            opening: &self.args.opening,
            overwrite: self.args.overwrite,
            recording: self.recording,
            plan: &self.plan,
            dtype: Some(dtype),
            file_type: None,
            notes,
        };
        run.finish(sink, interrupt, |bar, sink| {
            let remember = self.remember.progress(progress::on(bar));
            remember.cancel(interrupt.token()).run(&self.plan, sink)
        })
    }
}

/// Refuses a plan without any weight.
///
/// # Errors
///
/// There is none, or the filters leave none; the exit status is 2, as of invalid arguments.
pub(crate) fn require_weights(
    plan: &Plan,
    checkpoint: &Checkpoint,
    source: &Path,
    filter: &NameFilter<'_>,
) -> Result<(), Failure> {
    if !plan.jobs.is_empty() || !plan.refused.is_empty() {
        return Ok(());
    }
    let (what, help) = match checkpoint.tensors().len() {
        0 => ("there is no weight", "choose a file that holds some"),
        _ if !filter.has_patterns() => (
            "there is no weight: all tensors are parts of weights whose other parts are absent",
            "`anamnesis convert` copies tensors as they are stored",
        ),
        _ => (
            "no weight is left by the filters",
            "check --filter and --exclude",
        ),
    };
    let failure = Failure::new("no_match", what, help);
    Err(failure.in_file(source).of_arguments())
}
