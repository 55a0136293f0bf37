//! Natural sort: numbers in names compare as numbers.

use std::cmp::Ordering;

/// Compares names with the numbers in them as numbers: `layers.2` before `layers.10`.
///
/// ```
/// let mut names = ["layers.10.w", "layers.2.w", "embed"];
/// names.sort_by(|a, b| anamnesis::catalog::natural_order(a, b));
/// assert_eq!(names, ["embed", "layers.2.w", "layers.10.w"]);
/// ```
pub fn natural_order(a: &str, b: &str) -> Ordering {
    let (mut x, mut y) = (a.as_bytes(), b.as_bytes());
    while let ([p, ..], [q, ..]) = (x, y) {
        if p.is_ascii_digit() && q.is_ascii_digit() {
            let (m, n) = (number(&mut x), number(&mut y));
            // without leading zeros, the longer number is the larger: no conversion, so numbers of any length compare
            match m.len().cmp(&n.len()).then_with(|| m.cmp(n)) {
                Ordering::Equal => continue,
                unequal => return unequal,
            }
        }
        match p.cmp(q) {
            Ordering::Equal => (x, y) = (&x[1..], &y[1..]),
            unequal => return unequal,
        }
    }
    // names that differ in leading zeros only still have a fixed order, so that sorting is deterministic
    x.len().cmp(&y.len()).then_with(|| a.cmp(b))
}

/// Splits the digits off the start of `text` and returns them without leading zeros.
fn number<'a>(text: &mut &'a [u8]) -> &'a [u8] {
    let end = text
        .iter()
        .position(|c| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    *text = rest;
    let zeros = digits.iter().take_while(|c| **c == b'0').count();
    &digits[zeros..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_names_compare_as_numbers() {
        let mut names = ["l.10.w", "l.2.w", "l.02.w", "l.2", "l", "k.9"];
        names.sort_by(|a, b| natural_order(a, b));
        assert_eq!(names, ["k.9", "l", "l.2", "l.02.w", "l.2.w", "l.10.w"]);
    }
}
