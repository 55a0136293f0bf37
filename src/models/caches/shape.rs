//! The cache of one layer for each sequence, as data: shapes, without numbers of tokens.

/// Keys and values of one token in one layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct AttentionShape {
    /// Heads of keys and values.
    pub kv_heads: u64,
    /// Elements of a head of keys.
    pub k_dim: u64,
    /// Elements of a head of values.
    pub v_dim: u64,
}

/// The state that a recurrent layer keeps of a sequence, whatever its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct StateShape {
    /// Heads, or channels where a layer has no heads.
    pub heads: u64,
    /// Channels of the convolution per head.
    pub head_channels: u64,
    /// Elements of the recurrent state per head.
    pub head_state: u64,
    /// Groups that several heads share, each with channels of the convolution.
    pub groups: u64,
    /// Channels of the convolution per group.
    pub group_channels: u64,
    /// Width of the convolution's kernel; 0 without a convolution.
    pub kernel: u64,
    /// Whether the recurrent state has the model's dtype instead of F32.
    pub model_dtype: bool,
}

/// The cache of one layer. A layer with an attention and a state is two of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LayerCache {
    /// Keys and values of all tokens.
    Full(AttentionShape),
    /// Keys and values of the last tokens.
    Window {
        /// Keys and values of a token.
        shape: AttentionShape,
        /// Tokens that a token attends to, itself included.
        window: u64,
    },
    /// Keys and values of the current chunk.
    Chunk {
        /// Keys and values of a token.
        shape: AttentionShape,
        /// Tokens of a chunk.
        chunk: u64,
    },
    /// A compressed vector of each token (multi-head latent attention), which no worker splits.
    Latent {
        /// Elements of the compressed keys and values.
        rank: u64,
        /// Elements of the rotated keys.
        rope: u64,
        /// Elements of the keys of an indexer; 0 without one.
        index: u64,
    },
    /// A recurrent state, with or without a convolution.
    Recurrent(StateShape),
    /// The last inputs of a convolution.
    Conv {
        /// Channels.
        channels: u64,
        /// Width of the kernel.
        kernel: u64,
    },
    /// Keys and values of an encoder's outputs, computed once.
    Cross {
        /// Keys and values of one output of the encoder.
        shape: AttentionShape,
        /// Outputs of the encoder, unless the caller sets another number.
        tokens: Option<u64>,
    },
    /// The cache of an earlier layer is read.
    Shared,
    /// Nothing.
    None,
}

impl AttentionShape {
    pub(crate) fn new(kv_heads: u64, k_dim: u64, v_dim: u64) -> Self {
        Self {
            kv_heads,
            k_dim,
            v_dim,
        }
    }

    /// Elements of the keys of a token; `None` if they do not fit in 64 bits.
    pub fn k_elements(&self) -> Option<u64> {
        self.kv_heads.checked_mul(self.k_dim)
    }

    /// Elements of the values of a token; `None` if they do not fit in 64 bits.
    pub fn v_elements(&self) -> Option<u64> {
        self.kv_heads.checked_mul(self.v_dim)
    }

    /// The shape on one of `workers` tensor-parallel workers: at least one head each.
    fn share(self, workers: u64) -> Self {
        Self {
            // rounded up: with more workers than heads, several keep the same head
            kv_heads: self.kv_heads.div_ceil(workers),
            ..self
        }
    }
}

impl StateShape {
    /// Channels of the convolution; `None` if they do not fit in 64 bits.
    pub fn conv_channels(&self) -> Option<u64> {
        let heads = self.heads.checked_mul(self.head_channels)?;
        heads.checked_add(self.groups.checked_mul(self.group_channels)?)
    }

    /// Elements of the recurrent state; `None` if they do not fit in 64 bits.
    pub fn state_elements(&self) -> Option<u64> {
        self.heads.checked_mul(self.head_state)
    }
}

impl LayerCache {
    /// The name: `full`, `window`, `chunk`, `latent`, `recurrent`, `conv`, `cross`, `shared` or `none`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Full(_) => "full",
            Self::Window { .. } => "window",
            Self::Chunk { .. } => "chunk",
            Self::Latent { .. } => "latent",
            Self::Recurrent(_) => "recurrent",
            Self::Conv { .. } => "conv",
            Self::Cross { .. } => "cross",
            Self::Shared => "shared",
            Self::None => "none",
        }
    }

    /// The part that one of `workers` tensor-parallel workers keeps of it. Heads are divided, with at least one for each
    /// worker; the groups of a state are padded up; a latent vector is whole on each worker.
    #[must_use]
    pub fn share(self, workers: u32) -> Self {
        let n = u64::from(workers.max(1));
        match self {
            Self::Full(shape) => Self::Full(shape.share(n)),
            Self::Window { shape, window } => Self::Window {
                shape: shape.share(n),
                window,
            },
            Self::Chunk { shape, chunk } => Self::Chunk {
                shape: shape.share(n),
                chunk,
            },
            Self::Cross { shape, tokens } => Self::Cross {
                shape: shape.share(n),
                tokens,
            },
            Self::Recurrent(state) => Self::Recurrent(StateShape {
                heads: state.heads.div_ceil(n),
                groups: state.groups.div_ceil(n),
                ..state
            }),
            Self::Conv { channels, kernel } => Self::Conv {
                channels: channels.div_ceil(n),
                kernel,
            },
            // all heads read the same latent vector, so every worker needs it
            Self::Latent { .. } | Self::Shared | Self::None => self,
        }
    }

    /// The keys and values per token, where there are heads.
    pub(crate) fn attention(&self) -> Option<AttentionShape> {
        match *self {
            Self::Full(shape)
            | Self::Window { shape, .. }
            | Self::Chunk { shape, .. }
            | Self::Cross { shape, .. } => Some(shape),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_share_heads_and_keep_at_least_one() {
        let full = LayerCache::Full(AttentionShape::new(8, 128, 64));
        assert_eq!(
            full.share(2),
            LayerCache::Full(AttentionShape::new(4, 128, 64))
        );
        assert_eq!(
            full.share(32),
            LayerCache::Full(AttentionShape::new(1, 128, 64))
        );
        let latent = LayerCache::Latent {
            rank: 512,
            rope: 64,
            index: 0,
        };
        assert_eq!(latent.share(8), latent);
    }
}
