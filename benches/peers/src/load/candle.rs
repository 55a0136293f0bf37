//! What candle-core does with the same files.

use std::fs::File;
use std::hint::black_box;
use std::io::BufReader;

use candle_core::quantized::{QTensor, gguf_file::Content};
use candle_core::{CpuStorage, Device, Storage, Tensor};

use super::variants::{Held, touched, touched_f32};

pub fn safetensors(_: &mut Held, path: &str) -> u64 {
    plain(candle_core::safetensors::load(path, &Device::Cpu).unwrap().values())
}

pub fn pth(_: &mut Held, path: &str) -> u64 {
    plain(candle_core::pickle::read_all(path).unwrap().iter().map(|(_, tensor)| tensor))
}

pub fn npz(_: &mut Held, path: &str) -> u64 {
    plain(Tensor::read_npz(path).unwrap().iter().map(|(_, tensor)| tensor))
}

/// Every tensor as a value of its own; the files here are of F32.
fn plain<'t>(tensors: impl Iterator<Item = &'t Tensor>) -> u64 {
    tensors.fold(0, |sum, tensor| {
        let (storage, _) = tensor.storage_and_layout();
        let Storage::Cpu(CpuStorage::F32(values)) = &*storage else { panic!("a tensor of F32, in memory") };
        sum.wrapping_add(touched_f32(values))
    })
}

/// Blocks as they are stored, all held.
pub fn gguf(_: &mut Held, path: &str) -> u64 {
    let mut file = BufReader::new(File::open(path).unwrap());
    let content = Content::read(&mut file).unwrap();
    let names = content.tensor_infos.keys();
    let tensors: Vec<QTensor> = names.map(|name| content.tensor(&mut file, name, &Device::Cpu).unwrap()).collect();
    tensors.iter().fold(0, |sum, tensor| sum.wrapping_add(touched(&tensor.data().unwrap())))
}

/// Quantised weights to F32, one by one; each is dropped before the next.
pub fn dequantise(_: &mut Held, path: &str) -> u64 {
    let mut file = BufReader::new(File::open(path).unwrap());
    let content = Content::read(&mut file).unwrap();
    for name in content.tensor_infos.keys() {
        let tensor = content.tensor(&mut file, name, &Device::Cpu).unwrap();
        black_box(tensor.dequantize(&Device::Cpu).unwrap());
    }
    0
}
