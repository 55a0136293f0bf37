//! Serves metrics over HTTP: `ppc status --prometheus --listen ADDR`.
//!
//! Any program that reaches the address may connect, so that a client costs little: one thread serves a bounded number of
//! connections, each with a bounded request and one deadline for all of it. If all are in use, a new connection takes the place of
//! the oldest. A body is computed at most once a second, for all clients.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::interrupt::Interrupt;

/// Limit on the connections.
const MAX_CONNECTIONS: usize = 64;
/// Limit on the bytes of a request: its first line counts, and scrapers send some hundred bytes of headers.
const MAX_REQUEST: usize = 8 << 10;
/// How long a connection may last.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(5);
/// For how long a body is sent again.
const MAX_AGE: Duration = Duration::from_secs(1);
/// How often interrupts and deadlines are looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Serves the result of `metrics` until an interrupt.
///
/// # Errors
///
/// The socket fails.
pub(super) fn serve(
    listener: &TcpListener,
    interrupt: &Interrupt,
    metrics: impl FnMut() -> String,
) -> io::Result<()> {
    // a client may be gone between `poll` and `accept`, which would then wait for the next one
    listener.set_nonblocking(true)?;
    let mut body = CachedBody {
        compute: metrics,
        last: None,
    };
    // the oldest first
    let mut connections: Vec<Connection> = Vec::new();
    while !interrupt.requested() {
        let events = |connection: &Connection| match connection.answer {
            None => PollFlags::IN,
            Some(_) => PollFlags::OUT,
        };
        let mut sockets = vec![PollFd::new(listener, PollFlags::IN)];
        sockets.extend(
            connections
                .iter()
                .map(|connection| PollFd::new(&connection.stream, events(connection))),
        );
        let timeout = Timespec::try_from(POLL_INTERVAL).ok();
        // an interrupted wait only ends early
        let _ = poll(&mut sockets, timeout.as_ref());
        let mut is_ready = sockets.iter().map(|socket| !socket.revents().is_empty());
        let has_new = is_ready.next() == Some(true);
        let is_ready: Vec<bool> = is_ready.collect();
        let now = Instant::now();
        let mut is_ready = is_ready.into_iter();
        connections.retain_mut(|connection| {
            let goes_on = match is_ready.next() {
                Some(true) => connection.advance(&mut body).unwrap_or(false),
                _ => true,
            };
            goes_on && now < connection.until
        });
        if has_new {
            accept(listener, &mut connections)?;
        }
    }
    Ok(())
}

/// Accepts the connections that wait.
fn accept(listener: &TcpListener, connections: &mut Vec<Connection>) -> io::Result<()> {
    // bounded, so that those which have sent their request are answered in between
    for _ in 0..MAX_CONNECTIONS {
        match listener.accept() {
            Ok((stream, _)) => {
                if stream.set_nonblocking(true).is_err() {
                    continue;
                }
                if connections.len() == MAX_CONNECTIONS {
                    // the oldest: a client that sends nothing must not shut others out for its five seconds
                    connections.remove(0);
                }
                connections.push(Connection {
                    stream,
                    until: Instant::now() + CONNECTION_TIMEOUT,
                    request: Vec::new(),
                    answer: None,
                });
            }
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock => return Ok(()),
                // the client has closed it already
                io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted => {}
                // the socket does not listen any more
                io::ErrorKind::InvalidInput => return Err(error),
                // such as a process without free descriptors: the connection stays pending, and `poll` returns at once
                _ => {
                    std::thread::sleep(POLL_INTERVAL);
                    return Ok(());
                }
            },
        }
    }
    Ok(())
}

/// The last body, and when it was computed.
struct CachedBody<M> {
    compute: M,
    last: Option<(Instant, Arc<str>)>,
}

impl<M: FnMut() -> String> CachedBody<M> {
    fn current(&mut self) -> Arc<str> {
        match &self.last {
            Some((at, body)) if at.elapsed() < MAX_AGE => Arc::clone(body),
            _ => {
                let body: Arc<str> = (self.compute)().into();
                // after it was computed, which may take as long as its age
                self.last = Some((Instant::now(), Arc::clone(&body)));
                body
            }
        }
    }
}

struct Connection {
    stream: TcpStream,
    until: Instant,
    request: Vec<u8>,
    answer: Option<HttpAnswer>,
}

struct HttpAnswer {
    head: Vec<u8>,
    body: Arc<str>,
    sent: usize,
}

impl Connection {
    /// Receives or sends what is possible now. Returns whether the connection goes on.
    fn advance<M: FnMut() -> String>(&mut self, body: &mut CachedBody<M>) -> io::Result<bool> {
        if self.answer.is_none() && !self.receive(body)? {
            return Ok(true);
        }
        self.send()
    }

    /// Receives once. Returns whether there is an answer to send; without one, more of the request is awaited.
    fn receive<M: FnMut() -> String>(&mut self, body: &mut CachedBody<M>) -> io::Result<bool> {
        let mut chunk = [0; 2048];
        let received = match self.stream.read(&mut chunk) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(received) => received,
            Err(error) if is_transient(&error) => 0,
            Err(error) => return Err(error),
        };
        self.request.extend_from_slice(&chunk[..received]);
        let ends = |end: &[u8]| self.request.windows(end.len()).any(|bytes| bytes == end);
        // a lone line feed ends a line too (RFC 9112, section 2.2), as tools that are typed into send it
        if ends(b"\r\n\r\n") || ends(b"\n\n") {
            self.answer = Some(answer(&self.request, || body.current()));
        } else if self.request.len() > MAX_REQUEST {
            self.answer = Some(HttpAnswer::error(
                "431 Request Header Fields Too Large",
                "the request is too long\n",
            ));
        }
        Ok(self.answer.is_some())
    }

    /// Sends what the socket accepts. Returns whether more follows.
    fn send(&mut self) -> io::Result<bool> {
        let Some(HttpAnswer { head, body, sent }) = &mut self.answer else {
            return Ok(true);
        };
        loop {
            let rest = match sent.checked_sub(head.len()) {
                None => &head[*sent..],
                Some(of_body) => &body.as_bytes()[of_body..],
            };
            if rest.is_empty() {
                self.stream.shutdown(std::net::Shutdown::Write)?;
                return Ok(false);
            }
            match self.stream.write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => *sent += written,
                Err(error) if is_transient(&error) => return Ok(true),
                Err(error) => return Err(error),
            }
        }
    }
}

fn is_transient(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, WouldBlock};
    matches!(error.kind(), Interrupted | WouldBlock)
}

impl HttpAnswer {
    fn new(status: &str, kind: &str, more: &str, body: Arc<str>, has_body: bool) -> Self {
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n{more}Connection: close\r\n\r\n",
            body.len()
        );
        Self {
            head: head.into(),
            body: if has_body { body } else { "".into() },
            sent: 0,
        }
    }

    fn error(status: &str, text: &str) -> Self {
        Self::new(status, "text/plain; charset=utf-8", "", text.into(), true)
    }
}

/// The answer to a request, of which only the first line counts.
fn answer(request: &[u8], metrics: impl FnOnce() -> Arc<str>) -> HttpAnswer {
    let line = request.split(|&byte| byte == b'\n').next();
    let line = String::from_utf8_lossy(line.unwrap_or_default());
    let words: Vec<&str> = line.split_whitespace().collect();
    let [method, target, version] = words[..] else {
        return HttpAnswer::error("400 Bad Request", "no request of HTTP\n");
    };
    if !version.starts_with("HTTP/1.") {
        return HttpAnswer::error("400 Bad Request", "no request of HTTP 1\n");
    }
    if !matches!(method, "GET" | "HEAD") {
        let text = "the metrics can only be read\n";
        return HttpAnswer::new(
            "405 Method Not Allowed",
            "text/plain; charset=utf-8",
            "Allow: GET, HEAD\r\n",
            text.into(),
            true,
        );
    }
    match target.split('?').next() {
        Some("/metrics") => {
            let kind = "text/plain; version=0.0.4; charset=utf-8";
            HttpAnswer::new("200 OK", kind, "", metrics(), method == "GET")
        }
        Some("/") => HttpAnswer::new(
            "200 OK",
            "text/plain; charset=utf-8",
            "",
            "the metrics are at /metrics\n".into(),
            method == "GET",
        ),
        _ => HttpAnswer::error("404 Not Found", "the metrics are at /metrics\n"),
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use anamnesis::CancelToken;

    use super::*;

    /// Longer than any answer takes, also on a busy machine.
    const HANG: Duration = Duration::from_secs(60);

    /// Serves a body until it is stopped.
    struct RunningServer {
        at: SocketAddr,
        stop: CancelToken,
        thread: std::thread::JoinHandle<()>,
    }

    impl RunningServer {
        fn start(body: impl Fn() -> String + Send + 'static) -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let (at, stop) = (listener.local_addr().unwrap(), CancelToken::new());
            let interrupt = Interrupt::by_token(&stop);
            let thread = std::thread::spawn(move || serve(&listener, &interrupt, body).unwrap());
            Self { at, stop, thread }
        }

        fn connect(&self) -> TcpStream {
            let stream = TcpStream::connect(self.at).unwrap();
            stream.set_read_timeout(Some(HANG)).unwrap();
            stream
        }

        /// Sends a request and returns the status line and the body of the answer.
        fn ask(&self, request: &str) -> (String, String) {
            let mut stream = self.connect();
            stream.write_all(request.as_bytes()).unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            (head.lines().next().unwrap().to_owned(), body.to_owned())
        }

        fn stop(self) {
            self.stop.cancel();
            self.thread.join().unwrap();
        }
    }

    #[test]
    fn metrics_are_served_to_get_and_head() {
        let server = RunningServer::start(|| "one 1\n".into());
        let pair = |status: &str, body: &str| (format!("HTTP/1.1 {status}"), body.to_owned());
        let get = |target: &str| server.ask(&format!("GET {target} HTTP/1.1\r\nHost: x\r\n\r\n"));
        assert_eq!(get("/metrics"), pair("200 OK", "one 1\n"));
        assert_eq!(get("/metrics?x=y"), pair("200 OK", "one 1\n"));
        assert_eq!(server.ask("HEAD /metrics HTTP/1.0\n\n"), pair("200 OK", ""));
        assert_eq!(get("/../etc/passwd").0, "HTTP/1.1 404 Not Found");
        assert_eq!(get("/").0, "HTTP/1.1 200 OK");
        let post = server.ask("POST /metrics HTTP/1.1\r\n\r\n");
        assert_eq!(post.0, "HTTP/1.1 405 Method Not Allowed");
        for request in [
            "\r\n\r\n",
            "GET /metrics\r\n\r\n",
            "GET /metrics HTTP/2\r\n\r\n",
            "\u{16}\u{3}\n\n",
        ] {
            assert_eq!(
                server.ask(request).0,
                "HTTP/1.1 400 Bad Request",
                "{request:?}"
            );
        }
        // a request in pieces
        let mut slow = server.connect();
        for byte in b"GET /metrics HTTP/1.1\r\n\r\n" {
            slow.write_all(&[*byte]).unwrap();
            std::thread::sleep(Duration::from_millis(1));
        }
        let mut text = String::new();
        slow.read_to_string(&mut text).unwrap();
        assert!(text.ends_with("\r\n\r\none 1\n"), "{text}");
        server.stop();
    }

    #[test]
    fn clients_that_send_or_read_nothing_hinder_no_other() {
        // more than the buffers of sockets hold
        let server = RunningServer::start(|| "x".repeat(32 << 20));
        let silent: Vec<TcpStream> = (0..2 * MAX_CONNECTIONS).map(|_| server.connect()).collect();
        let not_reading: Vec<TcpStream> = (0..8)
            .map(|_| {
                let mut stream = server.connect();
                stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
                stream
            })
            .collect();
        let mut endless = server.connect();
        let answer = server.ask("GET /metrics HTTP/1.1\r\n\r\n");
        assert_eq!(answer.1.len(), 32 << 20);
        // a request without an end is refused
        while endless.write_all(&[b'x'; 1024]).is_ok() {}
        // all of them are closed in the end
        for mut stream in silent.into_iter().chain(not_reading) {
            let _ = io::copy(&mut stream, &mut io::sink()); // closed, or reset as it was the oldest
        }
        server.stop();
    }

    #[test]
    fn a_body_is_computed_again_after_a_second() {
        let mut number = 0;
        let mut body = CachedBody {
            compute: || {
                number += 1;
                number.to_string()
            },
            last: None,
        };
        assert_eq!(&*body.current(), "1");
        body.last = Some((Instant::now() + HANG, "recent".into()));
        assert_eq!(&*body.current(), "recent");
        body.last = Instant::now()
            .checked_sub(MAX_AGE)
            .map(|at| (at, "old".into()));
        assert_eq!(&*body.current(), "2");
    }
}
