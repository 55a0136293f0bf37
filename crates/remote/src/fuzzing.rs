//! Answers and files of others, without a network: for the fuzz targets `hub`, `bucket` and `headers`, and for
//! `tests/answer_memory.rs`. Not part of the API.

use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use object_store::client::{HttpError, HttpRequest, HttpResponse, HttpResponseBody, HttpService};
use reqwest::StatusCode;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use url::Url;

use crate::bucket::{Bucket, SharedConnector};
use crate::error::Result;
use crate::header_cache::{decode, encode, key_of, name_of, sealed};
use crate::hub::blobs::{StatedDigests, parse_digests};
use crate::hub::{all_files_of_index, parse_listing};
use crate::modelscope::parse_list;
use crate::options::RemoteOptions;
use crate::registry::{LayerFiles, RegistryManifest, files_of, members, parse_manifest};

/// The commit and the names of a list of the hub; `room` bytes may be kept.
///
/// # Errors
/// It is no such list.
pub fn hub_listing(text: &[u8], folder: &str, room: u64) -> Result<(String, Vec<String>)> {
    parse_listing(text, folder, room)
}

/// The digests that an answer of the hub states; `room` bytes may be kept.
///
/// # Errors
/// It is no such answer.
pub fn stated_digests(text: &[u8], folder: &str, room: u64) -> Result<StatedDigests> {
    parse_digests(text, folder, room)
}

/// The names of the files of a registry's manifest, of which `room` bytes may be kept; none of an index.
///
/// # Errors
/// It is no manifest of a model.
pub fn registry_manifest(text: &[u8], room: u64) -> Result<Vec<String>> {
    let RegistryManifest::Layers(layers) = parse_manifest(text, room)? else {
        return Ok(Vec::new());
    };
    let names = files_of(layers)?.into_iter().filter_map(|file| match file {
        LayerFiles::File(name, _) => Some(name),
        LayerFiles::Archive(_) => None,
    });
    Ok(names.collect())
}

/// The names of the files of a list of ModelScope, of which `room` bytes may be kept.
///
/// # Errors
/// It is no such list.
pub fn modelscope_list(text: &[u8], room: u64) -> Result<Vec<String>> {
    let (files, _) = parse_list(text, room)?;
    Ok(files.into_iter().map(|file| file.name).collect())
}

/// The names and ranges of the files of an archive, of which `room` bytes may be kept.
///
/// # Errors
/// It is no archive.
pub fn archive_files(bytes: &[u8], room: u64) -> Result<Vec<(String, u64, u64)>> {
    let found = members(bytes.len() as u64, room, &mut |at, buf| {
        let rest = usize::try_from(at).ok().and_then(|at| bytes.get(at..));
        let part = rest.and_then(|rest| rest.get(..buf.len()));
        buf.copy_from_slice(part.expect("a place in the archive"));
        Ok(())
    })?;
    let files = found
        .into_iter()
        .map(|(name, member)| (name, member.start, member.len));
    Ok(files.collect())
}

/// The number of files that an index in the hub's cache names one after another; `None` for another text.
pub fn files_of_index(text: &[u8]) -> Option<usize> {
    let mut count = 0;
    let is_index = all_files_of_index(text, &mut |name| {
        assert!(!name.is_empty(), "a file without a name");
        count += 1;
        true
    });
    is_index.then_some(count)
}

/// Reads the body of an entry of the cache of headers, behind a checksum that is right. Whether it is one; its form is then the
/// only one that it has.
pub fn header_entry(key: &str, body: &[u8]) -> bool {
    let bytes = sealed(key, body);
    let Some(entry) = decode(key, &bytes) else {
        return false;
    };
    assert!(encode(key, &entry) == bytes, "an entry has two forms");
    true
}

/// The name and the bytes of the entry of a URL with this body.
///
/// # Panics
/// The text is no URL.
pub fn stored_header(url: &str, body: &[u8]) -> (String, Vec<u8>) {
    let key = key_of(Url::parse(url).expect("a URL"));
    (name_of(&key), sealed(&key, body))
}

/// An operation on a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BucketOperation {
    /// The names behind a prefix.
    List,
    /// The length of an object.
    Length,
    /// Writing an object by one request.
    Put,
    /// Removing an object.
    Remove,
    /// Starting an upload, sending its only part, and completing it.
    Upload,
    /// Ending an upload without an object.
    Abort,
}

/// All operations.
pub const BUCKET_OPERATIONS: [BucketOperation; 6] = [
    BucketOperation::List,
    BucketOperation::Length,
    BucketOperation::Put,
    BucketOperation::Remove,
    BucketOperation::Upload,
    BucketOperation::Abort,
];

/// Makes an operation on a bucket of this scheme whose answers all have this status, these headers and this body.
///
/// # Errors
/// The errors of the operation.
pub fn bucket_operation(
    scheme: &str,
    operation: BucketOperation,
    status: u16,
    headers: &[(&[u8], &[u8])],
    body: &Bytes,
) -> Result<usize> {
    let (rest, variables): (_, &[(&str, &str)]) = match scheme {
        "az" => (
            "bucket/model",
            &[
                ("AZURE_STORAGE_ACCOUNT_NAME", "account"),
                ("AZURE_SKIP_SIGNATURE", "true"),
            ],
        ),
        "gs" => ("bucket/model", &[("GOOGLE_SKIP_SIGNATURE", "true")]),
        _ => (
            "bucket/model",
            &[("AWS_REGION", "r"), ("AWS_SKIP_SIGNATURE", "true")],
        ),
    };
    let variables = |name: &str| {
        let found = variables.iter().find(|(key, _)| *key == name);
        found.map(|(_, value)| (*value).to_owned())
    };
    let mut options = RemoteOptions::default();
    (options.retries, options.pause) = (0, Duration::from_millis(1));
    let answer = CannedAnswer::new(status, headers, body.clone());
    let connector = SharedConnector::new(answer, &options);
    let bucket = Bucket::over(connector, scheme, rest, &options, &variables)?;
    let key = "model/a.bin";
    // a runtime of its own, which ends with the call
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build();
    let runtime = runtime.map_err(|e| crate::error::Error::refused(e.to_string()))?;
    runtime.block_on(async {
        match operation {
            BucketOperation::List => bucket.list("model").await.map(|names| names.len()),
            BucketOperation::Length => {
                let found = bucket.length(key).await?;
                Ok(usize::from(found.is_some()))
            }
            BucketOperation::Put => {
                let bytes = Bytes::from_static(b"content");
                bucket.put(key, bytes, false).await.map(|()| 1)
            }
            BucketOperation::Remove => bucket.remove(key).await.map(|()| 1),
            BucketOperation::Upload => {
                let id = bucket.create_upload(key).await?;
                let part = bucket
                    .put_part(key, &id, 0, Bytes::from_static(b"part"))
                    .await?;
                bucket
                    .complete_upload(key, &id, vec![part])
                    .await
                    .map(|()| 1)
            }
            BucketOperation::Abort => bucket.abort_upload(key, &"id".to_owned()).await.map(|()| 1),
        }
    })
}

/// One answer to all requests.
#[derive(Clone)]
struct CannedAnswer {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

impl CannedAnswer {
    fn new(status: u16, headers: &[(&[u8], &[u8])], body: Bytes) -> Self {
        let mut all = HeaderMap::new();
        for (name, value) in headers {
            // a client of HTTP passes on headers alone
            let name = HeaderName::from_bytes(name);
            if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(value)) {
                all.append(name, value);
            }
        }
        Self {
            status: StatusCode::from_u16(status).unwrap_or(StatusCode::OK),
            headers: all,
            body,
        }
    }
}

impl fmt::Debug for CannedAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CannedAnswer")
    }
}

impl HttpService for CannedAnswer {
    fn call<'s, 'f>(
        &'s self,
        _: HttpRequest,
    ) -> Pin<Box<dyn Future<Output = std::result::Result<HttpResponse, HttpError>> + Send + 'f>>
    where
        's: 'f,
        Self: 'f,
    {
        let body: HttpResponseBody = self.body.clone().into();
        let mut response = HttpResponse::new(body);
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers.clone();
        Box::pin(std::future::ready(Ok(response)))
    }
}
