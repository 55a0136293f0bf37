//! Encodes a file of F32 rows as a block type, for comparisons with other encoders.
//!
//! `encode_rows TYPE ROW_LEN ROWS IMPORTANCE|- OUT [INSTRUCTION_SET|best [REPEATS]]` reads little-endian F32, writes the
//! blocks, and prints the fewest seconds of the repeats.

use std::error::Error;
use std::fs;
use std::time::Instant;

use anamnesis_kernel::{BlockFormat, encoder_builds, quantize_with};

fn floats(path: &str) -> Result<Vec<f32>, Box<dyn Error>> {
    let bytes = fs::read(path)?;
    let (fours, _) = bytes.as_chunks::<4>();
    Ok(fours.iter().map(|x| f32::from_le_bytes(*x)).collect())
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [name, row_len, rows, importance, out, rest @ ..] = &arguments[..] else {
        return Err(
            "usage: encode_rows TYPE ROW_LEN ROWS IMPORTANCE|- OUT [ISA|best [REPEATS]]".into(),
        );
    };
    let format = BlockFormat::from_name(name).ok_or("no such type")?;
    let (rows, row_len) = (floats(rows)?, row_len.parse()?);
    let importance = match importance.as_str() {
        "-" => None,
        path => Some(floats(path)?),
    };
    let isa = match rest.first().map(String::as_str) {
        None | Some("best") => encoder_builds()[0],
        Some(isa) => isa,
    };
    let repeats = rest.get(1).map_or(Ok(1), |n| n.parse())?;
    let bytes = format
        .nbytes(rows.len() as u64)
        .ok_or("an incomplete block")?;
    let mut blocks = vec![0; usize::try_from(bytes)?];
    let mut best = f64::INFINITY;
    for _ in 0..repeats {
        let start = Instant::now();
        quantize_with(
            isa,
            format,
            &rows,
            row_len,
            importance.as_deref(),
            &mut blocks,
        )?;
        best = best.min(start.elapsed().as_secs_f64());
    }
    fs::write(out, blocks)?;
    println!("{best}");
    Ok(())
}
