//! Schemes: how quantised weights are stored, one file each.
//!
//! A scheme looks at one stored tensor after another and says which of them is the heart of a weight of
//! its kind: by dtype first, then by the roles of the tensors beside it, then by the configuration. The
//! first claim wins; a tensor that belongs to a claimed weight is not offered again. What is left is
//! plain, unless it looks like a part of something that no scheme here undoes.

mod autoround;
mod awq;
mod bitnet;
mod bitsandbytes;
mod config;
mod context;
mod eetq;
mod facts;
mod foreign;
mod fp4;
mod fp8;
mod ggml;
mod gptoss;
mod gptq;
mod grain;
mod hqq;
mod int8;
mod mlx;
mod modelopt;
mod packed;
mod plain;
mod pth_quantizer;
mod quanto;
mod quark;
mod qweight;
mod smooth;
mod torchao;

use std::sync::Arc;

use crate::catalog::Shape;
use crate::error::Result;
use crate::plan::{Decoder, Part};

pub use config::QuantConfig;
pub(crate) use context::Context;
pub(crate) use plain::{Leftover, left_over};

/// A quantised weight: what it is called, what it is made from, and how.
#[derive(Clone, Debug)]
pub struct Weight {
    /// Name as PyTorch has it, such as `model.layers.0.mlp.up_proj.weight`.
    pub name: Box<str>,
    /// Sizes as PyTorch has them.
    pub shape: Shape,
    /// Name of its scheme.
    pub scheme: &'static str,
    /// The stored tensors that it is made from; the first is the one that was recognised.
    pub parts: Vec<Part>,
    /// Geometry and arithmetic.
    pub decoder: Arc<dyn Decoder>,
}

/// One way to store quantised weights.
pub struct Scheme {
    /// Its name in plans and JSON.
    pub name: &'static str,
    /// Whose weight the tensor with this number is, if it is one of this scheme. An error means: of this
    /// scheme, and not to be decoded.
    pub(crate) claim: fn(&Context<'_>, usize) -> Result<Option<Weight>>,
}

/// All schemes, in the order in which they are asked.
pub static SCHEMES: &[Scheme] = &[
    Scheme {
        name: "ggml",
        claim: ggml::claim,
    },
    // before `fp8`, which takes what has no scale beside it for unscaled
    Scheme {
        name: "quanto",
        claim: quanto::claim,
    },
    Scheme {
        name: "torchao",
        claim: torchao::claim,
    },
    Scheme {
        name: "fp8",
        claim: fp8::claim,
    },
    Scheme {
        name: "bitsandbytes",
        claim: bitsandbytes::claim,
    },
    Scheme {
        name: "compressed-tensors",
        claim: packed::claim,
    },
    Scheme {
        name: "quark",
        claim: quark::claim,
    },
    Scheme {
        name: "modelopt",
        claim: modelopt::claim,
    },
    Scheme {
        name: "fp4",
        claim: fp4::claim,
    },
    Scheme {
        name: "int8",
        claim: int8::claim,
    },
    Scheme {
        name: "gpt-oss",
        claim: gptoss::claim,
    },
    Scheme {
        name: "hqq",
        claim: hqq::claim,
    },
    Scheme {
        name: "mlx",
        claim: mlx::claim,
    },
    Scheme {
        name: "bitnet",
        claim: bitnet::claim,
    },
    Scheme {
        name: "pth_quantizer",
        claim: pth_quantizer::claim,
    },
    Scheme {
        name: "auto-round",
        claim: autoround::claim,
    },
    Scheme {
        name: "gptq",
        claim: gptq::claim,
    },
    Scheme {
        name: "awq",
        claim: awq::claim,
    },
    Scheme {
        name: "eetq",
        claim: eetq::claim,
    },
    Scheme {
        name: "foreign",
        claim: foreign::claim,
    },
];

impl std::fmt::Debug for Scheme {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scheme")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
