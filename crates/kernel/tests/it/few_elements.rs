//! A few elements through every entry point and build, compared with the formula per code and with roundings of the crate
//! `half`. Small enough for Miri, which checks every memory access (`.ci/prove`).

use anamnesis_kernel::{
    BlockFormat, CodePacking, CodeValue, ColumnCodes, ColumnGeometry, ColumnGroups, Dtype, Formula,
    RowGeometry, builds, cast, dequantize, dequantize_columns, dequantize_rows, dequantize_with,
};

const DTYPES: [(Dtype, usize); 3] = [(Dtype::F32, 4), (Dtype::F16, 2), (Dtype::BF16, 2)];

/// A pseudo-random generator: a linear congruence.
fn random(seed: u32) -> impl FnMut() -> u32 {
    let mut state = u64::from(seed) + 1;
    move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        u32::try_from(state >> 33).expect("31 bits")
    }
}

fn bytes(seed: u32, n: usize) -> Vec<u8> {
    let mut random = random(seed);
    (0..n).map(|_| random().to_le_bytes()[1]).collect()
}

/// Whether `found` equals the elements, rounded to `dtype` by the crate `half`. NaNs count as equal.
fn equals_rounded(elements: &[f32], dtype: Dtype, found: &[u8]) -> bool {
    let item = found.len() / elements.len();
    elements
        .iter()
        .zip(found.chunks(item))
        .all(|(x, found)| match dtype {
            _ if x.is_nan() => true,
            Dtype::F32 => x.to_le_bytes() == found,
            Dtype::F16 => half::f16::from_f32(*x).to_le_bytes() == found,
            _ => half::bf16::from_f32(*x).to_le_bytes() == found,
        })
}

/// Whether two outputs are equal. NaNs count as equal.
fn equal_outputs(a: &[u8], b: &[u8], dtype: Dtype) -> bool {
    let item = if dtype == Dtype::F32 { 4 } else { 2 };
    let nan = |x: &[u8]| match *x {
        [a, b] if dtype == Dtype::F16 => half::f16::from_le_bytes([a, b]).is_nan(),
        [a, b] => half::bf16::from_le_bytes([a, b]).is_nan(),
        _ => f32::from_le_bytes(x.try_into().expect("four bytes")).is_nan(),
    };
    a.len() == b.len()
        && a.chunks(item)
            .zip(b.chunks(item))
            .all(|(a, b)| a == b || nan(a) && nan(b))
}

#[test]
fn a_block_decodes_the_same_alone_and_among_others_in_every_build() {
    let mut checked = 0;
    for format in BlockFormat::all() {
        let Ok(isas) = builds(format) else { continue };
        let (len, size) = (format.block_len as usize, format.block_bytes as usize);
        let blocks = bytes(format.ggml_type, 3 * size);
        for (dtype, item) in DTYPES {
            let mut best = vec![0; 3 * len * item];
            dequantize(format, &blocks, dtype, &mut best).unwrap();
            for isa in &isas {
                let (mut all, mut one) = (vec![0; 3 * len * item], vec![0; len * item]);
                dequantize_with(isa, format, &blocks, dtype, &mut all).unwrap();
                assert!(
                    equal_outputs(&all, &best, dtype),
                    "{} {dtype} {isa}",
                    format.name
                );
                for (block, all) in blocks.chunks(size).zip(all.chunks(len * item)) {
                    dequantize_with(isa, format, block, dtype, &mut one).unwrap();
                    assert!(
                        equal_outputs(&one, all, dtype),
                        "{} {dtype} {isa}",
                        format.name
                    );
                }
            }
            checked += 1;
        }
    }
    assert!(checked >= 60, "{checked} types and dtypes");
}

#[test]
fn cast_elements_are_rounded_as_by_half() {
    let mut random = random(1);
    let floats: Vec<f32> = (0..67).map(|_| f32::from_bits(random() << 1)).collect();
    let stored: Vec<u8> = floats.iter().flat_map(|x| x.to_le_bytes()).collect();
    for (dtype, item) in DTYPES {
        let mut out = vec![0; floats.len() * item];
        cast(Dtype::F32, &stored, dtype, &mut out).unwrap();
        assert!(equals_rounded(&floats, dtype, &out), "{dtype}");
    }
}

#[test]
fn dequantised_rows_equal_the_formula_per_code() {
    // longer than a vector of any width, and no multiple of one
    let (cols, count, group) = (67, 3, 16);
    let (codes, mut random) = (bytes(2, cols * count), random(3));
    let geometry = RowGeometry {
        cols,
        stride: cols,
        packing: CodePacking::Bytes,
        value: CodeValue::Unsigned,
        formula: Formula::ZeroScale,
        group,
        rows_per_factor: 1,
        rows_per_matrix: count,
        first: 0,
    };
    let mut factors = || {
        (0..geometry.groups() * count)
            .map(|_| f32::from_bits(0x3c00_0000 | random() >> 9))
            .collect()
    };
    let (scales, zeros): (Vec<f32>, Vec<f32>) = (factors(), factors());
    let group_of = |i: usize| i / cols * geometry.groups() + i % cols / group;
    let element =
        |(i, code): (usize, &u8)| (f32::from(*code) - zeros[group_of(i)]) * scales[group_of(i)];
    let expected: Vec<f32> = codes.iter().enumerate().map(element).collect();
    for (dtype, item) in DTYPES {
        let mut out = vec![0; cols * count * item];
        dequantize_rows(&geometry, &codes, &scales, &zeros, dtype, &mut out).unwrap();
        assert!(equals_rounded(&expected, dtype, &out), "{dtype}");
    }
}

#[test]
fn dequantised_columns_equal_the_formula_per_code() {
    let (count, depth, groups) = (19, 40, 5);
    let (codes, mut random) = (bytes(4, count * depth), random(5));
    let scales: Vec<f32> = (0..count * groups)
        .map(|_| f32::from_bits(0x3c00_0000 | random() >> 9))
        .collect();
    let geometry = ColumnGeometry {
        count,
        depth,
        stride: count,
        codes: ColumnCodes::Bytes,
        groups: ColumnGroups::Runs((1..=groups).map(|g| (g * depth / groups, g - 1)).collect()),
        scales: scales.clone(),
        // the kernel flips the sign bit of byte codes, so zero points count from 128
        zeros: vec![128.0 + 7.0; count * groups],
    };
    let element = |column: usize, row: usize| {
        let code = f32::from(codes[row * count + column].cast_signed());
        (code - 7.0) * scales[row * groups / depth * count + column]
    };
    let indices_of = |column: usize| (0..depth).map(move |row| (column, row));
    let expected: Vec<f32> = (0..count)
        .flat_map(indices_of)
        .map(|(column, row)| element(column, row))
        .collect();
    for (dtype, item) in DTYPES {
        let mut out = vec![0; count * depth * item];
        dequantize_columns(&geometry, &codes, dtype, &mut out).unwrap();
        assert!(equals_rounded(&expected, dtype, &out), "{dtype}");
    }
}
