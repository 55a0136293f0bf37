//! What the fuzz targets do with their bytes. Those of a format open them through two kinds of source, compare,
//! and read every tensor; `plan` and `remember` go on to weights; `template` reads I/O templates. A panic, a hang, or memory beyond the limits is
//! a finding.

use std::ops::ControlFlow;

use anamnesis::sink::{Memory, Null};
use anamnesis::{
    Checkpoint, Dtype, Error, Format, Limits, OpenOptions, Plan, QuantConfig, Remember, source,
};

/// Small enough that a leak past the budget shows as an out-of-memory finding of the fuzzer.
const LIMITS: Limits = Limits {
    memory: 16 << 20,
    tensors: 100_000,
    depth: 64,
    steps: 2_000_000,
    tensor_bytes: 16 << 20,
    tile_bytes: 16 << 20,
};

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
    matches!(
        opened.as_ref().err().map(Error::kind),
        Some(anamnesis::ErrorKind::Limit { .. })
    )
}

/// Bytes of output that are made for one input.
const MOST: u64 = 16 << 20;

/// Plans the weights of a checkpoint, and prints and measures the plan.
pub fn plan(bytes: &[u8]) {
    planned(bytes, |_, plan| {
        let _ = format!("{plan:?}");
    });
}

/// Plans the weights of a checkpoint and makes them, in the way that the plan says.
pub fn remembered(bytes: &[u8]) {
    planned(bytes, |remember, mut plan| {
        if plan.nbytes() > MOST {
            return;
        }
        plan.refused.clear(); // they are named, the others can be made
        let outputs: Vec<_> = plan
            .jobs
            .iter()
            .map(|job| job.output.nbytes().expect("counted"))
            .collect();
        let made = remember.run(&mut plan, &mut Null, &mut |_| ControlFlow::Continue(()));
        let mut buffers: Vec<_> = outputs
            .iter()
            .map(|&n| vec![0; usize::try_from(n).expect("small")])
            .collect();
        let mut memory = Memory::new(buffers.iter_mut().map(|buffer| &mut **buffer).collect());
        let lent = remember.run(&mut plan, &mut memory, &mut |_| ControlFlow::Continue(()));
        assert_eq!(
            made.is_ok(),
            lent.is_ok(),
            "two sinks, two answers: {made:?} {lent:?}"
        );
    });
}

/// The input is a byte of choices, a configuration of so many bytes (two bytes of length), and a file.
fn planned(bytes: &[u8], go: impl Fn(Remember<'_>, Plan)) {
    let Some((&[choice, low, high], rest)) = bytes.split_first_chunk() else {
        return;
    };
    let (config, file) =
        rest.split_at(usize::from(u16::from_le_bytes([low, high])).min(rest.len()));
    let options = OpenOptions::new().limits(LIMITS);
    let opened = match choice & 1 {
        0 => Checkpoint::from_source_with(source::Memory::new(file.to_vec()), &options),
        _ => Checkpoint::from_reader_with(std::io::Cursor::new(file.to_vec()), &options),
    };
    let Ok(checkpoint) = opened else { return };
    let dtype = [Dtype::BF16, Dtype::F16, Dtype::F32, Dtype::BF16][usize::from(choice >> 1 & 3)];
    let mut remember = anamnesis::remember(&checkpoint).dtype(dtype).threads(1);
    remember = remember
        .cast(choice & 8 != 0)
        .native_rounding(choice & 16 != 0);
    if let Ok(config) = QuantConfig::from_json(config) {
        remember = remember.config(config);
    }
    let Ok(plan) = remember.plan() else { return };
    let (outputs, tensors) = (
        plan.jobs.len() + plan.refused.len(),
        checkpoint.catalog().tensors().len(),
    );
    assert!(
        outputs <= tensors.saturating_mul(8) + checkpoint.catalog().refused.len(),
        "weights from nothing"
    );
    for range in plan.reads(checkpoint.catalog()).take(100_000) {
        assert!(
            range.end() <= file.len() as u64,
            "reads {range:?} of {} bytes",
            file.len()
        );
    }
    go(remember, plan);
}

/// Reads bytes as a template, as JSON, and as a template without magic, version and checksum, or with those and whatever
/// checksum: it is made to fit. What is read must survive both forms, and be like itself.
pub fn template(bytes: &[u8]) {
    use anamnesis_template::{Limits, Template, coverage, diff, merge};
    let limits = Limits {
        memory: 16 << 20,
        accesses: 100_000,
        runs: 1 << 20,
        ..Limits::default()
    };
    const HEAD: &[u8] = b"\x89IOT\r\n\x1a\n\x01";
    let body = bytes
        .strip_prefix(HEAD)
        .and_then(|rest| rest.split_last_chunk::<4>())
        .map_or(bytes, |(body, _)| body);
    let mut sealed = [HEAD, body].concat();
    sealed.extend(crc32fast::hash(&sealed).to_le_bytes());
    let read = [
        Template::from_bytes(bytes, &limits),
        Template::from_bytes(&sealed, &limits),
        Template::from_json(bytes, &limits),
    ];
    for template in read.into_iter().flatten() {
        let none = Limits::none();
        assert_eq!(
            Template::from_bytes(&template.to_bytes(), &none).expect("just written"),
            template
        );
        assert_eq!(
            Template::from_json(template.to_json().as_bytes(), &none).expect("just written"),
            template
        );
        assert_eq!(coverage(&template, &template).share(), 1.0);
        assert!(diff(&template, &template).is_empty());
        assert_eq!(
            merge(std::slice::from_ref(&template)).expect("one model"),
            template
        );
    }
}
