//! Truncated, damaged and malicious templates are refused with an error that has an offset and a remedy; what is accepted
//! satisfies the rules of the format.

use anamnesis_template::{Error, ErrorKind, File, Template, TemplateLimits};
use proptest::prelude::*;

use crate::random_templates::any_template;

/// The body of a binary template with a valid header and checksum.
fn with_checksum(body: &[u8]) -> Vec<u8> {
    let mut bytes = b"\x89IOT\r\n\x1a\n\x01".to_vec();
    bytes.extend(body);
    bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
    bytes
}

/// The error of a body with a valid checksum.
fn error_of(body: &[u8]) -> Error {
    let error = Template::from_bytes(&with_checksum(body), &TemplateLimits::default()).unwrap_err();
    assert!(error.remedy().is_some(), "{error}");
    error
}

/// Each position, or, in an interpreter that takes milliseconds for each, some of them.
const STEP: usize = if cfg!(miri) { 211 } else { 1 };

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 60 }))]

    #[test]
    fn a_file_cut_at_any_byte_is_refused(template in any_template()) {
        let bytes = template.to_bytes();
        for end in (0..bytes.len()).step_by(STEP) {
            let error = Template::from_bytes(&bytes[..end], &TemplateLimits::none()).unwrap_err();
            prop_assert!(error.offset().is_some(), "{}", error);
            // Truncated, with a valid checksum.
            if let Some(body) = bytes[..end].get(9..) {
                prop_assert!(Template::from_bytes(&with_checksum(body), &TemplateLimits::none()).is_err() || end + 4 == bytes.len());
            }
        }
    }

    #[test]
    fn a_file_with_any_bit_flipped_is_refused(template in any_template()) {
        let mut bytes = template.to_bytes();
        for bit in (0..bytes.len() * 8).step_by(STEP) {
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(Template::from_bytes(&bytes, &TemplateLimits::none()).is_err());
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn flipped_bits_under_a_valid_checksum_are_refused_or_valid(template in any_template(), bits in prop::collection::vec(any::<prop::sample::Index>(), 1..4)) {
        let bytes = template.to_bytes();
        let mut body = bytes[9..bytes.len() - 4].to_vec();
        for bit in bits {
            let bit = bit.index(body.len() * 8);
            body[bit / 8] ^= 1 << (bit % 8);
        }
        // An accepted file satisfies the rules of a template and has exactly one encoding.
        if let Ok(read) = Template::from_bytes(&with_checksum(&body), &TemplateLimits::default()) {
            assert_valid(&read);
            prop_assert_eq!(Template::from_bytes(&read.to_bytes(), &TemplateLimits::default()).unwrap(), read);
        }
    }

    #[test]
    fn random_bodies_are_refused_or_valid(body in prop::collection::vec(prop_oneof![0..8u8, any::<u8>()], 0..80)) {
        if let Ok(read) = Template::from_bytes(&with_checksum(&body), &TemplateLimits::default()) {
            assert_valid(&read);
        }
    }

    #[test]
    fn json_cut_at_any_byte_is_refused(template in any_template()) {
        let json = template.to_json();
        for end in (0..json.len()).step_by(STEP) {
            prop_assert!(Template::from_json(&json.as_bytes()[..end], &TemplateLimits::none()).is_err());
        }
    }
}

/// The rules that every template satisfies: non-empty ranges inside their files, ascending ranks, valid paths.
fn assert_valid(template: &Template) {
    for (_, access) in template.accesses() {
        let file = &template.files()[access.file as usize];
        assert!(access.bytes.end() <= file.nbytes && access.bytes.nbytes() > 0);
    }
    assert!(
        template
            .groups()
            .windows(2)
            .all(|pair| pair[0].rank() < pair[1].rank())
    );
    template
        .files()
        .iter()
        .for_each(|file| drop(File::new(file.path.clone(), 0).unwrap()));
}

/// The body of a template without service and parameters, with one file; `group` is the content of its only group.
fn body_of_one_file(group: &[u8]) -> Vec<u8> {
    // Flags, shared prefix, path length, path, 100 bytes; one group of rank 0 without a name.
    [&[0, 0, 1, 0, 0, 1, b'f', 100, 1, 0, 0][..], group].concat()
}

#[test]
fn counts_beyond_the_content_or_a_limit_are_refused() {
    let huge = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
    for before in [
        &[0][..],
        &[0, 0],
        &[0, 0, 0],
        &[0, 0, 1, 0],
        &[0, 0, 1, 0, 0],
        &[0, 0, 1, 0, 0, 1, b'f', 100, 1, 0],
    ] {
        error_of(&[before, &huge].concat());
    }
    // A count of accesses, one literal, then a repeat for the rest: 2⁶⁴ − 2 accesses, or one more
    // than the limit.
    let too_many = TemplateLimits::default().accesses + 1;
    for n in [u64::MAX >> 2, too_many] {
        let mut body = varint(n);
        body.extend([0, 0, 1]); // byte 0
        body.extend(varint((n - 1) << 1 | 1));
        body.extend([1, 0]);
        let error = error_of(&body_of_one_file(&body));
        assert!(
            matches!(
                error.kind(),
                ErrorKind::Limit {
                    limit: "accesses",
                    ..
                }
            ),
            "{error}"
        );
    }
    // The number of runs.
    let error = Template::from_bytes(
        &with_checksum(
            &[
                &[0, 0, 1, 0, 0, 1, b'f'][..],
                &huge,
                &[1, 0, 0, 1, 4, 0, 1],
                &varint(1 << 30),
                &[0, 0],
            ]
            .concat(),
        ),
        &TemplateLimits::default(),
    );
    assert!(matches!(
        error.unwrap_err().kind(),
        ErrorKind::Limit { limit: "runs", .. }
    ));
}

/// `n` as a varint.
fn varint(mut n: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while n >= 0x80 {
        out.push(n.to_le_bytes()[0] | 0x80);
        n >>= 7;
    }
    out.push(n.to_le_bytes()[0]);
    out
}

#[test]
fn each_violated_rule_is_refused_with_its_message() {
    let valid = Template::from_bytes(
        &with_checksum(&body_of_one_file(&[1, 0, 0, 100, 0])),
        &TemplateLimits::default(),
    )
    .unwrap();
    assert_eq!(valid.nbytes(), 100);
    let cases: [(&[u8], &str); 13] = [
        (&[1, 0, 0, 101, 0], "end after the file"),
        (&[1, 0, 1, 100, 0], "64 bits"),
        (&[1, 0, 0, 0, 0], "0 bytes"),
        (&[1, 2, 2, 0, 1, 0], "file 1, but"),
        (&[1, 8, 0, 1, 0], "unknown type"),
        (&[1, 1, 1, 0], "repeat of 0 accesses"),
        (&[1, 3, 1, 0], "(0 accesses precede it)"),
        (&[2, 0, 0, 1, 3, 2, 0], "distance 2 (1 accesses precede it)"),
        (&[1, 0, 0, 1, 2], "0 or 1"),
        (&[1, 0, 0, 1, 1, 2], "out of range"),
        (&[1, 0, 0, 1, 0, 0], "follow the last group"),
        (&[1, 0, 0, 0x81, 0, 0], "shortest form"),
        (&[1, 4, 0, 50, 0, 1, 0], "end after the file"),
    ];
    for (body, message) in cases {
        let error = error_of(&body_of_one_file(body));
        assert!(
            error.to_string().contains(message) && error.offset().is_some(),
            "{body:?}: {error}"
        );
    }
    let error =
        Template::from_bytes(b"\x89IOT\r\n\x1a\n\x02....", &TemplateLimits::default()).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unsupported(_)), "{error}");
    assert!(
        error_of(&[0, 0, 2, 0, 0, 1, b'f', 1, 0, 1, 0, 1, 0])
            .to_string()
            .contains("twice")
    );
}

#[test]
fn paths_that_leave_the_root_are_refused() {
    let long = "x".repeat(4097);
    for path in [
        "", "/a", "../a", "a/../b", "a//b", "a/", ".", "a\0b", "a\\b", "C:a", &long,
    ] {
        assert!(
            matches!(
                File::new(path, 1).unwrap_err().kind(),
                ErrorKind::Invalid(_)
            ),
            "{path:?}"
        );
        if path.len() < 100 {
            let mut body = vec![0, 0, 1, 0, 0, u8::try_from(path.len()).unwrap()];
            body.extend(path.bytes());
            body.extend([100, 0]);
            error_of(&body);
        }
        let json =
            format!("{{\"iot\":1,\"files\":[{{\"path\":{path:?},\"nbytes\":1}}],\"groups\":[]}}")
                .replace("\\0", "\\u0000");
        let error = Template::from_json(json.as_bytes(), &TemplateLimits::default()).unwrap_err();
        assert!(error.to_string().contains("path"), "{error}");
    }
    assert!(File::new("a/b.c/..d/é", 1).is_ok());
}

#[test]
fn invalid_json_is_refused() {
    let cases = [
        ("{}", "missing field"),
        ("[]", "malformed"),
        (r#"{"iot":2,"files":[],"groups":[]}"#, "version 2"),
        (r#"{"iot":1,"files":[],"groups":[],"x":1}"#, "unknown field"),
        (r#"{"iot":1,"files":[],"groups":[]} x"#, "trailing"),
        (
            r#"{"iot":1,"files":[{"path":"a","nbytes":1},{"path":"a","nbytes":1}],"groups":[]}"#,
            "twice",
        ),
        (
            r#"{"iot":1,"files":[{"path":"a","nbytes":1},{"path":"a","nbytes":2}],"groups":[]}"#,
            "twice",
        ),
        (
            r#"{"iot":1,"files":[],"groups":[{"rank":1,"accesses":[]},{"rank":0,"accesses":[]}]}"#,
            "ascending",
        ),
        (
            r#"{"iot":1,"files":[],"groups":[{"rank":1,"accesses":[{"file":0,"start":0,"len":1}]}]}"#,
            "file 0, but",
        ),
        (
            r#"{"iot":1,"files":[],"groups":[{"rank":1,"accesses":[{"file":0,"start":0,"len":0}]}]}"#,
            "not in normal form",
        ),
        (
            r#"{"iot":1,"service":"00","files":[],"groups":[]}"#,
            "32 hexadecimal",
        ),
    ];
    for (json, message) in cases {
        let error = Template::from_json(json.as_bytes(), &TemplateLimits::default()).unwrap_err();
        assert!(error.to_string().contains(message), "{json}: {error}");
    }
    let small_limit = TemplateLimits {
        memory: 100,
        ..TemplateLimits::default()
    };
    assert!(
        Template::from_json(cases[2].0.as_bytes(), &small_limit)
            .unwrap_err()
            .to_string()
            .contains("`memory`")
    );
}

#[test]
fn each_limit_is_enforced() {
    let bytes = with_checksum(&body_of_one_file(&[2, 0, 0, 1, 0, 8, 1, 0]));
    Template::from_bytes(&bytes, &TemplateLimits::default()).unwrap();
    let unlimited = TemplateLimits::none();
    for limits in [
        TemplateLimits {
            bytes: 10,
            ..unlimited
        },
        TemplateLimits {
            memory: 90,
            ..unlimited
        },
        TemplateLimits {
            files: 0,
            ..unlimited
        },
        TemplateLimits {
            groups: 0,
            ..unlimited
        },
        TemplateLimits {
            accesses: 1,
            ..unlimited
        },
        TemplateLimits {
            runs: 1,
            ..unlimited
        },
    ] {
        let error = Template::from_bytes(&bytes, &limits).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Limit { .. }), "{error}");
    }
}
