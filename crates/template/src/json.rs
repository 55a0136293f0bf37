//! The JSON form, which people and other programs can read; equivalent to the binary form.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, Result, quote};
use crate::limits::TemplateBudget;
use crate::{
    Access, AccessGroup, File, StridedFileRange, StridedRange, Template, TemplateBuilder,
    TemplateLimits,
};

/// Bytes of memory that one byte of input may become, with reserve: parameters of 9 bytes occupy 20
/// times that, as rows of the document and in the template (`tests/json_memory.rs`).
const MEMORY_PER_BYTE: u64 = 24;

#[derive(Serialize, Deserialize)]
// a misspelt name would otherwise pass as a field that is absent
#[serde(deny_unknown_fields)]
struct Document {
    /// The version.
    iot: u8,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    service: Option<String>,
    // sorted by key, so that equal templates have equal texts
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    parameters: BTreeMap<String, String>,
    files: Vec<FileRow>,
    groups: Vec<GroupRow>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileRow {
    path: String,
    nbytes: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mtime: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct GroupRow {
    rank: u32,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    name: String,
    accesses: Vec<AccessRow>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct AccessRow {
    file: u32,
    start: u64,
    len: u64,
    #[serde(default = "one", skip_serializing_if = "is_one")]
    count: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    stride: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    at: Option<u64>,
}

fn one() -> u64 {
    1
}

fn is_one(n: &u64) -> bool {
    *n == 1
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

impl Template {
    /// Returns the template as one line of JSON: see `docs/template-format.md`.
    pub fn to_json(&self) -> String {
        let file = |file: &File| FileRow {
            path: file.path.to_string(),
            nbytes: file.nbytes,
            mtime: file.mtime,
            key: file.key.map(|key| key.to_string()),
        };
        let access = |access: &Access| {
            let StridedRange {
                start,
                len,
                count,
                stride,
            } = access.bytes;
            AccessRow {
                file: access.file,
                start,
                len,
                count,
                stride,
                at: access.at,
            }
        };
        let group = |group: &AccessGroup| GroupRow {
            rank: group.rank,
            name: group.name.to_string(),
            accesses: group.accesses.iter().map(access).collect(),
        };
        let document = Document {
            iot: 1,
            service: self.service.map(|id| id.to_string()),
            parameters: self
                .parameters()
                .map(|(key, value)| (key.into(), value.into()))
                .collect(),
            files: self.files.iter().map(file).collect(),
            groups: self.groups.iter().map(group).collect(),
        };
        serde_json::to_string(&document)
            .expect("maps have string keys, and writing to memory does not fail")
    }

    /// Reads the JSON form. Nothing is merged: the template has the accesses of the document.
    ///
    /// # Errors
    /// The errors of [`from_bytes`](Self::from_bytes). 24 times the length of the document is charged as memory before it is
    /// parsed.
    pub fn from_json(json: &[u8], limits: &TemplateLimits) -> Result<Self> {
        let mut budget = TemplateBudget::new(limits);
        budget.bytes(json.len() as u64)?;
        // before parsing: serde allocates while it parses, and has no budget
        budget.memory(
            (json.len() as u64).saturating_mul(MEMORY_PER_BYTE),
            "the document",
        )?;
        let document: Document =
            serde_json::from_slice(json).map_err(|e| Error::malformed(e.to_string()))?;
        if document.iot != 1 {
            let reason = format!(
                "version {} of the template's JSON form; this version reads 1",
                document.iot
            );
            return Err(Error::new(ErrorKind::Unsupported(reason)));
        }
        let mut counts = TemplateBudget::new(&TemplateLimits {
            memory: u64::MAX,
            ..*limits
        }); // the memory is charged already
        counts.files(document.files.len() as u64)?;
        counts.groups(document.groups.len() as u64)?;
        let mut builder = TemplateBuilder::new();
        if let Some(id) = document.service {
            builder.service(id.parse().map_err(Error::or_malformed)?);
        }
        for (key, value) in &document.parameters {
            builder.parameter(key, value);
        }
        let files = document.files.len();
        for row in document.files {
            let mut file = File::new(row.path, row.nbytes).map_err(Error::or_malformed)?;
            file.mtime = row.mtime;
            file.key = row
                .key
                .map(|key| key.parse())
                .transpose()
                .map_err(Error::or_malformed)?;
            let path = quote(&file.path);
            builder
                .file(file)
                .map_err(|_| Error::malformed(format!("{path} is listed twice")))?;
        }
        let mut template = builder.finish();
        // the builder merges two rows that are equal
        if template.files.len() < files {
            return Err(Error::malformed("a file is listed twice"));
        }
        for row in document.groups {
            template
                .groups
                .push(group(row, &template.files, &mut counts)?);
        }
        // the binary form has this order, and both forms describe the same templates
        if template
            .groups
            .windows(2)
            .any(|pair| pair[0].rank >= pair[1].rank)
        {
            return Err(Error::malformed(
                "the groups are not in ascending order of rank",
            ));
        }
        Ok(template)
    }
}

fn group(row: GroupRow, files: &[File], counts: &mut TemplateBudget) -> Result<AccessGroup> {
    counts.accesses(row.accesses.len() as u64, 0)?;
    // charged with the document
    let mut accesses = Vec::with_capacity(row.accesses.len());
    for (
        i,
        AccessRow {
            file,
            start,
            len,
            count,
            stride,
            at,
        },
    ) in row.accesses.into_iter().enumerate()
    {
        let bytes = StridedRange {
            start,
            len,
            count,
            stride,
        };
        let range = StridedFileRange { file, bytes };
        let name = || format!("access {i} of worker {}", row.rank);
        // two documents of one template would not be equal otherwise, and the binary form has 62 bits for the place
        if !bytes.is_normal() || at.is_some_and(|at| at >> 62 != 0) {
            return Err(Error::malformed(format!(
                "{}: {range} is not in normal form",
                name()
            )));
        }
        counts.runs(count)?;
        Template::check(files, &range).map_err(Error::or_malformed)?;
        accesses.push(Access { file, bytes, at });
    }
    Ok(AccessGroup {
        rank: row.rank,
        name: row.name.into(),
        accesses,
    })
}
