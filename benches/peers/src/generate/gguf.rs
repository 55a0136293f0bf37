//! Writes a GGUF file with a tokenizer, whose long string arrays are most of a real header.

use std::io::{self, Write};

use anamnesis::BlockFormat;

use super::Random;

/// Vocabulary and tensors of a file.
pub struct GgufSpec {
    /// Number of tokens of the tokenizer.
    vocabulary: u64,
    tensors: Vec<(String, [u64; 2], &'static BlockFormat)>,
}

fn format(name: &str) -> &'static BlockFormat {
    BlockFormat::all()
        .iter()
        .find(|format| format.name == name)
        .expect("a block type of ggml")
}

/// Names and shapes like Llama's in Q4_0: 0.5 GB, or 1.7 GB dequantised to BF16.
pub fn llama(small: bool) -> GgufSpec {
    let (width, hidden, vocabulary, layers) = if small {
        (256, 512, 2048, 2)
    } else {
        (2048, 8704, 151_936, 9)
    };
    GgufSpec::new("Q4_0", width, hidden, vocabulary, layers)
}

/// The same with the shapes of a model of 7 billion weights: 4.3 GB.
pub fn large_llama(small: bool) -> GgufSpec {
    if small {
        return GgufSpec::new("Q4_0", 512, 1024, 2048, 4);
    }
    GgufSpec::new("Q4_0", 4096, 14_336, 151_936, 32)
}

impl GgufSpec {
    /// A model with `layers` layers, all tensors of one block type.
    fn new(block_type: &str, width: u64, hidden: u64, vocabulary: u64, layers: u64) -> Self {
        let kind = format(block_type);
        let mut tensors = vec![("token_embd.weight".to_owned(), [width, vocabulary], kind)];
        for layer in 0..layers {
            let parts = [
                ("attn_q", [width, width]),
                ("attn_k", [width, width / 4]),
                ("attn_v", [width, width / 4]),
                ("attn_output", [width, width]),
                ("ffn_gate", [width, hidden]),
                ("ffn_up", [width, hidden]),
                ("ffn_down", [hidden, width]),
            ];
            tensors.extend(
                parts.map(|(part, shape)| (format!("blk.{layer}.{part}.weight"), shape, kind)),
            );
        }
        Self {
            vocabulary,
            tensors,
        }
    }

    /// Size of all tensors in bytes.
    #[cfg(test)]
    pub fn data(&self) -> u64 {
        self.tensors
            .iter()
            .map(|(_, shape, kind)| bytes(shape, kind))
            .sum()
    }

    /// Writes the header and random blocks.
    pub fn write(&self, to: &mut impl Write) -> io::Result<()> {
        to.write_all(&self.header())?;
        let mut random = Random(1);
        for (_, shape, kind) in &self.tensors {
            let size = kind.block_bytes as usize;
            let mut many = vec![0; size * 4096];
            let mut left = bytes(shape, kind);
            while left > 0 {
                let n = left.min(many.len() as u64) as usize;
                many[..n].chunks_mut(8).for_each(|eight| {
                    eight.copy_from_slice(&random.next().to_le_bytes()[..eight.len()])
                });
                // byte 1 has the exponent of Q4_0's F16 scale: 0x28 makes it neither NaN nor subnormal
                many[..n].chunks_mut(size).for_each(|block| block[1] = 0x28);
                to.write_all(&many[..n])?;
                left -= n as u64;
            }
            to.write_all(&vec![
                0;
                (bytes(shape, kind).next_multiple_of(32) - bytes(shape, kind))
                    as usize
            ])?;
        }
        Ok(())
    }

    fn header(&self) -> Vec<u8> {
        let mut out = b"GGUF".to_vec();
        let text = |out: &mut Vec<u8>, text: &str| {
            out.extend((text.len() as u64).to_le_bytes());
            out.extend(text.as_bytes());
        };
        let array = |out: &mut Vec<u8>, key: &str, kind: u32| {
            text(out, key);
            out.extend(9_u32.to_le_bytes());
            out.extend(kind.to_le_bytes());
            out.extend(self.vocabulary.to_le_bytes());
        };
        out.extend(3_u32.to_le_bytes());
        out.extend((self.tensors.len() as u64).to_le_bytes());
        out.extend(6_u64.to_le_bytes()); // number of metadata entries
        for (key, value) in [
            ("general.architecture", "llama"),
            ("tokenizer.ggml.model", "gpt2"),
        ] {
            text(&mut out, key);
            out.extend(8_u32.to_le_bytes());
            text(&mut out, value);
        }
        let mut random = Random(7);
        let tokens: Vec<String> = (0..self.vocabulary)
            .map(|nth| token(nth, &mut random))
            .collect();
        array(&mut out, "tokenizer.ggml.tokens", 8);
        tokens.iter().for_each(|token| text(&mut out, token));
        array(&mut out, "tokenizer.ggml.scores", 6);
        (0..self.vocabulary).for_each(|nth| out.extend((nth as f32).to_le_bytes()));
        array(&mut out, "tokenizer.ggml.token_type", 5);
        (0..self.vocabulary).for_each(|_| out.extend(1_i32.to_le_bytes()));
        array(&mut out, "tokenizer.ggml.merges", 8);
        for (nth, left) in tokens.iter().enumerate() {
            text(
                &mut out,
                &format!("{left} {}", tokens[nth * 7 % tokens.len()]),
            );
        }
        let mut at = 0;
        for (name, shape, kind) in &self.tensors {
            text(&mut out, name);
            out.extend(2_u32.to_le_bytes());
            shape.iter().for_each(|side| out.extend(side.to_le_bytes()));
            out.extend(kind.ggml_type.to_le_bytes());
            out.extend(u64::to_le_bytes(at));
            at += bytes(shape, kind).next_multiple_of(32);
        }
        out.resize(out.len().next_multiple_of(32), 0);
        out
    }
}

fn bytes(shape: &[u64; 2], kind: &BlockFormat) -> u64 {
    shape.iter().product::<u64>() / u64::from(kind.block_len) * u64::from(kind.block_bytes)
}

fn token(nth: u64, random: &mut Random) -> String {
    let len = 1 + random.next() % 10;
    let letters: String = (0..len)
        .map(|_| (b'a' + (random.next() % 26) as u8) as char)
        .collect();
    format!("{letters}{nth}")
}
