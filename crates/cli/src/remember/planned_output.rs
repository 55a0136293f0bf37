//! The output of one checkpoint: planned first, then written.

use std::path::Path;
use std::sync::Arc;

use anamnesis::load::{Loader, RecordingLoader, StorageInfo, choose};
use anamnesis::plan::PLAIN;
use anamnesis::quote::escape;
use anamnesis::sink::Sharding;
use anamnesis::{Checkpoint, Dtype, Names, OutputDtype, Plan};

use super::{OutputNames, WrittenReport, configure, notes_of, wrapper_prefix};
use crate::args::RememberArgs;
use crate::checkpoint_warnings::about_place;
use crate::exit::{Failure, refusal_text};
use crate::interrupt::Interrupt;
use crate::output::{Screen, progress};
use crate::template;

/// The output of one checkpoint, which is planned and not yet written.
pub(super) struct PlannedOutput<'c> {
    args: &'c RememberArgs,
    checkpoint: &'c Checkpoint,
    source: &'c Path,
    output: &'c Path,
    sharding: Sharding,
    remember: anamnesis::Remember<'c>,
    recording: Option<RecordingLoader<Arc<dyn Loader>>>,
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
            .overwrite(args.overwrite);
        let remember = match names.changes.is_empty() {
            true => remember,
            false => remember.rename(|name| names.changes.apply(name)),
        };
        // the loader that the run would choose itself, so that recording does not change the order of reads
        let recording = args
            .record
            .as_ref()
            .map(|_| RecordingLoader::new(choose(&StorageInfo::of(checkpoint), false).loader));
        let remember = recording
            .iter()
            .cloned()
            .fold(remember, anamnesis::Remember::loader);
        // made before the sink: a refused checkpoint must not leave an empty output
        let plan = remember.plan()?;
        if plan.jobs.is_empty() && plan.refused.is_empty() {
            // a pattern without a match is named before anything else
            let required = names.filter.require_matches();
            required.map_err(|failure| failure.in_file(source))?;
            let (what, help) = match checkpoint.tensors().len() {
                0 => ("there is no weight", "choose a file that holds some"),
                _ => (
                    "no weight is left by the filters",
                    "check --filter and --exclude",
                ),
            };
            let failure = Failure::new("no_match", what, help);
            return Err(failure.in_file(source).of_arguments());
        }
        // the first one is the error that ends the run
        for refused in plan.refused.iter().skip(1) {
            eprintln!(
                "{} {}",
                screen.paint(crate::output::REFUSED, "refused:"),
                escape(&refusal_text(&refused.error))
            );
        }
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
        let Self {
            args,
            source,
            remember,
            plan,
            ..
        } = self;
        let dtype = remember.output_dtype()?;
        let mut notes = notes_of(&plan);
        notes.extend(wrapper_prefix(self.checkpoint, &plan, args));
        let sink = remember.safetensors(self.output, self.sharding)?;
        let others = sink.companion_files().others_in(self.output);
        notes.extend(others.into_iter().map(|name| {
            format!("{name} was in the directory before, and stays: it is not of this model")
        }));
        let mut sink = args.opening.remote_sink(sink, interrupt.token());
        let plain = plan.jobs.iter().filter(|job| job.scheme == PLAIN).count();
        let (weights, nbytes) = (plan.jobs.len() - plain, plan.nbytes());
        // from here on there is output to remove, so an interrupt cancels instead of ending the process
        interrupt.handle();
        let bar = progress::bar("writing", nbytes);
        let result = remember
            .progress(progress::on(&bar))
            .cancel(interrupt.token())
            .run(&plan, &mut sink);
        bar.finish_and_clear();
        result.map_err(|e| Failure::from(e.in_file(source)))?;
        let recorded = self
            .recording
            .zip(args.record.as_ref())
            .map(|(recording, path)| {
                let template = recording
                    .template()
                    .map_err(|e| Failure::from(e.in_file(source)))?;
                template::save(&template, path, args.overwrite)
            });
        let recorded = recorded.transpose()?;
        let files = sink.files().map(std::path::Path::to_owned).collect();
        let beside = sink.companion_files();
        Ok(WrittenReport {
            about_place: about_place(self.checkpoint),
            files,
            companions: beside.files.iter().map(|file| file.name.clone()).collect(),
            left_out: beside.left_out.clone(),
            left_out_more: beside.left_out_more,
            is_stored: false,
            dtypes: vec![dtype],
            weights,
            plain,
            nbytes,
            notes,
            recorded,
        })
    }
}
