//! `struct perf_event_attr`, as far as it is used here.

/// Version 5 of the kernel's structure (112 bytes), which every kernel since 4.1 takes.
#[repr(C)]
#[derive(Debug, Default)]
pub(crate) struct Attr {
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

const SOFTWARE: u32 = 1;
const TRACEPOINT: u32 = 2;
const PAGE_FAULTS_MAJ: u64 = 6;
const DUMMY: u64 = 9;

const DISABLED: u64 = 1;
const WATERMARK: u64 = 1 << 14;
const USE_CLOCKID: u64 = 1 << 25;

const SAMPLE_TID: u64 = 1 << 1;
const SAMPLE_TIME: u64 = 1 << 2;
const SAMPLE_RAW: u64 = 1 << 10;
const SAMPLE_IDENTIFIER: u64 = 1 << 16;
/// What every sample has: id, process, thread, time and the trace point's own bytes.
const SAMPLE: u64 = SAMPLE_IDENTIFIER | SAMPLE_TID | SAMPLE_TIME | SAMPLE_RAW;

impl Attr {
    /// An event that never happens, whose ring the others write to; it wakes when `watermark` bytes are new.
    pub(crate) fn carrier(watermark: u32) -> Self {
        Self {
            flags: WATERMARK | USE_CLOCKID,
            wakeup: watermark,
            ..Self::sampled(SOFTWARE, DUMMY)
        }
    }

    /// A trace point. `wake`: every sample wakes the reader of the ring.
    pub(crate) fn tracepoint(id: u32, wake: bool) -> Self {
        Self::sampled(TRACEPOINT, u64::from(id)).waking(wake)
    }

    /// Page faults that waited for a device, whatever for.
    pub(crate) fn major_faults() -> Self {
        Self::sampled(SOFTWARE, PAGE_FAULTS_MAJ).waking(true)
    }

    fn sampled(kind: u32, config: u64) -> Self {
        Self {
            kind,
            size: u32::try_from(size_of::<Self>()).expect("a small structure"),
            config,
            sample_period: 1,
            sample_type: SAMPLE,
            clockid: libc::CLOCK_MONOTONIC,
            ..Self::default()
        }
    }

    fn waking(self, wake: bool) -> Self {
        // with a watermark, the sample itself never wakes: the ring's own watermark does
        let (flags, wakeup) = if wake { (0, 1) } else { (WATERMARK, u32::MAX) };
        Self {
            flags: DISABLED | USE_CLOCKID | flags,
            wakeup,
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_structure_is_the_kernels() {
        assert_eq!(size_of::<Attr>(), 112);
        assert_eq!(std::mem::offset_of!(Attr, flags), 40);
        assert_eq!(std::mem::offset_of!(Attr, clockid), 92);
    }
}
