//! Output layers that share the weight of the input embedding.
//!
//! A PyTorch checkpoint lists a shared tensor under each of its names. transformers writes it to safetensors once, under the
//! name of the embedding, and restores the output layer from it where `tie_word_embeddings` is set; a second copy would
//! take up to a fifth of a small model's file. Without a configuration that says so, or a class that does it by default, for a
//! layer that gets another name, and for all other shared tensors, every name is written: no client is known to restore those.
//!
//! Source: `_tied_weights_keys` of the classes of transformers.

use crate::models::names::is_output_layer;
use crate::plan::{PLAIN, Plan};
use crate::quant::scheme::QuantConfig;
use crate::read::catalog::{Catalog, quote};

/// Takes output layers out of the plan whose bytes are another output's, unless they get another name; returns a note that names
/// them.
pub(in crate::engine) fn leave_out(
    plan: &mut Plan,
    catalog: &Catalog,
    config: &QuantConfig,
    is_renamed: &dyn Fn(&str) -> bool,
) -> Option<String> {
    let model = config.model();
    let is_tied = model.ties_embeddings();
    if model.model_type().is_none() || !is_tied.unwrap_or_else(|| model.ties_by_default()) {
        return None;
    }
    let tensor = |row: usize| {
        let job = &plan.jobs[row];
        let [part] = &job.parts[..] else { return None };
        (job.scheme == PLAIN).then(|| catalog.tensors().get(part.tensor))?
    };
    let heads: Vec<usize> = (0..plan.jobs.len())
        .filter(|row| {
            let name = &plan.jobs[*row].output.name;
            is_output_layer(name) && !is_renamed(name)
        })
        // a model has one or two; a file with thousands of such names would cost its square
        .take(4)
        .filter(|row| {
            tensor(*row).is_some_and(|head| {
                (0..plan.jobs.len()).any(|other| {
                    !is_output_layer(&plan.jobs[other].output.name)
                        && tensor(other).is_some_and(|other| {
                            (&other.bytes, &other.shape, &other.encoding, &other.layout)
                                == (&head.bytes, &head.shape, &head.encoding, &head.layout)
                        })
                })
            })
        })
        .collect();
    let mut names = Vec::new();
    for row in heads.into_iter().rev() {
        names.push(quote(&plan.jobs.remove(row).output.name));
    }
    (!names.is_empty()).then(|| {
        format!(
            "left out, as it shares the weight of the input embedding: {}",
            names.join(", ")
        )
    })
}
