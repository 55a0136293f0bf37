//! A load on a thread of its own, whose tensors are taken through a handle: the same tensors as from a stream, whenever the
//! handle is dropped or cancelled, in bounded memory, and nothing outlives the handle.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use crate::support::fixtures;
use crate::support::fn_sources::{DISCONNECTED, disconnecting_source};
use crate::support::loaders::all_loaders;
use crate::support::open_modes::OpenMode;
use crate::support::random::random_bytes;
use crate::support::scratch_dir::ScratchDir;
use crate::support::tensor_files::{
    large_tensors, odd_sized_tensors, single_tensor, tensor_bytes, varied_tensors, write_and_open,
};
use crate::support::writers::{StoredTensor, safetensors};
use anamnesis::load::{Loader, PreadLoader, RunningLoad};
use anamnesis::source::FnSource;
use anamnesis::{CancelToken, Checkpoint, ErrorKind, Load, Result, load};
use zeropool::BufferPool;

/// Names and bytes until the end or the first error.
type Tensors = (Vec<(String, Vec<u8>)>, Option<String>);

fn streamed(load: &Load<'static>) -> Tensors {
    let mut all = Vec::new();
    let outcome = load.stream(|tensors| {
        for tensor in tensors {
            let tensor = tensor?;
            all.push((tensor.name().to_owned(), tensor.bytes().to_vec()));
        }
        Ok(())
    });
    (all, outcome.err().map(|error| error.to_string()))
}

fn taken(load: &Load<'static>) -> Tensors {
    let (mut all, mut error) = (Vec::new(), None);
    for tensor in load.start().unwrap() {
        match tensor {
            Ok(tensor) => all.push((tensor.name().to_owned(), tensor.bytes().to_vec())),
            Err(e) => assert!(error.replace(e.to_string()).is_none(), "two errors"),
        }
    }
    (all, error)
}

#[test]
fn a_handle_gives_what_a_stream_gives() {
    let loaders = all_loaders();
    let mut compared = 0;
    for (path, _) in fixtures() {
        for mode in [OpenMode::Mapped, OpenMode::Read] {
            let Ok(checkpoint) = mode.open(&path, None) else {
                continue;
            };
            let checkpoint = Arc::new(checkpoint);
            for (name, loader) in &loaders {
                let load = load(&checkpoint)
                    .loader(loader.clone())
                    .order(|a, b| b.name.cmp(&a.name));
                let what = format!("{} {mode:?} {name}", path.display());
                assert!(streamed(&load) == taken(&load), "{what}");
                compared += 1;
            }
        }
    }
    assert!(compared > 3000, "{compared}");
}

#[test]
fn a_handle_may_be_dropped_at_every_point() {
    let scratch = ScratchDir::new("running-drop");
    let path = write_and_open(&scratch, &odd_sized_tensors(9, 200_000))
        .path()
        .unwrap()
        .to_owned();
    for (name, loader) in all_loaders() {
        for taken in 0..=10 {
            let checkpoint = Arc::new(Checkpoint::open(&path).unwrap());
            let pool = BufferPool::new();
            let mut tensors = load(&checkpoint)
                .loader(loader.clone())
                .pool(&pool)
                .read_ahead(300_000)
                .start()
                .unwrap();
            let kept: Vec<_> = tensors.by_ref().take(taken).map(Result::unwrap).collect();
            assert_eq!(kept.len(), taken.min(9), "{name}");
            drop(tensors);
            drop(kept);
            // the load's thread had the other owner, and the pool's buffers
            assert_eq!(Arc::strong_count(&checkpoint), 1, "{name} {taken}");
            assert_eq!(pool.stats().in_use, 0, "{name} {taken}");
        }
    }
}

#[test]
fn a_handle_is_sent_to_another_thread_and_tensors_outlive_it() {
    let scratch = ScratchDir::new("running-send");
    let checkpoint = Arc::new(write_and_open(&scratch, &large_tensors()));
    let expected = tensor_bytes(&checkpoint);
    let tensors = load(checkpoint).start().unwrap();
    assert!(
        tensors
            .choice()
            .is_none_or(|choice| !choice.reason.is_empty())
    );
    let taken = thread::spawn(move || {
        let mut tensors: RunningLoad = tensors;
        let all: Vec<_> = tensors.by_ref().map(Result::unwrap).collect();
        assert!(tensors.next().is_none());
        let progress = tensors.progress();
        assert!(progress.done == progress.total && progress.total > 50 << 20);
        assert_eq!(tensors.choice().unwrap().loader.name(), "pread");
        assert!(tensors.report().is_some());
        all
    });
    let taken = taken.join().unwrap();
    assert!(taken.iter().map(|tensor| tensor.bytes()).eq(&expected));
}

/// A consumer that takes one tensor and no more: the load stops, with what it may read ahead.
#[test]
fn an_idle_consumer_stops_the_load() {
    let scratch = ScratchDir::new("running-idle");
    let tensors: Vec<_> = (0..60)
        .map(|i| {
            let bytes = random_bytes(i, 1 << 20);
            StoredTensor::new(&format!("t{i:02}"), "U8", &[1 << 20], bytes)
        })
        .collect();
    let checkpoint = Arc::new(write_and_open(&scratch, &safetensors(&tensors, &[])));
    for (name, loader) in all_loaders()
        .into_iter()
        .filter(|(name, _)| !name.contains("page"))
    {
        let pool = BufferPool::builder().budget(48 << 20).build().unwrap();
        let load = load(&checkpoint)
            .loader(loader)
            .pool(&pool)
            .read_ahead(4 << 20);
        let mut tensors = load.start().unwrap();
        let first = tensors.next().unwrap().unwrap();
        let (mut before, mut since) = ((u64::MAX, 0), Instant::now());
        while since.elapsed() < Duration::from_millis(200) {
            let now = (tensors.progress().done, pool.stats().in_use);
            if now != before {
                (before, since) = (now, Instant::now());
            }
            thread::sleep(Duration::from_millis(5));
        }
        // one was taken, one is complete; the loader has read what it may, and extents of that length
        assert_eq!(tensors.progress().done, 2 << 20, "{name}");
        assert!(
            pool.stats().in_use <= 16 << 20,
            "{name}: {:?}",
            pool.stats()
        );
        drop(first);
        let names: Vec<_> = tensors.map(|t| t.unwrap().name().to_owned()).collect();
        assert_eq!(names.len(), 59, "{name}");
        assert!(names.is_sorted());
        assert_eq!(pool.stats().in_use, 0, "{name}");
    }
}

/// A consumer that keeps more than the pool may hold gets an error instead of waiting for itself.
#[test]
fn keeping_more_than_the_budget_is_an_error() {
    let checkpoint = Arc::new(Checkpoint::from_bytes(odd_sized_tensors(20, 1 << 20)).unwrap());
    let pool = BufferPool::builder().budget(8 << 20).build().unwrap();
    let load = load(&checkpoint)
        .loader(PreadLoader::new())
        .pool(&pool)
        .read_ahead(1 << 20);
    let kept: Vec<_> = load.start().unwrap().collect();
    let (last, others) = kept.split_last().unwrap();
    assert!(others.len() > 3 && others.iter().all(Result::is_ok));
    let error = last.as_ref().unwrap_err();
    assert!(
        matches!(
            error.kind(),
            ErrorKind::Limit {
                limit: "budget",
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn an_error_in_the_middle_is_the_last_item() {
    let bytes = large_tensors();
    let half = bytes.len() as u64 / 2;
    let source = disconnecting_source(bytes, half);
    let checkpoint = Arc::new(Checkpoint::from_source(source).unwrap());
    for (name, loader) in all_loaders()
        .into_iter()
        .filter(|(name, _)| !name.contains("page"))
    {
        let pool = BufferPool::new();
        let load = load(&checkpoint).loader(loader).pool(&pool);
        let mut tensors = load.read_ahead(1 << 20).start().unwrap();
        let first = tensors.next().unwrap().unwrap();
        assert_eq!(first.bytes().len(), 5 << 20);
        drop(first);
        let error = tensors.by_ref().find_map(Result::err).expect(name);
        assert!(error.to_string().contains(DISCONNECTED), "{name}: {error}");
        assert!(tensors.next().is_none());
        assert_eq!(
            tensors.next_timeout(Duration::ZERO).map(|t| t.is_none()),
            Poll::Ready(true)
        );
        assert_eq!(pool.stats().in_use, 0, "{name}");
    }
}

/// The source blocks every read of the second tensor until it is released.
#[test]
fn a_load_that_waits_is_polled_and_cancelled() {
    let blocked = Arc::new(AtomicBool::new(true));
    let bytes = large_tensors();
    let (len, blocks) = (bytes.len() as u64, blocked.clone());
    let source = FnSource::new(len, move |start, buf: &mut [u8]| {
        let since = Instant::now();
        while start > 10 << 20 && blocks.load(Ordering::Relaxed) {
            assert!(since.elapsed() < Duration::from_secs(60), "never released");
            thread::sleep(Duration::from_millis(1));
        }
        let start = usize::try_from(start).unwrap();
        buf.copy_from_slice(&bytes[start..start + buf.len()]);
        Ok(())
    });
    let checkpoint = Arc::new(Checkpoint::from_source(source).unwrap());
    let token = CancelToken::new();
    for by_token in [false, true] {
        blocked.store(true, Ordering::Relaxed);
        let load = load(&checkpoint)
            .loader(PreadLoader::new().threads(1))
            .cancel(&token)
            .read_ahead(1 << 20);
        let mut tensors = load.start().unwrap();
        assert_eq!(tensors.next().unwrap().unwrap().name(), "t0");
        assert_eq!(tensors.next().unwrap().unwrap().name(), "t1");
        for _ in 0..3 {
            assert!(tensors.next_timeout(Duration::from_millis(10)).is_pending());
        }
        assert!(tensors.progress().done < tensors.progress().total);
        if by_token {
            token.cancel();
        } else {
            tensors.cancel();
        }
        blocked.store(false, Ordering::Relaxed);
        let error = tensors.next().unwrap().unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Cancelled), "{error}");
        assert!(tensors.next().is_none());
        // the handle's cancellation is its own
        assert_eq!(token.is_cancelled(), by_token);
    }
}

/// The tensor was complete when the load was cancelled: the end must not look like the end of a complete load.
#[test]
fn a_cancelled_load_never_ends_as_a_complete_one() {
    let checkpoint = Arc::new(Checkpoint::from_bytes(single_tensor(1000)).unwrap());
    let mut tensors = load(&checkpoint).start().unwrap();
    while tensors.progress().done < 1000 {
        thread::yield_now();
    }
    tensors.cancel();
    let error = tensors.next().unwrap().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Cancelled), "{error}");
    assert!(tensors.next().is_none());
    // after the last tensor there is nothing to cancel
    let mut tensors = load(&checkpoint).start().unwrap();
    assert!(tensors.next().unwrap().is_ok());
    tensors.cancel();
    let end = tensors.next();
    assert!(end.is_none_or(|end| matches!(end.unwrap_err().kind(), ErrorKind::Cancelled)));
}

#[test]
fn a_panic_of_a_callback_reaches_the_consumer() {
    let checkpoint = Arc::new(Checkpoint::from_bytes(varied_tensors()).unwrap());
    let message = |panic: Box<dyn std::any::Any + Send>| *panic.downcast::<&str>().unwrap();
    let panicking = load(&checkpoint).filter(|_| panic!("a panic of the test's filter"));
    let mut tensors = panicking.start().unwrap();
    let panic = catch_unwind(AssertUnwindSafe(|| tensors.next())).unwrap_err();
    assert_eq!(message(panic), "a panic of the test's filter");
    assert!(tensors.next().is_none());
    drop(tensors);
    let mut tensors = panicking.start().unwrap();
    let polled = AssertUnwindSafe(|| tensors.next_timeout(Duration::from_secs(60)));
    assert_eq!(
        message(catch_unwind(polled).unwrap_err()),
        "a panic of the test's filter"
    );
    let tensors = panicking.start().unwrap();
    let panic = catch_unwind(AssertUnwindSafe(|| drop(tensors))).unwrap_err();
    assert_eq!(message(panic), "a panic of the test's filter");
    // in the middle of the load
    let load = load(&checkpoint).progress(|_| panic!("a panic of the test's callback"));
    let panic = catch_unwind(AssertUnwindSafe(|| load.start().unwrap().count())).unwrap_err();
    assert_eq!(message(panic), "a panic of the test's callback");
}

#[test]
fn errors_of_planning_are_items() {
    let checkpoint = Arc::new(Checkpoint::from_bytes(varied_tensors()).unwrap());
    let mut tensors = load(&checkpoint).align(3).start().unwrap();
    let error = tensors.next().unwrap().unwrap_err();
    assert!(error.to_string().contains("alignment"), "{error}");
    assert!(tensors.next().is_none() && tensors.choice().is_none());
    let none = load(&checkpoint).filter(|_| false).start().unwrap();
    assert_eq!(none.count(), 0);
}

#[test]
fn a_stream_reports_its_loader() {
    let scratch = ScratchDir::new("running-report");
    let checkpoint = Arc::new(write_and_open(&scratch, &large_tensors()));
    let loader: Arc<dyn Loader> = Arc::new(PreadLoader::new().threads(1));
    let load = load(&checkpoint).loader(loader);
    load.stream(|tensors| {
        assert_eq!(tensors.choice().reason, "set by the caller");
        tensors.next().unwrap()?;
        assert_eq!(tensors.report().unwrap().backend.name(), "threads");
        Ok(())
    })
    .unwrap();
}
