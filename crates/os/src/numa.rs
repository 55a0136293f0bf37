#![allow(unsafe_code)] // set_mempolicy(2) and mbind(2): no safe API exists; see CONVENTIONS.md

//! NUMA memory nodes, and the memory policy of a thread or of a range of memory.

use std::io;

/// Most nodes that a policy can name; `CONFIG_NODES_SHIFT` allows at most 1024.
const MAX_NODES: usize = 1024;

/// Numbers of the nodes that have memory, ascending; empty outside of Linux and on kernels without NUMA.
pub fn nodes_with_memory() -> Vec<u32> {
    std::fs::read_to_string("/sys/devices/system/node/has_memory")
        .map(|list| {
            let numbers = parse_list(&list).into_iter();
            numbers
                .filter_map(|node| u32::try_from(node).ok())
                .collect()
        })
        .unwrap_or_default()
}

/// Parses a list of the kernel, as in `0-2,5`. Items that are not numbers are left out.
pub(crate) fn parse_list(list: &str) -> Vec<usize> {
    /// `CONFIG_NR_CPUS` is at most 8192: longer ranges are not the kernel's.
    const LONGEST: usize = 8192;
    let mut numbers = Vec::new();
    for item in list.trim().split(',').filter(|item| !item.is_empty()) {
        let (first, last) = item.split_once('-').unwrap_or((item, item));
        if let (Ok(first), Ok(last)) = (first.parse::<usize>(), last.parse::<usize>()) {
            numbers.extend((first..=last).take(LONGEST));
        }
    }
    numbers
}

/// Allocates this thread's new pages, page-cache pages included, from a memory node while that node has free pages. `None`
/// restores the default: the node that the thread runs on.
///
/// # Errors
///
/// [`io::ErrorKind::InvalidInput`] for a node number of 1024 or more; `ENOSYS` on kernels without NUMA; `EPERM` under
/// some seccomp filters; [`io::ErrorKind::Unsupported`] outside of Linux.
pub fn prefer_node_for_thread(node: Option<u32>) -> io::Result<()> {
    let mask = NodeMask::of(node)?;
    #[cfg(target_os = "linux")]
    return {
        // the default policy must come with an empty mask
        let (mode, bits) = match node {
            Some(_) => (libc::MPOL_PREFERRED, NodeMask::BITS),
            // 1: the kernel takes one off, which leaves no bit of the mask
            None => (libc::MPOL_DEFAULT, 1),
        };
        // SAFETY: the kernel reads fewer than `bits` bits of the mask, which has more and outlives the call.
        let result = unsafe { libc::syscall(libc::SYS_set_mempolicy, mode, mask.0.as_ptr(), bits) };
        check(result)
    };
    #[cfg(not(target_os = "linux"))]
    unsupported(&mask)
}

/// Allocates pages of this memory that have not been touched yet from a memory node while that node has free pages. The
/// policy is a preference: allocation falls back to other nodes.
///
/// The memory is not accessed; `memory` must start at a page boundary.
///
/// # Errors
///
/// The errors of [`prefer_node_for_thread`]; `EINVAL` if `memory` does not start at a page boundary, `EFAULT` if it is not
/// mapped.
pub fn prefer_node_for_memory(memory: *const [u8], node: u32) -> io::Result<()> {
    let mask = NodeMask::of(Some(node))?;
    #[cfg(target_os = "linux")]
    return {
        // SAFETY: `mbind` without `MPOL_MF_MOVE` changes only where future pages of the range come from, neither bytes nor
        // protection, so any range is sound. The kernel reads fewer than `BITS` bits of the mask.
        let result = unsafe {
            libc::syscall(
                libc::SYS_mbind,
                memory.cast::<u8>(),
                memory.len(),
                libc::MPOL_PREFERRED,
                mask.0.as_ptr(),
                NodeMask::BITS,
                0u32,
            )
        };
        check(result)
    };
    #[cfg(not(target_os = "linux"))]
    {
        let _ = memory;
        unsupported(&mask)
    }
}

/// A set of at most one node, in the layout of the kernel's `nodemask`.
struct NodeMask(
    #[cfg_attr(
        not(target_os = "linux"),
        expect(dead_code, reason = "only Linux has system calls that read the mask")
    )]
    [usize; MAX_NODES / usize::BITS as usize],
);

impl NodeMask {
    /// The `maxnode` of the system calls, which use one bit fewer than it says.
    #[cfg(target_os = "linux")]
    const BITS: usize = MAX_NODES + 1;

    fn of(node: Option<u32>) -> io::Result<Self> {
        const WORD: usize = usize::BITS as usize;
        let mut mask = [0; MAX_NODES / WORD];
        if let Some(node) = node {
            let node = usize::try_from(node).map_err(io::Error::other)?;
            let word = mask
                .get_mut(node / WORD)
                .ok_or(io::ErrorKind::InvalidInput)?;
            *word |= 1 << (node % WORD);
        }
        Ok(Self(mask))
    }
}

#[cfg(target_os = "linux")]
fn check(result: libc::c_long) -> io::Result<()> {
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(not(target_os = "linux"))]
fn unsupported(_: &NodeMask) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_lists_are_parsed() {
        assert_eq!(parse_list("0\n"), [0]);
        assert_eq!(parse_list("0-2,5\n"), [0, 1, 2, 5]);
        assert!(parse_list("\n").is_empty());
        assert!(parse_list("x-y,3-1").is_empty());
    }

    #[test]
    fn node_numbers_beyond_the_mask_are_refused() {
        let kind = |result: io::Result<()>| result.unwrap_err().kind();
        assert_eq!(
            kind(prefer_node_for_thread(Some(1 << 20))),
            io::ErrorKind::InvalidInput
        );
        assert_eq!(
            kind(prefer_node_for_memory(&[], 1 << 20)),
            io::ErrorKind::InvalidInput
        );
    }

    #[cfg(all(target_os = "linux", not(miri)))]
    #[test]
    fn node_0_can_be_preferred() {
        match prefer_node_for_thread(Some(0)) {
            Ok(()) => prefer_node_for_thread(None).unwrap(),
            // a kernel without NUMA has no such call
            Err(error) => assert!(
                matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)),
                "{error}"
            ),
        }
    }
}
