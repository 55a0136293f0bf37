//! Patterns for tensor names.

/// Whether `name` matches `pattern`, in which `*` stands for any characters and `?` for one. Takes
/// at most time proportional to the product of the lengths.
pub(super) fn matches(pattern: &str, name: &str) -> bool {
    // Most patterns are `*text*`, which a substring search decides.
    let part = pattern
        .strip_prefix('*')
        .and_then(|rest| rest.strip_suffix('*'));
    if let Some(part) = part.filter(|part| !part.contains(['*', '?'])) {
        return name.contains(part);
    }
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    let (mut p, mut n) = (0, 0);
    let mut star = None; // after the last `*`: pattern index, name index to retry from
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                p += 1;
                star = Some((p, n));
            }
            Some(&c) if c == b'?' || c == name[n] => {
                p += 1;
                n += 1;
            }
            _ => {
                let Some((after, tried)) = star else {
                    return false;
                };
                // only the last `*` is retried: whatever an earlier one could match, the later one can, too
                star = Some((after, tried + 1));
                (p, n) = (after, tried + 1);
            }
        }
    }
    pattern[p..].iter().all(|&c| c == b'*')
}

#[cfg(test)]
mod tests {
    use super::matches;
    use proptest::prelude::*;

    fn naive(pattern: &[u8], name: &[u8]) -> bool {
        match (pattern, name) {
            ([], []) => true,
            ([b'*', p @ ..], n) => naive(p, n) || !n.is_empty() && naive(pattern, &n[1..]),
            ([b'?', p @ ..], [_, n @ ..]) => naive(p, n),
            ([a, p @ ..], [b, n @ ..]) => a == b && naive(p, n),
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn matches_equals_the_recursive_definition(pattern in "[ab*?]{0,8}", name in "[ab]{0,10}") {
            prop_assert_eq!(matches(&pattern, &name), naive(pattern.as_bytes(), name.as_bytes()));
        }
    }
}
