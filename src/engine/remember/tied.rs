//! Output layers that share the weight of the input embedding.
//!
//! A PyTorch checkpoint lists a shared tensor under each of its names. transformers writes it to safetensors once, under the
//! name of the embedding, and restores the output layer from it where `tie_word_embeddings` is set; a second copy would
//! take up to a fifth of a small model's file. Without a configuration, and for all other shared tensors, every name is
//! written: no client is known to restore those.
//!
//! Source: `_tied_weights_keys` of the classes of transformers.

use crate::models::names::is_output_layer;
use crate::plan::{PLAIN, Plan};
use crate::quant::scheme::QuantConfig;
use crate::read::catalog::{Catalog, quote};

/// Takes output layers out of the plan whose bytes are another output's; returns a note that names them.
pub(in crate::engine) fn leave_out(
    plan: &mut Plan,
    catalog: &Catalog,
    config: &QuantConfig,
) -> Option<String> {
    // by default transformers ties; a configuration that states nothing has another value than one that is absent
    let model = config.model();
    if model.model_type().is_none() || model.ties_embeddings() == Some(false) {
        return None;
    }
    let tensor = |row: usize| {
        let job = &plan.jobs[row];
        let [part] = &job.parts[..] else { return None };
        (job.scheme == PLAIN).then(|| catalog.tensors().get(part.tensor))?
    };
    let heads: Vec<usize> = (0..plan.jobs.len())
        .filter(|row| is_output_layer(&plan.jobs[*row].output.name))
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
