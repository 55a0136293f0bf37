//! Reading the JSON form allocates at most what is charged for it. A test binary of its own, because of the allocator.

#[path = "../../../benches/guard/src/counting_allocator.rs"]
mod counting_allocator;

use anamnesis_template::{Template, TemplateLimits};
use counting_allocator::{CountingAllocator, counted};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Length of each document in bytes.
const LEN: usize = 1 << 20;

/// Memory that is not charged, because no document decides its size.
const UNCHARGED: u64 = 64 << 10;

/// As many rows as fit, joined by commas.
fn rows(row: impl Fn(usize) -> String) -> String {
    let mut text = String::new();
    for n in 0.. {
        if text.len() >= LEN {
            break;
        }
        if n > 0 {
            text.push(',');
        }
        text.push_str(&row(n));
    }
    text
}

/// Documents of many short rows of each kind.
fn documents() -> Vec<(&'static str, String)> {
    let parameters = |row: &dyn Fn(usize) -> String| {
        format!(
            r#"{{"iot":1,"parameters":{{{}}},"files":[],"groups":[]}}"#,
            rows(row)
        )
    };
    let file = r#"{"path":"f","nbytes":1000}"#;
    let groups = |row: &dyn Fn(usize) -> String| {
        format!(r#"{{"iot":1,"files":[{file}],"groups":[{}]}}"#, rows(row))
    };
    let access = r#"{"file":0,"start":0,"len":1}"#;
    let files = rows(|n| format!(r#"{{"path":"{n:x}","nbytes":0}}"#));
    let accesses = rows(|_| access.to_owned());
    vec![
        ("parameters", parameters(&|n| format!(r#""{n:x}":"""#))),
        (
            "parameters of escapes",
            parameters(&|n| format!(r#""{n:x}":"\\n""#)),
        ),
        (
            "files",
            format!(r#"{{"iot":1,"files":[{files}],"groups":[]}}"#),
        ),
        (
            "groups",
            groups(&|n| format!(r#"{{"rank":{n},"accesses":[]}}"#)),
        ),
        (
            "groups of one access",
            groups(&|n| format!(r#"{{"rank":{n},"accesses":[{access}]}}"#)),
        ),
        (
            "accesses",
            format!(
                r#"{{"iot":1,"files":[{file}],"groups":[{{"rank":0,"accesses":[{accesses}]}}]}}"#
            ),
        ),
    ]
}

#[test]
fn a_document_allocates_what_is_charged_for_it() {
    let mut read = 0;
    for (what, document) in documents() {
        let mut refused = None;
        let counts = counted(&mut || {
            refused = Template::from_json(document.as_bytes(), &TemplateLimits::default()).err();
        });
        read += usize::from(refused.is_none());
        let charged = 24 * document.len() as u64 + UNCHARGED;
        println!(
            "{what}: {} bytes per byte",
            counts.peak / document.len() as u64
        );
        assert!(
            counts.peak <= charged,
            "{what}: {} of {charged}: {refused:?}",
            counts.peak
        );
    }
    assert!(read >= 5, "only {read} documents were read");
}
