//! The zip reader against the `zip` crate, which writes and reads generated archives; and archives with bytes changed by hand.

use std::io::{self, Read, Write};

use proptest::prelude::*;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

use super::*;
use crate::base::limits::{Budget, Limits};
use crate::base::testing::ThreadTime;
use crate::read::source::{MemorySource, ReaderSource, Source};

/// A member to be written.
#[derive(Clone, Debug)]
struct MemberSpec {
    name: String,
    content: Vec<u8>,
    deflated: bool,
    large: bool,
    alignment: u16,
}

fn member_specs() -> impl Strategy<Value = MemberSpec> {
    let name = prop_oneof![
        "[a-z/]{1,9}\\.npy",
        "[ -~]{0,20}",
        "\\PC{1,8}",
        "[a-z]{300}"
    ];
    let bytes = proptest::collection::vec(any::<u8>(), 0..900);
    let longest = if cfg!(miri) { 2_000usize } else { 30_000 };
    let repetitive = (any::<u8>(), 0..longest).prop_map(|(b, n)| vec![b; n]);
    let alignment = prop_oneof![Just(0u16), Just(64), Just(4096)];
    (
        name,
        prop_oneof![bytes, repetitive],
        any::<bool>(),
        any::<bool>(),
        alignment,
    )
        .prop_map(|(name, content, deflated, large, alignment)| MemberSpec {
            name,
            content,
            deflated,
            large,
            alignment,
        })
}

fn options(spec: &MemberSpec) -> SimpleFileOptions {
    let method = if spec.deflated {
        CompressionMethod::Deflated
    } else {
        CompressionMethod::Stored
    };
    SimpleFileOptions::default()
        .compression_method(method)
        .large_file(spec.large)
        .with_alignment(spec.alignment)
}

fn write<W: Write + io::Seek>(mut zip: ZipWriter<W>, members: &[MemberSpec], comment: &[u8]) -> W {
    for member in members {
        zip.start_file(&*member.name, options(member))
            .expect("a member");
        zip.write_all(&member.content).expect("its content");
    }
    zip.set_raw_comment(comment.into()).expect("a comment");
    zip.finish().expect("an archive")
}

/// An archive of these members, written to a file or, with data descriptors, to a stream.
fn archive(members: &[MemberSpec], comment: &[u8], streamed: bool) -> Vec<u8> {
    if !streamed {
        return write(
            ZipWriter::new(io::Cursor::new(Vec::new())),
            members,
            comment,
        )
        .into_inner();
    }
    let mut zip = ZipWriter::new_stream(Vec::new());
    for member in members {
        zip.start_file(&*member.name, options(member))
            .expect("a member");
        zip.write_all(&member.content).expect("its content");
    }
    zip.set_raw_comment(comment.into()).expect("a comment");
    zip.finish().expect("an archive").into_inner()
}

fn with_cursor<T>(
    source: &dyn Source,
    read: impl FnOnce(&mut Cursor<'_>) -> Result<T>,
) -> Result<T> {
    let budget = Budget::new(Limits::default());
    read(&mut Cursor::new(source, &budget))
}

fn read(bytes: &[u8]) -> Result<Archive> {
    with_cursor(&MemorySource::new(bytes.to_vec()), Archive::read)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 2 } else { 96 }, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn entries_and_contents_agree_with_the_zip_crate(
        mut members in proptest::collection::vec(member_specs(), 0..if cfg!(miri) { 4 } else { 12 }),
        comment in proptest::collection::vec(any::<u8>(), 0..300),
        streamed in any::<bool>(),
    ) {
        let mut seen = HashSet::new();
        members.retain(|m| !m.name.ends_with(['/', '\\']) && seen.insert(m.name.clone()));
        let bytes = archive(&members, &comment, streamed);
        let mut oracle = ZipArchive::new(io::Cursor::new(&bytes)).expect("an archive of the zip crate");
        let sources: [Box<dyn Source>; 2] = [
            Box::new(MemorySource::new(bytes.clone())),
            Box::new(ReaderSource::new(io::Cursor::new(bytes.clone())).expect("a reader")),
        ];
        for source in sources {
            with_cursor(&*source, |cursor| {
                let archive = Archive::read(cursor)?;
                assert_eq!(archive.entries.len(), members.len());
                for (row, member) in members.iter().enumerate() {
                    let entry = &archive.entries[row];
                    let expected = oracle.by_index(row).expect("a member of the zip crate");
                    assert_eq!(*entry.name, *member.name);
                    assert_eq!(entry.crc32, expected.crc32());
                    assert_eq!((entry.packed, entry.inflated), (expected.compressed_size(), expected.size()));
                    assert_eq!(entry.deflated(), member.deflated);
                    assert_eq!(*archive.entries[row].name, *member.name);
                    let member_info = archive.verified_member(cursor, row)?;
                    assert_eq!(Some(member_info.bytes.start), expected.data_start());
                    assert_eq!(archive.content(cursor, row)?, member.content);
                    assert_eq!(archive.member(cursor, row)?.bytes, member_info.bytes);
                }
                Ok(())
            }).expect("a valid archive");
        }
    }

    #[test]
    fn damaged_archives_do_not_panic(
        mut bytes in proptest::collection::vec(member_specs(), 1..4).prop_map(|mut m| {
            m.dedup_by(|a, b| a.name == b.name);
            m.truncate(1);
            archive(&m, b"", false)
        }),
        flips in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<proptest::sample::Index>(),
        cuts in any::<bool>(),
    ) {
        for (at, byte) in flips {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if cuts {
            bytes.truncate(cut.index(bytes.len()));
        }
        let source = MemorySource::new(bytes);
        let _ = with_cursor(&source, |cursor| {
            let archive = Archive::read(cursor)?;
            for row in 0..archive.entries.len() {
                let _ = (archive.member(cursor, row), archive.verified_member(cursor, row), archive.content(cursor, row));
            }
            Ok(())
        });
    }
}

/// Stored members of these names with the same content.
fn archive_of(names: &[&str]) -> Vec<u8> {
    let member = |name: &&str| MemberSpec {
        name: (*name).into(),
        content: b"some content".to_vec(),
        deflated: false,
        large: false,
        alignment: 0,
    };
    archive(&names.iter().map(member).collect::<Vec<_>>(), b"", false)
}

/// The offset of the last occurrence of a pattern.
fn last_position(bytes: &[u8], pattern: &[u8]) -> usize {
    bytes
        .windows(pattern.len())
        .rposition(|w| w == pattern)
        .expect("the bytes occur in the archive")
}

#[test]
fn comment_may_contain_end_records_and_must_end_the_file() {
    let member = MemberSpec {
        name: "a".into(),
        content: vec![1; 9],
        deflated: false,
        large: false,
        alignment: 0,
    };
    let count = if cfg!(miri) { 100 } else { 16_000 };
    let fake_end_records: Vec<u8> = b"PK\x05\x06".repeat(count);
    let bytes = archive(&[member], &fake_end_records, false);
    let start = ThreadTime::start();
    assert_eq!(read(&bytes).expect("reads").entries.len(), 1);
    let longer = [&bytes[..], b"\0"].concat();
    assert!(
        read(&longer)
            .unwrap_err()
            .to_string()
            .contains("bytes follow")
    );
    assert!(read(&fake_end_records).is_err());
    assert!(start.elapsed().as_secs_f64() < 1.0);
}

#[test]
fn overlapping_or_repeated_members_are_refused() {
    let bytes = archive_of(&["aa", "bb"]);
    read(&bytes).expect("as written");
    // the second entry gets the offset of the first member
    let mut overlapping = bytes.clone();
    let second = last_position(&bytes, b"PK\x01\x02");
    overlapping[second + 42..second + 46].fill(0);
    assert!(
        read(&overlapping)
            .unwrap_err()
            .to_string()
            .contains("runs into")
    );
    // both entries get the name `aa`
    let mut duplicates = bytes.clone();
    duplicates[second + 46..second + 48].copy_from_slice(b"aa");
    assert!(
        read(&duplicates)
            .unwrap_err()
            .to_string()
            .contains("two members")
    );
    // the member `bb` of the directory gets the name `bx` in its local header
    let mut renamed = bytes;
    renamed[second + 47] = b'x';
    let refused = with_cursor(&MemorySource::new(renamed), |cursor| {
        Archive::read(cursor)?.verified_member(cursor, 1)
    })
    .unwrap_err();
    assert!(refused.to_string().contains("another name"));
}

#[test]
fn errors_of_changed_bytes_state_the_reason() {
    let bytes = archive_of(&["aa"]);
    let entry = last_position(&bytes, b"PK\x01\x02");
    let end = last_position(&bytes, b"PK\x05\x06");
    let error_with_byte = |at: usize, value: u8| {
        let mut bytes = bytes.clone();
        bytes[at] = value;
        with_cursor(&MemorySource::new(bytes), |cursor| {
            Archive::read(cursor)?.verified_member(cursor, 0)
        })
        .unwrap_err()
        .to_string()
    };
    for (at, value, what) in [
        (entry + 10, 12, "bzip2"),
        (entry + 10, 14, "lzma"),
        (entry + 10, 99, "method 99"),
        (entry + 8, 1, "encrypted"),
        (6, 1, "encrypted"),
        (
            8,
            8,
            "zip method 0 in the directory and 8 in its local header",
        ),
        (entry + 34, 1, "another disk"),
        (end + 4, 1, "several disks"),
        (end + 10, 2, "counts 2 members, but the directory has 1"),
        (entry + 24, 200, "but its sizes differ"),
        (0, b'Q', "no zip local header"),
        (entry, b'Q', "no entry"),
        (26, 1, "another name"),
        (28, 200, "runs into what follows"),
    ] {
        assert!(
            error_with_byte(at, value).contains(what),
            "{what}: {}",
            error_with_byte(at, value)
        );
    }
}

#[test]
fn names_are_utf8_or_code_page_437() {
    const UTF8: u16 = 1 << 11;
    assert_eq!(entry::decode_name(b"a\x81\xe1", 0).as_deref(), Some("aüß"));
    assert_eq!(
        entry::decode_name("aü".as_bytes(), UTF8).as_deref(),
        Some("aü")
    );
    assert_eq!(entry::decode_name(b"a\x81", UTF8), None);
    for byte in 0x80..=0xffu8 {
        assert_eq!(
            entry::decode_name(&[byte], 0).map(|name| name.chars().count()),
            Some(1)
        );
    }
}

/// An archive of one stored member, whose directory uses zip64 for all fields and whose zip64 end record has this
/// extension.
fn zip64(extension: &[u8]) -> Vec<u8> {
    let mut bytes = archive_of(&["aa"]);
    let entry = last_position(&bytes, b"PK\x01\x02");
    let end = last_position(&bytes, b"PK\x05\x06");
    let (len, offset) = (12u64, 0u64);
    bytes.truncate(end);
    bytes[entry + 20..entry + 28].fill(0xff);
    bytes[entry + 42..entry + 46].fill(0xff);
    bytes[entry + 30] = 28;
    bytes.extend([1, 0, 24, 0]);
    for value in [len, len, offset] {
        bytes.extend(value.to_le_bytes());
    }
    let size = bytes.len() - entry;
    let at = bytes.len() as u64;
    bytes.extend(b"PK\x06\x06");
    bytes.extend((44 + extension.len() as u64).to_le_bytes());
    bytes.extend([45, 0, 45, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    for value in [1, 1, size as u64, entry as u64] {
        bytes.extend(value.to_le_bytes());
    }
    bytes.extend(extension);
    bytes.extend(b"PK\x06\x07\0\0\0\0");
    bytes.extend(at.to_le_bytes());
    bytes.extend([1, 0, 0, 0]);
    bytes.extend(b"PK\x05\x06\0\0\0\0");
    bytes.extend([0xff; 12]);
    bytes.extend([0, 0]);
    bytes
}

#[test]
fn zip64_fields_replace_all_32_bit_fields() {
    for bytes in [zip64(b""), zip64(b"an extension")] {
        let content = with_cursor(&MemorySource::new(bytes), |cursor| {
            Archive::read(cursor)?
                .content(cursor, 0)
                .map(Cow::into_owned)
        });
        assert_eq!(&*content.expect("reads"), b"some content");
    }
    // the end records disagree
    let mut bytes = zip64(b"");
    let end = last_position(&bytes, b"PK\x05\x06");
    bytes[end + 10..end + 12].copy_from_slice(&[9, 0]);
    assert!(read(&bytes).unwrap_err().to_string().contains("disagree"));
    // a second zip64 field
    let mut bytes = zip64(b"");
    let field = last_position(&bytes, &[1, 0, 24, 0]);
    bytes[field + 2] = 8;
    bytes[field + 12..field + 16].copy_from_slice(&[1, 0, 12, 0]);
    assert!(
        read(&bytes)
            .unwrap_err()
            .to_string()
            .contains("more than one zip64 field")
    );
}

#[test]
fn bytes_in_front_of_an_archive_are_refused_with_their_number() {
    let member = MemberSpec {
        name: "a".into(),
        content: b"some content".to_vec(),
        deflated: false,
        large: false,
        alignment: 0,
    };
    let members = [member];
    let whole = archive(&members, b"", false);
    let refused = |bytes: Vec<u8>| read(&bytes).unwrap_err().to_string();
    for archive in [whole.clone(), zip64(b""), archive(&[], b"", false)] {
        let text = refused([b"a program".to_vec(), archive].concat());
        assert!(text.contains("9 bytes precede the zip archive"), "{text}");
    }
    // offsets that count from the first byte of the file, as `zip -A` writes them
    let mut adjusted = [b"a program".to_vec(), whole.clone()].concat();
    let entry = last_position(&adjusted, b"PK\x01\x02");
    adjusted[entry + 42] += 9;
    let end = last_position(&adjusted, b"PK\x05\x06");
    adjusted[end + 16] += 9;
    assert!(refused(adjusted).contains("9 bytes precede the zip archive"));
    let text = refused([whole.clone(), whole.clone()].concat());
    let number = format!("several zip archives in one file: {} bytes", whole.len());
    assert!(
        text.contains(&number) && text.contains("`.distcp`"),
        "{text}"
    );
    let text = refused([whole, b"behind".to_vec()].concat());
    assert!(text.contains("bytes follow the zip end record"), "{text}");
}

#[test]
#[cfg_attr(miri, ignore = "a hundred thousand members take an interpreter hours")]
fn hundred_thousand_members_are_read_in_two_seconds() {
    let mut zip = ZipWriter::new(io::Cursor::new(Vec::new()));
    for i in 0..100_000 {
        zip.start_file(
            i.to_string(),
            SimpleFileOptions::default().compression_method(CompressionMethod::Stored),
        )
        .expect("a member");
    }
    let bytes = zip.finish().expect("an archive").into_inner();
    let start = ThreadTime::start();
    assert_eq!(read(&bytes).expect("reads").entries.len(), 100_000);
    assert!(start.elapsed().as_secs_f64() < 2.0, "{:?}", start.elapsed());
    // the entries are charged to the budget
    let budget = Budget::new(Limits {
        memory: 1 << 20,
        ..Limits::default()
    });
    let source = MemorySource::new(bytes);
    let refused = Archive::read(&mut Cursor::new(&source, &budget)).unwrap_err();
    assert_eq!(refused.kind().name(), "limit");
}

#[test]
fn content_is_verified_and_claimed_size_is_not_allocated() {
    let member = MemberSpec {
        name: "a".into(),
        content: vec![7; 5000],
        deflated: true,
        large: false,
        alignment: 0,
    };
    let bytes = archive(&[member], b"", false);
    let entry = last_position(&bytes, b"PK\x01\x02");
    let content = |at: usize, value: [u8; 4]| {
        let mut bytes = bytes.clone();
        bytes[at..at + 4].copy_from_slice(&value);
        let budget = Budget::new(Limits {
            memory: 1 << 20,
            ..Limits::default()
        });
        let source = MemorySource::new(bytes);
        let mut cursor = Cursor::new(&source, &budget);
        Archive::read(&mut cursor)
            .and_then(|a| a.content(&mut cursor, 0))
            .unwrap_err()
            .to_string()
    };
    assert!(content(entry + 24, [0xff, 0xff, 0xff, 0x7f]).contains("which deflate cannot"));
    assert!(content(entry + 24, [0x89, 0x13, 0, 0]).contains("holds 5000 bytes of the 5001"));
    assert!(content(entry + 24, [1, 0, 0, 0]).contains("more than the 1 bytes"));
    assert!(content(entry + 16, [1, 2, 3, 4]).contains("checksum"));
    let payload = 30 + 1;
    assert!(content(payload, [0xff; 4]).contains("inflate"));
}

#[test]
fn pytorch_members_are_located_without_local_headers() {
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/pth");
    let mut paths = vec![dir];
    let (mut members, mut unvisited) = (0, 0);
    while let Some(path) = paths.pop() {
        if path.is_dir() {
            paths.extend(
                std::fs::read_dir(&path)
                    .expect("a directory")
                    .map(|e| e.expect("an entry").path()),
            );
            continue;
        }
        let bytes = std::fs::read(&path).expect("a fixture");
        if !bytes.starts_with(b"PK") {
            continue;
        }
        with_cursor(&MemorySource::new(bytes), |cursor| {
            let archive = Archive::read(cursor)?;
            for row in 0..archive.entries.len() {
                let from_local_header = archive.verified_member(cursor, row)?;
                cursor.seek(0);
                let from_directory = archive.member(cursor, row)?;
                assert_eq!(
                    from_directory.bytes,
                    from_local_header.bytes,
                    "{}",
                    path.display()
                );
                members += 1;
                unvisited += usize::from(cursor.pos() == 0);
            }
            Ok(())
        })
        .unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    }
    assert!(
        members > 100 && unvisited * 10 > members * 9,
        "{unvisited} of {members} members located without their local header"
    );
}

#[test]
fn zip_crate_reads_its_own_archive() {
    // checks the oracle itself: the zip crate reads what it writes
    let bytes = archive_of(&["aa"]);
    let mut text = String::new();
    let mut oracle = ZipArchive::new(io::Cursor::new(&bytes)).expect("reads");
    oracle
        .by_index(0)
        .expect("a member")
        .read_to_string(&mut text)
        .expect("text");
    assert_eq!(text, "some content");
}
