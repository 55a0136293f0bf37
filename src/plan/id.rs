//! The id of a plan: a digest of what decides the bytes of its outputs.

use std::fmt::{self, Debug, Write};
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest, Sha256};

use crate::base::error::{Error, Result};
use crate::read::catalog::{Catalog, TensorInfo};
use crate::read::format::safetensors;

use super::{Job, JobWork};

/// The key of the id in the `__metadata__` of each safetensors file in a directory that is written.
pub const PLAN_ID_KEY: &str = safetensors::PLAN_ID_KEY;

/// A digest (SHA-256) of what decides the bytes of a plan's outputs: their names, shapes and dtypes, the schemes with all of
/// their parameters, what the headers of the source say about the stored tensors, the lengths of its files, its metadata, and
/// the version of this library.
///
/// Neither paths nor the bytes of tensors are in it: a file of the same length whose header is the same counts as the
/// same source. Checksums of archives are in it, as they are in the headers.
///
/// ```
/// use anamnesis::{Checkpoint, Dtype, remember};
///
/// let checkpoint = Checkpoint::open("fixtures/gguf/types/q4_k.gguf")?;
/// let id = |dtype| -> anamnesis::Result<_> {
///     let remember = remember(&checkpoint).dtype(dtype);
///     Ok(remember.plan()?.id(checkpoint.catalog()))
/// };
/// assert_eq!(id(Dtype::F16)?, id(Dtype::F16)?);
/// assert_ne!(id(Dtype::F16)?, id(Dtype::F32)?);
/// assert_eq!(id(Dtype::F16)?.to_string().len(), 64);
/// # Ok::<(), anamnesis::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PlanId([u8; 32]);

impl PlanId {
    /// The id of these jobs.
    pub(crate) fn of(jobs: &[Job], catalog: &Catalog) -> Self {
        let mut digest = DigestWriter(Sha256::new());
        digest.item(&env!("CARGO_PKG_VERSION"));
        digest.item(&catalog.format);
        for file in &catalog.files {
            digest.item(&file.nbytes);
        }
        // the first file of the outputs repeats it
        digest.item(&catalog.metadata);
        for job in jobs {
            digest.item(&job.output);
            digest.item(&job.scheme);
            match &job.work {
                // the rows of a tile decide nothing: elements do not depend on how they are divided into tiles
                JobWork::Tiles { decoder, .. } => digest.item(decoder),
                JobWork::Stream { from, slice } => digest.item(&(from, slice)),
            }
            for part in &job.parts {
                let stored: &TensorInfo = &catalog.tensors[part.tensor];
                let member = stored.member.and_then(|m| catalog.members.get(m as usize));
                digest.item(&(part.role, stored, member));
            }
        }
        Self(digest.0.finalize().into())
    }
}

/// Hashes the `Debug` form of values, which has all fields of them. Between compilers it may differ: files are made again
/// then.
struct DigestWriter(Sha256);

impl DigestWriter {
    fn item(&mut self, item: &dyn Debug) {
        // strings are quoted and escaped in this form, so that no value contains a separator
        writeln!(self, "{item:?}").expect("writing to a digest does not fail");
    }
}

impl Write for DigestWriter {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.update(text);
        Ok(())
    }
}

impl fmt::Display for PlanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl Debug for PlanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PlanId({self})")
    }
}

impl FromStr for PlanId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let invalid = || Error::invalid_argument("the id of a plan has 64 hexadecimal digits");
        let (digits, rest) = text.as_bytes().as_chunks::<2>();
        let mut id = [0; 32];
        if digits.len() != id.len() || !rest.is_empty() {
            return Err(invalid());
        }
        for (byte, digits) in id.iter_mut().zip(digits) {
            let digit = |digit: u8| char::from(digit).to_digit(16);
            let value = digit(digits[0]).zip(digit(digits[1]));
            let value = value.map(|(high, low)| high << 4 | low);
            *byte = value
                .and_then(|value| u8::try_from(value).ok())
                .ok_or_else(invalid)?;
        }
        Ok(Self(id))
    }
}

impl Serialize for PlanId {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PlanId {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::PlanId;

    #[test]
    fn an_id_is_read_as_it_is_written() {
        let id = PlanId(std::array::from_fn(|i| u8::try_from(i * 8).unwrap()));
        let text = id.to_string();
        assert_eq!(text.parse::<PlanId>().unwrap(), id);
        let json = serde_json::to_string(&id).unwrap();
        assert_eq!(serde_json::from_str::<PlanId>(&json).unwrap(), id);
        for other in ["", &text[1..], &format!("{text}0"), &text.replace('f', "g")] {
            assert!(other.parse::<PlanId>().is_err(), "{other}");
        }
    }
}
