//! A run that writes a checkpoint, which `convert` and `remember` share: the template of `--record`, refusals, the bar, the report.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anamnesis::companions::LeftOut;
use anamnesis::load::{Loader, RecordingLoader, StorageInfo, choose};
use anamnesis::plan::PLAIN;
use anamnesis::quote::escape;
use anamnesis::sink::FileSink;
use anamnesis::{Checkpoint, Dtype, Plan};
use indicatif::ProgressBar;

use crate::args::{OpenArgs, TypeArgument};
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::messages::message;
use crate::output::{REFUSED, Screen, progress};
use crate::remedies::{note_text, refusal_text};
use crate::template::SavedTemplate;
use crate::written_file::check_apart;
use crate::{checkpoint_warnings, template};

type Recording = RecordingLoader<Arc<dyn Loader>>;

/// The output of a run.
#[derive(Default)]
pub(crate) struct WrittenReport {
    pub(crate) files: Vec<PathBuf>,
    /// Names of the files beside the tensors.
    pub(crate) companions: Vec<String>,
    /// Files of the source that were not copied.
    pub(crate) left_out: Vec<LeftOut>,
    /// The number of further ones.
    pub(crate) left_out_more: u64,
    /// Whether weights were copied as they are stored.
    pub(crate) is_stored: bool,
    /// The name of the file type that weights were quantised to.
    pub(crate) file_type: Option<&'static str>,
    /// The dtypes of dequantised weights: one for each component of a pipeline, without repetitions.
    pub(crate) dtypes: Vec<Dtype>,
    pub(crate) weights: usize,
    pub(crate) plain: usize,
    pub(crate) nbytes: u64,
    pub(crate) notes: Vec<String>,
    /// The warnings of opening that are on standard error, for a document, which stands alone.
    pub(crate) about_place: Vec<String>,
    pub(crate) recorded: Option<SavedTemplate>,
}

impl WrittenReport {
    /// `BF16`, `BF16, F32` or `stored`.
    pub(crate) fn dtype(&self) -> String {
        match (self.file_type, self.is_stored) {
            (Some(name), _) => name.to_owned(),
            (None, true) => "stored".to_owned(),
            (None, false) => names_of(&self.dtypes),
        }
    }
}

/// `BF16`, or `BF16, F32`.
pub(crate) fn names_of(dtypes: &[Dtype]) -> String {
    let names: Vec<String> = dtypes.iter().map(Dtype::to_string).collect();
    names.join(", ")
}

/// The notes of a plan, in the words of this command.
pub(crate) fn notes_of(plan: &Plan) -> Vec<String> {
    let of_outputs = plan.output_notes.iter().map(note_text);
    plan.notes.iter().cloned().chain(of_outputs).collect()
}

/// Refuses a template that cannot be written, before the work: a run of minutes should not end at a file that exists.
pub(crate) fn check_record(
    record: Option<&PathBuf>,
    output: &Path,
    overwrite: bool,
    sources: &[PathBuf],
) -> Result<(), Failure> {
    let Some(path) = record else {
        return Ok(());
    };
    check_apart(path, output)?;
    template::check_output(path, overwrite, sources)
}

/// A plan that is about to be executed.
pub(crate) struct WrittenRun<'r> {
    pub(crate) checkpoint: &'r Checkpoint,
    pub(crate) source: &'r Path,
    pub(crate) output: &'r Path,
    pub(crate) opening: &'r OpenArgs,
    pub(crate) overwrite: bool,
    pub(crate) recording: Option<RecordedRun<'r>>,
    pub(crate) plan: &'r Plan,
    /// The dtype of dequantised weights; `None` if they are copied.
    pub(crate) dtype: Option<Dtype>,
    /// The file type that weights are quantised to.
    pub(crate) file_type: TypeArgument,
    pub(crate) notes: Vec<String>,
}

/// The loader whose reads are recorded, and the path of the template.
pub(crate) struct RecordedRun<'r> {
    path: &'r Path,
    pub(crate) loader: Recording,
}

impl<'r> RecordedRun<'r> {
    /// With the loader that a run would choose itself, so that recording does not change the order of reads.
    pub(crate) fn new(record: Option<&'r PathBuf>, checkpoint: &Checkpoint) -> Option<Self> {
        record.map(|path| Self {
            path,
            loader: RecordingLoader::new(choose(&StorageInfo::of(checkpoint), false).loader),
        })
    }
}

/// Shows the weights that are refused, but the first: that is the error which ends the run.
pub(crate) fn show_refused(plan: &Plan, screen: &Screen) {
    for refused in plan.refused.iter().skip(1) {
        let text = refusal_text(&refused.error);
        message!("{} {}", screen.paint(REFUSED, "refused:"), escape(&text));
    }
}

impl WrittenRun<'_> {
    /// Executes the plan into a sink; `execute` does so with the bar.
    pub(crate) fn finish(
        mut self,
        sink: FileSink,
        interrupt: &Interrupt,
        execute: impl FnOnce(&ProgressBar, &mut FileSink) -> anamnesis::Result<()>,
    ) -> Result<WrittenReport, Failure> {
        let (source, plan) = (self.source, self.plan);
        let others = sink.companion_files().others_in(self.output);
        self.notes.extend(others.into_iter().map(|name| {
            format!("{name} was in the directory before, and stays: it is not of this model")
        }));
        let mut sink = self.opening.remote_sink(sink, interrupt.token());
        let plain = plan.jobs.iter().filter(|job| job.scheme == PLAIN).count();
        let (weights, nbytes) = (plan.jobs.len() - plain, plan.nbytes());
        // from here on there is output to remove, so an interrupt cancels instead of ending the process
        interrupt.handle();
        let bar = progress::bar("writing", nbytes);
        let result = execute(&bar, &mut sink);
        bar.finish_and_clear();
        result.map_err(|e| Failure::from(e.in_file(source)))?;
        let recorded = self.recording.map(|recording| {
            let template = recording.loader.template();
            let template = template.map_err(|e| Failure::from(e.in_file(source)))?;
            template::save(&template, recording.path, self.overwrite)
        });
        let recorded = recorded.transpose();
        let recorded = recorded.map_err(|failure| {
            failure.after("the output is complete, and the template of its reads is not written")
        })?;
        let beside = sink.companion_files();
        Ok(WrittenReport {
            about_place: checkpoint_warnings::about_place(self.checkpoint),
            files: sink.files().map(Path::to_owned).collect(),
            companions: beside.files.iter().map(|file| file.name.clone()).collect(),
            left_out: beside.left_out.clone(),
            left_out_more: beside.left_out_more,
            is_stored: self.dtype.is_none(),
            file_type: self.file_type.map(|file_type| file_type.name),
            dtypes: self.dtype.into_iter().collect(),
            weights,
            plain,
            nbytes,
            notes: self.notes,
            recorded,
        })
    }
}
