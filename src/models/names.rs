//! Names of tensors: the layer that a tensor belongs to, and the role of its module.
//!
//! These are the only lists of modules' names. Two others exist for reasons of their own: the rules by which workers split
//! tensors are patterns in `anamnesis-template`, which knows no models (a test here holds the two together), and the rows of
//! [`architectures`](super::architectures) pair each name in a GGUF with its name in transformers.
//!
//! Sources: classes of transformers, gguf-py's `tensor_mapping.py`, Meta's `llama` repository.

mod modules;

use modules::{ATTENTION, EMBEDDINGS, FRONT, FUSED, HEADS, MIXERS, MODULES, ROUTERS};
use modules::{CONV1D_MODULES, CONV1D_TYPES, OTHER_STACKS, TRAINING, VISION};

pub(crate) use modules::{FusedModule, FusedRows, ModuleRole};

/// A name that has the number of a layer in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LayerName<'n> {
    /// The part in front of the number: `model.layers`; empty if the number is first.
    pub(crate) stack: &'n str,
    pub(crate) number: u64,
    /// The part behind it: `mlp.up_proj.weight`; empty if the number is last.
    pub(crate) rest: &'n str,
}

impl<'n> LayerName<'n> {
    /// By the first number of the name.
    pub(crate) fn of(name: &'n str) -> Option<Self> {
        Self::numbers(name).next()
    }

    /// By the first number that has a stack in front: the leading number of `0.encoder.layer.3.weight` is a place in a list
    /// of modules, and `3` the layer.
    pub(crate) fn in_stack(name: &'n str) -> Option<Self> {
        Self::numbers(name).find(|layer| !layer.stack.is_empty())
    }

    fn numbers(name: &'n str) -> impl Iterator<Item = Self> {
        let mut end = 0;
        name.split('.').filter_map(move |part| {
            let start = end;
            end = start + part.len() + 1;
            // `+1` parses as a number too
            let digits = !part.is_empty() && part.bytes().all(|c| c.is_ascii_digit());
            Some(Self {
                stack: name[..start].trim_end_matches('.'),
                number: part.parse().ok().filter(|_| digits)?,
                rest: name.get(end..).unwrap_or_default(),
            })
        })
    }

    /// Whether the stack is the decoder's and not an encoder's, a draft's or a projector's.
    pub(crate) fn is_decoder(&self) -> bool {
        !OTHER_STACKS.iter().any(|other| self.stack.contains(other))
    }

    /// The role of the layer's own weight of this name. The weights of a cross-attention, an indexer or a shared expert
    /// have none: their modules are in others.
    pub(crate) fn role(&self) -> Option<ModuleRole> {
        let module = self.rest.strip_suffix(".weight")?;
        let (parent, module) = module.rsplit_once('.').unwrap_or(("", module));
        let row = MODULES.iter().find(|row| row.name == module)?;
        let parents = match row.role {
            _ if row.is_gguf => &[""],
            ModuleRole::Query | ModuleRole::Key | ModuleRole::Value => ATTENTION,
            ModuleRole::LatentKeysValues | ModuleRole::AttentionOutput => ATTENTION,
            ModuleRole::Convolution => MIXERS,
            _ => return None,
        };
        parents.contains(&parent).then_some(row.role)
    }
}

/// The last part of a module's name: `up_proj` of `model.layers.0.mlp.up_proj`.
fn last(module: &str) -> &str {
    module.rsplit('.').next().unwrap_or(module)
}

/// Whether this is the weight of one of these modules, wherever it is.
fn is_weight_of(name: &str, modules: &[&str]) -> bool {
    let module = name.strip_suffix(".weight");
    module.is_some_and(|module| modules.contains(&last(module)))
}

/// Whether this is the output layer, by a name of transformers.
pub(crate) fn is_output_layer(name: &str) -> bool {
    is_weight_of(name, HEADS)
}

/// Whether the rows of this weight are tokens: of an input embedding, or of an output layer. The last of them may be padding.
pub(crate) fn is_token_matrix(name: &str) -> bool {
    is_weight_of(name, EMBEDDINGS) || is_last(name)
}

/// Whether models tie this matrix: it has a row per token, by the names above or by the name in heads of several layers.
pub(crate) fn is_tied(name: &str) -> bool {
    is_token_matrix(name) || is_weight_of(name, modules::HEADS_OF_SEVERAL)
}

/// Whether this is the output layer: by a name of transformers, or by the name of GGUF and of Meta, which other modules
/// than the whole model's have too.
pub(crate) fn is_last(name: &str) -> bool {
    is_output_layer(name) || name == modules::GGUF_HEAD
}

/// Whether a tensor outside of the layers is in front of them: an embedding of tokens, positions or kinds.
pub(crate) fn is_in_front(name: &str) -> bool {
    let part = || FRONT.iter().any(|part| name.contains(part));
    // an output layer may have such a part in its name too: `embed_out`
    !is_last(name) && (part() || is_weight_of(name, EMBEDDINGS))
}

/// The role of a module by its name alone, whatever it is part of.
pub(crate) fn module_role(module: &str) -> Option<ModuleRole> {
    let own = last(module);
    let row = MODULES.iter().find(|row| row.name == own);
    row.map(|row| row.role)
}

/// The projection that several were fused into whose weight this is.
pub(crate) fn fused_module(name: &str) -> Option<&'static FusedModule> {
    let own = last(name.strip_suffix(".weight")?);
    FUSED.iter().find(|module| module.name == own)
}

/// Whether this is part of a router, whose rows for experts that were never chosen are untouched.
pub(crate) fn is_router(name: &str) -> bool {
    ROUTERS.iter().any(|part| name.contains(part))
}

/// Whether this is of routed experts, or of the module that contains them.
pub(crate) fn is_of_experts(name: &str) -> bool {
    name.contains(modules::EXPERTS)
}

/// Whether this is of all routed experts of a layer, in one tensor.
pub(crate) fn is_of_stacked_experts(name: &str) -> bool {
    let behind = name
        .find(modules::EXPERTS)
        .map(|at| &name[at + modules::EXPERTS.len()..]);
    behind.is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// Whether this is part of an image encoder or of its projection.
pub(crate) fn is_vision(name: &str) -> bool {
    VISION.iter().any(|part| match part.ends_with('.') {
        true => name.starts_with(part),
        false => name.contains(part),
    })
}

/// Whether this is what a training run stores alongside the weights.
pub(crate) fn is_training_state(name: &str) -> bool {
    let first = name.split('.').next().unwrap_or(name);
    TRAINING.contains(&first)
}

/// Whether the class of this `model_type` stores this weight as `[inputs, outputs]`.
pub(crate) fn is_conv1d(model_type: Option<&str>, name: &str) -> bool {
    model_type.is_some_and(|model| CONV1D_TYPES.contains(&model))
        && is_weight_of(name, CONV1D_MODULES)
}

#[cfg(test)]
mod tests {
    use anamnesis_template::parallel::{Rule, Rules};

    use super::*;

    #[test]
    fn the_first_number_is_the_layer() {
        let of = |name| LayerName::of(name).map(|found| (found.stack, found.number, found.rest));
        let in_stack =
            |name| LayerName::in_stack(name).map(|found| (found.stack, found.number, found.rest));
        let name = "model.layers.12.mlp.experts.3.w.weight";
        let layer = Some(("model.layers", 12, "mlp.experts.3.w.weight"));
        assert_eq!((of(name), in_stack(name)), (layer, layer));
        assert_eq!(of("blk.0.attn_q.weight"), Some(("blk", 0, "attn_q.weight")));
        assert_eq!(of("0.weight"), Some(("", 0, "weight")));
        assert_eq!(
            in_stack("0.encoder.layer.3.w"),
            Some(("0.encoder.layer", 3, "w"))
        );
        assert_eq!(of("layers.3"), Some(("layers", 3, "")));
        assert_eq!(
            of("99999999999999999999.1.w"),
            Some(("99999999999999999999", 1, "w"))
        );
        for name in ["lm_head.weight", "0.weight", "a.b2.c", "a.+1.c", ""] {
            assert_eq!(in_stack(name), None, "{name}");
        }
    }

    #[test]
    fn a_role_is_the_layers_own() {
        let role = |rest| {
            LayerName {
                stack: "layers",
                number: 0,
                rest,
            }
            .role()
        };
        assert_eq!(role("self_attn.k_proj.weight"), Some(ModuleRole::Key));
        assert_eq!(role("attn_k.weight"), Some(ModuleRole::Key));
        assert_eq!(role("mixer.conv1d.weight"), Some(ModuleRole::Convolution));
        for other in [
            "encoder_attn.k_proj.weight",
            "self_attn.indexer.k_proj.weight",
            "self_attn.k_proj.bias",
            "k_proj.weight",
            "x.attn_k.weight",
        ] {
            assert_eq!(role(other), None, "{other}");
        }
    }

    #[test]
    fn token_matrices_and_positions_are_found_by_whole_names() {
        assert!(is_token_matrix("model.embed_tokens.weight") && is_token_matrix("output.weight"));
        assert!(is_token_matrix("lm_head.weight") && is_token_matrix("transformer.wte.weight"));
        // an attention's output in a GGUF
        assert!(!is_token_matrix("blk.0.attn_output.weight") && !is_last("a.output.weight"));
        assert!(is_in_front("shared.weight") && is_in_front("transformer.wpe.weight"));
        assert!(!is_in_front("embed_out.weight") && is_output_layer("embed_out.weight"));
        assert!(!is_output_layer("output.weight"));
    }

    #[test]
    fn fused_projections_are_found_by_their_modules_name() {
        let parts = |name| fused_module(name).map(|module| module.parts);
        assert_eq!(parts("model.layers.0.self_attn.qkv_proj.weight"), Some(3));
        assert_eq!(parts("gate_up_proj.weight"), Some(2));
        for other in ["a.q_proj.weight", "a.qkv_proj.bias", "a.qkv_proj.x.weight"] {
            assert_eq!(parts(other), None, "{other}");
        }
        assert!(is_of_stacked_experts(
            "l.0.mlp.experts.down_proj_input_scale"
        ));
        for one in ["l.0.mlp.experts.3.w1.input_scale", "l.0.mlp.w1.input_scale"] {
            assert!(!is_of_stacked_experts(one), "{one}");
        }
    }

    #[test]
    fn workers_split_modules_by_their_role() {
        let rules = Rules::default();
        for row in MODULES {
            let name = match row.is_gguf {
                true => format!("blk.0.{}.weight", row.name),
                false => format!("model.layers.0.parent.{}.weight", row.name),
            };
            let expected = match row.role {
                ModuleRole::Query | ModuleRole::Gate | ModuleRole::Up => Rule::Column,
                ModuleRole::Key | ModuleRole::Value => Rule::KeyValue,
                ModuleRole::AttentionOutput | ModuleRole::Down => Rule::Row,
                // a latent vector and a state are whole on each worker
                ModuleRole::LatentKeysValues | ModuleRole::Convolution => Rule::Replicated,
            };
            assert_eq!(rules.rule(&name), expected, "{name}");
        }
    }
}
