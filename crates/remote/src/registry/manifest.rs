//! Manifests and indexes of a registry, within bounds on what is kept.

use std::fmt;

use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor,
};

use super::{Blob, BlobDigest};
use crate::error::{Error, ErrorKind, Result};
use crate::json_fields::{Nested, ObjectFields, ReadObject, ShortText, read_whole};

/// The media types of manifests and indexes that are requested.
pub(crate) const ACCEPTED: &str = "application/vnd.oci.image.manifest.v1+json, application/vnd.oci.image.index.v1+json, \
     application/vnd.docker.distribution.manifest.v2+json, application/vnd.docker.distribution.manifest.list.v2+json";

/// Entries of a list: registries refuse manifests of more than 4 MiB, in which fewer fit.
const MOST_ENTRIES: usize = 100_000;

/// The answer to a request for a manifest.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RegistryManifest {
    /// The layers of one model.
    Layers(Vec<Layer>),
    /// Another manifest: of an index with one model.
    Other(BlobDigest),
}

/// A layer of a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layer {
    pub(crate) media_type: String,
    pub(crate) blob: Blob,
    /// The path that annotations state.
    pub(crate) path: Option<String>,
}

/// Reads a manifest or an index, of which `room` bytes may be kept.
pub(crate) fn parse_manifest(text: &[u8], room: u64) -> Result<RegistryManifest> {
    let wrong = |what: &str| Error::refused(format!("the registry's manifest {what}"));
    let mut found = ManifestFields {
        room,
        fault: None,
        layers: None,
        manifests: None,
    };
    let parsed = read_whole(text, &mut found);
    if let Some(fault) = found.fault {
        return Err(wrong(fault));
    }
    parsed.map_err(|_| wrong("is not JSON, or no manifest"))?;
    match (found.layers, found.manifests) {
        (Some(layers), None) => {
            let layers = layers.into_iter().map(ManifestEntry::into_layer);
            let layers: Option<Vec<Layer>> = layers.collect();
            let what = "has a layer without a digest of SHA-256 or SHA-512, or without a size";
            Ok(RegistryManifest::Layers(layers.ok_or_else(|| wrong(what))?))
        }
        (None, Some(manifests)) => only_model(manifests),
        _ => Err(wrong("has neither `layers` nor `manifests`")),
    }
}

/// The only model of an index. Builders add statements about it under a platform that is unknown.
fn only_model(manifests: Vec<ManifestEntry>) -> Result<RegistryManifest> {
    let mut models = manifests.into_iter().filter(|entry| !entry.is_unknown);
    let (Some(first), others) = (models.next(), models.next().is_some()) else {
        return Err(Error::refused("the registry's index names no manifest"));
    };
    let digest = BlobDigest::parse(&first.digest)
        .ok_or_else(|| Error::refused("the registry's index names a manifest without a digest"))?;
    if others {
        return Err(Error::new(
            ErrorKind::Unsupported,
            format!(
                "the tag is an index of several manifests: name one by its digest, as in oci://registry/repository@{digest}"
            ),
        ));
    }
    Ok(RegistryManifest::Other(digest))
}

struct ManifestFields {
    room: u64,
    fault: Option<&'static str>,
    layers: Option<Vec<ManifestEntry>>,
    manifests: Option<Vec<ManifestEntry>>,
}

impl ObjectFields for ManifestFields {
    fn field<'de, M: MapAccess<'de>>(&mut self, key: &str, map: &mut M) -> Result<(), M::Error> {
        match key {
            "layers" => self.layers = Some(map.next_value_seed(ManifestEntries(self))?),
            "manifests" => self.manifests = Some(map.next_value_seed(ManifestEntries(self))?),
            _ => drop(map.next_value::<IgnoredAny>()?),
        }
        Ok(())
    }
}

/// An array of descriptors.
struct ManifestEntries<'a>(&'a mut ManifestFields);

impl<'de> DeserializeSeed<'de> for ManifestEntries<'_> {
    type Value = Vec<ManifestEntry>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for ManifestEntries<'_> {
    type Value = Vec<ManifestEntry>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of descriptors")
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut seq: S) -> Result<Self::Value, S::Error> {
        let fail = |fault, fields: &mut ManifestFields| {
            fields.fault = Some(fault);
            serde::de::Error::custom(fault)
        };
        let mut found = Vec::new();
        while let Some(entry) = seq.next_element::<ManifestEntry>()? {
            if found.len() == MOST_ENTRIES {
                return Err(fail("has more than 100 000 entries", self.0));
            }
            // twice, as a growing list has unused places
            let cost = 2 * size_of::<ManifestEntry>()
                + entry.media_type.len()
                + entry.digest.len()
                + entry.path.len()
                + entry.title.len();
            match self.0.room.checked_sub(cost as u64) {
                Some(left) => self.0.room = left,
                None => return Err(fail("is longer than the memory for it", self.0)),
            }
            found.push(entry);
        }
        Ok(found)
    }
}

/// The fields of a descriptor: empty texts for the ones that it does not have.
#[derive(Default)]
struct ManifestEntry {
    media_type: String,
    digest: String,
    size: Option<u64>,
    path: String,
    title: String,
    is_unknown: bool,
}

impl ManifestEntry {
    fn into_layer(self) -> Option<Layer> {
        let path = if self.path.is_empty() {
            self.title
        } else {
            self.path
        };
        Some(Layer {
            media_type: self.media_type,
            blob: Blob {
                digest: BlobDigest::parse(&self.digest)?,
                len: self.size?,
            },
            path: Some(path).filter(|path| !path.is_empty()),
        })
    }
}

impl ObjectFields for ManifestEntry {
    fn field<'de, M: MapAccess<'de>>(&mut self, key: &str, map: &mut M) -> Result<(), M::Error> {
        match key {
            "mediaType" => self.media_type = map.next_value::<ShortText>()?.0,
            "digest" => self.digest = map.next_value::<ShortText>()?.0,
            "size" => self.size = map.next_value()?,
            "annotations" => map.next_value_seed(Nested(&mut Annotations(self)))?,
            "platform" => map.next_value_seed(Nested(&mut Platform(self)))?,
            _ => drop(map.next_value::<IgnoredAny>()?),
        }
        Ok(())
    }
}

impl<'de> Deserialize<'de> for ManifestEntry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut descriptor = Self::default();
        ReadObject(&mut descriptor).deserialize(deserializer)?;
        Ok(descriptor)
    }
}

/// The annotations of a layer that name its file: of ModelPack
/// (<https://github.com/modelpack/model-spec/blob/main/docs/annotations.md>), also under its former name, and of the image
/// specification.
struct Annotations<'a>(&'a mut ManifestEntry);

impl ObjectFields for Annotations<'_> {
    fn field<'de, M: MapAccess<'de>>(&mut self, key: &str, map: &mut M) -> Result<(), M::Error> {
        match key {
            "org.cncf.model.filepath" | "org.cnai.model.filepath" => {
                self.0.path = map.next_value::<ShortText>()?.0;
            }
            "org.opencontainers.image.title" => self.0.title = map.next_value::<ShortText>()?.0,
            _ => drop(map.next_value::<IgnoredAny>()?),
        }
        Ok(())
    }
}

/// The platform of an entry of an index.
struct Platform<'a>(&'a mut ManifestEntry);

impl ObjectFields for Platform<'_> {
    fn field<'de, M: MapAccess<'de>>(&mut self, key: &str, map: &mut M) -> Result<(), M::Error> {
        let ShortText(value) = map.next_value()?;
        self.0.is_unknown |= key == "os" && value == "unknown";
        Ok(())
    }
}
