//! Where in a model a tensor belongs, by its name; and which stage of a pipeline has it.

use std::collections::HashMap;

use anamnesis_template::parallel::{Rule, Rules};

use crate::catalog::TensorInfo;

/// Where a tensor belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place<'n> {
    /// In front of the layers.
    Embedding,
    /// In the layer of this number of a stack, which is what its name begins with: `model.layers`.
    Layer { stack: &'n str, number: u64 },
    /// Behind the layers.
    Norm,
    /// At the very end.
    Head,
}

impl<'n> Place<'n> {
    /// What the name says: the first number in it is that of the layer.
    pub(super) fn of(name: &'n str, rule: Rule) -> Self {
        let mut start = 0;
        for part in name.split('.') {
            let digits = !part.is_empty() && part.bytes().all(|c| c.is_ascii_digit());
            if let Some(number) = part.parse().ok().filter(|_| digits) {
                return Self::Layer {
                    stack: name[..start].trim_end_matches('.'),
                    number,
                };
            }
            start += part.len() + 1;
        }
        const EMBEDDINGS: [&str; 4] = ["embed", "embd", "wte", "wpe"];
        let embedding = EMBEDDINGS.iter().any(|part| name.contains(part));
        match rule {
            _ if embedding => Self::Embedding,
            Rule::Vocab => Self::Head,
            _ => Self::Norm,
        }
    }

    /// Its place among those of another kind.
    pub(super) fn rank(&self) -> u8 {
        match self {
            Self::Embedding => 0,
            Self::Layer { .. } => 1,
            Self::Norm => 2,
            Self::Head => 3,
        }
    }
}

/// How the layers of a model are dealt out to the stages of a pipeline.
#[derive(Clone, Debug)]
pub(super) struct Stages<'n> {
    count: u32,
    layers: u64,
    /// The stack that is dealt out: the largest.
    stack: Option<&'n str>,
    /// Whether the head's weight is the embedding's, so that the last stage reads that one.
    tied: bool,
}

impl<'n> Stages<'n> {
    /// `layers`: how many the model's configuration says there are.
    pub(super) fn new(
        count: u32,
        layers: Option<u64>,
        tensors: &[(&TensorInfo, Place<'n>)],
    ) -> Self {
        let mut stacks: HashMap<&str, (u64, u64)> = HashMap::new();
        for (info, place) in tensors {
            if let Place::Layer { stack, number } = place {
                let (nbytes, most) = stacks.entry(stack).or_default();
                *nbytes = nbytes.saturating_add(info.bytes.len);
                *most = number.saturating_add(1).max(*most);
            }
        }
        // of two that are as large, the same one on every machine
        let largest = stacks
            .into_iter()
            .max_by(|(a, (m, _)), (b, (n, _))| m.cmp(n).then_with(|| b.cmp(a)));
        let head = tensors.iter().any(|(_, place)| *place == Place::Head);
        let named = largest.map_or(0, |(_, (_, most))| most);
        Self {
            count,
            layers: layers.unwrap_or(named).max(1),
            stack: largest.map(|(stack, _)| stack),
            tied: !head,
        }
    }

    /// Whether a stage reads what belongs there. Embeddings are with the first, the head with the last; of other
    /// stacks (the encoder of images) all is with the first.
    pub(super) fn has(&self, stage: u32, place: &Place<'_>, rule: Rule) -> bool {
        let last = self.count.saturating_sub(1);
        match place {
            Place::Layer { stack, number } if Some(*stack) == self.stack => {
                stage == self.stage(*number)
            }
            Place::Layer { .. } => stage == 0,
            Place::Embedding => stage == 0 || stage == last && self.tied && rule == Rule::Vocab,
            Place::Norm | Place::Head => stage == last,
        }
    }

    /// The stage of a layer, as vLLM's `get_pp_indices` has it: as even as possible, those before the last one have
    /// one more. Layers behind the last (that predict a token more) are with the last.
    fn stage(&self, layer: u64) -> u32 {
        let count = u64::from(self.count.max(1));
        let (each, more) = (self.layers / count, self.layers % count);
        let short = count - 1 - more; // these have no more, then come those that have
        let stage = match layer.checked_sub(short.saturating_mul(each)) {
            Some(beyond) => short + beyond / (each + 1),
            None => layer / each.max(1),
        };
        u32::try_from(stage.min(count - 1)).expect("less than the count")
    }
}

/// The rule of each tensor, and where it belongs.
pub(super) fn place<'n>(rules: &Rules, info: &'n TensorInfo) -> (Rule, Place<'n>) {
    let rule = rules.rule(&info.name);
    (rule, Place::of(&info.name, rule))
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
    fn layers_are_dealt_out_as_vllm_does() {
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
    fn names_tell_the_place() {
        let rules = Rules::default();
        let of = |name| Place::of(name, rules.rule(name));
        assert_eq!(of("model.embed_tokens.weight"), Place::Embedding);
        assert_eq!(of("token_embd.weight"), Place::Embedding);
        let layer = |stack, number| Place::Layer { stack, number };
        assert_eq!(
            of("model.layers.12.mlp.experts.7.up_proj.weight"),
            layer("model.layers", 12)
        );
        assert_eq!(of("blk.3.attn_q.weight"), layer("blk", 3));
        assert_eq!(of("0.weight"), layer("", 0));
        assert_eq!(of("model.norm.weight"), Place::Norm);
        assert_eq!(of("lm_head.weight"), Place::Head);
        assert_eq!(of("output.weight"), Place::Head);
    }
}
