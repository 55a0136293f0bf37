//! `anamnesis plan`: shows what `remember` would read and write.

use std::io::Write;

use anamnesis::plan::{Job, JobWork, PLAIN};
use anamnesis::quote::escape;
use anamnesis::{ByteRange, Catalog, Dtype, Plan};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::json;

use crate::args::{Color, PlanArgs};
use crate::exit::{Completion, RunError, again};
use crate::failure::Failure;
use crate::output::table::{Column, ColumnFit, Table};
use crate::output::tensors::{ShapeText, name};
use crate::output::{BOLD, DIM, DTYPE, REFUSED, Screen, Stdout, WARNING, json};
use crate::remedies::refusal_text;
use crate::remember::{configure, require_weights};
use crate::shown_path::shown;
use crate::text::{ByteSize, ExactCount, plural};
use crate::written_run::notes_of;
use crate::{checkpoint_warnings, request_stats};

pub(crate) fn run(args: &PlanArgs, color: Color, out: &mut Stdout) -> Result<Completion, RunError> {
    let shown = again(|| plan_and_show(args, color, out));
    if let (Err(RunError::Failure(failure)), true) = (&shown, args.json) {
        json::write_failure(failure, out)?;
    }
    shown
}

fn plan_and_show(args: &PlanArgs, color: Color, out: &mut Stdout) -> Result<Completion, RunError> {
    let checkpoint = args
        .opening
        .options()
        .open(&args.source)
        .map_err(Failure::from)?;
    checkpoint_warnings::show(&checkpoint, &Screen::new(color));
    let filter = args.weights.name_filter();
    let remember = configure(&checkpoint, &args.weights, &filter);
    let in_source = |e: anamnesis::Error| Failure::from(e.in_file(&args.source));
    let plan = remember.plan().map_err(in_source)?;
    let required = filter.require_matches();
    required.map_err(|failure| failure.in_file(&args.source))?;
    if checkpoint.tensors().len() > 0 {
        require_weights(&plan, &checkpoint, &args.source, &filter)?;
    }
    let dtype = remember.output_dtype().map_err(in_source)?;
    let catalog = checkpoint.catalog();
    if args.json {
        let document = PlanDocument {
            args,
            plan: &plan,
            catalog,
            about_place: &checkpoint_warnings::about_place(&checkpoint),
        };
        json::write_line(&document, out)?;
    } else {
        show(args, dtype, &plan, catalog, &Screen::new(color), out)?;
    }
    Ok(if plan.refused.is_empty() {
        Completion::Done
    } else {
        // `remember` would refuse this checkpoint, and so a script learns it from the status
        Completion::Failed
    })
}

fn show(
    args: &PlanArgs,
    dtype: Dtype,
    plan: &Plan,
    catalog: &Catalog,
    screen: &Screen,
    out: &mut Stdout,
) -> Result<(), RunError> {
    let plain = plan.jobs.iter().filter(|job| job.scheme == PLAIN).count();
    let weights = plan.jobs.len() - plain;
    let read: u64 = plan.jobs.iter().map(|job| stored(job, catalog)).sum();
    let title = escape(&shown(&args.source)).into_owned();
    writeln!(out, "{}", screen.paint(BOLD, title))?;
    writeln!(
        out,
        "  {} as {}, {}: {} written, {} read",
        plural(weights as u64, "weight"),
        dtype,
        plural(plain as u64, "plain tensor"),
        ByteSize(plan.nbytes()),
        ByteSize(read)
    )?;
    if !plan.jobs.is_empty() {
        writeln!(out)?;
        table(args, plan, catalog).print(screen, out)?;
    }
    let notes = notes_of(plan);
    if !notes.is_empty() || !plan.refused.is_empty() {
        writeln!(out)?;
    }
    for note in &notes {
        writeln!(out, "{} {}", screen.paint(WARNING, "note:"), escape(note))?;
    }
    for refused in &plan.refused {
        writeln!(
            out,
            "{} {}",
            screen.paint(REFUSED, "refused:"),
            escape(&refusal_text(&refused.error))
        )?;
    }
    Ok(())
}

/// The table of outputs, each followed by its stored parts.
fn table(args: &PlanArgs, plan: &Plan, catalog: &Catalog) -> Table {
    let columns = vec![
        Column::left("weight").fit(ColumnFit::Middle(24)),
        Column::left("scheme").style(DIM),
        Column::left("dtype").style(DTYPE),
        Column::left("shape"),
        Column::right("bytes"),
        Column::left("source").fit(ColumnFit::End).style(DIM),
        Column::left("decoder").fit(ColumnFit::Below),
    ];
    let mut table = Table::new(columns, 0);
    let several = catalog.files().len() > 1;
    for job in &plan.jobs {
        table.cell(name(&job.output.name));
        table.cell(job.scheme);
        table.cell(job.output.dtype);
        table.cell(ShapeText(&job.output.shape));
        table.cell(ByteSize(job.output.nbytes().unwrap_or(u64::MAX)));
        table.cell(match &job.work {
            JobWork::Tiles { .. } => plural(job.tiles().count() as u64, "tile"),
            JobWork::Stream { .. } => "streamed".to_owned(),
        });
        table.cell(if args.long {
            escape(&decoder(job)).into_owned()
        } else {
            String::new()
        });
        for part in &job.parts {
            let info = &catalog.tensors()[part.tensor];
            table.cell_with_prefix("  ", part.role);
            table.cell("");
            table.cell(escape(info.encoding.name()));
            table.cell(ShapeText(&info.shape));
            table.cell(ByteSize(info.bytes.len));
            table.cell(byte_range(&info.bytes, several));
            table.cell("");
        }
    }
    table
}

/// Where a part is stored: `256..1,120`, with the file's number if there are several.
fn byte_range(bytes: &ByteRange, several: bool) -> String {
    let range = format!("{}..{}", ExactCount(bytes.start), ExactCount(bytes.end()));
    if several {
        format!("file {}, {range}", bytes.file)
    } else {
        range
    }
}

/// Size of a job's stored parts in bytes.
fn stored(job: &Job, catalog: &Catalog) -> u64 {
    // a part that several weights share counts for each: it is read for each of them
    job.parts
        .iter()
        .map(|part| catalog.tensors()[part.tensor].bytes.len)
        .sum()
}

fn decoder(job: &Job) -> String {
    match &job.work {
        JobWork::Tiles { decoder, .. } => format!("{decoder:?}"),
        JobWork::Stream { from, .. } => format!("Stream {{ from: {from} }}"),
    }
}

/// The document of `plan --json`. It is serialised as it is computed: a tree of its values takes 5 KB per weight.
struct PlanDocument<'p> {
    args: &'p PlanArgs,
    plan: &'p Plan,
    catalog: &'p Catalog,
    about_place: &'p [String],
}

impl Serialize for PlanDocument<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self {
            args,
            plan,
            catalog,
            about_place,
        } = self;
        let files = || {
            let files = catalog.files().iter();
            files.map(|f| f.path.as_ref().map(|path| shown(path)))
        };
        let refused = || {
            let refused = plan.refused.iter();
            refused.map(|r| json!({"name": &*r.name, "reason": refusal_text(&r.error)}))
        };
        let jobs = || {
            plan.jobs.iter().map(|job| JobDocument {
                job,
                catalog,
                with_decoder: args.long,
            })
        };
        // the number of entries depends on the options
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("version", &json::VERSION)?;
        map.serialize_entry("source", &shown(&args.source))?;
        map.serialize_entry("files", &Sequence(files))?;
        map.serialize_entry("jobs", &Sequence(jobs))?;
        map.serialize_entry("nbytes", &plan.nbytes())?;
        let notes = || about_place.iter().cloned().chain(notes_of(plan));
        map.serialize_entry("notes", &Sequence(notes))?;
        map.serialize_entry("refused", &Sequence(refused))?;
        if let Some(requests) = request_stats::document(&args.opening) {
            map.serialize_entry("requests", &requests)?;
        }
        map.end()
    }
}

/// One job of a [`PlanDocument`].
struct JobDocument<'p> {
    job: &'p Job,
    catalog: &'p Catalog,
    with_decoder: bool,
}

impl Serialize for JobDocument<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (job, catalog) = (self.job, self.catalog);
        let range = |bytes: ByteRange| (bytes.file, bytes.start, bytes.len);
        let parts = || {
            job.parts.iter().map(|part| {
                let info = &catalog.tensors()[part.tensor];
                json!({
                    "role": part.role, "name": &*info.name, "dtype": info.encoding.name(),
                    "shape": info.shape.as_slice(), "range": range(info.bytes),
                })
            })
        };
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("name", &*job.output.name)?;
        map.serialize_entry("dtype", &job.output.dtype)?;
        map.serialize_entry("shape", job.output.shape.as_slice())?;
        map.serialize_entry("nbytes", &job.output.nbytes())?;
        map.serialize_entry("scheme", job.scheme)?;
        map.serialize_entry("parts", &Sequence(parts))?;
        map.serialize_entry("reads", &Sequence(|| job.reads(catalog).map(range)))?;
        if self.with_decoder {
            map.serialize_entry("decoder", &decoder(job))?;
        }
        map.end()
    }
}

/// The items of the iterators that a function returns, as a JSON array.
struct Sequence<F>(F);

impl<F: Fn() -> I, I: Iterator<Item: Serialize>> Serialize for Sequence<F> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // `serialize` has a reference only, and an iterator is consumed: so each call makes one
        serializer.collect_seq((self.0)())
    }
}
