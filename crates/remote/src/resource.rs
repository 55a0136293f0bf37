//! A file on a server: where it is, what is sent for it, and where redirects led to.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use url::Url;

use crate::address::Allowed;
use crate::bucket::{BucketKey, ObjectAccess};
use crate::error::{Error, Result};

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

    pub(crate) fn is_on_hub(&self) -> bool {
        matches!(self.place, ResourcePlace::Hub { .. })
    }

    /// The URL that the caller named; `None` for a bucket.
    pub(crate) fn url(&self) -> Option<&Url> {
        match &self.place {
            ResourcePlace::Web { url, .. } | ResourcePlace::Hub { url, .. } => Some(url),
            ResourcePlace::Bucket(_) => None,
        }
    }

    /// The URL of the first request, and what is sent to its host only.
    pub(crate) async fn first_access(&self) -> Result<ObjectAccess> {
        match &self.place {
            ResourcePlace::Web { url, headers } => Ok(ObjectAccess {
                url: url.clone(),
                headers: headers.clone(),
            }),
            ResourcePlace::Hub { url, .. } => Ok(ObjectAccess {
                url: url.clone(),
                headers: HeaderMap::new(),
            }),
            ResourcePlace::Bucket(key) => key.access().await,
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

    /// The commit of the repository of a file of the hub, once it is known.
    pub(crate) fn commit(&self) -> Option<&str> {
        match &self.place {
            ResourcePlace::Hub { commit, .. } => commit.get().map(String::as_str),
            ResourcePlace::Web { .. } | ResourcePlace::Bucket(_) => None,
        }
    }

    /// Whether a file that was kept under this commit belongs to the files of the repository, whose commit it is if none is
    /// known.
    pub(crate) fn is_of(&self, kept: &str) -> bool {
        match &self.place {
            ResourcePlace::Hub { commit, .. } => commit.get_or_init(|| kept.to_owned()) == kept,
            ResourcePlace::Web { .. } | ResourcePlace::Bucket(_) => true,
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
