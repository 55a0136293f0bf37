//! The engines by whose rules a cache is computed.

use std::fmt;
use std::str::FromStr;

use crate::base::error::{Error, Result};

/// Whose rule decides how much memory a cache of some tokens takes.
///
/// Engines differ by factors, and each is right: one keeps what it needs, another reserves pages for the longest sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum InferenceEngine {
    /// The bytes that the tokens need and no more: a window keeps one token less than its width. transformers' caches that
    /// grow keep exactly this.
    #[default]
    Exact,
    /// transformers: as `Exact`, or allocated for the whole context ([`Fit::preallocated`](crate::Fit::preallocated)).
    Transformers,
    /// llama.cpp: cells for the whole context in multiples of 256; states in F32.
    LlamaCpp,
    /// vLLM: pages of equal size for the whole context.
    Vllm,
}

impl InferenceEngine {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Exact, Self::Transformers, Self::LlamaCpp, Self::Vllm];

    /// The name: `exact`, `transformers`, `llama.cpp` or `vllm`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Transformers => "transformers",
            Self::LlamaCpp => "llama.cpp",
            Self::Vllm => "vllm",
        }
    }
}

impl fmt::Display for InferenceEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for InferenceEngine {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::ALL
            .into_iter()
            .find(|engine| engine.name() == name)
            .ok_or_else(|| {
                Error::invalid_argument(format!(
                    "{} is no engine; exact, transformers, llama.cpp and vllm are",
                    crate::base::quote::quote(name)
                ))
            })
    }
}
