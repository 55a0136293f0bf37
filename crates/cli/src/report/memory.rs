//! The memory of the model over its context, by the rule of each engine.

use anamnesis::Checkpoint;
use anamnesis::fit::{Basis, Estimate, InferenceEngine, MemoryFit};
use anamnesis::quote::escape;
use serde::Serialize;

use crate::args::ReportArgs;
use crate::interrupt::Interrupt;
use crate::text::shortened;

/// The shortest context of a curve, and the longest where the model does not say what it was made for.
const MIN_CONTEXT: u64 = 256;
const DEFAULT_MAX: u64 = 128 << 10;
/// Points per doubling of the context: curves have bends where windows are full.
const POINTS: i32 = 6;
/// Characters of a note, and notes of an engine.
const MAX_NOTE: usize = 600;
const MAX_NOTES: usize = 40;

/// The curves of all engines.
#[derive(Debug, Serialize)]
pub(super) struct MemoryCurves {
    model_type: Option<String>,
    layers: Option<u64>,
    context_max: Option<u64>,
    batch: u64,
    memory_nbytes: Option<u64>,
    weights_nbytes: Option<u64>,
    parameters: Option<u64>,
    active: Option<u64>,
    /// Tokens per sequence of each point.
    contexts: Vec<u64>,
    /// The engine by whose rule the model would be estimated by default comes first.
    engines: Vec<EngineCurve>,
}

/// The curve of one engine.
#[derive(Debug, Serialize)]
struct EngineCurve {
    engine: &'static str,
    basis: Basis,
    /// How keys and values are stored.
    cache: String,
    /// By point, bytes of the cache, and of the whole.
    cache_nbytes: Vec<Option<u64>>,
    total_nbytes: Vec<Option<u64>>,
    compute_basis: Basis,
    memory: Option<MemoryFit>,
    /// Kinds of layers: kind, window, number of layers.
    groups: Vec<(&'static str, Option<u64>, usize)>,
    notes: Vec<String>,
    unknown: Vec<String>,
}

/// The curves. An engine that does not have the asked type of the cache is left out.
pub(super) fn curves(
    checkpoint: &Checkpoint,
    args: &ReportArgs,
    interrupt: &Interrupt,
) -> anamnesis::Result<MemoryCurves> {
    let base = anamnesis::fit(checkpoint)
        .batch(args.batch)
        .cancel(interrupt.token());
    let base = args.memory.into_iter().fold(base, anamnesis::Fit::memory);
    let first = base.clone().estimate()?;
    let contexts = points(first.context_max);
    let mut engines = InferenceEngine::ALL.to_vec();
    // stable: the default engine comes first, the others keep the library's order
    engines.sort_by_key(|engine| engine.name() != first.engine);
    let mut drawn = Vec::new();
    for engine in engines {
        // each engine computes an estimate per point
        interrupt.check()?;
        let fit = base.clone().engine(engine).contexts(contexts.clone());
        let fit = args.kv.into_iter().fold(fit, |fit, (k, v)| fit.cache(k, v));
        match fit.estimate() {
            Ok(estimate) => drawn.push(EngineCurve::new(estimate)),
            Err(_) if args.kv.is_some() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(MemoryCurves {
        model_type: first.model_type.map(|text| shortened(&escape(&text), 80)),
        layers: first.layers,
        context_max: first.context_max,
        batch: args.batch,
        memory_nbytes: args.memory,
        weights_nbytes: first.weights.nbytes,
        parameters: first.parameters.total,
        active: first.parameters.active,
        contexts,
        engines: drawn,
    })
}

impl EngineCurve {
    fn new(estimate: Estimate) -> Self {
        let (k, v) = (&estimate.cache.k_dtype, &estimate.cache.v_dtype);
        let texts = |texts: Vec<String>| {
            let texts = texts.into_iter().take(MAX_NOTES);
            let text = |text: String| shortened(&escape(&text), MAX_NOTE);
            texts.map(text).collect()
        };
        let rows = estimate.contexts.iter();
        Self {
            engine: estimate.engine,
            basis: estimate.basis,
            cache: if k == v {
                k.clone()
            } else {
                format!("{k}, {v}")
            },
            cache_nbytes: rows.clone().map(|row| row.cache_nbytes).collect(),
            total_nbytes: rows.map(|row| row.total_nbytes).collect(),
            compute_basis: estimate.compute.basis,
            memory: estimate.memory,
            groups: estimate
                .cache
                .groups
                .iter()
                .take(MAX_NOTES)
                .map(|group| (group.kind, group.window, group.layers.len()))
                .collect(),
            notes: texts(estimate.notes),
            unknown: texts(estimate.unknown),
        }
    }
}

/// The contexts of a curve's points: powers of two and between them, up to what the model was made for.
fn points(most: Option<u64>) -> Vec<u64> {
    // the number comes from the file: 2⁴⁰ tokens keep the points few and the sums within 64 bits
    let most = most.unwrap_or(DEFAULT_MAX).clamp(1, 1 << 40);
    // a model for few tokens has a curve too
    let first = MIN_CONTEXT.min(most.div_ceil(16));
    let mut points: Vec<u64> = (0..)
        .map(|n| first as f64 * (f64::from(n) / f64::from(POINTS)).exp2())
        .take_while(|context| *context < most as f64)
        .map(whole)
        .collect();
    points.push(most);
    // rounding makes neighbours equal at the lower end
    points.dedup();
    points
}

/// A context, rounded to the tokens that engines round to.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // the bound above excludes loss
fn whole(context: f64) -> u64 {
    let context = context as u64;
    if context > MIN_CONTEXT {
        context - context % MIN_CONTEXT
    } else {
        context
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_rise_and_end_at_the_maximum() {
        for most in [1, 96, 256, 257, 4096, 131_072, 10_000_000, u64::MAX] {
            let points = points(Some(most));
            assert!(points.is_sorted_by(|a, b| a < b), "{points:?}");
            assert_eq!(points.last(), Some(&most.min(1 << 40)));
            assert!(points[0] > 0 && points.len() < 200);
            assert!(points.len() > 4 || most == 1, "{points:?}");
        }
        assert!(points(None).contains(&32_768));
    }
}
