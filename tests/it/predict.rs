//! Templates before the first run: from the headers of large checkpoints, and beside what loaders really read.

#[path = "../../crates/template/tests/it/checkpoint_shapes.rs"]
mod checkpoint_shapes;

use std::fs::File;
use std::io::Write;

use self::checkpoint_shapes::Model;
use crate::support::scratch_dir::ScratchDir;
use crate::support::writers::{StoredTensor, safetensors};
use crate::support::{fixture, fixtures};
use anamnesis::load::{PreadLoader, RecordingLoader};
use anamnesis::predict::ReadOrder;
use anamnesis::template::parallel::{Rule, Rules};
use anamnesis::template::{StridedRange, Template, TemplateLimits, coverage};
use anamnesis::{Checkpoint, ErrorKind, OpenOptions, Predict, load, predict};

/// Writes the files of a model with their headers; the rest are holes.
fn sparse(scratch: &ScratchDir, model: &Model, config: &str) -> Checkpoint {
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
    assert!(
        bytes.len() <= most,
        "{what}: {} bytes, more than {most}",
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
fn qwen_72b_for_four_workers() {
    let (scratch, model) = (
        ScratchDir::new("predict-qwen"),
        checkpoint_shapes::qwen_72b(),
    );
    let config = r#"{"num_attention_heads":64,"num_key_value_heads":8,"num_hidden_layers":80}"#;
    let checkpoint = sparse(&scratch, &model, config);
    assert_eq!(
        (
            checkpoint.catalog().files().len(),
            checkpoint.catalog().tensors().len()
        ),
        (37, 963)
    );
    for order in [ReadOrder::File, ReadOrder::Layer, ReadOrder::Name] {
        let template = predict(&checkpoint).tp(4).order(order).template().unwrap();
        holds_all(
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
        holds_all(
            &format!("Qwen2.5-72B, tp 4, by {order}, whole"),
            &checkpoint,
            &whole,
            95_000,
        );
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
    let (scratch, model) = (
        ScratchDir::new("predict-deepseek"),
        checkpoint_shapes::deepseek_671b(),
    );
    let config = r#"{"num_attention_heads":128,"num_key_value_heads":128,"num_hidden_layers":61,"n_routed_experts":256}"#;
    let checkpoint = sparse(&scratch, &model, config);
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
        holds_all(
            &format!("DeepSeek-V3, tp 16, ep 16, by {order}"),
            &checkpoint,
            &by_expert,
            545_000,
        );
    }
    let stages = predict(&checkpoint).tp(8).pp(2).ep(8).template().unwrap();
    holds_all(
        "DeepSeek-V3, tp 8, pp 2, ep 8",
        &checkpoint,
        &stages,
        545_000,
    );
    let pages = predict(&checkpoint)
        .tp(16)
        .max_gap(4095)
        .template()
        .unwrap();
    holds_all(
        "DeepSeek-V3, tp 16, a part of every expert, pages",
        &checkpoint,
        &pages,
        545_000,
    );
    // exact slices of every expert are more runs than are walked or read by default
    let exact = predict(&checkpoint).tp(16).template().unwrap();
    let bytes = exact.to_bytes();
    println!(
        "DeepSeek-V3, tp 16, a part of every expert: {} bytes; {exact}",
        bytes.len()
    );
    assert!(bytes.len() <= 545_000);
}

/// Loads with a recorder and says how much of it was predicted, and how alike the two are in order.
fn predicted(checkpoint: &Checkpoint, order: ReadOrder) -> (f64, Option<f64>, f64) {
    let predict = predict(checkpoint).order(order);
    let recording = RecordingLoader::new(PreadLoader::new().threads(2));
    let load = load(checkpoint).loader(recording.clone()).threads(1);
    let load = match order {
        ReadOrder::Name => load.order(|a, b| a.name.cmp(&b.name)),
        _ => load,
    };
    load.run().unwrap();
    let (recorded, predicted) = (recording.template().unwrap(), predict.template().unwrap());
    let covered = coverage(&recorded, &predicted);
    (
        covered.share(),
        covered.order,
        coverage(&predicted, &recorded).share(),
    )
}

#[test]
fn what_is_predicted_is_what_loaders_read() {
    for path in [
        "safetensors/sharded",
        "model/scribe.safetensors",
        "model/scribe-Q8_0.gguf",
        "npy/be_c16.npy",
    ] {
        let checkpoint = Checkpoint::open(fixture(path)).unwrap();
        assert_eq!(
            predicted(&checkpoint, ReadOrder::File),
            (1.0, Some(1.0), 1.0),
            "{path}"
        );
        assert_eq!(
            predicted(&checkpoint, ReadOrder::Name),
            (1.0, Some(1.0), 1.0),
            "{path}"
        );
    }
}

/// Whatever the format: members of archives, strides, deflated bytes, tied and sparse tensors.
#[test]
fn every_fixture_reads_what_is_predicted() {
    let mut compared = 0;
    for (path, _) in fixtures() {
        let Ok(checkpoint) = OpenOptions::new().single(true).open(&path) else {
            continue;
        };
        let template = predict(&checkpoint).tp(3).template().unwrap();
        assert_eq!(template.groups().len(), 3, "{}", path.display());
        let whole = predict(&checkpoint).template().unwrap();
        assert_eq!(
            coverage(&whole, &template).share(),
            1.0,
            "{}",
            path.display()
        );
        let recording = RecordingLoader::new(PreadLoader::new());
        if load(&checkpoint).loader(recording.clone()).run().is_err() {
            continue; // sparse, or without data
        }
        let recorded = recording.template().unwrap();
        let (there, back) = (coverage(&recorded, &whole), coverage(&whole, &recorded));
        assert_eq!(there.share(), 1.0, "{}", path.display());
        // PyTorch's loader reads storages whole, and ours the part of one that a tensor is
        let exact = checkpoint.catalog().format() != "pth";
        assert!(
            back.covered == back.nbytes || !exact,
            "{}: {back:?}",
            path.display()
        );
        compared += 1;
    }
    assert!(compared > 150, "{compared}");
}

/// A template of a small model of zeros, with this configuration.
fn small(
    name: &str,
    config: &str,
    tensors: &[(&str, &str, &[u64])],
    of: impl Fn(Predict<'_>) -> Predict<'_>,
) -> Small {
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
    Small {
        template: of(predict(&checkpoint)).template().unwrap(),
        header,
    }
}

/// A prediction, and where the first tensor begins.
struct Small {
    template: Template,
    header: u64,
}

impl std::ops::Deref for Small {
    type Target = Template;

    fn deref(&self) -> &Template {
        &self.template
    }
}

/// What a worker reads behind the header, from the first tensor on.
fn reads(template: &Small, rank: u32) -> Vec<String> {
    let header = template.header;
    let group = template.group(rank).unwrap();
    let mut accesses = group.accesses().iter().map(|access| access.bytes);
    let mut first = accesses.next().unwrap();
    (first.start, first.len) = (first.start + header, first.len - header);
    let moved = |bytes: StridedRange| {
        StridedRange {
            start: bytes.start - header,
            ..bytes
        }
        .to_string()
    };
    std::iter::once(first)
        .filter(|first| first.len > 0)
        .chain(accesses)
        .map(moved)
        .collect()
}

#[test]
fn stages_have_layers_and_ends() {
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
    let template = small("predict-stages", three, tensors, |predict| {
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
    // 64 words are half each; of three layers the first stage has two; what belongs to no stack of layers is with it
    assert_eq!(reads(&template, 0), ["1024+512", "2048+256", "2576+16"]);
    assert_eq!(reads(&template, 1), ["1536+768", "2576+16"]);
    // layers in the order of their numbers, the norm, and half of the head
    assert_eq!(
        reads(&template, 2),
        ["2432+128", "2304+128", "2560+16", "0+512"]
    );
    // a head that is the embedding
    let tied = small("predict-tied", three, &tensors[1..], |predict| {
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
    let template = small("predict-packed", "{}", tensors, |predict| predict.tp(2));
    assert_eq!(
        reads(&template, 1),
        ["48+48", "108+12 ×4 every 24", "198+6 ×2 every 12", "228+12"]
    );
}

#[test]
fn experts_are_dealt_out() {
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
    // whole experts for four workers, attention in halves, twice
    let template = small("predict-experts", "{}", &tensors, |predict| {
        predict.tp(2).dp(2).ep(4)
    });
    assert_eq!(reads(&template, 1), ["64+64", "288+32", "416+32"]);
    assert_eq!(template.group(3).unwrap().name(), "dp 1, tp 1");
    // two groups of two: half of each of two experts
    let template = small("predict-groups", "{}", &tensors, |predict| {
        let mut rules = Rules::default();
        rules.put_first("*_exps.*", Rule::Column);
        predict.tp(2).dp(2).ep(2).rules(rules)
    });
    assert_eq!(
        reads(&template, 3),
        ["160+32", "224+32", "336+16 ×2 every 32", "416+32"]
    );
    // none: a part of each
    let template = small("predict-no-ep", "{}", &tensors, |predict| predict.tp(4));
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
    let template = small("predict-heads", config, tensors, |predict| predict.tp(4));
    assert_eq!(
        (reads(&template, 1), reads(&template, 2)),
        (vec!["0+32".into()], vec!["32+32".into()])
    );
    let told = small("predict-told", config, tensors, |predict| {
        predict.tp(4).heads(4).kv_heads(4)
    });
    assert_eq!(reads(&told, 1), ["16+16"]);
}

#[test]
fn what_cannot_be_predicted_or_recorded_is_said() {
    let checkpoint =
        Checkpoint::from_bytes(std::fs::read(fixture("model/scribe.safetensors")).unwrap())
            .unwrap();
    let recording = RecordingLoader::new(PreadLoader::new());
    assert!(
        recording
            .template()
            .unwrap_err()
            .to_string()
            .contains("nothing was recorded")
    );
    load(&checkpoint).loader(recording.clone()).run().unwrap();
    for error in [
        predict(&checkpoint).template().unwrap_err(),
        recording.template().unwrap_err(),
    ] {
        assert!(error.to_string().contains("open a path"), "{error}");
    }
    let opened = |name: &str| Checkpoint::open(fixture(name)).unwrap();
    let (one, two) = (
        opened("model/scribe.safetensors"),
        opened("model/scribe-Q8_0.gguf"),
    );
    let recording = RecordingLoader::new(PreadLoader::new()).rank(3);
    load(&one).loader(recording.clone()).run().unwrap();
    assert_eq!(recording.template().unwrap().groups()[0].rank(), 3);
    load(&two).loader(recording.clone()).run().unwrap();
    assert!(
        recording
            .template()
            .unwrap_err()
            .to_string()
            .contains("more than one was loaded")
    );
    for (degrees, what) in [
        ((0, 1), "tp is 0"),
        ((1 << 16, 2), "65536 workers"),
        ((4, u32::MAX), "65536 workers"),
    ] {
        let error = predict(&one)
            .tp(degrees.0)
            .dp(degrees.1)
            .template()
            .unwrap_err();
        assert!(error.to_string().contains(what), "{error}");
    }
    // more accesses than the limits allow
    let limits = anamnesis::Limits {
        memory: 1 << 20,
        ..anamnesis::Limits::default()
    };
    let bounded = OpenOptions::new()
        .limits(limits)
        .open(fixture("model/scribe.safetensors"))
        .unwrap();
    let error = predict(&bounded).tp(60_000).template().unwrap_err();
    assert!(
        matches!(
            error.kind(),
            ErrorKind::Limit {
                limit: "memory",
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn a_file_that_changed_is_named() {
    let scratch = ScratchDir::new("predict-changed");
    let path = scratch.path("in.safetensors");
    std::fs::copy(fixture("model/scribe.safetensors"), &path).unwrap();
    let checkpoint = OpenOptions::new().mmap(false).open(&path).unwrap();
    File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(5000)
        .unwrap();
    let error = predict(&checkpoint).template().unwrap_err();
    assert!(
        error.path() == Some(&*path) && error.to_string().contains("5000 bytes"),
        "{error}"
    );
}
