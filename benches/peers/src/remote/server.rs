//! A web server on the loopback interface: ranges of files, a subset of S3's and of the hub's interface, a delay before each
//! answer and a rate for each connection. It counts requests, connections, bytes, and how many requests follow one another.

#[path = "../../../../crates/remote/tests/it/server/depth.rs"]
mod depth;

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use depth::depth;

/// The commit of every repository.
const COMMIT: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

/// Serves the files of one directory until the process ends: `/bucket/…` are its files, and each of its directories is a
/// repository `owner/…` of the hub.
pub fn start(directory: &Path) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let server = Arc::new(Server {
        directory: directory.to_owned(),
        port: address.port(),
        state: Mutex::default(),
    });
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let server = Arc::clone(&server);
            // an error is the client's end of the connection
            thread::spawn(move || server.connection(&stream));
        }
    });
    Ok(address)
}

struct Server {
    directory: PathBuf,
    port: u16,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    latency: Duration,
    /// Bytes per second of a connection; 0 without a bound.
    rate: f64,
    connections: u64,
    /// Beginning and end of the wait for each request, and the bytes of its body.
    requests: Vec<(Instant, Instant, u64)>,
}

struct Request {
    method: String,
    path: String,
    query: String,
    range: Option<String>,
}

impl Server {
    fn connection(&self, stream: &TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let mut reader = BufReader::new(stream);
        let mut counted = false;
        while let Some(request) = read_request(&mut reader)? {
            if request.path.starts_with("/__") {
                reply(
                    stream,
                    "200 OK",
                    "",
                    self.control(&request).as_bytes(),
                    false,
                )?;
                continue;
            }
            let began = Instant::now();
            let latency = self.state.lock().expect("no thread panics").latency;
            thread::sleep(latency);
            let index = {
                let mut state = self.state.lock().expect("no thread panics");
                state.connections += u64::from(!std::mem::replace(&mut counted, true));
                state.requests.push((began, Instant::now(), 0));
                state.requests.len() - 1
            };
            let sent = self.answer(&request, stream)?;
            let mut state = self.state.lock().expect("no thread panics");
            // the counts may have been reset meanwhile
            if let Some(entry) = state.requests.get_mut(index) {
                entry.2 = sent;
            }
        }
        Ok(())
    }

    /// `/__reset?latency=MILLISECONDS&rate=BYTES` and `/__counts`.
    fn control(&self, request: &Request) -> String {
        let mut state = self.state.lock().expect("no thread panics");
        if request.path == "/__counts" {
            let bytes: u64 = state.requests.iter().map(|(.., sent)| sent).sum();
            return format!(
                "{} {} {} {bytes}",
                state.requests.len(),
                depth(
                    state
                        .requests
                        .iter()
                        .map(|&(began, ended, _)| (began, ended))
                ),
                state.connections
            );
        }
        let number = |name: &str| {
            let mut parts = request.query.split('&');
            parts
                .find_map(|part| {
                    part.strip_prefix(name)?
                        .strip_prefix('=')?
                        .parse::<f64>()
                        .ok()
                })
                .unwrap_or(0.0)
        };
        *state = State {
            latency: Duration::from_secs_f64(number("latency") / 1e3),
            rate: number("rate"),
            ..State::default()
        };
        String::new()
    }

    /// Sends the answer; returns the bytes of its body.
    fn answer(&self, request: &Request, to: &TcpStream) -> io::Result<u64> {
        let parts: Vec<&str> = request.path.trim_start_matches('/').split('/').collect();
        match parts.as_slice() {
            [_, ..] if request.query.contains("list-type=2") => self.list_bucket(request, to),
            ["api", "models", "owner", name, rest @ ..] => {
                self.list_repository(name, rest, request, to)
            }
            ["owner", name, "resolve", _, file @ ..] => {
                let path = self.directory.join(name).join(file.join("/"));
                let Ok(meta) = fs::metadata(&path) else {
                    return reply(
                        to,
                        "404 Not Found",
                        "X-Error-Code: EntryNotFound\r\n",
                        b"",
                        request.is_head(),
                    );
                };
                let commit = format!("X-Repo-Commit: {COMMIT}\r\n");
                if path
                    .extension()
                    .is_some_and(|extension| extension == "json")
                {
                    return self.file(&path, request, to, &commit);
                }
                // weights are at a signed URL of another host
                let headers = format!(
                    "Location: http://localhost:{}/bucket/{name}/{}?Signature=x\r\n{commit}X-Linked-Size: {}\r\nX-Linked-ETag: \"{}\"\r\n",
                    self.port,
                    file.join("/"),
                    meta.len(),
                    etag(&meta)
                );
                reply(to, "302 Found", &headers, b"", request.is_head())
            }
            ["bucket", file @ ..] => {
                self.file(&self.directory.join(file.join("/")), request, to, "")
            }
            _ => reply(to, "404 Not Found", "", b"", request.is_head()),
        }
    }

    fn list_repository(
        &self,
        name: &str,
        rest: &[&str],
        request: &Request,
        to: &TcpStream,
    ) -> io::Result<u64> {
        let tree = rest.first() == Some(&"tree");
        let mut rows = Vec::new();
        for entry in fs::read_dir(self.directory.join(name))
            .into_iter()
            .flatten()
            .flatten()
        {
            let (name, len) = (
                entry.file_name().to_string_lossy().into_owned(),
                entry.metadata()?.len(),
            );
            rows.push(if tree {
                serde_json::json!({"type": "file", "path": name, "size": len, "oid": COMMIT})
            } else {
                serde_json::json!({"rfilename": name, "size": len})
            });
        }
        rows.sort_by_key(|row| row.to_string());
        let whole = if tree {
            serde_json::Value::from(rows)
        } else {
            serde_json::json!({
                "_id": "x", "id": format!("owner/{name}"), "modelId": format!("owner/{name}"), "sha": COMMIT, "private": false,
                "gated": false, "disabled": false, "downloads": 0, "likes": 0, "tags": [], "siblings": rows,
            })
        };
        reply(
            to,
            "200 OK",
            "Content-Type: application/json\r\n",
            whole.to_string().as_bytes(),
            request.is_head(),
        )
    }

    /// `ListObjectsV2`, one level.
    fn list_bucket(&self, request: &Request, to: &TcpStream) -> io::Result<u64> {
        let mut parts = request.query.split('&');
        let prefix = parts
            .find_map(|part| part.strip_prefix("prefix="))
            .unwrap_or_default()
            .replace("%2F", "/");
        let folder = prefix.rsplit_once('/').map_or("", |(folder, _)| folder);
        let mut rows = Vec::new();
        for entry in fs::read_dir(self.directory.join(folder))
            .into_iter()
            .flatten()
            .flatten()
        {
            let (meta, name) = (entry.metadata()?, entry.file_name());
            let key = Path::new(folder).join(name).to_string_lossy().into_owned();
            if meta.is_file() && key.starts_with(&prefix) {
                rows.push(format!(
                    "<Contents><Key>{key}</Key><LastModified>2026-06-01T00:00:00.000Z</LastModified><ETag>&quot;{}&quot;</ETag>\
                     <Size>{}</Size><StorageClass>STANDARD</StorageClass></Contents>",
                    etag(&meta),
                    meta.len()
                ));
            }
        }
        rows.sort();
        let text = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?><ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>bucket</Name>\
             <Prefix>{prefix}</Prefix><KeyCount>{}</KeyCount><MaxKeys>1000</MaxKeys><IsTruncated>false</IsTruncated>{}</ListBucketResult>",
            rows.len(),
            rows.concat()
        );
        reply(
            to,
            "200 OK",
            "Content-Type: application/xml\r\n",
            text.as_bytes(),
            request.is_head(),
        )
    }

    fn file(
        &self,
        path: &Path,
        request: &Request,
        mut to: &TcpStream,
        headers: &str,
    ) -> io::Result<u64> {
        let opened = File::open(path).and_then(|file| Ok((file.metadata()?, file)));
        let Some((meta, file)) = opened.ok().filter(|(meta, _)| meta.is_file()) else {
            return reply(
                to,
                "404 Not Found",
                "Content-Type: application/xml\r\n",
                b"<Error><Code>NoSuchKey</Code></Error>",
                request.is_head(),
            );
        };
        let len = meta.len();
        let (status, from, end) = match request
            .range
            .as_deref()
            .map(|range| parse_range(range, len))
        {
            None => ("200 OK", 0, len),
            Some(Some((from, end))) => ("206 Partial Content", from, end),
            Some(None) => {
                let headers = format!("Content-Range: bytes */{len}\r\n");
                return reply(
                    to,
                    "416 Range Not Satisfiable",
                    &headers,
                    b"",
                    request.is_head(),
                );
            }
        };
        let range = match request.range {
            Some(_) => format!("Content-Range: bytes {from}-{}/{len}\r\n", end - 1),
            None => String::new(),
        };
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: application/octet-stream\r\nContent-Length: {}\r\n{range}{headers}ETag: \"{}\"\r\n\
             Last-Modified: Mon, 01 Jun 2026 00:00:00 GMT\r\nAccept-Ranges: bytes\r\n\r\n",
            end - from,
            etag(&meta)
        );
        to.write_all(head.as_bytes())?;
        if request.is_head() {
            return Ok(0);
        }
        self.send_body(to, &file, from, end)
    }

    fn send_body(&self, to: &TcpStream, file: &File, from: u64, end: u64) -> io::Result<u64> {
        let rate = self.state.lock().expect("no thread panics").rate;
        // small steps keep a bounded rate even
        let step = if rate > 0.0 { 64 << 10 } else { 1 << 20 };
        let (began, mut at) = (Instant::now(), from as libc::off_t);
        while (at as u64) < end {
            let count = (end - at as u64).min(step) as usize;
            // SAFETY: both descriptors are open, and `at` outlives the call
            let sent = unsafe { libc::sendfile(to.as_raw_fd(), file.as_raw_fd(), &mut at, count) };
            if sent <= 0 {
                return Err(io::Error::last_os_error());
            }
            if rate > 0.0 {
                let due = Duration::from_secs_f64((at as u64 - from) as f64 / rate);
                thread::sleep(due.saturating_sub(began.elapsed()));
            }
        }
        Ok(end - from)
    }
}

impl Request {
    fn is_head(&self) -> bool {
        self.method == "HEAD"
    }
}

fn read_request(reader: &mut BufReader<&TcpStream>) -> io::Result<Option<Request>> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split_whitespace();
    let [method, target] = [(); 2].map(|()| words.next().unwrap_or_default().to_owned());
    let mut headers = HashMap::new();
    loop {
        let mut line = String::new();
        reader.by_ref().take(64 << 10).read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else {
            break;
        };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    // run:ai's client sends whole URLs, as to a proxy
    let target = match target
        .strip_prefix("http://")
        .and_then(|rest| rest.find('/').map(|at| &rest[at..]))
    {
        Some(path) => path,
        None => &target,
    };
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    Ok(Some(Request {
        method,
        path: path.to_owned(),
        query: query.to_owned(),
        range: headers.remove("range"),
    }))
}

fn reply(
    mut to: &TcpStream,
    status: &str,
    headers: &str,
    body: &[u8],
    head: bool,
) -> io::Result<u64> {
    let mut text = format!(
        "HTTP/1.1 {status}\r\n{headers}Content-Length: {}\r\n\r\n",
        body.len()
    )
    .into_bytes();
    if !head {
        text.extend_from_slice(body);
    }
    to.write_all(&text)?;
    Ok(if head { 0 } else { body.len() as u64 })
}

fn etag(meta: &fs::Metadata) -> String {
    format!("{:x}-{:x}", meta.len(), meta.mtime_nsec() ^ meta.mtime())
}

/// Start and end of a range, cut at the end of the file.
fn parse_range(text: &str, len: u64) -> Option<(u64, u64)> {
    let (first, last) = text.strip_prefix("bytes=")?.split_once('-')?;
    let (from, end) = match (first.parse::<u64>().ok(), last.parse::<u64>().ok()) {
        (Some(first), Some(last)) => (first, last.saturating_add(1).min(len)),
        (Some(first), None) => (first, len),
        (None, Some(count)) => (len.saturating_sub(count), len),
        (None, None) => return None,
    };
    (from < end).then_some((from, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_end_with_the_file() {
        assert_eq!(parse_range("bytes=2-5", 10), Some((2, 6)));
        assert_eq!(parse_range("bytes=2-50", 10), Some((2, 10)));
        assert_eq!(parse_range("bytes=-3", 10), Some((7, 10)));
        assert_eq!(parse_range("bytes=4-", 10), Some((4, 10)));
        assert_eq!(parse_range("bytes=10-12", 10), None);
        assert_eq!(parse_range("bytes=-", 10), None);
    }

    #[test]
    fn requests_that_overlap_are_one_step_of_depth() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        assert_eq!(depth([]), 0);
        assert_eq!(depth([(at(0), at(5)), (at(1), at(6)), (at(6), at(9))]), 2);
    }

    #[test]
    fn files_are_served_by_range_and_counted() {
        let folder =
            std::env::temp_dir().join(format!("peers-remote-server-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("a.bin"), b"0123456789").unwrap();
        let address = start(&folder).unwrap();
        let ask = |target: &str, range: &str| {
            let mut stream = TcpStream::connect(address).unwrap();
            write!(stream, "GET {target} HTTP/1.1\r\n{range}\r\n").unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            let mut text = String::new();
            stream.read_to_string(&mut text).unwrap();
            text
        };
        ask("/__reset?latency=1&rate=1e6", "");
        let text = ask("/bucket/a.bin", "Range: bytes=3-5\r\n");
        assert!(
            text.starts_with("HTTP/1.1 206")
                && text.contains("bytes 3-5/10")
                && text.ends_with("\r\n345"),
            "{text}"
        );
        assert!(ask("/bucket/b.bin", "").starts_with("HTTP/1.1 404"));
        // the body of the 404 has 37 bytes
        assert!(ask("/__counts", "").ends_with("\r\n\r\n2 2 2 40"));
        fs::remove_dir_all(folder).unwrap();
    }
}
