//! A web server on the loopback interface that counts: requests, how many of them follow one another, and bytes. A subset of the
//! hub, and answers that are wrong on purpose. Also a module of the library's tests.
#![allow(dead_code, unreachable_pub, unused_imports)] // each test binary uses a part

#[path = "server/bucket.rs"]
mod bucket;
#[path = "server/depth.rs"]
mod depth;
#[path = "server/faulty.rs"]
mod faulty;
#[path = "server/hub.rs"]
mod hub;
#[path = "server/modelscope.rs"]
mod modelscope;
#[path = "server/registry.rs"]
mod registry;

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use sha2::{Digest as _, Sha256};

/// A server that runs until it is dropped.
pub struct TestServer {
    address: SocketAddr,
    shared: Arc<ServerState>,
}

/// A request that was answered.
#[derive(Clone, Debug)]
pub struct AnsweredRequest {
    pub method: String,
    pub path: String,
    pub query: String,
    pub headers: HashMap<String, String>,
    pub began: Instant,
    /// When the answer began.
    pub ended: Instant,
    /// Bytes of its body.
    pub sent: usize,
}

struct ServerState {
    address: SocketAddr,
    files: Mutex<HashMap<String, Arc<Vec<u8>>>>,
    answered: Mutex<Vec<AnsweredRequest>>,
    /// How often each path was requested, for faults that pass.
    seen: Mutex<HashMap<String, usize>>,
    latency: Mutex<Duration>,
    bucket: Mutex<bucket::BucketState>,
    stopped: AtomicBool,
}

/// The answer to a request.
struct Reply {
    status: &'static str,
    headers: Vec<String>,
    body: Vec<u8>,
    /// Whether the body has the length that a `Content-Length` in front of it says.
    framed: bool,
    /// Whether the connection ends behind it.
    close: bool,
    /// Bytes of the body that are sent at a time, and the pause in between.
    drip: Option<(usize, Duration)>,
}

impl Reply {
    fn new(status: &'static str, headers: &[&str], body: impl Into<Vec<u8>>) -> Self {
        Self {
            status,
            headers: headers.iter().map(|header| (*header).to_owned()).collect(),
            body: body.into(),
            framed: true,
            close: false,
            drip: None,
        }
    }
}

impl TestServer {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(ServerState {
            address,
            files: Mutex::default(),
            answered: Mutex::default(),
            seen: Mutex::default(),
            latency: Mutex::new(Duration::from_millis(100)),
            bucket: Mutex::default(),
            stopped: AtomicBool::new(false),
        });
        let state = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if state.stopped.load(Ordering::Relaxed) {
                    return;
                }
                let state = Arc::clone(&state);
                // an error is the client's end of the connection
                std::thread::spawn(move || state.connection(&stream));
            }
        });
        Self { address, shared }
    }

    /// Serves these bytes under this path.
    pub fn put(&self, path: &str, bytes: impl Into<Vec<u8>>) {
        let mut files = self.shared.files.lock().unwrap();
        files.insert(path.to_owned(), Arc::new(bytes.into()));
    }

    /// How long each answer waits, so that requests of one round overlap.
    pub fn latency(&self, latency: Duration) {
        *self.shared.latency.lock().unwrap() = latency;
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// The URL of a file whose answers have this fault.
    pub fn faulty(&self, fault: &str, path: &str) -> String {
        self.url(&format!("/f/{fault}{path}"))
    }

    /// The requests since the last call of this function.
    pub fn answered(&self) -> Vec<AnsweredRequest> {
        std::mem::take(&mut self.shared.answered.lock().unwrap())
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.address); // ends the wait for a connection
    }
}

/// How many requests follow one another.
pub fn depth(requests: &[AnsweredRequest]) -> usize {
    depth::depth(
        requests
            .iter()
            .map(|request| (request.began, request.ended)),
    )
}

pub fn sent(requests: &[AnsweredRequest]) -> usize {
    requests.iter().map(|request| request.sent).sum()
}

pub use hub::COMMIT;
pub use registry::{TestLayer, archive, digest_of};

impl ServerState {
    fn connection(&self, stream: &TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        let mut reader = BufReader::new(stream);
        loop {
            let Some(request) = read_request(&mut reader)? else {
                return Ok(());
            };
            let reply = if Self::is_write(&request) {
                self.receiving(&request, true);
                let body = read_body(&mut reader, &request);
                self.receiving(&request, false);
                std::thread::sleep(*self.latency.lock().unwrap());
                self.write(&request, body?)
            } else {
                std::thread::sleep(*self.latency.lock().unwrap());
                self.answer(&request)
            };
            let is_head = request.method == "HEAD";
            // before the first byte is sent: a client may look at the list as soon as it has the last one
            self.answered.lock().unwrap().push(AnsweredRequest {
                ended: Instant::now(),
                sent: reply.body.len(),
                ..request
            });
            send(stream, &reply, is_head)?;
            if reply.close {
                return stream.shutdown(std::net::Shutdown::Both);
            }
        }
    }

    fn answer(&self, request: &AnsweredRequest) -> Reply {
        let parts: Vec<&str> = request.path.trim_start_matches('/').split('/').collect();
        match parts.as_slice() {
            ["f", fault, rest @ ..] => self.faulty(fault, &format!("/{}", rest.join("/")), request),
            ["api", "models", owner, name, "revision", revision] => {
                self.listing(owner, name, revision, &request.query)
            }
            ["api", "v1", "models", owner, name, "repo", rest @ ..] => {
                self.modelscope(&format!("/{owner}/{name}"), rest, request)
            }
            ["v2", path @ ..] => self.registry(path, request),
            ["token"] => self.token(request),
            [owner, name, "resolve", revision, rest @ ..] => self.resolve(
                &format!("/{owner}/{name}/{}", rest.join("/")),
                revision,
                request,
            ),
            [bucket] | [bucket, ""]
                if request.query.contains("list-type=2") || request.query.contains("comp=list") =>
            {
                self.objects(bucket, request)
            }
            // a bucket whose signatures are refused at the fourth request; signatures of one second are equal
            ["expiring", ..] if self.times(&request.query) == 4 => {
                Reply::new("403 Forbidden", &[], "")
            }
            // a signed URL of a host other than the hub's
            ["cdn", rest @ ..] if request.query.starts_with("Signature=") => {
                self.file(&format!("/{}", rest.join("/")), request)
            }
            _ => self.file(&request.path, request),
        }
    }

    fn get(&self, path: &str) -> Option<Arc<Vec<u8>>> {
        self.files.lock().unwrap().get(path).cloned()
    }

    /// How often this was requested, with this request.
    fn times(&self, what: &str) -> usize {
        let mut seen = self.seen.lock().unwrap();
        let times = seen.entry(what.to_owned()).or_default();
        *times += 1;
        *times
    }

    fn file(&self, path: &str, request: &AnsweredRequest) -> Reply {
        let Some(bytes) = self.get(path) else {
            return Reply::new("404 Not Found", &[], "no such file");
        };
        let tag = etag(&bytes);
        if request
            .headers
            .get("if-match")
            .is_some_and(|wanted| *wanted != tag)
        {
            return Reply::new("412 Precondition Failed", &[], "");
        }
        if request.headers.get("if-none-match") == Some(&tag) {
            return Reply::new("304 Not Modified", &[&format!("ETag: {tag}")], "");
        }
        let len = bytes.len();
        let Some(range) = request.headers.get("range") else {
            // Google requires the time
            let time = "Last-Modified: Mon, 01 Jun 2026 00:00:00 GMT";
            return Reply::new("200 OK", &[&format!("ETag: {tag}"), time], bytes.to_vec());
        };
        match parse_range(range, len) {
            Some((from, to)) => {
                partial(&bytes, from, to, &format!("{from}-{}/{len}", to - 1), &tag)
            }
            None => Reply::new(
                "416 Range Not Satisfiable",
                &[&format!("Content-Range: bytes */{len}")],
                "",
            ),
        }
    }
}

fn read_request(reader: &mut BufReader<&TcpStream>) -> io::Result<Option<AnsweredRequest>> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let began = Instant::now();
    let mut words = line.split_whitespace();
    let method = words.next().unwrap_or_default().to_owned();
    let target = words.next().unwrap_or_default().to_owned();
    let mut headers = HashMap::new();
    loop {
        let mut line = String::new();
        reader.by_ref().take(64 << 10).read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else {
            break;
        };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    Ok(Some(AnsweredRequest {
        method,
        path: decoded(path),
        query: query.to_owned(),
        headers,
        began,
        ended: began,
        sent: 0,
    }))
}

/// A path without its escapes.
fn decoded(path: &str) -> String {
    let mut pieces = path.split('%');
    let mut out = pieces.next().unwrap_or_default().as_bytes().to_vec();
    for piece in pieces {
        match piece
            .get(..2)
            .and_then(|hex| u8::from_str_radix(hex, 16).ok())
        {
            Some(byte) => {
                out.push(byte);
                out.extend(&piece.as_bytes()[2..]);
            }
            None => out.extend(format!("%{piece}").into_bytes()),
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// The body of a request, which has a length.
fn read_body(reader: &mut BufReader<&TcpStream>, request: &AnsweredRequest) -> io::Result<Vec<u8>> {
    let len = request.headers.get("content-length");
    let len = len.and_then(|len| len.parse().ok()).unwrap_or(0);
    let mut body = vec![0; len];
    reader.read_exact(&mut body)?;
    Ok(body)
}

fn send(mut stream: &TcpStream, reply: &Reply, is_head: bool) -> io::Result<()> {
    let mut text = Vec::new();
    if reply.framed {
        text.extend(format!("HTTP/1.1 {}\r\n", reply.status).into_bytes());
        let own = |name: &str| reply.headers.iter().any(|header| header.starts_with(name));
        for header in &reply.headers {
            text.extend(format!("{header}\r\n").into_bytes());
        }
        if !own("Content-Length") && !own("Transfer-Encoding") {
            text.extend(format!("Content-Length: {}\r\n", reply.body.len()).into_bytes());
        }
        text.extend(b"\r\n");
    }
    stream.write_all(&text)?;
    if is_head {
        return Ok(());
    }
    let Some((at_a_time, pause)) = reply.drip else {
        return stream.write_all(&reply.body);
    };
    for piece in reply.body.chunks(at_a_time) {
        stream.write_all(piece)?;
        std::thread::sleep(pause);
    }
    Ok(())
}

/// An answer to a range, with this `Content-Range`.
fn partial(bytes: &[u8], from: usize, to: usize, range: &str, tag: &str) -> Reply {
    let headers = [
        &*format!("Content-Length: {}", to - from),
        &*format!("Content-Range: bytes {range}"),
        &*format!("ETag: {tag}"),
    ];
    Reply::new("206 Partial Content", &headers, &bytes[from..to])
}

fn chunked(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for chunk in bytes.chunks(10_000) {
        out.extend(format!("{:x}\r\n", chunk.len()).into_bytes());
        out.extend(chunk);
        out.extend(b"\r\n");
    }
    out
}

fn etag(bytes: &[u8]) -> String {
    // optimised in every build, unlike a loop here: a file is hashed for each request
    let digest = Sha256::digest(bytes);
    let sum = u64::from_le_bytes(digest[..8].try_into().expect("8 bytes"));
    format!("\"{sum:x}-{}\"", bytes.len())
}

fn parse_range(text: &str, len: usize) -> Option<(usize, usize)> {
    let (first, last) = text.strip_prefix("bytes=")?.split_once('-')?;
    let (from, to) = match (first.parse::<usize>(), last.parse::<usize>()) {
        (Ok(first), Ok(last)) => (first, last.saturating_add(1).min(len)),
        (Err(_), Ok(n)) => (len.saturating_sub(n), len),
        _ => return None,
    };
    (from < to).then_some((from, to))
}
