//! A file on a server: where it is, what is sent for it, and where redirects led to.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use reqwest::header::{self, HeaderMap, HeaderName, HeaderValue};
use url::Url;

use crate::address::Allowed;
use crate::answer::{Answer, RequestedRange};
use crate::bucket::{BucketKey, ObjectAccess};
use crate::error::{Error, Result};
use crate::registry::{ACCEPTED, Blob, RegistryLogin, TarMember};

/// A file, and what is sent for it.
pub(crate) struct Resource {
    place: ResourcePlace,
    /// Where redirects led to, or the signed URL: later requests go there at once, until it is refused.
    resolved: Mutex<Option<ResolvedUrl>>,
}

enum ResourcePlace {
    Web {
        url: Url,
        /// Sent to its host only.
        headers: HeaderMap,
    },
    /// A file of the hub, whose header names the commit and the reason of an error.
    Hub {
        url: Url,
        /// Sent to the host of `url` only.
        token: Option<HeaderValue>,
        /// That all files of the repository must be of, once it is known.
        commit: Arc<OnceLock<String>>,
    },
    /// An object, whose URL is signed when it is requested.
    Bucket(BucketKey),
    /// A manifest or a blob of a registry, or a file with a digest of ModelScope, with the headers of its login.
    Registry {
        url: Url,
        login: Arc<RegistryLogin>,
        /// `None` for a manifest.
        blob: Option<BlobPart>,
    },
    /// The tokens of a registry, whose answer named this URL.
    Tokens {
        url: Url,
        allowed: Allowed,
        headers: HeaderMap,
    },
}

/// A blob of a registry, or a member of it.
struct BlobPart {
    blob: Blob,
    /// The name of its content, as a commit is of the hub's.
    digest: String,
    member: Option<TarMember>,
}

/// A URL that a redirect named.
#[derive(Clone)]
pub(crate) struct ResolvedUrl {
    pub(crate) url: Url,
    pub(crate) allowed: Allowed,
    /// Further headers for its host: the credentials of a bucket.
    pub(crate) headers: HeaderMap,
}

impl Resource {
    fn new(place: ResourcePlace) -> Self {
        Self {
            place,
            resolved: Mutex::default(),
        }
    }

    /// A file of a web server, with headers for its host.
    pub(crate) fn on_web(url: Url, headers: HeaderMap) -> Self {
        Self::new(ResourcePlace::Web { url, headers })
    }

    /// A file of the hub, of the commit that its repository must have.
    pub(crate) fn on_hub(
        url: Url,
        token: Option<HeaderValue>,
        commit: Arc<OnceLock<String>>,
    ) -> Self {
        Self::new(ResourcePlace::Hub { url, token, commit })
    }

    /// An object of a bucket.
    pub(crate) fn in_bucket(key: BucketKey) -> Self {
        Self::new(ResourcePlace::Bucket(key))
    }

    /// A manifest or an index of a registry.
    pub(crate) fn manifest(url: Url, login: Arc<RegistryLogin>) -> Self {
        let blob = None;
        Self::new(ResourcePlace::Registry { url, login, blob })
    }

    /// A blob of a registry, or a member of one.
    pub(crate) fn blob(
        url: Url,
        login: Arc<RegistryLogin>,
        blob: Blob,
        member: Option<TarMember>,
    ) -> Self {
        let digest = blob.digest.to_string();
        let blob = Some(BlobPart {
            blob,
            digest,
            member,
        });
        Self::new(ResourcePlace::Registry { url, login, blob })
    }

    /// The tokens of a registry.
    pub(crate) fn tokens(url: Url, allowed: Allowed, headers: HeaderMap) -> Self {
        Self::new(ResourcePlace::Tokens {
            url,
            allowed,
            headers,
        })
    }

    fn blob_part(&self) -> Option<&BlobPart> {
        match &self.place {
            ResourcePlace::Registry { blob, .. } => blob.as_ref(),
            _ => None,
        }
    }

    /// The login of a registry.
    pub(crate) fn login(&self) -> Option<&Arc<RegistryLogin>> {
        match &self.place {
            ResourcePlace::Registry { login, .. } => Some(login),
            _ => None,
        }
    }

    /// The blob, if its bytes are the file: its digest is the file's.
    pub(crate) fn whole_blob(&self) -> Option<&Blob> {
        let part = self.blob_part().filter(|part| part.member.is_none());
        part.map(|part| &part.blob)
    }

    /// Whether the file is a member of an archive without bytes: no range is requested for it.
    pub(crate) fn is_empty_member(&self) -> bool {
        let member = self.blob_part().and_then(|part| part.member);
        member.is_some_and(|member| member.len == 0)
    }

    /// The range of a request for a range of the file, which may be a part of what the server has.
    pub(crate) fn range_to_request(&self, range: RequestedRange) -> RequestedRange {
        let Some(TarMember { start, len }) = self.blob_part().and_then(|part| part.member) else {
            return range;
        };
        let (from, to) = match range {
            RequestedRange::Between(from, to) => (from.min(len), to.min(len)),
            RequestedRange::Last(n) => (len.saturating_sub(n), len),
        };
        RequestedRange::Between(start + from, start + to)
    }

    /// Checks the length that an answer states against the manifest's, and makes its range one of the file.
    pub(crate) fn adjust(&self, answer: &mut Answer) -> Result<()> {
        let Some(BlobPart { blob, member, .. }) = self.blob_part() else {
            return Ok(());
        };
        if answer.version.len != blob.len {
            return Err(Error::refused(format!(
                "the server has {} bytes for the digest {}, and its manifest or list says {}",
                answer.version.len, blob.digest, blob.len
            )));
        }
        if let Some(TarMember { start, len }) = *member {
            // an answer to a request for a range begins there and ends in the member
            answer.start = answer.start.saturating_sub(start);
            answer.end = answer.end.saturating_sub(start).min(len);
            answer.version.len = len;
        }
        Ok(())
    }

    pub(crate) fn is_on_hub(&self) -> bool {
        matches!(self.place, ResourcePlace::Hub { .. })
    }

    /// The URL that the caller named; `None` for a bucket.
    pub(crate) fn url(&self) -> Option<&Url> {
        match &self.place {
            ResourcePlace::Web { url, .. }
            | ResourcePlace::Hub { url, .. }
            | ResourcePlace::Registry { url, .. }
            | ResourcePlace::Tokens { url, .. } => Some(url),
            ResourcePlace::Bucket(_) => None,
        }
    }

    /// The URL of the first request, and what is sent to its host only.
    pub(crate) async fn first_access(&self) -> Result<ResolvedUrl> {
        let any = |url: &Url, headers| ResolvedUrl {
            url: url.clone(),
            allowed: Allowed::Any,
            headers,
        };
        match &self.place {
            ResourcePlace::Web { url, headers } => Ok(any(url, headers.clone())),
            ResourcePlace::Hub { url, .. } => Ok(any(url, HeaderMap::new())),
            ResourcePlace::Bucket(key) => {
                let ObjectAccess { url, headers } = key.access().await?;
                Ok(any(&url, headers))
            }
            ResourcePlace::Registry { url, login, blob } => {
                let mut headers = login.headers();
                if blob.is_none() {
                    headers.insert(header::ACCEPT, HeaderValue::from_static(ACCEPTED));
                }
                Ok(any(url, headers))
            }
            ResourcePlace::Tokens {
                url,
                allowed,
                headers,
            } => Ok(ResolvedUrl {
                url: url.clone(),
                allowed: *allowed,
                headers: headers.clone(),
            }),
        }
    }

    /// The token for this URL: tokens do not follow a redirect to another host.
    pub(crate) fn token_for(&self, to: &Url) -> Option<&HeaderValue> {
        match &self.place {
            ResourcePlace::Hub { url, token, .. } if url.origin() == to.origin() => token.as_ref(),
            _ => None,
        }
    }

    /// Refuses an answer about a file of another commit than the first one.
    pub(crate) fn check_commit(&self, headers: &HeaderMap) -> Result<()> {
        const COMMIT: HeaderName = HeaderName::from_static("x-repo-commit");
        let ResourcePlace::Hub { commit, .. } = &self.place else {
            return Ok(());
        };
        let Some(found) = headers.get(COMMIT).and_then(|found| found.to_str().ok()) else {
            // not every server that HF_ENDPOINT names sends it
            return Ok(());
        };
        // the first answer determines the commit of all files
        if commit.get_or_init(|| found.to_owned()) != found {
            return Err(Error::changed("the repository has another commit"));
        }
        Ok(())
    }

    /// The commit of the repository of a file of the hub, once it is known; the digest of a blob.
    pub(crate) fn commit(&self) -> Option<&str> {
        match &self.place {
            ResourcePlace::Hub { commit, .. } => commit.get().map(String::as_str),
            ResourcePlace::Registry { blob, .. } => blob.as_ref().map(|part| &*part.digest),
            ResourcePlace::Web { .. } | ResourcePlace::Bucket(_) | ResourcePlace::Tokens { .. } => {
                None
            }
        }
    }

    /// Whether a file that was kept under this commit belongs to the files of the repository, whose commit it is if none is
    /// known.
    pub(crate) fn is_of(&self, kept: &str) -> bool {
        match &self.place {
            ResourcePlace::Hub { commit, .. } => commit.get_or_init(|| kept.to_owned()) == kept,
            ResourcePlace::Registry { blob, .. } => {
                blob.as_ref().is_none_or(|part| part.digest == kept)
            }
            ResourcePlace::Web { .. } | ResourcePlace::Bucket(_) | ResourcePlace::Tokens { .. } => {
                true
            }
        }
    }

    pub(crate) fn resolved(&self) -> Option<ResolvedUrl> {
        self.resolved
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(crate) fn resolve_to(&self, to: Option<ResolvedUrl>) {
        *self.resolved.lock().unwrap_or_else(PoisonError::into_inner) = to;
    }
}
