//! Parts of quantised weights removed or with another shape, dtype or content: planning refuses what cannot be decoded by
//! the name of a tensor, and nothing panics.
#![allow(clippy::cast_possible_truncation)] // sizes of tensors in memory

use std::path::Path;

use anamnesis::{Checkpoint, ErrorKind, QuantConfig, remember};
use serde_json::{Map, Value, json};

use super::reference_hashes::entries;
use crate::support::fixture;

/// A safetensors file that can be damaged.
#[derive(Clone)]
struct Parts(Vec<(String, String, Vec<u64>, Vec<u8>)>);

impl Parts {
    fn open(path: &Path) -> Self {
        let checkpoint = Checkpoint::open(path).unwrap();
        let part = |t: anamnesis::Tensor<'_>| {
            let info = t.info();
            let bytes = t.bytes().unwrap().into_owned();
            (
                info.name.to_string(),
                info.encoding.name().to_owned(),
                info.shape.to_vec(),
                bytes,
            )
        };
        Self(checkpoint.tensors().map(part).collect())
    }

    fn checkpoint(&self) -> Checkpoint {
        let (mut header, mut data) = (Map::new(), Vec::<u8>::new());
        for (name, dtype, shape, bytes) in &self.0 {
            let start = data.len();
            data.extend(bytes);
            header.insert(
                name.clone(),
                json!({"dtype": dtype, "shape": shape, "data_offsets": [start, data.len()]}),
            );
        }
        let header = serde_json::to_vec(&Value::Object(header)).unwrap();
        let mut file = (header.len() as u64).to_le_bytes().to_vec();
        file.extend(header);
        file.extend(data);
        Checkpoint::from_bytes(file).unwrap()
    }
}

/// Names of tensors that belong to no quantised weight.
fn plain(name: &str) -> bool {
    ["lm_head.weight", "_bias", "input_scale"]
        .iter()
        .any(|end| name.ends_with(end))
}

/// Everything that planning and decoding say of a checkpoint: refusals name a tensor, and nothing panics.
fn tried(parts: &Parts, config: &QuantConfig, what: &str) -> usize {
    let checkpoint = parts.checkpoint();
    let remember = remember(&checkpoint).config(config.clone()).threads(1);
    let mut plan = remember.plan().unwrap();
    for refused in &plan.refused {
        let text = refused.error.to_string();
        assert!(
            matches!(
                refused.error.kind(),
                ErrorKind::Malformed(_) | ErrorKind::Unsupported(_)
            ),
            "{what}: {text}"
        );
        assert!(
            parts
                .0
                .iter()
                .any(|(name, ..)| text.contains(name.as_str())),
            "{what}: {text}"
        );
    }
    let refused = std::mem::take(&mut plan.refused).len();
    for job in &plan.jobs {
        let _ = remember.tensor(&job.output.name);
    }
    refused
}

#[test]
fn damaged_weights_are_refused_by_name() {
    let mut tries = 0;
    for entry in entries() {
        let path = fixture("quant").join(&entry.path);
        let text = std::fs::read(path.with_file_name("config.json")).unwrap();
        let config = QuantConfig::from_json(&text).unwrap();
        let whole = Parts::open(&path);
        assert_eq!(tried(&whole, &config, "whole"), 0);
        for i in 0..whole.0.len() {
            let name = whole.0[i].0.clone();
            let says = |what: &str| format!("{} {name} {what}", entry.path.display());
            // gone: refused, but for what may be absent, and for what is no part of a weight
            let mut gone = whole.clone();
            gone.0.remove(i);
            let free = [
                "zero_point",
                "g_idx",
                "input_scale",
                "pre_quant_scale",
                "_bias",
                "weight_scale_2",
            ];
            let heart = entry.outputs.iter().any(|o| o.name == name)
                || name.ends_with("_packed")
                || name == "lm_head.weight";
            let refused = tried(&gone, &config, &says("gone"));
            assert!(
                refused > 0 || heart || free.iter().any(|f| name.contains(f)),
                "{}",
                says("gone")
            );
            // other shapes: a size more or less, 0, huge, one dimension less
            let (_, _, shape, bytes) = &whole.0[i];
            let item = if shape.is_empty() {
                bytes.len()
            } else {
                bytes.len() / shape.iter().product::<u64>() as usize
            };
            for (d, size) in shape.iter().enumerate() {
                for other in [0, 1, size - 1, size + 1, size * 2, size * 32] {
                    let mut damaged = whole.clone();
                    damaged.0[i].2[d] = other;
                    let n = damaged.0[i].2.iter().product::<u64>() as usize * item;
                    damaged.0[i].3.resize(n, 0x33);
                    let refused = tried(
                        &damaged,
                        &config,
                        &says(&format!("dimension {d} of {other}")),
                    );
                    // one more group, word or column can be right, and so can one more row under one scale for all
                    let free = d + 1 == shape.len() && d > 0
                        || entry.path.to_string_lossy().contains("tensor")
                        || entry.path.ends_with("fp8_stack_one/model.safetensors");
                    let wrong = other == 0 || other == size + 1 && !free;
                    assert!(
                        !wrong || refused > 0 || plain(&name),
                        "{}",
                        says(&format!("dimension {d} of {other}"))
                    );
                    tried(
                        &damaged,
                        &QuantConfig::default(),
                        &says(&format!("dimension {d} of {other}, no config")),
                    );
                    tries += 2;
                }
            }
            for flat in [
                vec![shape.iter().product()],
                vec![1, shape.iter().product()],
                [&[1][..], shape].concat(),
            ] {
                let mut damaged = whole.clone();
                damaged.0[i].2 = flat;
                tried(&damaged, &config, &says("another rank"));
            }
            // other dtypes of the same width
            let others: &[&str] = match whole.0[i].1.as_str() {
                "U8" | "I8" | "F8_E4M3" | "F8_E8M0" => {
                    &["U8", "I8", "F8_E4M3", "F8_E8M0", "F8_E5M2", "BOOL"]
                }
                "F16" | "BF16" => &["F16", "BF16", "I16"],
                "F32" | "I32" => &["F32", "I32", "U32"],
                _ => &["I64", "F64"],
            };
            for dtype in others {
                let mut damaged = whole.clone();
                damaged.0[i].1 = (*dtype).to_owned();
                tried(&damaged, &config, &says(dtype));
            }
            // numbers that should not be there
            for byte in [0x00, 0x7f, 0xff] {
                let mut damaged = whole.clone();
                damaged.0[i].3.fill(byte);
                tried(&damaged, &config, &says(&format!("filled with {byte:#x}")));
            }
        }
    }
    println!("{tries} damaged shapes");
}
