//! The states of recurrent and convolutional layers, by architecture.

use crate::analysis::fit::layer::{LayerCache, StateShape};
use crate::base::error::{Error, Result};
use crate::models::config::ModelConfig;

use super::required;

/// An architecture without states.
pub(super) fn none(_: &ModelConfig) -> Result<LayerCache> {
    Err(Error::malformed(
        "the configuration has recurrent layers, which this architecture has not",
    ))
}

/// A size that was computed from a configuration.
fn product(a: u64, b: u64) -> Result<u64> {
    a.checked_mul(b).ok_or_else(too_large)
}

fn too_large() -> Error {
    Error::malformed("the sizes of the configuration exceed 64 bits")
}

/// Mamba: a state per channel.
pub(super) fn mamba(config: &ModelConfig) -> Result<LayerCache> {
    // Jamba's `intermediate_size` is that of its feed-forward layers
    let own = config.size(&["mamba_expand"]).is_none();
    let inner = match config
        .size(&["intermediate_size", "d_inner"])
        .filter(|_| own)
    {
        Some(inner) => inner,
        None => {
            let expand = config.size(&["mamba_expand", "expand"]).unwrap_or(2);
            product(expand, required(config, &["hidden_size", "d_model"])?)?
        }
    };
    Ok(LayerCache::Recurrent(StateShape {
        heads: inner,
        head_channels: 1,
        head_state: required(config, &["mamba_d_state", "state_size", "d_state"])?,
        groups: 0,
        group_channels: 0,
        kernel: config
            .size(&["mamba_d_conv", "conv_kernel", "d_conv"])
            .unwrap_or(4),
        model_dtype: false,
    }))
}

/// Mamba 2: heads, and groups of them that share two projections. The names of its sizes differ by architecture.
pub(super) fn mamba2(config: &ModelConfig) -> Result<LayerCache> {
    let inner = || -> Result<u64> {
        if let Some(stated) = config.size(&["mamba_d_ssm"]) {
            return Ok(stated);
        }
        let expand = config.size(&["mamba_expand", "expand"]).unwrap_or(2);
        product(expand, required(config, &["hidden_size", "d_model"])?)
    };
    let heads = [
        "mamba_n_heads",
        "mamba_num_heads",
        "n_mamba_heads",
        "num_heads",
    ];
    let heads = required(config, &heads)?;
    // `head_dim` is that of the attention where there is one
    let own = ["mamba_d_head", "mamba_head_dim", "mamba_headdim"];
    let of_mamba2 = || {
        config
            .size(&["head_dim"])
            .filter(|_| config.size(&["num_heads"]).is_some())
    };
    let dim = match config.size(&own).or_else(of_mamba2) {
        Some(dim) => dim,
        // absent, or `auto`
        None => inner()? / heads.max(1),
    };
    let state = required(config, &["mamba_d_state", "ssm_state_size", "state_size"])?;
    let groups = ["mamba_n_groups", "mamba_ngroups", "n_groups"];
    Ok(LayerCache::Recurrent(StateShape {
        heads,
        head_channels: dim,
        head_state: product(dim, state)?,
        groups: config.size(&groups).unwrap_or(1),
        group_channels: product(2, state)?,
        kernel: config.size(&["mamba_d_conv", "conv_kernel"]).unwrap_or(4),
        model_dtype: false,
    }))
}

/// Gated delta networks: states of heads of values, and a convolution over queries, keys and values.
pub(super) fn gated_delta(config: &ModelConfig) -> Result<LayerCache> {
    let k = required(config, &["linear_key_head_dim"])?;
    let v = required(config, &["linear_value_head_dim"])?;
    Ok(LayerCache::Recurrent(StateShape {
        heads: required(config, &["linear_num_value_heads"])?,
        head_channels: v,
        head_state: product(k, v)?,
        groups: required(config, &["linear_num_key_heads"])?,
        group_channels: product(2, k)?,
        kernel: config.size(&["linear_conv_kernel_dim"]).unwrap_or(4),
        model_dtype: false,
    }))
}

/// Kimi delta attention: a square state per head, and three convolutions.
pub(super) fn kimi(config: &ModelConfig) -> Result<LayerCache> {
    // nested in the published configuration, and not in that which transformers writes
    let nested = |key: &str| config.get("linear_attn_config")?.get(key)?.as_u64();
    let size = |inner: &str, key: &str| nested(inner).map_or_else(|| required(config, &[key]), Ok);
    let dim = size("head_dim", "linear_head_dim")?;
    Ok(LayerCache::Recurrent(StateShape {
        heads: size("num_heads", "linear_num_heads")?,
        head_channels: product(3, dim)?,
        head_state: product(dim, dim)?,
        groups: 0,
        group_channels: 0,
        kernel: size("short_conv_kernel_size", "linear_conv_kernel_dim")?,
        model_dtype: false,
    }))
}

/// Lightning attention: a square state per head, in the dtype of the model.
pub(super) fn lightning(config: &ModelConfig) -> Result<LayerCache> {
    let heads = required(config, &["num_attention_heads"])?;
    let dim = match config.size(&["head_dim"]) {
        Some(dim) => dim,
        None => required(config, &["hidden_size"])? / heads.max(1),
    };
    Ok(LayerCache::Recurrent(StateShape {
        heads,
        head_channels: 0,
        head_state: product(dim, dim)?,
        groups: 0,
        group_channels: 0,
        kernel: 0,
        model_dtype: true,
    }))
}

/// A short convolution over the hidden states.
pub(super) fn short_conv(config: &ModelConfig) -> Result<LayerCache> {
    Ok(LayerCache::Conv {
        channels: required(config, &["hidden_size"])?,
        kernel: required(config, &["conv_L_cache"])?,
    })
}

/// A real-gated linear recurrent unit. Its convolution keeps one input less than its width.
pub(super) fn recurrent_gemma(config: &ModelConfig) -> Result<LayerCache> {
    let width = required(config, &["lru_width", "hidden_size"])?;
    let kernel = config.size(&["conv1d_width"]).unwrap_or(4);
    Ok(LayerCache::Recurrent(StateShape {
        heads: width,
        head_channels: 1,
        head_state: 1,
        groups: 0,
        group_channels: 0,
        kernel: kernel.saturating_sub(1),
        model_dtype: false,
    }))
}
