//! Where the files of one checkpoint are: the place that a URL names, and the files next to it.

mod known_files;
mod listing;
mod stated_files;
mod stated_model;

use std::collections::{HashMap, HashSet, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use reqwest::header::HeaderMap;
use tokio::sync::Semaphore;
use url::Url;

use crate::address::Allowed;
use crate::blocks::BlockMemory;
use crate::bucket::{Bucket, BucketKey};
use crate::client::Client;
use crate::credentials::headers_for;
use crate::error::{Error, ErrorKind, Result};
use crate::file::{HeaderPlace, RemoteFile};
use crate::guess::FirstRequests;
use crate::header_cache::{self, HeaderCache};
use crate::hub::{self, HubPath, HubSettings};
use crate::modelscope::ModelScopePath;
use crate::names::has_ending;
use crate::options::RemoteOptions;
use crate::registry::{OllamaPath, RegistryPath};
use crate::resource::Resource;
use crate::runtime::wait_while;
use crate::stats::RequestCounters;
use known_files::KnownFiles;
use stated_model::{ModelSource, StatedModel};

/// Announced files that are requested and not opened yet.
// each holds the first bytes of a file: more would only take memory before their turn
const BEGUN: usize = 256;

/// The target of a URL.
pub enum OpenedUrl {
    /// Files on a server.
    Store(Box<Store>),
    /// A file or directory on this machine: the cache of the hub holds it.
    Local(PathBuf),
}

/// The files of one checkpoint on a server. Paths are the URL that was opened, without its query, and URLs of plain names
/// next to it.
pub struct Store {
    place: StorePlace,
    path: String,
    client: Arc<Client>,
    slots: Arc<Semaphore>,
    memory: Arc<BlockMemory>,
    headers: Option<Arc<HeaderCache>>,
    begun: Mutex<BegunFiles>,
    known: Mutex<KnownFiles>,
}

enum StorePlace {
    /// A web server: the URL of the file that was opened, with its query, and headers for its host.
    Web {
        url: Url,
        headers: HeaderMap,
    },
    Hub {
        settings: HubSettings,
        /// The first answer's commit: all files have it.
        commit: Arc<OnceLock<String>>,
    },
    Bucket(Arc<Bucket>),
    /// A model of a registry or of ModelScope.
    Stated(StatedModel),
}

/// Files that were announced.
#[derive(Default)]
struct BegunFiles {
    ready: HashMap<String, RemoteFile>,
    queue: VecDeque<String>,
}

impl Store {
    /// Finds what a URL leads to. Sends nothing.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) for a URL that names nothing; [`Offline`](ErrorKind::Offline) if no request is to be sent and
    /// no cache has it.
    pub fn open(url: &str) -> Result<OpenedUrl> {
        Self::open_with(url, RemoteOptions::default(), &|name| {
            std::env::var(name).ok()
        })
    }

    /// Like [`open`](Self::open), with other bounds on time, and variables that replace the environment's.
    ///
    /// # Errors
    /// The errors of [`open`](Self::open).
    pub fn open_with(
        url: &str,
        options: RemoteOptions,
        variables: &dyn Fn(&str) -> Option<String>,
    ) -> Result<OpenedUrl> {
        let own = options.variables.clone();
        let variables = |name: &str| {
            own.get(name)
                .map_or_else(|| variables(name), |own| Some(own.to_owned()))
        };
        Self::with_variables(url, options, &variables)
    }

    fn with_variables(
        url: &str,
        mut options: RemoteOptions,
        variables: &dyn Fn(&str) -> Option<String>,
    ) -> Result<OpenedUrl> {
        let invalid = |what: &str| Error::new(ErrorKind::Invalid, what);
        let (scheme, rest) = url
            .split_once("://")
            .ok_or_else(|| invalid("this is no URL"))?;
        // schemes are not case-sensitive
        let scheme = scheme.to_ascii_lowercase();
        if scheme == "hf" {
            // the variable is the hub's: other servers are asked all the same
            options.offline |= hub::is_offline(variables);
        }
        let client = Arc::new(Client::new(options));
        let (place, path) = match &*scheme {
            "http" | "https" => {
                let mut parsed =
                    Url::parse(url).map_err(|e| invalid(&format!("this is no URL: {e}")))?;
                // a fragment is for programs and is never sent
                parsed.set_fragment(None);
                if !parsed.username().is_empty() || parsed.password().is_some() {
                    return Err(invalid(
                        "a URL with a password is refused, as it would be shown: use a signed URL",
                    ));
                }
                // a query may be a signature, which must not appear in messages
                let path = url.split(['?', '#']).next().unwrap_or_default();
                let headers = headers_for(&parsed, &client.options, variables)?;
                let url = parsed;
                (StorePlace::Web { url, headers }, path.to_owned())
            }
            "hf" => {
                let settings = HubSettings::from_variables(variables)?;
                let path = HubPath::parse(rest)?;
                // the hub's cache first: it needs no request
                if let Some(local) = path.cached(&settings, client.options.memory) {
                    client.counters.found_in_cache();
                    return Ok(OpenedUrl::Local(local));
                }
                // a cache of headers may answer without a request
                if client.options.offline && client.options.header_cache.is_none() {
                    return Err(Error::new(
                        ErrorKind::Offline,
                        "no request is sent (offline, or HF_HUB_OFFLINE is set), and the hub's cache on this machine does \
                         not hold this as a whole: download it with `hf download`",
                    ));
                }
                let commit = Arc::default();
                let mut shown = url.trim_end_matches('/').to_owned();
                // a folder whose name has an ending stays one
                if path.is_folder && has_ending(&path.file) {
                    shown.push('/');
                }
                (StorePlace::Hub { settings, commit }, shown)
            }
            scheme @ ("s3" | "gs" | "az" | "abfs" | "abfss") => {
                let connections = client.to(Allowed::Any)?.clone();
                let options = &client.options;
                let bucket = Bucket::new(scheme, rest, connections, options, variables)?;
                (StorePlace::Bucket(Arc::new(bucket)), url.to_owned())
            }
            "oci" | "ollama" => {
                let path = if scheme == "oci" {
                    RegistryPath::parse(rest)?
                } else {
                    let model = OllamaPath::parse(rest)?;
                    // the store on this machine first: it needs no request
                    if let Some(stored) = model.stored(variables) {
                        client.counters.found_in_cache();
                        return Ok(OpenedUrl::Local(stored));
                    }
                    model.path
                };
                let given = headers_for(&path.origin, &client.options, variables)?;
                let shown = path.shown();
                let source = ModelSource::Registry(path);
                (StorePlace::Stated(StatedModel::new(source, given)), shown)
            }
            "ms" => {
                let path = ModelScopePath::parse(rest, variables)?;
                let given = path.headers(&client.options, variables)?;
                let shown = path.shown();
                let source = ModelSource::ModelScope(path);
                (StorePlace::Stated(StatedModel::new(source, given)), shown)
            }
            _ => {
                return Err(Error::new(
                    ErrorKind::Unsupported,
                    format!(
                        "{}:// URLs are not opened; use a signed https:// URL",
                        crate::error::shown(&scheme)
                    ),
                ));
            }
        };
        let headers = match &client.options.header_cache {
            Some(path) => {
                let cache = HeaderCache::open(path, client.options.header_cache_size)?;
                Some(Arc::new(cache))
            }
            None => {
                // without a cache of headers, nothing can be read without requests
                client.check_online()?;
                None
            }
        };
        Ok(OpenedUrl::Store(Box::new(Self {
            place,
            headers,
            path,
            slots: Arc::new(Semaphore::new(client.options.requests)),
            memory: Arc::new(BlockMemory::new(client.options.memory)),
            client,
            begun: Mutex::default(),
            known: Mutex::default(),
        })))
    }

    /// The URL that was opened, without its query, which may be a signature.
    pub fn path(&self) -> &str {
        &self.path
    }

    pub(crate) fn bucket(&self) -> Option<&Arc<Bucket>> {
        match &self.place {
            StorePlace::Bucket(bucket) => Some(bucket),
            StorePlace::Web { .. } | StorePlace::Hub { .. } | StorePlace::Stated(_) => None,
        }
    }

    pub(crate) fn options(&self) -> &RemoteOptions {
        &self.client.options
    }

    pub(crate) fn counters(&self) -> &RequestCounters {
        &self.client.counters
    }

    pub(crate) fn check_online(&self) -> Result<()> {
        self.client.check_online()
    }

    /// The files of the checkpoint are open: [`RemoteOptions::cancel`] has no effect from here on.
    pub fn opened(&self) {
        self.client.set_opened();
    }

    /// Whether nothing is cancelled that goes on until the files are open.
    pub(crate) fn is_wanted(&self) -> bool {
        self.client.check_wanted().is_ok()
    }

    /// Runs a request while this thread waits, unless opening is cancelled.
    fn wait<T: Send + 'static>(
        &self,
        request: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        wait_while(request, &mut || self.is_wanted())
    }

    /// Whether a path is a directory, by its form: it ends in a slash, or (but on a web server) its name has no ending.
    pub fn is_directory(&self, path: &str) -> bool {
        let is_unending = || match &self.place {
            StorePlace::Web { .. } => false,
            StorePlace::Hub { .. } => hub_path(path).is_ok_and(|path| !path.is_file()),
            StorePlace::Bucket(_) => !has_ending(key(path)),
            StorePlace::Stated(model) => !model.file_of(path).is_ok_and(has_ending),
        };
        path.ends_with('/') || is_unending()
    }

    /// Announces the files that will be opened, in this order: the first ones are requested now, the others as files are
    /// opened.
    pub fn begin(&self, paths: &mut dyn Iterator<Item = String>) {
        let mut begun = self.begun();
        let paths: VecDeque<String> = paths.collect();
        // files that were announced before and are not needed are given up
        let wanted: HashSet<&String> = paths.iter().collect();
        begun.ready.retain(|path, _| wanted.contains(path));
        begun.queue = paths;
        self.request_announced(&mut begun);
    }

    fn request_announced(&self, begun: &mut BegunFiles) {
        while begun.ready.len() < BEGUN {
            let Some(path) = begun.queue.pop_front() else {
                return;
            };
            if !begun.ready.contains_key(&path)
                // an error is reported when the file is opened, if it is
                && let Ok(file) = self.request(&path)
            {
                begun.ready.insert(path, file);
            }
        }
    }

    /// A file by its path. Returns at once: the first read waits.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) for a path that is not next to the one that was opened.
    pub fn file(&self, path: &str) -> Result<RemoteFile> {
        let mut begun = self.begun();
        let file = match begun.ready.remove(path) {
            Some(file) => file,
            None => self.request(path)?,
        };
        self.request_announced(&mut begun);
        Ok(file)
    }

    fn request(&self, path: &str) -> Result<RemoteFile> {
        if let Some(known) = self.known().find(path)? {
            return Ok(known);
        }
        let (resource, url, is_pinned) = match &self.place {
            StorePlace::Bucket(bucket) => {
                let (bucket, key) = (Arc::clone(bucket), key(path).to_owned());
                let url = bucket.location(&key)?;
                (Resource::in_bucket(BucketKey { bucket, key }), url, false)
            }
            StorePlace::Web { url, headers } => {
                let url = self.web_url(url, path)?;
                let resource = Resource::on_web(url.clone(), headers.clone());
                (resource, url, false)
            }
            StorePlace::Hub { settings, commit } => {
                let path = hub_path(path)?;
                // by the commit once it is known: a branch may move between two files
                let revision = commit.get().unwrap_or(&path.revision);
                let url = path.resolve_url(&settings.endpoint, revision)?;
                let resource = self.hub_resource(settings, commit, url.clone());
                // files of a commit do not change, so that their headers need no comparison
                (resource, url, hub::is_commit(revision))
            }
            StorePlace::Stated(model) => self.stated_file(model, path)?,
        };
        let file = self.begin_file(resource, url, is_pinned, FirstRequests::of(path));
        self.known().requested(path, &file);
        Ok(file)
    }

    /// Requests the first bytes of a file. `url` is what the cache of headers knows it by, and `is_pinned` whether that names one
    /// content for ever.
    fn begin_file(
        &self,
        resource: Resource,
        url: Url,
        is_pinned: bool,
        first: FirstRequests,
    ) -> RemoteFile {
        let place = self.headers.as_ref().map(|cache| HeaderPlace {
            cache: Arc::clone(cache),
            key: header_cache::key_of(url),
            is_pinned,
        });
        RemoteFile::begin(
            Arc::clone(&self.client),
            Arc::clone(&self.slots),
            Arc::clone(&self.memory),
            resource,
            first,
            place,
        )
    }

    fn hub_resource(
        &self,
        settings: &HubSettings,
        commit: &Arc<OnceLock<String>>,
        url: Url,
    ) -> Resource {
        Resource::on_hub(url, settings.token.clone(), Arc::clone(commit))
    }

    /// The URL of a file next to the one that was opened: with the same query, which may permit access to both.
    fn web_url(&self, opened: &Url, path: &str) -> Result<Url> {
        if path == self.path {
            return Ok(opened.clone());
        }
        let folder = |path: &str| {
            path.rsplit_once('/')
                .map(|(folder, name)| (folder.to_owned(), name.to_owned()))
        };
        let (own, found) = (folder(&self.path), folder(path));
        match (own, found) {
            (Some((own, _)), Some((folder, name))) if own == folder && !name.is_empty() => {
                let mut url = opened.clone();
                let mut parts = url.path_segments_mut().expect("an http URL has a path");
                parts.pop().push(&name);
                // ends the borrow of `url`
                drop(parts);
                Ok(url)
            }
            _ => Err(Error::new(
                ErrorKind::Invalid,
                "the path is not next to the URL that was opened",
            )),
        }
    }

    fn begun(&self) -> MutexGuard<'_, BegunFiles> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// May be locked while [`begun`](Self::begun) is.
    fn known(&self) -> MutexGuard<'_, KnownFiles> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives up what is known of files: they are written.
    pub(crate) fn forget(&self) {
        *self.known() = KnownFiles::default();
    }
}

/// The key of a path in a bucket: what follows its name, without a slash at the end.
pub(crate) fn key(path: &str) -> &str {
    let rest = path.split_once("://").map_or("", |(_, rest)| rest);
    rest.split_once('/')
        .map_or("", |(_, key)| key.trim_end_matches('/'))
}

/// The place on the hub that a path names.
fn hub_path(path: &str) -> Result<HubPath> {
    HubPath::parse(path.split_once("://").map_or("", |(_, rest)| rest))
}

#[cfg(test)]
mod tests;
