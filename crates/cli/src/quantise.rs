//! `anamnesis convert --type`: a quantised GGUF.

use std::path::Path;

use anamnesis::quantise::ImportanceMatrix;
use anamnesis::sink::{GGUF, Sharding};
use anamnesis::{Checkpoint, Quantise, convert, quantise};

use crate::args::{ConvertArgs, TypeArgument};
use crate::checkpoint_warnings;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::output::{Screen, progress};
use crate::written_run::{WrittenReport, WrittenRun, notes_of, show_refused};

/// Quantises an open checkpoint to the file that the arguments name.
pub(crate) fn write(
    args: &ConvertArgs,
    file_type: TypeArgument,
    source: &Path,
    screen: &Screen,
    interrupt: &Interrupt,
) -> Result<WrittenReport, Failure> {
    let options = args.opening.options().cancel(interrupt.token());
    let checkpoint = options.open(source)?;
    checkpoint_warnings::show(&checkpoint, screen);
    check_output(&checkpoint, &args.output)?;
    let builder = configure(&checkpoint, args, file_type)?;
    let of_source = |error: anamnesis::Error| Failure::from(error.in_file(source));
    let plan = builder.plan().map_err(of_source)?;
    show_refused(&plan, screen);
    // before the sink: nothing appears for a weight that cannot be made
    plan.check().map_err(of_source)?;
    let sink = builder.sink(&args.output).map_err(of_source)?;
    let run = WrittenRun {
        checkpoint: &checkpoint,
        source,
        output: &args.output,
        opening: &args.opening,
        overwrite: args.overwrite,
        recording: None,
        plan: &plan,
        dtype: None,
        file_type,
        notes: notes_of(&plan),
    };
    run.finish(sink, interrupt, |bar, sink| {
        let builder = builder.progress(progress::on(bar));
        builder.cancel(interrupt.token()).run(&plan, sink)
    })
}

/// Refuses an output that is no GGUF file.
fn check_output(checkpoint: &Checkpoint, output: &Path) -> Result<(), Failure> {
    let builder = convert(checkpoint);
    let sharding = builder.sharding(output, None)?;
    if sharding == Sharding::SingleFile && *builder.container_for(output, &sharding) == GGUF {
        return Ok(());
    }
    let failure = Failure::new(
        "invalid_argument",
        "--type makes one GGUF file",
        "name the output NAME.gguf",
    );
    Err(failure.in_file(output).of_arguments())
}

/// A [`quantise`] with the options of the arguments.
fn configure<'c>(
    checkpoint: &'c Checkpoint,
    args: &ConvertArgs,
    file_type: TypeArgument,
) -> Result<Quantise<'c>, Failure> {
    let own = &args.quantise;
    let mut builder = quantise(checkpoint, file_type)
        .pure(own.pure)
        .leave_output(own.leave_output_tensor)
        .requantise(own.allow_requantize)
        .keep_split(own.keep_split)
        .prune_layers(own.prune_layers.iter().copied())
        .threads(args.threads)
        .overwrite(args.overwrite);
    if let Some(path) = &own.imatrix {
        let mut importance = ImportanceMatrix::read_within(path, args.opening.limits())?;
        if !own.include_weights.is_empty() {
            importance = importance.including(&own.include_weights);
        }
        builder = builder.importance(importance.excluding(&own.exclude_weights));
    }
    if let Some(kind) = &own.output_tensor_type {
        builder = builder.output_type(kind)?;
    }
    if let Some(kind) = &own.token_embedding_type {
        builder = builder.token_embedding_type(kind)?;
    }
    for (pattern, kind) in &own.tensor_type {
        builder = builder.type_of(pattern, kind)?;
    }
    if let Some(dtype) = own.via.flatten() {
        builder = builder.via(dtype)?;
    }
    if let Some(name) = &own.tokenizer_pre {
        builder = builder.pre_tokenizer(name);
    }
    let set = own.override_kv.iter();
    Ok(set.fold(builder, |builder, (key, value)| {
        builder.metadata(key, value.clone())
    }))
}
