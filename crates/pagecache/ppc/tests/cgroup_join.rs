//! `join_cgroups` moves a process into the control groups of a service, and pages that it prefetches are charged to them.
//! A binary of its own, because joining moves the whole process, with all tests that run in it.

#[path = "it/support/files.rs"]
mod files;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anamnesis_ppc::Namespace;
use anamnesis_ppc::cache::{
    LimitSource, MemoryMeter, MemoryScope, PrefetchOptions, Prefetcher, join_cgroups,
};
use files::{HANG_TIMEOUT, MIB, drop_cached_pages, uncached_files, whole_file_request};

/// A process in a control group of its own. Both are removed when this is dropped.
struct Service {
    child: Child,
    group: PathBuf,
}

impl Service {
    fn start(hierarchy: &Path, settings: &[(&str, &str)]) -> std::io::Result<Self> {
        let group = hierarchy.join(format!("ppc-test-{}", std::process::id()));
        fs::create_dir(&group)?;
        let child = Command::new("sleep")
            .arg("1000")
            .stdin(Stdio::null())
            .spawn();
        let child = child.inspect_err(|_| fs::remove_dir(&group).unwrap())?;
        let service = Self { child, group };
        for (file, value) in settings {
            fs::write(service.group.join(file), value)?;
        }
        fs::write(
            service.group.join("cgroup.procs"),
            service.child.id().to_string(),
        )?;
        Ok(service)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        // the kernel may keep a group busy for a moment after its last process has ended
        let removed = (0..1000).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            fs::remove_dir(&self.group).is_ok()
        });
        assert!(
            removed || std::thread::panicking(),
            "cannot remove {}",
            self.group.display()
        );
    }
}

fn own_cgroups() -> String {
    fs::read_to_string("/proc/self/cgroup").unwrap()
}

/// Prefetches the file `0` and waits until it is read. Returns the prefetcher, whose threads still run.
fn prefetch_file(namespace: &std::sync::Arc<Namespace>) -> Prefetcher {
    let prefetcher = Prefetcher::new(PrefetchOptions::default()).unwrap();
    prefetcher
        .submit(namespace, &whole_file_request(namespace, 0, "0"))
        .unwrap();
    assert!(prefetcher.wait(HANG_TIMEOUT));
    prefetcher
}

#[test]
fn prefetched_pages_are_charged_to_the_joined_group() {
    let v1_hierarchy = Path::new("/sys/fs/cgroup/memory");
    let Some((dir, namespace)) = uncached_files("cgroup_join", &[64]) else {
        return;
    };
    let service = match Service::start(v1_hierarchy, &[("memory.limit_in_bytes", "268435456")]) {
        Ok(service) => service,
        Err(error) => {
            return eprintln!("SKIPPED: cgroup_join: cannot create a control group (v1): {error}");
        }
    };
    let before = own_cgroups();
    let memory = MemoryMeter::of(&MemoryScope::Process(service.child.id())).unwrap();
    let usage = memory.usage().unwrap();
    assert_eq!(
        (usage.limit, &usage.source),
        (256 * MIB, &LimitSource::V1(service.group.clone()))
    );
    assert!(usage.used < 8 * MIB, "{usage:?}");

    let joined = join_cgroups(service.child.id()).unwrap();
    assert_eq!(
        joined.groups().collect::<Vec<_>>(),
        [service.group.as_path()]
    );
    assert_ne!(own_cgroups(), before);
    let prefetcher = prefetch_file(&namespace);
    let charged = MemoryMeter::of(&MemoryScope::Group(service.group.clone()))
        .unwrap()
        .usage()
        .unwrap();
    assert!(
        charged.used >= 60 * MIB && charged.file >= 60 * MIB,
        "{charged:?}"
    );
    assert!(
        charged.room(0.8) < 256 * MIB * 8 / 10 - 60 * MIB && charged.share() > 0.2,
        "{charged:?}"
    );
    drop(prefetcher);
    drop(joined);
    assert_eq!(own_cgroups(), before);

    // after leaving the group, pages are charged to this process
    drop_cached_pages(fs::File::open(dir.path().join("0")).unwrap());
    assert!(memory.usage().unwrap().file < 4 * MIB);
    prefetch_file(&namespace);
    assert!(memory.usage().unwrap().file < 4 * MIB);

    // also with a group of cgroup v2, where that is mounted
    let v2_hierarchy = Path::new("/sys/fs/cgroup/unified");
    if v2_hierarchy.join("cgroup.procs").exists() {
        let v2_service = Service::start(v2_hierarchy, &[]).unwrap();
        let joined = join_cgroups(v2_service.child.id()).unwrap();
        assert!(
            joined.groups().any(|group| group == v2_service.group)
                && own_cgroups().contains("ppc-test")
        );
        drop(joined);
        assert_eq!(own_cgroups(), before);
    } else {
        eprintln!("SKIPPED: cgroup_join: no cgroup v2 is mounted");
    }
    // a process that does not exist
    join_cgroups(u32::MAX).unwrap_err();
}
