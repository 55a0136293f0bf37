//! Usage and room of groups and of the machine.

use super::*;

#[test]
fn meminfo_gives_the_usage_of_the_machine() {
    let meminfo =
        "MemTotal:  1000 kB\nMemFree: 1 kB\nMemAvailable:  400 kB\nBuffers: 7 kB\nCached: 300 kB\n";
    let usage = of_machine(meminfo).unwrap();
    assert_eq!(
        (usage.limit, usage.used, usage.file),
        (1_024_000, 614_400, 307_200)
    );
    assert_eq!(
        (usage.room(0.8), usage.room(0.5), usage.held()),
        (204_800, 0, 614_400)
    );
    assert!((usage.share() - 0.6).abs() < 1e-9);
    assert!(of_machine("MemTotal: 1 kB\n").is_none());
    let read = MemoryMeter::of(&MemoryScope::Machine)
        .unwrap()
        .usage()
        .unwrap();
    assert!(read.source == LimitSource::Machine && read.used < read.limit);
}

#[test]
fn usage_is_that_of_the_group_closest_to_its_limit() {
    let dir = tempfile::tempdir().unwrap();
    let inner = dir.path().join("outer/inner");
    fs::create_dir_all(&inner).unwrap();
    let write = |group: &Path, files: &[(&str, &str)]| {
        for (file, text) in files {
            fs::write(group.join(file), text).unwrap();
        }
    };
    let outer = inner.parent().unwrap();
    write(
        outer,
        &[
            ("memory.max", "max\n"),
            ("memory.high", "1000\n"),
            ("memory.current", "900\n"),
        ],
    );
    write(outer, &[("memory.stat", "anon 5\nfile 600\n")]);
    write(
        &inner,
        &[
            ("memory.max", "2000\n"),
            ("memory.high", "max\n"),
            ("memory.current", "800\n"),
        ],
    );
    let meter = |source: fn(PathBuf) -> LimitSource| {
        let lineage = CgroupMount::at(dir.path()).lineage(&inner);
        MemoryMeter {
            groups: lineage.into_iter().map(source).collect(),
        }
    };
    let usage = meter(LimitSource::V2).usage().unwrap();
    assert_eq!(
        usage,
        MemoryUsage {
            limit: 1000,
            used: 900,
            file: 600,
            source: LimitSource::V2(outer.to_owned())
        }
    );
    assert_eq!((usage.held(), usage.room(0.95)), (300, 50));
    // cgroup v1, and a parent without a limit
    write(
        outer,
        &[
            ("memory.limit_in_bytes", "9223372036854771712\n"),
            ("memory.usage_in_bytes", "900\n"),
        ],
    );
    write(
        &inner,
        &[
            ("memory.limit_in_bytes", "4000\n"),
            ("memory.usage_in_bytes", "3000\n"),
        ],
    );
    write(&inner, &[("memory.stat", "cache 1\ntotal_cache 2500\n")]);
    let usage = meter(LimitSource::V1).usage().unwrap();
    assert_eq!((usage.limit, usage.used, usage.file), (4000, 3000, 2500));
    assert!((usage.file_share() - 0.625).abs() < 1e-9);
}

#[test]
fn inactive_pages_of_other_files_are_room() {
    let usage = MemoryUsage {
        limit: 1000,
        used: 900,
        file: 0,
        source: LimitSource::V2("/group".into()),
    };
    // full of what was read long ago, and of nothing that this caller has read
    assert_eq!(usage.cache_room(0.9, 0, 600), 600);
    // 400 of the inactive bytes are the caller's own: they stay
    assert_eq!(usage.cache_room(0.9, 400, 600), 200);
    assert_eq!(usage.cache_room(0.9, 700, 600), 0);
    // below the threshold, whatever is inactive
    let usage = MemoryUsage { used: 300, ..usage };
    assert_eq!(usage.cache_room(0.9, 300, 300), 600);
    assert_eq!(usage.cache_room(0.9, 5000, 0), 600);
    let dir = tempfile::tempdir().unwrap();
    let write = |file: &str, text: &str| fs::write(dir.path().join(file), text).unwrap();
    write("memory.max", "1000");
    write("memory.current", "1000");
    write(
        "memory.stat",
        "anon 100\ninactive_file 500\nactive_file 400\n",
    );
    let meter = MemoryMeter {
        groups: vec![LimitSource::V2(dir.path().to_owned())],
    };
    assert_eq!(meter.cache_room(0.8, 100).unwrap(), 200);
    // the machine limits too
    assert_eq!(meter.cache_room(0.8, u64::MAX).unwrap(), 0);
}

#[test]
fn usage_of_missing_scopes_is_an_error() {
    MemoryMeter::of(&MemoryScope::Own).unwrap().usage().unwrap();
    MemoryMeter::of(&MemoryScope::Process(std::process::id()))
        .unwrap()
        .usage()
        .unwrap();
    MemoryMeter::of(&MemoryScope::Process(u32::MAX)).unwrap_err();
    MemoryMeter::of(&MemoryScope::Group("/tmp".into())).unwrap_err();
}
