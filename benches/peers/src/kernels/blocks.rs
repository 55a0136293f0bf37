//! Inputs of ggml's block types, and the kernels that decode them.

use std::path::Path;

use anamnesis::{BlockFormat, Dtype, kernel};
use libloading::{Library, Symbol};
use peer::{Bf16Out, F16Out, F32Out, GgufType, OutputElement};

use super::buffer::Buffer;
use super::decoder::Decoder;

/// Number of elements whose blocks and output stay in the second-level cache.
const CACHE_RESIDENT: usize = 1 << 16;
/// Number of elements of a weight, whose output does not stay in that cache.
const WEIGHT_SIZED: usize = 8 << 20;

/// Types of the section `large`, with the names of their cases.
const LARGE: [(&str, &str); 4] = [
    ("Q4_0", "Q4_0, 8 Mi"),
    ("Q8_0", "Q8_0, 8 Mi"),
    ("Q4_K", "Q4_K, 8 Mi"),
    ("Q6_K", "Q6_K, 8 Mi"),
];

/// An input: a number of elements of one block type.
#[derive(Clone, Copy)]
pub struct Blocks {
    pub name: &'static str,
    pub format: &'static BlockFormat,
    pub elements: usize,
}

impl Blocks {
    pub fn cache_resident(format: &'static BlockFormat) -> Self {
        Self {
            name: format.name,
            format,
            elements: CACHE_RESIDENT,
        }
    }

    /// The inputs of the section `large`.
    pub fn weight_sized() -> impl Iterator<Item = Self> {
        formats().filter_map(|format| {
            let (_, name) = LARGE.iter().find(|(ty, _)| *ty == format.name)?;
            Some(Self {
                name,
                format,
                elements: WEIGHT_SIZED,
            })
        })
    }
}

/// Offsets in a block of the bytes that hold the exponents of its scales, and their value: random bytes would make NaN or
/// subnormal scales, which real weights do not have. All other bytes are random.
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
    ("MXFP4_OLLAMA", &[0], 0x7a),
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
    /// The blocks; the same in every process.
    pub fn input(self) -> Buffer {
        let row = EXPONENTS
            .iter()
            .find(|(name, ..)| *name == self.format.name);
        let (_, offsets, exponent) =
            row.unwrap_or_else(|| panic!("EXPONENTS has no row for {}", self.format.name));
        let size = self.format.block_bytes as usize;
        let mut blocks = Buffer::random(self.elements / self.format.block_len as usize * size);
        for block in blocks.chunks_mut(size) {
            offsets.iter().for_each(|&offset| block[offset] = *exponent);
        }
        blocks
    }

    pub fn ours(self, dtype: Dtype) -> Decoder {
        let blocks = self.input();
        Decoder::IntoBuffer(Box::new(move |out| {
            kernel::dequantize(self.format, &blocks, dtype, out).expect("whole blocks");
        }))
    }

    /// Our kernel for one instruction set.
    pub fn ours_for_isa(self, isa: &str, dtype: Dtype) -> Decoder {
        let (blocks, isa) = (self.input(), isa.to_owned());
        Decoder::IntoBuffer(Box::new(move |out| {
            kernel::dequantize_with(&isa, self.format, &blocks, dtype, out)
                .expect("the machine has the instruction set");
        }))
    }

    /// The unrelated crate passes each decoded block to a callback, which copies it into the buffer here. How the callback is
    /// written changes the speed of some of its kernels up to fourfold, so there are two, of which the faster counts.
    pub fn peer(self, dtype: Dtype) -> Vec<Decoder> {
        let Some(&gguf_type) = GGUF_TYPES
            .iter()
            .find(|gguf_type| gguf_type.to_string() == self.format.name)
        else {
            return Vec::new();
        };
        let sinks = match dtype {
            Dtype::BF16 => [copy_by_split::<Bf16Out>, copy_by_index::<Bf16Out>],
            Dtype::F16 => [copy_by_split::<F16Out>, copy_by_index::<F16Out>],
            Dtype::F32 => [copy_by_split::<F32Out>, copy_by_index::<F32Out>],
            _ => return Vec::new(),
        };
        let decode = |sink: fn(GgufType, usize, &[u8], &mut [u8])| {
            let blocks = self.input();
            Decoder::IntoBuffer(Box::new(move |out| {
                sink(gguf_type, self.elements, &blocks, out)
            }))
        };
        sinks.map(decode).into()
    }

    /// `dequantize_row_*` of `ggml-quants.c`, the functions behind ggml's `to_float`. F32 only.
    pub fn ggml(self, library: &Path, dtype: Dtype) -> Option<Decoder> {
        if dtype != Dtype::F32 {
            return None;
        }
        let symbol = format!(
            "dequantize_row_{}",
            self.format.name.to_lowercase().replace("_k", "_K")
        );
        // SAFETY: the library is plain C without constructors that run on loading
        let library = Box::leak(Box::new(
            unsafe { Library::new(library) }.expect("the library exists"),
        ));
        type DequantizeRow = unsafe extern "C" fn(*const u8, *mut f32, i64);
        // SAFETY: every `dequantize_row_*` has this signature, except for the type of the block pointer
        let row: Symbol<DequantizeRow> = unsafe { library.get(symbol.as_bytes()) }.ok()?;
        let blocks = self.input();
        Some(Decoder::IntoBuffer(Box::new(move |out| {
            assert_eq!(
                (out.len(), out.as_ptr().align_offset(4)),
                (self.elements * 4, 0)
            );
            // SAFETY: the input holds whole blocks of this many elements; the output is aligned and large enough
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

fn copy_by_split<E: OutputElement>(
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

fn copy_by_index<E: OutputElement>(
    gguf_type: GgufType,
    elements: usize,
    blocks: &[u8],
    out: &mut [u8],
) {
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
