//! `pagecache overhead`: the time of reads and of copies from a mapping, with cached and uncached files, with and without
//! the runtime running an empty policy.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use memmap2::Mmap;
use serde_json::Value;

use crate::mounted_image::{self, ImageLocation, MountedImage};
use crate::report::{self, least};
use crate::results::{self, Overheads, Provenance, ReadOverhead};
use crate::{Failure, Overhead, page_cache};

const CHUNK: usize = 1 << 20;
/// Reads of the file per round, of which the fastest counts.
const PASSES: usize = 3;

pub fn overhead(args: &Overhead) -> Result<(), Failure> {
    let dir = args.paths.dir.join("overhead");
    std::fs::create_dir_all(&dir)?;
    let run = Provenance::now(args.rounds, Err("no Python is used"));
    let mut all = Overheads {
        run,
        gib: args.gb,
        rows: Vec::new(),
    };
    all.rows
        .extend(measure(&dir, args, ImageLocation::OnDevice)?);
    std::fs::remove_dir_all(dir)?;
    for (kind, location) in [
        ("xfs", ImageLocation::OnDevice),
        ("ext4", ImageLocation::InMemory),
        ("xfs", ImageLocation::InMemory),
    ] {
        match MountedImage::new(kind, location, &args.paths.dir, args.gb << 30) {
            Ok(mounted) => all.rows.extend(measure(&mounted.dir, args, location)?),
            Err(error) => eprintln!("not measured on {kind}{}: {error}", location.suffix()),
        }
    }
    println!("{}", report::overhead(&all));
    results::write(&args.results, &all)
}

/// Both ways of reading an uncached file of one directory. Cached reads do not depend on where an image is stored, and are
/// only measured on the device.
fn measure(
    dir: &Path,
    args: &Overhead,
    location: ImageLocation,
) -> Result<Vec<ReadOverhead>, Failure> {
    let path = dir.join("file");
    write_random(&path, args.gb << 30)?;
    let filesystem = format!(
        "{}{}",
        mounted_image::filesystem_name(dir)?,
        location.suffix()
    );
    let cold_states = if location == ImageLocation::OnDevice {
        &[false, true][..]
    } else {
        &[true][..]
    };
    let mut rows = Vec::new();
    for read in [
        ("read, 1 MiB", read_whole as ReadFile),
        ("copied from a mapping, 1 MiB", copy_from_mapping),
    ] {
        for &cold in cold_states {
            rows.push(ReadOverhead {
                filesystem: filesystem.clone(),
                ..compare(&path, args, read, cold)?
            });
        }
    }
    Ok(rows)
}

/// Reads a whole file.
type ReadFile = fn(&Path) -> Result<(), Failure>;

/// One way of reading a file, with and without an empty policy for its directory.
fn compare(
    path: &Path,
    args: &Overhead,
    (name, read): (&str, ReadFile),
    cold: bool,
) -> Result<ReadOverhead, Failure> {
    let dir = path.parent().ok_or("a file without a directory")?;
    let cache = if cold { "cold" } else { "warm" };
    let mut row = ReadOverhead {
        reads: name.into(),
        cache: cache.into(),
        ..ReadOverhead::default()
    };
    if !cold {
        // populated once for all runs, because the size of the folios differs from time to time
        page_cache::evict(dir)?;
        page_cache::populate(dir)?;
    }
    for round in 0..2 * args.rounds {
        // without, with, with, without: drift of the machine affects both alike
        let with_policy = (round + round / 2) % 2 == 1;
        let daemon = if with_policy {
            Some(Daemon::start(&args.paths.anamnesis, dir)?)
        } else {
            None
        };
        let (mut times, mut cpu_seconds) = (Vec::new(), 0.0);
        for _ in 0..PASSES {
            if cold {
                page_cache::evict(dir)?;
            }
            let (begun, before) = (
                Instant::now(),
                daemon.as_ref().map_or(0.0, Daemon::cpu_seconds),
            );
            read(path)?;
            times.push(begun.elapsed().as_secs_f64());
            cpu_seconds += daemon.as_ref().map_or(0.0, Daemon::cpu_seconds) - before;
        }
        let all: f64 = times.iter().sum();
        if with_policy {
            &mut row.with_policy
        } else {
            &mut row.baseline
        }
        .push(least(times.into_iter()));
        if let Some(daemon) = daemon {
            let events = daemon.events(&args.paths.anamnesis)?;
            row.cpu_share.push(cpu_seconds / all);
            row.events += events("received")?;
            row.lost += events("lost")?;
            row.resident = row.resident.max(daemon.resident());
        }
    }
    Ok(row)
}

/// Writes a file of random bytes, unless one of this length exists.
fn write_random(path: &Path, bytes: u64) -> Result<(), Failure> {
    if path
        .metadata()
        .is_ok_and(|metadata| metadata.len() == bytes)
    {
        return Ok(());
    }
    let mut file = File::create(path)?;
    std::io::copy(&mut File::open("/dev/urandom")?.take(bytes), &mut file)?;
    file.sync_all()?;
    Ok(())
}

fn read_whole(path: &Path) -> Result<(), Failure> {
    let mut file = File::open(path)?;
    let mut buffer = vec![0; CHUNK];
    while file.read(&mut buffer)? > 0 {}
    Ok(())
}

fn copy_from_mapping(path: &Path) -> Result<(), Failure> {
    let file = File::open(path)?;
    // SAFETY: the evaluation created the file and does not modify it while it is mapped
    let map = unsafe { Mmap::map(&file)? };
    let mut buffer = vec![0; CHUNK];
    for bytes in map.chunks_exact(CHUNK) {
        buffer.copy_from_slice(bytes);
        std::hint::black_box(&buffer);
    }
    Ok(())
}

/// The runtime with an empty policy; it ends when the value is dropped.
struct Daemon(Child);

impl Daemon {
    fn start(anamnesis: &Path, dir: &Path) -> Result<Self, Failure> {
        let child = Command::new(anamnesis)
            .args(["ppc", "run", "--quiet", "--policy", "none", "--dir"])
            .arg(dir)
            .stdout(Stdio::null())
            .spawn()?;
        let daemon = Self(child);
        for _ in 0..200 {
            if daemon.events(anamnesis).is_ok() {
                return Ok(daemon);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Err("the runtime did not start".into())
    }

    /// Its event counters by name.
    fn events(&self, anamnesis: &Path) -> Result<impl Fn(&str) -> Result<u64, Failure>, Failure> {
        let pid = self.0.id().to_string();
        let out = Command::new(anamnesis)
            .args(["ppc", "status", "--json", &pid])
            .stderr(Stdio::null())
            .output()?;
        let status: Value = serde_json::from_slice(&out.stdout)?;
        let events = status["runtimes"][0]["events"].clone();
        Ok(move |name: &str| {
            events[name]
                .as_u64()
                .ok_or_else(|| format!("no counter {name} in {events}").into())
        })
    }

    /// Seconds of CPU time of all its threads so far.
    fn cpu_seconds(&self) -> f64 {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.0.id()))
            .into_iter()
            .flatten()
            .flatten();
        let of = |text: String| text.split_whitespace().next()?.parse::<f64>().ok();
        tasks
            .filter_map(|task| of(std::fs::read_to_string(task.path().join("schedstat")).ok()?))
            .sum::<f64>()
            / 1e9
    }

    /// Its peak resident memory in bytes.
    fn resident(&self) -> u64 {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", self.0.id())).unwrap_or_default();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        peak.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok())
            .unwrap_or(0)
            * 1024
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.0.wait();
    }
}
