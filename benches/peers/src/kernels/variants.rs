//! The variants of the dequantisation kernels, and what one process of a variant does.

use std::hint::black_box;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anamnesis::Dtype;

use super::blocks::{self, Blocks};
use super::buffer::Buffer;
use super::checkpoint_weight::CheckpointWeight;
use super::decoder::Decoder;
use super::schemes::{self, SCHEMES, Scheme};

/// The output dtypes.
pub static DTYPES: &[Dtype] = &[Dtype::BF16, Dtype::F16, Dtype::F32];

/// Least duration and number of repeats of a measurement, whose fastest repeat is reported.
const MIN_DURATION: Duration = Duration::from_millis(10);
const MIN_REPEATS: usize = 10;
/// Calls per repeat: a single call is hardly longer than reading the clock twice.
const CALLS: u32 = 4;

/// The input of decoding: blocks of a ggml type, or a weight of a safetensors scheme.
#[derive(Clone, Copy)]
pub enum DecodeInput {
    Blocks(Blocks),
    Scheme(&'static Scheme),
}

impl DecodeInput {
    pub fn all() -> impl Iterator<Item = Self> {
        let blocks = blocks::formats()
            .map(Blocks::cache_resident)
            .chain(Blocks::weight_sized());
        blocks
            .map(Self::Blocks)
            .chain(SCHEMES.iter().map(Self::Scheme))
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Blocks(blocks) => blocks.name,
            Self::Scheme(scheme) => scheme.name,
        }
    }

    pub fn elements(self) -> usize {
        match self {
            Self::Blocks(blocks) => blocks.elements,
            Self::Scheme(_) => schemes::SIDE * schemes::SIDE,
        }
    }

    /// Whether the variant allocates its output, which is then part of its time.
    pub fn allocates(self, variant: &str) -> bool {
        matches!(self, Self::Scheme(_)) && variant == PEER
    }

    fn out_bytes(self, dtype: Dtype) -> usize {
        self.elements() * dtype.item_bytes().expect("a dtype of whole bytes") as usize
    }
}

/// Arguments that select the decoder in a process.
pub const OURS: &str = "ours";
/// Prefix of the instruction set of one of our builds.
pub const BUILD: &str = "ours, ";
pub const PEER: &str = "peer";
pub const GGML: &str = "ggml";
pub const MEMCPY: &str = "memcpy";

/// The decoders of a variant for this input and dtype, of which the fastest counts; empty if it has none.
pub fn decoders(variant: &str, input: DecodeInput, dtype: Dtype) -> Vec<Decoder> {
    let decoder = match (variant, input) {
        (OURS, DecodeInput::Blocks(blocks)) => Some(blocks.ours(dtype)),
        (OURS, DecodeInput::Scheme(scheme)) => {
            let tensors = (scheme.input)();
            let (config, stored) = (scheme.ours)(&tensors);
            let weight = CheckpointWeight::new(config, &stored, dtype);
            Some(Decoder::IntoBuffer(Box::new(move |out| weight.decode(out))))
        }
        (PEER, DecodeInput::Blocks(blocks)) => return blocks.peer(dtype),
        (PEER, DecodeInput::Scheme(scheme)) => scheme.peer(dtype).map(|peer| {
            let tensors = (scheme.input)();
            Decoder::Allocating(Box::new(move || {
                peer(&tensors).expect("the peer decodes a whole weight")
            }))
        }),
        (GGML, DecodeInput::Blocks(blocks)) => blocks.ggml(&ggml_library(), dtype),
        (variant, DecodeInput::Blocks(blocks)) if variant.starts_with(BUILD) => {
            Some(blocks.ours_for_isa(variant.strip_prefix(BUILD).unwrap_or_default(), dtype))
        }
        (MEMCPY, input) => {
            let from = Buffer::random(input.out_bytes(dtype));
            Some(Decoder::IntoBuffer(Box::new(move |out| {
                out.copy_from_slice(&from)
            })))
        }
        _ => None,
    };
    decoder.into_iter().collect()
}

/// The target directory of this program, which also holds `native/` and `ggml/`.
pub fn target() -> PathBuf {
    let program = std::env::current_exe().expect("the running program has a path");
    let mut above = program.ancestors().skip(2);
    match above.next().expect("the program is in target/release") {
        native if native.ends_with("native") => above
            .next()
            .expect("the program is in target/native/release")
            .to_owned(),
        target => target.to_owned(),
    }
}

/// The library that `ggml.sh` builds.
pub fn ggml_library() -> PathBuf {
    target().join("ggml/libggml.so")
}

/// This program as `native.sh` builds it.
pub fn native_program() -> PathBuf {
    target().join("native/release/peers")
}

/// Prints dtype, nanoseconds per call and number of elements for each output dtype that the variant supports.
pub fn time(variant: &str, input: DecodeInput) {
    for &dtype in DTYPES {
        let mut out = Buffer::zeroed(input.out_bytes(dtype));
        let decoders = decoders(variant, input, dtype);
        let times = decoders
            .iter()
            .map(|decoder| fastest_ns(|| call(decoder, &mut out)));
        if let Some(fastest) = times.min_by(f64::total_cmp) {
            println!("{dtype} {fastest} {}", input.elements());
        }
    }
}

fn call(decoder: &Decoder, out: &mut [u8]) {
    match decoder {
        Decoder::IntoBuffer(decode) => decode(black_box(out)),
        Decoder::Allocating(decode) => drop(black_box(decode())),
    }
}

/// Nanoseconds per call in the fastest repeat.
fn fastest_ns(mut call: impl FnMut()) -> f64 {
    let started = Instant::now();
    let mut fastest = Duration::MAX;
    let mut repeats = 0;
    while repeats < MIN_REPEATS || started.elapsed() < MIN_DURATION {
        let repeat_started = Instant::now();
        (0..CALLS).for_each(|_| call());
        fastest = fastest.min(repeat_started.elapsed());
        repeats += 1;
    }
    fastest.as_nanos() as f64 / f64::from(CALLS)
}

/// Writes the decoded elements to standard output, for the comparison; nothing if the variant has no decoder.
pub fn print_decoded(variant: &str, input: DecodeInput, dtype: Dtype) {
    let mut outputs = decoders(variant, input, dtype)
        .into_iter()
        .map(|decoder| match decoder {
            Decoder::IntoBuffer(decode) => {
                let mut out = Buffer::zeroed(input.out_bytes(dtype));
                decode(&mut out);
                out.to_vec()
            }
            Decoder::Allocating(decode) => decode(),
        });
    let first = outputs.next().unwrap_or_default();
    assert!(
        outputs.all(|other| other == first),
        "{}: two decoders of one variant disagree",
        input.name()
    );
    std::io::stdout()
        .write_all(&first)
        .expect("the parent process reads the output");
}

/// A variant: its name in results, the program that runs it, and the argument that selects it there.
pub struct DecodeVariant {
    pub label: String,
    pub name: String,
    pub program: PathBuf,
}

impl DecodeVariant {
    pub fn new(label: &str, name: &str, program: PathBuf) -> Self {
        Self {
            label: label.to_owned(),
            name: name.to_owned(),
            program,
        }
    }
}

/// The variants that have been built, and the others with the reason why they are missing.
pub fn available() -> (Vec<DecodeVariant>, Vec<(String, String)>) {
    const UNRELATED: &str = r#"unrelated crate "anamnesis" 0.7.10"#;
    let this_program = std::env::current_exe().expect("the running program has a path");
    let native_label = format!("{UNRELATED}, native");
    let mut missing = Vec::new();
    let mut is_built = |path: &Path, label: &str, script: &str| {
        let exists = path.exists();
        if !exists {
            let reason = format!("not built; benches/peers/{script} builds it");
            missing.push((label.to_owned(), reason));
        }
        exists
    };
    let native = is_built(&native_program(), &native_label, "native.sh").then(native_program);
    let ggml = is_built(&ggml_library(), "ggml C", "ggml.sh").then(|| this_program.clone());
    let variants = [
        ("ours", OURS, Some(this_program.clone())),
        (UNRELATED, PEER, Some(this_program.clone())),
        (&native_label, PEER, native),
        ("ggml C", GGML, ggml),
        (MEMCPY, MEMCPY, Some(this_program)),
    ];
    let available = variants
        .into_iter()
        .filter_map(|(label, name, program)| Some(DecodeVariant::new(label, name, program?)));
    (available.collect(), missing)
}
