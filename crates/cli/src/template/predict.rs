//! `anamnesis template predict`: makes a template from a checkpoint's headers.

use std::path::Path;

use anamnesis::template::parallel::Rules;
use anamnesis::{Checkpoint, Predict, predict};

use super::{check_output, save};
use crate::args::{PredictArgs, PredictionArgs};
use crate::exit::{Completion, Failure, RunError};
use crate::output::Stdout;
use crate::select;

pub(super) fn run(args: &PredictArgs, out: &mut Stdout) -> Result<Completion, RunError> {
    check_output(
        &args.output,
        args.overwrite,
        std::slice::from_ref(&args.source),
    )?;
    let checkpoint = args
        .opening
        .options()
        .open(&args.source)
        .map_err(Failure::from)?;
    let predict = prediction(&args.prediction, &checkpoint, &args.source)?;
    let predict = args
        .parameter
        .iter()
        .fold(predict, |predict, (key, value)| {
            predict.parameter(key, value)
        });
    let template = predict
        .template()
        .map_err(|e| Failure::from(e.in_file(&args.source)))?;
    save(&template, &args.output, args.overwrite)?.print(args.json, out)?;
    Ok(Completion::Done)
}

/// The prediction that the arguments describe.
pub(crate) fn prediction<'c>(
    args: &'c PredictionArgs,
    checkpoint: &'c Checkpoint,
    source: &Path,
) -> Result<Predict<'c>, Failure> {
    // a template without accesses is valid, and a misspelt pattern would go unnoticed until a service starts slowly
    if !args.filter.is_empty()
        && !checkpoint
            .catalog()
            .tensors()
            .iter()
            .any(|t| select::passes(&args.filter, &t.name))
    {
        let failure = Failure::new("no_match", "no tensor matches the filter", "check --filter");
        return Err(failure.in_file(source));
    }
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
        .filter(|name| select::passes(&args.filter, name));
    let predict = args
        .heads
        .into_iter()
        .fold(predict, anamnesis::Predict::heads);
    let predict = args
        .kv_heads
        .into_iter()
        .fold(predict, anamnesis::Predict::kv_heads);
    Ok(args
        .experts
        .into_iter()
        .fold(predict, anamnesis::Predict::experts))
}
