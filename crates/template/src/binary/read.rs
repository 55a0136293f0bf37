//! Reads the binary form from untrusted bytes.
//!
//! Every count is compared with the remaining bytes or charged on the budget before memory is
//! allocated. Every error has the offset of the item that is wrong.

use std::collections::{BTreeMap, HashSet};

use super::token::{GroupPosition, Token};
use super::varint::{TemplateCursor, unzigzag};
use super::{HAS_KEY, HAS_MTIME, MAGIC, VERSION};
use crate::error::{Error, ErrorKind, Result, quote};
use crate::limits::TemplateBudget;
use crate::{
    Access, AccessGroup, ContentKey, File, ServiceId, StridedFileRange, Template, TemplateLimits,
};

/// The tokens read so far, to which repeats refer.
#[derive(Default)]
struct History {
    tokens: Vec<Token>,
    /// The tokens of the whole template, as indices into `tokens`.
    sequence: Vec<u32>,
}

impl Template {
    /// Reads the binary form.
    ///
    /// # Errors
    /// [`Malformed`](ErrorKind::Malformed) for bytes that are truncated, damaged, not a template,
    /// or followed by others; [`Unsupported`](ErrorKind::Unsupported) for a newer version;
    /// [`Limit`](ErrorKind::Limit).
    pub fn from_bytes(bytes: &[u8], limits: &TemplateLimits) -> Result<Self> {
        let mut budget = TemplateBudget::new(limits);
        budget.bytes(bytes.len() as u64)?;
        let wrong = |reason: &str| Error::malformed(reason).at(0);
        let Some(rest) = bytes.strip_prefix(&MAGIC) else {
            return Err(wrong(
                "not an I/O template: the first bytes are not \\x89IOT and a line end",
            ));
        };
        match rest.first() {
            Some(&VERSION) => {}
            Some(0) | None => return Err(Error::malformed("the version is missing").at(8)),
            Some(newer) => {
                let reason = format!(
                    "version {newer} of the template format; this version reads up to {VERSION}"
                );
                return Err(Error::new(ErrorKind::Unsupported(reason)).at(8));
            }
        }
        let (body, sum) = bytes.split_last_chunk::<4>().expect("the magic is longer");
        // before the content is parsed: damage is reported as damage, and not as whatever the first wrong number happens
        // to break
        let (stored, made) = (u32::from_le_bytes(*sum), crc32fast::hash(body));
        if stored != made {
            let reason = format!(
                "the stored checksum is {stored:08x}, that of the bytes {made:08x}: the file is truncated or damaged"
            );
            return Err(Error::malformed(reason).at(body.len() as u64));
        }
        let mut cursor = TemplateCursor::new(body);
        cursor.read(9, "the magic and the version")?;
        let read = read(&mut cursor, &mut budget);
        let template = read.map_err(|e| e.at(cursor.pos()))?; // a limit's error has no offset of its own
        // every template has one encoding: bytes behind it would be a second one
        if cursor.remaining() > 0 {
            let reason = format!("{} bytes follow the last group", cursor.remaining());
            return Err(Error::malformed(reason).at(cursor.pos()));
        }
        Ok(template)
    }
}

fn read(cursor: &mut TemplateCursor<'_>, budget: &mut TemplateBudget) -> Result<Template> {
    let service = if flag(cursor, "the service's presence")? {
        Some(ServiceId(cursor.array("the service id")?))
    } else {
        None
    };
    let mut parameters = BTreeMap::new();
    for _ in 0..cursor.count(2, "the number of parameters")? {
        let start = cursor.pos();
        budget.memory(64, "the parameters")?;
        let key = text(cursor, budget, "a parameter's key")?;
        let value = text(cursor, budget, "a parameter's value")?;
        // sorted and unique, so that equal templates have equal bytes
        if parameters
            .last_key_value()
            .is_some_and(|(last, _)| *last >= key)
        {
            return Err(
                Error::malformed(format!("parameter {} is out of order", quote(&key))).at(start),
            );
        }
        parameters.insert(key, value);
    }
    let files = files(cursor, budget)?;
    let mut groups: Vec<AccessGroup> = Vec::new();
    let mut history = History::default();
    let mut next = 0u64;
    for _ in 0..cursor.count(4, "the number of groups")? {
        budget.groups(1)?;
        let start = cursor.pos();
        let rank = cursor
            .number("a group's rank")?
            .checked_add(next)
            .and_then(|rank| u32::try_from(rank).ok());
        let rank =
            rank.ok_or_else(|| Error::malformed("a group's rank has more than 32 bits").at(start))?;
        next = u64::from(rank) + 1;
        let name = text(cursor, budget, "a group's name")?;
        let mut accesses = history.accesses(cursor, budget, &files)?;
        times(cursor, &mut accesses)?;
        groups.push(AccessGroup {
            rank,
            name,
            accesses,
        });
    }
    Ok(Template {
        service,
        parameters,
        files,
        groups,
    })
}

fn files(cursor: &mut TemplateCursor<'_>, budget: &mut TemplateBudget) -> Result<Vec<File>> {
    let count = cursor.count(4, "the number of files")?;
    budget.files(count)?;
    let mut files: Vec<File> = Vec::new();
    for _ in 0..count {
        let start = cursor.pos();
        let flags = cursor.byte("a file's flags")?;
        // not ignored: a bit of a later version has bytes behind it, which would be read as the path
        if flags & !(HAS_MTIME | HAS_KEY) != 0 {
            return Err(Error::malformed(format!(
                "a file's flags are {flags}, more than the known bits 1 and 2"
            ))
            .at(start));
        }
        let last = files.last().map_or(&[][..], |file| file.path.as_bytes());
        let shared = cursor.number("the length of the prefix shared with the previous path")?;
        let Some(shared) = usize::try_from(shared).ok().and_then(|n| last.get(..n)) else {
            let reason = format!(
                "a path shares {shared} bytes with the previous one, which has {}",
                last.len()
            );
            return Err(Error::malformed(reason).at(start));
        };
        let rest = cursor.number("the length of a path")?;
        let rest = cursor.read(rest, "a path")?;
        budget.memory((shared.len() + rest.len()) as u64, "a path")?;
        let path = String::from_utf8([shared, rest].concat())
            .map_err(|_| Error::malformed("a path is not UTF-8").at(start))?;
        let nbytes = cursor.number("the length of a file")?;
        let mut file = File::new(path, nbytes).map_err(|e| e.or_malformed().at(start))?;
        if flags & HAS_MTIME != 0 {
            file.mtime = Some(unzigzag(cursor.number("the time of a file")?));
        }
        if flags & HAS_KEY != 0 {
            file.key = Some(ContentKey(cursor.array("the key of a file")?));
        }
        files.push(file);
    }
    // a path that is listed twice would let two accesses of one file look like two files
    let mut paths = HashSet::with_capacity(files.len());
    if let Some(twice) = files.iter().find(|file| !paths.insert(&*file.path)) {
        return Err(
            Error::malformed(format!("{} is listed twice", quote(&twice.path))).at(cursor.pos()),
        );
    }
    Ok(files)
}

impl History {
    fn accesses(
        &mut self,
        cursor: &mut TemplateCursor<'_>,
        budget: &mut TemplateBudget,
        files: &[File],
    ) -> Result<Vec<Access>> {
        // A growing list occupies up to twice its length.
        const BYTES_PER_ACCESS: usize = 2 * (size_of::<Access>() + size_of::<u32>());
        let (mut accesses, mut position) = (Vec::new(), GroupPosition::default());
        let mut left = cursor.number("the number of a group's accesses")?;
        while left > 0 {
            let start = cursor.pos();
            let head = cursor.number("an access")?;
            let from = self.sequence.len();
            if head & 1 == 0 {
                budget.accesses(1, BYTES_PER_ACCESS + 2 * size_of::<Token>())?;
                self.sequence.push(
                    u32::try_from(self.tokens.len())
                        .map_err(|_| Error::malformed("more than 2³² distinct accesses"))?,
                );
                self.tokens.push(literal(cursor, head)?);
                left -= 1;
            } else {
                // as in LZ77: a repeat may be longer than its distance and then contains itself
                let (count, distance) = (head >> 1, cursor.number("the distance of a repeat")?);
                if count == 0 || count > left || distance == 0 || distance > from as u64 {
                    let reason = format!(
                        "a repeat of {count} accesses ({left} are left in the group) at distance {distance} ({from} accesses precede it)"
                    );
                    return Err(Error::malformed(reason).at(start));
                }
                budget.accesses(count, BYTES_PER_ACCESS)?;
                let distance = usize::try_from(distance).expect("at most what was read");
                // one at a time, since later tokens of the repeat may be earlier ones of the same repeat
                (0..count).for_each(|_| {
                    self.sequence
                        .push(self.sequence[self.sequence.len() - distance])
                });
                left -= count;
            }
            for &token in &self.sequence[from..] {
                let token = &self.tokens[usize::try_from(token).expect("an index")];
                // tokens are relative, so a repeated one is a different access at each place and is checked again
                let range = position.access(token);
                let StridedFileRange { file, bytes } = range.ok_or_else(|| {
                    Error::malformed("an access reaches beyond 64 bits").at(start)
                })?;
                budget.runs(bytes.count)?;
                Template::check(files, &StridedFileRange { file, bytes })
                    .map_err(|e| e.or_malformed().at(start))?;
                accesses.push(Access {
                    file,
                    bytes,
                    at: None,
                });
            }
        }
        // templates are kept for as long as a service runs
        accesses.shrink_to_fit();
        Ok(accesses)
    }
}

fn literal(cursor: &mut TemplateCursor<'_>, head: u64) -> Result<Token> {
    let start = cursor.pos();
    // bits 1 and 2, with bit 0 clear: further bits are of no version so far
    if head > 6 {
        return Err(Error::malformed(format!("an access of unknown type {head}")).at(start));
    }
    let file = if head & 2 != 0 {
        unzigzag(cursor.number("the file of an access")?)
    } else {
        0
    };
    let gap = unzigzag(cursor.number("the start of an access")?);
    let len = cursor.number("the length of an access")?;
    let (mut count, mut between) = (1, 0);
    if head & 4 != 0 {
        count = u64::from(cursor.small("the number of runs")?) + 2;
        between = cursor.number("the bytes between runs")?.saturating_add(1);
    }
    let token = i32::try_from(file).ok().zip(u32::try_from(count).ok());
    match token {
        Some((file, count)) if len > 0 => Ok(Token {
            file,
            gap,
            len,
            count,
            between,
        }),
        _ => Err(Error::malformed(format!(
            "an access of {count} runs of {len} bytes at file distance {file} is out of range"
        ))
        .at(start)),
    }
}

fn times(cursor: &mut TemplateCursor<'_>, accesses: &mut [Access]) -> Result<()> {
    if !flag(cursor, "whether a group has times")? {
        return Ok(());
    }
    let mut last = 0i64;
    for access in accesses {
        let start = cursor.pos();
        let Some(difference) = cursor.number("the time of an access")?.checked_sub(1) else {
            continue;
        };
        let at = last
            .checked_add(unzigzag(difference))
            // below 2^62, so that the difference of two times and its encoding fit into 64 bits
            .filter(|at| (0..1 << 62).contains(at));
        last =
            at.ok_or_else(|| Error::malformed("the time of an access is out of range").at(start))?;
        access.at = Some(last.cast_unsigned());
    }
    Ok(())
}

fn flag(cursor: &mut TemplateCursor<'_>, what: &str) -> Result<bool> {
    let start = cursor.pos();
    match cursor.byte(what)? {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(Error::malformed(format!("{what} is {other}, not 0 or 1")).at(start)),
    }
}

fn text(
    cursor: &mut TemplateCursor<'_>,
    budget: &mut TemplateBudget,
    what: &str,
) -> Result<Box<str>> {
    let n = cursor.number(what)?;
    let start = cursor.pos();
    let bytes = cursor.read(n, what)?;
    budget.memory(n, what)?;
    let text = std::str::from_utf8(bytes)
        .map_err(|_| Error::malformed(format!("{what} is not UTF-8")).at(start))?;
    Ok(text.into())
}
