//! Whoever watches stops a load inside a tensor, by whatever brings its bytes.

mod common;

use std::fs;
use std::io;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anamnesis::execute::Progress;
use anamnesis::load::{Facts, Kind, Pread, load};
use anamnesis::sink::Null;
use anamnesis::source::Func;
use anamnesis::{Checkpoint, ErrorKind, OpenOptions, remember};
use common::loaders::loaders;
use common::scratch::Scratch;
use common::skip;
use common::sparse::Sparse;
use zeropool::BufferPool;

const TENSOR: u64 = 2 << 30;
/// That may have been brought when the first call has said no.
const MOST: u64 = 256 << 20;

/// One tensor of zeros that are not there.
fn tensor(dtype: &str, width: u64) -> Sparse {
    let columns = TENSOR / 1024 / width;
    let header = format!(
        r#"{{"t":{{"dtype":"{dtype}","shape":[1024,{columns}],"data_offsets":[0,{TENSOR}]}}}}"#
    );
    let mut file = Sparse::default();
    file.put([&(header.len() as u64).to_le_bytes()[..], header.as_bytes()].concat());
    file.zeros(TENSOR);
    file
}

/// The file, of which the page cache holds nothing.
fn cold(scratch: &Scratch, name: &str, file: &Sparse) -> std::path::PathBuf {
    let path = scratch.path(name);
    file.write(&path).unwrap();
    path
}

/// Bytes of the file that the page cache holds.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss
)] // a share of 2 GiB
fn brought(checkpoint: &Checkpoint) -> Option<u64> {
    let facts = Facts::of(checkpoint);
    let share = facts
        .resident
        .filter(|_| !matches!(facts.kind, Kind::Memory(_)))?;
    Some((share * facts.bytes as f64) as u64)
}

/// Hears of progress, and says no at once.
#[derive(Default)]
struct No {
    heard: Vec<Progress>,
}

impl No {
    fn hear(&mut self, progress: Progress) -> ControlFlow<()> {
        self.heard.push(progress);
        ControlFlow::Break(())
    }
}

#[test]
fn every_loader_stops_inside_a_tensor_of_2_gib() {
    let scratch = Scratch::new("cancel-load");
    let mut measured = 0;
    for (i, (name, loader)) in loaders().into_iter().enumerate() {
        for map in [true, false] {
            let path = cold(
                &scratch,
                &format!("{i}-{map}.safetensors"),
                &tensor("U8", 1),
            );
            let checkpoint = OpenOptions::new().map(map).open(&path).unwrap();
            let pool = BufferPool::new();
            let mut no = No::default();
            let loading = load(&checkpoint).loader(loader.clone()).pool(&pool);
            let error = loading
                .run_watched(&mut |progress| no.hear(progress))
                .unwrap_err();
            let what = format!("{name}, mapped: {map}");
            assert!(
                matches!(error.kind(), ErrorKind::Cancelled),
                "{what}: {error}"
            );
            assert_eq!(no.heard.len(), 1, "{what}: it is not asked again");
            assert!(
                no.heard[0].done < MOST && no.heard[0].total == TENSOR,
                "{what}: {:?}",
                no.heard
            );
            assert_eq!(pool.stats().in_use, 0, "{what}");
            if let Some(brought) = brought(&checkpoint) {
                assert!(brought < MOST, "{what}: {brought} bytes were read");
                measured += 1;
            }
            fs::remove_file(path).unwrap();
        }
    }
    if measured == 0 {
        skip("how much was read: the scratch directory is in memory");
    }
}

#[test]
fn progress_is_told_inside_a_tensor() {
    let scratch = Scratch::new("cancel-progress");
    let nbytes = 200 << 20;
    let path = scratch.path("in.safetensors");
    let header =
        format!(r#"{{"t":{{"dtype":"U8","shape":[{nbytes}],"data_offsets":[0,{nbytes}]}}}}"#);
    let mut file = Sparse::default();
    file.put([&(header.len() as u64).to_le_bytes()[..], header.as_bytes()].concat());
    file.zeros(nbytes);
    file.write(&path).unwrap();
    for map in [true, false] {
        let checkpoint = OpenOptions::new().map(map).open(&path).unwrap();
        for (name, loader) in loaders() {
            let mut told = vec![0];
            load(&checkpoint)
                .loader(loader)
                .run_watched(&mut |progress| {
                    told.push(progress.done);
                    ControlFlow::Continue(())
                })
                .unwrap();
            assert!(
                told.is_sorted() && told.last() == Some(&nbytes),
                "{name}: {told:?}"
            );
            // the beginning here, the end of the tensor and of the load, and something between
            assert!(told.len() > 3, "{name}: {told:?}");
        }
    }
}

/// A source from which nothing comes until the load was stopped, or too late.
#[test]
fn who_waits_for_what_does_not_come_is_asked() {
    let stopped = Arc::new(AtomicBool::new(false));
    let header = tensor("U8", 1).pieces.remove(0).1;
    let (head, begun) = (header.len() as u64, Arc::new(AtomicU64::new(0)));
    let (seen, count) = (stopped.clone(), begun.clone());
    let source = Func::new(head + TENSOR, move |start, buf: &mut [u8]| {
        if start < head {
            let start = usize::try_from(start).unwrap();
            let n = buf.len().min(header.len() - start);
            buf[..n].copy_from_slice(&header[start..start + n]);
            return Ok(());
        }
        count.fetch_add(1, Ordering::Relaxed);
        let since = Instant::now();
        while !seen.load(Ordering::Relaxed) {
            if since.elapsed() > Duration::from_secs(30) {
                return Err(io::ErrorKind::TimedOut.into());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    });
    let checkpoint = Checkpoint::from_source(source).unwrap();
    let loading = load(&checkpoint).loader(Pread::new().threads(2));
    let mut stop = |_: Progress| {
        // only once somebody waits
        if begun.load(Ordering::Relaxed) == 0 {
            return ControlFlow::Continue(());
        }
        stopped.store(true, Ordering::Relaxed);
        ControlFlow::Break(())
    };
    let error = loading.run_watched(&mut stop).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Cancelled), "{error}");
}

/// Tensors that no loader brings: turned around while they are read.
#[test]
fn what_is_made_stops_too() {
    let scratch = Scratch::new("cancel-made");
    let mut text =
        String::from("{'descr': '>f4', 'fortran_order': False, 'shape': (16384, 32768), }");
    for order in ["False", "True"] {
        text = text.replace("False", order);
        let padded = format!("{text}{}\n", " ".repeat(117 - text.len()));
        let mut file = Sparse::default();
        file.put(
            [
                b"\x93NUMPY\x01\0",
                &118u16.to_le_bytes()[..],
                padded.as_bytes(),
            ]
            .concat(),
        );
        file.zeros(TENSOR);
        for map in [true, false] {
            let path = cold(&scratch, &format!("{order}-{map}.npy"), &file);
            let checkpoint = OpenOptions::new().map(map).open(&path).unwrap();
            let mut no = No::default();
            let error = load(&checkpoint)
                .run_watched(&mut |progress| no.hear(progress))
                .unwrap_err();
            assert!(
                matches!(error.kind(), ErrorKind::Cancelled),
                "{order} {map}: {error}"
            );
            assert!(
                brought(&checkpoint).is_none_or(|brought| brought < MOST),
                "{order} {map}"
            );
        }
    }
}

#[test]
fn remembering_stops_inside_a_weight() {
    let scratch = Scratch::new("cancel-remember");
    for (i, (name, loader)) in loaders().into_iter().enumerate() {
        let path = cold(&scratch, &format!("{i}.safetensors"), &tensor("F16", 2));
        let checkpoint = Checkpoint::open(&path).unwrap();
        let plan = remember(&checkpoint).cast(true).plan().unwrap();
        assert_eq!(plan.nbytes(), TENSOR);
        let heard = Mutex::new(No::default());
        let mut watch = |progress| heard.lock().unwrap().hear(progress);
        let error = anamnesis::execute::execute(
            &checkpoint,
            &plan,
            Some(&*loader),
            &mut Null,
            2,
            &mut watch,
        )
        .unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::Cancelled),
            "{name}: {error}"
        );
        assert!(heard.lock().unwrap().heard[0].done < MOST, "{name}");
        assert!(
            brought(&checkpoint).is_none_or(|brought| brought < MOST),
            "{name}: {:?}",
            brought(&checkpoint)
        );
        fs::remove_file(path).unwrap();
    }
}
