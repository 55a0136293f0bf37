//! A refused file whose counts stand for much memory does not raise the peak of resident memory. In a process of its own,
//! because the peak is measured of the whole process.

use anamnesis_template::{Template, TemplateLimits};

/// The peak resident memory of this process in KiB.
fn peak_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse().ok()
}

#[test]
fn counts_without_content_allocate_no_memory() {
    let huge = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
    let large = [0xff, 0xff, 0xff, 0xff, 7]; // 2³¹ − 1
    let file = [0, 0, 1, 0, 0, 1, b'f', 100, 1, 0];
    let mut bodies = Vec::new();
    for count in [&huge[..], &large] {
        for prefix in [
            &[0][..],
            &[0, 0],
            &[0, 0, 0],
            &[0, 0, 1, 0],
            &[0, 0, 1, 0, 0],
            &file,
            &[&file[..], &[0]].concat(),
        ] {
            bodies.push([prefix, count].concat());
            bodies.push([prefix, count, &[0; 40]].concat());
        }
        // One literal, and a repeat of it.
        bodies.push([&file[..], &[0], count, &[0, 0, 1], count, &[1, 0]].concat());
    }
    let Some(before) = peak_kib() else {
        eprintln!("SKIPPED: this system does not report the peak memory of a process");
        return;
    };
    for body in bodies {
        let mut bytes = b"\x89IOT\r\n\x1a\n\x01".to_vec();
        bytes.extend(body);
        bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
        let error = Template::from_bytes(&bytes, &TemplateLimits::default()).unwrap_err();
        assert!(error.offset().is_some(), "{error}");
    }
    let grown = peak_kib().expect("reported before") - before;
    assert!(grown < 4096, "the peak rose by {grown} KiB");
}
