//! The filter expression that the kernel evaluates before it writes a sample.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fmt::Write;

use crate::event::Inode;

/// Maximum length of a filter in bytes. The kernel accepts up to a page.
const MAX_LEN: usize = 3800;
/// Maximum number of terms per device. Each costs time at every event of files that are not watched.
const MAX_TERMS: usize = 100;

/// A filter that passes these files and as few others as its length permits. The consumer has to discard samples of the
/// others. `files` must not be empty.
pub(crate) fn build(files: &[Inode]) -> CString {
    let mut devices = BTreeMap::<u64, Vec<u64>>::new();
    for file in files {
        devices.entry(file.dev).or_default().push(file.ino);
    }
    let mut terms = MAX_TERMS;
    loop {
        let text = expression(&mut devices, terms);
        if text.len() <= MAX_LEN {
            return CString::new(text).expect("numbers and operators have no NUL");
        }
        if terms == 1 {
            // too many devices for a term each
            let (first, last) = (devices.keys().next(), devices.keys().last());
            let text = format!(
                "s_dev >= {} && s_dev <= {}",
                first.unwrap_or(&0),
                last.unwrap_or(&0)
            );
            return CString::new(text).expect("numbers and operators have no NUL");
        }
        // coarser until it fits: wider ranges of inodes pass more files
        terms /= 2;
    }
}

fn expression(devices: &mut BTreeMap<u64, Vec<u64>>, terms: usize) -> String {
    let mut text = String::new();
    for (dev, inodes) in devices {
        inodes.sort_unstable();
        inodes.dedup();
        let or = if text.is_empty() { "" } else { " || " };
        // writing to a string does not fail
        let _ = write!(text, "{or}(s_dev == {dev} && (");
        for (at, (first, last)) in ranges(inodes, terms).into_iter().enumerate() {
            let or = if at == 0 { "" } else { " || " };
            let _ = match first == last {
                true => write!(text, "{or}i_ino == {first}"),
                false => write!(text, "{or}(i_ino >= {first} && i_ino <= {last})"),
            };
        }
        text.push_str("))");
    }
    text
}

/// Covers the sorted numbers by at most `max` ranges, which are separated at the widest gaps.
fn ranges(sorted: &[u64], max: usize) -> Vec<(u64, u64)> {
    let mut gaps: Vec<_> = (1..sorted.len()).collect();
    // the widest gaps exclude the most inodes that are not watched
    gaps.sort_by_key(|&at| std::cmp::Reverse(sorted[at] - sorted[at - 1]));
    gaps.truncate(max - 1);
    gaps.retain(|&at| sorted[at] - sorted[at - 1] > 1);
    gaps.sort_unstable();
    gaps.push(sorted.len());
    let mut start = 0;
    gaps.into_iter()
        .map(|end| (sorted[std::mem::replace(&mut start, end)], sorted[end - 1]))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(dev: u64, inodes: impl IntoIterator<Item = u64>) -> Vec<Inode> {
        inodes.into_iter().map(|ino| Inode { dev, ino }).collect()
    }

    #[test]
    fn each_of_few_files_has_a_term() {
        let two = [files(266, [9, 5, 9]), files(3, [1, 2])].concat();
        let expected = "(s_dev == 3 && ((i_ino >= 1 && i_ino <= 2))) || (s_dev == 266 && (i_ino == 5 || i_ino == 9))";
        assert_eq!(build(&two).to_str().unwrap(), expected);
    }

    #[test]
    fn many_files_are_covered_by_ranges_between_the_widest_gaps() {
        assert_eq!(ranges(&[1, 2, 3, 50, 51, 900], 2), [(1, 51), (900, 900)]);
        let many = files(1, (0..100_000).map(|n| n * n));
        let text = build(&many).into_string().unwrap();
        assert!(text.len() <= MAX_LEN, "{}", text.len());
        // the first and the last file are covered
        assert!(
            text.contains("i_ino >= 0")
                && text.contains(&format!("i_ino == {}", 99_999u64 * 99_999)),
            "{text}"
        );
    }

    #[test]
    fn many_devices_are_covered_by_one_range() {
        let many: Vec<_> = (10..1000).flat_map(|dev| files(dev, [1, 7])).collect();
        assert_eq!(
            build(&many).to_str().unwrap(),
            "s_dev >= 10 && s_dev <= 999"
        );
    }
}
