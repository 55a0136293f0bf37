//! ggml's block types: their inputs, and the kernels that decode them.

use std::path::Path;

use anamnesis::{BlockFormat, Dtype, kernel};
use libloading::{Library, Symbol};
use peer::{Bf16Out, F16Out, F32Out, GgufType, OutputElement};

use super::buffer::Buffer;
use super::variant::Decode;

/// Elements at a time: blocks and output stay in the second-level cache.
const FEW: usize = 1 << 16;
/// Elements of a weight: its output does not stay there.
const MANY: usize = 8 << 20;

/// Types that are decoded in the size of a weight too, and what they are called there.
const LARGE: [(&str, &str); 4] = [
    ("Q4_0", "Q4_0, 8 Mi"),
    ("Q8_0", "Q8_0, 8 Mi"),
    ("Q4_K", "Q4_K, 8 Mi"),
    ("Q6_K", "Q6_K, 8 Mi"),
];

/// Some blocks of a type.
#[derive(Clone, Copy)]
pub struct Blocks {
    pub name: &'static str,
    pub format: &'static BlockFormat,
    pub elements: usize,
}

impl Blocks {
    pub fn few(format: &'static BlockFormat) -> Self {
        Self {
            name: format.name,
            format,
            elements: FEW,
        }
    }

    /// As many as a weight has.
    pub fn large() -> impl Iterator<Item = Self> {
        formats().filter_map(|format| {
            let (_, name) = LARGE.iter().find(|(of, _)| *of == format.name)?;
            Some(Self {
                name,
                format,
                elements: MANY,
            })
        })
    }
}

/// Where a block has the bytes with its scales' exponents, and what they are set to: scales like
/// those of real weights, neither NaN nor subnormal. All other bytes are random.
static EXPONENTS: &[(&str, &[usize], u8)] = &[
    ("Q4_0", &[1], 0x28),
    ("Q4_1", &[1, 3], 0x28),
    ("Q5_0", &[1], 0x28),
    ("Q5_1", &[1, 3], 0x28),
    ("Q8_0", &[1], 0x28),
    ("Q8_1", &[1], 0x28),
    ("Q2_K", &[81, 83], 0x28),
    ("Q3_K", &[109], 0x28),
    ("Q4_K", &[1, 3], 0x28),
    ("Q5_K", &[1, 3], 0x28),
    ("Q6_K", &[209], 0x28),
    ("Q8_K", &[3], 0x3c),
    ("IQ2_XXS", &[1], 0x28),
    ("IQ2_XS", &[1], 0x28),
    ("IQ3_XXS", &[1], 0x28),
    ("IQ1_S", &[1], 0x28),
    ("IQ4_NL", &[1], 0x28),
    ("IQ3_S", &[1], 0x28),
    ("IQ2_S", &[1], 0x28),
    ("IQ4_XS", &[1], 0x28),
    ("IQ1_M", &[55], 0x28),
    ("TQ1_0", &[53], 0x28),
    ("TQ2_0", &[65], 0x28),
    ("MXFP4", &[0], 0x7a),
    ("NVFP4", &[0, 1, 2, 3], 0x28),
    ("Q1_0", &[1], 0x28),
    ("Q2_0", &[1], 0x28),
];

/// The block types with a kernel.
pub fn formats() -> impl Iterator<Item = &'static BlockFormat> {
    BlockFormat::all()
        .iter()
        .filter(|format| kernel::builds(format).is_ok())
}

impl Blocks {
    /// The same in every process.
    pub fn input(self) -> Buffer {
        let row = EXPONENTS
            .iter()
            .find(|(name, ..)| *name == self.format.name);
        let (_, places, exponent) =
            row.unwrap_or_else(|| panic!("no input for {}: add it to EXPONENTS", self.format.name));
        let size = self.format.block_bytes as usize;
        let mut blocks = Buffer::random(self.elements / self.format.block_len as usize * size);
        for block in blocks.chunks_mut(size) {
            places.iter().for_each(|&place| block[place] = *exponent);
        }
        blocks
    }

    pub fn ours(self, dtype: Dtype) -> Decode {
        let blocks = self.input();
        Decode::Into(Box::new(move |out| {
            kernel::dequantize(self.format, &blocks, dtype, out).expect("whole blocks");
        }))
    }

    /// By the build for one instruction set.
    pub fn build(self, isa: &str, dtype: Dtype) -> Decode {
        let (blocks, isa) = (self.input(), isa.to_owned());
        Decode::Into(Box::new(move |out| {
            kernel::dequantize_with(&isa, self.format, &blocks, dtype, out)
                .expect("a build of this machine");
        }))
    }

    /// The peer's kernels hand each block to a sink of the caller's, which copies it into the buffer
    /// here. How the sink is written decides what the compiler makes of some kernels (up to fourfold),
    /// so there are two, of which the faster counts.
    pub fn peer(self, dtype: Dtype) -> Vec<Decode> {
        let Some(&gguf_type) = GGUF_TYPES
            .iter()
            .find(|gguf_type| gguf_type.to_string() == self.format.name)
        else {
            return Vec::new();
        };
        let sinks = match dtype {
            Dtype::BF16 => [splitting::<Bf16Out>, indexing::<Bf16Out>],
            Dtype::F16 => [splitting::<F16Out>, indexing::<F16Out>],
            Dtype::F32 => [splitting::<F32Out>, indexing::<F32Out>],
            _ => return Vec::new(),
        };
        let decode = |sink: fn(GgufType, usize, &[u8], &mut [u8])| {
            let blocks = self.input();
            Decode::Into(Box::new(move |out| {
                sink(gguf_type, self.elements, &blocks, out)
            }))
        };
        sinks.map(decode).into()
    }

    /// `dequantize_row_*` of `ggml-quants.c`, which is what ggml's `to_float` points at. F32 only.
    pub fn ggml(self, library: &Path, dtype: Dtype) -> Option<Decode> {
        if dtype != Dtype::F32 {
            return None;
        }
        let symbol = format!(
            "dequantize_row_{}",
            self.format.name.to_lowercase().replace("_k", "_K")
        );
        // SAFETY: ggml.sh built it from C that runs nothing when it is loaded
        let library = Box::leak(Box::new(
            unsafe { Library::new(library) }.expect("ggml.sh built it"),
        ));
        type Row = unsafe extern "C" fn(*const u8, *mut f32, i64);
        // SAFETY: every `dequantize_row_*` has this signature, but for the pointer to its block struct
        let row: Symbol<Row> = unsafe { library.get(symbol.as_bytes()) }.ok()?;
        let blocks = self.input();
        Some(Decode::Into(Box::new(move |out| {
            assert_eq!(
                (out.len(), out.as_ptr().align_offset(4)),
                (self.elements * 4, 0)
            );
            // SAFETY: whole blocks for so many elements, and an aligned buffer that takes them
            unsafe {
                row(
                    blocks.as_ptr(),
                    out.as_mut_ptr().cast(),
                    self.elements as i64,
                )
            };
        })))
    }
}

fn splitting<E: OutputElement>(
    gguf_type: GgufType,
    elements: usize,
    blocks: &[u8],
    out: &mut [u8],
) {
    let mut rest = out;
    let sink = |block: &[u8]| {
        let (head, tail) = std::mem::take(&mut rest).split_at_mut(block.len());
        head.copy_from_slice(block);
        rest = tail;
        Ok(())
    };
    peer::dequantize_gguf_blocks::<E, _>(blocks, gguf_type, elements, sink).expect("whole blocks");
}

fn indexing<E: OutputElement>(gguf_type: GgufType, elements: usize, blocks: &[u8], out: &mut [u8]) {
    let mut at = 0;
    let sink = |block: &[u8]| {
        out[at..at + block.len()].copy_from_slice(block);
        at += block.len();
        Ok(())
    };
    peer::dequantize_gguf_blocks::<E, _>(blocks, gguf_type, elements, sink).expect("whole blocks");
}

#[rustfmt::skip]
static GGUF_TYPES: &[GgufType] = &[
    GgufType::Q4_0, GgufType::Q4_1, GgufType::Q5_0, GgufType::Q5_1, GgufType::Q8_0, GgufType::Q2_K, GgufType::Q3_K,
    GgufType::Q4_K, GgufType::Q5_K, GgufType::Q6_K, GgufType::Q8_K, GgufType::IQ2_XXS, GgufType::IQ2_XS,
    GgufType::IQ3_XXS, GgufType::IQ1_S, GgufType::IQ4_NL, GgufType::IQ3_S, GgufType::IQ2_S, GgufType::IQ4_XS,
    GgufType::IQ1_M, GgufType::TQ1_0, GgufType::TQ2_0, GgufType::MXFP4, GgufType::NVFP4, GgufType::Q1_0,
    GgufType::Q2_0,
];
