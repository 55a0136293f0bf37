//! What this process has spent so far, as the system counts it.

/// Processor time, faults, bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    /// Seconds of all threads, in the program and in the system for it.
    pub(crate) cpu: f64,
    /// Pages mapped without I/O.
    pub(crate) minor_faults: u64,
    /// Pages that were waited for.
    pub(crate) major_faults: u64,
    /// Bytes that came from a device; `None` where the system does not say.
    pub(crate) device_bytes: Option<u64>,
    /// Bytes of memory in use now.
    pub(crate) resident: u64,
}

impl Usage {
    pub(crate) fn now() -> Self {
        let mut now = Self::default();
        #[cfg(target_os = "linux")]
        {
            let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
            #[expect(clippy::cast_precision_loss, reason = "seconds of a process")]
            let seconds = time.tv_sec as f64 + time.tv_nsec as f64 / 1e9;
            now.cpu = seconds;
            let read = |name: &str| {
                std::fs::read_to_string(format!("/proc/self/{name}")).unwrap_or_default()
            };
            // the name in parentheses may hold anything
            let stat = read("stat");
            let fields: Vec<&str> = stat
                .rsplit(") ")
                .next()
                .unwrap_or_default()
                .split(' ')
                .collect();
            let field = |number: usize| {
                fields
                    .get(number - 3)
                    .and_then(|text| text.parse().ok())
                    .unwrap_or(0)
            };
            // numbers of proc_pid_stat(5)
            (now.minor_faults, now.major_faults) = (field(10), field(12));
            now.resident = field(24) * rustix::param::page_size() as u64;
            let bytes = read("io")
                .lines()
                .find_map(|line| line.strip_prefix("read_bytes: ")?.trim().parse().ok());
            now.device_bytes = bytes;
        }
        now
    }

    /// What was spent since; of memory, what is in use.
    pub(crate) fn since(self, before: &Self) -> Self {
        Self {
            cpu: self.cpu - before.cpu,
            minor_faults: self.minor_faults.saturating_sub(before.minor_faults),
            major_faults: self.major_faults.saturating_sub(before.major_faults),
            device_bytes: self
                .device_bytes
                .zip(before.device_bytes)
                .map(|(now, then)| now.saturating_sub(then)),
            resident: self.resident,
        }
    }
}
