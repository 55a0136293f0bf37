#![allow(unsafe_code)] // a process that maps a file; see CONVENTIONS.md

//! Eviction of what other processes have mapped.

mod disk;

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::{env, ptr};

use anamnesis_ppc::cache::{Evictor, Mappers};
use disk::{MIB, all, cached, disk, is_here, until};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap};

const FILE: &str = "PPC_TEST_MAPS";

/// Not a test but the process that maps, when the tests below start it.
#[test]
fn mapping_process() {
    let Some(path) = env::var_os(FILE) else {
        return;
    };
    let file = File::open(path).unwrap();
    let len = usize::try_from(file.metadata().unwrap().len()).unwrap();
    // SAFETY: a new map at an address that the kernel chooses.
    let at = unsafe {
        mmap(
            ptr::null_mut(),
            len,
            ProtFlags::READ,
            MapFlags::SHARED,
            &file,
            0,
        )
    }
    .unwrap();
    // SAFETY: it changes no byte, and says so if the file became shorter.
    unsafe { madvise(at, len, Advice::LinuxPopulateRead) }.unwrap();
    println!("mapped");
    // until the test is over
    let _ = std::io::stdin().read(&mut [0]);
}

struct Mapper(Child);

impl Mapper {
    fn start(path: &std::path::Path) -> Self {
        let mut command = Command::new(env::current_exe().unwrap());
        command
            .args(["--exact", "mapping_process", "--nocapture"])
            .env(FILE, path);
        let child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut mapper = Self(child);
        let lines = BufReader::new(mapper.0.stdout.take().unwrap()).lines();
        assert!(
            lines
                .map_while(Result::ok)
                .any(|line| line.contains("mapped")),
            "the child could not map"
        );
        mapper
    }
}

impl Drop for Mapper {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn what_one_process_maps_goes() {
    let Some((dir, namespace)) = disk("mapped", &[64]) else {
        return;
    };
    let path = dir.path().join("0");
    for mappers in [None, Some(Mappers::All)] {
        let child = Mapper::start(&path);
        assert!(is_here(&path, 0, 64 * MIB));
        // not asked to take it from them
        let kept = Evictor::new(&namespace)
            .mappers(Mappers::None)
            .evict(&all(&namespace, "0"));
        assert!(kept.left > 32 * MIB && kept.mapped == 0, "{kept:?}");
        let mappers = mappers.unwrap_or_else(|| Mappers::Processes(vec![child.0.id(), u32::MAX]));
        let evict = || {
            Evictor::new(&namespace)
                .mappers(mappers.clone())
                .evict(&all(&namespace, "0"))
        };
        let mut evicted = evict();
        if evicted.left > 0 && !rustix::process::geteuid().is_root() {
            return eprintln!("SKIPPED: mapped: process_madvise needs CAP_SYS_NICE");
        }
        // a look at all processes ends after a while, on a busy machine perhaps before it comes to this one
        if matches!(mappers, Mappers::All) && evicted.left > 0 {
            until("all of it goes", || {
                evicted = evict();
                evicted.left == 0
            });
        }
        assert_eq!((evicted.left, evicted.mapped), (0, 0), "{evicted:?}");
        assert_eq!(cached(&path, 0, 64 * MIB), 0);
    }
}

#[test]
fn what_two_processes_map_is_reported() {
    let Some((dir, namespace)) = disk("mapped by two", &[16]) else {
        return;
    };
    let path = dir.path().join("0");
    let two = (Mapper::start(&path), Mapper::start(&path));
    let mappers = Mappers::Processes(vec![two.0.0.id(), two.1.0.id()]);
    let mut evictor = Evictor::new(&namespace).mappers(mappers);
    let here = cached(&path, 0, 16 * MIB);
    let evicted = evictor.evict(&all(&namespace, "0"));
    assert_eq!(evicted.gone + evicted.left, here, "{evicted:?}");
    assert_eq!(evicted.mapped, evicted.left, "{evicted:?}");
    drop(two);
    assert_eq!(evictor.evict(&all(&namespace, "0")).left, 0);
}
