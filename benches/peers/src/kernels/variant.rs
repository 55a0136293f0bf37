//! The variants, and what one process of a variant does.

use std::hint::black_box;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anamnesis::Dtype;

use super::blocks::{self, Blocks};
use super::buffer::Buffer;
use super::schemes::{self, SCHEMES, Scheme};
use super::stored::Weight;

pub static DTYPES: &[Dtype] = &[Dtype::BF16, Dtype::F16, Dtype::F32];

/// How long one measurement takes at least, and of how many repeats it takes the best.
const LONG_ENOUGH: Duration = Duration::from_millis(10);
const REPEATS: usize = 10;
/// Calls in a repeat: one alone is hardly longer than reading the clock twice.
const CALLS: u32 = 4;

/// What is decoded: a ggml block type, or a scheme of safetensors checkpoints.
#[derive(Clone, Copy)]
pub enum Row {
    Blocks(Blocks),
    Scheme(&'static Scheme),
}

impl Row {
    pub fn all() -> impl Iterator<Item = Self> {
        let blocks = blocks::formats().map(Blocks::few).chain(Blocks::large());
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

    /// Whether a variant's time has the making of its output's memory in it.
    pub fn is_fresh(self, variant: &str) -> bool {
        matches!(self, Self::Scheme(_)) && variant == PEER
    }

    fn out_bytes(self, dtype: Dtype) -> usize {
        self.elements() * dtype.item_bytes().expect("whole bytes") as usize
    }
}

type Into = Box<dyn Fn(&mut [u8])>;

/// One row's decoding, ready to run.
pub enum Decode {
    /// Into a buffer of the caller's, which is warm.
    Into(Into),
    /// Into memory of its own.
    Fresh(Box<dyn Fn() -> Vec<u8>>),
}

/// The names that a process takes.
pub const OURS: &str = "ours";
/// Before the name of one of our builds.
pub const BUILD: &str = "ours, ";
pub const PEER: &str = "peer";
pub const GGML: &str = "ggml";
pub const COPY: &str = "memcpy";

/// The ways in which a variant decodes a row, of which the fastest counts; none if it cannot.
pub fn decoders(variant: &str, row: Row, dtype: Dtype) -> Vec<Decode> {
    let one = match (variant, row) {
        (OURS, Row::Blocks(blocks)) => Some(blocks.ours(dtype)),
        (OURS, Row::Scheme(scheme)) => {
            let tensor = (scheme.input)();
            let (config, stored) = (scheme.ours)(&tensor);
            let weight = Weight::new(config, &stored, dtype);
            Some(Decode::Into(Box::new(move |out| weight.decode(out))))
        }
        (PEER, Row::Blocks(blocks)) => return blocks.peer(dtype),
        (PEER, Row::Scheme(scheme)) => scheme.peer(dtype).map(|peer| {
            let tensor = (scheme.input)();
            Decode::Fresh(Box::new(move || peer(&tensor).expect("a whole tensor")))
        }),
        (GGML, Row::Blocks(blocks)) => blocks.ggml(&ggml_library(), dtype),
        (variant, Row::Blocks(blocks)) if variant.starts_with(BUILD) => {
            Some(blocks.build(variant.strip_prefix(BUILD).unwrap_or_default(), dtype))
        }
        (COPY, row) => {
            let from = Buffer::random(row.out_bytes(dtype));
            Some(Decode::Into(Box::new(move |out| {
                out.copy_from_slice(&from)
            })))
        }
        _ => None,
    };
    one.into_iter().collect()
}

/// The target directory that this program was built into, where the other builds are too.
pub fn target() -> PathBuf {
    let me = std::env::current_exe().expect("this program has a path");
    let mut above = me.ancestors().skip(2);
    match above.next().expect("target/release") {
        native if native.ends_with("native") => above.next().expect("target/native").to_owned(),
        target => target.to_owned(),
    }
}

pub fn ggml_library() -> PathBuf {
    target().join("ggml/libggml.so")
}

pub fn native_program() -> PathBuf {
    target().join("native/release/peers")
}

/// Prints nanoseconds a call for each output that the variant has.
pub fn time(variant: &str, row: Row) {
    for &dtype in DTYPES {
        let mut out = Buffer::zeroed(row.out_bytes(dtype));
        let ways = decoders(variant, row, dtype);
        let times = ways
            .iter()
            .map(|decode| nanoseconds(|| once(decode, &mut out)));
        if let Some(best) = times.min_by(f64::total_cmp) {
            println!("{dtype} {best} {}", row.elements());
        }
    }
}

fn once(decode: &Decode, out: &mut [u8]) {
    match decode {
        Decode::Into(decode) => decode(black_box(out)),
        Decode::Fresh(decode) => drop(black_box(decode())),
    }
}

/// The least time of one call.
fn nanoseconds(mut call: impl FnMut()) -> f64 {
    let started = Instant::now();
    let mut best = Duration::MAX;
    let mut repeats = 0;
    while repeats < REPEATS || started.elapsed() < LONG_ENOUGH {
        let began = Instant::now();
        (0..CALLS).for_each(|_| call());
        best = best.min(began.elapsed());
        repeats += 1;
    }
    best.as_nanos() as f64 / f64::from(CALLS)
}

/// Writes the decoded elements to standard output; nothing if the variant cannot.
pub fn bytes(variant: &str, row: Row, dtype: Dtype) {
    let mut ways = decoders(variant, row, dtype)
        .into_iter()
        .map(|decode| match decode {
            Decode::Into(decode) => {
                let mut out = Buffer::zeroed(row.out_bytes(dtype));
                decode(&mut out);
                out.to_vec()
            }
            Decode::Fresh(decode) => decode(),
        });
    let bytes = ways.next().unwrap_or_default();
    assert!(
        ways.all(|other| other == bytes),
        "{}: one variant, different answers",
        row.name()
    );
    std::io::stdout()
        .write_all(&bytes)
        .expect("the comparison reads it");
}

/// The program that runs a variant, and the name it knows it by.
pub struct Variant {
    pub label: String,
    pub name: String,
    pub program: PathBuf,
}

impl Variant {
    pub fn new(label: &str, name: &str, program: PathBuf) -> Self {
        Self {
            label: label.to_owned(),
            name: name.to_owned(),
            program,
        }
    }
}

/// The variants that are built, and why the others are not there.
pub fn built() -> (Vec<Variant>, Vec<(String, String)>) {
    let me = std::env::current_exe().expect("this program has a path");
    let mut missing = Vec::new();
    let mut there = |path: &Path, label: &str, script: &str| {
        let there = path.exists();
        if !there {
            missing.push((
                label.to_owned(),
                format!("not built: benches/peers/{script} builds it"),
            ));
        }
        there
    };
    let native = there(&native_program(), "peer, native", "native.sh").then(native_program);
    let ggml = there(&ggml_library(), "ggml C", "ggml.sh").then(|| me.clone());
    let variants = [
        ("ours", OURS, Some(me.clone())),
        ("peer", PEER, Some(me.clone())),
        ("peer, native", PEER, native),
        ("ggml C", GGML, ggml),
        (COPY, COPY, Some(me)),
    ];
    let built = variants
        .into_iter()
        .filter_map(|(label, name, program)| Some(Variant::new(label, name, program?)));
    (built.collect(), missing)
}
