//! Answers that are wrong on purpose, by the name of what is wrong.

use std::time::Duration;

use super::{AnsweredRequest, Reply, ServerState, chunked, etag, parse_range, partial};

impl ServerState {
    #[expect(clippy::too_many_lines, reason = "one arm per fault")]
    pub(super) fn faulty(&self, fault: &str, path: &str, request: &AnsweredRequest) -> Reply {
        let Some(bytes) = self.get(path) else {
            return Reply::new("404 Not Found", &[], "");
        };
        let len = bytes.len();
        let range = request.headers.get("range").map_or("", String::as_str);
        let (from, to) = parse_range(range, len).unwrap_or((0, len));
        let tag = etag(&bytes);
        let good = || partial(&bytes, from, to, &format!("{from}-{}/{len}", to - 1), &tag);
        let without = |header: &str| {
            let mut reply = good();
            reply.headers.retain(|line| !line.starts_with(header));
            reply
        };
        // bytes after the chunk of the range
        let in_chunks = |behind: &[u8]| {
            let mut reply = without("Content-Length");
            reply.headers.push("Transfer-Encoding: chunked".to_owned());
            reply.body = chunked(&reply.body);
            reply.body.extend_from_slice(behind);
            reply
        };
        let times = self.times(&format!("{fault} {path} {range}"));
        let all = self.times(&format!("{fault} {path}"));
        let redirect = |to: &str| Reply::new("302 Found", &[&format!("Location: {to}")], "");
        let status = |status: &'static str, headers: &[&str]| Reply::new(status, headers, "");
        match fault {
            // failures that pass
            "503-twice" if times <= 2 => status("503 Slow Down", &[]),
            "500-once" if times == 1 => status("500 Internal Server Error", &[]),
            "429-once" if times == 1 => status("429 Too Many Requests", &["Retry-After: 1"]),
            "date-once" if times == 1 => status(
                "429 Too Many Requests",
                &[
                    "Date: Mon, 01 Jun 2026 00:00:00 GMT",
                    "Retry-After: Mon, 01 Jun 2026 00:00:01 GMT",
                ],
            ),
            "ratelimit-once" if times == 1 => {
                status("429 Too Many Requests", &["RateLimit: \"api\";r=0;t=1"])
            }
            "reset-of-limit-once" if times == 1 => status(
                "503 Service Unavailable",
                &["RateLimit: limit=100, remaining=0, reset=1"],
            ),
            // later than any other answer, and not too late
            "slow-first" => {
                std::thread::sleep(Duration::from_millis(150));
                good()
            }
            "429-some" if all.is_multiple_of(5) && times == 1 => {
                status("429 Too Many Requests", &["Retry-After: 1"])
            }
            // whole pieces of 64 KiB, one in 40, stop in their middle; what is requested of them again does not
            "stops-some" if (from >> 16) % 40 == 20 && to - from > 40_000 => Reply {
                drip: Some(((to - from) / 2, Duration::from_secs(20))),
                ..good()
            },
            "slow-later" if from > 0 => Reply {
                drip: Some((1, Duration::from_millis(50))),
                ..good()
            },
            "403-later" if from > 1_000_000 => status("403 Forbidden", &[]),
            "deep-0" => good(),
            _ if fault.starts_with("deep-") => {
                let left: usize = fault["deep-".len()..].parse().unwrap_or(1);
                let next = left.saturating_sub(1);
                redirect(&format!(
                    "http://localhost:{}/f/deep-{next}{path}",
                    self.address.port()
                ))
            }
            "reset-once" if times == 1 => Reply {
                body: Vec::new(),
                framed: false,
                close: true,
                ..Reply::new("", &[], "")
            },
            // the first answer to each range; not one that goes on with it, which ends at the same place
            "half" if self.times(&format!("{fault} {path} to {to}")) == 1 => {
                let mut reply = good();
                reply.body.truncate(reply.body.len() / 2);
                reply.close = true;
                reply
            }
            // the last byte is missing
            "last-byte" if times == 1 => {
                let mut reply = good();
                reply.body.pop();
                reply.close = true;
                reply
            }
            "less" => {
                let to = from + (to - from).div_ceil(2);
                partial(&bytes, from, to, &format!("{from}-{}/{len}", to - 1), &tag)
            }
            "chunked" => in_chunks(b"0\r\n\r\n"),
            // bytes behind the range without end, as far as a test waits
            "endless" => {
                let mut reply = in_chunks(&chunked(&vec![7; 4 << 20]));
                reply.close = true;
                reply
            }
            "no-etag" => without("ETag"),
            // an answer under a condition that was not made, or that names another version
            "304" => status("304 Not Modified", &[&format!("ETag: {tag}")]),
            "304-other" if request.headers.contains_key("if-none-match") => {
                status("304 Not Modified", &["ETag: \"other\""])
            }
            "304-moved" if request.headers.contains_key("if-none-match") => status(
                "304 Not Modified",
                &["Location: http://localhost:1/elsewhere"],
            ),
            "weak-etag" => partial(
                &bytes,
                from,
                to,
                &format!("{from}-{}/{len}", to - 1),
                "W/\"weak\"",
            ),
            "no-suffix" if range.starts_with("bytes=-") => status("501 Not Implemented", &[]),
            // `me:letmein`, as a login is sent
            "private" => {
                const CREDENTIALS: [&str; 2] = ["Bearer letmein", "Basic bWU6bGV0bWVpbg=="];
                let sent = request.headers.get("authorization");
                match sent.is_some_and(|sent| CREDENTIALS.contains(&&**sent)) {
                    true => good(),
                    false => status("401 Unauthorized", &["WWW-Authenticate: Bearer"]),
                }
            }
            "redirect" => redirect(&format!("http://localhost:{}{path}", self.address.port())),
            "expires" => redirect(&format!(
                "http://localhost:{}/f/signed{path}?t={all}",
                self.address.port()
            )),
            // each signed URL holds for three requests
            "signed" if self.times(&request.query) > 3 => status("403 Forbidden", &[]),
            // failures that stay
            "429-long" => status("429 Too Many Requests", &["Retry-After: 3600"]),
            "429-date" => status(
                "429 Too Many Requests",
                &[
                    "Date: Mon, 01 Jun 2026 00:00:00 GMT",
                    "Retry-After: Tue, 02 Jun 2026 00:00:00 GMT",
                ],
            ),
            "503" => status("503 Service Unavailable", &[]),
            "401" => status("401 Unauthorized", &[]),
            "403" => status("403 Forbidden", &[]),
            "404" => status("404 Not Found", &[]),
            "410" => status("410 Gone", &[]),
            "204" => status("204 No Content", &[]),
            "418" => status("418 I'm a teapot", &[]),
            "200" => Reply::new("200 OK", &[&format!("ETag: {tag}")], bytes.to_vec()),
            "200-later" if from > 0 => {
                Reply::new("200 OK", &[&format!("ETag: {tag}")], bytes.to_vec())
            }
            "416" => status(
                "416 Range Not Satisfiable",
                &[&format!("Content-Range: bytes */{len}")],
            ),
            "etag" => partial(
                &bytes,
                from,
                to,
                &format!("{from}-{}/{len}", to - 1),
                &format!("\"v{all}\""),
            ),
            "etag-vanishes" if all > 1 => without("ETag"),
            "modified" => {
                let mut reply = without("ETag");
                reply.headers.push(format!(
                    "Last-Modified: Mon, 01 Jun 2026 00:00:{all:02} GMT"
                ));
                reply
            }
            "grows" => partial(
                &bytes,
                from,
                to,
                &format!("{from}-{}/{}", to - 1, len + all),
                &tag,
            ),
            "412" if all > 1 => status("412 Precondition Failed", &[]),
            "elsewhere" => partial(
                &bytes,
                from,
                to,
                &format!("{}-{to}/{}", from + 1, len + 1),
                &tag,
            ),
            "more" => partial(&bytes, from, to, &format!("{from}-{to}/{}", len + 1), &tag),
            "no-content-range" => without("Content-Range"),
            "star" => partial(&bytes, from, to, &format!("{from}-{}/*", to - 1), &tag),
            "overflow" => partial(
                &bytes,
                from,
                to,
                &format!("{from}-18446744073709551615/18446744073709551615"),
                &tag,
            ),
            "huge" => partial(
                &bytes,
                from,
                to,
                &format!("{from}-{}/18446744073709551615", to - 1),
                &tag,
            ),
            "multipart" => {
                let mut reply = without("Content-Range");
                reply
                    .headers
                    .push("Content-Type: multipart/byteranges; boundary=x".to_owned());
                reply
            }
            "gzip" => {
                let mut reply = good();
                reply.headers.push("Content-Encoding: gzip".to_owned());
                reply
            }
            "always-half" => {
                let mut reply = good();
                reply.body.truncate(1);
                reply.close = true;
                reply
            }
            // announces one byte of the range
            "short-length" => {
                let mut reply = without("Content-Length");
                reply.headers.push("Content-Length: 1".to_owned());
                reply.body.truncate(1);
                reply
            }
            "drips" => Reply {
                drip: Some((10, Duration::from_millis(20))),
                ..good()
            },
            "empty-body" => {
                let mut reply = good();
                reply.body.clear();
                reply.close = true;
                reply
            }
            "not-http" => Reply {
                body: b"SSH-2.0-OpenSSH_9.9\r\n".to_vec(),
                framed: false,
                close: true,
                ..Reply::new("", &[], "")
            },
            "loop" => redirect(&request.path),
            "to-file" => redirect("file:///etc/hostname"),
            "to-metadata" => redirect("http://169.254.169.254/latest/meta-data"),
            "to-mapped" => redirect("http://[::ffff:169.254.169.254]/latest/meta-data"),
            "to-nothing" => redirect("http://"),
            "to-password" => redirect(&format!(
                "http://user:secret@localhost:{}{path}",
                self.address.port()
            )),
            "silent" => {
                std::thread::sleep(Duration::from_secs(4));
                status("503 Service Unavailable", &[])
            }
            // a status line, then nothing
            "stalls" => {
                let mut reply = good();
                reply.body.truncate(10);
                reply
            }
            _ => self.file(path, request),
        }
    }
}
