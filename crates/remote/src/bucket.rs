//! Buckets of S3, of Google Cloud Storage, of Azure, and of what speaks their protocols. `object_store` finds credentials, signs
//! URLs, lists and writes; ranges are requested from the signed URLs as from any web server, so that all of this crate's bounds
//! hold for them too.

mod connector;
mod list_progress;
mod service;

use std::sync::Arc;
use std::time::Duration;

use object_store::list::{PaginatedListOptions, PaginatedListResult};
use object_store::multipart::PartId;
use object_store::path::Path;
use object_store::{
    BackoffConfig, MultipartId, ObjectStoreExt as _, PutMode, PutPayload, RetryConfig,
};
use url::Url;

use crate::error::{Error, ErrorKind, Result, with_causes};
use crate::names::is_plain;
use crate::options::RemoteOptions;

pub(crate) use connector::SharedConnector;
pub(crate) use list_progress::ListProgress;
use list_progress::fingerprint;
use service::{BucketService, BucketStore};

pub(crate) use service::ObjectAccess;

/// The longest that finding credentials takes.
const PATIENCE: Duration = Duration::from_secs(60);
/// Names that are listed.
const NAMES: usize = 1_000_000;
/// The longest id of an upload, or token of a page, in bytes: they become a part of a URL, and `object_store` panics where that
/// is longer than 64 KiB. Services send at most a few hundred.
const LONGEST_ID: usize = 4096;
/// Pages of a listing that are read: of 1000 names each, as services send them.
const PAGES: usize = 2 * NAMES / 1000;

/// Objects of a list.
pub(crate) struct KeyPage {
    /// Their keys below the prefix.
    pub(crate) keys: Vec<String>,
    /// The token of the next page.
    pub(crate) next: Option<String>,
    /// See [`ListProgress::add`].
    pub(crate) fingerprint: Option<u64>,
}

/// A bucket and its credentials.
pub(crate) struct Bucket {
    service: BucketService,
    store: Arc<dyn BucketStore>,
    connector: SharedConnector,
    retries: u32,
    /// See [`RemoteOptions::listing`].
    listing: Duration,
    /// Bytes of memory for the names of a list.
    memory: u64,
}

impl Bucket {
    /// The bucket of a URL, by its scheme and the part behind `://`.
    pub(crate) fn new(
        scheme: &str,
        rest: &str,
        client: reqwest::Client,
        options: &RemoteOptions,
        variables: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self> {
        let connector = SharedConnector::new(client, options);
        Self::over(connector, scheme, rest, options, variables)
    }

    /// The bucket of a URL, whose requests these connections send.
    pub(crate) fn over(
        connector: SharedConnector,
        scheme: &str,
        rest: &str,
        options: &RemoteOptions,
        variables: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self> {
        // `object_store` draws each pause from a range that grows from this one, and panics if it is empty
        let pause = options.pause.max(Duration::from_millis(1));
        let retry = RetryConfig {
            max_retries: options.retries as usize,
            // without new credentials: they hold for longer
            retry_timeout: 3 * PATIENCE,
            backoff: BackoffConfig {
                init_backoff: pause,
                max_backoff: pause.saturating_mul(64),
                ..BackoffConfig::default()
            },
        };
        let service = BucketService::open(scheme, rest, retry, connector.clone(), variables)?;
        Ok(Self {
            store: service.store(),
            service,
            connector,
            retries: options.retries,
            listing: options.listing,
            memory: options.memory / 2,
        })
    }

    /// The URL of a key, signed where requests are.
    async fn access(&self, key: &str) -> Result<ObjectAccess> {
        let path = parse(key)?;
        match tokio::time::timeout(PATIENCE, self.service.access(&path)).await {
            Ok(Ok(access)) => Ok(access),
            Ok(Err(e)) => Err(no_credentials(&with_causes(&e))),
            Err(_) => Err(no_credentials("no answer")),
        }
    }

    /// The URL of a key, without what permits access to it.
    pub(crate) fn location(&self, key: &str) -> Result<Url> {
        Ok(self.service.location(&parse(key)?))
    }

    /// The names of the objects directly behind a prefix.
    pub(crate) async fn list(&self, prefix: &str) -> Result<Vec<String>> {
        let prefix = match prefix {
            "" => None,
            prefix => Some(format!("{}/", parse(prefix)?)),
        };
        match tokio::time::timeout(self.listing, self.pages(prefix.as_deref())).await {
            Ok(names) => names,
            Err(_) => Err(self.slow_listing()),
        }
    }

    /// A page of the objects at any depth below a prefix: up to a thousand, by one request. `token` is the one that the page before has.
    pub(crate) async fn page_below(&self, prefix: &str, token: Option<String>) -> Result<KeyPage> {
        let prefix = match prefix {
            "" => None,
            prefix => Some(format!("{}/", parse(prefix)?)),
        };
        let options = PaginatedListOptions {
            page_token: token,
            ..PaginatedListOptions::default()
        };
        let page = self.store.list_paginated(prefix.as_deref(), options);
        let page = tokio::time::timeout(self.listing, page).await;
        let page = page.map_err(|_| self.slow_listing())?;
        let PaginatedListResult { result, page_token } =
            page.map_err(|e| failure("the bucket cannot be listed", &e))?;
        let fingerprint = fingerprint(&result);
        let objects = result.objects.into_iter();
        let objects = objects.filter_map(|object| {
            let key = object.location.as_ref();
            let below = match &prefix {
                // a prefix may be marked by an empty object of its name
                Some(prefix) => key.strip_prefix(&**prefix)?,
                None => key,
            };
            let is_plain = below.split('/').all(is_plain);
            is_plain.then(|| below.to_owned())
        });
        let keys = objects.collect();
        let next = page_token.map(|next| bounded("a token of a list", next));
        Ok(KeyPage {
            keys,
            next: next.transpose()?,
            fingerprint,
        })
    }

    fn slow_listing(&self) -> Error {
        Error::new(
            ErrorKind::TimedOut,
            format!(
                "the bucket's listing takes longer than {} s",
                self.listing.as_secs_f32()
            ),
        )
    }

    async fn pages(&self, prefix: Option<&str>) -> Result<Vec<String>> {
        let (mut names, mut held) = (Vec::new(), 0);
        let mut page_token: Option<String> = None;
        let mut progress = ListProgress::default();
        for _ in 0..PAGES {
            let options = PaginatedListOptions {
                // only names directly behind the prefix: a bucket may have millions below it
                delimiter: Some("/".into()),
                page_token: page_token.clone(),
                ..PaginatedListOptions::default()
            };
            let page = self.store.list_paginated(prefix, options).await;
            let PaginatedListResult {
                result,
                page_token: next,
            } = page.map_err(|e| failure("the bucket cannot be listed", &e))?;
            let objects = result.objects.iter();
            // some programs mark a prefix by an empty object of its name
            let is_prefix =
                |path: &Path| prefix.is_some_and(|own| own[..own.len() - 1] == *path.as_ref());
            let objects = objects.filter(|object| !is_prefix(&object.location));
            let found = objects.filter_map(|object| object.location.filename());
            for name in found.filter(|name| is_plain(name)) {
                // the text, and its place in a list that grows by doubling
                held += (name.len() + 3 * size_of::<String>()) as u64;
                names.push(name.to_owned());
            }
            if held > self.memory {
                return Err(Error::refused(format!(
                    "the names behind this prefix of the bucket need more than {} bytes of memory",
                    self.memory
                )));
            }
            if names.len() > NAMES {
                break;
            }
            progress.add(fingerprint(&result), next.as_deref())?;
            match next {
                None => return Ok(names),
                Some(token) => page_token = Some(bounded("a token of a list", token)?),
            }
        }
        Err(Error::refused(
            "the bucket has more than a million objects or two thousand pages behind this prefix",
        ))
    }
}

/// Writing. Each function is one operation, with its repetitions.
impl Bucket {
    /// Waits for an operation each attempt of which takes no longer than `attempt`.
    async fn timed<T>(
        &self,
        attempt: Duration,
        what: &str,
        operation: impl Future<Output = object_store::Result<T>>,
    ) -> Result<object_store::Result<T>> {
        // pauses between the attempts are shorter than they are, and a body of an answer may stop in its middle
        let most = attempt.saturating_mul(2);
        let most = most.saturating_mul(self.retries.saturating_add(1));
        tokio::time::timeout(most, operation).await.map_err(|_| {
            let what = format!("{what}: the bucket does not answer");
            Error::new(ErrorKind::TimedOut, what)
        })
    }

    /// Waits for an operation that sends this many bytes, and names what failed.
    async fn within<T>(
        &self,
        sent: u64,
        what: &str,
        operation: impl Future<Output = object_store::Result<T>>,
    ) -> Result<T> {
        let attempt = self.connector.time_for(sent);
        let outcome = self.timed(attempt, what, operation).await?;
        outcome.map_err(|e| failure(what, &e))
    }

    /// Whether there is an object of this key, and its length.
    pub(crate) async fn length(&self, key: &str) -> Result<Option<u64>> {
        let path = parse(key)?;
        let found = self.within(0, "the bucket cannot be read", self.store.head(&path));
        match found.await {
            Ok(found) => Ok(Some(found.size)),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Writes an object by one request. One that exists is an error unless it is replaced.
    pub(crate) async fn put(&self, key: &str, bytes: bytes::Bytes, replace: bool) -> Result<()> {
        const WHAT: &str = "the object cannot be written";
        let (path, len) = (parse(key)?, bytes.len() as u64);
        let payload = PutPayload::from(bytes);
        let put = |mode: PutMode| {
            let put = self.store.put_opts(&path, payload.clone(), mode.into());
            self.timed(self.connector.time_for(len), WHAT, put)
        };
        let mode = if replace {
            PutMode::Overwrite
        } else {
            PutMode::Create
        };
        let outcome = match put(mode).await? {
            // `AWS_CONDITIONAL_PUT=disabled`
            Err(object_store::Error::NotImplemented { .. }) => put(PutMode::Overwrite).await?,
            outcome => outcome,
        };
        outcome.map(|_| ()).map_err(|e| failure(WHAT, &e))
    }

    /// Removes an object, if there is one.
    pub(crate) async fn remove(&self, key: &str) -> Result<()> {
        let path = parse(key)?;
        let removed = self.within(0, "the object cannot be removed", self.store.delete(&path));
        // an object that is not there is as good as removed
        match removed.await {
            Err(e) if e.kind() != ErrorKind::NotFound => Err(e),
            _ => Ok(()),
        }
    }

    pub(crate) async fn create_upload(&self, key: &str) -> Result<MultipartId> {
        let path = parse(key)?;
        let create = self.store.create_multipart(&path);
        let id = self.within(0, "the upload cannot be started", create).await;
        bounded("an id of an upload", id?)
    }

    pub(crate) async fn put_part(
        &self,
        key: &str,
        id: &MultipartId,
        number: usize,
        bytes: bytes::Bytes,
    ) -> Result<PartId> {
        let (path, len) = (parse(key)?, bytes.len() as u64);
        let put = self.store.put_part(&path, id, number, bytes.into());
        self.within(len, "a part cannot be uploaded", put).await
    }

    pub(crate) async fn complete_upload(
        &self,
        key: &str,
        id: &MultipartId,
        parts: Vec<PartId>,
    ) -> Result<()> {
        const WHAT: &str = "the upload cannot be completed";
        let path = parse(key)?;
        let complete = self.store.complete_multipart(&path, id, parts);
        // joining may take S3 minutes, whatever the length of the request
        let attempt = self.connector.time_for_joining();
        let outcome = self.timed(attempt, WHAT, complete).await?;
        outcome.map(|_| ()).map_err(|e| failure(WHAT, &e))
    }

    /// Ends an upload without an object. One that is unknown has ended.
    pub(crate) async fn abort_upload(&self, key: &str, id: &MultipartId) -> Result<()> {
        let path = parse(key)?;
        let abort = self.store.abort_multipart(&path, id);
        match self.within(0, "the upload cannot be aborted", abort).await {
            // completed or aborted already
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
            outcome => outcome,
        }
    }
}

/// A text that becomes a part of a URL, if it is as short as the texts of services are.
fn bounded(what: &str, text: String) -> Result<String> {
    if text.len() > LONGEST_ID {
        let found = text.len();
        return Err(Error::refused(format!(
            "the bucket sends {what} of {found} bytes, and at most {LONGEST_ID} are taken"
        )));
    }
    Ok(text)
}

/// The error of an operation of `object_store`.
fn failure(what: &str, e: &object_store::Error) -> Error {
    let kind = match e {
        object_store::Error::NotFound { .. } => ErrorKind::NotFound,
        object_store::Error::PermissionDenied { .. }
        | object_store::Error::Unauthenticated { .. } => ErrorKind::Denied,
        // the condition of a creation: the object exists
        object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. } => {
            ErrorKind::Exists
        }
        _ => ErrorKind::Network,
    };
    Error::new(kind, format!("{what}: {}", with_causes(e)))
}

fn parse(key: &str) -> Result<Path> {
    let path = Path::parse(key);
    path.map_err(|e| {
        Error::new(
            ErrorKind::Invalid,
            format!("this names no object: {}", with_causes(&e)),
        )
    })
}

fn no_credentials(why: &str) -> Error {
    Error::new(
        ErrorKind::Denied,
        format!(
            "no credentials of the bucket: {why}; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, \
             GOOGLE_APPLICATION_CREDENTIALS or AZURE_STORAGE_ACCOUNT_KEY, or for a public bucket AWS_SKIP_SIGNATURE=true, \
             GOOGLE_SKIP_SIGNATURE=true or AZURE_SKIP_SIGNATURE=true"
        ),
    )
}

/// A key of a bucket whose URL is signed when it is needed.
#[derive(Clone)]
pub(crate) struct BucketKey {
    pub(crate) bucket: Arc<Bucket>,
    pub(crate) key: String,
}

impl BucketKey {
    pub(crate) async fn access(&self) -> Result<ObjectAccess> {
        self.bucket.access(&self.key).await
    }
}
