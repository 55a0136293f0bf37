//! The resources that this process has used, as the operating system counts them (proc_pid_stat(5), proc_pid_io(5)).

/// Processor time, page faults, device reads and resident memory of this process.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ResourceUsage {
    /// Processor time of all threads in seconds, in user and kernel mode.
    pub(crate) cpu: f64,
    /// Page faults served without I/O.
    pub(crate) minor_faults: u64,
    /// Page faults that waited for I/O.
    pub(crate) major_faults: u64,
    /// Bytes read from storage devices; `None` where the system does not report them.
    pub(crate) device_bytes: Option<u64>,
    /// Resident memory in bytes.
    pub(crate) resident: u64,
}

impl ResourceUsage {
    /// All zero: the usage is only read from Linux's `/proc`.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn now() -> Self {
        Self::default()
    }

    /// Usage since the start of the process.
    #[cfg(target_os = "linux")]
    pub(crate) fn now() -> Self {
        let mut now = Self::default();
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        #[expect(clippy::cast_precision_loss, reason = "seconds of a process")]
        let seconds = time.tv_sec as f64 + time.tv_nsec as f64 / 1e9;
        now.cpu = seconds;
        let read =
            |name: &str| std::fs::read_to_string(format!("/proc/self/{name}")).unwrap_or_default();
        // the second field is the program's name in parentheses, which may contain `) `: fields are counted from the last
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
        // minflt, majflt and rss, by their numbers in proc_pid_stat(5); the first field after the name is 3
        (now.minor_faults, now.major_faults) = (field(10), field(12));
        now.resident = field(24) * rustix::param::page_size() as u64;
        let bytes = read("io")
            .lines()
            .find_map(|line| line.strip_prefix("read_bytes: ")?.trim().parse().ok());
        now.device_bytes = bytes;
        now
    }

    /// The usage between `before` and `self`; `resident` is `self`'s.
    pub(crate) fn since(self, before: &Self) -> Self {
        Self {
            cpu: self.cpu - before.cpu,
            // a failed reading of `/proc` counts as 0 and must not wrap
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
