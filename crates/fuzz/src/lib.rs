//! What every fuzz target does with its bytes: opens them through two kinds of source, compares,
//! and reads every tensor. A panic, a hang, or memory beyond the limits is a finding.

use anamnesis::{Checkpoint, Error, Format, Limits, OpenOptions, source};

/// Small enough that a leak past the budget shows as an out-of-memory finding of the fuzzer.
const LIMITS: Limits = Limits { memory: 16 << 20, tensors: 100_000, depth: 64, steps: 2_000_000, tensor_bytes: 16 << 20 };

/// Opens `bytes` as `format` and reads what is in them.
pub fn read(format: &'static Format, bytes: &[u8]) {
    let options = OpenOptions::new().limits(LIMITS).format(format);
    let memory = Checkpoint::from_source_with(source::Memory::new(bytes.to_vec()), &options);
    let reader = Checkpoint::from_reader_with(std::io::Cursor::new(bytes.to_vec()), &options);
    match (&memory, &reader) {
        // as text, since a NaN in the metadata does not equal itself
        (Ok(a), Ok(b)) => assert_eq!(
            format!("{:?}", a.catalog()),
            format!("{:?}", b.catalog()),
            "two sources, two catalogs"
        ),
        (Err(_), Err(_)) => {}
        // a reader copies what a map lends, so it may reach a limit earlier
        (a, b) => assert!(limited(a) || limited(b), "one source refuses: {a:?} {b:?}"),
    }
    let Ok(checkpoint) = memory else { return };
    let summary = checkpoint.inspect();
    assert_eq!(summary.tensors.len(), checkpoint.catalog().tensors().len());
    for tensor in checkpoint.tensors().take(64) {
        let info = tensor.info();
        if info.nbytes() > 1 << 20 {
            continue;
        }
        if let Ok(bytes) = tensor.bytes() {
            assert_eq!(bytes.len() as u64, info.nbytes());
        }
    }
}

fn limited(opened: &Result<Checkpoint, Error>) -> bool {
    matches!(opened.as_ref().err().map(Error::kind), Some(anamnesis::ErrorKind::Limit { .. }))
}
