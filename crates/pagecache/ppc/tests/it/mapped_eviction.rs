#![allow(unsafe_code)] // a process that maps a file; see CONVENTIONS.md

//! Eviction of pages that other processes have mapped, which `fadvise` alone keeps.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::{env, ptr};

use anamnesis_ppc::cache::{Evictor, MappingProcesses};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap};

use crate::support::files::{
    MIB, cached_bytes, is_populated, uncached_files, wait_until, whole_file,
};

/// The environment variable with the file that the child process maps.
const FILE_VARIABLE: &str = "PPC_TEST_MAPPED_FILE";
/// Printed by the child process when all pages of the file are mapped.
const MAPPED: &str = "mapped";

/// The entry point of child processes; does nothing if it is run as a test.
#[test]
fn child_process_that_maps_a_file() {
    let Some(path) = env::var_os(FILE_VARIABLE) else {
        return;
    };
    let file = File::open(path).unwrap();
    let len = usize::try_from(file.metadata().unwrap().len()).unwrap();
    // SAFETY: a new mapping at an address that the kernel chooses.
    let address = unsafe {
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
    unsafe { madvise(address, len, Advice::LinuxPopulateRead) }.unwrap();
    println!("{MAPPED}");
    // keeps the mapping until the test kills this process
    let _ = std::io::stdin().read(&mut [0]);
}

/// A process that has mapped a file, and is killed when this is dropped.
struct MappingProcess(Child);

impl MappingProcess {
    fn start(path: &Path) -> Self {
        let mut command = Command::new(env::current_exe().unwrap());
        command
            .args([
                "--exact",
                "mapped_eviction::child_process_that_maps_a_file",
                "--nocapture",
            ])
            .env(FILE_VARIABLE, path);
        let child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut process = Self(child);
        let lines = BufReader::new(process.0.stdout.take().unwrap()).lines();
        assert!(
            lines
                .map_while(Result::ok)
                .any(|line| line.contains(MAPPED)),
            "the child process could not map the file"
        );
        process
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for MappingProcess {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn pages_mapped_by_one_process_are_evicted() {
    let Some((dir, namespace)) = uncached_files("mapped pages", &[64]) else {
        return;
    };
    let path = dir.path().join("0");
    for scans_all in [false, true] {
        let process = MappingProcess::start(&path);
        assert!(is_populated(&path, 0, 64 * MIB));
        // without a scan of processes, mapped pages are kept
        let kept = Evictor::new(&namespace)
            .mapping_processes(MappingProcesses::None)
            .evict(&whole_file(&namespace, "0"));
        assert!(kept.remaining > 32 * MIB && kept.mapped == 0, "{kept:?}");
        let processes = if scans_all {
            MappingProcesses::All
        } else {
            // the second does not exist
            MappingProcesses::Processes(vec![process.pid(), u32::MAX])
        };
        let evict = || {
            Evictor::new(&namespace)
                .mapping_processes(processes.clone())
                .evict(&whole_file(&namespace, "0"))
        };
        let mut evicted = evict();
        if evicted.remaining > 0 && !rustix::process::geteuid().is_root() {
            return eprintln!("SKIPPED: mapped pages: process_madvise needs CAP_SYS_NICE");
        }
        // a scan of all processes has a time limit, and on a busy machine may end before it reaches the child
        if scans_all && evicted.remaining > 0 {
            wait_until("all of the file is evicted", || {
                evicted = evict();
                evicted.remaining == 0
            });
        }
        assert_eq!((evicted.remaining, evicted.mapped), (0, 0), "{evicted:?}");
        assert_eq!(cached_bytes(&path, 0, 64 * MIB), 0);
    }
}

#[test]
fn remaining_pages_of_two_processes_are_counted_as_mapped() {
    let Some((dir, namespace)) = uncached_files("pages mapped twice", &[16]) else {
        return;
    };
    let path = dir.path().join("0");
    let (first, second) = (MappingProcess::start(&path), MappingProcess::start(&path));
    let processes = MappingProcesses::Processes(vec![first.pid(), second.pid()]);
    let mut evictor = Evictor::new(&namespace).mapping_processes(processes);
    let before = cached_bytes(&path, 0, 16 * MIB);
    let evicted = evictor.evict(&whole_file(&namespace, "0"));
    assert_eq!(evicted.freed + evicted.remaining, before, "{evicted:?}");
    assert_eq!(evicted.mapped, evicted.remaining, "{evicted:?}");
    drop((first, second));
    assert_eq!(evictor.evict(&whole_file(&namespace, "0")).remaining, 0);
}
