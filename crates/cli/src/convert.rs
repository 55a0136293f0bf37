//! `anamnesis convert`: copies tensors as they are stored.

use std::path::PathBuf;

use anamnesis::sink::GGUF;
use anamnesis::{Checkpoint, Convert, OutputDtype, convert};

use crate::args::{Color, ConvertArgs, check_new_keys};
use crate::checkpoint_warnings;
use crate::exit::{Completion, RunError, again};
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::name_filter::{NameChanges, NameFilter, of_missing_key};
use crate::output::{Screen, Stdout, progress};
use crate::paths::{InputPath, expand};
use crate::quantise;
use crate::remedies::note_text;
use crate::remember::ReportedRun;
use crate::written_file::check_tensor_output;
use crate::written_run::{
    RecordedRun, WrittenReport, WrittenRun, check_record, notes_of, show_refused,
};

pub(crate) fn run(
    args: &ConvertArgs,
    color: Color,
    interrupt: &Interrupt,
    out: &mut Stdout,
) -> Result<Completion, RunError> {
    let screen = Screen::new(color);
    let sources = SourceFiles::of(&args.sources)?;
    let reported = ReportedRun::begin(&sources.paths, &args.output, args.json, &args.opening);
    let written = again(|| write(args, &sources, &screen, interrupt));
    reported.end(written, &screen, interrupt, out)
}

/// The sources, with the files that patterns match in the place of each.
struct SourceFiles {
    paths: Vec<PathBuf>,
    /// The directory within which links are followed, for each that a pattern matches.
    roots: Vec<Option<PathBuf>>,
}

impl SourceFiles {
    fn of(arguments: &[PathBuf]) -> Result<Self, Failure> {
        let mut found = Self {
            paths: Vec::new(),
            roots: Vec::new(),
        };
        for input in expand(arguments) {
            let (path, root) = match input? {
                // standard input is no file: its name is an error of opening
                InputPath::Stdin => ("-".into(), None),
                InputPath::Path(path) => (path, None),
                InputPath::Found { root, path } => (path, Some(root)),
            };
            found.paths.push(path);
            found.roots.push(root);
        }
        Ok(found)
    }
}

fn write(
    args: &ConvertArgs,
    sources: &SourceFiles,
    screen: &Screen,
    interrupt: &Interrupt,
) -> Result<WrittenReport, Failure> {
    check_tensor_output(&args.output)?;
    if let Some(file_type) = args.quantise.file_type {
        let [source] = &*sources.paths else {
            let failure = Failure::new(
                "invalid_argument",
                "--type quantises one model at a time",
                "name one file, or any file of a split GGUF",
            );
            return Err(failure.of_arguments());
        };
        return quantise::write(args, file_type, source, screen, interrupt);
    }
    check_record(
        args.record.as_ref(),
        &args.output,
        args.overwrite,
        &sources.paths,
    )?;
    let filter = args.name_filter();
    let options = args.opening.options().cancel(interrupt.token());
    let roots = sources.roots.iter().map(Option::as_ref);
    let checkpoint = options.open_union_found(sources.paths.iter().zip(roots))?;
    checkpoint_warnings::show(&checkpoint, screen);
    let changes = NameChanges::new(args.strip_prefix.as_deref(), &args.rename);
    let builder = configure(&checkpoint, args, &filter, &changes)?;
    let sharding = builder.sharding(&args.output, args.shard_size)?;
    let builder = builder.for_output(&sharding);
    if *builder.container_for(&args.output, &sharding) == GGUF {
        check_new_keys(&checkpoint, &args.metadata)?;
    }
    let recording = RecordedRun::new(args.record.as_ref(), &checkpoint);
    let loader = recording.iter().map(|recording| recording.loader.clone());
    let builder = loader.fold(builder, Convert::loader);
    let source = &sources.paths[0];
    // the library knows the error too, and not the nearest names
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
    show_refused(&plan, screen);
    let mut notes = notes_of(&plan);
    let of_key = |error| {
        let keys = checkpoint.catalog().metadata().iter();
        of_missing_key(error, "--drop-metadata", keys.map(|(key, _)| key)).in_file(source)
    };
    let about_output = builder.notes(&args.output, &sharding).map_err(of_key)?;
    notes.extend(about_output.iter().map(note_text));
    let sink = builder.sink(&args.output, sharding).map_err(of_key)?;
    let run = WrittenRun {
        checkpoint: &checkpoint,
        source,
        output: &args.output,
        opening: &args.opening,
        overwrite: args.overwrite,
        recording,
        plan: &plan,
        dtype: builder.output_dtype()?,
        file_type: None,
        notes,
    };
    run.finish(sink, interrupt, |bar, sink| {
        let builder = builder.progress(progress::on(bar));
        builder.cancel(interrupt.token()).run(&plan, sink)
    })
}

/// A [`convert`] with the options of the arguments.
fn configure<'c>(
    checkpoint: &'c Checkpoint,
    args: &'c ConvertArgs,
    filter: &'c NameFilter<'_>,
    changes: &NameChanges<'_>,
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
            let (what, help) = match of {
                0 => ("--tp 0 has no workers".to_owned(), "give --tp 1 or more"),
                _ => (
                    format!("--rank {rank} is no worker of --tp {of}: ranks are numbered from 0"),
                    "give a smaller --rank",
                ),
            };
            return Err(Failure::new("invalid_argument", what, help));
        }
        builder = builder.tensor_parallel(rank, of, &Default::default());
    }
    for (from, to) in changes.pairs() {
        builder = builder.rename(from, to);
    }
    if let Some(prefix) = &args.add_prefix {
        // people write the prefix with its dot or without
        let bare = prefix.strip_suffix('.').unwrap_or(prefix);
        if !bare.is_empty() {
            builder = builder.rename("*", &format!("{bare}.*"));
        }
    }
    // a key that is dropped and set has the new value, as after `edit`
    for key in &args.drop_metadata {
        builder = builder.drop_metadata(key);
    }
    let set = args.metadata.iter();
    Ok(set.fold(builder, |builder, (key, value)| {
        builder.metadata(key, value.clone())
    }))
}
