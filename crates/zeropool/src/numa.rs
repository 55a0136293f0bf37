//! Which memory nodes this machine has.

/// Nodes with memory, in order; empty where the system does not say.
pub(crate) fn nodes() -> Vec<u32> {
    let list = std::fs::read_to_string("/sys/devices/system/node/has_memory");
    list.map(|list| parse(&list)).unwrap_or_default()
}

/// A list as in `0-2,5`.
fn parse(list: &str) -> Vec<u32> {
    let mut nodes = Vec::new();
    for part in list.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.parse(), last.parse::<u32>()) {
            // the kernel knows at most 1024
            nodes.extend((first..=last).take(1024));
        }
    }
    nodes
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn lists() {
        assert_eq!(parse("0\n"), [0]);
        assert_eq!(parse("0-2,5\n"), [0, 1, 2, 5]);
        assert!(parse("\n").is_empty());
        assert!(parse("x-y").is_empty());
    }
}
