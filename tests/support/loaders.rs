//! Every loader, for tests that compare what the loaders read.

use std::sync::Arc;

use anamnesis::load::{Loader, MmapLoader, PreadLoader, RecordingLoader, RemoteLoader};

/// Every loader with the options that change its reads, and a description of them.
pub fn all_loaders() -> Vec<(&'static str, Arc<dyn Loader>)> {
    let all: Vec<(&'static str, Arc<dyn Loader>)> = vec![
        ("mapped", Arc::new(MmapLoader::new())),
        (
            "mapped, no read-ahead",
            Arc::new(MmapLoader::new().window(0)),
        ),
        (
            "mapped, evicts behind the reader",
            Arc::new(MmapLoader::new().window(1 << 16).drop_behind(true)),
        ),
        (
            "recorded",
            Arc::new(RecordingLoader::new(PreadLoader::new().threads(2))),
        ),
        ("one thread", Arc::new(PreadLoader::new().threads(1))),
        (
            "three threads, page-sized requests",
            Arc::new(PreadLoader::new().threads(3).request_size(4096)),
        ),
        ("requests", Arc::new(RemoteLoader::new())),
        (
            "threads, direct I/O",
            Arc::new(
                PreadLoader::new()
                    .threads(2)
                    .request_size(64 << 10)
                    .direct(true),
            ),
        ),
    ];
    #[cfg(all(target_os = "linux", feature = "uring"))]
    let all = {
        use anamnesis::load::UringLoader;
        let rings: [(&'static str, Arc<dyn Loader>); 3] = [
            ("io_uring", Arc::new(UringLoader::new())),
            (
                "io_uring, one page at a time",
                Arc::new(UringLoader::new().depth(1).request_size(1)),
            ),
            (
                "io_uring, direct I/O",
                Arc::new(
                    UringLoader::new()
                        .depth(5)
                        .threads(3)
                        .request_size(64 << 10)
                        .direct(true),
                ),
            ),
        ];
        all.into_iter().chain(rings).collect()
    };
    all
}
