//! Truncated, damaged and malicious templates are refused.

mod common;

use anamnesis_template::{Error, ErrorKind, File, Template, TemplateLimits};
use proptest::prelude::*;

/// Appends a valid checksum.
fn sealed(body: &[u8]) -> Vec<u8> {
    let mut bytes = b"\x89IOT\r\n\x1a\n\x01".to_vec();
    bytes.extend(body);
    bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
    bytes
}

fn refused(body: &[u8]) -> Error {
    let error = Template::from_bytes(&sealed(body), &TemplateLimits::default()).unwrap_err();
    assert!(error.remedy().is_some(), "{error}");
    error
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn cut_at_every_byte(template in common::template()) {
        let bytes = template.to_bytes();
        for end in 0..bytes.len() {
            let error = Template::from_bytes(&bytes[..end], &TemplateLimits::none()).unwrap_err();
            prop_assert!(error.offset().is_some(), "{}", error);
            // Truncated, with a valid checksum.
            if let Some(body) = bytes[..end].get(9..) {
                prop_assert!(Template::from_bytes(&sealed(body), &TemplateLimits::none()).is_err() || end + 4 == bytes.len());
            }
        }
    }

    #[test]
    fn every_bit_flipped(template in common::template()) {
        let mut bytes = template.to_bytes();
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(Template::from_bytes(&bytes, &TemplateLimits::none()).is_err());
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn flipped_and_sealed(template in common::template(), bits in prop::collection::vec(any::<prop::sample::Index>(), 1..4)) {
        let bytes = template.to_bytes();
        let mut body = bytes[9..bytes.len() - 4].to_vec();
        for bit in bits {
            let bit = bit.index(body.len() * 8);
            body[bit / 8] ^= 1 << (bit % 8);
        }
        // What is accepted satisfies the rules of a template and has exactly one encoding.
        if let Ok(read) = Template::from_bytes(&sealed(&body), &TemplateLimits::default()) {
            check(&read);
            prop_assert_eq!(Template::from_bytes(&read.to_bytes(), &TemplateLimits::default()).unwrap(), read);
        }
    }

    #[test]
    fn noise(body in prop::collection::vec(prop_oneof![0..8u8, any::<u8>()], 0..80)) {
        if let Ok(read) = Template::from_bytes(&sealed(&body), &TemplateLimits::default()) {
            check(&read);
        }
    }

    #[test]
    fn cut_json(template in common::template()) {
        let json = template.to_json();
        for end in 0..json.len() {
            prop_assert!(Template::from_json(&json.as_bytes()[..end], &TemplateLimits::none()).is_err());
        }
    }
}

fn check(template: &Template) {
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

/// No service, no parameters, one file; `rest` is the content of its group.
fn one_file(rest: &[u8]) -> Vec<u8> {
    // Flags, shared prefix, path length, path, 100 bytes; one group of rank 0 without a name.
    [&[0, 0, 1, 0, 0, 1, b'f', 100, 1, 0, 0][..], rest].concat()
}

#[test]
fn false_counts_are_refused() {
    let huge = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
    for before in [
        &[0][..],
        &[0, 0],
        &[0, 0, 0],
        &[0, 0, 1, 0],
        &[0, 0, 1, 0, 0],
        &[0, 0, 1, 0, 0, 1, b'f', 100, 1, 0],
    ] {
        refused(&[before, &huge].concat());
    }
    // A count of accesses, one literal, then a repeat for the rest: 2⁶⁴ − 2 accesses, or one more
    // than the limit.
    let most = TemplateLimits::default().accesses + 1;
    for n in [u64::MAX >> 2, most] {
        let mut body = number(n);
        body.extend([0, 0, 1]); // byte 0
        body.extend(number((n - 1) << 1 | 1));
        body.extend([1, 0]);
        let error = refused(&one_file(&body));
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
        &sealed(
            &[
                &[0, 0, 1, 0, 0, 1, b'f'][..],
                &huge,
                &[1, 0, 0, 1, 4, 0, 1],
                &number(1 << 30),
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

fn number(mut n: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while n >= 0x80 {
        out.push(n.to_le_bytes()[0] | 0x80);
        n >>= 7;
    }
    out.push(n.to_le_bytes()[0]);
    out
}

#[test]
fn violations_of_each_rule_are_refused() {
    let good = Template::from_bytes(
        &sealed(&one_file(&[1, 0, 0, 100, 0])),
        &TemplateLimits::default(),
    )
    .unwrap();
    assert_eq!(good.nbytes(), 100);
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
    for (body, says) in cases {
        let error = refused(&one_file(body));
        assert!(
            error.to_string().contains(says) && error.offset().is_some(),
            "{body:?}: {error}"
        );
    }
    let error =
        Template::from_bytes(b"\x89IOT\r\n\x1a\n\x02....", &TemplateLimits::default()).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unsupported(_)), "{error}");
    assert!(
        refused(&[0, 0, 2, 0, 0, 1, b'f', 1, 0, 1, 0, 1, 0])
            .to_string()
            .contains("twice")
    );
}

#[test]
fn paths_stay_below_the_root() {
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
            refused(&body);
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
    for (json, says) in cases {
        let error = Template::from_json(json.as_bytes(), &TemplateLimits::default()).unwrap_err();
        assert!(error.to_string().contains(says), "{json}: {error}");
    }
    let little = TemplateLimits {
        memory: 100,
        ..TemplateLimits::default()
    };
    assert!(
        Template::from_json(cases[2].0.as_bytes(), &little)
            .unwrap_err()
            .to_string()
            .contains("`memory`")
    );
}

#[test]
fn limits_are_enforced() {
    let bytes = sealed(&one_file(&[2, 0, 0, 1, 0, 8, 1, 0]));
    Template::from_bytes(&bytes, &TemplateLimits::default()).unwrap();
    let none = TemplateLimits::none();
    for limits in [
        TemplateLimits { bytes: 10, ..none },
        TemplateLimits { memory: 90, ..none },
        TemplateLimits { files: 0, ..none },
        TemplateLimits { groups: 0, ..none },
        TemplateLimits {
            accesses: 1,
            ..none
        },
        TemplateLimits { runs: 1, ..none },
    ] {
        let error = Template::from_bytes(&bytes, &limits).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Limit { .. }), "{error}");
    }
}
