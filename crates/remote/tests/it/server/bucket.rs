//! A bucket that is listed and written to: the protocol of S3, which Google's is like, and a subset of Azure's.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use super::{AnsweredRequest, Reply, ServerState, etag};

/// The objects and uploads of a server's buckets.
#[derive(Default)]
pub(super) struct BucketState {
    uploads: HashMap<String, OpenUpload>,
    started: usize,
    /// Events in order: `part 2 /bucket/key`.
    events: Vec<String>,
    fault: Option<UploadFault>,
    /// Parts whose bodies are being received, and the most at a time.
    receiving: (usize, usize),
}

struct OpenUpload {
    path: String,
    parts: BTreeMap<String, Vec<u8>>,
}

/// Answers that are wrong on purpose.
#[derive(Clone, Copy, Debug)]
pub struct UploadFault {
    /// The beginning of the operation: `create`, `part`, `part 2`, `complete`, `abort`, `put`, `delete`, with a path.
    pub operation: &'static str,
    /// The answer's status; `silent` waits for 3 s and answers then, `lost` closes the connection after the operation.
    pub status: &'static str,
    /// How often it happens for each operation, part and path.
    pub times: usize,
}

impl super::TestServer {
    /// Answers to writing requests have this fault from now on.
    pub fn upload_fault(&self, operation: &'static str, status: &'static str, times: usize) {
        self.shared.bucket.lock().unwrap().fault = Some(UploadFault {
            operation,
            status,
            times,
        });
    }

    /// Answers to writing requests are right from now on.
    pub fn no_upload_fault(&self) {
        self.shared.bucket.lock().unwrap().fault = None;
    }

    /// The events since the last call of this function, in order.
    pub fn events(&self) -> Vec<String> {
        std::mem::take(&mut self.shared.bucket.lock().unwrap().events)
    }

    /// The paths of uploads that are open.
    pub fn open_uploads(&self) -> Vec<String> {
        let bucket = self.shared.bucket.lock().unwrap();
        let mut paths: Vec<_> = bucket.uploads.values().map(|u| u.path.clone()).collect();
        paths.sort();
        paths
    }

    /// The most parts that were received at a time.
    pub fn most_parts_at_a_time(&self) -> usize {
        self.shared.bucket.lock().unwrap().receiving.1
    }

    /// The paths of all objects.
    pub fn paths(&self) -> Vec<String> {
        let mut paths: Vec<_> = self.shared.files.lock().unwrap().keys().cloned().collect();
        paths.sort();
        paths
    }

    /// An object.
    pub fn object(&self, path: &str) -> Option<Vec<u8>> {
        self.shared.get(path).map(|bytes| bytes.to_vec())
    }
}

/// A value of a query.
fn value<'q>(query: &'q str, name: &str) -> Option<&'q str> {
    let mut pairs = query.split('&').filter_map(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        (key == name).then_some(value)
    });
    pairs.next()
}

/// The texts of the elements of this name.
fn elements<'x>(xml: &'x str, name: &str) -> Vec<&'x str> {
    let (open, close) = (format!("<{name}>"), format!("</{name}>"));
    let pieces = xml.split(&*open).skip(1);
    pieces
        .filter_map(|piece| Some(piece.split_once(&*close)?.0))
        .collect()
}

impl ServerState {
    /// Whether a request writes.
    pub(super) fn is_write(request: &AnsweredRequest) -> bool {
        matches!(&*request.method, "PUT" | "POST" | "DELETE")
    }

    /// The operation of a request, as events name it.
    fn operation(request: &AnsweredRequest) -> String {
        let query = &request.query;
        let name = match &*request.method {
            "POST" if value(query, "uploads").is_some() => "create".to_owned(),
            "POST" => "complete".to_owned(),
            "PUT" if value(query, "comp") == Some("blocklist") => "complete".to_owned(),
            "PUT" if value(query, "comp") == Some("block") => "part".to_owned(),
            "PUT" => match value(query, "partNumber") {
                Some(number) => format!("part {number}"),
                None => "put".to_owned(),
            },
            _ if value(query, "uploadId").is_some() => "abort".to_owned(),
            _ => "delete".to_owned(),
        };
        format!("{name} {}", request.path)
    }

    pub(super) fn write(&self, request: &AnsweredRequest, body: Vec<u8>) -> Reply {
        let operation = Self::operation(request);
        let fault = self.bucket.lock().unwrap().fault;
        let fault = fault.filter(|fault| {
            operation.starts_with(fault.operation) && self.times(&operation) <= fault.times
        });
        match fault.map(|fault| fault.status) {
            Some("silent") => std::thread::sleep(Duration::from_secs(3)),
            Some("lost") | None => {}
            Some(status) => return Reply::new(status, &[], "<Error><Code>Wrong</Code></Error>"),
        }
        let reply = self.perform(&operation, request, body);
        if fault.is_some_and(|fault| fault.status == "lost") {
            return Reply {
                body: Vec::new(),
                framed: false,
                close: true,
                ..reply
            };
        }
        reply
    }

    fn perform(&self, operation: &str, request: &AnsweredRequest, body: Vec<u8>) -> Reply {
        let (path, query) = (&request.path, &request.query);
        let mut bucket = self.bucket.lock().unwrap();
        let unknown = || {
            Reply::new(
                "404 Not Found",
                &[],
                "<Error><Code>NoSuchUpload</Code></Error>",
            )
        };
        let id = value(query, "uploadId").unwrap_or(path).to_owned();
        let name = operation.split(' ').next().unwrap_or_default();
        let reply = match name {
            "create" => {
                bucket.started += 1;
                let id = format!("upload-{}", bucket.started);
                let text = format!(
                    "<InitiateMultipartUploadResult><Bucket>b</Bucket><Key>k</Key><UploadId>{id}</UploadId>\
                     </InitiateMultipartUploadResult>"
                );
                bucket.uploads.insert(id, OpenUpload::new(path));
                Reply::new("200 OK", &[], text)
            }
            "part" => {
                let block = value(query, "blockid").map(|id| id.replace("%3D", "="));
                let number = value(query, "partNumber").map(str::to_owned);
                let is_azure = block.is_some();
                let Some(number) = number.or(block) else {
                    return Reply::new("400 Bad Request", &[], "");
                };
                if is_azure {
                    // a block begins an upload of its own
                    let new = || OpenUpload::new(path);
                    bucket.uploads.entry(id.clone()).or_insert_with(new);
                }
                let Some(upload) = bucket.uploads.get_mut(&id) else {
                    return unknown();
                };
                let tag = format!("ETag: {}", etag(&body));
                upload.parts.insert(number, body);
                Reply::new(if is_azure { "201 Created" } else { "200 OK" }, &[&tag], "")
            }
            "complete" => {
                let Some(upload) = bucket.uploads.get(&id) else {
                    return unknown();
                };
                let Some(bytes) = upload.joined(&String::from_utf8_lossy(&body)) else {
                    return Reply::new(
                        "400 Bad Request",
                        &[],
                        "<Error><Code>InvalidPart</Code></Error>",
                    );
                };
                let tag = etag(&bytes);
                bucket.uploads.remove(&id);
                self.files
                    .lock()
                    .unwrap()
                    .insert(path.clone(), bytes.into());
                let text = format!(
                    "<CompleteMultipartUploadResult><ETag>{}</ETag></CompleteMultipartUploadResult>",
                    tag.trim_matches('"')
                );
                Reply::new("200 OK", &[&format!("ETag: {tag}")], text)
            }
            "abort" => {
                if bucket.uploads.remove(&id).is_none() {
                    return unknown();
                }
                Reply::new("204 No Content", &[], "")
            }
            "put" => {
                let is_new = request
                    .headers
                    .get("if-none-match")
                    .is_some_and(|v| v == "*")
                    || request
                        .headers
                        .get("x-goog-if-generation-match")
                        .is_some_and(|v| v == "0");
                let mut files = self.files.lock().unwrap();
                if is_new && files.contains_key(path) {
                    return Reply::new("412 Precondition Failed", &[], "");
                }
                let tag = format!("ETag: {}", etag(&body));
                files.insert(path.clone(), body.into());
                Reply::new("200 OK", &[&tag, "x-goog-generation: 1"], "")
            }
            _ => {
                self.files.lock().unwrap().remove(path);
                Reply::new("204 No Content", &[], "")
            }
        };
        bucket.events.push(operation.to_owned());
        reply
    }

    /// Counts a part while its body is received.
    pub(super) fn receiving(&self, request: &AnsweredRequest, begins: bool) {
        if Self::operation(request).starts_with("part") {
            let mut bucket = self.bucket.lock().unwrap();
            let (now, most) = bucket.receiving;
            let now = if begins { now + 1 } else { now - 1 };
            bucket.receiving = (now, most.max(now));
        }
    }

    /// The objects of a bucket directly behind a prefix.
    pub(super) fn objects(&self, bucket: &str, request: &AnsweredRequest) -> Reply {
        let is_azure = value(&request.query, "comp") == Some("list");
        let prefix = value(&request.query, "prefix").unwrap_or_default();
        let prefix = prefix.replace("%2F", "/");
        let files = self.files.lock().unwrap();
        let is_deep = value(&request.query, "delimiter").is_none();
        let mut keys: Vec<_> = files
            .iter()
            .filter_map(|(path, bytes)| {
                let key = path.strip_prefix(&format!("/{bucket}/"))?;
                let name = key.strip_prefix(&prefix)?;
                (is_deep || !name.contains('/')).then_some((key, bytes.len()))
            })
            .collect();
        keys.sort_unstable();
        let after = value(&request.query, "continuation-token").and_then(|at| at.parse().ok());
        let after: usize = after.unwrap_or(0);
        let page = match bucket {
            "paged" => 7,
            _ => usize::MAX,
        };
        let more = keys.len() > after.saturating_add(page);
        let rows = keys.into_iter().skip(after).take(page);
        let rows: Vec<_> = rows.map(|(key, len)| row(key, len, is_azure)).collect();
        let (count, mut rows) = (rows.len(), rows.concat());
        // listings that never end: with an empty page, a new one or the same one each time, and with the same tokens
        let token = match bucket {
            "endless" => Some(format!("page-{}", self.times("page"))),
            "growing" | "repeating" => {
                let page = self.times("page");
                let key = if bucket == "growing" { page } else { 0 };
                rows = row(&format!("{prefix}k-{key}"), 1, is_azure);
                Some(format!("page-{page}"))
            }
            "circling" => Some(format!("page-{}", self.times("page") % 3)),
            "standing" => Some("page".to_owned()),
            "paged" if more => Some((after + page).to_string()),
            _ => None,
        };
        let token = token.map_or_else(String::new, |token| {
            format!("<NextContinuationToken>{token}</NextContinuationToken>")
        });
        let text = if is_azure {
            format!(
                "<?xml version=\"1.0\" encoding=\"utf-8\"?><EnumerationResults><Prefix>{prefix}</Prefix><Blobs>{rows}</Blobs>\
                 <NextMarker /></EnumerationResults>"
            )
        } else {
            format!(
                "<ListBucketResult><Name>{bucket}</Name><Prefix>{prefix}</Prefix><KeyCount>{count}</KeyCount>\
                 <MaxKeys>1000</MaxKeys><IsTruncated>false</IsTruncated>{token}{rows}</ListBucketResult>"
            )
        };
        match bucket {
            // 20 MiB that no list needs
            "long" => {
                let padding = format!("<!--{}-->", " ".repeat(20 << 20));
                let text = text.replacen("<Name>", &(padding + "<Name>"), 1);
                Reply::new("200 OK", &["Content-Type: application/xml"], text)
            }
            // a terabyte is announced, and what follows is short
            "immense" => Reply {
                framed: false,
                close: true,
                ..Reply::new("200 OK", &["Content-Length: 1099511627776"], text)
            },
            _ => Reply::new("200 OK", &["Content-Type: application/xml"], text),
        }
    }
}

impl OpenUpload {
    fn new(path: &str) -> Self {
        Self {
            path: path.to_owned(),
            parts: BTreeMap::new(),
        }
    }

    /// The parts that a request lists; `None` if one is missing or is another.
    fn joined(&self, xml: &str) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        let blocks = elements(xml, "Uncommitted");
        for block in &blocks {
            bytes.extend(self.parts.get(*block)?);
        }
        for part in elements(xml, "Part") {
            let (number, tag) = (elements(part, "PartNumber"), elements(part, "ETag"));
            let part = self.parts.get(*number.first()?)?;
            if tag.first()?.replace("&quot;", "\"") != etag(part) {
                return None;
            }
            bytes.extend(part);
        }
        Some(bytes)
    }
}

/// An object in a listing.
fn row(key: &str, len: usize, is_azure: bool) -> String {
    if is_azure {
        return format!(
            "<Blob><Name>{key}</Name><Properties><Last-Modified>Mon, 01 Jun 2026 00:00:00 GMT</Last-Modified>\
             <Content-Length>{len}</Content-Length><Content-Type>x/y</Content-Type><Etag>x</Etag></Properties></Blob>"
        );
    }
    format!(
        "<Contents><Key>{key}</Key><LastModified>2026-06-01T00:00:00.000Z</LastModified><ETag>x</ETag><Size>{len}</Size>\
         <StorageClass>STANDARD</StorageClass></Contents>"
    )
}
