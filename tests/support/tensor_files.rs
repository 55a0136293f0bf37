//! Safetensors files of U8 tensors with random bytes, by the sizes of the tensors.

use std::fs;

use anamnesis::Checkpoint;

use super::random::random_bytes;
use super::scratch_dir::ScratchDir;
use super::writers::{StoredTensor, safetensors};

/// Tensors `t00000`, `t00001`, … of odd sizes around `size`: nothing is aligned, and several tensors share an extent. Some are
/// empty.
pub fn odd_sized_tensors(count: usize, size: usize) -> Vec<u8> {
    let tensors: Vec<_> = (0..count)
        .map(|i| {
            let len = if i % 7 == 3 { 0 } else { size + i * 13 % 101 };
            random_tensor(&format!("t{i:05}"), i, len)
        })
        .collect();
    safetensors(&tensors, &[])
}

/// Tensors `t0`, `t1`, … of 50 MB in all: several extents, each of several requests.
pub fn large_tensors() -> Vec<u8> {
    let sizes = [5 << 20, 100, 23 << 20, 3, 9_999_999, 1 << 20, 0, 12 << 20];
    let tensors: Vec<_> = sizes
        .iter()
        .enumerate()
        .map(|(i, &len)| random_tensor(&format!("t{i}"), i, len))
        .collect();
    safetensors(&tensors, &[])
}

/// One tensor `t` of this size, its bytes [`random_bytes`] with seed 1.
pub fn single_tensor(len: usize) -> Vec<u8> {
    safetensors(&[random_tensor("t", 1, len)], &[])
}

/// Tensors of several ranks and dtypes, an empty one and a scalar among them.
pub fn varied_tensors() -> Vec<u8> {
    let tensor = |name: &str, dtype: &str, shape: &[u64], bytes: usize| {
        StoredTensor::new(name, dtype, shape, random_bytes(name.len() as u64, bytes))
    };
    safetensors(
        &[
            tensor("a", "F32", &[64, 96], 64 * 96 * 4),
            tensor("bb", "U8", &[7, 5, 3], 105),
            tensor("ccc", "BF16", &[33], 66),
            tensor("dddd", "F16", &[4, 0, 3], 0),
            tensor("eeeee", "F32", &[], 4),
            tensor("ffffff", "BF16", &[700, 300], 420_000),
        ],
        &[],
    )
}

fn random_tensor(name: &str, seed: usize, len: usize) -> StoredTensor {
    StoredTensor::new(name, "U8", &[len as u64], random_bytes(seed as u64, len))
}

/// Writes these bytes to `in.safetensors` and opens it.
pub fn write_and_open(scratch: &ScratchDir, bytes: &[u8]) -> Checkpoint {
    let path = scratch.path("in.safetensors");
    fs::write(&path, bytes).unwrap();
    Checkpoint::open(path).unwrap()
}

/// The bytes of every tensor.
pub fn tensor_bytes(checkpoint: &Checkpoint) -> Vec<Vec<u8>> {
    checkpoint
        .tensors()
        .map(|tensor| tensor.bytes().unwrap().into_owned())
        .collect()
}
