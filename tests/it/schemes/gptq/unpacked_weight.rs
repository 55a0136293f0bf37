//! A weight with unpacked codes, and its storage in GPTQ and AWQ packing, written from the specifications of the formats.

use anamnesis::source::FnSource;
use anamnesis::{Checkpoint, Dtype, QuantConfig, remember};

use crate::support;
use crate::support::checkpoint_builder::CheckpointBuilder;
use crate::support::random::Random;

/// Codes `[inputs, outputs]`, scales and zero points `[groups, outputs]`; `g_idx` has the group of each input.
#[derive(Clone)]
pub(crate) struct UnpackedWeight {
    pub(crate) inputs: usize,
    pub(crate) outputs: usize,
    pub(crate) groups: usize,
    pub(crate) bits: u32,
    pub(crate) g_idx: Vec<usize>,
    pub(crate) codes: Vec<u32>,
    pub(crate) zero_points: Vec<u32>,
    pub(crate) scales: Vec<f32>,
    pub(crate) dtype: Dtype,
}

impl UnpackedWeight {
    pub(crate) fn new(
        random: &mut Random,
        inputs: usize,
        outputs: usize,
        group_size: usize,
        bits: u32,
        dtype: Dtype,
    ) -> Self {
        let groups = inputs.div_ceil(group_size);
        let scales = (0..groups * outputs).map(|_| {
            // exact in F32, F16 and BF16
            let scale = f32::from(u16::try_from(random.below(128) + 128).unwrap()) / 65536.0;
            if random.below(2) == 0 { scale } else { -scale }
        });
        let scales = scales.collect();
        Self {
            inputs,
            outputs,
            groups,
            bits,
            g_idx: (0..inputs).map(|k| k / group_size).collect(),
            codes: (0..inputs * outputs)
                .map(|_| random.below(1 << bits))
                .collect(),
            // version 1 stores the zero point 0 as the highest code, which implementations read differently
            zero_points: (0..groups * outputs)
                .map(|_| 1 + random.below((1 << bits) - 1))
                .collect(),
            scales,
            dtype,
        }
    }

    /// `w[o, i] = (q[i, o] - z[g, o]) * s[g, o]`.
    pub(crate) fn dequantised(&self) -> Vec<f32> {
        let element = |i: usize, o: usize| {
            let g = self.g_idx[i] * self.outputs + o;
            #[allow(clippy::cast_precision_loss)] // eight bits
            let difference = (i64::from(self.codes[i * self.outputs + o])
                - i64::from(self.zero_points[g])) as f32;
            difference * self.scales[g]
        };
        (0..self.outputs)
            .flat_map(|o| (0..self.inputs).map(move |i| (i, o)))
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

    /// GPTQ packing: codes packed along columns, zero points along rows. `zero_offset` is subtracted from stored zero points: 1 in
    /// version 1 of the format, 0 in version 2.
    pub(crate) fn gptq(
        &self,
        planar: bool,
        zero_offset: u32,
        with_g_idx: bool,
    ) -> CheckpointBuilder {
        let column = |o: usize| {
            (0..self.inputs)
                .map(|i| self.codes[i * self.outputs + o])
                .collect::<Vec<_>>()
        };
        let columns: Vec<Vec<u32>> = (0..self.outputs)
            .map(|o| packed(&column(o), self.bits, planar))
            .collect();
        let rows = columns[0].len();
        let qweight: Vec<u32> = (0..rows)
            .flat_map(|r| columns.iter().map(move |column| column[r]))
            .collect();
        let mut qzeros = Vec::new();
        for zero_points in self.zero_points.chunks(self.outputs) {
            let stored: Vec<u32> = zero_points
                .iter()
                .map(|z| z.wrapping_sub(zero_offset) & ((1 << self.bits) - 1))
                .collect();
            qzeros.extend(packed(&stored, self.bits, planar));
        }
        let checkpoint = CheckpointBuilder::default()
            .words("m.qweight", &[rows, self.outputs], &qweight)
            .words(
                "m.qzeros",
                &[self.groups, qzeros.len() / self.groups],
                &qzeros,
            )
            .with(
                "m.scales",
                self.dtype,
                &[self.groups, self.outputs],
                self.scale_bytes(&self.scales),
            );
        let groups: Vec<u32> = self
            .g_idx
            .iter()
            .map(|g| u32::try_from(*g).unwrap())
            .collect();
        if with_g_idx {
            checkpoint.words("m.g_idx", &[self.inputs], &groups)
        } else {
            checkpoint
        }
    }

    /// AWQ packing: codes and zero points packed along rows, each eight in this order.
    pub(crate) fn awq(&self, order: [usize; 8]) -> CheckpointBuilder {
        let row = |codes: &[u32]| {
            let ordered: Vec<u32> = codes
                .chunks(8)
                .flat_map(|eight| order.map(|i| eight[i]))
                .collect();
            packed(&ordered, self.bits, false)
        };
        let qweight: Vec<u32> = self.codes.chunks(self.outputs).flat_map(row).collect();
        let qzeros: Vec<u32> = self
            .zero_points
            .chunks(self.outputs)
            .flat_map(row)
            .collect();
        CheckpointBuilder::default()
            .words(
                "m.qweight",
                &[self.inputs, qweight.len() / self.inputs],
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
                &[self.groups, self.outputs],
                self.scale_bytes(&self.scales),
            )
    }
}

/// Packs codes into words, bit by bit. `planar`: the bits of each 32 codes are split into planes of 1, 2, 4 or 8 bits.
pub(crate) fn packed(codes: &[u32], bits: u32, planar: bool) -> Vec<u32> {
    let bits = bits as usize;
    // complete units of 32 codes, except for widths that divide a word
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
            let mut position = i * bits + bit;
            let mut plane_start = 0;
            for &plane in planes {
                if (plane_start..plane_start + plane).contains(&bit) {
                    let (unit, j) = (i / 32, i % 32);
                    position =
                        unit * 32 * bits + plane_start * 32 + j * plane + (bit - plane_start);
                }
                plane_start += plane;
            }
            words[position / 32] |= 1u32 << (position % 32);
        }
    }
    words
}

pub(crate) const NATURAL_ORDER: [usize; 8] = [0, 1, 2, 3, 4, 5, 6, 7];
pub(crate) const AWQ_ORDER: [usize; 8] = [0, 2, 4, 6, 1, 3, 5, 7];

pub(crate) fn config(config_json: &str) -> QuantConfig {
    QuantConfig::from_json(config_json.as_bytes()).unwrap()
}

/// Checks that the weight in F32, BF16 and F16, from mapped bytes and by reads, equals the formula rounded once.
pub(crate) fn check_dequantised(
    checkpoint: &CheckpointBuilder,
    config_json: &str,
    weight: &UnpackedWeight,
    scheme: &str,
    case: &str,
) {
    let expected = weight.dequantised();
    let bytes = checkpoint.bytes();
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
            let options = remember(&checkpoint)
                .config(config(config_json))
                .dtype(dtype);
            let plan = options.plan().unwrap();
            assert!(plan.refused.is_empty(), "{case}: {:?}", plan.refused);
            assert_eq!(plan.jobs[0].scheme, scheme, "{case}");
            let found = options
                .tensor("m.weight")
                .unwrap_or_else(|e| panic!("{case}: {e}"));
            assert_eq!(
                found.spec.shape[..],
                [weight.outputs as u64, weight.inputs as u64],
                "{case}"
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
                .unwrap_or_else(|e| panic!("{case} {dtype}: {e}"));
        }
    }
}
