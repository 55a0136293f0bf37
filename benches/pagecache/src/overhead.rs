//! What an empty policy costs those who read: 1 MiB reads, and copies of 1 MiB out of a map, warm and cold.

use std::fmt::Write;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use memmap2::Mmap;
use serde_json::Value;

use crate::filesystem::{self, Kept, Mounted};
use crate::report::{least, median};
use crate::results::{self, Origin, Overheads, Reads};
use crate::{Failure, Overhead, warmth};

const PIECE: usize = 1 << 20;
/// Times that a file is read, of which the least counts.
const PASSES: usize = 3;

pub fn overhead(args: &Overhead) -> Result<(), Failure> {
    let dir = args.places.dir.join("overhead");
    std::fs::create_dir_all(&dir)?;
    let run = Origin::now(args.rounds, Err("no Python takes part"));
    let mut all = Overheads {
        run,
        gib: args.gb,
        rows: Vec::new(),
    };
    all.rows.extend(on(&dir, args, Kept::OnDevice)?);
    std::fs::remove_dir_all(dir)?;
    for (kind, kept) in [
        ("xfs", Kept::OnDevice),
        ("ext4", Kept::InMemory),
        ("xfs", Kept::InMemory),
    ] {
        match Mounted::new(kind, kept, &args.places.dir, args.gb << 30) {
            Ok(mounted) => all.rows.extend(on(&mounted.dir, args, kept)?),
            Err(error) => eprintln!("not measured on {kind}{}: {error}", kept.words()),
        }
    }
    println!("{}", table(&all));
    results::write(&args.results, &all)
}

/// Both ways to read in one directory, cold, and warm where that is not what another has shown.
fn on(dir: &Path, args: &Overhead, kept: Kept) -> Result<Vec<Reads>, Failure> {
    let path = dir.join("file");
    make(&path, args.gb << 30)?;
    let on = format!("{}{}", filesystem::name(dir)?, kept.words());
    let caches = if kept == Kept::OnDevice {
        &[false, true][..]
    } else {
        &[true][..]
    };
    let mut rows = Vec::new();
    for way in [
        ("read, 1 MiB", by_read as Way),
        ("copied out of a map, 1 MiB", by_map),
    ] {
        for &cold in caches {
            rows.push(Reads {
                on: on.clone(),
                ..compare(&path, args, way, cold)?
            });
        }
    }
    Ok(rows)
}

/// A way to read a file.
type Way = fn(&Path) -> Result<(), Failure>;

/// One way to read a file, alone and beside an empty policy for its directory.
fn compare(
    path: &Path,
    args: &Overhead,
    (name, read): (&str, Way),
    cold: bool,
) -> Result<Reads, Failure> {
    let dir = path.parent().ok_or("a file without a directory")?;
    let cache = if cold { "cold" } else { "warm" };
    let mut row = Reads {
        reads: name.into(),
        cache: cache.into(),
        ..Reads::default()
    };
    if !cold {
        // once for all runs: they differ by how large the pieces are that the file lies in
        warmth::cool(dir)?;
        warmth::warm(dir)?;
    }
    for round in 0..2 * args.rounds {
        // ABBA
        let beside = (round + round / 2) % 2 == 1;
        let daemon = if beside {
            Some(Daemon::start(&args.places.anamnesis, dir)?)
        } else {
            None
        };
        let (mut times, mut worked) = (Vec::new(), 0.0);
        for _ in 0..PASSES {
            if cold {
                warmth::cool(dir)?;
            }
            let (begun, before) = (Instant::now(), daemon.as_ref().map_or(0.0, Daemon::worked));
            read(path)?;
            times.push(begun.elapsed().as_secs_f64());
            worked += daemon.as_ref().map_or(0.0, Daemon::worked) - before;
        }
        let all: f64 = times.iter().sum();
        if beside {
            &mut row.beside
        } else {
            &mut row.alone
        }
        .push(least(times.into_iter()));
        if let Some(daemon) = daemon {
            let events = daemon.events(&args.places.anamnesis)?;
            row.processor.push(worked / all);
            row.told += events("told")?;
            row.lost += events("lost")?;
            row.resident = row.resident.max(daemon.resident());
        }
    }
    Ok(row)
}

/// Where it ran, and a line for each way to read.
pub fn table(all: &Overheads) -> String {
    let rounds = all.rows.first().map_or(0, |row| row.alone.len());
    let mut text = format!(
        "{}\n\n{} GiB, {rounds} alternating runs each.\n\n\
         | reads | on | cache | alone, s | beside an empty policy, s | ratio | in pairs | of the least | \
         its processor, of the time | told | lost | resident, MB |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|\n",
        results::line(Some(&all.run)),
        all.gib
    );
    for row in &all.rows {
        let (alone, beside) = (|| row.alone.iter().copied(), || row.beside.iter().copied());
        // each with the one beside it in time: what the device does from minute to minute is in both
        let pairs = median(beside().zip(alone()).map(|(beside, alone)| beside / alone));
        let least = least(beside()) / least(alone());
        let (alone, beside) = (median(alone()), median(beside()));
        let _ = writeln!(
            text,
            "| {} | {} | {} | {alone:.3} | {beside:.3} | {:.3} | {pairs:.3} | {least:.3} | {:.2} % | {} | {} | {:.1} |",
            row.reads,
            row.on,
            row.cache,
            beside / alone,
            100.0 * median(row.processor.iter().copied()),
            row.told,
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
    let mut piece = vec![0; PIECE];
    while file.read(&mut piece)? > 0 {}
    Ok(())
}

fn by_map(path: &Path) -> Result<(), Failure> {
    let file = File::open(path)?;
    // SAFETY: nobody writes to the file that this evaluation made
    let map = unsafe { Mmap::map(&file)? };
    let mut piece = vec![0; PIECE];
    for bytes in map.chunks_exact(PIECE) {
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

    /// Its counts of events, by their name.
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
                .ok_or_else(|| format!("no events {name} in {events}").into())
        })
    }

    /// Seconds of processor time that it has had.
    fn worked(&self) -> f64 {
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

    /// Bytes of memory that are the runtime's.
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
