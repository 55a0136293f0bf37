//! Quantised weights of which a part is removed or has another shape, dtype or content: planning refuses a weight that cannot be
//! decoded, the error names a tensor, and nothing panics. The intact weights are the fixtures of `reference_hashes`.
#![allow(clippy::cast_possible_truncation)] // sizes of tensors in memory

use std::path::Path;

use anamnesis::{Checkpoint, ErrorKind, QuantConfig, remember};
use serde_json::{Map, Value, json};

use super::reference_hashes::reference_entries;
use crate::support::fixture;

/// The tensors of a safetensors file: name, dtype, shape, bytes.
#[derive(Clone)]
struct StoredTensors(Vec<(String, String, Vec<u64>, Vec<u8>)>);

impl StoredTensors {
    fn open(path: &Path) -> Self {
        let checkpoint = Checkpoint::open(path).unwrap();
        let tensor = |t: anamnesis::Tensor<'_>| {
            let info = t.info();
            let bytes = t.bytes().unwrap().into_owned();
            (
                info.name.to_string(),
                info.encoding.name().to_owned(),
                info.shape.to_vec(),
                bytes,
            )
        };
        Self(checkpoint.tensors().map(tensor).collect())
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

/// Whether a tensor of this name belongs to no quantised weight.
fn is_unquantised(name: &str) -> bool {
    ["lm_head.weight", "_bias", "input_scale"]
        .iter()
        .any(|end| name.ends_with(end))
}

/// Plans and decodes all weights and returns the number of refused ones. Checks that each error names a tensor.
fn refusal_count(stored: &StoredTensors, config: &QuantConfig, case: &str) -> usize {
    let checkpoint = stored.checkpoint();
    let remember = remember(&checkpoint).config(config.clone()).threads(1);
    let mut plan = remember.plan().unwrap();
    for refused in &plan.refused {
        let text = refused.error.to_string();
        assert!(
            matches!(
                refused.error.kind(),
                ErrorKind::Unexplained(_) | ErrorKind::Unsupported(_)
            ),
            "{case}: {text}"
        );
        assert!(
            stored
                .0
                .iter()
                .any(|(name, ..)| text.contains(name.as_str())),
            "{case}: {text}"
        );
    }
    let refused = std::mem::take(&mut plan.refused).len();
    for job in &plan.jobs {
        let _ = remember.tensor(&job.output.name);
    }
    refused
}

#[test]
fn damaged_parts_are_refused_by_name_without_panics() {
    let mut shapes = 0;
    for entry in reference_entries() {
        let path = fixture("quant").join(&entry.path);
        let text = std::fs::read(path.with_file_name("config.json")).unwrap();
        let config = QuantConfig::from_json(&text).unwrap();
        let intact = StoredTensors::open(&path);
        assert_eq!(refusal_count(&intact, &config, "intact"), 0);
        for i in 0..intact.0.len() {
            let name = intact.0[i].0.clone();
            let case = |damage: &str| format!("{} {name} {damage}", entry.path.display());
            // removed: refused, except for optional parts and tensors that are no part of a weight
            let mut removed = intact.clone();
            removed.0.remove(i);
            let optional = [
                "zero_point",
                "g_idx",
                "input_scale",
                "pre_quant_scale",
                "_bias",
                "weight_scale_2",
            ];
            let unclaimed = entry.outputs.iter().any(|o| o.name == name)
                || name.ends_with("_packed")
                || name == "lm_head.weight";
            let refused = refusal_count(&removed, &config, &case("removed"));
            assert!(
                refused > 0 || unclaimed || optional.iter().any(|f| name.contains(f)),
                "{}",
                case("removed")
            );
            // other sizes of each dimension
            let (_, _, shape, bytes) = &intact.0[i];
            let item = if shape.is_empty() {
                bytes.len()
            } else {
                bytes.len() / shape.iter().product::<u64>() as usize
            };
            for (d, size) in shape.iter().enumerate() {
                for other in [0, 1, size - 1, size + 1, size * 2, size * 32] {
                    let mut damaged = intact.clone();
                    damaged.0[i].2[d] = other;
                    let n = damaged.0[i].2.iter().product::<u64>() as usize * item;
                    damaged.0[i].3.resize(n, 0x33);
                    let refused = refusal_count(
                        &damaged,
                        &config,
                        &case(&format!("dimension {d} of {other}")),
                    );
                    // one more group, word or column can be valid, and so can one more row if the scale is per tensor
                    let may_fit = d + 1 == shape.len() && d > 0
                        || entry.path.to_string_lossy().contains("tensor")
                        || entry.path.ends_with("fp8_stack_one/model.safetensors");
                    let must_refuse = other == 0 || other == size + 1 && !may_fit;
                    assert!(
                        !must_refuse || refused > 0 || is_unquantised(&name),
                        "{}",
                        case(&format!("dimension {d} of {other}"))
                    );
                    refusal_count(
                        &damaged,
                        &QuantConfig::default(),
                        &case(&format!("dimension {d} of {other}, no config")),
                    );
                    shapes += 2;
                }
            }
            for other_shape in [
                vec![shape.iter().product()],
                vec![1, shape.iter().product()],
                [&[1][..], shape].concat(),
            ] {
                let mut damaged = intact.clone();
                damaged.0[i].2 = other_shape;
                refusal_count(&damaged, &config, &case("another rank"));
            }
            // other dtypes of the same item size
            let dtypes: &[&str] = match intact.0[i].1.as_str() {
                "U8" | "I8" | "F8_E4M3" | "F8_E8M0" => {
                    &["U8", "I8", "F8_E4M3", "F8_E8M0", "F8_E5M2", "BOOL"]
                }
                "F16" | "BF16" => &["F16", "BF16", "I16"],
                "F32" | "I32" => &["F32", "I32", "U32"],
                _ => &["I64", "F64"],
            };
            for dtype in dtypes {
                let mut damaged = intact.clone();
                damaged.0[i].1 = (*dtype).to_owned();
                refusal_count(&damaged, &config, &case(dtype));
            }
            // invalid codes, scales and zero points
            for byte in [0x00, 0x7f, 0xff] {
                let mut damaged = intact.clone();
                damaged.0[i].3.fill(byte);
                refusal_count(&damaged, &config, &case(&format!("filled with {byte:#x}")));
            }
        }
    }
    println!("{shapes} damaged shapes");
}
