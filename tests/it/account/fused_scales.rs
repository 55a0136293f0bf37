//! A scale for each of the projections that were fused into one: of modules that are known to be fused, whose rows are known.

use serde_json::{Value, json};

use super::StoredCheckpoint;
use super::said::Said::{self, Nothing, Refused};
use super::uploads::{hold, with_file};

/// FP8 of these rows with these scales, in a model of these numbers of heads.
fn projection(
    module: &str,
    rows: usize,
    scales: &[f32],
    heads: Option<[u64; 2]>,
) -> StoredCheckpoint {
    let mut stored = StoredCheckpoint::default();
    let bytes = vec![0x38; rows * 16];
    stored.add_tensor(
        &format!("l.0.{module}.weight"),
        "F8_E4M3",
        &[rows, 16],
        &bytes,
    );
    let bytes: Vec<u8> = scales
        .iter()
        .flat_map(|scale| scale.to_le_bytes())
        .collect();
    let name = format!("l.0.{module}.weight_scale");
    stored.add_tensor(&name, "F32", &[scales.len()], &bytes);
    let mut config =
        json!({"quantization_config": {"quant_method": "fp8", "activation_scheme": "dynamic"}});
    if let (Some([heads, of_keys]), Value::Object(config)) = (heads, &mut config) {
        config.insert("num_attention_heads".to_owned(), json!(heads));
        config.insert("num_key_value_heads".to_owned(), json!(of_keys));
    }
    with_file(stored, "config.json", &config.to_string())
}

/// A module, its rows, its scales, the heads of the model, and what is said.
type Case = (&'static str, usize, &'static [f32], Option<[u64; 2]>, Said);

#[test]
fn scales_of_parts_are_of_fused_projections() {
    let (two, three): (&'static [f32], &'static [f32]) = (&[1.0, 2.0], &[1.0, 2.0, 3.0]);
    let four: &'static [f32] = &[1.0, 2.0, 3.0, 4.0];
    let (equal, grouped) = (Some([4, 4]), Some([4, 2]));
    let unknown = Refused("whose rows are not known");
    let other = Refused("is not known to be that many projections");
    let cases: Vec<Case> = vec![
        ("qkv_proj", 24, three, equal, Nothing),
        ("qkv_proj", 24, three, grouped, unknown),
        ("qkv_proj", 24, three, None, unknown),
        // the rows are no whole heads
        ("qkv_proj", 30, three, equal, unknown),
        // equal scales are of any rows
        ("qkv_proj", 24, &[0.5; 3], None, Nothing),
        ("in_proj_qkvz", 24, &[0.5; 4], None, Nothing),
        ("gate_up_proj", 24, two, None, Nothing),
        ("gate_up_proj", 25, two, None, unknown),
        ("in_proj_qkvz", 24, four, equal, unknown),
        ("gate_up_proj", 24, three, None, other),
        ("qkv_proj", 24, two, equal, other),
        ("down_proj", 24, three, equal, other),
        ("down_proj", 24, two, None, other),
        ("down_proj", 24, &[0.5; 2], None, other),
    ];
    hold(
        cases
            .into_iter()
            .map(|(module, rows, scales, heads, said)| {
                let case = format!("{module} [{rows}, 16] {scales:?} {heads:?}");
                (case, projection(module, rows, scales, heads), said)
            }),
    );
}

#[test]
fn each_part_has_its_scale() {
    for (module, scales) in [
        ("gate_up_proj", &[1.0, 2.0][..]),
        ("qkv_proj", &[1.0, 2.0, 4.0]),
        ("qkv_proj", &[2.0; 3]),
    ] {
        let stored = projection(module, 24, scales, Some([4, 4]));
        let made = super::kinds::MadeOutputs::of(&stored).unwrap();
        let [(_, bytes)] = &made.outputs[..] else {
            panic!()
        };
        // the code 0x38 is 1, and BF16 has all of these
        let found: Vec<f32> = bytes
            .as_chunks()
            .0
            .iter()
            .map(|b| f32::from_bits(u32::from(u16::from_le_bytes(*b)) << 16))
            .collect();
        let rows = 24 / scales.len();
        let expected = (0..24 * 16).map(|at| scales[at / 16 / rows]);
        assert_eq!(found, expected.collect::<Vec<_>>(), "{module} {scales:?}");
    }
}
