//! Being in the control groups of a service. A binary of its own, as it moves the whole process.

mod disk;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anamnesis_ppc::Prefetch;
use anamnesis_ppc::cache::{Memory, Options, Prefetcher, Scope, Source, join};
use disk::{LONG, MIB, all, disk};

/// A process in a group of its own; both end with it.
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
        // a group may be left for a moment after its last process
        let gone = (0..1000).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            fs::remove_dir(&self.group).is_ok()
        });
        assert!(
            gone || std::thread::panicking(),
            "{} is left behind",
            self.group.display()
        );
    }
}

fn own() -> String {
    fs::read_to_string("/proc/self/cgroup").unwrap()
}

#[test]
fn the_service_is_charged() {
    let hierarchy = Path::new("/sys/fs/cgroup/memory");
    let Some((dir, namespace)) = disk("join", &[64]) else {
        return;
    };
    let service = match Service::start(hierarchy, &[("memory.limit_in_bytes", "268435456")]) {
        Ok(service) => service,
        Err(error) => {
            return eprintln!("SKIPPED: join: no group of cgroup v1 can be made: {error}");
        }
    };
    let before = own();
    let memory = Memory::of(&Scope::Process(service.child.id())).unwrap();
    let usage = memory.usage().unwrap();
    assert_eq!(
        (usage.limit, &usage.source),
        (256 * MIB, &Source::V1(service.group.clone()))
    );
    assert!(usage.used < 8 * MIB, "{usage:?}");

    let joined = join(service.child.id()).unwrap();
    assert_eq!(
        joined.groups().collect::<Vec<_>>(),
        [service.group.as_path()]
    );
    assert_ne!(own(), before);
    let prefetcher = Prefetcher::new(Options::default()).unwrap();
    prefetcher
        .submit(
            &namespace,
            &Prefetch {
                ios: all(&namespace, "0"),
                lane: 0,
            },
        )
        .unwrap();
    assert!(prefetcher.wait(LONG));
    let charged = Memory::of(&Scope::Group(service.group.clone()))
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
    assert_eq!(own(), before);

    // from outside, we are
    disk::drop_all(fs::File::open(dir.path().join("0")).unwrap());
    assert!(memory.usage().unwrap().file < 4 * MIB);
    let prefetcher = Prefetcher::new(Options::default()).unwrap();
    prefetcher
        .submit(
            &namespace,
            &Prefetch {
                ios: all(&namespace, "0"),
                lane: 0,
            },
        )
        .unwrap();
    assert!(prefetcher.wait(LONG));
    assert!(memory.usage().unwrap().file < 4 * MIB);

    // a group of cgroup v2 too, where there are some
    let unified = Path::new("/sys/fs/cgroup/unified");
    if unified.join("cgroup.procs").exists() {
        let other = Service::start(unified, &[]).unwrap();
        let joined = join(other.child.id()).unwrap();
        assert!(joined.groups().any(|group| group == other.group) && own().contains("ppc-test"));
        drop(joined);
        assert_eq!(own(), before);
    } else {
        eprintln!("SKIPPED: join: no cgroup v2 beside cgroup v1");
    }
    // nobody
    join(u32::MAX).unwrap_err();
}
