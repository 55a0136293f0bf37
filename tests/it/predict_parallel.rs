//! The byte ranges that are predicted for each worker of a small model under tensor, pipeline, expert and data parallelism,
//! against ranges computed by hand.

use crate::support::scratch_dir::ScratchDir;
use crate::support::writers::{StoredTensor, safetensors};
use anamnesis::predict::ReadOrder;
use anamnesis::template::parallel::{Rule, Rules};
use anamnesis::template::{StridedRange, Template};
use anamnesis::{Checkpoint, Predict, predict};

/// The template of a small checkpoint with this `config.json`; its weights are zeros.
fn predict_small(
    name: &str,
    config: &str,
    tensors: &[(&str, &str, &[u64])],
    options: impl Fn(Predict<'_>) -> Predict<'_>,
) -> Prediction {
    let scratch = ScratchDir::new(name);
    let width = |dtype: &str| if dtype == "I32" { 4 } else { 2 };
    let zeros = |dtype: &str, shape: &[u64]| {
        vec![0; usize::try_from(shape.iter().product::<u64>() * width(dtype)).unwrap()]
    };
    let stored: Vec<_> = tensors
        .iter()
        .map(|(name, dtype, shape)| StoredTensor::new(name, dtype, shape, zeros(dtype, shape)))
        .collect();
    std::fs::write(scratch.path("model.safetensors"), safetensors(&stored, &[])).unwrap();
    std::fs::write(scratch.path("config.json"), config).unwrap();
    let checkpoint = Checkpoint::open(scratch.path("")).unwrap();
    let header = checkpoint
        .catalog()
        .tensors()
        .iter()
        .map(|tensor| tensor.bytes.start)
        .min()
        .unwrap();
    Prediction {
        template: options(predict(&checkpoint)).template().unwrap(),
        header,
    }
}

/// A template of one file.
struct Prediction {
    template: Template,
    /// Bytes before the first tensor.
    header: u64,
}

impl std::ops::Deref for Prediction {
    type Target = Template;

    fn deref(&self) -> &Template {
        &self.template
    }
}

/// The byte ranges that a worker reads after the header, relative to the first tensor.
fn reads(template: &Prediction, rank: u32) -> Vec<String> {
    let header = template.header;
    let group = template.group(rank).unwrap();
    let mut accesses = group.accesses().iter().map(|access| access.bytes);
    let mut first = accesses.next().unwrap();
    (first.start, first.len) = (first.start + header, first.len - header);
    let relative = |bytes: StridedRange| {
        StridedRange {
            start: bytes.start - header,
            ..bytes
        }
        .to_string()
    };
    std::iter::once(first)
        .filter(|first| first.len > 0)
        .chain(accesses)
        .map(relative)
        .collect()
}

#[test]
fn pipeline_stages_read_their_layers() {
    let tensors: &[(&str, &str, &[u64])] = &[
        ("lm_head.weight", "BF16", &[64, 8]),
        ("model.embed_tokens.weight", "BF16", &[64, 8]),
        ("model.layers.0.w", "BF16", &[8, 8]),
        ("model.layers.1.w", "BF16", &[8, 8]),
        ("model.layers.10.w", "BF16", &[8, 8]),
        ("model.layers.2.w", "BF16", &[8, 8]),
        ("model.norm.weight", "BF16", &[8]),
        ("visual.blocks.0.w", "BF16", &[8]),
    ];
    let three = r#"{"num_hidden_layers":3}"#;
    let template = predict_small("predict-stages", three, tensors, |predict| {
        predict.pp(2).tp(2).order(ReadOrder::Layer)
    });
    let names: Vec<_> = template
        .groups()
        .iter()
        .map(|group| (group.rank(), group.name()))
        .collect();
    assert_eq!(
        names,
        [
            (0, "pp 0, tp 0"),
            (1, "pp 0, tp 1"),
            (2, "pp 1, tp 0"),
            (3, "pp 1, tp 1")
        ]
    );
    // each worker of the first stage reads half of the 64 embedding rows, two of the three layers, and the tensors outside of
    // the decoder layers
    assert_eq!(reads(&template, 0), ["1024+512", "2048+256", "2576+16"]);
    assert_eq!(reads(&template, 1), ["1536+768", "2576+16"]);
    // the last stage: layer 2 before layer 10, the norm, half of the output head
    assert_eq!(
        reads(&template, 2),
        ["2432+128", "2304+128", "2560+16", "0+512"]
    );
    // without `lm_head` the last stage reads the embedding, to which it is tied
    let tied = predict_small("predict-tied", three, &tensors[1..], |predict| {
        predict.pp(2)
    });
    assert_eq!(reads(&tied, 1), ["0+1024", "1280+272"]);
}

#[test]
fn packed_weights_are_sliced_along_the_transposed_axis() {
    let tensors: &[(&str, &str, &[u64])] = &[
        ("model.layers.0.mlp.down_proj.qweight", "I32", &[4, 6]),
        ("model.layers.0.mlp.up_proj.qweight", "I32", &[4, 6]),
        ("model.layers.0.mlp.up_proj.scales", "BF16", &[2, 6]),
        ("other.mlp.up_proj.scales", "BF16", &[4, 3]),
    ];
    let template = predict_small("predict-packed", "{}", tensors, |predict| predict.tp(2));
    assert_eq!(
        reads(&template, 1),
        ["48+48", "108+12 ×4 every 24", "198+6 ×2 every 12", "228+12"]
    );
}

#[test]
fn experts_are_distributed_over_the_workers() {
    let mut tensors: Vec<(String, &str, &[u64])> = Vec::new();
    for expert in 0..4 {
        tensors.push((
            format!("model.layers.0.mlp.experts.{expert}.up_proj.weight"),
            "BF16",
            &[4, 8],
        ));
    }
    tensors.push((
        "model.layers.0.mlp.experts_all_exps.weight".into(),
        "BF16",
        &[4, 2, 8],
    ));
    tensors.push((
        "model.layers.0.self_attn.q_proj.weight".into(),
        "BF16",
        &[4, 8],
    ));
    let tensors: Vec<_> = tensors
        .iter()
        .map(|(name, dtype, shape)| (name.as_str(), *dtype, *shape))
        .collect();
    // four workers: one whole expert each; attention is split in two and read twice
    let template = predict_small("predict-experts", "{}", &tensors, |predict| {
        predict.tp(2).dp(2).ep(4)
    });
    assert_eq!(reads(&template, 1), ["64+64", "288+32", "416+32"]);
    assert_eq!(template.group(3).unwrap().name(), "dp 1, tp 1");
    // two groups of two workers: half of each of two experts
    let template = predict_small("predict-groups", "{}", &tensors, |predict| {
        let mut rules = Rules::default();
        rules.put_first("*_exps.*", Rule::Column);
        predict.tp(2).dp(2).ep(2).rules(rules)
    });
    assert_eq!(
        reads(&template, 3),
        ["160+32", "224+32", "336+16 ×2 every 32", "416+32"]
    );
    // without expert parallelism: a slice of each expert
    let template = predict_small("predict-no-ep", "{}", &tensors, |predict| predict.tp(4));
    assert_eq!(
        reads(&template, 0)[..2],
        ["0+16".to_owned(), "64+16 ×3 every 64".to_owned()]
    );
}

#[test]
fn keys_and_values_are_split_by_heads() {
    let tensors: &[(&str, &str, &[u64])] =
        &[("model.layers.0.self_attn.k_proj.weight", "BF16", &[8, 4])];
    let config = r#"{"num_attention_heads":4,"num_key_value_heads":2}"#;
    let template = predict_small("predict-heads", config, tensors, |predict| predict.tp(4));
    assert_eq!(
        (reads(&template, 1), reads(&template, 2)),
        (vec!["0+32".into()], vec!["32+32".into()])
    );
    let configured = predict_small("predict-configured", config, tensors, |predict| {
        predict.tp(4).heads(4).kv_heads(4)
    });
    assert_eq!(reads(&configured, 1), ["16+16"]);
}
