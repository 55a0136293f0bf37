//! `pagecache overhead`: reads of 1 MiB and copies of 1 MiB from a mapping, warm and cold, with and without the runtime running an
//! empty policy.

use std::fmt::Write;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use memmap2::Mmap;
use serde_json::Value;

use crate::mounted_image::{self, ImageLocation, MountedImage};
use crate::report::{least, median};
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
    for (kind, kept) in [
        ("xfs", ImageLocation::OnDevice),
        ("ext4", ImageLocation::InMemory),
        ("xfs", ImageLocation::InMemory),
    ] {
        match MountedImage::new(kind, kept, &args.paths.dir, args.gb << 30) {
            Ok(mounted) => all.rows.extend(measure(&mounted.dir, args, kept)?),
            Err(error) => eprintln!("not measured on {kind}{}: {error}", kept.suffix()),
        }
    }
    println!("{}", table(&all));
    results::write(&args.results, &all)
}

/// Both ways of reading in one directory, cold; also warm on the device, where warm reads do not depend on the image.
fn measure(dir: &Path, args: &Overhead, kept: ImageLocation) -> Result<Vec<ReadOverhead>, Failure> {
    let path = dir.join("file");
    make(&path, args.gb << 30)?;
    let filesystem = format!("{}{}", mounted_image::filesystem_name(dir)?, kept.suffix());
    let caches = if kept == ImageLocation::OnDevice {
        &[false, true][..]
    } else {
        &[true][..]
    };
    let mut rows = Vec::new();
    for read in [
        ("read, 1 MiB", by_read as ReadFile),
        ("copied from a mapping, 1 MiB", by_map),
    ] {
        for &cold in caches {
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
        // filled once for all runs, because the size of the folios differs between fills
        page_cache::evict(dir)?;
        page_cache::read_in(dir)?;
    }
    for round in 0..2 * args.rounds {
        // ABBA
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

/// Provenance, and a line for each way of reading.
pub fn table(all: &Overheads) -> String {
    let rounds = all.rows.first().map_or(0, |row| row.baseline.len());
    let mut text = format!(
        "{}\n\n{} GiB, {rounds} alternating runs each.\n\n\
         | reads | file system | cache | baseline, s | with empty policy, s | ratio | paired ratio | ratio of fastest | \
         CPU time of the runtime | events | lost | resident, MB |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|\n",
        results::line(Some(&all.run)),
        all.gib
    );
    for row in &all.rows {
        let (alone, beside) = (
            || row.baseline.iter().copied(),
            || row.with_policy.iter().copied(),
        );
        // each run with its neighbour in time: drift of the device affects both
        let pairs = median(beside().zip(alone()).map(|(beside, alone)| beside / alone));
        let least = least(beside()) / least(alone());
        let (alone, beside) = (median(alone()), median(beside()));
        let _ = writeln!(
            text,
            "| {} | {} | {} | {alone:.3} | {beside:.3} | {:.3} | {pairs:.3} | {least:.3} | {:.2} % | {} | {} | {:.1} |",
            row.reads,
            row.filesystem,
            row.cache,
            beside / alone,
            100.0 * median(row.cpu_share.iter().copied()),
            row.events,
            row.lost,
            row.resident as f64 / 1e6
        );
    }
    text
}

fn make(path: &Path, bytes: u64) -> Result<(), Failure> {
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

fn by_read(path: &Path) -> Result<(), Failure> {
    let mut file = File::open(path)?;
    let mut piece = vec![0; CHUNK];
    while file.read(&mut piece)? > 0 {}
    Ok(())
}

fn by_map(path: &Path) -> Result<(), Failure> {
    let file = File::open(path)?;
    // SAFETY: the evaluation created the file and does not modify it while it is mapped
    let map = unsafe { Mmap::map(&file)? };
    let mut piece = vec![0; CHUNK];
    for bytes in map.chunks_exact(CHUNK) {
        piece.copy_from_slice(bytes);
        std::hint::black_box(&piece);
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
