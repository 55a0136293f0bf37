//! Limits of opening and reading: a limit that is exceeded is an error with its name, and without limits the same is read.

use crate::support::{fixture, fixtures, is_memory_limit};
use anamnesis::{ErrorKind, Limits, OpenOptions};

#[test]
fn fixtures_are_listed_alike_without_limits() {
    for (path, format) in fixtures() {
        let open = |limits| {
            OpenOptions::new()
                .single(true)
                .format(format)
                .limits(limits)
                .open(&path)
        };
        match (open(Limits::default()), open(Limits::none())) {
            (Ok(a), Ok(b)) => assert_eq!(
                a.inspect().unwrap(),
                b.inspect().unwrap(),
                "{}",
                path.display()
            ),
            (Err(a), Err(b)) => assert_eq!(a.to_string(), b.to_string()),
            (a, b) => panic!("{}: {:?} {:?}", path.display(), a.err(), b.err()),
        }
    }
}

/// With a smaller and smaller limit, each fixture is listed completely and then refused for this limit.
#[test]
fn a_memory_limit_refuses_the_whole_file() {
    for (path, format) in fixtures() {
        let open = |memory| {
            let limits = Limits {
                memory,
                ..Limits::default()
            };
            OpenOptions::new()
                .single(true)
                .format(format)
                .limits(limits)
                .open(&path)
        };
        let Ok(whole) = open(u64::MAX) else { continue };
        let mut refused = false;
        for memory in [1 << 20, 64 << 10, 4 << 10, 512, 64, 0] {
            match open(memory) {
                Ok(read) => {
                    assert!(
                        !refused,
                        "{}: listed with {memory} bytes and refused with more",
                        path.display()
                    );
                    assert_eq!(read.catalog().tensors(), whole.catalog().tensors());
                    // the listing may need more than the catalog
                    match read.inspect() {
                        Ok(summary) => {
                            assert_eq!(summary.tensors, whole.inspect().unwrap().tensors)
                        }
                        Err(e) => assert!(is_memory_limit(&e), "{}: {e}", path.display()),
                    }
                }
                Err(e) => {
                    refused = true;
                    assert!(is_memory_limit(&e), "{}: {e}", path.display());
                }
            }
        }
        assert!(
            refused || whole.catalog().tensors().is_empty(),
            "{} is listed without memory",
            path.display()
        );
    }
}

#[test]
fn an_exceeded_limit_names_its_field_and_the_file() {
    let limits = Limits {
        tensors: 100,
        ..Limits::default()
    };
    for name in [
        "safetensors/many.safetensors",
        "pth/many.pth",
        "pth/many.legacy.pth",
    ] {
        let error = OpenOptions::new()
            .limits(limits)
            .open(fixture(name))
            .unwrap_err();
        let ErrorKind::Limit {
            needed: 101,
            allowed: 100,
            limit: "tensors",
            ..
        } = error.kind()
        else {
            panic!("{error}")
        };
        let text = error.to_string();
        assert!(
            text.contains(name) && text.contains("exceeds the limit `tensors` of 100"),
            "{text}"
        );
        assert_eq!(
            error.remedy(),
            Some(anamnesis::Remedy::RaiseLimit { limit: "tensors" })
        );
    }
}

#[test]
fn a_tensor_over_the_limit_is_listed_and_not_read() {
    let limits = Limits {
        tensor_bytes: 100,
        ..Limits::default()
    };
    let checkpoint = OpenOptions::new()
        .limits(limits)
        .mmap(false)
        .open(fixture("npz/all_le_compressed.npz"))
        .unwrap();
    let (mut read, mut refused) = (0, 0);
    for tensor in checkpoint.tensors() {
        match tensor.bytes() {
            Ok(bytes) => {
                assert!(bytes.len() <= 100);
                read += 1;
            }
            Err(e) => {
                assert!(
                    matches!(
                        e.kind(),
                        ErrorKind::Limit {
                            limit: "tensor_bytes",
                            ..
                        }
                    ),
                    "{e}"
                );
                assert!(tensor.info().nbytes() > 100);
                refused += 1;
            }
        }
    }
    assert!(read > 0 && refused > 0);
}
