//! Answers of others cost bounded memory, whatever they are: lists and errors of the hub, lists, errors and ids of buckets,
//! entries of the cache of headers, and indexes in the hub's cache. A binary of its own, because it counts the allocations
//! of all threads.
//!
//! The server sends what it repeats from one buffer, so that an endless answer costs it nothing.

#[path = "../../../benches/guard/src/counting_allocator.rs"]
mod counting_allocator;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anamnesis_remote::fuzzing::stored_header;
use anamnesis_remote::{NewObject, OpenedUrl, RemoteOptions, Result, Store};
use counting_allocator::{CountingAllocator, counted};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// The budget of a store.
const MEMORY: u64 = 16 << 20;
/// Memory that no answer decides: connections, their buffers, tasks.
const SLACK: u64 = 2 << 20;
/// Answers of a bucket that are no lists: what is made of a text of at most 256 KiB.
const BUCKET_ANSWER: u64 = 4 << 20;

/// One answer to all requests: a beginning, a part that is repeated, and an end.
#[derive(Clone)]
struct RepeatedAnswer {
    name: &'static str,
    status: &'static str,
    headers: String,
    begin: &'static str,
    unit: &'static str,
    /// How often; the connection ends after it.
    count: usize,
    /// `{n}` in it is another number each time.
    end: &'static str,
}

const ENDLESS: usize = usize::MAX;

impl RepeatedAnswer {
    fn new(name: &'static str, begin: &'static str, unit: &'static str, end: &'static str) -> Self {
        Self {
            name,
            status: "200 OK",
            headers: String::new(),
            begin,
            unit,
            count: ENDLESS,
            end,
        }
    }

    /// With at most this many bytes of what is repeated.
    fn of(self, nbytes: usize) -> Self {
        let count = nbytes / self.unit.len();
        Self { count, ..self }
    }

    fn status(self, status: &'static str) -> Self {
        Self { status, ..self }
    }

    fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push_str(&format!("{name}: {value}\r\n"));
        self
    }
}

/// A server on the loopback interface, which ends with the process.
struct RepeatingServer {
    address: SocketAddr,
    answer: Arc<Mutex<Option<RepeatedAnswer>>>,
}

impl RepeatingServer {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let answer: Arc<Mutex<Option<RepeatedAnswer>>> = Arc::default();
        let shared = Arc::clone(&answer);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let answer = shared.lock().unwrap_or_else(PoisonError::into_inner);
                let answer = answer.clone();
                // an error is the client's end of the connection
                std::thread::spawn(move || answer.map(|answer| send(&stream, &answer)));
            }
        });
        Self { address, answer }
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

fn send(mut stream: &TcpStream, answer: &RepeatedAnswer) -> std::io::Result<()> {
    stream.set_write_timeout(Some(Duration::from_secs(5)))?;
    let mut reader = BufReader::new(stream);
    let (mut line, mut body) = (String::new(), 0);
    while reader.read_line(&mut line)? > 2 {
        let lower = line.to_ascii_lowercase();
        if let Some(len) = lower.strip_prefix("content-length:") {
            body = len.trim().parse().unwrap_or(0);
        }
        line.clear();
    }
    std::io::copy(&mut reader.take(body), &mut std::io::sink())?;
    let head = format!(
        "HTTP/1.1 {}\r\nConnection: close\r\nETag: \"x\"\r\n{}\r\n{}",
        answer.status, answer.headers, answer.begin
    );
    stream.write_all(head.as_bytes())?;
    let per_write = (64 << 10) / answer.unit.len().max(1) + 1;
    let buffer = answer.unit.repeat(per_write);
    let mut left = answer.count;
    while left > 0 {
        let now = left.min(per_write);
        stream.write_all(&buffer.as_bytes()[..now * answer.unit.len()])?;
        left -= now;
    }
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let end = answer.end.replace("{n}", &number.to_string());
    stream.write_all(end.as_bytes())?;
    stream.shutdown(std::net::Shutdown::Both)
}

fn options() -> RemoteOptions {
    let mut options = RemoteOptions::default();
    options.memory = MEMORY;
    options.retries = 0;
    options.first_byte = Duration::from_secs(5);
    options.listing = Duration::from_secs(20);
    options
}

fn open(url: &str, options: RemoteOptions, variables: &[(&str, &str)]) -> Result<OpenedUrl> {
    Store::open_with(url, options, &|name| {
        let found = variables.iter().find(|(key, _)| *key == name);
        found.map(|(_, value)| (*value).to_owned())
    })
}

fn store(url: &str, variables: &[(&str, &str)]) -> Store {
    match open(url, options(), variables) {
        Ok(OpenedUrl::Store(store)) => *store,
        Ok(OpenedUrl::Local(path)) => panic!("{}", path.display()),
        Err(e) => panic!("{e}"),
    }
}

/// The peak of a call that is made with this answer, and its outcome.
fn peak(
    server: &RepeatingServer,
    answer: &RepeatedAnswer,
    call: &dyn Fn() -> Result<usize>,
) -> (u64, String) {
    *server.answer.lock().unwrap() = Some(answer.clone());
    let mut outcome = String::new();
    let counts = counted(&mut || {
        outcome = match call() {
            Ok(count) => format!("{count} names"),
            Err(error) => error.to_string(),
        };
    });
    // the text of an error is of the server too
    assert!(
        outcome.len() < 64 << 10,
        "{}: {}",
        answer.name,
        outcome.len()
    );
    (counts.peak, outcome)
}

/// Texts that a server sends instead of an honest list.
fn json() -> Vec<RepeatedAnswer> {
    let list = "{\"sha\":\"0123abc\",\"siblings\":[";
    vec![
        RepeatedAnswer::new("nothing but spaces", "", " ", ""),
        RepeatedAnswer::new("an announced terabyte", list, " ", "]}")
            .of(1 << 20)
            .header("Content-Length", "1099511627776"),
        RepeatedAnswer::new("many names", list, "{\"rfilename\":\"a\"},", ""),
        RepeatedAnswer::new(
            "names within the budget",
            list,
            "{\"rfilename\":\"a\"},",
            "{}]}",
        )
        .of(3 << 20),
        RepeatedAnswer::new("empty files", list, "{},", "{}]}").of(3 << 20),
        RepeatedAnswer::new(
            "one long name",
            "{\"sha\":\"0\",\"siblings\":[{\"rfilename\":\"",
            "a",
            "\"}]}",
        )
        .of(3 << 20),
        RepeatedAnswer::new(
            "escapes",
            "{\"sha\":\"0\",\"siblings\":[{\"rfilename\":\"",
            "\\u0041",
            "\"}]}",
        )
        .of(3 << 20),
        RepeatedAnswer::new("a long commit", "{\"sha\":\"", "a", "\",\"siblings\":[]}").of(3 << 20),
        RepeatedAnswer::new("long keys", "{", "\"aaaaaaaaaaaaaaaaaaaa\":1,", "\"a\":1}")
            .of(3 << 20),
        RepeatedAnswer::new("nested lists", list, "[", "").of(3 << 20),
        RepeatedAnswer::new("nested objects", "", "{\"a\":", "").of(3 << 20),
        RepeatedAnswer::new(
            "numbers of a field",
            "{\"x\":[",
            "1,",
            "1],\"sha\":\"0\",\"siblings\":[]}",
        )
        .of(3 << 20),
    ]
}

/// Nearly as long as a list may be with this budget.
const LIST: usize = 2_000_000;
const ROW: &str = "<Contents><Key>m/a</Key><LastModified>2026-06-01T00:00:00.000Z</LastModified><Size>1</Size></Contents>";

fn xml() -> Vec<RepeatedAnswer> {
    let list = "<ListBucketResult><Name>b</Name>";
    let long = "<ListBucketResult><Contents><Key>";
    let upload = "<InitiateMultipartUploadResult><UploadId>";
    vec![
        RepeatedAnswer::new("nothing but spaces", "", " ", ""),
        RepeatedAnswer::new("longer than a list", list, ROW, "").of(15 << 20),
        RepeatedAnswer::new("an announced terabyte", list, ROW, "")
            .of(1 << 20)
            .header("Content-Length", "1099511627776"),
        RepeatedAnswer::new("many rows", list, ROW, ""),
        RepeatedAnswer::new("rows of one page", list, ROW, "</ListBucketResult>").of(LIST),
        RepeatedAnswer::new(
            "endless pages",
            list,
            ROW,
            "<NextContinuationToken>t</NextContinuationToken></ListBucketResult>",
        )
        .of(1 << 20),
        RepeatedAnswer::new(
            "pages without end",
            list,
            ROW,
            "<NextContinuationToken>{n}</NextContinuationToken></ListBucketResult>",
        )
        .of(1 << 20),
        RepeatedAnswer::new(
            "a long token",
            "<ListBucketResult><NextContinuationToken>",
            "a",
            "</NextContinuationToken></ListBucketResult>",
        )
        .of(1 << 20),
        RepeatedAnswer::new("a whole page", list, ROW, "</ListBucketResult>").of(1000 * ROW.len()),
        RepeatedAnswer::new("empty rows", list, "<Contents/>", "</ListBucketResult>").of(LIST),
        RepeatedAnswer::new(
            "prefixes",
            list,
            "<CommonPrefixes><Prefix>a/</Prefix></CommonPrefixes>",
            "</ListBucketResult>",
        )
        .of(LIST),
        RepeatedAnswer::new(
            "one long key",
            long,
            "a",
            "</Key></Contents></ListBucketResult>",
        )
        .of(LIST),
        RepeatedAnswer::new(
            "entities",
            long,
            "&amp;",
            "</Key></Contents></ListBucketResult>",
        )
        .of(LIST),
        RepeatedAnswer::new("nested elements", list, "<a>", "").of(LIST),
        RepeatedAnswer::new("attributes", "<ListBucketResult ", "a=\"\" ", "/>").of(LIST),
        RepeatedAnswer::new(
            "a long id",
            upload,
            "a",
            "</UploadId></InitiateMultipartUploadResult>",
        )
        .of(LIST),
        RepeatedAnswer::new("an endless id", upload, "a", ""),
    ]
}

/// Ids of uploads that are shorter than the longest answer.
fn ids() -> Vec<RepeatedAnswer> {
    let upload = "<InitiateMultipartUploadResult><UploadId>";
    [100, 5000, 70_000, 200_000]
        .map(|len| {
            let id = RepeatedAnswer::new(
                "an id",
                upload,
                "a",
                "</UploadId></InitiateMultipartUploadResult>",
            );
            id.of(len)
        })
        .into()
}

/// Failures: each with a body that never ends, one of a length, and headers as long as the client lets them be.
fn failures() -> Vec<RepeatedAnswer> {
    let mut all = Vec::new();
    for status in [
        "400 Bad Request",
        "401 Unauthorized",
        "403 Forbidden",
        "404 Not Found",
        "412 Precondition Failed",
        "429 Too Many Requests",
        "500 Internal Server Error",
        "503 Slow Down",
    ] {
        all.push(
            RepeatedAnswer::new("an endless error", "<Error><Message>", "a", "").status(status),
        );
        let long = RepeatedAnswer::new(
            "a long error",
            "<Error><Message>",
            "a",
            "</Message></Error>",
        );
        all.push(long.of(15 << 20).status(status));
        let nested = RepeatedAnswer::new("a nested error", "{\"error\":", "[", "");
        all.push(nested.of(15 << 20).status(status));
    }
    for name in [
        "X-Error-Code",
        "ETag",
        "Retry-After",
        "Location",
        "X-Repo-Commit",
    ] {
        let value = "a".repeat(60 << 10);
        let answer = RepeatedAnswer::new("a long header", "", "a", "").of(16);
        all.push(answer.clone().header(name, &value));
        all.push(answer.header(name, &value).status("404 Not Found"));
    }
    all
}

/// The peaks of a call over answers, of which none may be above `most`.
fn check(
    server: &RepeatingServer,
    what: &str,
    most: u64,
    answers: &[RepeatedAnswer],
    call: &dyn Fn() -> Result<usize>,
) {
    let mut wrong = Vec::new();
    let mut highest = (0, "");
    for answer in answers {
        let (peak, outcome) = peak(server, answer, call);
        let shown: String = outcome.chars().take(100).collect();
        if std::env::var_os("ANAMNESIS_SHOW").is_some() {
            println!(
                "{what}, {}, {}: {peak} ({shown})",
                answer.name, answer.status
            );
        }
        highest = highest.max((peak, answer.name));
        if peak > most {
            wrong.push(format!(
                "{}, {}: {peak} bytes ({shown})",
                answer.name, answer.status
            ));
        }
    }
    println!(
        "{what}: {} answers, at most {} bytes of {most} ({})",
        answers.len(),
        highest.0,
        highest.1
    );
    assert!(
        wrong.is_empty(),
        "{what}: more than {most}:\n{}",
        wrong.join("\n")
    );
}

/// One test: the counts are of all threads.
#[test]
fn answers_of_others_cost_bounded_memory() {
    let server = RepeatingServer::start();
    let endpoint = server.url();
    hub(&server, &endpoint);
    buckets(&server, &endpoint);
    header_entries(&server, &endpoint);
    indexes_of_the_cache();
}

fn hub(server: &RepeatingServer, endpoint: &str) {
    let variables = [("HF_ENDPOINT", endpoint), ("HF_HOME", "/nowhere")];
    let list = || {
        let store = store("hf://org/model", &variables);
        store.list(store.path()).map(|names| names.len())
    };
    // connections and their threads are made once
    peak(server, &json()[4], &list);
    let answers = [json(), failures()].concat();
    check(server, "lists of the hub", MEMORY + SLACK, &answers, &list);
    let length = || {
        let store = store("hf://org/model/a.gguf", &variables);
        let len = store.file(store.path())?.len()?;
        Ok(usize::try_from(len).unwrap_or(usize::MAX))
    };
    check(
        server,
        "files of the hub",
        MEMORY + SLACK,
        &answers,
        &length,
    );
}

fn buckets(server: &RepeatingServer, endpoint: &str) {
    let s3 = [
        ("AWS_ENDPOINT_URL", endpoint),
        ("AWS_ACCESS_KEY_ID", "id"),
        ("AWS_SECRET_ACCESS_KEY", "secret"),
        ("AWS_REGION", "eu-west-1"),
    ];
    let list = || {
        let store = store("s3://bucket/m/", &s3);
        store.list(store.path()).map(|names| names.len())
    };
    peak(server, &xml()[5].clone().of(64), &list);
    check(server, "lists of buckets", MEMORY + SLACK, &xml(), &list);
    let upload = || {
        let store = store("s3://bucket/m/", &s3);
        let object = NewObject {
            path: "s3://bucket/m/a.bin".to_owned(),
            head: b"head".to_vec(),
            len: 8,
            replaces: false,
        };
        let uploads = store.uploads(vec![object])?;
        uploads.write(0, 4, b"tail", &mut |_| true)?;
        uploads.flush(&mut |_| true)?;
        uploads.complete(0..1, &mut |_| true)?;
        uploads.keep();
        Ok(1)
    };
    let answers = [xml(), failures(), ids()].concat();
    check(server, "uploads", BUCKET_ANSWER, &answers, &upload);
    check(
        server,
        "failures of lists of buckets",
        BUCKET_ANSWER,
        &failures(),
        &list,
    );
}

/// Bodies of entries, behind a checksum that is right.
fn entries() -> Vec<(&'static str, Vec<u8>)> {
    let head = |len: u64| {
        let mut body = vec![1];
        body.extend(len.to_le_bytes());
        body.extend([0; 12]);
        body
    };
    let ranges = |count: u32, places: &[(u64, u64)], bytes: usize| {
        let mut body = head(u64::MAX);
        body.extend(count.to_le_bytes());
        for (start, len) in places {
            body.extend(start.to_le_bytes());
            body.extend(len.to_le_bytes());
        }
        body.resize(body.len() + bytes, 7);
        body
    };
    let many: Vec<(u64, u64)> = (0..400_000).map(|n| (2 * n, 1)).collect();
    vec![
        ("nothing", vec![]),
        ("an absent file", vec![0]),
        ("four billion ranges", ranges(u32::MAX, &[], 1 << 20)),
        (
            "a range of all memory",
            ranges(1, &[(0, u64::MAX)], 1 << 20),
        ),
        ("many ranges", ranges(400_000, &many, 400_000)),
        (
            "as many ranges as are read",
            ranges(65_536, &many[..65_536], 65_536),
        ),
        ("one long range", ranges(1, &[(0, 3 << 20)], 3 << 20)),
        (
            "longer than the budget",
            ranges(1, &[(0, 40 << 20)], 40 << 20),
        ),
        (
            "a long text",
            [
                vec![1; 9],
                u32::MAX.to_le_bytes().to_vec(),
                vec![b'a'; 3 << 20],
            ]
            .concat(),
        ),
    ]
}

fn header_entries(server: &RepeatingServer, endpoint: &str) {
    let url = format!("{endpoint}/m/a.gguf");
    let directory = tempfile::tempdir().unwrap();
    *server.answer.lock().unwrap() = Some(
        RepeatedAnswer::new("no file", "", "a", "")
            .of(1)
            .status("404 Not Found"),
    );
    for (what, body) in entries() {
        let (name, bytes) = stored_header(&url, &body);
        std::fs::write(directory.path().join(name), &bytes).unwrap();
        drop((bytes, body));
        for offline in [false, true] {
            let counts = counted(&mut || {
                let mut options = options();
                options.header_cache = Some(directory.path().to_owned());
                options.offline = offline;
                if let Ok(OpenedUrl::Store(store)) = open(&url, options, &[]) {
                    let file = store.file(store.path());
                    let _ = file.and_then(|file| file.len());
                }
            });
            println!("entry, {what}: {} bytes", counts.peak);
            assert!(
                counts.peak <= MEMORY + SLACK,
                "{what}: {} bytes",
                counts.peak
            );
        }
    }
}

fn indexes_of_the_cache() {
    const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
    let home = tempfile::tempdir().unwrap();
    let snapshot = home
        .path()
        .join("hub/models--org--model/snapshots")
        .join(COMMIT);
    std::fs::create_dir_all(&snapshot).unwrap();
    let home = home.path().to_str().unwrap();
    let index = snapshot.join("model.safetensors.index.json");
    let repeated = |begin: &str, unit: &str, end: &str, nbytes: usize| {
        let mut file = std::io::BufWriter::new(std::fs::File::create(&index).unwrap());
        file.write_all(begin.as_bytes()).unwrap();
        for _ in 0..nbytes / unit.len() {
            file.write_all(unit.as_bytes()).unwrap();
        }
        file.write_all(end.as_bytes()).unwrap();
    };
    let map = "{\"weight_map\":{";
    for (what, begin, unit, end, nbytes) in [
        (
            "many tensors",
            map,
            "\"a\":\"b\",",
            "\"a\":\"b\"}}",
            7 << 20,
        ),
        (
            "longer than the budget",
            map,
            "\"a\":\"b\",",
            "\"a\":\"b\"}}",
            40 << 20,
        ),
        ("nested lists", map, "[", "", 7 << 20),
        (
            "one long name",
            "{\"weight_map\":{\"a\":\"",
            "a",
            "\"}}",
            7 << 20,
        ),
        (
            "one long key",
            "{\"weight_map\":{\"",
            "a",
            "\":\"b\"}}",
            7 << 20,
        ),
        (
            "escapes",
            "{\"weight_map\":{\"a\":\"",
            "\\n",
            "\"}}",
            7 << 20,
        ),
        ("another field", "{\"x\":[", "1,", "1]}", 7 << 20),
    ] {
        repeated(begin, unit, end, nbytes);
        let counts = counted(&mut || {
            let url = format!("hf://org/model@{COMMIT}");
            let _ = open(
                &url,
                options(),
                &[("HF_HOME", home), ("HF_HUB_OFFLINE", "1")],
            );
        });
        println!("index, {what}: {} bytes", counts.peak);
        assert!(
            counts.peak <= MEMORY + SLACK,
            "{what}: {} bytes",
            counts.peak
        );
    }
    assert!(Path::new(home).exists());
}
