//! `--offline`: no verb sends a request, and what no cache has is a failure that says so.

use crate::process::{command, finish, run, stdout_of};
use crate::remote::{serve, server_command};
use crate::web_server::TestServer;

const MODEL: &str = "fixtures/model/scribe-Q8_0.gguf";

#[test]
fn no_verb_sends_a_request() {
    let server = TestServer::start();
    serve(&server, "/m/scribe.gguf", "model/scribe-Q8_0.gguf");
    serve(&server, "/m/config.json", "fit/gpt-oss.json");
    let scratch = tempfile::tempdir().unwrap();
    let out = |name: &str| scratch.path().join(name).to_str().unwrap().to_owned();
    let url = server.url("/m/scribe.gguf");
    let config = server.url("/m/config.json");
    let manifest = server.url("/m/SHA256SUMS");
    for (args, status) in [
        (vec!["inspect", &url], 1),
        (vec!["load", &url], 1),
        (vec!["plan", &url], 1),
        (vec!["remember", &url, "-o", &out("a.safetensors")], 1),
        (vec!["remember", MODEL, "-o", "s3://bucket/out/"], 1),
        (vec!["fit", &url], 2),
        (vec!["fit", &config], 2),
        (vec!["diff", MODEL, &url], 2),
        (vec!["check", &url], 2),
        (vec!["check", "--manifest", &manifest, MODEL], 2),
        (vec!["report", &url, "-o", &out("a.html")], 1),
        (vec!["template", "predict", &url, "-o", &out("a.iot")], 1),
        (vec!["inspect", "s3://bucket/m/"], 1),
        (vec!["inspect", "hf://org/model"], 1),
    ] {
        let command = server_command(&server, &[&args[..], &["--offline"]].concat());
        let refused = finish(command);
        assert_eq!(refused.code, status, "{args:?}: {}", refused.stderr);
        assert!(
            refused.stderr.contains("no request is sent (offline")
                && refused
                    .stderr
                    .contains("help: requests are sent without --offline"),
            "{args:?}: {}",
            refused.stderr
        );
        assert!(
            refused.stderr.contains("download it"),
            "{args:?}: {}",
            refused.stderr
        );
    }
    assert!(server.answered().is_empty());
    // files of this machine are read as ever
    assert_eq!(
        stdout_of(&["inspect", MODEL, "--offline"]),
        stdout_of(&["inspect", MODEL])
    );
    assert_eq!(run(&["inspect", &url]).code, 0);
}

#[cfg(target_os = "linux")]
#[test]
fn the_hubs_cache_is_read() {
    let cache = crate::hub_cache::HubCache::new();
    let mut inspect = command(&["inspect", "--offline", "--summary", "hf://org/name"]);
    inspect.env("HF_HUB_CACHE", cache.dir.path());
    let shown = finish(inspect);
    assert_eq!((shown.code, &*shown.stderr), (0, ""));
    assert!(shown.stdout.contains("safetensors"), "{}", shown.stdout);
}
