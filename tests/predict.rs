//! Templates before the first run: from the headers of large checkpoints, and beside what loaders really read.

mod common;
#[path = "../crates/template/tests/shapes/mod.rs"]
mod shapes;

use std::fs::File;
use std::io::Write;

use anamnesis::load::{Pread, Recording};
use anamnesis::template::{Limits, Template, coverage};
use anamnesis::{Checkpoint, OpenOptions, Order, load, predict};
use common::scratch::Scratch;
use common::{fixture, fixtures};
use shapes::Model;

/// Writes the files of a model with their headers; the rest are holes.
fn sparse(scratch: &Scratch, model: &Model, config: &str) -> Checkpoint {
    for (name, header, nbytes) in model.files() {
        let mut file = File::create(scratch.path(name)).unwrap();
        file.write_all(header).unwrap();
        file.set_len(nbytes).unwrap();
    }
    std::fs::write(scratch.path("config.json"), config).unwrap();
    Checkpoint::open(scratch.path("")).unwrap()
}

/// Asserts the size of its file, that it holds every byte of the checkpoint, and that it can be read again.
fn holds_all(what: &str, checkpoint: &Checkpoint, template: &Template, most: usize) {
    let bytes = template.to_bytes();
    println!("{what}: {} bytes; {template}", bytes.len());
    assert!(bytes.len() <= most, "{what}: {} bytes, more than {most}", bytes.len());
    let all = predict(checkpoint).template().unwrap();
    let nbytes: u64 = checkpoint.catalog().files.iter().map(|file| file.nbytes).sum();
    let covered = coverage(&all, template);
    assert_eq!((covered.nbytes, covered.covered), (nbytes, nbytes), "{what}");
    assert_eq!(Template::from_bytes(&bytes, &Limits::default()).unwrap(), *template);
}

#[test]
fn qwen_72b_for_four_workers() {
    let (scratch, model) = (Scratch::new("predict-qwen"), shapes::qwen_72b());
    let config = r#"{"num_attention_heads":64,"num_key_value_heads":8,"num_hidden_layers":80}"#;
    let checkpoint = sparse(&scratch, &model, config);
    assert_eq!((checkpoint.catalog().files.len(), checkpoint.catalog().tensors().len()), (37, 963));
    for order in [Order::File, Order::Layer, Order::Name] {
        let template = predict(&checkpoint).tp(4).order(order).template().unwrap();
        holds_all(&format!("Qwen2.5-72B, tp 4, by {order}"), &checkpoint, &template, 95_000);
        let whole = predict(&checkpoint).tp(4).whole(true).order(order).template().unwrap();
        holds_all(&format!("Qwen2.5-72B, tp 4, by {order}, whole"), &checkpoint, &whole, 95_000);
    }
    // each worker reads a quarter, and what all read: headers, norms, small biases
    let template = predict(&checkpoint).tp(4).template().unwrap();
    for group in template.groups() {
        let nbytes = group.nbytes() - model.nbytes() / 4;
        assert!(nbytes < 4 << 20, "{} more than a quarter", nbytes);
    }
}

#[test]
fn deepseek_671b_for_sixteen_workers() {
    let (scratch, model) = (Scratch::new("predict-deepseek"), shapes::deepseek_671b());
    let config =
        r#"{"num_attention_heads":128,"num_key_value_heads":128,"num_hidden_layers":61,"n_routed_experts":256}"#;
    let checkpoint = sparse(&scratch, &model, config);
    assert_eq!((checkpoint.catalog().files.len(), checkpoint.catalog().tensors().len()), (163, 91_991));
    for order in [Order::File, Order::Layer, Order::Name] {
        let by_expert = predict(&checkpoint).tp(16).ep(16).order(order).template().unwrap();
        holds_all(&format!("DeepSeek-V3, tp 16, ep 16, by {order}"), &checkpoint, &by_expert, 545_000);
    }
    let stages = predict(&checkpoint).tp(8).pp(2).ep(8).template().unwrap();
    holds_all("DeepSeek-V3, tp 8, pp 2, ep 8", &checkpoint, &stages, 545_000);
    let copies = predict(&checkpoint).dp(16).ep(16).template().unwrap();
    holds_all("DeepSeek-V3, dp 16, ep 16", &checkpoint, &copies, 545_000);
    let pages = predict(&checkpoint).tp(16).gap(4095).template().unwrap();
    holds_all("DeepSeek-V3, tp 16, a part of every expert, pages", &checkpoint, &pages, 545_000);
    // exact slices of every expert are more runs than are walked or read by default
    let exact = predict(&checkpoint).tp(16).template().unwrap();
    let bytes = exact.to_bytes();
    println!("DeepSeek-V3, tp 16, a part of every expert: {} bytes; {exact}", bytes.len());
    assert!(bytes.len() <= 545_000);
}

/// Loads with a recorder and says how much of it was predicted, and how alike the two are in order.
fn predicted(checkpoint: &Checkpoint, order: Order) -> (f64, Option<f64>, f64) {
    let predict = predict(checkpoint).order(order);
    let recording = Recording::new(Pread::new().threads(2));
    let load = load(checkpoint).loader(recording.clone()).threads(1);
    let load = match order {
        Order::Name => load.order(|a, b| a.name.cmp(&b.name)),
        _ => load,
    };
    load.run().unwrap();
    let (recorded, predicted) = (recording.template().unwrap(), predict.template().unwrap());
    let covered = coverage(&recorded, &predicted);
    (covered.share(), covered.order, coverage(&predicted, &recorded).share())
}

#[test]
fn what_is_predicted_is_what_loaders_read() {
    for path in ["safetensors/sharded", "model/scribe.safetensors", "model/scribe-Q8_0.gguf", "npy/be_c16.npy"] {
        let checkpoint = Checkpoint::open(fixture(path)).unwrap();
        assert_eq!(predicted(&checkpoint, Order::File), (1.0, Some(1.0), 1.0), "{path}");
        assert_eq!(predicted(&checkpoint, Order::Name), (1.0, Some(1.0), 1.0), "{path}");
    }
}

/// Whatever the format: members of archives, strides, deflated bytes, tied and sparse tensors.
#[test]
fn every_fixture_reads_what_is_predicted() {
    let mut compared = 0;
    for (path, _) in fixtures() {
        let Ok(checkpoint) = OpenOptions::new().single(true).open(&path) else { continue };
        let template = predict(&checkpoint).tp(3).template().unwrap();
        assert_eq!(template.groups().len(), 3, "{}", path.display());
        let whole = predict(&checkpoint).template().unwrap();
        assert_eq!(coverage(&whole, &template).share(), 1.0, "{}", path.display());
        let recording = Recording::new(Pread::new());
        if load(&checkpoint).loader(recording.clone()).run().is_err() {
            continue; // sparse, or without data
        }
        let recorded = recording.template().unwrap();
        let (there, back) = (coverage(&recorded, &whole), coverage(&whole, &recorded));
        assert_eq!(there.share(), 1.0, "{}", path.display());
        // PyTorch's loader reads storages whole, and ours the part of one that a tensor is
        let exact = checkpoint.catalog().format != "pth";
        assert!(back.covered == back.nbytes || !exact, "{}: {back:?}", path.display());
        compared += 1;
    }
    assert!(compared > 150, "{compared}");
}
