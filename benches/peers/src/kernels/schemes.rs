//! Inputs of safetensors schemes, and the functions that decode them.
//!
//! The unrelated crate returns a new `Vec` from each call, so its times include its allocation. The vector is freed before the
//! next call, and its pages are used again.

use anamnesis::Dtype;
use peer::{Bf16Out, F16Out, F32Out, OutputElement};

use super::buffer::Buffer;
use super::checkpoint_weight::StoredTensor;

/// Rows and columns of every tensor: input and output stay in the cache.
pub const SIDE: usize = 512;
/// Rows that share a scale in GPTQ and AWQ, and the side of an FP8 block.
const GROUP: usize = 128;
/// Elements that share a scale in NF4, NVFP4 and MXFP4.
const NF4_BLOCK: usize = 64;
const NVFP4_BLOCK: usize = 16;
const MXFP4_BLOCK: usize = 32;

/// A weight and its scales, zero points and tables; a scheme uses those it needs.
pub struct SchemeTensors {
    pub weight: Buffer,
    pub scales: Buffer,
    pub zeros: Buffer,
    pub scale: f32,
    /// `scale` as bytes.
    pub scale_bytes: Buffer,
    /// NF4's code book, and the JSON that describes it.
    pub codebook: Buffer,
    pub quant_state: Buffer,
}

/// The configuration and the tensors of a checkpoint for our library.
type Ours = for<'t> fn(&'t SchemeTensors) -> (&'static str, Vec<StoredTensor<'t>>);
type Peer = fn(&SchemeTensors) -> peer::Result<Vec<u8>>;

pub struct Scheme {
    pub name: &'static str,
    pub input: fn() -> SchemeTensors,
    pub ours: Ours,
    /// The unrelated crate's decoders to BF16, F16 and F32, if it has the scheme.
    peer: Option<[Peer; 3]>,
}

macro_rules! schemes {
    ($($name:literal $input:ident, ours: $ours:expr, peer: $($peer:ident)?;)*) => {
        &[$(Scheme {
            name: $name,
            input: $input,
            ours: $ours,
            peer: schemes!(@widths $($peer)?),
        }),*]
    };
    (@widths) => { None };
    (@widths $peer:ident) => { Some([$peer::<Bf16Out>, $peer::<F16Out>, $peer::<F32Out>]) };
}

pub static SCHEMES: &[Scheme] = schemes! {
    "FP8-block" fp8_block, ours: our_fp8_block, peer: peer_fp8_block;
    "FP8-tensor" fp8_tensor, ours: our_fp8_tensor, peer: peer_fp8_tensor;
    "FP8-channel" fp8_channel, ours: our_fp8_channel, peer: peer_fp8_channel;
    "GPTQ-4" gptq, ours: our_gptq, peer: peer_gptq;
    "AWQ-4" awq, ours: our_awq, peer: peer_awq;
    "NF4" nf4, ours: our_nf4, peer: peer_nf4;
    "BnB-INT8" int8, ours: our_int8, peer: peer_int8;
    "NVFP4-packed" nvfp4, ours: our_nvfp4, peer: peer_nvfp4;
    "MXFP4-packed" mxfp4, ours: our_mxfp4, peer: ;
};

impl Scheme {
    pub fn peer(&self, dtype: Dtype) -> Option<Peer> {
        let [bf16, f16, f32] = self.peer?;
        match dtype {
            Dtype::BF16 => Some(bf16),
            Dtype::F16 => Some(f16),
            Dtype::F32 => Some(f32),
            _ => None,
        }
    }
}

fn tensor(weight: Buffer, scales: Buffer) -> SchemeTensors {
    let scale = 0.0123;
    let state = format!(
        r#"{{"quant_type":"nf4","blocksize":{NF4_BLOCK},"dtype":"bfloat16","shape":[{SIDE},{SIDE}]}}"#
    );
    let mut bytes = Buffer::zeroed(state.len());
    bytes.copy_from_slice(state.as_bytes());
    SchemeTensors {
        weight,
        scales,
        zeros: Buffer::zeroed(0),
        scale,
        scale_bytes: Buffer::from_f32s([scale]),
        codebook: Buffer::from_f32s(peer::NF4_CODEBOOK),
        quant_state: bytes,
    }
}

/// F32 scales as in checkpoints: small, positive, all different.
fn scales(count: usize) -> Buffer {
    Buffer::from_f32s((0..count).map(|i| 0.01 + i as f32 * 1e-6))
}

/// F16 scales: the exponent is fixed, the other bits are random.
fn f16_scales(count: usize) -> Buffer {
    let mut scales = Buffer::random(count * 2);
    scales
        .iter_mut()
        .skip(1)
        .step_by(2)
        .for_each(|byte| *byte = 0x28);
    scales
}

/// Random E4M3 bytes without its two NaNs.
fn e4m3(count: usize) -> Buffer {
    let mut bytes = Buffer::random(count);
    bytes
        .iter_mut()
        .filter(|byte| **byte & 0x7f == 0x7f)
        .for_each(|byte| *byte = 0x3c);
    bytes
}

fn fp8_block() -> SchemeTensors {
    tensor(e4m3(SIDE * SIDE), scales(SIDE.div_ceil(GROUP).pow(2)))
}

fn fp8_tensor() -> SchemeTensors {
    tensor(e4m3(SIDE * SIDE), Buffer::zeroed(0))
}

fn fp8_channel() -> SchemeTensors {
    tensor(e4m3(SIDE * SIDE), scales(SIDE))
}

/// `[in / 8, out]` codes, `[groups, out]` scales, `[groups, out / 8]` zero points.
fn gptq() -> SchemeTensors {
    let groups = SIDE / GROUP;
    SchemeTensors {
        zeros: Buffer::random(groups * SIDE / 2),
        ..tensor(Buffer::random(SIDE * SIDE / 2), f16_scales(groups * SIDE))
    }
}

/// As GPTQ, but with codes packed along the outputs: `[in, out / 8]`.
fn awq() -> SchemeTensors {
    gptq()
}

fn nf4() -> SchemeTensors {
    tensor(
        Buffer::random(SIDE * SIDE / 2),
        scales(SIDE * SIDE / NF4_BLOCK),
    )
}

fn int8() -> SchemeTensors {
    tensor(Buffer::random(SIDE * SIDE), scales(SIDE))
}

fn nvfp4() -> SchemeTensors {
    let mut scales = e4m3(SIDE * SIDE / NVFP4_BLOCK);
    scales.iter_mut().for_each(|byte| *byte &= 0x7f); // scales are positive
    tensor(Buffer::random(SIDE * SIDE / 2), scales)
}

/// E8M0 scales around 1.
fn mxfp4() -> SchemeTensors {
    let mut scales = Buffer::random(SIDE * SIDE / MXFP4_BLOCK);
    scales
        .iter_mut()
        .for_each(|byte| *byte = 0x78 | (*byte & 7));
    tensor(Buffer::random(SIDE * SIDE / 2), scales)
}

const NONE: &str = "{}";
const GPTQ: &str =
    r#"{"quant_method":"gptq","bits":4,"group_size":128,"checkpoint_format":"gptq"}"#;
const AWQ: &str = r#"{"quant_method":"awq","bits":4,"group_size":128,"version":"gemm"}"#;

fn our_fp8_block(t: &SchemeTensors) -> (&'static str, Vec<StoredTensor<'_>>) {
    let blocks = SIDE.div_ceil(GROUP);
    let scales = (
        "x.weight_scale_inv",
        "F32",
        vec![blocks, blocks],
        &*t.scales,
    );
    (
        NONE,
        vec![("x.weight", "F8_E4M3", vec![SIDE, SIDE], &t.weight), scales],
    )
}

fn our_fp8_tensor(t: &SchemeTensors) -> (&'static str, Vec<StoredTensor<'_>>) {
    (
        NONE,
        vec![
            ("x.weight", "F8_E4M3", vec![SIDE, SIDE], &t.weight),
            ("x.weight_scale", "F32", vec![], &t.scale_bytes),
        ],
    )
}

fn our_fp8_channel(t: &SchemeTensors) -> (&'static str, Vec<StoredTensor<'_>>) {
    let scales = ("x.weight_scale", "F32", vec![SIDE, 1], &*t.scales);
    (
        NONE,
        vec![("x.weight", "F8_E4M3", vec![SIDE, SIDE], &t.weight), scales],
    )
}

fn our_gptq(t: &SchemeTensors) -> (&'static str, Vec<StoredTensor<'_>>) {
    let groups = SIDE / GROUP;
    let tensors = vec![
        ("x.qweight", "I32", vec![SIDE / 8, SIDE], &*t.weight),
        ("x.qzeros", "I32", vec![groups, SIDE / 8], &*t.zeros),
        ("x.scales", "F16", vec![groups, SIDE], &*t.scales),
    ];
    (GPTQ, tensors)
}

fn our_awq(t: &SchemeTensors) -> (&'static str, Vec<StoredTensor<'_>>) {
    let groups = SIDE / GROUP;
    let tensors = vec![
        ("x.qweight", "I32", vec![SIDE, SIDE / 8], &*t.weight),
        ("x.qzeros", "I32", vec![groups, SIDE / 8], &*t.zeros),
        ("x.scales", "F16", vec![groups, SIDE], &*t.scales),
    ];
    (AWQ, tensors)
}

fn our_nf4(t: &SchemeTensors) -> (&'static str, Vec<StoredTensor<'_>>) {
    let tensors = vec![
        ("x.weight", "U8", vec![SIDE * SIDE / 2, 1], &*t.weight),
        (
            "x.weight.absmax",
            "F32",
            vec![SIDE * SIDE / NF4_BLOCK],
            &*t.scales,
        ),
        ("x.weight.quant_map", "F32", vec![16], &*t.codebook),
        (
            "x.weight.quant_state.bitsandbytes__nf4",
            "U8",
            vec![t.quant_state.len()],
            &*t.quant_state,
        ),
    ];
    (NONE, tensors)
}

fn our_int8(t: &SchemeTensors) -> (&'static str, Vec<StoredTensor<'_>>) {
    (
        NONE,
        vec![
            ("x.weight", "I8", vec![SIDE, SIDE], &t.weight),
            ("x.SCB", "F32", vec![SIDE], &t.scales),
        ],
    )
}

/// As ModelOpt stores it: the scale of the tensor is multiplied.
fn our_nvfp4(t: &SchemeTensors) -> (&'static str, Vec<StoredTensor<'_>>) {
    let tensors = vec![
        ("x.weight", "U8", vec![SIDE, SIDE / 2], &*t.weight),
        (
            "x.weight_scale",
            "F8_E4M3",
            vec![SIDE, SIDE / NVFP4_BLOCK],
            &*t.scales,
        ),
        ("x.weight_scale_2", "F32", vec![], &*t.scale_bytes),
    ];
    (
        r#"{"quant_method":"modelopt","quant_algo":"NVFP4"}"#,
        tensors,
    )
}

fn our_mxfp4(t: &SchemeTensors) -> (&'static str, Vec<StoredTensor<'_>>) {
    let tensors = vec![
        ("x.weight_packed", "U8", vec![SIDE, SIDE / 2], &*t.weight),
        (
            "x.weight_scale",
            "U8",
            vec![SIDE, SIDE / MXFP4_BLOCK],
            &*t.scales,
        ),
    ];
    (
        r#"{"quant_method":"compressed-tensors","format":"mxfp4-pack-quantized"}"#,
        tensors,
    )
}

fn peer_fp8_block<E: OutputElement>(t: &SchemeTensors) -> peer::Result<Vec<u8>> {
    peer::dequantize_fp8::<E>(&t.weight, &t.scales, SIDE, SIDE, peer::Dtype::F32)
}

fn peer_fp8_tensor<E: OutputElement>(t: &SchemeTensors) -> peer::Result<Vec<u8>> {
    peer::dequantize_per_tensor_fp8::<E>(&t.weight, t.scale)
}

fn peer_fp8_channel<E: OutputElement>(t: &SchemeTensors) -> peer::Result<Vec<u8>> {
    peer::dequantize_per_channel_fp8::<E>(&t.weight, &t.scales, SIDE, SIDE, peer::Dtype::F32)
}

/// Returns `[in, out]`; the transposition into a linear layer's `[out, in]` is not timed.
fn peer_gptq<E: OutputElement>(t: &SchemeTensors) -> peer::Result<Vec<u8>> {
    peer::dequantize_gptq::<E>(
        &t.weight,
        &t.scales,
        &t.zeros,
        None,
        SIDE,
        SIDE,
        GROUP,
        4,
        peer::Dtype::F16,
    )
}

/// Returns `[in, out]`, as for GPTQ.
fn peer_awq<E: OutputElement>(t: &SchemeTensors) -> peer::Result<Vec<u8>> {
    peer::dequantize_awq::<E>(
        &t.weight,
        &t.scales,
        &t.zeros,
        SIDE,
        SIDE,
        GROUP,
        4,
        peer::Dtype::F16,
    )
}

fn peer_nf4<E: OutputElement>(t: &SchemeTensors) -> peer::Result<Vec<u8>> {
    let codebook = peer::NF4_CODEBOOK.map(f32::to_le_bytes);
    peer::dequantize_bnb4::<E>(
        &t.weight,
        &t.scales,
        codebook.as_flattened(),
        SIDE * SIDE,
        NF4_BLOCK,
    )
}

fn peer_int8<E: OutputElement>(t: &SchemeTensors) -> peer::Result<Vec<u8>> {
    peer::dequantize_bnb_int8::<E>(&t.weight, &t.scales, SIDE, SIDE)
}

fn peer_nvfp4<E: OutputElement>(t: &SchemeTensors) -> peer::Result<Vec<u8>> {
    peer::dequantize_nvfp4::<E>(&t.weight, &t.scales, t.scale, SIDE, SIDE)
}
