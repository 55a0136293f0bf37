//! perf's system calls and `struct perf_event_attr`, as far as they are used here.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// `struct perf_event_attr` in its version 5 (112 bytes), which every kernel since 4.1 accepts.
#[repr(C)]
#[derive(Debug, Default)]
pub(crate) struct PerfEventAttr {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup: u32,
    bp_type: u32,
    bp_addr: u64,
    bp_len: u64,
    branch_sample_type: u64,
    sample_regs_user: u64,
    sample_stack_user: u32,
    clockid: i32,
    sample_regs_intr: u64,
    aux_watermark: u32,
    sample_max_stack: u16,
    reserved: u16,
}

const TYPE_SOFTWARE: u32 = 1;
const TYPE_TRACEPOINT: u32 = 2;
const COUNT_SW_PAGE_FAULTS_MAJ: u64 = 6;
const COUNT_SW_DUMMY: u64 = 9;

const FLAG_DISABLED: u64 = 1;
const FLAG_WATERMARK: u64 = 1 << 14;
const FLAG_USE_CLOCKID: u64 = 1 << 25;

const SAMPLE_TID: u64 = 1 << 1;
const SAMPLE_TIME: u64 = 1 << 2;
const SAMPLE_RAW: u64 = 1 << 10;
const SAMPLE_IDENTIFIER: u64 = 1 << 16;
/// The fields of every sample: id, process, thread, time, and the trace point's own record. `record.rs` decodes them.
const SAMPLE_TYPE: u64 = SAMPLE_IDENTIFIER | SAMPLE_TID | SAMPLE_TIME | SAMPLE_RAW;

impl PerfEventAttr {
    /// An event that never occurs. It owns the ring of a CPU, into which the other events write. The ring becomes readable
    /// when it has `watermark` new bytes.
    pub(crate) fn ring_owner(watermark: u32) -> Self {
        Self {
            flags: FLAG_WATERMARK | FLAG_USE_CLOCKID,
            wakeup: watermark,
            ..Self::sampled(TYPE_SOFTWARE, COUNT_SW_DUMMY)
        }
    }

    /// A trace point. If `wake` is set, every sample makes the ring readable.
    pub(crate) fn tracepoint(id: u32, wake: bool) -> Self {
        Self::sampled(TYPE_TRACEPOINT, u64::from(id)).waking(wake)
    }

    /// Page faults that waited for a device, of files or of anything else.
    pub(crate) fn major_faults() -> Self {
        Self::sampled(TYPE_SOFTWARE, COUNT_SW_PAGE_FAULTS_MAJ).waking(true)
    }

    fn sampled(kind: u32, config: u64) -> Self {
        Self {
            kind,
            size: u32::try_from(size_of::<Self>()).expect("112 bytes"),
            config,
            // every occurrence, not one of many
            sample_period: 1,
            sample_type: SAMPLE_TYPE,
            // the clock of `monotonic_ns`, the same on all CPUs: samples of different rings are ordered by it
            clockid: libc::CLOCK_MONOTONIC,
            ..Self::default()
        }
    }

    fn waking(self, wake: bool) -> Self {
        // an event with an unreachable watermark of its own never wakes the consumer: only the ring owner's does
        let (flags, wakeup) = if wake {
            (0, 1)
        } else {
            (FLAG_WATERMARK, u32::MAX)
        };
        Self {
            // disabled until its filter and its ring are set, or the first samples would come from all files
            flags: FLAG_DISABLED | FLAG_USE_CLOCKID | flags,
            wakeup,
            ..self
        }
    }
}

/// Which threads a perf event samples.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SampleTarget {
    /// All threads, while they run on this CPU.
    Cpu(u32),
    /// The calling thread, on all CPUs.
    CurrentThread,
}

/// `perf_event_open(2)`.
pub(crate) fn perf_event_open(attr: &PerfEventAttr, target: SampleTarget) -> io::Result<OwnedFd> {
    let (pid, cpu) = match target {
        SampleTarget::Cpu(cpu) => (
            -1,
            i32::try_from(cpu).map_err(|_| io::ErrorKind::InvalidInput)?,
        ),
        SampleTarget::CurrentThread => (0, -1),
    };
    let no_group = -1;
    // SAFETY: `attr` lives through the call, and its `size` field holds its length.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            std::ptr::from_ref(attr),
            pid,
            cpu,
            no_group,
            PERF_FLAG_FD_CLOEXEC,
        )
    };
    owned(i32::try_from(fd).unwrap_or(-1))
}

const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 8;

/// An operation on the descriptor of a perf event.
#[derive(Debug)]
pub(crate) enum PerfIoctl<'a> {
    /// Starts sampling.
    Enable,
    /// Writes samples into the ring of another event on the same CPU.
    SetOutput(BorrowedFd<'a>),
    /// Sets the filter that samples must pass. Fails if the event has a filter already.
    SetFilter(&'a CStr),
}

/// Performs an operation on a perf event.
pub(crate) fn perf_ioctl(fd: BorrowedFd<'_>, operation: PerfIoctl<'_>) -> io::Result<()> {
    // _IO('$', 0), _IO('$', 5), _IOW('$', 6, char *)
    const ENABLE: libc::c_ulong = 0x2400;
    const SET_OUTPUT: libc::c_ulong = 0x2405;
    // the size of the argument is a part of the number, and a pointer's size depends on the target
    const SET_FILTER: libc::c_ulong = 0x4000_2406 | (size_of::<usize>() as libc::c_ulong) << 16;
    let fd = fd.as_raw_fd();
    let result = match operation {
        // SAFETY: the operation takes no argument.
        PerfIoctl::Enable => unsafe { libc::ioctl(fd, ENABLE as _, 0) },
        // SAFETY: the argument is a number.
        PerfIoctl::SetOutput(ring) => unsafe { libc::ioctl(fd, SET_OUTPUT as _, ring.as_raw_fd()) },
        // SAFETY: the kernel reads up to the NUL that a CStr ends with.
        PerfIoctl::SetFilter(text) => unsafe { libc::ioctl(fd, SET_FILTER as _, text.as_ptr()) },
    };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// The id that the samples of a perf event carry.
pub(crate) fn perf_id(fd: BorrowedFd<'_>) -> io::Result<u64> {
    // _IOR('$', 7, __u64 *)
    const ID: libc::c_ulong = 0x8000_2407 | (size_of::<usize>() as libc::c_ulong) << 16;
    let mut id = 0u64;
    // SAFETY: the kernel writes eight bytes, the size of `id`.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), ID as _, std::ptr::from_mut(&mut id)) };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(id)
    }
}

fn owned(fd: i32) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the system call has just returned the descriptor, so it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn perf_event_attr_has_the_kernels_layout() {
        assert_eq!(size_of::<PerfEventAttr>(), 112);
        assert_eq!(std::mem::offset_of!(PerfEventAttr, flags), 40);
        assert_eq!(std::mem::offset_of!(PerfEventAttr, clockid), 92);
    }
}
