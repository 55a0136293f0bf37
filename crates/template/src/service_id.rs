//! Identifies an inference service by its model and its run-time parameters.

use std::collections::BTreeSet;

use sha2::{Digest, Sha256};

use crate::File;
use crate::content_key::{hexadecimal, truncated};

/// The id of an inference service: 32 hexadecimal digits. See [`service_id`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServiceId(pub [u8; 16]);

hexadecimal!(ServiceId);

/// Returns the id of a service: equal for the same model served with the same parameters, on every
/// machine and in every version of this crate.
///
/// The model is identified by the paths, lengths and content keys of its files. Modification times and
/// the order of files and parameters have no influence, and duplicates count once. The parameters are
/// those that decide which worker reads which bytes: `("tp", "4")`, `("loader", "safetensors")`.
///
/// SHA-256, truncated to 16 bytes, of: `"anamnesis service id 1\0"`; the number of files; for each, ascending by path,
/// the path, the length in bytes, and 0, or 1 and the 16 bytes of the key; the number of parameters; for each,
/// ascending, key and value. Numbers are 8 bytes, little endian; a string is its number of bytes, then its UTF-8.
///
/// ```
/// use anamnesis_template::{File, service_id};
///
/// let files = [File::new("model.safetensors", 988_097_824).unwrap()];
/// let id = service_id(&files, [("tp", "4"), ("loader", "vllm")]);
/// assert_eq!(id, service_id(&files, [("loader", "vllm"), ("tp", "4")]));
/// assert_ne!(id, service_id(&files, [("tp", "2"), ("loader", "vllm")]));
/// ```
pub fn service_id<'f, 'p>(
    files: impl IntoIterator<Item = &'f File>,
    parameters: impl IntoIterator<Item = (&'p str, &'p str)>,
) -> ServiceId {
    let files: BTreeSet<_> = files
        .into_iter()
        .map(|file| (&*file.path, file.nbytes, file.key))
        .collect();
    let parameters: BTreeSet<_> = parameters.into_iter().collect();
    let mut hash = Sha256::new();
    // no other hash of this project begins like this, and a later version of the rule will not either
    hash.update(b"anamnesis service id 1\0");
    hash.update((files.len() as u64).to_le_bytes());
    for (path, nbytes, key) in files {
        text(&mut hash, path);
        hash.update(nbytes.to_le_bytes());
        hash.update([u8::from(key.is_some())]);
        hash.update(key.as_ref().map_or(&[][..], |key| &key.0));
    }
    hash.update((parameters.len() as u64).to_le_bytes());
    for (key, value) in parameters {
        text(&mut hash, key);
        text(&mut hash, value);
    }
    ServiceId(truncated(hash.finalize().as_slice()))
}

fn text(hash: &mut Sha256, text: &str) {
    // the length first, so that no two lists of texts give the same bytes
    hash.update((text.len() as u64).to_le_bytes());
    hash.update(text);
}
