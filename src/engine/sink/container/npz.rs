//! The form of an NPZ archive: a zip whose members are NPY files, stored without compression.
//!
//! Source: `numpy.savez`, and PKWARE's APPNOTE. A member has its checksum in front of it and in the directory at the end, so that both
//! are written when all bytes have been. Sizes and offsets of 4 GiB and more are in extra fields (zip64).

use std::collections::HashSet;

use crc32fast::Hasher;

use crate::base::error::{Error, Remedy, Result};
use crate::plan::TensorSpec;
use crate::read::catalog::quote;

use super::{FileContent, FileForm, Gap, npy};

/// Bytes of a local header without name and extra field.
const LOCAL: usize = 30;
/// The offset of the checksum in a local header.
const CRC_AT: u64 = 14;
/// The value of a field whose number is in the extra field.
const IN_EXTRA: u32 = u32::MAX;
/// Names are UTF-8.
const UTF8: u16 = 1 << 11;
/// The first of January 1980: the same bytes for the same tensors.
const DATE: u16 = (1 << 5) | 1;

/// A member: its name in the archive, its header as an NPY file, and its place.
struct ArrayMember {
    name: String,
    /// Offset of the local header.
    at: u64,
    /// The header of the array.
    head: Vec<u8>,
    /// Bytes of the header and the elements.
    nbytes: u64,
}

impl ArrayMember {
    fn new(output: &TensorSpec, at: u64) -> Result<Self> {
        let name = format!("{}.npy", output.name);
        let wrong = if name.len() > usize::from(u16::MAX) {
            Some("is too long for an archive")
        } else if name.contains('\0') {
            // `zipfile` of Python cuts it there, and so do programs in C
            Some("has a NUL, at which readers of archives cut it")
        } else {
            None
        };
        if let Some(wrong) = wrong {
            let what = format!("the name {} {wrong}", quote(&output.name));
            return Err(Error::unsupported(what).with_remedy(Remedy::LeaveOutOrRename));
        }
        let elements = output.nbytes().expect("counted before");
        let mut member = Self {
            name,
            at,
            head: Vec::new(),
            nbytes: elements,
        };
        let front = at + member.local(0).len() as u64;
        // the archive is mapped by readers of this library: elements are aligned in it, and not in the member
        let phase = usize::try_from(front % npy::ALIGNMENT as u64).expect("a remainder");
        member.head = npy::header(output, phase);
        member.nbytes = elements.saturating_add(member.head.len() as u64);
        Ok(member)
    }

    /// The local header. Its length does not depend on sizes: the extra field is always there, as `numpy.savez` writes it.
    fn local(&self, crc: u32) -> Vec<u8> {
        let mut out = Vec::with_capacity(LOCAL + self.name.len() + 20);
        out.extend(b"PK\x03\x04");
        for field in [45, UTF8, 0, 0, DATE] {
            out.extend(field.to_le_bytes());
        }
        for field in [crc, IN_EXTRA, IN_EXTRA] {
            out.extend(field.to_le_bytes());
        }
        let name = u16::try_from(self.name.len()).expect("checked above");
        out.extend(name.to_le_bytes());
        out.extend(20_u16.to_le_bytes());
        out.extend(self.name.as_bytes());
        for field in [0x0001_u16, 16] {
            out.extend(field.to_le_bytes());
        }
        out.extend(self.nbytes.to_le_bytes());
        out.extend(self.nbytes.to_le_bytes());
        out
    }

    /// The entry of the directory.
    fn entry(&self, crc: u32) -> Vec<u8> {
        let mut out = b"PK\x01\x02".to_vec();
        // made by a Unix of version 4.5, which zip64 needs
        for field in [(3 << 8) | 45, 45, UTF8, 0, 0, DATE] {
            out.extend(field.to_le_bytes());
        }
        for field in [crc, IN_EXTRA, IN_EXTRA] {
            out.extend(field.to_le_bytes());
        }
        let name = u16::try_from(self.name.len()).expect("checked above");
        // name, extra field, comment, disk, internal attributes
        for field in [name, 28, 0, 0, 0] {
            out.extend(u16::to_le_bytes(field));
        }
        // a file that its owner can read and write
        out.extend((0o100_600_u32 << 16).to_le_bytes());
        out.extend(IN_EXTRA.to_le_bytes());
        out.extend(self.name.as_bytes());
        for field in [0x0001_u16, 24] {
            out.extend(field.to_le_bytes());
        }
        for field in [self.nbytes, self.nbytes, self.at] {
            out.extend(field.to_le_bytes());
        }
        out
    }
}

/// Refuses names that `numpy.load` does not tell apart: it finds an array by its name and by the name of its member alike, and `a.npy`
/// would be the member of `a`.
fn check_apart<'o>(outputs: impl Iterator<Item = &'o TensorSpec> + Clone) -> Result<()> {
    let ending = outputs.clone();
    let ending = ending.filter_map(|output| output.name.strip_suffix(".npy"));
    let ending: HashSet<&str> = ending.collect();
    let mut outputs = outputs;
    let Some(output) = outputs.find(|output| ending.contains(&*output.name)) else {
        return Ok(());
    };
    let what = format!(
        "the arrays {} and {} have one name to NumPy",
        quote(&output.name),
        quote(&[&*output.name, ".npy"].concat())
    );
    Err(Error::unsupported(what).with_remedy(Remedy::LeaveOutOrRename))
}

/// The members in order, and the offset behind the last.
fn members<'o>(outputs: impl Iterator<Item = &'o TensorSpec>) -> Result<(Vec<ArrayMember>, u64)> {
    let (mut all, mut at) = (Vec::new(), 0_u64);
    for output in outputs {
        let member = ArrayMember::new(output, at)?;
        let end = at
            .checked_add(member.local(0).len() as u64)
            .and_then(|at| at.checked_add(member.nbytes));
        at = end.ok_or_else(|| Error::unsupported("the archive takes more than 2⁶⁴ bytes"))?;
        all.push(member);
    }
    Ok((all, at))
}

pub(super) fn lay_out(content: &FileContent<'_>) -> Result<FileForm> {
    let outputs = content
        .numbers
        .iter()
        .map(|&number| &content.outputs[number]);
    check_apart(outputs.clone())?;
    let (members, end) = members(outputs)?;
    let mut placed = Vec::with_capacity(members.len());
    let mut gaps = Vec::with_capacity(members.len());
    for (member, &number) in members.iter().zip(&content.numbers) {
        let mut front = member.local(0);
        front.extend(&member.head);
        placed.push((number, member.at + front.len() as u64));
        gaps.push((member.at, front));
    }
    let trailer = directory(&members, &vec![0; members.len()], end);
    let nbytes = end.saturating_add(trailer.len() as u64);
    gaps.push((end, trailer));
    let head = gaps.remove(0).1;
    Ok(FileForm {
        // an archive without members is its directory
        head,
        outputs: placed,
        tensor_bytes: content.tensor_bytes,
        gaps,
        nbytes,
    })
}

/// The checksums in front of the members, and the directory behind them.
pub(super) fn complete(form: &FileForm, outputs: &[TensorSpec], data: &[Hasher]) -> Vec<Gap> {
    let named = form.outputs.iter().map(|&(number, _)| &outputs[number]);
    let (members, end) = members(named).expect("laid out before");
    let crcs: Vec<u32> = members
        .iter()
        .zip(data)
        .map(|(member, data)| {
            let mut crc = Hasher::new();
            crc.update(&member.head);
            crc.combine(data);
            crc.finalize()
        })
        .collect();
    let fields = members.iter().zip(&crcs);
    let mut written: Vec<Gap> = fields
        .map(|(member, crc)| (member.at + CRC_AT, crc.to_le_bytes().to_vec()))
        .collect();
    written.push((end, directory(&members, &crcs, end)));
    written
}

/// The directory, which begins at `at`, and its end records.
fn directory(members: &[ArrayMember], crcs: &[u32], at: u64) -> Vec<u8> {
    let entries = members.iter().zip(crcs);
    let mut out: Vec<u8> = entries
        .flat_map(|(member, &crc)| member.entry(crc))
        .collect();
    let (size, count) = (out.len() as u64, members.len() as u64);
    // the zip64 record, which all readers of large archives know, and where it is. An archive that begins with it is none
    // to `zipfile` of Python
    if !members.is_empty() {
        out.extend(b"PK\x06\x06");
        out.extend(44_u64.to_le_bytes());
        out.extend(((3_u16 << 8) | 45).to_le_bytes());
        out.extend(45_u16.to_le_bytes());
        out.extend([0; 8]);
        for field in [count, count, size, at] {
            out.extend(field.to_le_bytes());
        }
        out.extend(b"PK\x06\x07");
        out.extend(0_u32.to_le_bytes());
        out.extend((at + size).to_le_bytes());
        out.extend(1_u32.to_le_bytes());
    }
    out.extend(b"PK\x05\x06");
    out.extend([0; 4]);
    let short = u16::try_from(count).unwrap_or(u16::MAX);
    out.extend(short.to_le_bytes());
    out.extend(short.to_le_bytes());
    for field in [size, at] {
        out.extend(u32::try_from(field).unwrap_or(IN_EXTRA).to_le_bytes());
    }
    out.extend(0_u16.to_le_bytes());
    out
}
