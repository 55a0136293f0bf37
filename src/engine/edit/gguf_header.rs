//! The header of a GGUF file, of which everything that is not edited keeps its bytes: a tokenizer is copied, and not decoded.

use crate::base::error::{Error, Remedy, Result};
use crate::base::limits::Budget;
use crate::base::quote::quote;
use crate::engine::sink::container::{HeaderValue, MAX_GGUF_NAME};
use crate::engine::sink::in_place::{EditTarget, NewHeader};
use crate::engine::sink::{GgufType, GgufValue};
use crate::read::catalog::Endian;
use crate::read::format::gguf::{
    ALIGNMENT, ALIGNMENT_DEFAULT, HeaderLayout, PADDING, header_layout, in_order_of,
};
use crate::read::rename::RenamedTensors;
use crate::read::source::FnSource;

const WHAT: &str = "the header";
/// Magic number and version, which stay.
const VERSIONED: usize = 8;
/// Both counts behind them.
const COUNTS: usize = 16;
/// The number of the type of texts.
const TEXT: u32 = 8;

/// The entries of a header.
pub(super) struct GgufHeader {
    start: [u8; VERSIONED],
    endian: Endian,
    keys: Vec<HeaderKey>,
    /// Names of tensors, and the bytes behind them.
    tensors: Vec<(Box<str>, Vec<u8>)>,
    alignment: u64,
}

/// A key, and the bytes from the type of its value on.
struct HeaderKey {
    key: String,
    /// The type, for values that are given as text.
    alike: Option<GgufValue>,
    typed: Vec<u8>,
}

impl GgufHeader {
    /// Reads the header of a file that was parsed before, and all bytes in front of the data.
    pub(super) fn read(target: &EditTarget, budget: &Budget) -> Result<(Vec<u8>, Self)> {
        let source = FnSource::new(target.len(), |at, buf: &mut [u8]| {
            let read = target.read(at, buf);
            read.map_err(|e| std::io::Error::other(e.to_string()))
        });
        let layout = header_layout(&source, budget)?;
        // a file without tensors has no data, and ends where it likes
        let data = match layout.tensors.is_empty() {
            true => target.len(),
            false => layout
                .end
                .next_multiple_of(layout.alignment)
                .min(target.len()),
        };
        // the bytes, a copy for each entry, and the new bytes, twice while they are parsed
        budget.memory(data.saturating_mul(4), WHAT)?;
        let old = usize::try_from(data)
            .ok()
            .and_then(crate::base::limits::zeroed);
        let mut old = old.ok_or_else(|| Error::unsupported("the header does not fit in memory"))?;
        target.read(0, &mut old)?;
        let header = Self::of(&old, layout)?;
        Ok((old, header))
    }

    fn of(bytes: &[u8], layout: HeaderLayout) -> Result<Self> {
        let part = |range: std::ops::Range<u64>| {
            let range = usize::try_from(range.start).ok()?..usize::try_from(range.end).ok()?;
            bytes.get(range).map(<[u8]>::to_vec)
        };
        let changed = || Error::malformed("the file has changed while it was read");
        let mut keys = Vec::new();
        for place in layout.keys {
            if &*place.key == PADDING {
                continue;
            }
            let kind = GgufType::from_number(place.kind);
            let element = place.element.and_then(GgufType::from_number);
            keys.push(HeaderKey {
                key: place.key.into(),
                alike: kind.map(|kind| GgufValue::stored(kind, element, Vec::new())),
                typed: part(place.typed).ok_or_else(changed)?,
            });
        }
        let mut tensors = Vec::new();
        for place in layout.tensors {
            tensors.push((place.name, part(place.rest).ok_or_else(changed)?));
        }
        let start = bytes.first_chunk().ok_or_else(changed)?;
        Ok(Self {
            start: *start,
            endian: layout.endian,
            alignment: match tensors.is_empty() {
                true => 1,
                false => layout.alignment,
            },
            keys,
            tensors,
        })
    }

    pub(super) fn has_key(&self, key: &str) -> bool {
        self.keys.iter().any(|known| known.key == key)
    }

    pub(super) fn rename_key(&mut self, from: &str, to: &str) {
        let renamed = self.keys.iter_mut().filter(|known| known.key == from);
        renamed.for_each(|known| to.clone_into(&mut known.key));
    }

    pub(super) fn unset(&mut self, key: &str) {
        self.keys.retain(|known| known.key != key);
    }

    pub(super) fn set(&mut self, key: &str, value: &HeaderValue) -> Result<()> {
        let known = self.keys.iter_mut().find(|known| known.key == key);
        let value = match (value, known.as_ref().and_then(|known| known.alike.as_ref())) {
            (new, Some(alike)) => new.in_place_of(alike, key)?,
            (HeaderValue::Gguf(value), None) => value.clone(),
            (HeaderValue::Text(text), None) => GgufValue::text(text),
        };
        let kind = value.kind().number();
        let mut typed = u32_in(self.endian, kind).to_vec();
        typed.extend(in_order_of(self.endian, kind, value.bytes())?);
        match known {
            Some(known) => {
                known.alike = Some(value);
                known.typed = typed;
            }
            None => self.keys.push(HeaderKey {
                key: key.to_owned(),
                alike: Some(value),
                typed,
            }),
        }
        Ok(())
    }

    pub(super) fn rename_tensors(&mut self, names: &RenamedTensors<'_>) -> Result<()> {
        for (name, _) in &mut self.tensors {
            let Some(new) = names.tensor(name) else {
                continue;
            };
            if new.is_empty() || new.len() >= MAX_GGUF_NAME {
                let what = format!(
                    "the tensor {} cannot be called {}: names in a GGUF have 1 to {} bytes",
                    quote(name),
                    quote(&new),
                    MAX_GGUF_NAME - 1
                );
                return Err(Error::invalid_argument(what));
            }
            *name = new.into();
        }
        Ok(())
    }

    /// Refuses another alignment, by which the tensors would be at other places.
    pub(super) fn check(&self) -> Result<()> {
        let stated = self.keys.iter().find(|known| known.key == ALIGNMENT);
        let alignment = match stated {
            None => Some(u64::from(ALIGNMENT_DEFAULT)),
            Some(key) => {
                let number = key
                    .typed
                    .get(4..)
                    .and_then(|bytes| bytes.first_chunk::<4>());
                let is_u32 = key.alike.as_ref().map(GgufValue::kind) == Some(GgufType::U32);
                number
                    .filter(|_| is_u32)
                    .map(|bytes| u64::from(read_u32(self.endian, *bytes)))
            }
        };
        if self.tensors.is_empty() || alignment == Some(self.alignment) {
            return Ok(());
        }
        let what = format!(
            "the tensors have an alignment of {}, and {ALIGNMENT} would be another: they would have to be moved",
            self.alignment
        );
        Err(Error::invalid_argument(what).with_remedy(Remedy::ConvertAligned))
    }

    fn push_text(&self, text: &str, out: &mut Vec<u8>) {
        out.extend(u64_in(self.endian, text.len() as u64));
        out.extend(text.as_bytes());
    }

    /// Bytes of the entries.
    fn entries(&self) -> usize {
        let keys = self
            .keys
            .iter()
            .map(|key| 8 + key.key.len() + key.typed.len());
        let tensors = self
            .tensors
            .iter()
            .map(|(name, rest)| 8 + name.len() + rest.len());
        VERSIONED + COUNTS + keys.chain(tensors).sum::<usize>()
    }

    /// The header, with a filler of this many spaces.
    fn bytes(&self, filler: Option<usize>) -> Vec<u8> {
        let mut out = self.start.to_vec();
        out.extend(u64_in(self.endian, self.tensors.len() as u64));
        let keys = self.keys.len() + usize::from(filler.is_some());
        out.extend(u64_in(self.endian, keys as u64));
        for key in &self.keys {
            self.push_text(&key.key, &mut out);
            out.extend(&key.typed);
        }
        if let Some(spaces) = filler {
            self.push_text(PADDING, &mut out);
            out.extend(u32_in(self.endian, TEXT));
            self.push_text(&" ".repeat(spaces), &mut out);
        }
        for (name, rest) in &self.tensors {
            self.push_text(name, &mut out);
            out.extend(rest);
        }
        out
    }
}

fn u32_in(endian: Endian, number: u32) -> [u8; 4] {
    match endian {
        Endian::Little => number.to_le_bytes(),
        Endian::Big => number.to_be_bytes(),
    }
}

fn read_u32(endian: Endian, bytes: [u8; 4]) -> u32 {
    match endian {
        Endian::Little => u32::from_le_bytes(bytes),
        Endian::Big => u32::from_be_bytes(bytes),
    }
}

fn u64_in(endian: Endian, number: u64) -> [u8; 8] {
    match endian {
        Endian::Little => number.to_le_bytes(),
        Endian::Big => number.to_be_bytes(),
    }
}

impl NewHeader for GgufHeader {
    fn least(&self) -> u64 {
        (self.entries() as u64).next_multiple_of(self.alignment)
    }

    fn of_length(&self, nbytes: u64) -> Option<Vec<u8>> {
        /// The filler without its spaces.
        const EMPTY: usize = 8 + PADDING.len() + 4 + 8;
        let wanted = usize::try_from(nbytes).ok()?;
        let least = usize::try_from(self.least()).ok()?;
        let filler = match wanted.checked_sub(least)? {
            0 => None,
            _ => Some(wanted.checked_sub(self.entries() + EMPTY)?),
        };
        let mut header = self.bytes(filler);
        header.resize(wanted, 0);
        Some(header)
    }

    fn alignment(&self) -> u64 {
        self.alignment
    }
}
