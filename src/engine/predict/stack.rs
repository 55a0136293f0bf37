//! The position of a tensor in its model, from its name, and the pipeline stage that reads it.

use std::collections::HashMap;

use anamnesis_template::parallel::{Rule, Rules};

use crate::models::names::{self, LayerName};
use crate::read::catalog::TensorInfo;

/// The position of a tensor in its model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ModelPosition<'n> {
    /// In front of the layers.
    Embedding,
    /// In layer `number` of a stack. The stack is the prefix of the name in front of the number: `model.layers`.
    Layer { stack: &'n str, number: u64 },
    /// Behind the layers.
    Norm,
    /// The output projection, which is last.
    Head,
}

impl<'n> ModelPosition<'n> {
    /// The position from a name: the first part that is a number is the number of the layer.
    pub(super) fn of(name: &'n str, rule: Rule) -> Self {
        if let Some(LayerName { stack, number, .. }) = LayerName::of(name) {
            return Self::Layer { stack, number };
        }
        match rule {
            // before the rule: embeddings and output projections are both split by vocabulary
            _ if names::is_in_front(name) => Self::Embedding,
            Rule::Vocab => Self::Head,
            _ if names::is_last(name) => Self::Head,
            _ => Self::Norm,
        }
    }

    /// Sorts positions of different kinds.
    pub(super) fn rank(&self) -> u8 {
        match self {
            Self::Embedding => 0,
            Self::Layer { .. } => 1,
            Self::Norm => 2,
            Self::Head => 3,
        }
    }
}

/// The distribution of layers over the stages of a pipeline.
#[derive(Clone, Debug)]
pub(super) struct Stages<'n> {
    count: u32,
    layers: u64,
    /// The stack that is distributed: the one with the most bytes.
    stack: Option<&'n str>,
    /// Whether the checkpoint has no head, because it is tied to the embedding, which the last stage then reads too.
    tied: bool,
}

impl<'n> Stages<'n> {
    /// `layers`: the number of layers in the model's configuration.
    pub(super) fn new(
        count: u32,
        layers: Option<u64>,
        tensors: &[(&TensorInfo, ModelPosition<'n>)],
    ) -> Self {
        let mut stacks: HashMap<&str, (u64, u64)> = HashMap::new();
        for (info, position) in tensors {
            if let ModelPosition::Layer { stack, number } = position {
                let (nbytes, most) = stacks.entry(stack).or_default();
                *nbytes = nbytes.saturating_add(info.bytes.len);
                // names may leave numbers out
                *most = number.saturating_add(1).max(*most);
            }
        }
        // a tie is broken by name: the iteration order of the map is random
        let largest = stacks
            .into_iter()
            .max_by(|(a, (m, _)), (b, (n, _))| m.cmp(n).then_with(|| b.cmp(a)));
        let head = tensors
            .iter()
            .any(|(_, position)| *position == ModelPosition::Head);
        let named = largest.map_or(0, |(_, (_, most))| most);
        Self {
            count,
            layers: layers.unwrap_or(named).max(1),
            stack: largest.map(|(stack, _)| stack),
            tied: !head,
        }
    }

    /// Whether a stage reads a tensor. The first stage reads the embeddings and all other stacks (such as an image
    /// encoder), the last stage the final norm and the head.
    pub(super) fn has(&self, stage: u32, position: &ModelPosition<'_>, rule: Rule) -> bool {
        let last = self.count.saturating_sub(1);
        match position {
            ModelPosition::Layer { stack, number } if Some(*stack) == self.stack => {
                stage == self.stage(*number)
            }
            ModelPosition::Layer { .. } => stage == 0,
            ModelPosition::Embedding => {
                stage == 0 || stage == last && self.tied && rule == Rule::Vocab
            }
            ModelPosition::Norm | ModelPosition::Head => stage == last,
        }
    }

    fn stage(&self, layer: u64) -> u32 {
        pipeline_stage(layer, self.layers, self.count)
    }
}

/// The stage of a layer, as vLLM's `get_pp_indices` assigns it: as even as possible, and the stages before the last one get
/// the remainder, one layer each. Layers beyond the configured number (multi-token prediction) belong to the last stage.
pub(crate) fn pipeline_stage(layer: u64, layers: u64, stages: u32) -> u32 {
    let count = u64::from(stages.max(1));
    let (each, more) = (layers / count, layers % count);
    let short = count - 1 - more; // the first stages, without an additional layer
    // vLLM's loop over the partitions in closed form: `short` stages of `each` layers, then stages of one more
    let stage = match layer.checked_sub(short.saturating_mul(each)) {
        Some(beyond) => short + beyond / (each + 1),
        None => layer / each.max(1),
    };
    u32::try_from(stage.min(count - 1)).expect("less than the count")
}

/// The rule of a tensor, and its position.
pub(super) fn position<'n>(rules: &Rules, info: &'n TensorInfo) -> (Rule, ModelPosition<'n>) {
    let rule = rules.rule(&info.name);
    (rule, ModelPosition::of(&info.name, rule))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stages(count: u32, layers: u64) -> Vec<u32> {
        let stages = Stages {
            count,
            layers,
            stack: None,
            tied: false,
        };
        (0..layers).map(|layer| stages.stage(layer)).collect()
    }

    #[test]
    fn layers_are_distributed_as_in_vllm() {
        assert_eq!(stages(2, 4), [0, 0, 1, 1]);
        assert_eq!(stages(4, 6), [0, 1, 1, 2, 2, 3]);
        assert_eq!(stages(3, 5), [0, 0, 1, 1, 2]);
        assert_eq!(stages(4, 2), [1, 2]);
        assert_eq!(stages(1, 3), [0, 0, 0]);
        assert_eq!(
            Stages {
                count: 4,
                layers: 61,
                stack: None,
                tied: false
            }
            .stage(u64::MAX),
            3
        );
    }

    #[test]
    fn tensor_names_determine_the_model_position() {
        let rules = Rules::default();
        let of = |name| ModelPosition::of(name, rules.rule(name));
        assert_eq!(of("model.embed_tokens.weight"), ModelPosition::Embedding);
        assert_eq!(of("token_embd.weight"), ModelPosition::Embedding);
        let layer = |stack, number| ModelPosition::Layer { stack, number };
        assert_eq!(
            of("model.layers.12.mlp.experts.7.up_proj.weight"),
            layer("model.layers", 12)
        );
        assert_eq!(of("blk.3.attn_q.weight"), layer("blk", 3));
        assert_eq!(of("0.weight"), layer("", 0));
        assert_eq!(of("model.norm.weight"), ModelPosition::Norm);
        assert_eq!(of("lm_head.weight"), ModelPosition::Head);
        assert_eq!(of("output.weight"), ModelPosition::Head);
    }
}
