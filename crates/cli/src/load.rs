//! `anamnesis load`: loads a checkpoint in one or more rounds and reports speed and resource use.

use std::io::Write;
use std::sync::Arc;
use std::time::Instant;

use anamnesis::load::{
    Chunk, DirectIo, IoReport, LoadContext, Loader, LoaderChoice, MmapLoader, PreadLoader,
    RecordingLoader, RemoteLoader, StorageInfo, StorageKind, choose,
};
use anamnesis::quote::escape;
use anamnesis::{ByteRange, Checkpoint, load};
use serde_json::{Value, json};
use zeropool::BufferPool;

use crate::args::{Color, LoadArgs, LoaderName};
use crate::checkpoint_warnings::{about_place, show_about_place};
use crate::exit::{Completion, RunError, again};
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::name_filter::NameFilter;
use crate::output::table::{Column, Table};
use crate::output::{BOLD, DIM, Screen, Stdout, json, progress};
use crate::resource_usage::ResourceUsage;
use crate::shown_path::shown;
use crate::template::SavedTemplate;
use crate::text::{ByteSize, plural};
use crate::{request_stats, template};

/// The measurements of one round.
struct LoadRound {
    seconds: f64,
    usage: ResourceUsage,
    /// Share of the files in the page cache before the round; `None` where the system does not report it.
    cached_before: Option<f64>,
    /// How the loader read; `None` if it does not report it.
    io: Option<IoReport>,
}

/// The result of all rounds.
struct LoadReport {
    choice: LoaderChoice,
    tensors: usize,
    nbytes: u64,
    rounds: Vec<LoadRound>,
    /// The template of the first round's reads, with `--record`.
    recorded: Option<SavedTemplate>,
    device: Option<DeviceRate>,
    /// The warnings of opening that are on standard error, for the document.
    notes: Vec<String>,
}

/// The rate of reading the files with `O_DIRECT` and discarding the bytes, which is the upper bound of a cold load.
struct DeviceRate {
    nbytes: u64,
    seconds: f64,
    /// How the files were read: a file system without `O_DIRECT` falls back to the page cache.
    io: Option<IoReport>,
}

/// Bytes of a mapping that are touched between two checks for an interrupt.
const TOUCH_STEP: usize = 16 << 20;

pub(crate) fn run(
    args: &LoadArgs,
    color: Color,
    interrupt: &Interrupt,
    out: &mut Stdout,
) -> Result<Completion, RunError> {
    match measure(args, interrupt) {
        Ok(report) if args.json => json::write_line(&document(args, &report), out)?,
        Ok(report) => show(args, &report, &Screen::new(color), out)?,
        Err(failure) => return failure.end(args.json, interrupt, out),
    }
    // an interrupt during the device measurement: the rounds are complete and have been printed
    Ok(if interrupt.requested() {
        Completion::Interrupted
    } else {
        Completion::Done
    })
}

fn measure(args: &LoadArgs, interrupt: &Interrupt) -> Result<LoadReport, Failure> {
    if let Some(path) = &args.record {
        // before anything is read: a load of minutes should not end at a file that exists
        template::check_output(path, args.overwrite, std::slice::from_ref(&args.source))?;
    }
    let options = args.opening.options().cancel(interrupt.token());
    let checkpoint = again(|| options.open(&args.source))?;
    show_about_place(&checkpoint);
    let filter = NameFilter::new(&args.filter);
    let tensors = checkpoint.catalog().tensors().iter();
    tensors.for_each(|tensor| filter.observe(&tensor.name));
    let refused = checkpoint.catalog().refused().iter();
    refused.for_each(|entry| filter.observe(&entry.name));
    let required = filter.require_matches();
    required.map_err(|failure| failure.in_file(&args.source))?;
    let mut refused = checkpoint.catalog().refused().iter();
    // a member that is listed and cannot be read would be missing without a word
    if let Some(entry) = refused.find(|entry| filter.passes(&entry.name)) {
        let what = format!("{}: {}", escape(&entry.name), entry.reason);
        let help = "name the tensors that are to be loaded with --filter";
        return Err(Failure::new("unsupported", what, help).in_file(&args.source));
    }
    interrupt.handle();
    // one pool for all rounds, so that the second round shows a load without page faults
    let pool = BufferPool::new();
    let is_owned = is_owned(args);
    let mut report: Option<LoadReport> = None;
    for _ in 0..args.repeat.max(1) {
        if args.cold {
            checkpoint
                .sources()
                .iter()
                // before `StorageInfo`, which counts what is cached: the choice of the loader depends on it
                .for_each(|source| source.dont_need(0, source.len().unwrap_or(0)));
        }
        let storage = StorageInfo::of(&checkpoint);
        let choice = match &report {
            // the first round's loader for all rounds: afterwards the files are cached, and the choice would be another
            // one
            Some(report) => report.choice.clone(),
            None => choose_loader(args, &storage, is_owned)?,
        };
        let recording = args
            .record
            .as_ref()
            // the first round only: the others read the same bytes
            .filter(|_| report.is_none())
            .map(|path| (path, RecordingLoader::new(choice.loader.clone())));
        let used = recording.as_ref().map_or_else(
            || choice.clone(),
            |(_, recording)| LoaderChoice {
                loader: Arc::new(recording.clone()),
                ..choice.clone()
            },
        );
        let (tensors, nbytes, round) = run_round(
            args,
            interrupt,
            &checkpoint,
            &filter,
            &pool,
            &used,
            &storage,
        )?;
        let recorded = recording.map(|(path, recording)| {
            let template = recording
                .template()
                .map_err(|e| Failure::from(e.in_file(&args.source)))?;
            template::save(&template, path, args.overwrite)
        });
        let recorded = recorded.transpose()?;
        let report = report.get_or_insert_with(|| LoadReport {
            choice,
            tensors,
            nbytes,
            rounds: Vec::new(),
            recorded,
            device: None,
            notes: about_place(&checkpoint),
        });
        report.rounds.push(round);
    }
    let mut report = report.expect("--repeat is at least one round");
    // after the rounds: its requests would compete with the rounds for the device
    report.device = device_rate(&checkpoint, interrupt);
    Ok(report)
}

/// The loader of `--loader`, or the library's choice.
fn choose_loader(
    args: &LoadArgs,
    storage: &StorageInfo,
    is_owned: bool,
) -> Result<LoaderChoice, Failure> {
    let requested = |loader: Arc<dyn Loader>| LoaderChoice {
        loader,
        reason: "requested with --loader".into(),
    };
    Ok(match args.loader {
        LoaderName::Auto => choose(storage, !is_owned),
        LoaderName::Remote if storage.kind != StorageKind::Remote => {
            let what = "the loader `remote` reads URLs, and these files are on this machine";
            let help = "leave out --loader, or name a loader of local files";
            return Err(Failure::new("invalid_argument", what, help).in_file(&args.source));
        }
        LoaderName::Remote => {
            let remote = RemoteLoader::new();
            requested(Arc::new(args.depth.map_or(remote, |n| remote.requests(n))))
        }
        LoaderName::Mmap => requested(Arc::new(MmapLoader::new())),
        LoaderName::Pread => requested(Arc::new(PreadLoader::new().threads(args.threads))),
        #[cfg(target_os = "linux")]
        LoaderName::Uring | LoaderName::Direct => {
            let ring = anamnesis::load::UringLoader::new()
                .direct(args.loader == LoaderName::Direct)
                .threads(args.threads);
            requested(Arc::new(args.depth.map_or(ring, |depth| ring.depth(depth))))
        }
        // io_uring is Linux's: threads that read come nearest
        #[cfg(not(target_os = "linux"))]
        LoaderName::Uring | LoaderName::Direct => {
            requested(Arc::new(PreadLoader::new().threads(args.threads)))
        }
    })
}

/// Whether tensors are copied into the pool, and not borrowed.
fn is_owned(args: &LoadArgs) -> bool {
    // the loader `mmap` borrows by its nature: copying its bytes would measure `pread` with detours
    !args.borrow_mapped && args.loader != LoaderName::Mmap
}

/// Loads the checkpoint once. Returns the number of tensors, their bytes, and the measurements.
fn run_round(
    args: &LoadArgs,
    interrupt: &Interrupt,
    checkpoint: &Checkpoint,
    filter: &NameFilter<'_>,
    pool: &BufferPool,
    choice: &LoaderChoice,
    storage: &StorageInfo,
) -> Result<(usize, u64, LoadRound), Failure> {
    let is_owned = is_owned(args);
    let bar = progress::bar("loading", checkpoint.catalog().nbytes());
    let load = load(checkpoint)
        .pool(pool)
        .threads(args.threads)
        .filter(|name| filter.passes(name))
        .choice(choice.clone())
        .progress(progress::on(&bar))
        .cancel(interrupt.token());
    let load = if is_owned { load } else { load.borrow_mapped() };
    let before = ResourceUsage::now();
    let begun = Instant::now();
    let loaded = load.run();
    let loaded = loaded.and_then(|loaded| {
        // mapped bytes are read from the device at the first access, so the measurement touches every page
        let mapped = loaded
            .tensors()
            .iter()
            .map(|tensor| tensor.bytes())
            .filter(|_| !is_owned);
        for bytes in mapped.flat_map(|bytes| bytes.chunks(TOUCH_STEP)) {
            // one byte of every page makes it resident; `black_box` keeps the loop
            std::hint::black_box(bytes.iter().step_by(4096).fold(0u8, |sum, byte| sum ^ byte));
            interrupt.check()?;
        }
        Ok(loaded)
    });
    let seconds = begun.elapsed().as_secs_f64();
    bar.finish_and_clear();
    let loaded = loaded.map_err(|e| Failure::from(e.in_file(&args.source)))?;
    let io = loaded.report().cloned();
    let round = LoadRound {
        seconds,
        usage: ResourceUsage::now().since(&before),
        cached_before: storage.resident,
        io,
    };
    Ok((loaded.tensors().len(), loaded.nbytes(), round))
}

/// Maximum number of bytes that the measurement of the device reads.
const DEVICE_SAMPLE: u64 = 8 << 30;

/// Measures the device: reads the files with `O_DIRECT` in large requests and discards the bytes. `None` for files that are
/// not on a local device, for less than 1 MiB, and if reading fails, because the rounds are a result without it.
fn device_rate(checkpoint: &Checkpoint, interrupt: &Interrupt) -> Option<DeviceRate> {
    let kind = StorageInfo::of(checkpoint).kind;
    if !matches!(kind, StorageKind::Local(_) | StorageKind::Other(_)) {
        return None;
    }
    const REQUEST: u64 = 16 << 20;
    let files = checkpoint.sources().iter().zip(0u32..);
    let all = files.flat_map(|(source, file)| {
        let len = source.len().unwrap_or(0);
        (0..len.div_ceil(REQUEST)).map(move |i| ByteRange {
            file,
            start: i * REQUEST,
            len: REQUEST.min(len - i * REQUEST),
        })
    });
    let mut total = 0;
    let reads: Vec<_> = all
        .take_while(|read| {
            total += read.len;
            total <= DEVICE_SAMPLE
        })
        .collect();
    let nbytes: u64 = reads.iter().map(|read| read.len).sum();
    // the time of so few bytes is the latency of one request, and no rate
    if nbytes < 1 << 20 {
        return None;
    }
    let reading = LoadContext {
        checkpoint,
        pool: BufferPool::new(),
        // one read of 16 MiB ahead for each of the four threads
        read_ahead: 4 * REQUEST,
        max_gap: 0,
        into_memory: false,
    };
    // four threads with requests of 1 MiB keep the queue of an NVMe device full, which one thread does not
    let raw = PreadLoader::new()
        .threads(4)
        .request_size(1 << 20)
        .direct(true);
    let begun = Instant::now();
    let mut io = None;
    let read = raw.run(&reading, &reads, &mut |feed| {
        for i in 0..reads.len() {
            drop::<Chunk<'_>>(feed.get_cancellable(i, &mut |_| interrupt.control_flow())?);
            interrupt.check()?;
        }
        io = feed.report();
        Ok(())
    });
    read.ok()?;
    Some(DeviceRate {
        nbytes,
        seconds: begun.elapsed().as_secs_f64(),
        io,
    })
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss
)] // shown to three digits
/// Bytes per second.
fn rate(nbytes: u64, seconds: f64) -> u64 {
    // an empty checkpoint loads in no measurable time
    (nbytes as f64 / seconds.max(1e-9)) as u64
}

fn show(
    args: &LoadArgs,
    report: &LoadReport,
    screen: &Screen,
    out: &mut Stdout,
) -> Result<(), RunError> {
    writeln!(out, "{}", screen.paint(BOLD, escape(&shown(&args.source))))?;
    writeln!(
        out,
        "  {}, {}",
        plural(report.tensors as u64, "tensor"),
        ByteSize(report.nbytes)
    )?;
    writeln!(out, "  loader    {}", report.choice)?;
    // all rounds use the same loader, but a file system may refuse a request in a later one
    let has_fallback = |io: &&IoReport| io.fallback.is_some();
    if let Some(io) = report
        .rounds
        .iter()
        .filter_map(|round| round.io.as_ref())
        .find(has_fallback)
    {
        writeln!(out, "  fallback  {}", escape(&io.to_string()))?;
    }
    if let Some(DeviceRate {
        nbytes,
        seconds,
        io,
    }) = &report.device
    {
        let how = io
            .as_ref()
            .map_or_else(|| DirectIo::All.to_string(), |io| io.direct.to_string());
        let why = io
            .as_ref()
            .and_then(|io| io.fallback.as_ref())
            .map(|why| format!(" ({})", escape(why)));
        let rate = ByteSize(rate(*nbytes, *seconds));
        writeln!(
            out,
            "  device    {rate}/s for these files, {how}{}",
            why.unwrap_or_default()
        )?;
    }
    if let Some(recorded) = &report.recorded {
        writeln!(out, "  template  {recorded}")?;
    }
    writeln!(out)?;
    let columns = vec![
        Column::right("round").style(DIM),
        Column::right("seconds"),
        Column::right("rate"),
        Column::right("cpu time"),
        Column::right("minor faults"),
        Column::right("major faults"),
        Column::right("device reads"),
        Column::right("cached before"),
        Column::right("resident"),
    ];
    let mut table = Table::new(columns, 2);
    for (number, round) in report.rounds.iter().enumerate() {
        let ResourceUsage {
            cpu,
            minor_faults,
            major_faults,
            device_bytes,
            resident,
        } = round.usage;
        table.cell(number + 1);
        table.cell(format!("{:.3}", round.seconds));
        table.cell(format!(
            "{}/s",
            ByteSize(rate(report.nbytes, round.seconds))
        ));
        table.cell(format!("{cpu:.3} s"));
        table.cell(minor_faults);
        table.cell(major_faults);
        table.cell(device_bytes.map_or("?".to_owned(), |n| ByteSize(n).to_string()));
        table.cell(
            round
                .cached_before
                .map_or("?".to_owned(), |share| format!("{:.0} %", share * 100.0)),
        );
        table.cell(ByteSize(resident));
    }
    table.print(screen, out)?;
    Ok(())
}

fn document(args: &LoadArgs, report: &LoadReport) -> Value {
    let rounds = report.rounds.iter().map(|round| {
        json!({
            "seconds": round.seconds,
            "bytes_per_second": rate(report.nbytes, round.seconds),
            "cpu_seconds": round.usage.cpu,
            "minor_faults": round.usage.minor_faults,
            "major_faults": round.usage.major_faults,
            "device_bytes": round.usage.device_bytes,
            "resident_share_before": round.cached_before,
            "resident_memory": round.usage.resident,
            "io": round.io.as_ref().map(io_report),
        })
    });
    let mut document = json!({
        "version": json::VERSION,
        "source": shown(&args.source),
        "tensors": report.tensors,
        "nbytes": report.nbytes,
        "loader": report.choice.loader.name(),
        "why": report.choice.reason,
        "notes": report.notes,
        "rounds": rounds.collect::<Vec<_>>(),
        "recorded": report.recorded.as_ref().map(SavedTemplate::document),
        "device": report.device.as_ref().map(|DeviceRate { nbytes, seconds, io }| json!({
            "nbytes": nbytes,
            "seconds": seconds,
            "bytes_per_second": rate(*nbytes, *seconds),
            "io": io.as_ref().map(io_report),
        })),
    });
    request_stats::add_to(&mut document, &args.opening);
    document
}

/// A loader's I/O report as JSON.
fn io_report(report: &IoReport) -> Value {
    json!({"backend": report.backend.name(), "direct": report.direct.name(), "fallback": report.fallback})
}
