//! Where the files of a checkpoint are, by the path that the caller opens: one row per kind of place.
//!
//! Paths are `Path`s everywhere: of a URL, `join`, `parent` and `file_name` work on its text.

use std::borrow::Cow;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

use crate::base::error::{Error, Result};
use crate::base::progress::CancelToken;
use crate::base::quote::SCHEMES;

use super::file_system::FileSystem;
use super::local_files::LocalFiles;

/// The place that an opening and its checkpoint share; `None` is the local file system, which needs no allocation.
#[derive(Clone, Default)]
pub(crate) struct Files(Option<Arc<dyn FileSystem>>);

/// How URLs are accessed; without the feature `remote` they are not.
#[derive(Clone, Debug, Default)]
pub(crate) struct UrlOptions {
    #[cfg(feature = "remote")]
    pub(crate) remote: anamnesis_remote::RemoteOptions,
}

impl UrlOptions {
    /// The same, of which waits end when the token is cancelled.
    pub(crate) fn cancelled_by(&self, token: Option<&CancelToken>) -> Self {
        let options = self.clone();
        #[cfg(feature = "remote")]
        if let Some(token) = token.cloned() {
            let mut options = options;
            let check = anamnesis_remote::CancelCheck::new(move || token.is_cancelled());
            options.remote.cancel = Some(check);
            return options;
        }
        let _ = token;
        options
    }
}

impl Files {
    /// A place over another one, or that a test makes.
    pub(crate) fn from_system(system: Arc<dyn FileSystem>) -> Self {
        Self(Some(system))
    }

    /// Like [`with`](Self::with), with the defaults for URLs.
    pub(crate) fn of(path: &Path) -> Result<(Self, Cow<'_, Path>)> {
        Self::with(path, &UrlOptions::default(), u64::MAX)
    }

    /// The place of a path of the caller's, and the path as it is shown and joined: a URL's lacks its query, which may be a
    /// signature. The read-ahead of remote files takes at most half of `memory` bytes.
    pub(crate) fn with<'p>(
        path: &'p Path,
        options: &UrlOptions,
        memory: u64,
    ) -> Result<(Self, Cow<'p, Path>)> {
        match url(path) {
            None => {
                check_no_url(path)?;
                Ok((Self::default(), Cow::Borrowed(path)))
            }
            Some(url) => Self::of_url(url, options, memory).map_err(|e| e.in_file(path)),
        }
    }

    #[cfg(feature = "remote")]
    fn of_url<'p>(url: &str, options: &UrlOptions, memory: u64) -> Result<(Self, Cow<'p, Path>)> {
        let mut remote = options.remote.clone();
        // the other half is for what is made of it
        remote.memory = remote.memory.min(memory / 2);
        let (files, path) = super::remote::open(url, remote)?;
        Ok((Self(files), Cow::Owned(path)))
    }

    /// The directory of a model that was opened by this path: the path itself, or the directory of a file, which is empty for a
    /// name alone.
    pub(crate) fn folder_of<'p>(&self, path: &'p Path) -> &'p Path {
        match self.is_directory(path) {
            true => path,
            false => path.parent().unwrap_or(Path::new("")),
        }
    }

    #[cfg(not(feature = "remote"))]
    fn of_url<'p>(url: &str, _: &UrlOptions, _: u64) -> Result<(Self, Cow<'p, Path>)> {
        let scheme = url.split(':').next().unwrap_or_default();
        Err(Error::unsupported(format!(
            "this program was built without access to {scheme}:// URLs: build it with the feature `remote`, or download \
             the file"
        )))
    }
}

impl Deref for Files {
    type Target = dyn FileSystem;

    fn deref(&self) -> &Self::Target {
        match &self.0 {
            Some(files) => &**files,
            None => &LocalFiles,
        }
    }
}

/// The text of a path that is a URL. A directory of such a name is opened as `./https:/…`.
pub(crate) fn url(path: &Path) -> Option<&str> {
    /// The length of a scheme.
    const LONGEST: usize = "ollama".len();
    // by the first bytes, as this is asked of every path: searching all of it for `://` costs a small file 2 % of its opening
    let bytes = path.as_os_str().as_encoded_bytes();
    let colon = bytes.iter().take(LONGEST + 1).position(|&b| b == b':')?;
    let (scheme, rest) = bytes.split_at(colon);
    let is_known = |known: &&str| known.as_bytes().eq_ignore_ascii_case(scheme);
    let is_url = rest.starts_with(b"://") && SCHEMES.iter().any(is_known);
    // one that is not UTF-8 is no URL
    is_url.then(|| path.to_str()).flatten()
}

/// Whether a path is the text of a URL of a scheme that is opened: with the feature `remote`, as this is about its text alone.
///
/// ```
/// use anamnesis::source::is_url;
///
/// assert!(is_url("s3://bucket/model".as_ref())?);
/// assert!(!is_url("/models/llama".as_ref())?);
/// assert!(is_url("s3:/bucket/model".as_ref()).is_err());
/// # Ok::<(), anamnesis::Error>(())
/// ```
///
/// # Errors
/// It is the text of a URL that has lost a slash, or of another scheme. [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument).
pub fn is_url(path: &Path) -> Result<bool> {
    match url(path) {
        Some(_) => Ok(true),
        None => check_no_url(path).map(|()| false),
    }
}

/// Refuses a path that was meant as a URL: of a scheme that is not opened, or of one that has lost a slash, as functions that
/// join paths make them. As a path it would be a directory such as `s3:`, and an output would be written there.
///
/// A directory of such a name that exists is one, and any name behind `./`.
pub(crate) fn check_no_url(path: &Path) -> Result<()> {
    /// The longest scheme that is looked for; a drive of Windows has one letter.
    const LENGTHS: std::ops::RangeInclusive<usize> = 2..=12;
    let bytes = path.as_os_str().as_encoded_bytes();
    let Some(colon) = bytes.iter().take(13).position(|&byte| byte == b':') else {
        return Ok(());
    };
    let (scheme, rest) = bytes.split_at(colon);
    let is_scheme = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
    if !LENGTHS.contains(&colon) || !scheme.iter().all(is_scheme) || !rest.starts_with(b":/") {
        return Ok(());
    }
    let mut own = path.components();
    if own
        .next()
        .is_some_and(|directory| Path::new(&directory).is_dir())
    {
        return Ok(());
    }
    let scheme = String::from_utf8_lossy(scheme).to_ascii_lowercase();
    let what = if SCHEMES.contains(&&*scheme) {
        format!(
            "a URL that has lost a slash: it begins with {scheme}://, which programs that join paths shorten"
        )
    } else if scheme == "file" {
        "a URL of this machine: leave out file://".to_owned()
    } else {
        let known = SCHEMES.join("://, ");
        format!("URLs begin with {known}://, and a directory of this name is written ./{scheme}:")
    };
    // as a URL, of which an error shows neither credentials nor a query
    let behind = String::from_utf8_lossy(rest);
    let shown = format!("{scheme}://{}", behind.trim_start_matches([':', '/']));
    Err(Error::invalid_argument(what).in_file(Path::new(&shown)))
}

/// Refuses a checkpoint whose files have no paths in the file system, where those are needed.
pub(crate) fn require_local(files: &Files, path: &Path, what: &str) -> Result<()> {
    if files.is_local() {
        return Ok(());
    }
    Err(Error::unsupported(format!(
        "{what} local files, and this checkpoint is at a URL; download it first"
    ))
    .in_file(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::error::ErrorKind;

    #[test]
    fn urls_are_known_by_their_scheme() {
        for path in [
            "https://h/a",
            "HTTP://h",
            "s3://b/k",
            "hf://o/n",
            "ms://o/n@v",
            "abfss://c@a/k",
            "oci://r/m:t",
            "ollama://m",
        ] {
            assert_eq!(url(Path::new(path)), Some(path));
        }
        for path in [
            "a/b",
            "/https://h",
            "./s3://b",
            "ftp://h/a",
            "C://a",
            "https:/h",
            "s3",
        ] {
            assert_eq!(url(Path::new(path)), None, "{path}");
        }
    }

    #[test]
    fn a_url_with_a_mistake_is_no_path() {
        for path in [
            "https:/h",
            "s3:/b/k",
            "HF:/o/n",
            "ms:/o/n",
            "oci:/r/m:t",
            "ollama:/m",
            "ftp://h/a",
            "gcs://b",
            "file:///a",
            "r2:/b",
        ] {
            let error = is_url(Path::new(path)).unwrap_err();
            assert!(
                matches!(error.kind(), ErrorKind::InvalidArgument(_)),
                "{path}: {error}"
            );
            assert!(Files::of(Path::new(path)).is_err(), "{path}");
        }
        for path in [
            "C:/a",
            "C:\\a",
            "a:b",
            "./s3:/b",
            "/s3:/b",
            "model:latest",
            "a b:/c",
        ] {
            assert!(!is_url(Path::new(path)).unwrap(), "{path}");
        }
    }

    #[test]
    fn secrets_of_a_url_are_in_no_error() {
        let refused = Files::of(Path::new("https://user:secret@h/a?secret"));
        let error = refused.err().unwrap().to_string();
        assert!(
            error.starts_with("https://h/a: ") && !error.contains("secret"),
            "{error}"
        );
    }

    #[cfg(not(feature = "remote"))]
    #[test]
    fn urls_are_refused() {
        let error = Files::of(Path::new("https://h/a")).err().unwrap();
        assert!(error.to_string().contains("feature `remote`"), "{error}");
    }

    #[test]
    fn a_url_keeps_its_text_in_a_path() {
        let index = Path::new("https://h/m/model.safetensors.index.json");
        let folder = index.parent().unwrap();
        assert_eq!(folder.to_str(), Some("https://h/m"));
        let shard = folder.join("a-00001-of-00002.safetensors");
        #[cfg(unix)]
        assert_eq!(
            shard.to_str(),
            Some("https://h/m/a-00001-of-00002.safetensors")
        );
        assert_eq!(shard.file_name().unwrap(), "a-00001-of-00002.safetensors");
    }
}
