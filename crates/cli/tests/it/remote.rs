//! URLs in place of paths.

use serde_json::Value;

use crate::process::{command, finish, json_of, run, send_signal, stdout_of, workspace};
use crate::web_server::TestServer;

pub(crate) fn serve(server: &TestServer, path: &str, fixture: &str) {
    let bytes = std::fs::read(workspace().join("fixtures").join(fixture)).unwrap();
    server.put(path, bytes);
}

#[test]
fn a_url_is_inspected_as_the_file_is() {
    let server = TestServer::start();
    serve(&server, "/m/scribe.gguf", "model/scribe-Q8_0.gguf");
    let url = server.url("/m/scribe.gguf");
    let mut remote = json_of(&["inspect", "--json", &format!("{url}?Signature=secret")]);
    let mut local = json_of(&["inspect", "--json", "fixtures/model/scribe-Q8_0.gguf"]);
    let take = |document: &mut Value| document["checkpoints"][0]["path"].take();
    assert_eq!(take(&mut remote), url);
    take(&mut local);
    let tensors = |document: &Value| document["checkpoints"][0]["tensors"].clone();
    assert_eq!(tensors(&remote), tensors(&local));
    assert!(!remote.to_string().contains("secret"));
    // a word after `--metadata` is a path if it is a URL
    let shown = stdout_of(&["inspect", "--metadata", &url]);
    assert!(shown.contains("general.architecture"), "{shown}");
}

/// Configurations beside plain floats are not asked for; beside packed codes they are, all at the same time. A small PyTorch file is
/// requested at both ends.
#[test]
fn a_file_of_plain_floats_is_one_request() {
    let server = TestServer::start();
    for (path, fixture) in [
        ("/plain/model.safetensors", "model/scribe.safetensors"),
        ("/plain/config.json", "quant/deepseek_v4/config.json"),
        (
            "/packed/model.safetensors",
            "quant/deepseek_v4/model.safetensors",
        ),
        ("/packed/config.json", "quant/deepseek_v4/config.json"),
        ("/pickled/model.pth", "pth/state_dict.pth"),
    ] {
        serve(&server, path, fixture);
    }
    let inspect = |path: &str| {
        let shown = run(&["inspect", "--summary", "--stats", &server.url(path)]);
        assert_eq!(shown.code, 0, "{}", shown.stderr);
        shown.stderr.lines().next().unwrap().to_owned()
    };
    let plain = inspect("/plain/model.safetensors");
    assert!(
        plain.starts_with("stats: 1 request, 1 of them in sequence"),
        "{plain}"
    );
    let packed = inspect("/packed/model.safetensors");
    assert!(
        packed.contains("requests, 2 of them in sequence"),
        "{packed}"
    );
    let pickled = inspect("/pickled/model.pth");
    let few = ["stats: 2 requests, ", "stats: 3 requests, "];
    assert!(few.iter().any(|few| pickled.starts_with(few)), "{pickled}");
}

/// A private server: the message says how, and each way opens the file.
#[test]
fn private_servers_are_read_with_credentials() {
    let server = TestServer::start();
    serve(&server, "/m/scribe.gguf", "model/scribe-Q8_0.gguf");
    let url = server.faulty("private", "/m/scribe.gguf");
    let host = server.url("").replace("http://", "");
    let denied = run(&["inspect", &url]);
    assert_eq!(denied.code, 1);
    let remedy = "(401): give a header, a token of the host in ANAMNESIS_TOKENS (HOST=TOKEN), or its login in ~/.netrc";
    assert!(denied.stderr.contains(remedy), "{}", denied.stderr);
    let given = ["--header", "Authorization: Bearer letmein"];
    assert_eq!(run(&[&["inspect", &*url], &given[..]].concat()).code, 0);
    let mut with_token = command(&["inspect", &url]);
    with_token.env("ANAMNESIS_TOKENS", format!("{host}=letmein"));
    assert_eq!(finish(with_token).code, 0);
    let home = tempfile::tempdir().unwrap();
    let netrc = "machine 127.0.0.1 login me password letmein";
    std::fs::write(home.path().join(".netrc"), netrc).unwrap();
    let mut with_login = command(&["inspect", &url]);
    with_login.env("HOME", home.path());
    assert_eq!(finish(with_login).code, 0);
    let wrong = run(&["inspect", &url, "--header", "letmein"]);
    assert_eq!(wrong.code, 1);
    assert!(
        wrong.stderr.contains("a header is not written NAME: VALUE"),
        "{}",
        wrong.stderr
    );
    assert!(!wrong.stderr.contains("letmein"), "{}", wrong.stderr);
}

#[test]
fn a_repository_of_the_hub_is_inspected() {
    let server = TestServer::start();
    let shards = "safetensors/sharded";
    for entry in std::fs::read_dir(workspace().join("fixtures").join(shards)).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        serve(
            &server,
            &format!("/org/model/{name}"),
            &format!("{shards}/{name}"),
        );
    }
    let run = finish(server_command(&server, &["inspect", "hf://org/model"]));
    assert_eq!((run.code, &*run.stderr), (0, ""));
    assert!(run.stdout.starts_with("hf://org/model\n"), "{}", run.stdout);
    assert!(run.stdout.contains("lm_head.weight"), "{}", run.stdout);
}

#[test]
fn a_url_that_cannot_be_read_is_a_failure_that_says_why() {
    let server = TestServer::start();
    let url = server.url("/none.safetensors");
    let missing = run(&["inspect", &format!("{url}?Signature=secret")]);
    assert_eq!(missing.code, 1);
    assert_eq!(
        missing.stderr,
        format!("anamnesis: {url}: the server has no such file (404)\n")
    );
}

#[test]
fn stats_say_what_was_requested() {
    let server = TestServer::start();
    serve(&server, "/m/scribe.gguf", "model/scribe-Q8_0.gguf");
    let url = server.url("/m/scribe.gguf");
    let shown = run(&["inspect", "--summary", "--stats", &url]);
    assert_eq!(shown.code, 0);
    let lines: Vec<&str> = shown.stderr.lines().collect();
    assert!(
        lines[0].starts_with("stats: 1 request, 1 of them in sequence, over 1 connection; "),
        "{lines:?}"
    );
    assert!(lines[0].contains("B requested, "), "{lines:?}");
    assert!(lines[0].ends_with("B used"), "{lines:?}");
    assert!(
        lines[1].contains("0 repeated after failures, 0 because late"),
        "{lines:?}"
    );
    assert!(!shown.stdout.contains("stats"), "{}", shown.stdout);
    for verb in [
        &["load", "--json"][..],
        &["plan", "--json"],
        &["inspect", "--json", "--hash"],
    ] {
        let counted = run(&[verb, &["--stats", &url]].concat());
        let document: Value = serde_json::from_str(&counted.stdout).unwrap();
        let requests = &document["requests"];
        server.answered();
        assert!(
            requests["requests"].as_u64().unwrap() >= 1,
            "{verb:?}: {requests}"
        );
        assert!(
            requests["first_byte_seconds_median"].as_f64().unwrap() > 0.05,
            "{requests}"
        );
        let bytes = |name: &str| requests[name].as_u64().unwrap();
        assert!(
            bytes("requested_nbytes") >= bytes("received_nbytes"),
            "{requests}"
        );
        assert!(
            bytes("received_nbytes") >= bytes("used_nbytes") && bytes("used_nbytes") > 1000,
            "{requests}"
        );
        assert_eq!(bytes("uploaded_nbytes"), 0);
        assert_eq!(json_of(&[verb, &[&*url]].concat()).get("requests"), None);
    }
    let local = run(&[
        "inspect",
        "--summary",
        "--stats",
        "fixtures/model/scribe-Q8_0.gguf",
    ]);
    assert!(
        local.stderr.starts_with("stats: 0 requests"),
        "{}",
        local.stderr
    );
    let missing = run(&["inspect", "--stats", &server.url("/none.gguf")]);
    assert!(
        missing.code == 1 && missing.stderr.contains("stats: 1 request,"),
        "{}",
        missing.stderr
    );
}

#[test]
fn the_loader_of_urls_refuses_local_files() {
    let server = TestServer::start();
    serve(&server, "/m/scribe.gguf", "model/scribe-Q8_0.gguf");
    let url = server.url("/m/scribe.gguf");
    for loader in ["auto", "remote"] {
        let document = json_of(&["load", "--json", "--loader", loader, &url]);
        assert_eq!(
            (&document["loader"], &document["rounds"][0]["io"]["backend"]),
            (&"remote".into(), &"requests".into())
        );
    }
    let local = run(&[
        "load",
        "--loader",
        "remote",
        "fixtures/model/scribe-Q8_0.gguf",
    ]);
    assert_eq!(local.code, 2);
    assert!(
        local.stderr.contains("the loader `remote` reads URLs")
            && local.stderr.contains("help: leave out --loader"),
        "{}",
        local.stderr
    );
}

/// A command that reaches the buckets of a server, and the hub there.
pub(crate) fn server_command(server: &TestServer, args: &[&str]) -> std::process::Command {
    let mut command = command(args);
    command
        .env("AWS_ENDPOINT_URL", server.url(""))
        .env("AWS_ACCESS_KEY_ID", "id")
        .env("AWS_SECRET_ACCESS_KEY", "secret")
        .env("HF_ENDPOINT", server.url(""))
        .env("HF_HOME", "/nowhere");
    command
}

#[test]
fn a_checkpoint_is_remembered_to_a_bucket() {
    let server = TestServer::start();
    server.latency(std::time::Duration::from_millis(1));
    let scratch = tempfile::tempdir().unwrap();
    let local = scratch.path().join("local");
    let source = "fixtures/model/scribe-Q8_0.gguf";
    let args = ["remember", source, "--shard-size", "200KB", "-o"];
    stdout_of(&[&args[..], &[local.to_str().unwrap()]].concat());
    let url = "s3://bucket/models/scribe";
    let written = finish(server_command(
        &server,
        &[&args[..], &[url, "--json", "--stats"]].concat(),
    ));
    assert_eq!(written.code, 0, "{}", written.stderr);
    let document: Value = serde_json::from_str(&written.stdout).unwrap();
    let first = document["files"][0].as_str().unwrap();
    assert!(
        first.starts_with(&format!("{url}/model-00001-of-")),
        "{first}"
    );
    assert!(
        document["requests"]["requests"].as_u64().unwrap() > 4,
        "{document}"
    );
    let (count, uploaded) = assert_objects(&server, "/bucket/models/scribe", &local);
    assert_eq!(server.paths().len(), count);
    assert_eq!(document["requests"]["uploaded_nbytes"], uploaded);
    assert!(
        written
            .stderr
            .lines()
            .any(|line| line.starts_with("stats: ") && line.ends_with(" uploaded")),
        "{}",
        written.stderr
    );
    assert!(
        server
            .events()
            .last()
            .unwrap()
            .ends_with("/model.safetensors.index.json")
    );
    let again = finish(server_command(&server, &[&args[..], &[url]].concat()));
    assert_eq!(again.code, 1);
    assert!(again.stderr.contains("--overwrite"), "{}", again.stderr);
    // from the bucket to the bucket
    let copied = [
        &["remember", url, "-o", "s3://bucket/copy/"][..],
        &["--shard-size", "200KB"],
    ]
    .concat();
    let copied = finish(server_command(&server, &copied));
    assert_eq!(copied.code, 0, "{}", copied.stderr);
    let again = scratch.path().join("again");
    let args = [
        "remember",
        local.to_str().unwrap(),
        "--shard-size",
        "200KB",
        "-o",
    ];
    stdout_of(&[&args[..], &[again.to_str().unwrap()]].concat());
    assert_objects(&server, "/bucket/copy", &again);
}

/// Asserts that a bucket has the files of a directory below a path. Returns how many, and their bytes.
fn assert_objects(server: &TestServer, below: &str, directory: &std::path::Path) -> (usize, u64) {
    let (mut count, mut nbytes) = (0, 0);
    for entry in std::fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let file = std::fs::read(entry.path()).unwrap();
        assert!(
            server.object(&format!("{below}/{name}")).unwrap() == file,
            "{name}"
        );
        (count, nbytes) = (count + 1, nbytes + file.len() as u64);
    }
    (count, nbytes)
}

/// A killed process cannot abort anything: what it leaves is not visible, and the next run replaces it.
#[test]
fn a_run_to_a_bucket_that_is_interrupted_or_killed_leaves_no_object() {
    for signal in ["-INT", "-KILL"] {
        let server = TestServer::start();
        server.latency(std::time::Duration::from_millis(1));
        server.upload_fault("part 1 ", "silent", usize::MAX);
        let args = [
            "remember",
            "fixtures/model/scribe-Q8_0.gguf",
            "-o",
            "s3://bucket/out/",
        ];
        let mut running = server_command(&server, &args);
        running
            .stderr(std::process::Stdio::piped())
            .stdout(std::process::Stdio::null());
        let running = running.spawn().unwrap();
        while server.open_uploads().is_empty() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        send_signal(&running, signal);
        let ended = running.wait_with_output().unwrap();
        if signal == "-INT" {
            let text = String::from_utf8_lossy(&ended.stderr);
            assert_eq!(ended.status.code(), Some(130), "{text}");
            assert_eq!(server.open_uploads(), Vec::<String>::new());
        }
        assert_eq!(server.paths(), Vec::<String>::new());
        server.no_upload_fault();
        let next = finish(server_command(&server, &args));
        assert_eq!(next.code, 0, "{}", next.stderr);
        assert!(server.object("/bucket/out/model.safetensors").is_some());
    }
}

/// Writes a checkpoint of 16 shards with a FP8 weight of 64 MiB each.
fn write_large_checkpoint(directory: &std::path::Path) {
    const SIDE: usize = 8192;
    let blocks = SIDE / 128;
    let config = r#"{"model_type": "deepseek_v3", "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}"#;
    std::fs::write(directory.join("config.json"), config).unwrap();
    let mut places = serde_json::Map::new();
    for shard in 1..=16_u64 {
        let (weight, scale) = (
            format!("w{shard}.weight"),
            format!("w{shard}.weight_scale_inv"),
        );
        let scales = 4 * blocks * blocks;
        let header = serde_json::json!({
            &scale: {"dtype": "F32", "shape": [blocks, blocks], "data_offsets": [0, scales]},
            &weight: {"dtype": "F8_E4M3", "shape": [SIDE, SIDE], "data_offsets": [scales, scales + SIDE * SIDE]},
        });
        let header = header.to_string();
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend_from_slice(header.as_bytes());
        let scale_of = |block: usize| 1.0 + block as f32 / 8192.0;
        (0..blocks * blocks).for_each(|block| bytes.extend(scale_of(block).to_le_bytes()));
        let mut state = shard;
        for _ in 0..SIDE * SIDE / 8 {
            // a linear congruential generator, as Knuth has it; without the codes of NaN
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            bytes.extend_from_slice(&(state & 0xbfbf_bfbf_bfbf_bfbf).to_le_bytes());
        }
        let name = format!("model-{shard:05}-of-00016.safetensors");
        places.insert(weight, name.clone().into());
        places.insert(scale, name.clone().into());
        std::fs::write(directory.join(name), bytes).unwrap();
    }
    let index = serde_json::json!({"metadata": {}, "weight_map": places});
    std::fs::write(
        directory.join("model.safetensors.index.json"),
        index.to_string(),
    )
    .unwrap();
}

/// The most memory that a process had, in KiB, and what it ended with.
#[cfg(target_os = "linux")]
fn peak_of(mut command: std::process::Command) -> (u64, std::process::Output) {
    command
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    let mut running = command.spawn().unwrap();
    let status = format!("/proc/{}/status", running.id());
    let mut peak = 0;
    while running.try_wait().unwrap().is_none() {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let number = line.and_then(|line| line.trim().split(' ').next()?.parse().ok());
        peak = peak.max(number.unwrap_or(0));
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    (peak, running.wait_with_output().unwrap())
}

/// 1 GB becomes 2 GB, through a bucket of this process. Takes half a minute and 6 GB, and is for a release build:
/// `cargo test --release -p anamnesis-tensors-cli --test it -- --ignored --nocapture gigabyte`.
#[test]
#[ignore = "takes 6 GB of memory"]
#[cfg(target_os = "linux")]
fn a_gigabyte_is_remembered_from_bucket_to_bucket_in_bounded_memory() {
    let server = TestServer::start();
    server.latency(std::time::Duration::from_millis(20));
    let scratch = tempfile::tempdir().unwrap();
    let (source, local) = (scratch.path().join("source"), scratch.path().join("local"));
    std::fs::create_dir(&source).unwrap();
    write_large_checkpoint(&source);
    let args = [
        "remember",
        source.to_str().unwrap(),
        "-o",
        local.to_str().unwrap(),
    ];
    stdout_of(&[&args[..], &["--shard-size", "400000000"]].concat());
    for entry in std::fs::read_dir(&source).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        server.put(
            &format!("/a/model/{name}"),
            std::fs::read(entry.path()).unwrap(),
        );
    }
    let args = [
        "remember",
        "s3://a/model/",
        "-o",
        "s3://b/model/",
        "--shard-size",
        "400000000",
    ];
    let listing = server_command(&server, &["inspect", "s3://a/model/"]);
    let (empty, _) = peak_of(listing);
    let begun = std::time::Instant::now();
    let (peak, ended) = peak_of(server_command(&server, &[&args[..], &["--stats"]].concat()));
    println!(
        "{:?}, peak {peak} KiB, {empty} KiB of a listing",
        begun.elapsed()
    );
    println!("{}", String::from_utf8_lossy(&ended.stderr));
    assert!(ended.status.success());
    assert_objects(&server, "/b/model", &local);
    assert!(peak - empty <= 128 << 10, "{} KiB", peak - empty);
    // killed in the middle
    for signal in ["-INT", "-KILL"] {
        let args = ["remember", "s3://a/model/", "-o", "s3://b/killed/"];
        let mut running = server_command(&server, &args);
        let mut running = running.stderr(std::process::Stdio::null()).spawn().unwrap();
        // in the middle of the first upload
        while server.open_uploads().is_empty() {
            assert_eq!(running.try_wait().unwrap(), None);
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        std::thread::sleep(std::time::Duration::from_millis(300));
        send_signal(&running, signal);
        let status = running.wait().unwrap();
        let is_there = server
            .paths()
            .iter()
            .any(|path| path.starts_with("/b/killed/"));
        println!(
            "{signal}: {status}, still open: {:?}",
            server.open_uploads()
        );
        assert!(!is_there && (signal == "-KILL" || server.open_uploads().is_empty()));
    }
}
