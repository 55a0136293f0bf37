//! The table of ggml's block types: names, ids and block geometry.
//!
//! Source: `ggml.h` (`enum ggml_type`, ids 0 to 42) and `ggml-common.h` of llama.cpp; for type 4, which ggml removed before GGUF
//! existed, Ollama's `ml/backend/ggml/ggml.go`.

/// A ggml type that stores elements in blocks: `block_len` elements take `block_bytes` bytes.
///
/// ```
/// let q4_k = anamnesis_kernel::BlockFormat::from_name("Q4_K").unwrap();
/// assert_eq!((q4_k.ggml_type, q4_k.block_len, q4_k.block_bytes), (12, 256, 144));
/// ```
#[derive(Debug, PartialEq, Eq)]
pub struct BlockFormat {
    /// ggml's name, such as `Q4_K`.
    pub name: &'static str,
    /// ggml's type id.
    pub ggml_type: u32,
    /// Elements per block.
    pub block_len: u32,
    /// Bytes per block.
    pub block_bytes: u32,
    /// The effect of the importance of columns when elements are encoded as this type; `None` if [`quantize`](crate::quantize())
    /// does not encode it.
    pub importance: Option<Importance>,
}

/// The use of an importance matrix for a block type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Importance {
    /// It changes nothing.
    Unused,
    /// The searches for scales and codes weigh elements by it, if there is one.
    Optional,
    /// The type cannot be encoded without one.
    Required,
}

impl BlockFormat {
    /// The block type with this ggml type id.
    pub fn from_ggml(id: u32) -> Option<&'static Self> {
        // few rows, and searched once per tensor
        BLOCKS.iter().find(|b| b.ggml_type == id)
    }

    /// The block type with this name (exact spelling).
    pub fn from_name(name: &str) -> Option<&'static Self> {
        BLOCKS.iter().find(|b| b.name == name)
    }

    /// All block types, by increasing ggml id.
    pub fn all() -> &'static [Self] {
        BLOCKS
    }

    /// Reverses the bytes of every multi-byte field, which converts blocks of a big-endian GGUF file to little-endian ones
    /// and back. An incomplete block at the end is left as it is.
    pub fn swap_bytes(&self, blocks: &mut [u8]) {
        let fields = MULTI_BYTE_FIELDS
            .iter()
            .find(|row| row.0 == self.name)
            .map_or(&[][..], |row| row.1);
        // few files are big-endian, so this is not vectorised
        for block in blocks.chunks_exact_mut(self.block_bytes as usize) {
            for &(start, bytes, n) in fields {
                block[start..start + bytes * n]
                    .chunks_exact_mut(bytes)
                    .for_each(<[u8]>::reverse);
            }
        }
    }

    /// Stored bits per element.
    pub fn bits_per_element(&self) -> f64 {
        f64::from(self.block_bytes) * 8.0 / f64::from(self.block_len)
    }

    /// Bytes of `elements` elements; `None` if they do not fill whole blocks or the number exceeds 64 bits.
    pub fn nbytes(&self, elements: u64) -> Option<u64> {
        let len = u64::from(self.block_len);
        if !elements.is_multiple_of(len) {
            return None;
        }
        (elements / len).checked_mul(u64::from(self.block_bytes))
    }
}

macro_rules! blocks {
    ($($id:literal $name:literal $len:literal / $bytes:literal $importance:expr),* $(,)?) => {
        &[$(BlockFormat { name: $name, ggml_type: $id, block_len: $len, block_bytes: $bytes, importance: $importance }),*]
    };
}

/// Not encoded: types of activations, and one that ggml lacks.
const NONE: Option<Importance> = None;
const UNUSED: Option<Importance> = Some(Importance::Unused);
const OPTIONAL: Option<Importance> = Some(Importance::Optional);
const REQUIRED: Option<Importance> = Some(Importance::Required);

#[rustfmt::skip]
static BLOCKS: &[BlockFormat] = blocks![
    2 "Q4_0" 32/18 OPTIONAL, 3 "Q4_1" 32/20 OPTIONAL, 4 "MXFP4_OLLAMA" 32/17 NONE, 6 "Q5_0" 32/22 OPTIONAL,
    7 "Q5_1" 32/24 OPTIONAL, 8 "Q8_0" 32/34 UNUSED, 9 "Q8_1" 32/36 NONE,
    10 "Q2_K" 256/84 OPTIONAL, 11 "Q3_K" 256/110 OPTIONAL, 12 "Q4_K" 256/144 OPTIONAL, 13 "Q5_K" 256/176 OPTIONAL,
    14 "Q6_K" 256/210 OPTIONAL, 15 "Q8_K" 256/292 NONE,
    16 "IQ2_XXS" 256/66 REQUIRED, 17 "IQ2_XS" 256/74 REQUIRED, 18 "IQ3_XXS" 256/98 OPTIONAL, 19 "IQ1_S" 256/50 REQUIRED,
    20 "IQ4_NL" 32/18 OPTIONAL, 21 "IQ3_S" 256/110 OPTIONAL, 22 "IQ2_S" 256/82 OPTIONAL, 23 "IQ4_XS" 256/136 OPTIONAL,
    29 "IQ1_M" 256/56 OPTIONAL,
    34 "TQ1_0" 256/54 UNUSED, 35 "TQ2_0" 256/66 UNUSED, 39 "MXFP4" 32/17 UNUSED, 40 "NVFP4" 64/36 UNUSED,
    41 "Q1_0" 128/18 UNUSED, 42 "Q2_0" 64/18 UNUSED,
];

/// `(offset, bytes per number, count)`.
type Fields = &'static [(usize, usize, usize)];

/// The multi-byte fields of a block, as `ggml-common.h` declares them or, where it declares bytes, as `ggml-quants.c` reads
/// them. Types that are not listed have none.
#[rustfmt::skip]
static MULTI_BYTE_FIELDS: &[(&str, Fields)] = &[
    ("Q4_0", &[(0, 2, 1)]), ("Q4_1", &[(0, 2, 2)]), ("Q5_0", &[(0, 2, 1), (2, 4, 1)]),
    ("Q5_1", &[(0, 2, 2), (4, 4, 1)]), ("Q8_0", &[(0, 2, 1)]), ("Q8_1", &[(0, 2, 2)]),
    ("Q2_K", &[(80, 2, 2)]), ("Q3_K", &[(108, 2, 1)]), ("Q4_K", &[(0, 2, 2)]), ("Q5_K", &[(0, 2, 2)]),
    ("Q6_K", &[(208, 2, 1)]), ("Q8_K", &[(0, 4, 1), (260, 2, 16)]),
    ("IQ2_XXS", &[(0, 2, 33)]), ("IQ2_XS", &[(0, 2, 33)]), ("IQ2_S", &[(0, 2, 1)]),
    ("IQ3_XXS", &[(0, 2, 1), (66, 4, 8)]), ("IQ3_S", &[(0, 2, 1)]), ("IQ1_S", &[(0, 2, 1), (34, 2, 8)]),
    ("IQ1_M", &[(48, 2, 4)]), ("IQ4_NL", &[(0, 2, 1)]), ("IQ4_XS", &[(0, 2, 2)]),
    ("TQ1_0", &[(52, 2, 1)]), ("TQ2_0", &[(64, 2, 1)]), ("Q1_0", &[(0, 2, 1)]), ("Q2_0", &[(0, 2, 1)]),
];

/// Type ids that upstream ggml does not read, because it removed them or a fork uses them: `(id, name, origin)`.
static FOREIGN: &[(u32, &str, &str)] = &[
    (
        5,
        "Q4_3",
        "removed from ggml in 2023; convert it again from the original",
    ),
    (
        31,
        "Q4_0_4_4",
        "removed from ggml; requantise as Q4_0, which is repacked at load time",
    ),
    (
        32,
        "Q4_0_4_8",
        "removed from ggml; requantise as Q4_0, which is repacked at load time",
    ),
    (
        33,
        "Q4_0_8_8",
        "removed from ggml; requantise as Q4_0, which is repacked at load time",
    ),
    (
        36,
        "IQ4_NL_4_4 (or I2_S of the BitNet fork)",
        "removed from ggml; BitNet.cpp uses the id for I2_S",
    ),
    (37, "IQ4_NL_4_8", "removed from ggml; requantise as IQ4_NL"),
    (38, "IQ4_NL_8_8", "removed from ggml; requantise as IQ4_NL"),
    (66, "IQ1_XXXS", "Unsloth's fork of llama.cpp"),
    (133, "Q6_0", "ik_llama.cpp"),
    (134, "IQ1_BN", "ik_llama.cpp"),
    (135, "IQ2_BN", "ik_llama.cpp"),
    (137, "IQ2_K", "ik_llama.cpp"),
    (138, "IQ3_K", "ik_llama.cpp"),
    (139, "IQ4_K", "ik_llama.cpp"),
    (140, "IQ5_K", "ik_llama.cpp"),
    (141, "IQ6_K", "ik_llama.cpp"),
    (142, "PQ2_0", "PrismML's fork of llama.cpp"),
    (143, "PTQ1_0", "PrismML's fork of llama.cpp"),
    (144, "IQ4_KS", "ik_llama.cpp"),
    (145, "IQ2_KS", "ik_llama.cpp"),
    (146, "IQ4_KSS", "ik_llama.cpp"),
    (152, "IQ5_KS", "ik_llama.cpp"),
    (153, "IQ2_KT", "ik_llama.cpp"),
    (154, "IQ3_KT", "ik_llama.cpp"),
    (155, "IQ4_KT", "ik_llama.cpp"),
    (156, "IQ3_KS", "ik_llama.cpp"),
    (157, "IQ2_KL", "ik_llama.cpp"),
    (158, "IQ1_KT", "ik_llama.cpp"),
];

/// The highest id of upstream ggml: unread ids above it belong to forks, those below it were removed by ggml.
const LAST_UPSTREAM_ID: u32 = 42;

/// Describes a ggml type id that this crate does not read, for an error message.
pub fn describe_foreign(id: u32) -> String {
    match FOREIGN.iter().find(|f| f.0 == id) {
        Some((_, name, origin)) if id > LAST_UPSTREAM_ID => {
            format!(
                "ggml type {id} is {name} of {origin}: requantise it with upstream llama.cpp, or use that fork"
            )
        }
        Some((_, name, origin)) => format!("ggml type {id} is {name}, {origin}"),
        None => format!(
            "ggml type {id} is unknown: upstream ggml defines 0 to {LAST_UPSTREAM_ID}; a fork may use it"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ggml_type_numbers_ascend_and_names_are_unique() {
        for (i, a) in BLOCKS.iter().enumerate() {
            for b in &BLOCKS[i + 1..] {
                assert!(a.ggml_type < b.ggml_type && a.name != b.name);
            }
            assert!(FOREIGN.iter().all(|f| f.0 != a.ggml_type));
        }
    }
}
