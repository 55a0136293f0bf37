//! `anamnesis template predict`: makes a template from a checkpoint's headers.

use anamnesis::template::Template;
use anamnesis::template::parallel::Rules;
use anamnesis::{Checkpoint, Predict, predict};

use super::{check_output, save};
use crate::args::{PredictArgs, PredictionArgs};
use crate::checkpoint_warnings::{about_place, show_about_place};
use crate::exit::{Completion, RunError, again};
use crate::failure::Failure;
use crate::name_filter::NameFilter;
use crate::output::Stdout;

pub(super) fn run(args: &PredictArgs, out: &mut Stdout) -> Result<Completion, RunError> {
    check_output(
        &args.output,
        args.overwrite,
        std::slice::from_ref(&args.source),
    )?;
    let (template, notes) = again(|| predicted(args))?;
    let saved = save(&template, &args.output, args.overwrite)?;
    saved.with_notes(notes).print(args.json, out)?;
    Ok(Completion::Done)
}

/// The template, and notes about the place of the model.
fn predicted(args: &PredictArgs) -> Result<(Template, Vec<String>), Failure> {
    let checkpoint = args
        .opening
        .options()
        .open(&args.source)
        .map_err(Failure::from)?;
    show_about_place(&checkpoint);
    let filter = filter_of(&args.prediction);
    let predict = prediction(&args.prediction, &filter, &checkpoint);
    // a template without accesses is valid, and a misspelt pattern would go unnoticed until a service starts slowly
    let required = filter.require_matches();
    required.map_err(|failure| failure.in_file(&args.source))?;
    let predict = args
        .parameter
        .iter()
        .fold(predict, |predict, (key, value)| {
            predict.parameter(key, value)
        });
    let template = predict
        .template()
        .map_err(|e| Failure::from(e).in_file(&args.source))?;
    Ok((template, about_place(&checkpoint)))
}

/// The patterns of a prediction.
pub(crate) fn filter_of(args: &PredictionArgs) -> NameFilter<'_> {
    NameFilter::new(&args.filter).rules(&args.rule)
}

/// The prediction that the arguments describe. `filter` has noticed all names afterwards.
pub(crate) fn prediction<'c>(
    args: &'c PredictionArgs,
    filter: &'c NameFilter<'c>,
    checkpoint: &'c Checkpoint,
) -> Predict<'c> {
    let tensors = checkpoint.catalog().tensors().iter();
    tensors.for_each(|tensor| filter.observe(&tensor.name));
    let mut rules = Rules::default();
    // the first --rule has the highest precedence
    args.rule
        .iter()
        .rev()
        .for_each(|(pattern, rule)| rules.put_first(pattern, *rule));
    let predict = predict(checkpoint)
        .tp(args.tp)
        .pp(args.pp)
        .dp(args.dp)
        .ep(args.ep)
        .rules(rules)
        .order(args.order)
        .whole(args.whole)
        .max_gap(args.gap.unwrap_or(0))
        .filter(|name| filter.passes(name));
    let predict = args
        .heads
        .into_iter()
        .fold(predict, anamnesis::Predict::heads);
    let predict = args
        .kv_heads
        .into_iter()
        .fold(predict, anamnesis::Predict::kv_heads);
    args.experts
        .into_iter()
        .fold(predict, anamnesis::Predict::experts)
}
