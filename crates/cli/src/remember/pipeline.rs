//! A pipeline of diffusers: a directory whose `model_index.json` names components, each of which is a directory of its own.
//!
//! Components with tensors are dequantised one after the other; the others (tokenizers, schedulers) are copied.
//! `model_index.json`, by which clients open the pipeline, is written last.

use std::fs;
use std::path::{Path, PathBuf};

use anamnesis::companions::{Companions, LeftOut};
use anamnesis::quote::escape;
use anamnesis::sink::write_companions;
use anamnesis::{Checkpoint, Dtype, ErrorKind};
use anamnesis_os::files::is_within;
use anamnesis_os::whole_file;
use serde_json::Value;

use super::OutputNames;
use super::planned_output::PlannedOutput;
use crate::args::RememberArgs;
use crate::checkpoint_warnings;
use crate::exit::again;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::output::Screen;
use crate::written_run::WrittenReport;

const INDEX: &str = "model_index.json";

/// The longest index, in bytes.
const MAX_INDEX: u64 = 1 << 20;

/// Beginnings of names of components that have no weights. Without one, a pipeline is incomplete, and no weight is missing.
static WITHOUT_WEIGHTS: &[&str] = &[
    "scheduler",
    "tokenizer",
    "feature_extractor",
    "image_processor",
];

/// Whether a path is the directory of a pipeline.
pub(super) fn is_pipeline(source: &Path) -> bool {
    source.is_dir() && source.join(INDEX).is_file()
}

pub(super) fn write_all(
    args: &RememberArgs,
    names: &OutputNames<'_>,
    screen: &Screen,
    interrupt: &Interrupt,
) -> Result<WrittenReport, Failure> {
    let (source, output) = (&args.source, &args.output);
    // a template has one order of reads over the files of one model
    if args.record.is_some() {
        let help = "record one component: `remember SOURCE/unet -o OUT/unet --record …`";
        let failure = Failure::new(
            "invalid_argument",
            "a pipeline is several checkpoints",
            help,
        );
        return Err(failure.in_file(source));
    }
    // the next run would take the output for a component
    if is_within(output, source) {
        let what = "the output would be written into its own source";
        return Err(Failure::new("invalid_argument", what, "choose another path").in_file(output));
    }
    let folder = PipelineFolder::list(source)?;
    let (without_weights, missing): (Vec<_>, Vec<_>) = missing(args, &folder.components)?
        .into_iter()
        .partition(|name| WITHOUT_WEIGHTS.iter().any(|start| name.starts_with(start)));
    if !missing.is_empty() {
        let what = format!(
            "{INDEX} names components that are not there: {}",
            missing.join(", ")
        );
        let help = "download them too, or set them to null in it";
        return Err(Failure::new("missing_part", what, help).in_file(source));
    }
    let mut components: Vec<Component<'_>> = Vec::new();
    for name in &folder.components {
        let (from, to) = (source.join(name), output.join(name));
        let model = opened(args, source, &from, screen, interrupt)?;
        // a directory, also where it has a dot in its name
        let output = if model.is_some() { to.join("") } else { to };
        components.push(Component {
            name,
            from,
            output,
            model,
        });
    }
    // a component that is refused ends the run before the first of them is written
    let mut planned = Vec::new();
    for Component {
        from,
        output,
        model,
        ..
    } in &components
    {
        let plan = |model| PlannedOutput::new(args, names, model, from, output, screen);
        let model = model.as_ref().map(plan).transpose()?;
        if let Some(model) = &model {
            let checked = model.plan.check();
            checked.map_err(|e| Failure::from(e).in_file(from))?;
        }
        planned.push(model);
    }
    // after all components: a pattern is usually for one of them
    names.require_matches(source)?;
    let mut report = WrittenReport::default();
    for (component, planned) in components.iter().zip(planned) {
        if let Some(planned) = planned {
            let mut planned = Some(planned);
            let written = again(|| match planned.take() {
                Some(planned) => planned.write(interrupt),
                // another run has replaced the component since it was opened
                None => component.write_anew(args, names, screen, interrupt),
            });
            // those before it are written, so that the whole is not run again
            report.add(component.name, written.map_err(Failure::at_last)?);
            continue;
        }
        let companions = companions_of(args, &component.from)?;
        if !companions.files.is_empty() {
            write_companions(&component.output, &companions.files, args.overwrite)?;
        }
        report.add_companions(component.name, companions);
    }
    let mut top = companions_of(args, source)?;
    top.left_out
        .retain(|left| !folder.has_component(left.name.trim_end_matches('/')));
    // `false` sorts first: the index comes last, when all that it names is there
    top.files.sort_by_key(|file| file.name == INDEX);
    write_companions(output, &top.files, args.overwrite)?;
    report.add_companions("", top);
    if !without_weights.is_empty() {
        let names = without_weights.join(", ");
        let note = format!("{INDEX} names components that are not there: {names}");
        report.notes.push(note);
    }
    if !folder.beside.is_empty() {
        let note = format!(
            "not read: {} (beside the components of the pipeline)",
            folder.beside.join(", ")
        );
        report.notes.push(note);
    }
    Ok(report)
}

/// The components that the index names and the directory lacks.
fn missing(args: &RememberArgs, components: &[String]) -> Result<Vec<String>, Failure> {
    let path = args.source.join(INDEX);
    // its length is the directory's owner's: a real one has a few lines
    let text =
        whole_file::read_below(&args.source, &args.source.join(INDEX), MAX_INDEX).map_err(|e| {
            match e.kind() {
                std::io::ErrorKind::FileTooLarge => {
                    let help = "an index names the components in a few lines: fetch it again";
                    Failure::new("limit", "longer than 1 MiB", help).in_file(&path)
                }
                _ => Failure::io(e, &path),
            }
        })?;
    // clients say more about an index that is not JSON; its folders are there all the same
    let Ok(Value::Object(index)) = serde_json::from_slice(&text) else {
        return Ok(Vec::new());
    };
    // `["library", "Class"]`; null stands for a component that the pipeline does without
    let is_component = |value: &Value| match value.as_array().map(Vec::as_slice) {
        Some([library, class]) => library.is_string() && class.is_string(),
        _ => false,
    };
    let named = index
        .into_iter()
        .filter(|(name, value)| !name.starts_with('_') && is_component(value));
    let lacking = named
        .map(|(name, _)| name)
        .filter(|name| !components.contains(name));
    Ok(lacking.map(|name| escape(&name).into_owned()).collect())
}

/// A component of a pipeline.
struct Component<'p> {
    name: &'p str,
    from: PathBuf,
    output: PathBuf,
    /// Its tensors; a tokenizer or a scheduler has none.
    model: Option<Checkpoint>,
}

impl Component<'_> {
    /// Opens, plans and writes it.
    fn write_anew(
        &self,
        args: &RememberArgs,
        names: &OutputNames<'_>,
        screen: &Screen,
        interrupt: &Interrupt,
    ) -> Result<WrittenReport, Failure> {
        let model = opened(args, &args.source, &self.from, screen, interrupt)?;
        let model = model.ok_or_else(|| {
            let help = "run this again, when the other run has ended";
            let what = "another run has removed the tensors of this component";
            Failure::new("missing_part", what, help).in_file(&self.from)
        })?;
        let (from, to) = (&self.from, &self.output);
        PlannedOutput::new(args, names, &model, from, to, screen)?.write(interrupt)
    }
}

/// The names in the directory of a pipeline, sorted.
struct PipelineFolder {
    components: Vec<String>,
    /// Tensor files beside the components, which are models of their own, such as all components in one file.
    beside: Vec<String>,
}

impl PipelineFolder {
    fn has_component(&self, name: &str) -> bool {
        self.components.iter().any(|component| component == name)
    }

    fn list(source: &Path) -> Result<Self, Failure> {
        const ENDINGS: &[&str] = &["safetensors", "bin", "ckpt", "pt", "pth", "gguf"];
        let failure = |e: std::io::Error| Failure::io(e, source);
        let (mut components, mut beside) = (Vec::new(), Vec::new());
        for entry in fs::read_dir(source).map_err(failure)? {
            let entry = entry.map_err(failure)?;
            let Ok(name) = entry.file_name().into_string() else {
                continue;
            };
            let end = name.rsplit_once('.').map(|(_, end)| end);
            // a hub's cache contains links to files, and real directories
            if entry.path().is_dir() {
                components.extend((!name.starts_with('.')).then_some(name));
            } else if end.is_some_and(|end| ENDINGS.contains(&end)) {
                beside.push(name);
            }
        }
        // the order of a directory differs between file systems, and notes follow it
        components.sort();
        beside.sort();
        Ok(Self { components, beside })
    }
}

/// The tensors of a component, if it has any.
fn opened(
    args: &RememberArgs,
    source: &Path,
    directory: &Path,
    screen: &Screen,
    interrupt: &Interrupt,
) -> Result<Option<Checkpoint>, Failure> {
    let options = args.opening.options().cancel(interrupt.token());
    match options.found_in(source).open(directory) {
        Ok(checkpoint) => {
            checkpoint_warnings::show(&checkpoint, screen);
            Ok(Some(checkpoint))
        }
        // a tokenizer or a scheduler; any other error is a component that would be missing
        Err(e) if matches!(e.kind(), ErrorKind::UnknownFormat { .. }) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

fn companions_of(args: &RememberArgs, directory: &Path) -> Result<Companions, Failure> {
    let limits = args.opening.limits();
    Ok(Companions::in_directory(
        directory,
        Dtype::BF16,
        args.code,
        limits,
    )?)
}

impl WrittenReport {
    /// Adds what was written of a component.
    fn add(&mut self, component: &str, written: Self) {
        let inside = |name: String| format!("{component}/{name}");
        self.files.extend(written.files);
        self.companions
            .extend(written.companions.into_iter().map(inside));
        self.leave(written.left_out.into_iter(), inside, written.left_out_more);
        for dtype in written.dtypes {
            if !self.dtypes.contains(&dtype) {
                self.dtypes.push(dtype);
            }
        }
        self.weights += written.weights;
        self.plain += written.plain;
        self.nbytes += written.nbytes;
        let of_component = |note: String| format!("{component}: {note}");
        self.notes
            .extend(written.notes.into_iter().map(of_component));
        self.about_place
            .extend(written.about_place.into_iter().map(of_component));
    }

    fn add_companions(&mut self, component: &str, companions: Companions) {
        let inside = |name: String| match component {
            "" => name,
            component => format!("{component}/{name}"),
        };
        let names = companions.files.into_iter().map(|file| file.name);
        self.companions.extend(names.map(inside));
        self.leave(
            companions.left_out.into_iter(),
            inside,
            companions.left_out_more,
        );
    }

    fn leave(
        &mut self,
        left: impl Iterator<Item = LeftOut>,
        inside: impl Fn(String) -> String,
        more: u64,
    ) {
        self.left_out.extend(left.map(|left| LeftOut {
            name: inside(left.name),
            reason: left.reason,
        }));
        // the reason first: each is one note
        self.left_out
            .sort_by(|a, b| (a.reason, &a.name).cmp(&(b.reason, &b.name)));
        self.left_out_more += more;
    }
}
