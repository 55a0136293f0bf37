//! Templates that are cut, or that have a flipped bit, also under a checksum that is right: the policy refuses them with a reason, or
//! follows them like any other, and returns ranges of the model's files only.

use std::path::Path;
use std::sync::Arc;

use super::simulation::{MIB, create_model, create_template, whole_files};
use anamnesis_maio::Maio;
use anamnesis_ppc::{EventKind, FileAccess, Namespace, Policy, PolicyContext, PrefetchRequest};

const LENS: [u64; 2] = [3 * MIB, 2 * MIB + 1000];
/// Bytes of the checksum at the end of a template.
const CHECKSUM: usize = 4;

/// CRC-32 (IEEE 802.3), of which a template has one at its end.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _: u32| (crc >> 1) ^ if crc & 1 == 1 { 0xedb8_8320 } else { 0 };
    !bytes.iter().fold(u32::MAX, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), step)
    })
}

/// Replaces the checksum by the checksum of the bytes before it.
fn with_checksum(bytes: &[u8]) -> Vec<u8> {
    let content = &bytes[..bytes.len().saturating_sub(CHECKSUM)];
    [content, &crc32(content).to_le_bytes()].concat()
}

fn check_ranges(namespace: &Namespace, requests: Vec<PrefetchRequest>, what: &str) {
    for request in requests {
        for range in request.ranges.iter() {
            let entry = namespace.get(&range.path).expect(what);
            // up to the end of the last page
            let end = entry.len.next_multiple_of(4096);
            let is_inside =
                range.len > 0 && range.start < entry.len && range.len <= end - range.start;
            assert!(is_inside, "{what}: {range:?}");
        }
    }
}

/// Registers a policy with this template, and reads both files. The reason if the template is refused.
fn follow(dir: &Path, template: &Path, bytes: &[u8], what: &str) -> Result<(), String> {
    std::fs::write(template, bytes).unwrap();
    let namespace = Arc::new(Namespace::scan(dir).unwrap());
    let mut policy = Maio::new().root(dir.join("nowhere"));
    policy.init(&PolicyContext {
        namespace: Arc::clone(&namespace),
        config: template.display().to_string(),
        memory: 2 * MIB,
    })?;
    check_ranges(&namespace, policy.start(), what);
    for (time, file) in (1..).zip(["0.safetensors", "1.safetensors"]) {
        for start in [0, MIB, 2 * MIB] {
            let access = FileAccess {
                kind: EventKind::Miss,
                path: Path::new(file).into(),
                start,
                len: 4096,
                pid: 1,
                tid: 1,
                time,
            };
            check_ranges(
                &namespace,
                policy.prefetch(&access).into_iter().collect(),
                what,
            );
            let evicted = policy.evict(Some(&access));
            let evicted = evicted.map(|ranges| PrefetchRequest { ranges, queue: 0 });
            check_ranges(&namespace, evicted.into_iter().collect(), what);
        }
    }
    policy.exit();
    Ok(())
}

#[test]
fn damaged_templates_are_refused_or_followed_within_the_files() {
    let (dir, scratch) = (create_model(&LENS), tempfile::tempdir().unwrap());
    let template = scratch.path().join("t.iot");
    let workers = [
        whole_files(&LENS, |_| true),
        vec![(0, MIB, MIB), (1, 0, 4096), (0, 0, 4096), (1, MIB, 77)],
    ];
    let bytes = create_template(dir.path(), &LENS, &workers).to_bytes();
    assert_eq!(with_checksum(&bytes), bytes, "the checksum of the format");
    let follow = |bytes: &[u8], what: &str| follow(dir.path(), &template, bytes, what);
    follow(&bytes, "whole").unwrap();
    for end in 0..bytes.len() {
        let what = format!("cut at {end}");
        follow(&bytes[..end], &what).expect_err(&what);
        let _ = follow(&with_checksum(&bytes[..end]), &what);
    }
    let (mut refused, mut followed) = (0, 0);
    for bit in 0..bytes.len() * 8 {
        let what = format!("bit {bit}");
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        follow(&flipped, &what).expect_err(&what);
        match follow(&with_checksum(&flipped), &what) {
            Ok(()) => followed += 1,
            Err(reason) => {
                assert!(!reason.is_empty(), "{what}");
                refused += 1;
            }
        }
    }
    println!(
        "{} bytes: of {} flipped bits under a right checksum, {refused} are refused and {followed} followed",
        bytes.len(),
        bytes.len() * 8
    );
    assert!(refused > followed);
}
