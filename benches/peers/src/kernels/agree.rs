//! Whether two decodings are the same numbers.

use anamnesis::Dtype;

/// `None` if they are equal bit for bit, else how many elements differ, and by how much.
pub fn difference(dtype: Dtype, ours: &[u8], other: &[u8]) -> Option<String> {
    if ours == other {
        return None;
    }
    if ours.len() != other.len() {
        return Some(format!("{} bytes, ours are {}", other.len(), ours.len()));
    }
    let width = dtype.item_bytes().expect("whole bytes") as usize;
    let pairs = ours.chunks_exact(width).zip(other.chunks_exact(width));
    let steps: Vec<u64> = pairs
        .filter(|(a, b)| a != b)
        .map(|(a, b)| place(a).abs_diff(place(b)))
        .collect();
    let most = steps.iter().max().copied().unwrap_or(0);
    Some(format!(
        "{} of {} differ, by at most {most} in the last place",
        steps.len(),
        ours.len() / width
    ))
}

/// A float's place in the order of floats: neighbours are one apart, both zeros are at 0.
fn place(element: &[u8]) -> i64 {
    let above = 64 - 8 * element.len();
    let mut bytes = [0; 8];
    bytes[8 - element.len()..].copy_from_slice(element);
    let bits = i64::from_le_bytes(bytes) >> above;
    if bits < 0 {
        (i64::MIN >> above) - bits
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
        let said = difference(Dtype::F32, &ours, &other).unwrap();
        assert_eq!(said, "2 of 3 differ, by at most 1 in the last place");
        let other = bytes([1.0, 0.0_f32.next_down().next_down(), -1.5]);
        let said = difference(Dtype::F32, &ours, &other).unwrap();
        assert_eq!(said, "1 of 3 differ, by at most 2 in the last place");
        assert!(difference(Dtype::F32, &ours, &other[4..]).is_some());
    }

    #[test]
    fn halves_are_ordered_too() {
        let said = difference(Dtype::BF16, &[0x80, 0xbf], &[0x82, 0xbf]).unwrap();
        assert_eq!(said, "1 of 1 differ, by at most 2 in the last place");
    }
}
