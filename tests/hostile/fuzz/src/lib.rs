//! The bodies of the fuzz targets. A panic, a hang, memory beyond the limits, or memory that is not charged to them is a
//! finding.
//!
//! The targets of a format open the input through two kinds of source, compare the catalogs and read every tensor. `plan`
//! and `remember` continue to dequantised weights, `check` to what is found about their values. `diff` compares two files. `template`
//! reads I/O templates. `host` is the conversation with the
//! host process of a policy. `hub`, `bucket`, `digests` and `headers` are what servers send and what lies beside a model.

#[path = "../../../../benches/guard/src/counting_allocator.rs"]
mod counting_allocator;
mod host;
#[path = "../../../support/object_references.rs"]
mod object_references;
pub mod others;

use std::path::PathBuf;
use std::sync::LazyLock;

use anamnesis::sink::{MemorySink, NullSink};
use anamnesis::{
    Checkpoint, Dtype, Error, Format, Limits, ModelConfig, Names, OpenOptions, Plan, QuantConfig,
    Remember, Usage, source,
};

use counting_allocator::{CountingAllocator, counted};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Sends the input to one side of a conversation between the runtime of the page cache and the host process of a policy.
pub fn host(bytes: &[u8]) {
    host::converse(bytes);
}

/// Limits so small that an allocation past the budget exceeds the fuzzer's memory limit.
const LIMITS: Limits = Limits {
    memory: 16 << 20,
    tensors: 100_000,
    depth: 64,
    steps: 2_000_000,
    tensor_bytes: 16 << 20,
    tile_bytes: 16 << 20,
    expansion: 1032,
};

/// Memory that need not be charged, because no file decides its size.
const UNCHARGED: u64 = 1 << 20;

/// Steps per byte that was read or charged.
const STEPS_PER_BYTE: u64 = 4;

/// Makes `call`, for an input of `nbytes` bytes, and compares the memory that it allocates with what `usage` reports.
fn charged<T>(usage: &Usage, nbytes: usize, call: impl FnOnce() -> T) -> T {
    charged_besides(UNCHARGED, usage, nbytes, call)
}

/// Like [`charged`], for a call that needs this much memory which is not charged.
fn charged_besides<T>(uncharged: u64, usage: &Usage, nbytes: usize, call: impl FnOnce() -> T) -> T {
    let (mut call, mut made) = (Some(call), None);
    let counts = counted(&mut || made = call.take().map(|call| call()));
    let (memory, steps) = (usage.memory(), usage.steps());
    assert!(
        counts.peak <= memory + uncharged,
        "{} bytes of memory, of which {memory} are charged",
        counts.peak
    );
    // a batch of steps is charged in advance
    let most = STEPS_PER_BYTE * (nbytes as u64 + memory + 1024);
    assert!(steps <= most, "{steps} steps for {nbytes} bytes");
    made.expect("counted calls once")
}

/// Opens `bytes` as `format` from memory and through a reader, compares the two, and reads the first tensors.
pub fn read(format: &'static Format, bytes: &[u8]) {
    read_with(&OpenOptions::new().limits(LIMITS).format(format), bytes);
}

/// Like [`read`], for a PyTorch file. A first byte of 1, which no such file has, sets [`OpenOptions::opaque`].
pub fn read_pth(bytes: &[u8]) {
    let (opaque, file) = match bytes {
        [1, file @ ..] => (true, file),
        _ => (false, bytes),
    };
    let options = OpenOptions::new()
        .limits(LIMITS)
        .format(&anamnesis::format::pth::FORMAT);
    let options = options.opaque(opaque);
    read_with(&options, file);
    read_objects(&options, file);
}

/// Builds the object of a PyTorch file by both calls.
fn read_objects(options: &OpenOptions, bytes: &[u8]) {
    let usage = Usage::new();
    let made = charged(&usage, bytes.len(), || {
        options
            .clone()
            .usage(&usage)
            .objects_from_bytes(bytes.to_vec())
    });
    if let Ok(Some(objects)) = made {
        object_references::check(&objects, 0);
    }
    // the memory of an open checkpoint: with the rows of its catalog
    let usage = Usage::new();
    let source = source::MemorySource::new(bytes.to_vec());
    let Ok(checkpoint) = options.clone().usage(&usage).from_source(source) else {
        return;
    };
    let made = charged(&usage, bytes.len(), || checkpoint.objects());
    if let Ok(Some(objects)) = made {
        object_references::check(&objects, checkpoint.catalog().tensors().len());
    }
}

fn read_with(options: &OpenOptions, bytes: &[u8]) {
    let [in_memory, by_reader] = [Usage::new(), Usage::new()];
    let source = source::MemorySource::new(bytes.to_vec());
    let memory = charged(&in_memory, bytes.len(), || {
        options.clone().usage(&in_memory).from_source(source)
    });
    let reader = std::io::Cursor::new(bytes.to_vec());
    let reader = charged(&by_reader, bytes.len(), || {
        options.clone().usage(&by_reader).from_reader(reader)
    });
    match (&memory, &reader) {
        // compared as text, since a NaN in the metadata does not equal itself
        (Ok(a), Ok(b)) => assert_eq!(
            format!("{:?}", a.catalog()),
            format!("{:?}", b.catalog()),
            "the catalogs of two sources differ"
        ),
        (Err(_), Err(_)) => {}
        // a reader copies what a memory source borrows, so it may reach a limit earlier
        (a, b) => assert!(
            is_limit_error(a) || is_limit_error(b),
            "only one source is refused, and not by a limit: {a:?} {b:?}"
        ),
    }
    let Ok(checkpoint) = memory else { return };
    let _ = charged(&in_memory, bytes.len(), || {
        anamnesis::fit(&checkpoint).estimate()
    });
    let listed = charged(&in_memory, bytes.len(), || checkpoint.inspect());
    let Ok(summary) = listed else {
        return; // over a limit
    };
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

/// The files that the fixture `dcp/grid` names.
const DISTRIBUTED: [(&str, &[u8]); 4] = [
    (
        "__0_0.distcp",
        include_bytes!("../../../../fixtures/dcp/grid/__0_0.distcp"),
    ),
    (
        "__1_0.distcp",
        include_bytes!("../../../../fixtures/dcp/grid/__1_0.distcp"),
    ),
    (
        "__2_0.distcp",
        include_bytes!("../../../../fixtures/dcp/grid/__2_0.distcp"),
    ),
    (
        "__3_0.distcp",
        include_bytes!("../../../../fixtures/dcp/grid/__3_0.distcp"),
    ),
];

/// Opens a directory of torch.distributed.checkpoint with `bytes` as its `.metadata`, and reads the tensors.
pub fn distributed(bytes: &[u8]) {
    static DIRECTORY: LazyLock<PathBuf> = LazyLock::new(|| {
        let name = format!("anamnesis-fuzz-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&directory).expect("a temporary directory");
        for (name, content) in DISTRIBUTED {
            std::fs::write(directory.join(name), content).expect("a temporary file");
        }
        directory
    });
    std::fs::write(DIRECTORY.join(".metadata"), bytes).expect("a temporary file");
    let files: usize = DISTRIBUTED.iter().map(|(_, content)| content.len()).sum();
    let usage = Usage::new();
    let options = OpenOptions::new().limits(LIMITS).usage(&usage);
    let opened = charged(&usage, bytes.len() + files, || options.open(&*DIRECTORY));
    let Ok(checkpoint) = opened else { return };
    for tensor in checkpoint.tensors() {
        // the chunks contain each element once
        let bytes = tensor.bytes().expect("the items are intact");
        assert_eq!(bytes.len() as u64, tensor.info().nbytes());
    }
}

fn is_limit_error(opened: &Result<Checkpoint, Error>) -> bool {
    matches!(
        opened.as_ref().err().map(Error::kind),
        Some(anamnesis::ErrorKind::Limit { .. })
    )
}

/// The most bytes of output that are dequantised for one input.
const MAX_OUTPUT: u64 = 16 << 20;

/// Plans the weights of a checkpoint and formats the plan.
pub fn plan(bytes: &[u8]) {
    with_plan(bytes, |_, plan| {
        let _ = format!("{plan:?}");
    });
}

/// Plans the weights of a checkpoint and dequantises them, to a null sink and to memory.
pub fn dequantise(bytes: &[u8]) {
    with_plan(bytes, |remember, mut plan| {
        if plan.nbytes() > MAX_OUTPUT {
            return;
        }
        plan.refused.clear(); // refused weights are reported; the others can be dequantised
        let outputs: Vec<_> = plan
            .jobs
            .iter()
            .map(|job| job.output.nbytes().expect("counted"))
            .collect();
        let to_null = remember.run(&plan, &mut NullSink);
        let mut buffers: Vec<_> = outputs
            .iter()
            .map(|&n| vec![0; usize::try_from(n).expect("small")])
            .collect();
        let mut memory = MemorySink::new(buffers.iter_mut().map(|buffer| &mut **buffer).collect());
        let to_memory = remember.run(&plan, &mut memory);
        assert_eq!(
            to_null.is_ok(),
            to_memory.is_ok(),
            "one sink fails and the other does not: {to_null:?} {to_memory:?}"
        );
    });
}

/// Splits the input into a byte of options, a length (u16), a file of that length and another one, and compares the two; without a
/// second one, the first with itself.
pub fn difference(bytes: &[u8]) {
    let Some((&[options_byte, low, high], rest)) = bytes.split_first_chunk() else {
        return;
    };
    let (first, second) =
        rest.split_at(usize::from(u16::from_le_bytes([low, high])).min(rest.len()));
    let second = if second.is_empty() { first } else { second };
    let usage = Usage::new();
    let options = OpenOptions::new().limits(LIMITS).usage(&usage);
    let open = |file: &[u8], by_reader: bool| {
        let copy = file.to_vec();
        charged(&usage, file.len(), || {
            if by_reader {
                options.from_reader(std::io::Cursor::new(copy))
            } else {
                options.from_source(source::MemorySource::new(copy))
            }
        })
    };
    let Ok(a) = open(first, options_byte & 1 != 0) else {
        return;
    };
    let Ok(b) = open(second, options_byte & 2 != 0) else {
        return;
    };
    let mut diff = anamnesis::diff(&a, &b)
        .threads(1)
        .values(options_byte & 4 != 0)
        .headers_only(options_byte & 8 != 0)
        .verdict_only(options_byte & 16 != 0)
        .list_equal(options_byte & 32 != 0);
    if options_byte & 64 != 0 {
        diff = diff.rename("model.*", "*").rename("a", "b");
    }
    // a tile of each side, with the parts that it is decoded from
    let tiles = UNCHARGED + 4 * LIMITS.tile_bytes;
    // both files are planned, and one of them twice
    let planned = 4 * bytes.len();
    let found = charged_besides(tiles, &usage, planned, || diff.run());
    if let Ok(found) = found {
        // a tensor that is stored alike on both sides is equal, whatever its bytes are
        assert!(
            first != second || options_byte & 64 != 0 || found.same || found.compared == 0,
            "a file differs from itself: {found:?}"
        );
        let _ = format!("{found:?}");
    }
}

/// Checks a file with statistics, for one thread and for two, and compares the findings. The first byte has options: through a reader,
/// unknown objects kept, digests of tensors, headers only.
pub fn check(bytes: &[u8]) {
    let Some((&options_byte, file)) = bytes.split_first() else {
        return;
    };
    let usage = Usage::new();
    let options = OpenOptions::new().limits(LIMITS).usage(&usage);
    let options = options.opaque(options_byte & 2 != 0);
    let copy = file.to_vec();
    let opened = charged(&usage, file.len(), || match options_byte & 1 {
        0 => options.from_source(source::MemorySource::new(copy)),
        _ => options.from_reader(std::io::Cursor::new(copy)),
    });
    let Ok(checkpoint) = opened else { return };
    let planned = anamnesis::remember(&checkpoint).dtype(Dtype::F32).plan();
    if planned.map_or(u64::MAX, |plan| plan.nbytes()) > MAX_OUTPUT {
        return;
    }
    let run = |threads| {
        let mut check = anamnesis::check(&checkpoint).threads(threads).statistics();
        if options_byte & 4 != 0 {
            check = check.tensor_digests();
        }
        if options_byte & 8 != 0 {
            check = check.headers();
        }
        check.run()
    };
    let (one, two) = (run(1), run(2));
    let (Ok(mut one), Ok(mut two)) = (one, two) else {
        return; // over a limit: histograms are charged for each thread
    };
    (one.seconds, two.seconds) = (0.0, 0.0);
    let text = |report| format!("{report:?}");
    assert_eq!(
        text(one),
        text(two),
        "the number of threads decides a finding"
    );
}

/// Splits the input into a byte of options, a length (u16), a quantisation configuration of that length and a file, and calls
/// `check` with the plan of the file's weights.
fn with_plan(bytes: &[u8], check: impl Fn(Remember<'_>, Plan)) {
    let Some((&[options_byte, low, high], rest)) = bytes.split_first_chunk() else {
        return;
    };
    let (config, file) =
        rest.split_at(usize::from(u16::from_le_bytes([low, high])).min(rest.len()));
    let usage = Usage::new();
    let options = OpenOptions::new().limits(LIMITS).usage(&usage);
    let copy = file.to_vec();
    let opened = charged(&usage, file.len(), || match options_byte & 1 {
        0 => options.from_source(source::MemorySource::new(copy)),
        _ => options.from_reader(std::io::Cursor::new(copy)),
    });
    let Ok(checkpoint) = opened else { return };
    let dtype =
        [Dtype::BF16, Dtype::F16, Dtype::F32, Dtype::BF16][usize::from(options_byte >> 1 & 3)];
    let mut remember = anamnesis::remember(&checkpoint).dtype(dtype).threads(1);
    remember = remember
        .cast(options_byte & 8 != 0)
        .native_rounding(options_byte & 16 != 0);
    if options_byte & 32 != 0 {
        remember = remember.names(Names::HuggingFace);
        // the configuration and the tokenizer that the metadata of a GGUF gives
        let _ = charged(&usage, bytes.len(), || remember.companions());
    }
    if let Ok(config) = ModelConfig::from_json(config) {
        let _ = anamnesis::fit::fit_config(config)
            .memory(1 << 34)
            .estimate();
    }
    if let Ok(config) = QuantConfig::from_json(config) {
        remember = remember.config(config);
    }
    let planned = charged(&usage, bytes.len(), || remember.plan());
    let Ok(plan) = planned else { return };
    let (outputs, tensors) = (
        plan.jobs.len() + plan.refused.len(),
        checkpoint.catalog().tensors().len(),
    );
    assert!(
        outputs <= tensors.saturating_mul(8) + checkpoint.catalog().refused().len(),
        "more outputs than the tensors can give"
    );
    for range in plan.reads(checkpoint.catalog()).take(100_000) {
        assert!(
            range.end() <= file.len() as u64,
            "the plan reads {range:?} of a file of {} bytes",
            file.len()
        );
    }
    check(remember, plan);
}

/// Reads the input as a binary template, as JSON, and as a binary template whose magic, version and checksum are replaced by
/// valid ones. A template that is read must be the same after both forms, cover itself and not differ from itself.
pub fn template(bytes: &[u8]) {
    use anamnesis_template::{Template, TemplateLimits, coverage, diff, merge};
    let limits = TemplateLimits {
        memory: 16 << 20,
        accesses: 100_000,
        runs: 1 << 20,
        ..TemplateLimits::default()
    };
    const MAGIC_AND_VERSION: &[u8] = b"\x89IOT\r\n\x1a\n\x01";
    let body = bytes
        .strip_prefix(MAGIC_AND_VERSION)
        .and_then(|rest| rest.split_last_chunk::<4>())
        .map_or(bytes, |(body, _)| body);
    let mut with_checksum = [MAGIC_AND_VERSION, body].concat();
    with_checksum.extend(crc32fast::hash(&with_checksum).to_le_bytes());
    let read = [
        Template::from_bytes(bytes, &limits),
        Template::from_bytes(&with_checksum, &limits),
        Template::from_json(bytes, &limits),
    ];
    for template in read.into_iter().flatten() {
        let unlimited = TemplateLimits::none();
        assert_eq!(
            Template::from_bytes(&template.to_bytes(), &unlimited).expect("just written"),
            template
        );
        assert_eq!(
            Template::from_json(template.to_json().as_bytes(), &unlimited).expect("just written"),
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
