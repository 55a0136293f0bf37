//! File types: the type of most weights of a GGUF, its `general.file_type`.
//!
//! Source: `llama_ftype` in `llama.h`; `src/llama-quant.cpp` of llama.cpp for the types of tensors.

/// The name of a choice of types, such as `q4_k_m`: `general.file_type` of the GGUF.
///
/// ```
/// use anamnesis::FileType;
///
/// let q4_k = FileType::from_name("q4_k").unwrap();
/// assert_eq!((q4_k.name, q4_k.number, q4_k.tensor_type), ("Q4_K_M", 15, "Q4_K"));
/// ```
#[derive(Debug, PartialEq, Eq)]
pub struct FileType {
    /// Its name, in capitals.
    pub name: &'static str,
    /// Its number, `general.file_type`.
    pub number: u32,
    /// ggml's type of most of its weights.
    pub tensor_type: &'static str,
}

impl FileType {
    /// The file type of this name, in any case of letters. `Q3_K`, `Q4_K` and `Q5_K` are the `_M` ones, as for llama-quantize.
    pub fn from_name(name: &str) -> Option<&'static Self> {
        let name = name.to_ascii_uppercase();
        let name = match &*name {
            "Q3_K" | "Q4_K" | "Q5_K" => [&*name, "_M"].concat(),
            _ => name,
        };
        FILE_TYPES.iter().find(|row| row.name == name)
    }

    /// The file type of this number.
    pub(crate) fn from_number(number: u64) -> Option<&'static Self> {
        FILE_TYPES
            .iter()
            .find(|row| u64::from(row.number) == number)
    }

    /// All file types, by their numbers.
    pub fn all() -> &'static [Self] {
        FILE_TYPES
    }

    /// The file type that llama.cpp guesses for a file most of whose tensors have this type.
    pub(crate) fn of_most(kind: &str) -> Option<&'static Self> {
        // the middle one where there are several; two types are called otherwise than the file types that begin with them
        let name = match kind {
            "Q3_K" | "Q4_K" | "Q5_K" => return Self::from_name(kind),
            "MXFP4" => "MXFP4_MOE",
            other => other,
        };
        FILE_TYPES.iter().find(|row| row.name == name)
    }

    /// Whether weights keep or get whole numbers of bytes for an element: no tensor gets a type of its own.
    pub(crate) fn is_plain(&self) -> bool {
        matches!(self.tensor_type, "F32" | "F16" | "BF16")
    }
}

macro_rules! file_types {
    ($($number:literal $name:literal $kind:literal),* $(,)?) => {
        &[$(FileType { name: $name, number: $number, tensor_type: $kind }),*]
    };
}

/// 4 (Q4_1 with some F16), 5 and 6 (Q4_2, Q4_3) are commented out in llama.h as removed; 33 to 35 were the repacked Q4_0_4_4, Q4_0_4_8
/// and Q4_0_8_8, which llama.cpp now makes when it loads Q4_0. `IQ2_S` really has the type below it, and `IQ2_M` the one of its name. 39 (NVFP4) is the type of tensors, not of a file.
static FILE_TYPES: &[FileType] = file_types![
    0 "F32" "F32", 1 "F16" "F16", 2 "Q4_0" "Q4_0", 3 "Q4_1" "Q4_1", 7 "Q8_0" "Q8_0", 8 "Q5_0" "Q5_0", 9 "Q5_1" "Q5_1",
    10 "Q2_K" "Q2_K", 11 "Q3_K_S" "Q3_K", 12 "Q3_K_M" "Q3_K", 13 "Q3_K_L" "Q3_K", 14 "Q4_K_S" "Q4_K", 15 "Q4_K_M" "Q4_K",
    16 "Q5_K_S" "Q5_K", 17 "Q5_K_M" "Q5_K", 18 "Q6_K" "Q6_K", 19 "IQ2_XXS" "IQ2_XXS", 20 "IQ2_XS" "IQ2_XS",
    21 "Q2_K_S" "Q2_K", 22 "IQ3_XS" "IQ3_S", 23 "IQ3_XXS" "IQ3_XXS", 24 "IQ1_S" "IQ1_S", 25 "IQ4_NL" "IQ4_NL",
    26 "IQ3_S" "IQ3_S", 27 "IQ3_M" "IQ3_S", 28 "IQ2_S" "IQ2_XS", 29 "IQ2_M" "IQ2_S", 30 "IQ4_XS" "IQ4_XS",
    31 "IQ1_M" "IQ1_M", 32 "BF16" "BF16", 36 "TQ1_0" "TQ1_0", 37 "TQ2_0" "TQ2_0", 38 "MXFP4_MOE" "MXFP4", 40 "Q1_0" "Q1_0",
    41 "Q2_0" "Q2_0",
];
