//! Every loader, to be given the same reads.

use std::sync::Arc;

use anamnesis::load::{Loader, MmapLoader, PreadLoader, RecordingLoader};

/// Every loader there is, in the shapes that differ.
pub fn loaders() -> Vec<(&'static str, Arc<dyn Loader>)> {
    let all: Vec<(&'static str, Arc<dyn Loader>)> = vec![
        ("mapped", Arc::new(MmapLoader::new())),
        (
            "mapped, nothing ahead",
            Arc::new(MmapLoader::new().window(0)),
        ),
        (
            "mapped, dropped behind",
            Arc::new(MmapLoader::new().window(1 << 16).drop_behind(true)),
        ),
        (
            "recorded",
            Arc::new(RecordingLoader::new(PreadLoader::new().threads(2))),
        ),
        ("one thread", Arc::new(PreadLoader::new().threads(1))),
        (
            "three threads, a page each",
            Arc::new(PreadLoader::new().threads(3).request_size(4096)),
        ),
        (
            "threads, direct",
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
            ("a ring", Arc::new(UringLoader::new())),
            (
                "a ring, one page at a time",
                Arc::new(UringLoader::new().depth(1).request_size(1)),
            ),
            (
                "a ring, direct",
                Arc::new(
                    UringLoader::new()
                        .depth(5)
                        .request_size(64 << 10)
                        .direct(true),
                ),
            ),
        ];
        all.into_iter().chain(rings).collect()
    };
    all
}
