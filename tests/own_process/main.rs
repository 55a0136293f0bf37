//! Tests of the state of a whole process (its memory, threads, limits and system calls): each runs in a process of its own, which is
//! this binary with the name of the test. So they share a build, and the machine's cores.
//!
//! `cargo test --test own_process charged_memory::` runs the tests of one module.

#[path = "../../benches/guard/src/counting_allocator.rs"]
mod counting_allocator;
#[path = "../support/mod.rs"]
mod support;

mod charged_memory;
#[cfg(target_os = "linux")]
mod few_descriptors;
#[cfg(target_os = "linux")]
mod io_faults;
mod large_file_memory;
mod malformed_files_memory;
#[cfg(all(target_os = "linux", feature = "uring"))]
mod no_io_uring;
#[cfg(all(target_os = "linux", feature = "uring"))]
mod refused_io_uring;

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// It counts while a test says so, and is the system's otherwise.
#[global_allocator]
static ALLOCATOR: counting_allocator::CountingAllocator = counting_allocator::CountingAllocator;

/// Set in the process of a test.
const IS_OWN: &str = "ANAMNESIS_OWN_PROCESS";

/// Time for one test, on a machine that does other work too; a loop without end takes longer.
const TIME_LIMIT: Duration = Duration::from_secs(1800);

/// Runs what follows in the test in a process of its own; the process that started it returns from the test when that has ended.
/// An argument replaces [`TIME_LIMIT`].
macro_rules! in_own_process {
    () => {
        crate::in_own_process!(crate::TIME_LIMIT)
    };
    ($limit:expr) => {
        fn here() {}
        if !crate::is_own_process(std::any::type_name_of_val(&here), $limit) {
            return;
        }
    };
}
use in_own_process;

/// Whether this is the process of the test. If not, runs it to its end, and checks that it passed. `here` is the path of a function
/// in the test.
fn is_own_process(here: &str, limit: Duration) -> bool {
    if std::env::var_os(IS_OWN).is_some() {
        return true;
    }
    let path = here.strip_suffix("::here").expect("a function in a test");
    let (_, test) = path.split_once("::").expect("the crate's name first");
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        .env(IS_OWN, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let reader = std::thread::spawn(move || {
        let mut printed = Vec::new();
        stdout.read_to_end(&mut printed).map(|_| printed)
    });
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if begun.elapsed() > limit {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("{test}: no end after {limit:?}");
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let printed = reader.join().unwrap().unwrap();
    let printed = String::from_utf8_lossy(&printed);
    print!("{printed}");
    assert!(status.success(), "{test}: {status}");
    // a name that no test has is not an error of the harness
    assert!(printed.contains("1 passed"), "{test} did not run");
    false
}
