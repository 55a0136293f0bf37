//! `anamnesis convert`: copies tensors as they are stored.

use std::sync::Arc;

use anamnesis::load::{Loader, RecordingLoader, StorageInfo, choose};
use anamnesis::plan::PLAIN;
use anamnesis::quote::escape;
use anamnesis::{Checkpoint, Convert, OutputDtype, convert};

use crate::args::{Color, ConvertArgs};
use crate::exit::{Completion, Failure, RunError, note_text, refusal_text};
use crate::interrupt::Interrupt;
use crate::name_filter::{NameChanges, NameFilter};
use crate::output::{REFUSED, Screen, Stdout, progress};
use crate::remember::{ReportedRun, WrittenReport, notes_of};
use crate::written_file::{check_apart, check_output_name};
use crate::{checkpoint_warnings, template};

pub(crate) fn run(
    args: &ConvertArgs,
    color: Color,
    interrupt: &Interrupt,
    out: &mut Stdout,
) -> Result<Completion, RunError> {
    let screen = Screen::new(color);
    let reported = ReportedRun::begin(&args.sources, &args.output, args.json, &args.opening);
    let written = write(args, &screen, interrupt);
    reported.end(written, &screen, interrupt, out)
}

fn write(
    args: &ConvertArgs,
    screen: &Screen,
    interrupt: &Interrupt,
) -> Result<WrittenReport, Failure> {
    check_output_name(&args.output)?;
    if let Some(path) = &args.record {
        // before the work: a run of minutes should not end at a file that exists
        check_apart(path, &args.output)?;
        template::check_output(path, args.overwrite, &args.sources)?;
    }
    let filter = args.name_filter();
    let options = args.opening.options().cancel(interrupt.token());
    let opened = args.sources.iter().map(|source| options.open(source));
    let opened = opened.collect::<Result<Vec<_>, _>>()?;
    let checkpoint = Checkpoint::union(opened)?;
    checkpoint_warnings::show(&checkpoint, screen);
    let builder = configure(&checkpoint, args, &filter)?;
    // the loader that the run would choose itself, so that recording does not change the order of reads
    let recording = args.record.as_ref().map(|_| {
        RecordingLoader::<Arc<dyn Loader>>::new(choose(&StorageInfo::of(&checkpoint), false).loader)
    });
    let builder = recording.iter().cloned().fold(builder, Convert::loader);
    let sharding = builder.sharding(&args.output, args.shard_size)?;
    let source = &args.sources[0];
    // the library knows the error too, and not the nearest names
    let changes = NameChanges::new(args.strip_prefix.as_deref(), &args.rename);
    for tensor in checkpoint.tensors() {
        changes.apply(&tensor.info().name);
    }
    let matched = changes.require_matches();
    matched.map_err(|failure| failure.in_file(source))?;
    // made before the sink: a refused checkpoint must not leave an empty output
    let plan = builder
        .plan()
        .map_err(|e| Failure::from(e.in_file(source)))?;
    filter
        .require_matches()
        .map_err(|failure| failure.in_file(source))?;
    if plan.jobs.is_empty() && plan.refused.is_empty() && checkpoint.tensors().len() > 0 {
        let what = "no tensor is left by the filters";
        let failure = Failure::new("no_match", what, "check --filter and --exclude");
        return Err(failure.in_file(source).of_arguments());
    }
    for refused in plan.refused.iter().skip(1) {
        let text = escape(&refusal_text(&refused.error)).into_owned();
        eprintln!("{} {text}", screen.paint(REFUSED, "refused:"));
    }
    let mut notes = notes_of(&plan);
    let about_output = builder.notes(&args.output, &sharding)?;
    notes.extend(about_output.iter().map(note_text));
    let sink = builder.sink(&args.output, sharding)?;
    let mut sink = args.opening.remote_sink(sink, interrupt.token());
    let dtype = builder.output_dtype()?;
    let plain = plan.jobs.iter().filter(|job| job.scheme == PLAIN).count();
    let (weights, nbytes) = (plan.jobs.len() - plain, plan.nbytes());
    // from here on there is output to remove, so an interrupt cancels instead of ending the process
    interrupt.handle();
    let bar = progress::bar("writing", nbytes);
    let result = builder
        .progress(progress::on(&bar))
        .cancel(interrupt.token())
        .run(&plan, &mut sink);
    bar.finish_and_clear();
    result.map_err(|e| Failure::from(e.in_file(source)))?;
    let recorded = recording
        .zip(args.record.as_ref())
        .map(|(recording, path)| {
            let template = recording.template();
            let template = template.map_err(|e| Failure::from(e.in_file(source)))?;
            template::save(&template, path, args.overwrite)
        });
    let beside = sink.companion_files();
    Ok(WrittenReport {
        about_place: checkpoint_warnings::about_place(&checkpoint),
        files: sink.files().map(std::path::Path::to_owned).collect(),
        companions: beside.files.iter().map(|file| file.name.clone()).collect(),
        left_out: beside.left_out.clone(),
        left_out_more: beside.left_out_more,
        is_stored: dtype.is_none(),
        dtypes: dtype.into_iter().collect(),
        weights,
        plain,
        nbytes,
        notes,
        recorded: recorded.transpose()?,
    })
}

/// A [`convert`] with the options of the arguments.
fn configure<'c>(
    checkpoint: &'c Checkpoint,
    args: &'c ConvertArgs,
    filter: &'c NameFilter<'_>,
) -> Result<Convert<'c>, Failure> {
    let mut builder = convert(checkpoint)
        .dtype(args.dtype.unwrap_or(OutputDtype::Stored))
        .cast(args.cast)
        .filter(|name| filter.selects(name))
        .exclude(|name| filter.excludes(name))
        .void(args.void)
        .threads(args.threads)
        .code(args.code)
        .untie(args.untie)
        .overwrite(args.overwrite);
    if let Some(container) = args.to {
        builder = builder.container(container);
    }
    if let Some(alignment) = args.alignment {
        builder = builder.alignment(alignment);
    }
    if let Some((of, rank)) = args.tp.zip(args.rank) {
        if rank >= of {
            let what =
                format!("--rank {rank} is no worker of --tp {of}: ranks are numbered from 0");
            let failure = Failure::new("invalid_argument", what, "give a smaller --rank");
            return Err(failure.of_arguments());
        }
        builder = builder.tensor_parallel(rank, of, &Default::default());
    }
    // people write the prefix with its dot or without
    let bare = |prefix: &'c str| prefix.strip_suffix('.').unwrap_or(prefix);
    if let Some(prefix) = &args.strip_prefix {
        builder = builder.rename(bare(prefix), "");
    }
    for (from, to) in &args.rename {
        builder = builder.rename(from, to);
    }
    if let Some(prefix) = &args.add_prefix {
        builder = builder.rename("*", &format!("{}.*", bare(prefix)));
    }
    for (key, value) in &args.metadata {
        builder = builder.metadata(key, value.clone());
    }
    Ok(args
        .drop_metadata
        .iter()
        .fold(builder, |builder, key| builder.drop_metadata(key)))
}
