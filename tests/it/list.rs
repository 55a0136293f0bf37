//! `list`: which files of a tree are one model, what is said of each, and what is not followed and not opened.

use std::fs;
use std::path::Path;

use anamnesis::{CancelToken, ErrorKind, ModelEntry, checkpoints_below, list};

use crate::support::fixture;
use crate::support::scratch_dir::ScratchDir;
use crate::support::writers::{StoredTensor, gguf, safetensors};

/// A file of safetensors with one F16 tensor of this many elements.
fn model(name: &str, elements: u64) -> Vec<u8> {
    let bytes = vec![0; usize::try_from(2 * elements).unwrap()];
    safetensors(&[StoredTensor::new(name, "F16", &[elements], bytes)], &[])
}

/// A GGUF with a tensor of F32 and an architecture.
fn gguf_model(architecture: &str) -> Vec<u8> {
    let tensor = StoredTensor::new("output_norm.weight", "0", &[4], vec![0; 16]);
    gguf(false, &[("general.architecture", architecture)], &[tensor])
}

fn write(path: &Path, bytes: impl AsRef<[u8]>) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

fn entries(root: &Path) -> Vec<ModelEntry> {
    let models = list(root).run().unwrap();
    models.map(|model| model.unwrap()).collect()
}

/// The paths below a root, with the number of files, or the error.
fn shown(root: &Path) -> Vec<(String, String)> {
    let row = |entry: ModelEntry| {
        let path = entry.path.strip_prefix(root).unwrap_or(&entry.path);
        let text = match entry.error_text() {
            Some(error) => error,
            None => format!("{}", entry.files.unwrap()),
        };
        (path.to_str().unwrap().to_owned(), text)
    };
    entries(root).into_iter().map(row).collect()
}

fn rows(rows: &[(&str, &str)]) -> Vec<(String, String)> {
    let owned = rows.iter();
    owned
        .map(|(path, text)| ((*path).to_owned(), (*text).to_owned()))
        .collect()
}

#[test]
fn numbered_sets_are_one_model_and_epochs_are_several() {
    let scratch = ScratchDir::new("list-sets");
    let put = |name: &str, tensor: &str| write(&scratch.path(name), model(tensor, 4));
    for number in 1..=2 {
        put(&format!("epochs/style-{number:06}.safetensors"), "w");
        put(
            &format!("shards/m-{number:05}-of-00002.safetensors"),
            &format!("w{number}"),
        );
        put(
            &format!("under/m_{number}_of_2.safetensors"),
            &format!("w{number}"),
        );
        put(&format!("ranks/rank{}.safetensors", number - 1), "w");
        put(&format!("lora/style-rank-{}.safetensors", 16 * number), "w");
    }
    // the index names files whose names say nothing, and another model is beside them
    put("index/first.safetensors", "a");
    put("index/second.safetensors", "b");
    put("index/other.safetensors", "c");
    let index = r#"{"weight_map": {"a": "first.safetensors", "b": "second.safetensors"}}"#;
    write(&scratch.path("index/m.safetensors.index.json"), index);
    let found = shown(scratch.dir());
    let wanted = rows(&[
        ("epochs/style-000001.safetensors", "1"),
        ("epochs/style-000002.safetensors", "1"),
        ("index/m.safetensors.index.json", "2"),
        ("index/other.safetensors", "1"),
        ("lora/style-rank-16.safetensors", "1"),
        ("lora/style-rank-32.safetensors", "1"),
        ("ranks/rank0.safetensors", "2"),
        ("shards/m-00001-of-00002.safetensors", "2"),
        ("under/m_1_of_2.safetensors", "2"),
    ]);
    assert_eq!(found, wanted);
    let ranks = entries(&scratch.path("ranks"));
    assert_eq!(ranks[0].parameters, Some(8), "each rank has its share");
    // the same in every run, whatever the number of threads
    for threads in [1, 7] {
        let again = list(scratch.dir()).threads(threads).run().unwrap();
        let paths: Vec<_> = again.map(|entry| entry.unwrap().path).collect();
        let first: Vec<_> = entries(scratch.dir()).into_iter().map(|e| e.path).collect();
        assert_eq!(paths, first, "{threads}");
    }
}

#[test]
fn every_format_of_a_mixed_directory_is_listed() {
    let scratch = ScratchDir::new("list-mixed");
    let path = |name: &str| scratch.path(name);
    write(&path("hf/model.safetensors"), model("w", 6));
    write(&path("hf/adapter_model.safetensors"), model("a", 2));
    write(&path("hf/q.gguf"), gguf_model("llama"));
    fs::copy(fixture("npz/all_le.npz"), path("hf/more.npz")).unwrap();
    let config = r#"{"model_type": "gemma3", "text_config": {"model_type": "gemma3_text",
        "max_position_embeddings": 8192}}"#;
    write(&path("hf/config.json"), config);
    write(&path("hf/tokenizer.json"), "{}");
    write(&path("hf/optimizer.pt"), "state");
    write(&path("hf/inner/model.safetensors"), model("w", 1));
    let found = entries(scratch.dir());
    let names: Vec<_> = found
        .iter()
        .map(|entry| {
            entry
                .path
                .strip_prefix(scratch.dir())
                .unwrap()
                .to_str()
                .unwrap()
        })
        .collect();
    assert_eq!(
        names,
        [
            "hf",
            "hf/adapter_model.safetensors",
            "hf/inner/model.safetensors",
            "hf/more.npz",
            "hf/q.gguf"
        ]
    );
    let main = &found[0];
    assert_eq!(main.architecture.as_deref(), Some("gemma3"));
    assert_eq!((main.context, main.parameters), (Some(8192), Some(6)));
    assert_eq!(
        (main.dtype.as_deref(), &main.quantisation),
        (Some("F16"), &None)
    );
    assert_eq!(
        main.nbytes,
        Some(fs::metadata(path("hf/model.safetensors")).unwrap().len())
    );
    assert_eq!(found[4].architecture.as_deref(), Some("llama"));
    // one directory is one checkpoint to those who read all of it
    assert_eq!(checkpoints_below(scratch.dir()).unwrap(), [path("hf")]);
    let paths: Vec<_> = list(scratch.dir())
        .paths()
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert_eq!(paths.len(), found.len());
}

#[test]
fn content_decides_about_names_that_say_nothing() {
    let scratch = ScratchDir::new("list-content");
    let path = |name: &str| scratch.path(name);
    write(&path("sha256-abc"), gguf_model("llama"));
    write(&path("weights"), model("w", 1));
    write(&path("firmware.bin"), "some text");
    write(&path("pytorch_model.bin"), "some text");
    write(&path("real.bin"), model("w", 1));
    write(&path("download.safetensors.part"), &model("w", 9)[..12]);
    write(&path("notes.txt"), model("w", 1));
    write(&path("object.pkl"), b"\x80\x04K\x01.");
    write(
        &path("tool.jar"),
        b"PK\x05\x06\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
    );
    write(&path(".hidden.safetensors"), model("w", 1));
    write(&path(".git/model.safetensors"), model("w", 1));
    write(
        &path("random"),
        [1, 0, 0, 0, 0, 0, 0, 0, b'{', 0xff, 0, 0, 0],
    );
    let found = shown(scratch.dir());
    let names: Vec<_> = found
        .iter()
        .map(|(name, text)| (&**name, &**text == "1"))
        .collect();
    assert_eq!(
        names,
        [
            ("pytorch_model.bin", false),
            ("real.bin", true),
            ("sha256-abc", true),
            ("weights", true),
        ],
        "{found:?}"
    );
}

#[test]
fn broken_models_are_entries_with_their_reason() {
    let scratch = ScratchDir::new("list-broken");
    let path = |name: &str| scratch.path(name);
    let whole = model("w", 100);
    write(&path("cut.safetensors"), &whole[..whole.len() - 3]);
    write(&path("empty.safetensors"), "");
    write(&path("page.gguf"), "<!DOCTYPE html><html></html>");
    write(
        &path("index/model-00001-of-00002.safetensors"),
        model("a", 1),
    );
    let index = r#"{"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}"#;
    write(&path("index/model.safetensors.index.json"), index);
    write(&path("set/m-00002-of-00003.safetensors"), model("a", 1));
    write(&path("good.safetensors"), whole);
    let found = shown(scratch.dir());
    let reasons = [
        ("cut.safetensors", "ends at byte"),
        ("empty.safetensors", "empty"),
        ("good.safetensors", "1"),
        ("index/model.safetensors.index.json", "model-00002-of-00002"),
        ("page.gguf", "HTML"),
        ("set/m-00002-of-00003.safetensors", "m-00001-of-00003"),
    ];
    assert_eq!(found.len(), reasons.len(), "{found:?}");
    for ((path, text), (wanted, reason)) in found.iter().zip(reasons) {
        assert!(path == wanted && text.contains(reason), "{path}: {text}");
    }
    let missing = list(scratch.path("nosuch")).run().unwrap_err();
    assert!(missing.to_string().contains("nosuch"), "{missing}");
}

#[test]
fn a_quantised_model_has_the_parameters_that_its_codes_stand_for() {
    let root = fixture("quant/ct_written/w4a16_asym_g128");
    let found = entries(&root);
    let entry = &found[0];
    let plan = anamnesis::remember(&anamnesis::Checkpoint::open(&root).unwrap())
        .plan()
        .unwrap();
    let made = plan.jobs.iter();
    let made: u64 = made
        .map(|job| job.output.shape.iter().product::<u64>())
        .sum();
    assert_eq!(entry.parameters, Some(made));
    assert_eq!(entry.quantisation.as_deref(), Some("compressed-tensors"));
    // stored names and names of weights
    let weight = plan.jobs[0].output.name.clone();
    let part = plan
        .jobs
        .iter()
        .find(|job| job.parts.len() > 1)
        .unwrap()
        .parts[0]
        .tensor;
    let checkpoint = anamnesis::Checkpoint::open(&root).unwrap();
    let part = checkpoint.catalog().tensors()[part].name.clone();
    for name in [&*weight, &*part] {
        let count = |wanted: &str| {
            let wanted = wanted.to_owned();
            list(&root)
                .has(move |name| name == wanted)
                .run()
                .unwrap()
                .count()
        };
        assert_eq!((count(name), count("none")), (1, 0), "{name}");
    }
}

#[test]
fn a_store_of_ollama_is_listed_by_its_manifests() {
    let scratch = ScratchDir::new("list-ollama");
    let digest = "0123456789abcdef".repeat(4);
    let manifest = format!(
        r#"{{"layers": [{{"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:{digest}"}}]}}"#
    );
    let tags = "models/manifests/registry.ollama.ai/library/m";
    write(
        &scratch.path(&format!("models/blobs/sha256-{digest}")),
        gguf_model("qwen3"),
    );
    write(
        &scratch.path("models/blobs/sha256-other"),
        gguf_model("none"),
    );
    write(&scratch.path(&format!("{tags}/latest")), &manifest);
    write(
        &scratch.path(&format!("{tags}/gone")),
        manifest.replace('0', "1"),
    );
    write(
        &scratch.path(&format!("{tags}/template")),
        r#"{"layers": []}"#,
    );
    for root in ["", "models", "models/manifests", tags] {
        let found = entries(&scratch.path(root));
        let rows: Vec<_> = found
            .iter()
            .map(|e| (e.path.file_name().unwrap(), e.error.is_none()))
            .collect();
        assert_eq!(
            rows,
            [("gone".as_ref(), false), ("latest".as_ref(), true)],
            "{root}"
        );
        assert_eq!(found[1].architecture.as_deref(), Some("qwen3"));
    }
    // and every other verb opens it by the same path
    let opened = anamnesis::Checkpoint::open(scratch.path(&format!("{tags}/latest"))).unwrap();
    assert_eq!(opened.catalog().format(), "gguf");
}

#[cfg(unix)]
#[test]
fn a_repository_of_the_hub_is_one_model() {
    use std::os::unix::fs::symlink;

    let scratch = ScratchDir::new("list-hub");
    let repository = scratch.path("hub/models--org--name");
    let put = |revision: &str, name: &str, elements: u64| {
        let digest = format!("{name}-{elements}");
        let blob = repository.join("blobs").join(&digest);
        let bytes = match name {
            "config.json" => br#"{"model_type": "llama"}"#.to_vec(),
            _ => model("w", elements),
        };
        write(&blob, bytes);
        let link = repository.join("snapshots").join(revision).join(name);
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        symlink(format!("../../blobs/{digest}"), link).unwrap();
    };
    put("aaa", "model.safetensors", 3);
    put("aaa", "config.json", 0);
    put("bbb", "model.safetensors", 5);
    write(&repository.join("refs/main"), "bbb");
    // other kinds of repositories, a download that was not begun
    write(&scratch.path("hub/datasets--a--b/snapshots/c/data.npz"), "");
    write(&scratch.path("hub/models--a--none/refs/main"), "ccc");
    for root in [scratch.path("hub"), repository.clone()] {
        let found = entries(&root);
        let rows: Vec<_> = found.iter().map(|e| (&*e.path, e.parameters)).collect();
        assert_eq!(rows, [(&*repository, Some(5))]);
        let all = list(&root).all_snapshots(true).run().unwrap();
        let all: Vec<_> = all
            .map(|e| e.unwrap())
            .map(|e| (e.path, e.parameters))
            .collect();
        let snapshots = repository.join("snapshots");
        assert_eq!(
            all,
            [
                (snapshots.join("aaa"), Some(3)),
                (snapshots.join("bbb/model.safetensors"), Some(5))
            ]
        );
    }
    // a repository may have several models, each of which is one
    put("bbb", "other.safetensors", 7);
    fs::rename(
        repository.join("snapshots/bbb/model.safetensors"),
        repository.join("snapshots/bbb/first.safetensors"),
    )
    .unwrap();
    let found = entries(&repository);
    let sizes: Vec<_> = found.iter().map(|e| e.parameters).collect();
    assert_eq!(sizes, [Some(5), Some(7)]);
}

#[cfg(unix)]
#[test]
fn links_to_directories_are_not_followed_and_pipes_not_opened() {
    use std::os::unix::fs::symlink;

    let scratch = ScratchDir::new("list-links");
    write(&scratch.path("a/model.safetensors"), model("w", 1));
    symlink("..", scratch.path("a/loop")).unwrap();
    symlink("a", scratch.path("b")).unwrap();
    symlink("a/model.safetensors", scratch.path("c.safetensors")).unwrap();
    symlink("nowhere", scratch.path("d.safetensors")).unwrap();
    let fifo = scratch.path("pipe.safetensors");
    let made = std::process::Command::new("mkfifo")
        .arg(&fifo)
        .status()
        .unwrap();
    assert!(made.success());
    // a writer that waits for a reader would be released by an open
    let writer = std::thread::spawn({
        let fifo = fifo.clone();
        move || fs::OpenOptions::new().write(true).open(fifo)
    });
    let found = shown(scratch.dir());
    let names: Vec<_> = found
        .iter()
        .map(|(name, text)| (&**name, &**text == "1"))
        .collect();
    let wanted = [
        ("a/model.safetensors", true),
        ("c.safetensors", true),
        ("d.safetensors", false),
        ("pipe.safetensors", false),
    ];
    assert_eq!(names, wanted, "{found:?}");
    std::thread::sleep(std::time::Duration::from_millis(50));
    assert!(!writer.is_finished(), "the pipe was opened");
    drop(fs::File::open(&fifo));
    let _ = writer.join();
    // a link that the caller names is the caller's
    assert_eq!(shown(&scratch.path("b")).len(), 1);
}

#[test]
fn a_walk_is_cancelled_and_abandoned() {
    let scratch = ScratchDir::new("list-cancel");
    for number in 0..200 {
        write(
            &scratch.path(&format!("{}/m{number}.safetensors", number % 7)),
            model("w", 1),
        );
    }
    let token = CancelToken::new();
    let mut models = list(scratch.dir()).cancel(&token).run().unwrap();
    assert!(models.next().unwrap().is_ok());
    token.cancel();
    let error = models.next().unwrap().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Cancelled));
    assert!(models.next().is_none() || models.next().unwrap().is_err());
    // dropped in the middle: nothing goes on
    drop(list(scratch.dir()).run().unwrap().next());
    assert_eq!(entries(scratch.dir()).len(), 200);
}
