//! Checkpoints before their mutation: the corpus's, and a generated one for the schemes that it lacks.

use std::path::{Path, PathBuf};

use anamnesis::Checkpoint;

use crate::support::random::random_bytes;
use crate::support::writers::StoredTensor;

/// A quantised checkpoint of one file.
pub(crate) struct Seed {
    pub(crate) path: PathBuf,
    pub(crate) tensors: Vec<StoredTensor>,
    /// Text metadata, in which some schemes describe their weights.
    pub(crate) metadata: Vec<(String, String)>,
    /// The sibling `config.json`.
    pub(crate) config: Option<Vec<u8>>,
}

/// The checkpoint of a file.
pub(crate) fn seed_of(path: &Path) -> Seed {
    let checkpoint = Checkpoint::open(path).unwrap();
    let stored = |tensor: anamnesis::Tensor<'_>| {
        let info = tensor.info();
        StoredTensor::new(
            &info.name,
            info.encoding.name(),
            &info.shape,
            tensor.bytes().unwrap().into_owned(),
        )
    };
    let tensors = checkpoint.tensors().map(stored).collect();
    let metadata = checkpoint.catalog().metadata().iter();
    let metadata = metadata.filter_map(|(key, value)| match value {
        anamnesis::Value::Text(text) => Some((key.to_owned(), text.to_string())),
        _ => None,
    });
    Seed {
        tensors,
        metadata: metadata.collect(),
        config: std::fs::read(path.with_file_name("config.json")).ok(),
        path: path.to_owned(),
    }
}

/// FP8 weights, an HQQ weight with quantised scales and zero points, and preshuffled weights of torchao. No safetensors file of
/// the corpus has the latter two.
pub(crate) fn generated_seed() -> Seed {
    let bytes = |seed, n| random_bytes(seed, n);
    let number = |name: &str, n: i32| StoredTensor::new(name, "I32", &[], n.to_le_bytes().to_vec());
    let shape = |name: &str, shape: [i64; 2]| {
        StoredTensor::new(
            name,
            "I64",
            &[2],
            shape.iter().flat_map(|n| n.to_le_bytes()).collect(),
        )
    };
    let tensors = vec![
        StoredTensor::new("a.weight", "F8_E4M3", &[10, 12], bytes(1, 120)),
        StoredTensor::new("a.weight_scale_inv", "F32", &[3, 3], bytes(2, 36)),
        StoredTensor::new("b.weight", "F8_E5M2", &[2, 6, 8], bytes(3, 96)),
        StoredTensor::new("b.weight_scale", "BF16", &[2, 6, 1], bytes(4, 24)),
        StoredTensor::new("c.weight", "F8_E4M3", &[4, 32], bytes(5, 128)),
        StoredTensor::new("c.weight_scale", "U8", &[4, 1], bytes(6, 4)),
        StoredTensor::new("c.input_scale", "F32", &[], bytes(7, 4)),
        StoredTensor::new("d.W_q", "U8", &[8, 16], bytes(8, 128)),
        StoredTensor::new("d.scale_q", "U8", &[4, 4], bytes(9, 16)),
        StoredTensor::new("d.zero_q", "U8", &[16, 1], bytes(10, 16)),
        StoredTensor::new("d.meta_scale.scale", "F16", &[1, 4], bytes(11, 8)),
        StoredTensor::new("d.meta_scale.zero", "F32", &[1, 4], bytes(12, 16)),
        StoredTensor::new("d.meta_zero.scale", "F32", &[], bytes(13, 4)),
        StoredTensor::new("d.meta_zero.zero", "F32", &[], bytes(14, 4)),
        number("d.nbits", 4),
        number("d.group_size", 16),
        number("d.axis", 1),
        number("d.meta_scale.nbits", 8),
        number("d.meta_scale.group_size", 4),
        number("d.meta_scale.axis", 0),
        number("d.meta_zero.nbits", 8),
        number("d.meta_zero.axis", 0),
        shape("d.shape", [16, 16]),
        shape("d.meta_scale.shape", [16, 1]),
        shape("d.meta_zero.shape", [16, 1]),
        StoredTensor::new("e._weight_qdata", "I8", &[16, 16], bytes(15, 256)),
        StoredTensor::new("e._weight_group_scale", "BF16", &[2, 16], bytes(16, 64)),
        StoredTensor::new("e._weight_group_zero", "BF16", &[2, 16], bytes(17, 64)),
        StoredTensor::new("f._weight_qdata", "I8", &[2, 16, 16], bytes(18, 512)),
        StoredTensor::new(
            "f._weight_group_scale",
            "F8_E4M3",
            &[2, 2, 8, 16],
            bytes(19, 512),
        ),
        StoredTensor::new("f._weight_row_scale", "F32", &[2, 16], bytes(20, 128)),
    ];
    let description = |block: &str| {
        format!(r#"{{"_type":"Int4PreshuffledTensor","_data":{{"block_size":{block}}}}}"#)
    };
    let metadata = vec![
        ("e.weight".to_owned(), description("[1,16]")),
        ("f.weight".to_owned(), description("[1,1,16]")),
    ];
    let config = br#"{"quantization_config":{"quant_method":"fp8","weight_block_size":[4,4],"ignore":["x"]}}"#.to_vec();
    Seed {
        path: "generated".into(),
        tensors,
        metadata,
        config: Some(config),
    }
}
