//! No output shows a secret of a URL: every verb, in text and as JSON, that succeeds and that fails in each way. A secret is in
//! the query, in the credentials, in the fragment and in the header of a request; servers repeat all of it in their answers.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use crate::process::{command, path_str, workspace};
use crate::remote::serve;
use crate::web_server::TestServer;

const QUERY: &str = "Q5ecretQ";
const PASSWORD: &str = "P5ecretP";
const FRAGMENT: &str = "F5ecretF";
const HEADER: &str = "H5ecretH";

const LOCAL: &str = "fixtures/model/scribe.safetensors";

/// A server that fails with the status that a path begins with, and repeats the request in the answer. Returns its address.
fn failing_server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut reader = BufReader::new(stream.try_clone()?);
                let (mut stream, mut head) = (stream, String::new());
                while reader.read_line(&mut head)? > 2 {}
                let status = head.split('/').nth(1).unwrap_or("404");
                let status = status.split(['?', ' ']).next().unwrap_or("404").to_owned();
                let status = &*status;
                let location = match status {
                    "302" => {
                        format!("location: http://name:{PASSWORD}@127.0.0.1:1/x?sig={QUERY}\r\n")
                    }
                    _ => String::new(),
                };
                let body = if head.starts_with("HEAD") { "" } else { &head };
                let length = body.len();
                write!(
                    stream,
                    "HTTP/1.1 {status} {QUERY}\r\n{location}connection: close\r\ncontent-length: {length}\r\n\r\n{body}"
                )
            });
        }
    });
    address
}

/// The URLs, of which a few are read and the others fail.
fn urls(server: &TestServer, failing: &str) -> Vec<String> {
    let secrets = format!("?sig={QUERY}&x=a b'c)d#{FRAGMENT}");
    let mut urls = Vec::new();
    for path in [
        "/m/scribe.gguf",
        "/m/damaged.safetensors",
        "/m/config.json",
        "/m/t.iot",
    ] {
        urls.push(format!("{}{secrets}", server.url(path)));
    }
    for status in ["302", "401", "403", "404"] {
        urls.push(format!("http://{failing}/{status}/x.gguf{secrets}"));
        urls.push(format!(
            "http://name:{PASSWORD}@{failing}/{status}/x.gguf{secrets}"
        ));
    }
    // parameters of the path, which a server may take a token from
    for status in ["403", "404"] {
        urls.push(format!(
            "http://{failing}/{status};token={QUERY}/x.gguf;v=1;sig={PASSWORD}"
        ));
    }
    urls.push(format!("http://127.0.0.1:1/x.gguf;token={QUERY}{secrets}"));
    urls.push(format!("http://127.0.0.1:1/x.gguf{secrets}"));
    urls.push(format!("http://name:{PASSWORD}/x@host/x.gguf{secrets}"));
    urls.push(format!("ftp://name:{PASSWORD}@host/x.gguf{secrets}"));
    urls.push(format!("s3://name:{PASSWORD}@bucket/x.gguf{secrets}"));
    urls.push(format!("oci://name:{PASSWORD}@host/x:t{secrets}"));
    urls.push(format!("ollama://name:{PASSWORD}@host/owner/x:t{secrets}"));
    urls.push("s3://bucket/403/x.gguf".to_owned());
    // listings, whose answers have a body; the path begins with the bucket's name
    urls.push("s3://403/x/".to_owned());
    urls.push("gs://bucket/x/".to_owned());
    urls.push("hf://owner/name/x.gguf".to_owned());
    urls
}

/// The runs of every verb with a URL in each place of a path, without `--json`.
pub(crate) fn runs(url: &str, out: &Path) -> Vec<Vec<String>> {
    let file = |name: &str| path_str(&out.join(name)).to_owned();
    let (page, template, weights, list) = (
        file("p.html"),
        file("t.json"),
        file("w.safetensors"),
        file("sums"),
    );
    let mut runs: Vec<Vec<&str>> = vec![
        vec!["inspect", url],
        vec!["inspect", "--hash", "--stats", url],
        vec!["inspect", "--offline", url],
        vec!["inspect", "--metadata", url],
        vec!["inspect", LOCAL, "--header-cache", url],
        vec!["inspect", LOCAL, "--format", url],
        vec!["plan", url],
        vec!["fit", url],
        vec!["fit", LOCAL, "--draft", url],
        vec!["fit", LOCAL, "--mmproj", url],
        vec!["fit", LOCAL, "--adapter", url],
        vec!["fit", LOCAL, "--memory", url],
        vec!["diff", url, LOCAL],
        vec!["diff", LOCAL, url],
        vec!["check", url],
        vec!["check", url, "--write", &list],
        vec!["check", LOCAL, "--manifest", url],
        vec!["check", LOCAL, "--write", url],
        vec!["load", url],
        vec!["load", url, "--record", &template],
        vec!["load", LOCAL, "--record", url],
        vec!["remember", url, "-o", &weights],
        vec!["remember", LOCAL, "-o", url],
        vec!["report", url, "-o", &page],
        vec!["report", "--check", url, "-o", &page],
        vec!["report", LOCAL, "-o", url],
        vec!["template", "predict", url, "-o", &template],
        vec!["template", "predict", LOCAL, "-o", url],
        vec!["template", "show", url],
        vec!["template", "diff", url, url],
        vec!["template", "coverage", url, url],
        vec!["template", "merge", url, "-o", &template],
        vec!["template", "merge", url, "-o", url],
        vec!["man", "--out", url],
        vec!["ls", url],
        vec!["convert", url, "-o", &weights],
        vec!["convert", LOCAL, "-o", url],
        vec!["edit", url, "--set", "a=b"],
        vec!["completions", url],
    ];
    if cfg!(target_os = "linux") {
        runs.extend([
            vec!["warm", url],
            vec!["warm", LOCAL, "--dir", url],
            vec!["record", "-o", url, "--", "true"],
            vec!["record", "-o", &template, "--dir", url, "--", "true"],
            vec!["ppc", "run", "--dir", url, "--policy", "none", "--", "true"],
            vec![
                "ppc", "run", "--dir", "fixtures", "--policy", url, "--", "true",
            ],
            vec!["ppc", "reg", url, "none"],
            vec!["ppc", "rm", url],
        ]);
    }
    let owned = |run: Vec<&str>| run.into_iter().map(str::to_owned).collect();
    runs.into_iter().map(owned).collect()
}

/// Whether a verb has `--json`.
fn has_json(run: &[String]) -> bool {
    !matches!(
        &*run[0],
        "report" | "man" | "record" | "ppc" | "completions"
    ) && run.iter().all(|word| word != "show")
}

/// Everything that a run has written: both streams and each file below the directory, with their names.
fn written(mut command: Command, out: &Path) -> (Option<i32>, Vec<(String, Vec<u8>)>) {
    let output = command.output().unwrap();
    let mut all = vec![
        ("standard output".to_owned(), output.stdout),
        ("standard error".to_owned(), output.stderr),
    ];
    for entry in std::fs::read_dir(out).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            all.push((path.display().to_string(), std::fs::read(&path).unwrap()));
            std::fs::remove_file(path).unwrap();
        }
    }
    (output.status.code(), all)
}

/// The outcomes of runs.
#[derive(Default)]
struct Outcomes {
    leaks: Vec<String>,
    /// How many ended with status 0, with 1, and with another.
    statuses: [usize; 3],
}

impl Outcomes {
    fn add(&mut self, other: Self) {
        self.leaks.extend(other.leaks);
        for (sum, more) in self.statuses.iter_mut().zip(other.statuses) {
            *sum += more;
        }
    }

    /// Runs every verb with this URL, in a directory of its own.
    fn of(url: &str, failing: &str) -> Self {
        let mut this = Self::default();
        let scratch = tempfile::tempdir().unwrap();
        let out = scratch.path().join("out");
        std::fs::create_dir(&out).unwrap();
        let fixtures = workspace().join("fixtures").canonicalize().unwrap();
        std::os::unix::fs::symlink(fixtures, scratch.path().join("fixtures")).unwrap();
        for run in runs(url, &out) {
            let formats = if has_json(&run) {
                &[false, true][..]
            } else {
                &[false]
            };
            for json in formats {
                let mut args: Vec<&str> = run.iter().map(String::as_str).collect();
                if *json {
                    args.insert(if args[0] == "template" { 2 } else { 1 }, "--json");
                }
                let mut command = command(&args);
                command
                    .env("HF_TOKEN", HEADER)
                    .env("ANAMNESIS_TOKENS", format!("127.0.0.1={HEADER}"))
                    .env("HF_ENDPOINT", format!("http://{failing}/403"))
                    .env("HF_HOME", "/nowhere")
                    .env("AWS_ENDPOINT_URL", format!("http://{failing}"))
                    .env("AWS_ALLOW_HTTP", "true")
                    .env("AWS_REGION", "r")
                    .env("GOOGLE_BASE_URL", format!("http://{failing}/403"))
                    .env("GOOGLE_BEARER_TOKEN", HEADER)
                    .env("AWS_ACCESS_KEY_ID", "id")
                    .env("AWS_SESSION_TOKEN", HEADER)
                    .env("AWS_SECRET_ACCESS_KEY", PASSWORD);
                // where no bucket is, an output that is a URL is a path below the working directory
                command.current_dir(scratch.path());
                let (code, all) = written(command, &out);
                let code = code.unwrap_or_else(|| panic!("{args:?}: ended by a signal"));
                this.statuses[usize::try_from(code).unwrap().min(2)] += 1;
                for (place, bytes) in all {
                    this.search(&format!("{args:?}, {place}"), &bytes);
                }
            }
        }
        this
    }

    fn search(&mut self, place: &str, bytes: &[u8]) {
        let text = String::from_utf8_lossy(bytes);
        for secret in [QUERY, PASSWORD, FRAGMENT, HEADER] {
            if let Some(at) = text.find(secret) {
                let from = text.floor_char_boundary(at.saturating_sub(100));
                let shown = &text[from..at + secret.len()];
                self.leaks.push(format!("{place}: …{shown}"));
            }
        }
    }
}

#[test]
fn no_output_shows_a_secret() {
    let server = TestServer::start();
    serve(&server, "/m/scribe.gguf", "model/scribe-Q8_0.gguf");
    serve(&server, "/m/config.json", "fit/gpt-oss.json");
    server.put(
        "/m/damaged.safetensors",
        b"\x08\0\0\0\0\0\0\0{\"a\":[}}".to_vec(),
    );
    server.put("/m/t.iot", b"no template".to_vec());
    let failing = failing_server();
    // most of the time is waits between attempts
    const AT_ONCE: usize = 8;
    let urls = std::sync::Mutex::new(urls(&server, &failing));
    let outcomes = std::sync::Mutex::new(Outcomes::default());
    let work = || {
        loop {
            let next = urls.lock().unwrap().pop();
            let Some(url) = next else { break };
            let found = Outcomes::of(&url, &failing);
            outcomes.lock().unwrap().add(found);
        }
    };
    std::thread::scope(|scope| {
        (0..AT_ONCE).for_each(|_| drop(scope.spawn(work)));
    });
    let Outcomes { leaks, statuses } = outcomes.into_inner().unwrap();
    let count: usize = statuses.iter().sum();
    println!("{count} runs; {} succeeded", statuses[0]);
    // otherwise the outputs of verbs that read a URL were not looked at
    assert!(
        statuses[0] > 20 && statuses[1] > 100 && statuses[2] > 100,
        "{statuses:?}"
    );
    assert!(
        leaks.is_empty(),
        "{} leaks:\n{}",
        leaks.len(),
        leaks.join("\n")
    );
}

/// The plain call is in one function, so that a verb that is added shows paths by it.
#[test]
fn paths_are_shown_by_one_function() {
    let mut wrong = Vec::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            // tests of a module show nothing to a user
            let code = text
                .split("#[cfg(test)]\nmod tests")
                .next()
                .unwrap_or_default();
            let uses = code.matches(".display()").count();
            // the function itself, and the configuration of a policy in a directory of our own
            let allowed =
                usize::from(path.ends_with("src/shown_path.rs") || path.ends_with("src/record.rs"));
            if uses > allowed {
                wrong.push(path);
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "use `shown_path::shown` instead of `.display()`: {wrong:?}"
    );
}
