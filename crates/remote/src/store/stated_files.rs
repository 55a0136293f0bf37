//! The files of a model that are stated: by a registry's manifest and the headers of archives among its layers, or by ModelScope's list.

use std::sync::{Arc, PoisonError};

use url::Url;

use super::listing::LONGEST;
use super::stated_model::{ModelSource, StatedModel};
use super::{Store, StorePlace};
use crate::error::{Error, ErrorKind, Result};
use crate::guess::FirstRequests;
use crate::hub::blobs::StatedDigests;
use crate::modelscope::{ModelScopePath, list_error, parse_list};
use crate::names::is_plain;
use crate::registry::{
    Blob, BlobDigest, LayerFiles, RegistryManifest, RegistryPath, TarMember, files_of, members,
    parse_manifest,
};
use crate::resource::Resource;
use crate::stated::{StatedFile, StatedFiles};

/// Indexes that lead to a manifest: an index of indexes is one of nothing that packs models.
const INDEXES: usize = 2;

/// A file, the URL that the cache of headers knows it by, and whether that names one content for ever.
type KnownPlace = (Resource, Url, bool);

impl Store {
    /// The names of the files in one directory of a model.
    pub(super) fn list_stated(&self, model: &StatedModel, directory: &str) -> Result<Vec<String>> {
        let folder = model.file_of(directory)?;
        let files = self.files_of_model(model)?;
        if !files.is_complete {
            let what = "ModelScope's list of files ends before the last one: open a file or an index by its URL";
            return Err(Error::new(ErrorKind::Unsupported, what));
        }
        let names = files.below(folder).map(|(name, _)| name);
        let names = names.filter(|name| is_plain(name));
        Ok(names.map(str::to_owned).collect())
    }

    /// A file of a model.
    pub(super) fn stated_file(&self, model: &StatedModel, path: &str) -> Result<KnownPlace> {
        let name = model.file_of(path)?;
        let files = self.files_of_model(model)?;
        match (&model.source, files.find(name)) {
            (ModelSource::Registry(place), Some(file)) => match &file.blob {
                Some(blob) => Ok(blob_of_registry(place, model, blob, file.member)),
                None => Err(no_such_file()),
            },
            (ModelSource::ModelScope(place), Some(file)) => {
                listed_file(place, model, name, file.blob.as_ref())
            }
            // it may be behind the end of the list
            (ModelSource::ModelScope(place), None) if !files.is_complete => {
                listed_file(place, model, name, None)
            }
            _ => Err(no_such_file()),
        }
    }

    /// The files of a model, whose manifest or list is requested once.
    fn files_of_model(&self, model: &StatedModel) -> Result<Arc<StatedFiles>> {
        let mut known = model.files.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(files) = &*known {
            return Ok(Arc::clone(files));
        }
        let files = Arc::new(match &model.source {
            ModelSource::Registry(path) => self.request_manifest(model, path)?,
            ModelSource::ModelScope(path) => self.request_list(model, path)?,
        });
        *known = Some(Arc::clone(&files));
        Ok(files)
    }

    /// The digest that a manifest or a list states of a file; `None` of files elsewhere, and of members of an archive, whose digest is the
    /// archive's.
    #[must_use]
    pub fn stated_digest(&self, path: &str) -> Option<String> {
        let StorePlace::Stated(model) = &self.place else {
            return None;
        };
        let name = model.file_of(path).ok()?;
        let files = self.files_of_model(model).ok()?;
        let digest = digest_of(files.find(name)?)?;
        Some(digest.to_owned())
    }

    /// The digests that are stated of the files of a model in the folder that was opened, under the manifest's own or the revision.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) for a place of another kind; [`Unsupported`](ErrorKind::Unsupported) for a list that does not have
    /// all files; the errors of the requests.
    pub fn stated_digests(&self) -> Result<StatedDigests> {
        let StorePlace::Stated(model) = &self.place else {
            let what = "only the hub, ModelScope and registries state the digests of their files";
            return Err(Error::new(ErrorKind::Invalid, what));
        };
        let found = self.files_of_model(model)?;
        if !found.is_complete {
            let what = "ModelScope's list of files ends before the last one";
            return Err(Error::new(ErrorKind::Unsupported, what));
        }
        let files = found.below(model.opened());
        let files =
            files.filter_map(|(name, file)| Some((name.to_owned(), digest_of(file)?.to_owned())));
        Ok(StatedDigests {
            commit: found.version.clone(),
            files: files.collect(),
        })
    }

    /// The list of ModelScope.
    fn request_list(&self, model: &StatedModel, path: &ModelScopePath) -> Result<StatedFiles> {
        let url = path.list_url()?;
        let resource = Resource::on_web(url.clone(), model.login.headers());
        let (text, is_kept) = self
            .kept_or_requested(&url, false, resource)
            .map_err(list_error)?;
        let room = self.memory.room().saturating_sub(text.len() as u64);
        let (files, is_complete) = parse_list(&text, room)?;
        let version = path.revision().to_owned();
        if !is_kept {
            self.keep_listing(&url, text, version.clone());
        }
        StatedFiles::new(version, files, is_complete)
    }

    /// A manifest or a list that was kept, or is requested, and whether it was kept.
    fn kept_or_requested(
        &self,
        url: &Url,
        is_pinned: bool,
        resource: Resource,
    ) -> Result<(Vec<u8>, bool)> {
        if let Some(text) = self.kept_listing(url, is_pinned) {
            return Ok((text, true));
        }
        let client = Arc::clone(&self.client);
        let most = LONGEST.min(self.memory.room() / 2);
        let text = self.wait(async move { client.document(&resource, most).await })?;
        Ok((text, false))
    }

    /// The manifest of a registry, and the headers of its archives.
    fn request_manifest(&self, model: &StatedModel, path: &RegistryPath) -> Result<StatedFiles> {
        let mut reference = path.reference.clone();
        let mut found = None;
        for _ in 0..INDEXES {
            match self.manifest(model, path, &reference)? {
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
                LayerFiles::File(name, blob) => files.push(StatedFile {
                    name,
                    blob: Some(blob),
                    member: None,
                }),
                LayerFiles::Archive(blob) => {
                    let (resource, url, _) = blob_of_registry(path, model, &blob, None);
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
            files.extend(found.into_iter().map(|(name, member)| StatedFile {
                name,
                blob: Some(blob.clone()),
                member: Some(member),
            }));
        }
        StatedFiles::new(digest.to_string(), files, true)
    }

    /// A manifest and its digest, with which it is compared if it is named by one.
    fn manifest(
        &self,
        model: &StatedModel,
        path: &RegistryPath,
        reference: &str,
    ) -> Result<(RegistryManifest, BlobDigest)> {
        let url = path.manifest_url(reference);
        let digest = BlobDigest::parse(reference);
        let resource = Resource::manifest(url.clone(), Arc::clone(&model.login));
        let found = self.kept_or_requested(&url, digest.is_some(), resource);
        let (text, is_kept) = found.map_err(|e| match e.kind() {
            ErrorKind::NotFound => Error::new(
                ErrorKind::NotFound,
                "the registry has no such repository, tag or digest (404)",
            ),
            ErrorKind::Denied => Error::new(
                ErrorKind::Denied,
                format!("{e}; the registry may also have no such public repository"),
            ),
            _ => e,
        })?;
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

fn no_such_file() -> Error {
    let what = "the model has no such file";
    Error::new(ErrorKind::NotFound, what)
}

/// The digest of a file that is a blob.
fn digest_of(file: &StatedFile) -> Option<&str> {
    let blob = file.blob.as_ref().filter(|_| file.member.is_none())?;
    Some(blob.digest.hex())
}

/// A blob or a member of it.
fn blob_of_registry(
    path: &RegistryPath,
    model: &StatedModel,
    blob: &Blob,
    member: Option<TarMember>,
) -> KnownPlace {
    let url = path.blob_url(&blob.digest);
    let mut name = url.clone();
    if let Some(TarMember { start, len }) = member {
        name.set_query(Some(&format!("start={start}&length={len}")));
    }
    let login = Arc::clone(&model.login);
    (Resource::blob(url, login, blob.clone(), member), name, true)
}

/// A file of ModelScope, which is compared with its length and digest where the list has them.
fn listed_file(
    path: &ModelScopePath,
    model: &StatedModel,
    name: &str,
    blob: Option<&Blob>,
) -> Result<KnownPlace> {
    let url = path.file_url(name)?;
    let resource = match blob {
        Some(blob) => {
            let login = Arc::clone(&model.login);
            Resource::blob(url.clone(), login, blob.clone(), None)
        }
        None => Resource::on_web(url.clone(), model.login.headers()),
    };
    // a header is kept under its digest, which another list may have replaced
    Ok((resource, url, blob.is_some()))
}
