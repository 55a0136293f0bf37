//! `anamnesis load`: a checkpoint into memory, and what that took.

use std::io::Write;
use std::sync::Arc;
use std::time::Instant;

use anamnesis::load::{
    Choice, Chunk, Direct, Facts, Loader, Mapped, Pread, Reading, Recording, Way, choose,
};
use anamnesis::{ByteRange, Checkpoint, ErrorKind, load};
use serde_json::{Value, json};
use zeropool::BufferPool;

use crate::args::{Color, Load, LoaderName};
use crate::exit::{Code, Failure, Stop};
use crate::output::table::{Column, Table};
use crate::output::text::{Bytes, clean, plural};
use crate::output::{BOLD, DIM, Screen, Stdout, json, progress};
use crate::template::Kept;
use crate::usage::Usage;
use crate::{interrupt, select, template};

/// One round: how long, and what was spent.
struct Round {
    seconds: f64,
    used: Usage,
    /// Share of the files in the page cache before.
    resident: Option<f64>,
    /// How the loader really read.
    way: Option<Way>,
}

/// What the rounds brought.
struct Done {
    choice: Choice,
    tensors: usize,
    nbytes: u64,
    rounds: Vec<Round>,
    /// Where what was read the first time was written down.
    recorded: Option<Kept>,
    /// Reading the files past the page cache, keeping nothing.
    device: Option<Device>,
}

/// What reading the files past the page cache took.
struct Device {
    nbytes: u64,
    seconds: f64,
    /// Whether it was past it.
    way: Option<Way>,
}

/// Bytes of a lent file that are touched until an interrupt is asked for.
const STEP: usize = 16 << 20;

pub(crate) fn run(args: &Load, color: Color, out: &mut Stdout) -> Result<Code, Stop> {
    let measured = measure(args);
    match measured {
        Ok(done) if args.json => writeln!(out, "{}", document(args, &done))?,
        Ok(done) => show(args, &done, &Screen::new(color), out)?,
        Err(failure) => {
            if args.json {
                writeln!(
                    out,
                    "{}",
                    json!({"version": json::VERSION, "error": failure})
                )?;
                out.flush()?;
            }
            failure.report();
            return Ok(if interrupt::asked() {
                Code::Interrupted
            } else {
                Code::Failed
            });
        }
    }
    // what was measured before the interrupt is worth telling, and is not all that was asked for
    Ok(if interrupt::asked() {
        Code::Interrupted
    } else {
        Code::Done
    })
}

fn measure(args: &Load) -> Result<Done, Failure> {
    if let Some(path) = &args.record {
        template::free(path, args.overwrite)?;
    }
    let checkpoint = args.opening.options().open(&args.source)?;
    interrupt::is_noted();
    let pool = BufferPool::new();
    let own = !args.lend && args.loader != LoaderName::Mmap;
    let mut done: Option<Done> = None;
    for _ in 0..args.repeat.max(1) {
        if args.cold {
            checkpoint
                .sources()
                .iter()
                .for_each(|source| source.passed(0, source.len().unwrap_or(0)));
        }
        let facts = Facts::of(&checkpoint);
        let choice = done
            .as_ref()
            .map_or_else(|| pick(args, &facts, own), |done| done.choice.clone());
        let recording = args
            .record
            .as_ref()
            .filter(|_| done.is_none())
            .map(|path| (path, Recording::new(choice.loader.clone())));
        let used = recording.as_ref().map_or_else(
            || choice.clone(),
            |(_, recording)| Choice {
                loader: Arc::new(recording.clone()),
                ..choice.clone()
            },
        );
        let (tensors, nbytes, round) = one(args, &checkpoint, &pool, own, &used, &facts)?;
        let recorded = recording.map(|(path, recording)| {
            let template = recording
                .template()
                .map_err(|e| Failure::from(e.in_file(&args.source)))?;
            template::keep(&template, path, args.overwrite)
        });
        let recorded = recorded.transpose()?;
        let done = done.get_or_insert_with(|| Done {
            choice,
            tensors,
            nbytes,
            rounds: Vec::new(),
            recorded,
            device: None,
        });
        done.rounds.push(round);
    }
    let mut done = done.expect("at least one round");
    done.device = device(&checkpoint);
    Ok(done)
}

fn pick(args: &Load, facts: &Facts, own: bool) -> Choice {
    let as_asked = |loader: Arc<dyn Loader>| Choice {
        loader,
        why: "as asked".into(),
    };
    match args.loader {
        LoaderName::Auto => choose(facts, own),
        LoaderName::Mmap => as_asked(Arc::new(Mapped::new())),
        LoaderName::Pread => as_asked(Arc::new(Pread::new().threads(args.threads))),
        #[cfg(target_os = "linux")]
        LoaderName::Uring | LoaderName::Direct => {
            let ring = anamnesis::load::Uring::new().direct(args.loader == LoaderName::Direct);
            as_asked(Arc::new(args.depth.map_or(ring, |depth| ring.depth(depth))))
        }
        #[cfg(not(target_os = "linux"))]
        LoaderName::Uring | LoaderName::Direct => {
            as_asked(Arc::new(Pread::new().threads(args.threads)))
        }
    }
}

fn one(
    args: &Load,
    checkpoint: &Checkpoint,
    pool: &BufferPool,
    own: bool,
    choice: &Choice,
    facts: &Facts,
) -> Result<(usize, u64, Round), Failure> {
    let wanted = |name: &str| select::passes(&args.filter, name);
    let how = load(checkpoint)
        .pool(pool)
        .own(own)
        .threads(args.threads)
        .filter(wanted)
        .choice(choice.clone());
    let bar = progress::bar("loading", checkpoint.catalog().nbytes());
    let before = Usage::now();
    let begun = Instant::now();
    let loaded = how.run_watched(&mut |progress| {
        bar.set_position(progress.done);
        interrupt::flow()
    });
    let loaded = loaded.and_then(|loaded| {
        // what is lent is only there once it was touched
        let lent = loaded
            .tensors()
            .iter()
            .map(|tensor| tensor.bytes())
            .filter(|_| !own);
        for bytes in lent.flat_map(|bytes| bytes.chunks(STEP)) {
            std::hint::black_box(bytes.iter().step_by(4096).fold(0u8, |sum, byte| sum ^ byte));
            unless_interrupted()?;
        }
        Ok(loaded)
    });
    let seconds = begun.elapsed().as_secs_f64();
    bar.finish_and_clear();
    let loaded = loaded.map_err(|e| Failure::from(e.in_file(&args.source)))?;
    if loaded.tensors().is_empty() && !args.filter.is_empty() {
        return Err(
            Failure::new("no_match", "no tensor is left to load", "check --filter")
                .in_file(&args.source),
        );
    }
    let way = loaded.way().cloned();
    let round = Round {
        seconds,
        used: Usage::now().since(&before),
        resident: facts.resident,
        way,
    };
    Ok((loaded.tensors().len(), loaded.nbytes(), round))
}

fn unless_interrupted() -> anamnesis::Result<()> {
    if interrupt::asked() {
        Err(anamnesis::Error::new(ErrorKind::Cancelled))
    } else {
        Ok(())
    }
}

/// Reads at most this much to learn the device's rate.
const SAMPLE: u64 = 8 << 30;

/// The device's own rate on these files: read past the page cache in large pieces, and dropped.
fn device(checkpoint: &Checkpoint) -> Option<Device> {
    let kind = Facts::of(checkpoint).kind;
    if !matches!(
        kind,
        anamnesis::load::Kind::Local(_) | anamnesis::load::Kind::Other(_)
    ) {
        return None;
    }
    const PIECE: u64 = 16 << 20;
    let files = checkpoint.sources().iter().zip(0u32..);
    let all = files.flat_map(|(source, file)| {
        let len = source.len().unwrap_or(0);
        (0..len.div_ceil(PIECE)).map(move |i| ByteRange {
            file,
            start: i * PIECE,
            len: PIECE.min(len - i * PIECE),
        })
    });
    let mut total = 0;
    let reads: Vec<_> = all
        .take_while(|read| {
            total += read.len;
            total <= SAMPLE
        })
        .collect();
    let nbytes: u64 = reads.iter().map(|read| read.len).sum();
    if nbytes < 1 << 20 {
        return None;
    }
    let reading = Reading {
        checkpoint,
        pool: BufferPool::new(),
        ahead: 4 * PIECE,
        gap: 0,
    };
    let raw = Pread::new().threads(4).piece(1 << 20).direct(true);
    let begun = Instant::now();
    let mut way = None;
    let read = raw.run(&reading, &reads, &mut |feed| {
        for i in 0..reads.len() {
            drop::<Chunk<'_>>(feed.take_watched(i, &mut |_| interrupt::flow())?);
            unless_interrupted()?;
        }
        way = feed.way();
        Ok(())
    });
    // what was measured before is worth telling also without it
    read.ok()?;
    Some(Device {
        nbytes,
        seconds: begun.elapsed().as_secs_f64(),
        way,
    })
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss
)] // shown to three digits
fn rate(nbytes: u64, seconds: f64) -> u64 {
    (nbytes as f64 / seconds.max(1e-9)) as u64
}

fn show(args: &Load, done: &Done, screen: &Screen, out: &mut Stdout) -> Result<(), Stop> {
    writeln!(
        out,
        "{}",
        screen.paint(BOLD, clean(&args.source.display().to_string()))
    )?;
    writeln!(
        out,
        "  {}, {}",
        plural(done.tensors as u64, "tensor"),
        Bytes(done.nbytes)
    )?;
    writeln!(out, "  loader  {}", done.choice)?;
    // every round has the same loader, but a file system may refuse later
    let instead = |way: &&Way| way.instead.is_some();
    if let Some(way) = done
        .rounds
        .iter()
        .filter_map(|round| round.way.as_ref())
        .find(instead)
    {
        writeln!(out, "  instead {}", clean(&way.to_string()))?;
    }
    if let Some(Device {
        nbytes,
        seconds,
        way,
    }) = &done.device
    {
        let how = way
            .as_ref()
            .map_or_else(|| Direct::All.to_string(), |way| way.direct.to_string());
        let why = way
            .as_ref()
            .and_then(|way| way.instead.as_ref())
            .map(|why| format!(" ({})", clean(why)));
        let rate = Bytes(rate(*nbytes, *seconds));
        writeln!(
            out,
            "  device  {rate}/s on these files, {how}{}",
            why.unwrap_or_default()
        )?;
    }
    if let Some(recorded) = &done.recorded {
        writeln!(out, "  record  {recorded}")?;
    }
    writeln!(out)?;
    let columns = vec![
        Column::right("round").style(DIM),
        Column::right("seconds"),
        Column::right("rate"),
        Column::right("cpu"),
        Column::right("minor faults"),
        Column::right("major"),
        Column::right("from the device"),
        Column::right("cached before"),
        Column::right("resident"),
    ];
    let mut table = Table::new(columns, 2);
    for (number, round) in done.rounds.iter().enumerate() {
        let Usage {
            cpu,
            minor_faults,
            major_faults,
            device_bytes,
            resident,
        } = round.used;
        table.cell(number + 1);
        table.cell(format!("{:.3}", round.seconds));
        table.cell(format!("{}/s", Bytes(rate(done.nbytes, round.seconds))));
        table.cell(format!("{cpu:.3} s"));
        table.cell(minor_faults);
        table.cell(major_faults);
        table.cell(device_bytes.map_or("?".to_owned(), |n| Bytes(n).to_string()));
        table.cell(
            round
                .resident
                .map_or("?".to_owned(), |share| format!("{:.0} %", share * 100.0)),
        );
        table.cell(Bytes(resident));
    }
    table.print(screen, out)?;
    Ok(())
}

fn document(args: &Load, done: &Done) -> Value {
    let rounds = done.rounds.iter().map(|round| {
        json!({
            "seconds": round.seconds,
            "bytes_per_second": rate(done.nbytes, round.seconds),
            "cpu_seconds": round.used.cpu,
            "minor_faults": round.used.minor_faults,
            "major_faults": round.used.major_faults,
            "device_bytes": round.used.device_bytes,
            "resident_share_before": round.resident,
            "resident_memory": round.used.resident,
            "way": round.way.as_ref().map(facts),
        })
    });
    json!({
        "version": json::VERSION,
        "source": args.source.display().to_string(),
        "tensors": done.tensors,
        "nbytes": done.nbytes,
        "loader": done.choice.loader.name(),
        "why": done.choice.why,
        "rounds": rounds.collect::<Vec<_>>(),
        "recorded": done.recorded.as_ref().map(Kept::facts),
        "device": done.device.as_ref().map(|Device { nbytes, seconds, way }| json!({
            "nbytes": nbytes,
            "seconds": seconds,
            "bytes_per_second": rate(*nbytes, *seconds),
            "way": way.as_ref().map(facts),
        })),
    })
}

/// How a loader really read, as data.
fn facts(way: &Way) -> Value {
    json!({"by": way.by.name(), "direct": way.direct.name(), "instead": way.instead})
}
