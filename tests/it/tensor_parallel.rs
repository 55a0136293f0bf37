//! The shares of tensor-parallel workers, of stored tensors and of dequantised weights: together they are the tensor, fused
//! matrices are split head by head, and `predict` predicts what a worker reads.

use std::path::PathBuf;

use crate::support::random::random_bytes;
use crate::support::scratch_dir::ScratchDir;
use crate::support::slices::{selected_elements, selected_numbers};
use crate::support::writers::{StoredTensor, safetensors};
use crate::support::{files_below, fixture};
use anamnesis::load::{PreadLoader, RecordingLoader};
use anamnesis::slice::TensorSlice;
use anamnesis::template::coverage;
use anamnesis::template::parallel::{Rule, Rules, Split, share};
use anamnesis::{Checkpoint, Encoding, load, predict, remember};

/// Rules that split every fixture's weights, by outputs or by inputs.
fn rules(rule: Rule) -> Rules {
    let mut rules = Rules::default();
    for pattern in [
        "*weight*",
        "*W_q",
        "*.quant.*",
        "*scale*",
        "*zero*",
        "*blocks*",
    ] {
        rules.put_first(pattern, rule);
    }
    rules
}

fn checkpoints() -> Vec<(PathBuf, Checkpoint)> {
    let is_model = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy();
        let ends = [".safetensors", ".gguf", ".pth", ".pt", ".npz"];
        ends.iter().any(|end| name.ends_with(end)) && !name.contains("oracle")
    };
    let folders = ["quant", "gguf/types", "model", "safetensors", "npz", "pth"];
    let files = folders
        .iter()
        .flat_map(|folder| files_below(&fixture(folder)));
    let opened = files.filter(is_model).filter_map(|path| {
        let checkpoint = Checkpoint::open(&path).ok()?;
        Some((path, checkpoint))
    });
    opened.collect()
}

/// A slice of a matrix of blocks, in blocks.
fn in_blocks(slice: &TensorSlice, last: usize, block: u64) -> TensorSlice {
    let divided = |axis, ranges: &[std::ops::Range<u64>]| {
        let by = if axis == last { block } else { 1 };
        let ranges = ranges.iter().map(|range| range.start / by..range.end / by);
        TensorSlice::Joined {
            axis,
            ranges: ranges.collect(),
        }
    };
    match slice {
        TensorSlice::Range { axis, range } => divided(*axis, std::slice::from_ref(range)),
        TensorSlice::Joined { axis, ranges } => divided(*axis, ranges),
        other => other.clone(),
    }
}

#[test]
fn the_loaded_shares_of_all_workers_are_the_tensor() {
    let (mut split, mut tensors) = (0, 0);
    for (path, checkpoint) in checkpoints() {
        for (rule, of) in [(Rule::Column, 2), (Rule::Row, 3), (Rule::FusedGateUp, 2)] {
            let rules = rules(rule);
            let readable = |name: &str| checkpoint.tensor(name).unwrap().bytes().is_ok();
            let shares: Vec<_> = (0..of)
                .map(|rank| {
                    let load = load(&checkpoint)
                        .filter(readable)
                        .tensor_parallel(rank, of, &rules);
                    load.run()
                        .unwrap_or_else(|e| panic!("{}: {e}", path.display()))
                })
                .collect();
            for (number, first) in shares[0].tensors().iter().enumerate() {
                let (info, whole) = (
                    first.info(),
                    checkpoint.tensor(first.name()).unwrap().bytes().unwrap(),
                );
                let what = format!("{} {rule} {of}: {}", path.display(), info.name);
                let (mut shape, item) = (info.shape.to_vec(), info.encoding.item_bytes());
                let (block, item) = match &info.encoding {
                    Encoding::Block(format) => {
                        (u64::from(format.block_len), u64::from(format.block_bytes))
                    }
                    _ => (1, item.unwrap_or(0)),
                };
                if let (Some(last), true) = (shape.last_mut(), item > 0) {
                    *last /= block;
                }
                tensors += 1;
                let item = usize::try_from(item).unwrap();
                let mut covered = vec![false; whole.len().checked_div(item).unwrap_or(0)];
                for share in &shares {
                    let share = &share.tensors()[number];
                    if item == 0 {
                        // elements that share bytes; their dtypes have no fixture that is split
                        assert!(share.bytes() == &whole[..], "{what}");
                        continue;
                    }
                    let slice = in_blocks(share.slice(), shape.len().saturating_sub(1), block);
                    assert!(
                        share.bytes() == selected_elements(&whole, &shape, item, &slice),
                        "{what}"
                    );
                    selected_numbers(&shape, &slice)
                        .into_iter()
                        .for_each(|number| covered[number] = true);
                    split += usize::from(share.bytes().len() < whole.len());
                }
                assert!(covered.into_iter().all(|covered| covered), "{what}");
            }
        }
    }
    assert!(
        tensors > 1_000 && split > 1_000,
        "{split} shares of {tensors} tensors"
    );
}

#[test]
fn the_dequantised_shares_of_all_workers_are_the_weight() {
    let mut split = 0;
    for (path, checkpoint) in checkpoints() {
        for (rule, of) in [(Rule::Column, 2), (Rule::Row, 3), (Rule::FusedQkv, 2)] {
            let rules = rules(rule);
            let all = remember(&checkpoint).filter(|name| name.ends_with("weight"));
            let Ok(plan) = all.plan() else { continue };
            if plan.check().is_err() {
                continue;
            }
            let whole = all.all().unwrap();
            let mut covered: Vec<_> = whole
                .iter()
                .map(|output| vec![false; output.bytes.len()])
                .collect();
            for rank in 0..of {
                let shares = all.clone().tensor_parallel(rank, of, &rules).all().unwrap();
                for ((found, whole), covered) in shares.iter().zip(&whole).zip(&mut covered) {
                    let (spec, item) = (&whole.spec, whole.spec.dtype.width());
                    let what = format!("{} {rule} {rank}/{of}: {spec}", path.display());
                    let worker = Split {
                        rank,
                        world: of,
                        ..Split::default()
                    };
                    let is_small = spec.shape.len() < 2 && whole.bytes.len() <= 4096;
                    let expected =
                        match share(rules.rule(&spec.name), &spec.shape, &worker).unwrap() {
                            Some(share) if !is_small => TensorSlice::Joined {
                                axis: share.axis,
                                ranges: share.ranges,
                            },
                            _ => TensorSlice::Whole,
                        };
                    assert!(
                        found.bytes
                            == selected_elements(&whole.bytes, &spec.shape, item, &expected),
                        "{what}"
                    );
                    for number in selected_numbers(&spec.shape, &expected) {
                        covered[number * item..][..item].fill(true);
                    }
                    split += usize::from(found.bytes.len() < whole.bytes.len());
                }
            }
            let mut covered = covered.iter().flatten();
            assert!(
                covered.all(|covered| *covered),
                "{} {rule} {of}",
                path.display()
            );
        }
    }
    assert!(split > 300, "{split} shares");
}

/// A model with four heads of queries, two of keys, and biases, of one element per input or output unit.
fn small_model(scratch: &ScratchDir) -> Checkpoint {
    let tensor = |name: &str, shape: &[u64]| {
        let nbytes = usize::try_from(shape.iter().product::<u64>() * 2).unwrap();
        StoredTensor::new(name, "BF16", shape, random_bytes(name.len() as u64, nbytes))
    };
    let tensors = [
        tensor("model.embed_tokens.weight", &[100, 16]),
        tensor("model.layers.0.self_attn.qkv_proj.weight", &[16, 16]),
        tensor("model.layers.0.self_attn.qkv_proj.bias", &[16]),
        tensor("model.layers.0.self_attn.o_proj.weight", &[16, 8]),
        tensor("model.layers.0.self_attn.o_proj.bias", &[16]),
        tensor("model.layers.0.mlp.gate_up_proj.weight", &[12, 16]),
        tensor("model.layers.0.mlp.down_proj.weight", &[16, 6]),
        tensor("model.norm.weight", &[16]),
    ];
    std::fs::write(
        scratch.path("model.safetensors"),
        safetensors(&tensors, &[]),
    )
    .unwrap();
    let config = r#"{"num_attention_heads": 4, "num_key_value_heads": 2}"#;
    std::fs::write(scratch.path("config.json"), config).unwrap();
    Checkpoint::open(scratch.path("")).unwrap()
}

#[test]
fn the_second_of_two_workers_has_its_heads_and_its_half_of_each_fused_matrix() {
    let scratch = ScratchDir::new("tensor-parallel");
    let checkpoint = small_model(&scratch);
    let heads = |axis| TensorSlice::Joined {
        axis,
        ranges: vec![4..8, 10..12, 14..16],
    };
    let half = |axis, range| TensorSlice::Range { axis, range };
    let expected = [
        // the vocabulary is padded to 128
        ("model.embed_tokens.weight", half(0, 64..100)),
        ("model.layers.0.self_attn.qkv_proj.weight", heads(0)),
        ("model.layers.0.self_attn.qkv_proj.bias", heads(0)),
        ("model.layers.0.self_attn.o_proj.weight", half(1, 4..8)),
        ("model.layers.0.self_attn.o_proj.bias", TensorSlice::Whole),
        (
            "model.layers.0.mlp.gate_up_proj.weight",
            TensorSlice::Joined {
                axis: 0,
                ranges: vec![3..6, 9..12],
            },
        ),
        ("model.layers.0.mlp.down_proj.weight", half(1, 3..6)),
        ("model.norm.weight", TensorSlice::Whole),
    ];
    let rules = Rules::default();
    let loaded = load(&checkpoint)
        .tensor_parallel(1, 2, &rules)
        .run()
        .unwrap();
    let made = remember(&checkpoint)
        .tensor_parallel(1, 2, &rules)
        .all()
        .unwrap();
    assert_eq!(
        (loaded.tensors().len(), made.len()),
        (expected.len(), expected.len())
    );
    for (name, slice) in expected {
        let (whole, found) = (checkpoint.tensor(name).unwrap(), loaded.get(name).unwrap());
        assert_eq!(found.slice(), &slice, "{name}");
        let expected = selected_elements(&whole.bytes().unwrap(), &whole.info().shape, 2, &slice);
        assert!(found.bytes() == expected, "{name}");
        let made = made
            .iter()
            .find(|output| *output.spec.name == *name)
            .unwrap();
        assert_eq!(
            (found.shape(), &made.bytes),
            (&made.spec.shape[..], &expected),
            "{name}"
        );
    }
    for (rank, of) in [(2, 2), (0, 0)] {
        let error = load(&checkpoint)
            .tensor_parallel(rank, of, &rules)
            .run()
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("is not below the number of workers"),
            "{error}"
        );
        assert!(
            remember(&checkpoint)
                .tensor_parallel(rank, of, &rules)
                .plan()
                .is_err()
        );
    }
}

#[test]
fn a_worker_reads_what_was_predicted_for_it() {
    let scratch = ScratchDir::new("tensor-parallel-reads");
    let mut compared = vec![("small".to_owned(), small_model(&scratch))];
    for path in [
        "safetensors/sharded",
        "model/scribe.safetensors",
        "model/scribe-Q8_0.gguf",
        "quant/gptq/4bit_act_asym_v1",
    ] {
        compared.push((path.to_owned(), Checkpoint::open(fixture(path)).unwrap()));
    }
    for (name, checkpoint) in compared {
        let predicted = predict(&checkpoint).tp(2).template().unwrap();
        for rank in 0..2 {
            let recording = RecordingLoader::new(PreadLoader::new()).rank(rank);
            let share = load(&checkpoint).loader(recording.clone()).tensor_parallel(
                rank,
                2,
                &Rules::default(),
            );
            let (loaded, whole) = (share.run().unwrap(), checkpoint.catalog().nbytes());
            assert!(loaded.nbytes() < whole, "{name}");
            let recorded = recording.template().unwrap();
            assert_eq!(
                coverage(&recorded, &predicted).share(),
                1.0,
                "{name}: worker {rank}"
            );
        }
    }
}
