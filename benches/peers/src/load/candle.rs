//! What candle-core does with the same files.

use std::fs::File;
use std::hint::black_box;
use std::io::BufReader;

use candle_core::quantized::gguf_file::Content;
use candle_core::{CpuStorage, Device, Storage};

use super::variants::{Held, touched_f32};

/// Every tensor as a value of its own; the files here are of F32.
pub fn load(_: &mut Held, path: &str) -> u64 {
    let tensors = candle_core::safetensors::load(path, &Device::Cpu).unwrap();
    tensors.values().fold(0, |sum, tensor| {
        let (storage, _) = tensor.storage_and_layout();
        let Storage::Cpu(CpuStorage::F32(values)) = &*storage else { panic!("a tensor of F32, in memory") };
        sum.wrapping_add(touched_f32(values))
    })
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
