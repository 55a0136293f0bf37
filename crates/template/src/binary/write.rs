//! Writes the binary form.

use super::repeat::{RepeatFinder, TokenStep};
use super::token::{GroupPosition, Token};
use super::varint::{put, zigzag};
use super::{HAS_KEY, HAS_MTIME, MAGIC, VERSION};
use crate::{AccessGroup, File, Template};

impl Template {
    /// Returns the binary form, as `docs/template-format.md` specifies it. Equal templates have
    /// equal bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.push(VERSION);
        out.push(u8::from(self.service.is_some()));
        out.extend(self.service.iter().flat_map(|id| id.0));
        put(&mut out, self.parameters.len() as u64);
        for (key, value) in &self.parameters {
            text(&mut out, key);
            text(&mut out, value);
        }
        put(&mut out, self.files.len() as u64);
        let mut last = "";
        for file in &self.files {
            self::file(&mut out, file, last);
            last = &file.path;
        }
        self.put_groups(&mut out);
        let sum = crc32fast::hash(&out);
        out.extend(sum.to_le_bytes());
        out
    }

    fn put_groups(&self, out: &mut Vec<u8>) {
        put(out, self.groups.len() as u64);
        // all groups are entered first: workers read alike, so most repeats of a group are in an earlier one
        let mut finder = RepeatFinder::default();
        for group in &self.groups {
            let mut position = GroupPosition::default();
            group
                .accesses
                .iter()
                .for_each(|access| finder.push(position.token(&access.range())));
        }
        let (mut at, mut next) = (0, 0);
        for group in &self.groups {
            // ranks ascend, mostly by one: the difference to the next expected rank is a single zero byte
            put(out, u64::from(group.rank) - next);
            next = u64::from(group.rank) + 1;
            text(out, &group.name);
            put(out, group.accesses.len() as u64);
            let end = at + group.accesses.len();
            while at < end {
                at += match finder.step(at, end) {
                    TokenStep::Literal => {
                        literal(out, finder.token(at));
                        1
                    }
                    TokenStep::Repeat { count, distance } => {
                        put(out, (count as u64) << 1 | 1);
                        put(out, distance as u64);
                        count
                    }
                };
            }
            times(out, group);
        }
    }
}

fn file(out: &mut Vec<u8>, file: &File, last: &str) {
    let mtime = if file.mtime.is_some() { HAS_MTIME } else { 0 };
    let key = if file.key.is_some() { HAS_KEY } else { 0 };
    out.push(mtime | key);
    // the files of a model are named alike: a path is written as its difference to the one before
    let shared = last
        .bytes()
        .zip(file.path.bytes())
        .take_while(|(a, b)| a == b)
        .count();
    let rest = &file.path.as_bytes()[shared..];
    put(out, shared as u64);
    put(out, rest.len() as u64);
    out.extend(rest);
    put(out, file.nbytes);
    if let Some(mtime) = file.mtime {
        put(out, zigzag(mtime));
    }
    out.extend(file.key.iter().flat_map(|key| key.0));
}

fn literal(out: &mut Vec<u8>, token: &Token) {
    let (other_file, several) = (token.file != 0, token.count > 1);
    out.push(u8::from(other_file) << 1 | u8::from(several) << 2);
    if other_file {
        put(out, zigzag(i64::from(token.file)));
    }
    put(out, zigzag(token.gap));
    put(out, token.len);
    if several {
        // several runs are at least two, and at least a byte lies between them: what cannot occur is not encoded
        put(out, u64::from(token.count) - 2);
        put(out, token.between - 1);
    }
}

fn times(out: &mut Vec<u8>, group: &AccessGroup) {
    let has_times = group.accesses.iter().any(|access| access.at.is_some());
    out.push(u8::from(has_times));
    let mut last = 0;
    for access in group.accesses.iter().filter(|_| has_times) {
        // Times are below 2⁶², so neither the difference nor its encoding overflows.
        put(
            out,
            access
                .at
                .map_or(0, |at| 1 + zigzag(at.cast_signed() - last)),
        );
        last = access.at.map_or(last, u64::cast_signed);
    }
}

fn text(out: &mut Vec<u8>, text: &str) {
    put(out, text.len() as u64);
    out.extend(text.as_bytes());
}
