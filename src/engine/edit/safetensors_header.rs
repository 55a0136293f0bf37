//! The header of a safetensors file, of which everything that is not edited keeps its text.

use std::ops::Range;

use crate::base::error::{Error, Result};
use crate::base::limits::{Budget, text_cost};
use crate::base::quote::quote;
use crate::engine::companions::renamed_metadata;
use crate::engine::sink::container::{HeaderValue, TYPED_KEY};
use crate::engine::sink::in_place::{EditTarget, NewHeader};
use crate::read::format::safetensors::MAX_HEADER;
use crate::read::json::edit::{JsonMembers, NotJson};
use crate::read::rename::RenamedTensors;

const WHAT: &str = "the header";
const METADATA: &str = "__metadata__";
/// Bytes of the length in front of the text.
const LENGTH: usize = 8;

/// The entries of a header.
pub(super) struct SafetensorsHeader {
    text: String,
    /// Keys and their values, in order; `None` without `__metadata__`.
    metadata: Option<Vec<(String, String)>>,
    /// Names of tensors, and the texts that describe them.
    tensors: Vec<(Box<str>, Range<usize>)>,
}

impl SafetensorsHeader {
    /// Reads the header of a file that was parsed before, and all bytes in front of the data.
    pub(super) fn read(target: &EditTarget, budget: &Budget) -> Result<(Vec<u8>, Self)> {
        let mut len = [0; LENGTH];
        target.read(0, &mut len)?;
        let len = u64::from_le_bytes(len);
        // the bytes, the text, the new text, and the new bytes
        budget.memory(len.saturating_mul(4), WHAT)?;
        let whole = usize::try_from(len.saturating_add(LENGTH as u64));
        let whole = whole.ok().and_then(crate::base::limits::zeroed);
        let mut old =
            whole.ok_or_else(|| Error::unsupported("the header does not fit in memory"))?;
        target.read(0, &mut old)?;
        let text = std::str::from_utf8(&old[LENGTH..]);
        let text = text.map_err(|_| Error::malformed("the header is not UTF-8"))?;
        let header = Self::parse(text.to_owned(), budget)?;
        Ok((old, header))
    }

    fn parse(text: String, budget: &Budget) -> Result<Self> {
        let malformed = |NotJson(at): NotJson| {
            Error::malformed("the header is not JSON").at((LENGTH + at) as u64)
        };
        let (mut metadata, mut tensors) = (None, Vec::new());
        for member in JsonMembers::of(&text, 0).ok_or_else(|| malformed(NotJson(0)))? {
            let member = member.map_err(malformed)?;
            budget.memory(text_cost(member.name.len()), WHAT)?;
            if member.name != METADATA {
                let tensor = (member.name.into(), member.value);
                budget.push(&mut tensors, tensor, WHAT)?;
                continue;
            }
            let mut pairs = Vec::new();
            let members = JsonMembers::of(&text, member.value.start);
            for pair in members.ok_or_else(|| malformed(NotJson(member.value.start)))? {
                let pair = pair.map_err(malformed)?;
                let quoted = &text[pair.value.clone()];
                budget.memory(2 * text_cost(quoted.len()), WHAT)?;
                let value = serde_json::from_str::<String>(quoted)
                    .map_err(|_| malformed(NotJson(pair.value.start)))?;
                budget.push(&mut pairs, (pair.name.into_owned(), value), WHAT)?;
            }
            metadata = Some(pairs);
        }
        Ok(Self {
            text,
            metadata,
            tensors,
        })
    }

    fn pairs(&self) -> &[(String, String)] {
        self.metadata.as_deref().unwrap_or_default()
    }

    pub(super) fn has_key(&self, key: &str) -> bool {
        self.pairs().iter().any(|(known, _)| known == key)
    }

    pub(super) fn rename_key(&mut self, from: &str, to: &str) {
        let pairs = self.metadata.iter_mut().flatten();
        for (key, _) in pairs.filter(|(key, _)| key == from) {
            to.clone_into(key);
        }
    }

    pub(super) fn unset(&mut self, key: &str) {
        if self.has_key(key)
            && let Some(pairs) = &mut self.metadata
        {
            pairs.retain(|(known, _)| known != key);
            if pairs.is_empty() {
                self.metadata = None;
            }
        }
    }

    pub(super) fn set(&mut self, key: &str, value: &HeaderValue) -> Result<()> {
        let HeaderValue::Text(text) = value else {
            let what = format!("the key {} {TYPED_KEY}", quote(key));
            return Err(Error::invalid_argument(what));
        };
        let pairs = self.metadata.get_or_insert_default();
        match pairs.iter_mut().find(|(known, _)| known == key) {
            Some((_, old)) => old.clone_from(text),
            None => pairs.push((key.to_owned(), text.clone())),
        }
        Ok(())
    }

    pub(super) fn rename_tensors(
        &mut self,
        names: &RenamedTensors<'_>,
        budget: &Budget,
    ) -> Result<()> {
        for (name, _) in &mut self.tensors {
            if let Some(new) = names.tensor(name) {
                if new.is_empty() || new == METADATA {
                    let what = format!(
                        "the tensor {} cannot be called {}",
                        quote(name),
                        quote(&new)
                    );
                    return Err(Error::invalid_argument(what));
                }
                budget.memory(text_cost(new.len()), WHAT)?;
                *name = new.into();
            }
        }
        for pair in self.metadata.iter_mut().flatten() {
            *pair = renamed_metadata(&pair.0, &pair.1, names, budget)?;
        }
        if let Some(key) =
            crate::read::catalog::repeated(self.pairs().iter().map(|(key, _)| &**key))
        {
            let what = format!("two keys of the metadata would be called {}", quote(key));
            return Err(Error::invalid_argument(what));
        }
        Ok(())
    }

    /// The header as it is written.
    pub(super) fn finished(self) -> HeaderText {
        let mut out = String::with_capacity(self.text.len());
        let quoted = |text: &str| serde_json::to_string(text).expect("a text serialises to JSON");
        let mut begin = '{';
        if let Some(pairs) = &self.metadata {
            out.push(begin);
            begin = ',';
            out.push_str(&quoted(METADATA));
            out.push_str(":{");
            for (number, (key, value)) in pairs.iter().enumerate() {
                if number > 0 {
                    out.push(',');
                }
                out.push_str(&quoted(key));
                out.push(':');
                out.push_str(&quoted(value));
            }
            out.push('}');
        }
        for (name, described) in &self.tensors {
            out.push(begin);
            begin = ',';
            out.push_str(&quoted(name));
            out.push(':');
            out.push_str(&self.text[described.clone()]);
        }
        if begin == '{' {
            out.push('{');
        }
        out.push('}');
        HeaderText(out)
    }
}

/// The text of a header, without spaces at its end.
pub(super) struct HeaderText(String);

impl NewHeader for HeaderText {
    fn least(&self) -> u64 {
        ((LENGTH + self.0.len()) as u64).next_multiple_of(self.alignment())
    }

    fn of_length(&self, nbytes: u64) -> Option<Vec<u8>> {
        let padded = usize::try_from(nbytes.checked_sub(LENGTH as u64)?).ok()?;
        if padded < self.0.len() || padded as u64 > MAX_HEADER {
            return None;
        }
        let mut header = (padded as u64).to_le_bytes().to_vec();
        header.extend(self.0.as_bytes());
        header.resize(LENGTH + padded, b' ');
        Some(header)
    }

    fn alignment(&self) -> u64 {
        8
    }
}
