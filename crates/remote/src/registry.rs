//! Registries of the Open Container Initiative: `oci://registry/repository[:tag][@digest][/file]`.
//!
//! A manifest names the layers of a model by digest and length, which are read by ranges: nothing is pulled. Protocol: the OCI
//! distribution specification, `GET /v2/<name>/manifests/<reference>` and `GET /v2/<name>/blobs/<digest>`
//! (<https://github.com/opencontainers/distribution-spec/blob/main/spec.md>). Manifests and indexes:
//! <https://github.com/opencontainers/image-spec/blob/main/manifest.md>.

mod layers;
mod login;
mod manifest;
mod ollama;
mod tar;

use std::fmt;

use sha2::{Digest as _, Sha256, Sha512};
use url::{Host, Url};

use crate::error::{Error, ErrorKind, Result};
use crate::names::is_plain;

pub(crate) use layers::{LayerFiles, files_of};
pub(crate) use login::RegistryLogin;
pub(crate) use manifest::{ACCEPTED, RegistryManifest, parse_manifest};
pub(crate) use ollama::OllamaPath;
pub(crate) use tar::{TarMember, members};

/// The digest of a blob, by which it is requested.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct BlobDigest {
    is_long: bool,
    hex: String,
}

impl BlobDigest {
    /// Parses `sha256:…` or `sha512:…`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (algorithm, hex) = text.split_once(':')?;
        let (is_long, len) = match algorithm {
            "sha256" => (false, 64),
            "sha512" => (true, 128),
            _ => return None,
        };
        let is_hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        (hex.len() == len && hex.bytes().all(is_hex)).then(|| Self {
            is_long,
            hex: hex.to_owned(),
        })
    }

    /// The digits.
    pub(crate) fn hex(&self) -> &str {
        &self.hex
    }

    /// The digest of bytes.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self {
            is_long: false,
            hex: hex_of(&Sha256::digest(bytes)),
        }
    }

    /// Refuses other bytes than the digest's.
    pub(crate) fn check(&self, bytes: &[u8]) -> Result<()> {
        let found = match self.is_long {
            false => Self::of(bytes).hex,
            true => hex_of(&Sha512::digest(bytes)),
        };
        if found == self.hex {
            return Ok(());
        }
        Err(Error::refused(format!(
            "the server sends other bytes than the digest {self} names: theirs is {found}"
        )))
    }
}

impl fmt::Display for BlobDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let algorithm = if self.is_long { "sha512" } else { "sha256" };
        write!(f, "{algorithm}:{}", self.hex)
    }
}

fn hex_of(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A place in a registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RegistryPath {
    /// The scheme and host of its requests.
    pub(crate) origin: Url,
    pub(crate) repository: String,
    /// A tag or a digest.
    pub(crate) reference: String,
    /// The URL of the model, with its tag, to which names of files are appended.
    pub(crate) model: String,
    /// Empty for the model.
    pub(crate) file: String,
    is_folder: bool,
}

impl RegistryPath {
    /// Parses what follows `oci://`.
    pub(crate) fn parse(rest: &str) -> Result<Self> {
        let invalid = |what: &str| {
            let text = format!(
                "{what}: write oci://registry/repository:tag, oci://registry/repository@sha256:…, or one of them with /file"
            );
            Error::new(ErrorKind::Invalid, text)
        };
        let (host, rest) = rest
            .split_once('/')
            .ok_or_else(|| invalid("this names no repository"))?;
        let path = rest.trim_end_matches('/');
        // a repository has neither sign, so that the first one begins the reference
        let end = path.find([':', '@']).unwrap_or(path.len());
        let (repository, behind) = path.split_at(end);
        let (reference, file) = behind.split_once('/').unwrap_or((behind, ""));
        let is_word = |text: &str| {
            let first = text.as_bytes().first();
            first.is_some_and(u8::is_ascii_alphanumeric)
                && text
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
        };
        if !repository.split('/').all(is_word) || repository.len() > 255 {
            return Err(invalid("this names no repository"));
        }
        let (tag, digest) = match reference.split_once('@') {
            Some((tag, digest)) => (tag, Some(digest)),
            None => (reference, None),
        };
        let tag = tag.strip_prefix(':');
        let is_tag = |tag: &str| is_word(tag.trim_start_matches('_')) && tag.len() <= 128;
        if tag.is_some_and(|tag| !is_tag(tag)) {
            return Err(invalid("this names no tag"));
        }
        if digest.is_some_and(|digest| BlobDigest::parse(digest).is_none()) {
            return Err(invalid("this names no digest of SHA-256 or SHA-512"));
        }
        if !file.is_empty() && !file.split('/').all(is_plain) {
            return Err(invalid("this names no file"));
        }
        let origin = origin_of(host).ok_or_else(|| invalid("this names no registry"))?;
        let model = match reference {
            "" => format!("oci://{host}/{repository}:latest"),
            reference => format!("oci://{host}/{repository}{reference}"),
        };
        // names of one word are of the organisation `library` there
        let repository = match origin.host_str() {
            Some(DOCKER) if !repository.contains('/') => format!("library/{repository}"),
            _ => repository.to_owned(),
        };
        Ok(Self {
            origin,
            repository,
            // the digest decides where both are given
            reference: digest.or(tag).unwrap_or("latest").to_owned(),
            model,
            file: file.to_owned(),
            is_folder: rest.ends_with('/'),
        })
    }

    /// The URL as it is shown, with its tag.
    pub(crate) fn shown(&self) -> String {
        match (&*self.file, self.is_folder) {
            ("", _) => self.model.clone(),
            (file, false) => format!("{}/{file}", self.model),
            (file, true) => format!("{}/{file}/", self.model),
        }
    }

    pub(crate) fn manifest_url(&self, reference: &str) -> Url {
        self.url(&["manifests", reference])
    }

    pub(crate) fn blob_url(&self, digest: &BlobDigest) -> Url {
        self.url(&["blobs", &digest.to_string()])
    }

    fn url(&self, behind: &[&str]) -> Url {
        let mut url = self.origin.clone();
        let parts = ["v2"].into_iter().chain(self.repository.split('/'));
        url.path_segments_mut()
            .expect("an http URL has a path")
            .clear()
            .extend(parts.chain(behind.iter().copied()));
        url
    }
}

/// The host that serves `docker.io`.
const DOCKER: &str = "registry-1.docker.io";

/// Where a registry is: plain http on this machine alone, as the tools of the field have it.
fn origin_of(host: &str) -> Option<Url> {
    let host = match host {
        "docker.io" | "index.docker.io" => DOCKER,
        host => host,
    };
    // a name with an empty part would lead out of a store of Ollama's
    let has_empty_part = host.starts_with('.') || host.contains("..");
    if host.is_empty() || has_empty_part || host.contains(['@', '?', '#', '\\', '%']) {
        return None;
    }
    let url = |scheme| Url::parse(&format!("{scheme}://{host}/")).ok();
    let secure = url("https")?;
    let is_here = match secure.host()? {
        Host::Ipv4(v4) => v4.is_loopback(),
        Host::Ipv6(v6) => v6.is_loopback(),
        Host::Domain(name) => name.eq_ignore_ascii_case("localhost"),
    };
    if is_here { url("http") } else { Some(secure) }
}

/// A blob as a manifest or a list describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Blob {
    pub(crate) digest: BlobDigest,
    pub(crate) len: u64,
}

#[cfg(test)]
mod tests;
