//! A weight as its specification has it, stored as GPTQ and AWQ store it.

use anamnesis::source::FnSource;
use anamnesis::{Checkpoint, Dtype, QuantConfig, remember};

use crate::support;
use crate::support::checkpoint_builder::CheckpointBuilder;
use crate::support::random::Random;

/// A weight, as its scheme sees it: codes `[in, out]`, scales and zero points `[groups, out]`.
#[derive(Clone)]
pub(crate) struct UnpackedWeight {
    pub(crate) depth: usize,
    pub(crate) out: usize,
    pub(crate) groups: usize,
    pub(crate) bits: u32,
    pub(crate) index: Vec<usize>,
    pub(crate) codes: Vec<u32>,
    pub(crate) zeros: Vec<u32>,
    pub(crate) scales: Vec<f32>,
    pub(crate) dtype: Dtype,
}

impl UnpackedWeight {
    pub(crate) fn new(
        random: &mut Random,
        depth: usize,
        out: usize,
        group: usize,
        bits: u32,
        dtype: Dtype,
    ) -> Self {
        let groups = depth.div_ceil(group);
        let scales = (0..groups * out).map(|_| {
            // exact in all three dtypes
            let scale = f32::from(u16::try_from(random.below(128) + 128).unwrap()) / 65536.0;
            if random.below(2) == 0 { scale } else { -scale }
        });
        let scales = scales.collect();
        Self {
            depth,
            out,
            groups,
            bits,
            index: (0..depth).map(|k| k / group).collect(),
            codes: (0..depth * out).map(|_| random.below(1 << bits)).collect(),
            // the highest is another test's
            zeros: (0..groups * out)
                .map(|_| 1 + random.below((1 << bits) - 1))
                .collect(),
            scales,
            dtype,
        }
    }

    /// `w[o, i] = (q[i, o] - z[g, o]) * s[g, o]`.
    pub(crate) fn weight(&self) -> Vec<f32> {
        let element = |i: usize, o: usize| {
            let g = self.index[i] * self.out + o;
            #[allow(clippy::cast_precision_loss)] // eight bits
            let difference =
                (i64::from(self.codes[i * self.out + o]) - i64::from(self.zeros[g])) as f32;
            difference * self.scales[g]
        };
        (0..self.out)
            .flat_map(|o| (0..self.depth).map(move |i| (i, o)))
            .map(|(i, o)| element(i, o))
            .collect()
    }

    pub(crate) fn scale_bytes(&self, scales: &[f32]) -> Vec<u8> {
        scales
            .iter()
            .flat_map(|s| match self.dtype {
                Dtype::F32 => s.to_le_bytes().to_vec(),
                Dtype::F16 => half::f16::from_f32(*s).to_le_bytes().to_vec(),
                _ => half::bf16::from_f32(*s).to_le_bytes().to_vec(),
            })
            .collect()
    }

    /// Codes down the columns, zero points along the rows.
    pub(crate) fn gptq(&self, planar: bool, less: u32, index: bool) -> CheckpointBuilder {
        let column = |o: usize| {
            (0..self.depth)
                .map(|i| self.codes[i * self.out + o])
                .collect::<Vec<_>>()
        };
        let columns: Vec<Vec<u32>> = (0..self.out)
            .map(|o| packed(&column(o), self.bits, planar))
            .collect();
        let rows = columns[0].len();
        let qweight: Vec<u32> = (0..rows)
            .flat_map(|r| columns.iter().map(move |column| column[r]))
            .collect();
        let mut qzeros = Vec::new();
        for zeros in self.zeros.chunks(self.out) {
            let stored: Vec<u32> = zeros
                .iter()
                .map(|z| z.wrapping_sub(less) & ((1 << self.bits) - 1))
                .collect();
            qzeros.extend(packed(&stored, self.bits, planar));
        }
        let made = CheckpointBuilder::default()
            .words("m.qweight", &[rows, self.out], &qweight)
            .words(
                "m.qzeros",
                &[self.groups, qzeros.len() / self.groups],
                &qzeros,
            )
            .with(
                "m.scales",
                self.dtype,
                &[self.groups, self.out],
                self.scale_bytes(&self.scales),
            );
        let groups: Vec<u32> = self
            .index
            .iter()
            .map(|g| u32::try_from(*g).unwrap())
            .collect();
        if index {
            made.words("m.g_idx", &[self.depth], &groups)
        } else {
            made
        }
    }

    /// Codes and zero points along the rows, each eight of them in this order.
    pub(crate) fn awq(&self, order: [usize; 8]) -> CheckpointBuilder {
        let row = |codes: &[u32]| {
            let ordered: Vec<u32> = codes
                .chunks(8)
                .flat_map(|eight| order.map(|i| eight[i]))
                .collect();
            packed(&ordered, self.bits, false)
        };
        let qweight: Vec<u32> = self.codes.chunks(self.out).flat_map(row).collect();
        let qzeros: Vec<u32> = self.zeros.chunks(self.out).flat_map(row).collect();
        CheckpointBuilder::default()
            .words(
                "m.qweight",
                &[self.depth, qweight.len() / self.depth],
                &qweight,
            )
            .words(
                "m.qzeros",
                &[self.groups, qzeros.len() / self.groups],
                &qzeros,
            )
            .with(
                "m.scales",
                self.dtype,
                &[self.groups, self.out],
                self.scale_bytes(&self.scales),
            )
    }
}

/// Codes as words: each bit of each code put where the specification has it.
pub(crate) fn packed(codes: &[u32], bits: u32, planar: bool) -> Vec<u32> {
    let bits = bits as usize;
    // whole units of 32 codes, but for widths that divide a word
    let count = match bits {
        2 | 4 | 8 => (codes.len() * bits).div_ceil(32),
        _ => codes.len().div_ceil(32) * bits,
    };
    let planes: &[usize] = match (planar, bits) {
        (false, _) => &[],
        (_, 2) => &[2],
        (_, 3) => &[2, 1],
        (_, 4) => &[4],
        (_, 5) => &[4, 1],
        (_, 6) => &[4, 2],
        (_, 7) => &[4, 2, 1],
        _ => &[8],
    };
    let mut words = vec![0; count];
    for (i, code) in codes.iter().enumerate() {
        for bit in (0..bits).filter(|bit| code >> bit & 1 == 1) {
            let mut at = i * bits + bit;
            let mut below = 0;
            for &plane in planes {
                if (below..below + plane).contains(&bit) {
                    let (unit, j) = (i / 32, i % 32);
                    at = unit * 32 * bits + below * 32 + j * plane + (bit - below);
                }
                below += plane;
            }
            words[at / 32] |= 1u32 << (at % 32);
        }
    }
    words
}

pub(crate) const NATURAL: [usize; 8] = [0, 1, 2, 3, 4, 5, 6, 7];
pub(crate) const AWQ: [usize; 8] = [0, 2, 4, 6, 1, 3, 5, 7];

pub(crate) fn config(text: &str) -> QuantConfig {
    QuantConfig::from_json(text.as_bytes()).unwrap()
}

/// The weight in all three dtypes, borrowed from memory and read, equals the formula rounded once.
pub(crate) fn check(
    made: &CheckpointBuilder,
    text: &str,
    plain: &UnpackedWeight,
    scheme: &str,
    what: &str,
) {
    let expected = plain.weight();
    let bytes = made.bytes();
    let read = {
        let bytes = bytes.clone();
        move |at: u64, buf: &mut [u8]| -> std::io::Result<()> {
            let at = usize::try_from(at).unwrap();
            buf.copy_from_slice(&bytes[at..at + buf.len()]);
            Ok(())
        }
    };
    let len = bytes.len() as u64;
    for checkpoint in [
        Checkpoint::from_bytes(bytes).unwrap(),
        Checkpoint::from_source(FnSource::new(len, read)).unwrap(),
    ] {
        for dtype in [Dtype::F32, Dtype::BF16, Dtype::F16] {
            let ours = remember(&checkpoint).config(config(text)).dtype(dtype);
            let plan = ours.plan().unwrap();
            assert!(plan.refused.is_empty(), "{what}: {:?}", plan.refused);
            assert_eq!(plan.jobs[0].scheme, scheme, "{what}");
            let found = ours
                .tensor("m.weight")
                .unwrap_or_else(|e| panic!("{what}: {e}"));
            assert_eq!(
                found.spec.shape[..],
                [plain.out as u64, plain.depth as u64],
                "{what}"
            );
            let bytes: Vec<u8> = match dtype {
                Dtype::F32 => expected.iter().flat_map(|x| x.to_le_bytes()).collect(),
                Dtype::BF16 => expected
                    .iter()
                    .flat_map(|x| half::bf16::from_f32(*x).to_le_bytes())
                    .collect(),
                _ => expected
                    .iter()
                    .flat_map(|x| half::f16::from_f32(*x).to_le_bytes())
                    .collect(),
            };
            support::compare_bits(&found.bytes, &bytes, dtype)
                .unwrap_or_else(|e| panic!("{what} {dtype}: {e}"));
        }
    }
}
