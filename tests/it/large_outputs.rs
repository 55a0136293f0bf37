//! Outputs that are larger than caches, which go past them.

use crate::support::random::random_bytes;
use crate::support::writers::{StoredTensor, gguf};
use anamnesis::{BlockFormat, Checkpoint, Dtype, kernel, remember};

#[test]
fn large_outputs_are_those_of_the_kernel() {
    let format = BlockFormat::from_name("Q8_0").unwrap();
    // 72 MB of BF16, and a weight that begins in the middle of a line of the cache
    let shapes: [&[u64]; 2] = [&[1, 32], &[36_000, 1024]];
    let blocks = shapes.map(|shape| {
        random_bytes(
            7,
            usize::try_from(format.nbytes(shape.iter().product()).unwrap()).unwrap(),
        )
    });
    let id = format.ggml_type.to_string();
    let stored: Vec<StoredTensor> = (0..2)
        .map(|i| StoredTensor::new(&format!("{i}.weight"), &id, shapes[i], blocks[i].clone()))
        .collect();
    let checkpoint =
        Checkpoint::from_bytes(gguf(false, &[("general.architecture", "llama")], &stored)).unwrap();
    let found = remember(&checkpoint).threads(2).all().unwrap();
    for (found, blocks) in found.iter().zip(&blocks) {
        let mut expected = vec![0; found.bytes.len()];
        kernel::dequantize(format, blocks, Dtype::BF16, &mut expected).unwrap();
        assert!(found.bytes == expected, "{}", found.spec);
    }
}
