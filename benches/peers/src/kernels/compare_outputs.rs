//! Compares two decoded outputs element by element.

use anamnesis::Dtype;

/// `None` if they are bit-identical, else the number of elements that differ and the largest distance in ulp.
pub fn difference(dtype: Dtype, ours: &[u8], other: &[u8]) -> Option<String> {
    if ours == other {
        return None;
    }
    if ours.len() != other.len() {
        return Some(format!("{} bytes, ours has {}", other.len(), ours.len()));
    }
    let width = dtype.item_bytes().expect("a dtype of whole bytes") as usize;
    let pairs = ours.chunks_exact(width).zip(other.chunks_exact(width));
    let distances: Vec<u64> = pairs
        .filter(|(a, b)| a != b)
        .map(|(a, b)| ordinal(a).abs_diff(ordinal(b)))
        .collect();
    let most = distances.iter().max().copied().unwrap_or(0);
    Some(format!(
        "{} of {} elements differ by at most {most} ulp",
        distances.len(),
        ours.len() / width
    ))
}

/// A float's position in the order of all floats of its width: neighbours are 1 apart, both zeros are at 0.
fn ordinal(element: &[u8]) -> i64 {
    let unused_bits = 64 - 8 * element.len();
    let mut bytes = [0; 8];
    bytes[8 - element.len()..].copy_from_slice(element);
    let bits = i64::from_le_bytes(bytes) >> unused_bits;
    if bits < 0 {
        (i64::MIN >> unused_bits) - bits
    } else {
        bits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_counted_across_zero() {
        let bytes = |floats: [f32; 3]| floats.map(f32::to_le_bytes).as_flattened().to_vec();
        let ours = bytes([1.0, -0.0, -1.5]);
        assert_eq!(difference(Dtype::F32, &ours, &ours), None);
        let other = bytes([1.0_f32.next_up(), 0.0_f32.next_up(), -1.5]);
        let text = difference(Dtype::F32, &ours, &other).unwrap();
        assert_eq!(text, "2 of 3 elements differ by at most 1 ulp");
        let other = bytes([1.0, 0.0_f32.next_down().next_down(), -1.5]);
        let text = difference(Dtype::F32, &ours, &other).unwrap();
        assert_eq!(text, "1 of 3 elements differ by at most 2 ulp");
        assert!(difference(Dtype::F32, &ours, &other[4..]).is_some());
    }

    #[test]
    fn halves_are_ordered_like_singles() {
        let text = difference(Dtype::BF16, &[0x80, 0xbf], &[0x82, 0xbf]).unwrap();
        assert_eq!(text, "1 of 1 elements differ by at most 2 ulp");
    }
}
