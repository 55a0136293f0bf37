//! Templates predicted from the headers of published checkpoints of 72 and 671 billion parameters: they cover every byte, and
//! their files are small.

#[path = "../../crates/template/tests/it/checkpoint_shapes.rs"]
mod checkpoint_shapes;

use std::fs::File;
use std::io::Write;

use self::checkpoint_shapes::Model;
use crate::support::scratch_dir::ScratchDir;
use anamnesis::predict::ReadOrder;
use anamnesis::template::{Template, TemplateLimits, coverage};
use anamnesis::{Checkpoint, predict};

/// Writes the headers of a model's files; the data are holes.
fn sparse_checkpoint(scratch: &ScratchDir, model: &Model, config: &str) -> Checkpoint {
    for (name, header, nbytes) in model.files() {
        let mut file = File::create(scratch.path(name)).unwrap();
        file.write_all(header).unwrap();
        file.set_len(nbytes).unwrap();
    }
    std::fs::write(scratch.path("config.json"), config).unwrap();
    Checkpoint::open(scratch.path("")).unwrap()
}

/// Asserts that the encoded template has at most `max_bytes`, covers every byte of the checkpoint, and decodes to itself.
fn assert_complete_and_small(
    what: &str,
    checkpoint: &Checkpoint,
    template: &Template,
    max_bytes: usize,
) {
    let bytes = template.to_bytes();
    println!("{what}: {} bytes; {template}", bytes.len());
    assert!(
        bytes.len() <= max_bytes,
        "{what}: {} bytes, more than {max_bytes}",
        bytes.len()
    );
    let all = predict(checkpoint).template().unwrap();
    let nbytes: u64 = checkpoint
        .catalog()
        .files()
        .iter()
        .map(|file| file.nbytes)
        .sum();
    let covered = coverage(&all, template);
    assert_eq!(
        (covered.nbytes, covered.covered),
        (nbytes, nbytes),
        "{what}"
    );
    assert_eq!(
        Template::from_bytes(&bytes, &TemplateLimits::default()).unwrap(),
        *template
    );
}

#[test]
fn a_template_of_qwen_72b_has_95_kb() {
    let (scratch, model) = (
        ScratchDir::new("predict-qwen"),
        checkpoint_shapes::qwen_72b(),
    );
    let config = r#"{"num_attention_heads":64,"num_key_value_heads":8,"num_hidden_layers":80}"#;
    let checkpoint = sparse_checkpoint(&scratch, &model, config);
    assert_eq!(
        (
            checkpoint.catalog().files().len(),
            checkpoint.catalog().tensors().len()
        ),
        (37, 963)
    );
    for order in [ReadOrder::File, ReadOrder::Layer, ReadOrder::Name] {
        let template = predict(&checkpoint).tp(4).order(order).template().unwrap();
        assert_complete_and_small(
            &format!("Qwen2.5-72B, tp 4, by {order}"),
            &checkpoint,
            &template,
            95_000,
        );
        let whole = predict(&checkpoint)
            .tp(4)
            .whole(true)
            .order(order)
            .template()
            .unwrap();
        assert_complete_and_small(
            &format!("Qwen2.5-72B, tp 4, by {order}, whole"),
            &checkpoint,
            &whole,
            95_000,
        );
    }
    // each worker reads a quarter of the checkpoint, and what every worker needs: headers, norms, small biases
    let template = predict(&checkpoint).tp(4).template().unwrap();
    for group in template.groups() {
        let shared = group.nbytes() - model.nbytes() / 4;
        assert!(shared < 4 << 20, "{shared} bytes more than a quarter");
    }
}

#[test]
fn a_template_of_deepseek_671b_has_545_kb() {
    let (scratch, model) = (
        ScratchDir::new("predict-deepseek"),
        checkpoint_shapes::deepseek_671b(),
    );
    let config = r#"{"num_attention_heads":128,"num_key_value_heads":128,"num_hidden_layers":61,"n_routed_experts":256}"#;
    let checkpoint = sparse_checkpoint(&scratch, &model, config);
    assert_eq!(
        (
            checkpoint.catalog().files().len(),
            checkpoint.catalog().tensors().len()
        ),
        (163, 91_991)
    );
    for order in [ReadOrder::File, ReadOrder::Layer] {
        let by_expert = predict(&checkpoint)
            .tp(16)
            .ep(16)
            .order(order)
            .template()
            .unwrap();
        assert_complete_and_small(
            &format!("DeepSeek-V3, tp 16, ep 16, by {order}"),
            &checkpoint,
            &by_expert,
            545_000,
        );
    }
    let stages = predict(&checkpoint).tp(8).pp(2).ep(8).template().unwrap();
    assert_complete_and_small(
        "DeepSeek-V3, tp 8, pp 2, ep 8",
        &checkpoint,
        &stages,
        545_000,
    );
    let slices_in_pages = predict(&checkpoint)
        .tp(16)
        .max_gap(4095)
        .template()
        .unwrap();
    assert_complete_and_small(
        "DeepSeek-V3, tp 16, a slice of every expert, whole pages",
        &checkpoint,
        &slices_in_pages,
        545_000,
    );
    // exact slices of every expert are more runs than the default limits let a reader walk
    let exact_slices = predict(&checkpoint).tp(16).template().unwrap();
    let bytes = exact_slices.to_bytes();
    println!(
        "DeepSeek-V3, tp 16, a slice of every expert: {} bytes; {exact_slices}",
        bytes.len()
    );
    assert!(bytes.len() <= 545_000);
}
