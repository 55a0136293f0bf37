#![allow(unsafe_code)] // asking whether memory is there; see CONVENTIONS.md

//! Whether memory has pages yet.

/// Whether the page in the middle of it is there; no, where nobody can tell.
#[cfg(target_os = "linux")]
pub(super) fn is_there(memory: &[u8]) -> bool {
    let page = rustix::param::page_size();
    let Some(middle) = memory
        .get(memory.len() / 2..)
        .filter(|behind| !behind.is_empty())
    else {
        return false;
    };
    let at = middle.as_ptr().map_addr(|address| address / page * page);
    let mut there = 0;
    // SAFETY: a page is asked about, not touched, and what is said of it is one byte.
    let asked = unsafe { libc::mincore(at.cast_mut().cast(), page, &raw mut there) };
    asked == 0 && there & 1 == 1
}

#[cfg(not(target_os = "linux"))]
pub(super) fn is_there(_: &[u8]) -> bool {
    false
}

#[cfg(all(test, target_os = "linux", not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn memory_is_there_once_it_was_touched() {
        let mut memory = vec![0u8; 64 << 20];
        assert!(!is_there(&memory));
        let middle = memory.len() / 2;
        memory[middle] = 1;
        assert!(is_there(&memory));
        assert!(
            !is_there(&memory[memory.len() / 4 * 3..]),
            "huge pages end before"
        );
        assert!(!is_there(&[]));
    }
}
