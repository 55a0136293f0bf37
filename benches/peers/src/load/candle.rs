//! Variants that load and dequantise with candle-core.

use std::fs::File;
use std::hint::black_box;
use std::io::BufReader;

use candle_core::quantized::{QTensor, gguf_file::Content};
use candle_core::{CpuStorage, Device, Result, Storage, Tensor, pickle, safetensors};

use super::variants::{ProcessState, touched, touched_f32};

/// Every tensor as a value of its own.
pub fn tensors(path: &str) -> Result<Vec<Tensor>> {
    let named = |all: Vec<(String, Tensor)>| all.into_iter().map(|(_, tensor)| tensor).collect();
    match path.rsplit('.').next() {
        Some("pth") => pickle::read_all(path).map(named),
        Some("npz") => Tensor::read_npz(path).map(named),
        Some("npy") => Tensor::read_npy(path).map(|tensor| vec![tensor]),
        _ => Ok(safetensors::load(path, &Device::Cpu)?
            .into_values()
            .collect()),
    }
}

/// Tensors of a GGUF in their stored block types. The parsed header and the reader are kept so that dropping them is not timed.
pub struct Blocks {
    pub tensors: Vec<QTensor>,
    _source: (Content, BufReader<File>),
}

pub fn blocks(path: &str) -> Result<Blocks> {
    let mut file = BufReader::new(File::open(path)?);
    let content = Content::read(&mut file)?;
    let tensors = content
        .tensor_infos
        .keys()
        .map(|name| content.tensor(&mut file, name, &Device::Cpu));
    Ok(Blocks {
        tensors: tensors.collect::<Result<_>>()?,
        _source: (content, file),
    })
}

/// Every tensor; the generated files hold F32 only.
pub fn plain(_: &mut ProcessState, path: &str) -> u64 {
    tensors(path).unwrap().iter().fold(0, |sum, tensor| {
        let (storage, _) = tensor.storage_and_layout();
        let Storage::Cpu(CpuStorage::F32(values)) = &*storage else {
            panic!("expected an F32 tensor in host memory")
        };
        sum.wrapping_add(touched_f32(values))
    })
}

pub fn gguf(_: &mut ProcessState, path: &str) -> u64 {
    blocks(path).unwrap().tensors.iter().fold(0, |sum, tensor| {
        sum.wrapping_add(touched(&tensor.data().unwrap()))
    })
}

/// Quantised weights to F32, one at a time; each is dropped before the next.
pub fn dequantise(_: &mut ProcessState, path: &str) -> u64 {
    let mut file = BufReader::new(File::open(path).unwrap());
    let content = Content::read(&mut file).unwrap();
    for name in content.tensor_infos.keys() {
        let tensor = content.tensor(&mut file, name, &Device::Cpu).unwrap();
        black_box(tensor.dequantize(&Device::Cpu).unwrap());
    }
    0
}
