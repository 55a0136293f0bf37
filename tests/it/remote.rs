//! Checkpoints at URLs: how many requests opening makes, of how many rounds, and what failures say.

use std::io::Write;
use std::time::{Duration, Instant};

use crate::remote_template::options;
use crate::support::fixture;
use crate::support::random::random_bytes;
use crate::support::tensor_files::single_tensor;
use crate::support::web_server::{AnsweredRequest, TestServer, depth, sent};
use crate::support::writers::{StoredTensor, npy_header, safetensors};
use anamnesis::{CancelToken, Checkpoint, ErrorKind, OpenOptions, fit, load, remember};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

/// Requests, rounds and tensors of opening a URL.
fn counts(server: &TestServer, path: &str) -> (usize, usize, usize) {
    server.answered();
    let checkpoint = Checkpoint::open(server.url(path)).unwrap_or_else(|e| panic!("{path}: {e}"));
    let requests = server.answered();
    let tensors = checkpoint.catalog().tensors().len();
    (requests.len(), depth(&requests), tensors)
}

/// Serves `count` shards of 20 tensors with an index.
fn serve_shards(server: &TestServer, count: usize) {
    let mut map = Vec::new();
    for shard in 1..=count {
        let name = format!("model-{shard:05}-of-{count:05}.safetensors");
        let tensors: Vec<_> = (0..20)
            .map(|i| {
                StoredTensor::new(
                    &format!("layers.{shard}.t{i}"),
                    "U8",
                    &[10_000],
                    vec![7; 10_000],
                )
            })
            .collect();
        map.extend((0..20).map(|i| format!("\"layers.{shard}.t{i}\":\"{name}\"")));
        server.put(&format!("/shards/{name}"), safetensors(&tensors, &[]));
    }
    let index = format!("{{\"metadata\":{{}},\"weight_map\":{{{}}}}}", map.join(","));
    server.put("/shards/model.safetensors.index.json", index);
}

fn zip_archive(members: &[(String, Vec<u8>)]) -> Vec<u8> {
    let mut zip = ZipWriter::new(std::io::Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
    for (name, bytes) in members {
        zip.start_file(name.as_str(), options).unwrap();
        zip.write_all(bytes).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

fn npz(members: usize) -> Vec<u8> {
    let arrays: Vec<_> = (0..members)
        .map(|i| {
            let mut array = npy_header("'|u1'", false, &[100_000]);
            array.extend(random_bytes(i as u64, 100_000));
            (format!("a{i}.npy"), array)
        })
        .collect();
    zip_archive(&arrays)
}

/// A GGUF file without tensors whose vocabulary has this many tokens of 12 bytes, with scores and types behind it.
fn gguf_with_vocabulary(tokens: u64) -> Vec<u8> {
    let mut out = b"GGUF\x03\0\0\0".to_vec();
    let text = |out: &mut Vec<u8>, text: &str| {
        out.extend((text.len() as u64).to_le_bytes());
        out.extend(text.as_bytes());
    };
    out.extend(0u64.to_le_bytes());
    out.extend(3u64.to_le_bytes());
    text(&mut out, "general.architecture");
    out.extend(8u32.to_le_bytes());
    text(&mut out, "llama");
    text(&mut out, "tokenizer.ggml.tokens");
    out.extend([9u32.to_le_bytes(), 8u32.to_le_bytes()].concat());
    out.extend(tokens.to_le_bytes());
    for token in 0..tokens {
        text(&mut out, &format!("token-{token:06}"));
    }
    text(&mut out, "tokenizer.ggml.scores");
    out.extend([9u32.to_le_bytes(), 6u32.to_le_bytes()].concat());
    out.extend(tokens.to_le_bytes());
    out.resize(out.len() + 4 * usize::try_from(tokens).unwrap(), 0);
    out
}

#[test]
fn a_file_is_opened_in_the_fewest_requests() {
    let server = TestServer::start();
    server.put("/a.safetensors", single_tensor(1_000_000));
    assert_eq!(counts(&server, "/a.safetensors"), (1, 1, 1));
    server.put("/a.npz", npz(100));
    let (requests, rounds, tensors) = counts(&server, "/a.npz");
    assert!(
        requests <= 103 && tensors == 100,
        "{requests} requests, {tensors} tensors"
    );
    // 32 requests at a time
    assert!(rounds <= 6, "{rounds} rounds");
    server.put("/small.npz", npz(20));
    let (requests, rounds, tensors) = counts(&server, "/small.npz");
    assert!(
        requests <= 23 && rounds <= 3 && tensors == 20,
        "{requests} requests in {rounds} rounds"
    );
    server.put("/a.gguf", gguf_with_vocabulary(200_000));
    let (requests, rounds, _) = counts(&server, "/a.gguf");
    assert!(
        requests <= 3 && rounds <= 2,
        "{requests} requests in {rounds} rounds"
    );
    let path = fixture("pth/many.pth");
    let mut members = std::fs::read(&path).unwrap();
    server.put("/a.pth", std::mem::take(&mut members));
    let (requests, rounds, tensors) = counts(&server, "/a.pth");
    assert!(
        requests <= 3 && rounds <= 2 && tensors > 0,
        "{requests} requests in {rounds} rounds"
    );
}

#[test]
fn shards_are_requested_before_the_first_is_parsed() {
    let server = TestServer::start();
    serve_shards(&server, 24);
    let (requests, rounds, tensors) = counts(&server, "/shards/model.safetensors.index.json");
    assert_eq!((requests, tensors), (25, 480));
    assert!(rounds <= 2, "{rounds} rounds");
}

#[test]
fn a_url_is_a_path_without_its_query() {
    let server = TestServer::start();
    server.put("/m/a.safetensors", single_tensor(5_000_000));
    let url = server.url("/m/a.safetensors");
    let checkpoint = Checkpoint::open(format!("{url}?Signature=secret")).unwrap();
    assert_eq!(checkpoint.path().unwrap().to_str(), Some(&*url));
    let local = Checkpoint::from_bytes(single_tensor(5_000_000)).unwrap();
    let bytes = checkpoint.tensor("t").unwrap().bytes().unwrap();
    assert!(bytes == local.tensor("t").unwrap().bytes().unwrap());
    let loaded = load(&checkpoint).run().unwrap();
    assert!(loaded.get("t").unwrap().bytes() == &*bytes);
    let requests = server.answered();
    assert!(
        requests
            .iter()
            .all(|request| request.query == "Signature=secret")
    );
    // the bytes of the tensor twice, and of the header
    assert!(sent(&requests) < 2 * 5_000_000 + (1 << 20));
}

#[test]
fn the_configuration_next_to_a_url_is_read() {
    let server = TestServer::start();
    server.put("/m/model.safetensors", single_tensor(100));
    server.put(
        "/m/config.json",
        r#"{"quantization_config": {"quant_method": "gptq", "bits": 4}}"#,
    );
    let checkpoint = Checkpoint::open(server.url("/m/model.safetensors")).unwrap();
    server.answered();
    let summary = checkpoint.inspect().unwrap();
    assert_eq!(summary.tensors.len(), 1);
    let requests = server.answered();
    let is_config = |request: &AnsweredRequest| request.path == "/m/config.json";
    assert_eq!(requests.iter().filter(|r| is_config(r)).count(), 1);
    assert!(depth(&requests) <= 1, "{requests:#?}");
    // everything else that needs it has it
    fit(&checkpoint).estimate().unwrap();
    assert!(!server.answered().iter().any(is_config));
}

/// A recipe is requested where the list by which the model was opened names it, and no list is requested for it.
#[test]
fn a_recipe_in_a_bucket_is_read() {
    let server = TestServer::start();
    let codes = StoredTensor::new("a.weight", "F8_E4M3", &[4, 4], vec![0; 16]);
    let scale = StoredTensor::new("a.weight_scale", "F32", &[1], vec![0, 0, 128, 63]);
    let file = safetensors(&[codes, scale], &[]);
    server.put("/bucket/with/model.safetensors", file.clone());
    server.put(
        "/bucket/with/recipe.yaml",
        "QuIPModifier:\n  rotations: [u]\n",
    );
    server.put("/bucket/without/model.safetensors", file);
    let plan = |url: &str| {
        let checkpoint = options(&server).open(url).unwrap();
        server.answered();
        let plan = remember(&checkpoint).plan().unwrap();
        let asked = server.answered().into_iter().map(|request| request.path);
        (plan.refused.len(), asked.collect::<Vec<_>>())
    };
    let (refused, asked) = plan("s3://bucket/with/");
    assert_eq!(refused, 1);
    let recipes = asked.iter().filter(|path| path.ends_with("/recipe.yaml"));
    assert_eq!(recipes.count(), 1, "{asked:?}");
    let (refused, also) = plan("s3://bucket/without/");
    assert_eq!(refused, 0);
    assert_eq!(also.len() + 1, asked.len(), "{also:?}");
    // a file that was opened by its name has no list
    assert_eq!(plan("s3://bucket/with/model.safetensors").0, 0);
}

#[test]
fn failures_name_the_url_and_their_remedy() {
    let server = TestServer::start();
    server.latency(Duration::ZERO);
    server.put("/a.safetensors", single_tensor(1_000_000));
    for (fault, text) in [
        ("404", "no such file"),
        ("401", "credentials"),
        ("gzip", "Content-Encoding"),
        ("200", "does not answer requests for ranges"),
        ("loop", "redirects"),
        ("etag", ""), // one request opens the file: nothing to compare
    ] {
        let url = server.faulty(fault, "/a.safetensors");
        let opened = Checkpoint::open(format!("{url}?secret"));
        let Err(error) = opened else {
            assert_eq!(fault, "etag");
            continue;
        };
        assert!(matches!(error.kind(), ErrorKind::Io(_)), "{error}");
        assert_eq!(error.path().unwrap().to_str(), Some(&*url), "{fault}");
        assert!(error.to_string().contains(text), "{error}");
        assert!(!error.to_string().contains("secret"), "{error}");
        assert_eq!(error.remedy(), None, "{fault}");
    }
    let error = Checkpoint::open(server.url("/directory/")).unwrap_err();
    assert!(error.to_string().contains("does not list"), "{error}");
}

#[test]
fn a_missing_shard_and_a_file_that_changes_are_errors() {
    let server = TestServer::start();
    serve_shards(&server, 2);
    let index = r#"{"weight_map": {"a": "model-00001-of-00003.safetensors", "b": "model-00003-of-00003.safetensors"}}"#;
    server.put("/shards/other.index.json", index);
    let error = Checkpoint::open(server.url("/shards/other.index.json")).unwrap_err();
    assert!(error.to_string().contains("no such file"), "{error}");

    let mut bytes = single_tensor(3_000_000);
    server.put("/a.safetensors", bytes.clone());
    let checkpoint = Checkpoint::open(server.url("/a.safetensors")).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    server.put("/a.safetensors", bytes);
    let error = checkpoint.tensor("t").unwrap().bytes().unwrap_err();
    assert!(
        error
            .to_string()
            .contains("the file changed since it was opened"),
        "{error}"
    );
}

#[test]
fn an_index_longer_than_the_limit_is_not_read() {
    let server = TestServer::start();
    server.put("/a.index.json", vec![b' '; 3_000_000]);
    let limits = anamnesis::Limits {
        memory: 1 << 20,
        ..anamnesis::Limits::default()
    };
    let error = OpenOptions::new()
        .limits(limits)
        .open(server.url("/a.index.json"))
        .unwrap_err();
    assert!(crate::support::is_memory_limit(&error), "{error}");
}

#[test]
fn what_is_read_ahead_is_charged_to_the_limit_on_memory() {
    let server = TestServer::start();
    server.latency(Duration::from_millis(1));
    let bytes = single_tensor(3_000_000);
    server.put("/a.safetensors", bytes.clone());
    let peak = |open: &dyn Fn(OpenOptions) -> anamnesis::Result<Checkpoint>| {
        let usage = anamnesis::Usage::new();
        open(OpenOptions::new().usage(&usage)).unwrap();
        usage.memory()
    };
    let local = peak(&|options| options.from_bytes(bytes.clone()));
    let remote = peak(&|options| options.open(server.url("/a.safetensors")));
    // the first request
    assert!(
        (128 << 10..192 << 10).contains(&(remote - local)),
        "{local}, {remote}"
    );
    // less memory than that: it is requested in smaller pieces
    let small = anamnesis::Limits {
        memory: 32 << 10,
        ..anamnesis::Limits::default()
    };
    let checkpoint = OpenOptions::new()
        .limits(small)
        .open(server.url("/a.safetensors"));
    assert_eq!(checkpoint.unwrap().catalog().tensors().len(), 1);
}

#[test]
fn what_needs_local_files_refuses_a_url() {
    let server = TestServer::start();
    server.put("/m/model.safetensors", single_tensor(100));
    let url = server.url("/m/model.safetensors");
    let error = anamnesis::source::local_path(&url).unwrap_err();
    assert!(error.to_string().contains("download it first"), "{error}");
    let checkpoint = Checkpoint::open(url).unwrap();
    // a file beside the URL is no output of it
    let scratch = crate::support::scratch_dir::ScratchDir::new("remote-output");
    remember(&checkpoint)
        .to_file(scratch.path("out.safetensors"))
        .unwrap();
}

#[test]
fn opening_is_cancelled_while_an_answer_is_waited_for() {
    let server = TestServer::start();
    serve_shards(&server, 3);
    server.put("/a.safetensors", single_tensor(1_000_000));
    server.latency(Duration::from_secs(3));
    for path in ["/a.safetensors", "/shards/model.safetensors.index.json"] {
        let token = CancelToken::new();
        let began = Instant::now();
        let error = std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(100));
                token.cancel();
            });
            let opened = OpenOptions::new().cancel(&token).open(server.url(path));
            opened.err().unwrap()
        });
        assert!(
            matches!(error.kind(), ErrorKind::Cancelled),
            "{path}: {error}"
        );
        assert!(
            began.elapsed() < Duration::from_secs(1),
            "{path}: {:?}",
            began.elapsed()
        );
    }
    // a token that is cancelled after opening has no effect on reads
    server.latency(Duration::ZERO);
    let token = CancelToken::new();
    let opened = OpenOptions::new()
        .cancel(&token)
        .open(server.url("/a.safetensors"));
    let checkpoint = opened.unwrap();
    token.cancel();
    load(&checkpoint).run().unwrap();
}
