//! The files of a model in a registry: its manifest, and the headers of archives among its layers.

use std::collections::HashSet;
use std::sync::{Arc, PoisonError};

use url::Url;

use super::listing::LONGEST;
use super::{Store, StorePlace};
use crate::error::{Error, ErrorKind, Result};
use crate::guess::FirstRequests;
use crate::hub::blobs::StatedDigests;
use crate::names::is_plain;
use crate::registry::{
    Blob, BlobDigest, LayerFiles, Registry, RegistryFile, RegistryManifest, RegistryModel,
    TarMember, files_of, members, parse_manifest,
};
use crate::resource::Resource;

/// Indexes that lead to a manifest: an index of indexes is one of nothing that packs models.
const INDEXES: usize = 2;

impl Store {
    /// The names of the files in one directory of a model.
    pub(super) fn list_registry(
        &self,
        registry: &Registry,
        directory: &str,
    ) -> Result<Vec<String>> {
        let folder = registry.file_of(directory)?;
        let prefix = match folder {
            "" => String::new(),
            folder => format!("{folder}/"),
        };
        let model = self.model_of_registry(registry)?;
        let names = model
            .files
            .iter()
            .filter_map(|file| file.name.strip_prefix(&prefix));
        Ok(names
            .filter(|name| is_plain(name))
            .map(str::to_owned)
            .collect())
    }

    /// A file of a model, and the URL that the cache of headers knows it by.
    pub(super) fn registry_file(&self, registry: &Registry, path: &str) -> Result<(Resource, Url)> {
        let name = registry.file_of(path)?;
        let model = self.model_of_registry(registry)?;
        let found = model.files.iter().find(|file| file.name == name);
        let Some(RegistryFile { blob, member, .. }) = found else {
            let what = "the model in the registry has no such file";
            return Err(Error::new(ErrorKind::NotFound, what));
        };
        Ok(blob_resource(registry, blob, *member))
    }

    /// The files of a model, whose manifest is requested once.
    fn model_of_registry(&self, registry: &Registry) -> Result<Arc<RegistryModel>> {
        let mut known = registry
            .model
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(model) = &*known {
            return Ok(Arc::clone(model));
        }
        let model = Arc::new(self.request_model(registry)?);
        *known = Some(Arc::clone(&model));
        Ok(model)
    }

    /// The digest that a manifest states of a file of a model in a registry; `None` of files elsewhere, and of members of an archive,
    /// whose digest is the archive's.
    #[must_use]
    pub fn stated_digest(&self, path: &str) -> Option<String> {
        let StorePlace::Registry(registry) = &self.place else {
            return None;
        };
        let name = registry.file_of(path).ok()?;
        let model = self.model_of_registry(registry).ok()?;
        let file = model.files.iter().find(|file| file.name == name)?;
        let is_whole = file.member.is_none();
        is_whole.then(|| file.blob.digest.hex().to_owned())
    }

    /// The digests that a manifest states of the files of a model in a registry, under the manifest's own.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) for a place of another kind; the errors of the requests.
    pub fn stated_digests(&self) -> Result<StatedDigests> {
        let StorePlace::Registry(registry) = &self.place else {
            let what = "only the hub and registries state the digests of their files";
            return Err(Error::new(ErrorKind::Invalid, what));
        };
        let model = self.model_of_registry(registry)?;
        let files = model.files.iter().filter(|file| file.member.is_none());
        let files = files.map(|file| (file.name.clone(), file.blob.digest.hex().to_owned()));
        Ok(StatedDigests {
            commit: model.digest.clone(),
            files: files.collect(),
        })
    }

    fn request_model(&self, registry: &Registry) -> Result<RegistryModel> {
        let mut reference = registry.path.reference.clone();
        let mut found = None;
        for _ in 0..INDEXES {
            match self.manifest(registry, &reference)? {
                (RegistryManifest::Layers(layers), digest) => {
                    found = Some((layers, digest));
                    break;
                }
                (RegistryManifest::Other(digest), _) => reference = digest.to_string(),
            }
        }
        let (layers, digest) =
            found.ok_or_else(|| Error::refused("the registry's index leads to further indexes"))?;
        let mut files = Vec::new();
        let mut archives = Vec::new();
        for source in files_of(layers)? {
            match source {
                LayerFiles::File(name, blob) => files.push(RegistryFile {
                    name,
                    blob,
                    member: None,
                }),
                LayerFiles::Archive(blob) => {
                    let (resource, url) = blob_resource(registry, &blob, None);
                    // all of them are requested before the first one is read
                    let file = self.begin_file(resource, url, true, FirstRequests::ARCHIVE);
                    archives.push((blob, file));
                }
            }
        }
        for (blob, file) in archives {
            let room = self.memory.room() / 2;
            let found = members(blob.len, room, &mut |at, buf| {
                let n = file.read_at(at, buf)?;
                if n == buf.len() {
                    return Ok(());
                }
                Err(Error::refused("the archive ends in a header"))
            })?;
            file.settled();
            files.extend(found.into_iter().map(|(name, member)| RegistryFile {
                name,
                blob: blob.clone(),
                member: Some(member),
            }));
        }
        let mut names = HashSet::new();
        if let Some(twice) = files.iter().find(|file| !names.insert(&*file.name)) {
            return Err(Error::refused(format!(
                "the model in the registry has two files of the name {}",
                crate::error::shown(&twice.name)
            )));
        }
        Ok(RegistryModel {
            digest: digest.to_string(),
            files,
        })
    }

    /// A manifest and its digest, with which it is compared if it is named by one.
    fn manifest(
        &self,
        registry: &Registry,
        reference: &str,
    ) -> Result<(RegistryManifest, BlobDigest)> {
        let url = registry.path.manifest_url(reference);
        let digest = BlobDigest::parse(reference);
        let kept = self.kept_listing(&url, digest.is_some());
        let is_kept = kept.is_some();
        let text = match kept {
            Some(text) => text,
            None => {
                let resource = Resource::manifest(url.clone(), Arc::clone(&registry.login));
                let client = Arc::clone(&self.client);
                let most = LONGEST.min(self.memory.room() / 2);
                let request = self.wait(async move { client.document(&resource, most).await });
                request.map_err(|e| match e.kind() {
                    ErrorKind::NotFound => Error::new(
                        ErrorKind::NotFound,
                        "the registry has no such repository, tag or digest (404)",
                    ),
                    ErrorKind::Denied => Error::new(
                        ErrorKind::Denied,
                        format!("{e}; the registry may also have no such public repository"),
                    ),
                    _ => e,
                })?
            }
        };
        if let Some(digest) = &digest {
            digest.check(&text)?;
        }
        let digest = digest.unwrap_or_else(|| BlobDigest::of(&text));
        let room = self.memory.room().saturating_sub(text.len() as u64);
        let manifest = parse_manifest(&text, room)?;
        if !is_kept {
            self.keep_listing(&url, text, reference.to_owned());
        }
        Ok((manifest, digest))
    }
}

/// A blob or a member of it, and the URL that the cache of headers knows it by.
fn blob_resource(registry: &Registry, blob: &Blob, member: Option<TarMember>) -> (Resource, Url) {
    let url = registry.path.blob_url(&blob.digest);
    let mut name = url.clone();
    if let Some(TarMember { start, len }) = member {
        name.set_query(Some(&format!("start={start}&length={len}")));
    }
    let login = Arc::clone(&registry.login);
    (Resource::blob(url, login, blob.clone(), member), name)
}
