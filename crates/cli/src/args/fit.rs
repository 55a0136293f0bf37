//! The arguments of `fit`.

use std::path::PathBuf;

use anamnesis::Dtype;
use anamnesis::fit::{CacheType, InferenceEngine};
use clap::{Args, ValueHint};

use super::OpenArgs;
use super::values::{cache_types, count, engine, memory_size, weight_dtype, workers};

const EXAMPLES: &str = "\
Examples:
  anamnesis fit model.gguf                            a few contexts
  anamnesis fit gpt-oss-20b/ --context 32K --batch 4 --memory 24GiB
  anamnesis fit llama-70b/ --tp 4 --memory 80GiB --engine vllm --kv fp8
  anamnesis fit 'quants/*.gguf' --memory 12GB --context 16K
  anamnesis fit config.json --context 128K            the cache alone

Exit status: 0 it fits, or no memory was given; 1 it does not fit; 2 a model
could not be read or invalid arguments.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct FitArgs {
    /// Files, directories, shard indexes, URLs or glob patterns, as for `inspect`; or a config.json alone.
    ///
    /// A directory without weights and a config.json alone give the cache, and no weights.
    #[arg(value_name = "MODEL", required = true, value_hint = ValueHint::AnyPath)]
    pub(crate) models: Vec<PathBuf>,
    /// Estimate each model at or below a directory or a prefix, as `ls` finds them.
    #[arg(long)]
    pub(crate) recursive: bool,

    /// Tokens per sequence; 32K is 32,768 [default: 32K, or the model's maximum; other contexts are listed].
    #[arg(long, short, value_name = "N", value_parser = count, help_heading = "Use")]
    pub(crate) context: Option<u64>,
    /// Sequences at once.
    #[arg(long, short, value_name = "N", value_parser = count, default_value = "1", help_heading = "Use")]
    pub(crate) batch: u64,
    /// Memory of each device: says whether the model fits, and the largest context and batch that do.
    #[arg(long, short, value_name = "SIZE", value_parser = memory_size, help_heading = "Use")]
    pub(crate) memory: Option<u64>,
    /// Memory that each device needs besides, for what is not estimated.
    #[arg(long, value_name = "SIZE", value_parser = memory_size, help_heading = "Use")]
    pub(crate) overhead: Option<u64>,
    /// Outputs of the encoder (T5, Whisper, images of Llama 3.2) [default: the model's own].
    #[arg(long, value_name = "N", value_parser = count, help_heading = "Use")]
    pub(crate) encoder_tokens: Option<u64>,

    /// Whose rule for the cache: exact (what tokens need), transformers, llama.cpp or vllm
    /// [default: llama.cpp for a GGUF, else exact].
    #[arg(long, short, value_name = "NAME", value_parser = engine(), hide_possible_values = true, help_heading = "Engine")]
    pub(crate) engine: Option<InferenceEngine>,
    /// Type of the cache, or of keys and values: f16, bf16, f32, fp8, q8_0, q4_0, …
    /// [default: the model's dtype; f16 for llama.cpp].
    ///
    /// All engines: f32, f16, bf16, fp8, int8. llama.cpp: block types of ggml. vLLM: fp8_per_token_head, int8_per_token_head,
    /// nvfp4 and fp8_ds_mla.
    #[arg(long, value_name = "TYPE[,TYPE]", value_parser = cache_types, help_heading = "Engine")]
    pub(crate) kv: Option<(CacheType, CacheType)>,
    /// transformers: a static cache, allocated for the whole context at once.
    #[arg(long, help_heading = "Engine")]
    pub(crate) r#static: bool,
    /// llama.cpp, vLLM: tokens of a step; windows are kept with room for them [default: 512; 8192 for vLLM].
    ///
    /// `ubatch` of llama.cpp, `max_num_batched_tokens` of vLLM.
    #[arg(long, value_name = "N", value_parser = count, help_heading = "Engine")]
    pub(crate) ubatch: Option<u64>,
    /// llama.cpp: one cache for all sequences.
    #[arg(long, help_heading = "Engine")]
    pub(crate) kv_unified: bool,
    /// llama.cpp: layers with a window keep all tokens.
    #[arg(long, help_heading = "Engine")]
    pub(crate) swa_full: bool,
    /// vLLM: tokens of a page [default: 16].
    #[arg(long, value_name = "N", value_parser = count, help_heading = "Engine")]
    pub(crate) block: Option<u64>,
    /// vLLM: layers with a window reserve as all others.
    #[arg(long, help_heading = "Engine")]
    pub(crate) no_hybrid: bool,

    /// Dequantise the weights, as `remember --dtype` does: bf16, f16 or f32 [default: as stored].
    #[arg(long, short, value_name = "DTYPE", value_parser = weight_dtype(), hide_possible_values = true, help_heading = "Weights")]
    pub(crate) dtype: Option<Dtype>,
    /// Tensor parallelism: number of workers that share each matrix.
    #[arg(long, value_name = "N", value_parser = workers(), default_value_t = 1, help_heading = "Weights")]
    pub(crate) tp: u32,
    /// Pipeline parallelism: number of stages that share the layers.
    #[arg(long, value_name = "N", value_parser = workers(), default_value_t = 1, help_heading = "Weights")]
    pub(crate) pp: u32,
    /// Expert parallelism: number of workers of a stage that share the experts; it divides --tp.
    #[arg(long, value_name = "N", value_parser = workers(), default_value_t = 1, help_heading = "Weights")]
    pub(crate) ep: u32,
    /// Add a draft model, with a cache of its own.
    #[arg(long, value_name = "MODEL", value_hint = ValueHint::AnyPath, help_heading = "Weights")]
    pub(crate) draft: Option<PathBuf>,
    /// Add a projector of images or sound.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::AnyPath, help_heading = "Weights")]
    pub(crate) mmproj: Option<PathBuf>,
    /// Add an adapter; may be repeated.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::AnyPath, help_heading = "Weights")]
    pub(crate) adapter: Vec<PathBuf>,

    /// Print one JSON document.
    #[arg(long, short, help_heading = "View")]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) opening: OpenArgs,
}
