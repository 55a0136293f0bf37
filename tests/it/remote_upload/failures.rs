//! Uploads that fail, are cancelled or dropped: nothing is left, or it is named.

use std::time::{Duration, Instant};

use super::{INDEX, PART, SHARD, options, server, source, write, write_shards};
use crate::support::scratch_dir::ScratchDir;
use crate::support::web_server::TestServer;
use anamnesis::catalog::Shape;
use anamnesis::plan::TensorSpec;
use anamnesis::sink::{SafetensorsSink, Sharding, Sink};
use anamnesis::{CancelToken, Dtype, ErrorKind, remember};

fn assert_empty(server: &TestServer, what: &str) {
    assert_eq!(server.open_uploads(), Vec::<String>::new(), "{what}");
    assert_eq!(server.paths(), Vec::<String>::new(), "{what}");
}

#[test]
fn a_failure_leaves_nothing() {
    let scratch = ScratchDir::new("upload-fails");
    let checkpoint = source(&scratch);
    for (operation, status) in [
        ("part 5", "403 Forbidden"),
        ("part 2", "503 Slow Down"),
        ("create /bucket/out/model-00002", "403 Forbidden"),
        ("complete /bucket/out/model-00003", "403 Forbidden"),
        ("complete /bucket/out/model-00002", "lost"),
        ("put /bucket/out/tokenizer", "403 Forbidden"),
        (
            "complete /bucket/out/model.safetensors.index",
            "403 Forbidden",
        ),
    ] {
        let server = server();
        // the repetition after an answer that is lost finds that the upload has ended
        let times = if status == "lost" { 1 } else { usize::MAX };
        server.upload_fault(operation, status, times);
        let began = Instant::now();
        let outcome = write_shards(&server, &checkpoint, false);
        if status == "lost" {
            outcome.unwrap_or_else(|e| panic!("{operation}: {e}"));
            continue;
        }
        let error = outcome.unwrap_err().to_string();
        assert!(
            error.starts_with("s3://bucket/out") && !error.contains("secret"),
            "{error}"
        );
        assert_empty(&server, operation);
        assert!(
            began.elapsed() < Duration::from_secs(2),
            "{operation}: {:?}",
            began.elapsed()
        );
    }
}

#[test]
fn a_cancelled_run_leaves_nothing_and_ends_soon() {
    let scratch = ScratchDir::new("upload-cancel");
    let checkpoint = source(&scratch);
    for operation in ["part 3", "complete", "put"] {
        let server = server();
        server.upload_fault(operation, "silent", usize::MAX);
        let token = CancelToken::new();
        let began = Instant::now();
        let error = std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(300));
                token.cancel();
            });
            let url = "s3://bucket/out";
            write(
                &server,
                &checkpoint,
                url,
                Sharding::Shards(SHARD),
                false,
                &token,
            )
            .unwrap_err()
        });
        assert!(
            matches!(error.kind(), ErrorKind::Cancelled),
            "{operation}: {error}"
        );
        assert!(
            began.elapsed() < Duration::from_secs(2),
            "{operation}: {:?}",
            began.elapsed()
        );
        assert_eq!(server.open_uploads(), Vec::<String>::new(), "{operation}");
        assert!(server.object(INDEX).is_none(), "{operation}");
    }
}

#[test]
fn uploads_that_cannot_be_aborted_are_named() {
    let (server, scratch) = (server(), ScratchDir::new("upload-open"));
    let checkpoint = source(&scratch);
    server.upload_fault("abort", "403 Forbidden", usize::MAX);
    let token = CancelToken::new();
    let remember = remember(&checkpoint).cancel(&token).progress(|progress| {
        if progress.done > 1_000_000 {
            token.cancel();
        }
    });
    let sink = remember
        .safetensors("s3://bucket/out/", Sharding::Shards(SHARD))
        .unwrap();
    let mut sink = sink.remote(options(&server));
    let error = remember
        .run(&remember.plan().unwrap(), &mut sink)
        .unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Cancelled), "{error}");
    let note = error.note().unwrap();
    assert!(
        note.contains("s3://bucket/out/model-00001-of-00003.safetensors (id upload-"),
        "{note}"
    );
    assert!(
        note.contains("lifecycle rule") && error.to_string().ends_with(note),
        "{error}"
    );
    assert!(server.object(INDEX).is_none());
}

#[test]
fn a_sink_that_is_dropped_leaves_nothing_and_refuses_bytes_far_ahead() {
    let server = server();
    let spec = |name: &str| TensorSpec::new(name, Shape::from_slice(&[10 * PART]), Dtype::U8);
    let sink = SafetensorsSink::new("s3://bucket/out/", Sharding::Shards(SHARD));
    let mut sink = sink.remote(options(&server));
    sink.begin(&[spec("a"), spec("b")]).unwrap();
    assert_eq!(sink.order(), Some(vec![0, 1]));
    sink.put(0, 0, &[1; 6 << 16]).unwrap();
    let error = sink.put(1, 9 * PART, &[1; 100]).unwrap_err();
    assert!(
        error.to_string().contains("the order that it states"),
        "{error}"
    );
    assert_eq!(
        server.open_uploads(),
        ["/bucket/out/model-00001-of-00002.safetensors"]
    );
    drop(sink);
    assert_empty(&server, "dropped");
    for url in ["https://h/a.safetensors", "hf://org/model/a.safetensors"] {
        let mut sink = SafetensorsSink::new(url, Sharding::SingleFile);
        let error = sink.begin(&[spec("a")]).unwrap_err();
        assert!(
            error.to_string().contains("only buckets are written to"),
            "{error}"
        );
    }
}
