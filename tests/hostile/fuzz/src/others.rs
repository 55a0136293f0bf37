//! Answers and files of others: answers of the hub and indexes in its cache, answers of buckets, lists of digests beside a model,
//! and entries of the cache of headers.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use anamnesis::check::check_path;
use anamnesis::{OpenOptions, Usage};
use anamnesis_remote::fuzzing::{
    BUCKET_OPERATIONS, archive_files, bucket_operation, files_of_index, header_entry, hub_listing,
    modelscope_list, registry_manifest, stated_digests,
};
use bytes::Bytes;

use super::counting_allocator::counted;
use super::{LIMITS, UNCHARGED, charged};

/// Memory of a list of the hub that may be kept.
const ROOM: u64 = 64 << 10;
/// Memory of an answer of a bucket per byte: `object_store` makes an object of each element before it is looked at.
const BUCKET_PER_BYTE: u64 = 64;

/// Makes a call that may allocate this many bytes.
fn within<T>(most: u64, call: impl FnOnce() -> T) -> T {
    let (mut call, mut made) = (Some(call), None);
    let counts = counted(&mut || made = call.take().map(|call| call()));
    assert!(counts.peak <= most, "{} bytes of {most}", counts.peak);
    made.expect("counted calls once")
}

/// A list of the hub or, behind a first byte that is odd, an index in its cache; behind one with its third bit, a manifest of a
/// registry and an archive.
pub fn hub(bytes: &[u8]) {
    let Some((&options, text)) = bytes.split_first() else {
        return;
    };
    // texts of the parser, each as long as the input
    let most = UNCHARGED + 4 * text.len() as u64;
    if options & 4 != 0 {
        let _ = within(4 * most + 2 * ROOM, || registry_manifest(text, ROOM));
        let _ = within(8 * most + 2 * ROOM, || archive_files(text, ROOM));
        let _ = within(most + 2 * ROOM, || modelscope_list(text, ROOM));
        return;
    }
    if options & 1 != 0 {
        let _ = within(most, || files_of_index(text));
        return;
    }
    let folder = ["", "text_encoder"][usize::from(options >> 1 & 1)];
    let _ = within(most + 2 * ROOM, || stated_digests(text, folder, ROOM));
    if let Ok((commit, names)) = within(most + 2 * ROOM, || hub_listing(text, folder, ROOM)) {
        assert!(!commit.is_empty() && commit.len() <= 64);
        // they become names of files and parts of URLs
        assert!(
            names
                .iter()
                .all(|name| !name.is_empty() && !name.contains('/'))
        );
    }
}

/// An answer of a bucket: a byte that selects the operation and the service, one for the status, lines of a header, an empty
/// line, and the body.
pub fn bucket(bytes: &[u8]) {
    const STATUSES: [u16; 8] = [200, 204, 206, 400, 403, 404, 412, 500];
    let Some((&[operation, status], rest)) = bytes.split_first_chunk() else {
        return;
    };
    let scheme = ["s3", "gs", "az"][usize::from(operation / 6) % 3];
    let operation = BUCKET_OPERATIONS[usize::from(operation) % BUCKET_OPERATIONS.len()];
    let end = rest.windows(2).position(|pair| pair == b"\n\n");
    let (head, body) = end.map_or((&[][..], rest), |end| (&rest[..end], &rest[end + 2..]));
    let lines = head.split(|byte| *byte == b'\n').take(32);
    let headers: Vec<(&[u8], &[u8])> = lines
        .filter_map(|line| {
            let colon = line.iter().position(|byte| *byte == b':')?;
            Some((&line[..colon], line[colon + 1..].trim_ascii()))
        })
        .collect();
    let body = Bytes::copy_from_slice(body);
    let most = UNCHARGED + BUCKET_PER_BYTE * bytes.len() as u64;
    let status = STATUSES[usize::from(status) % STATUSES.len()];
    let _ = within(most, || {
        bucket_operation(scheme, operation, status, &headers, &body)
    });
}

/// The body of an entry of the cache of headers.
pub fn headers(bytes: &[u8]) {
    within(UNCHARGED + 4 * bytes.len() as u64, || {
        header_entry("https://example.org/model.safetensors", bytes)
    });
}

/// Names of lists, and whether each is one of a single file.
const LISTS: [&str; 8] = [
    "SHA256SUMS",
    "SHA512SUMS",
    "sha256sum.txt",
    "SHA256SUMS.asc",
    "checksums.txt",
    "model.safetensors.sha256",
    "model.safetensors.sha512",
    "MD5SUMS",
];

/// A list of digests beside a model, whose name the first byte selects: it is compared, or is a finding.
pub fn digests(bytes: &[u8]) {
    static DIRECTORY: LazyLock<PathBuf> = LazyLock::new(|| {
        let name = format!("anamnesis-fuzz-lists-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&directory).expect("a temporary directory");
        let model =
            include_bytes!("../../../../fixtures/safetensors/scalar_empty_meta.safetensors");
        std::fs::write(directory.join("model.safetensors"), model).expect("a temporary file");
        directory
    });
    let Some((&name, list)) = bytes.split_first() else {
        return;
    };
    let path = DIRECTORY.join(LISTS[usize::from(name) % LISTS.len()]);
    std::fs::write(&path, list).expect("a temporary file");
    let checked = checked(&DIRECTORY, list.len());
    std::fs::remove_file(&path).expect("a temporary file");
    let Some(report) = checked else { return };
    let [evidence] = &report.evidence[..] else {
        panic!("{} lists", report.evidence.len())
    };
    let is_signature = evidence.kind == anamnesis::check::EvidenceKind::Signature;
    let is_found = report
        .findings
        .iter()
        .any(|found| found.rule == "hash-list");
    assert!(
        evidence.compared > 0 || is_found || is_signature,
        "a list was passed over: {report:?}"
    );
}

fn checked(directory: &Path, nbytes: usize) -> Option<anamnesis::check::CheckReport> {
    let usage = Usage::new();
    let options = OpenOptions::new().limits(LIMITS).usage(&usage);
    charged(&usage, nbytes + 4096, || {
        check_path(directory, &options).threads(1).run().ok()
    })
}
