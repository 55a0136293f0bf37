#![allow(unsafe_code)] // a process that maps a file; see CONVENTIONS.md

//! Eviction of pages that other processes have mapped.

mod disk;

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::{env, ptr};

use anamnesis_ppc::cache::{Evictor, MappingProcesses};
use disk::{MIB, all, cached, disk, is_populated, wait_until};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap};

const FILE: &str = "PPC_TEST_MAPS";

/// Not a test: the child process that maps the file, started by the tests below.
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
    // SAFETY: populating changes no byte; it returns an error if the file was truncated.
    unsafe { madvise(at, len, Advice::LinuxPopulateRead) }.unwrap();
    println!("mapped");
    // keeps the mapping until the test kills this process
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
fn pages_mapped_by_one_process_are_evicted() {
    let Some((dir, namespace)) = disk("mapped", &[64]) else {
        return;
    };
    let path = dir.path().join("0");
    for processes in [None, Some(MappingProcesses::All)] {
        let child = Mapper::start(&path);
        assert!(is_populated(&path, 0, 64 * MIB));
        // without scanning processes, mapped pages are kept
        let kept = Evictor::new(&namespace)
            .mapping_processes(MappingProcesses::None)
            .evict(&all(&namespace, "0"));
        assert!(kept.remaining > 32 * MIB && kept.mapped == 0, "{kept:?}");
        let processes =
            processes.unwrap_or_else(|| MappingProcesses::Processes(vec![child.0.id(), u32::MAX]));
        let evict = || {
            Evictor::new(&namespace)
                .mapping_processes(processes.clone())
                .evict(&all(&namespace, "0"))
        };
        let mut evicted = evict();
        if evicted.remaining > 0 && !rustix::process::geteuid().is_root() {
            return eprintln!("SKIPPED: mapped: process_madvise needs CAP_SYS_NICE");
        }
        // a scan of all processes has a time limit, and on a busy machine may end before it reaches the child
        if matches!(processes, MappingProcesses::All) && evicted.remaining > 0 {
            wait_until("all of the file is evicted", || {
                evicted = evict();
                evicted.remaining == 0
            });
        }
        assert_eq!((evicted.remaining, evicted.mapped), (0, 0), "{evicted:?}");
        assert_eq!(cached(&path, 0, 64 * MIB), 0);
    }
}

#[test]
fn pages_mapped_by_two_processes_are_counted() {
    let Some((dir, namespace)) = disk("mapped by two", &[16]) else {
        return;
    };
    let path = dir.path().join("0");
    let two = (Mapper::start(&path), Mapper::start(&path));
    let processes = MappingProcesses::Processes(vec![two.0.0.id(), two.1.0.id()]);
    let mut evictor = Evictor::new(&namespace).mapping_processes(processes);
    let before = cached(&path, 0, 16 * MIB);
    let evicted = evictor.evict(&all(&namespace, "0"));
    assert_eq!(evicted.freed + evicted.remaining, before, "{evicted:?}");
    assert_eq!(evicted.mapped, evicted.remaining, "{evicted:?}");
    drop(two);
    assert_eq!(evictor.evict(&all(&namespace, "0")).remaining, 0);
}
