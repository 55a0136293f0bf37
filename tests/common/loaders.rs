//! Every loader, to be given the same reads.

use std::sync::Arc;

use anamnesis::load::{Loader, Mapped, Pread, Recording};

/// Every loader there is, in the shapes that differ.
pub fn loaders() -> Vec<(&'static str, Arc<dyn Loader>)> {
    let all: Vec<(&'static str, Arc<dyn Loader>)> = vec![
        ("mapped", Arc::new(Mapped::new())),
        ("mapped, nothing ahead", Arc::new(Mapped::new().window(0))),
        (
            "mapped, dropped behind",
            Arc::new(Mapped::new().window(1 << 16).drop_behind(true)),
        ),
        (
            "recorded",
            Arc::new(Recording::new(Pread::new().threads(2))),
        ),
        ("one thread", Arc::new(Pread::new().threads(1))),
        (
            "three threads, a page each",
            Arc::new(Pread::new().threads(3).piece(4096)),
        ),
        (
            "threads, direct",
            Arc::new(Pread::new().threads(2).piece(64 << 10).direct(true)),
        ),
    ];
    #[cfg(all(target_os = "linux", feature = "uring"))]
    let all = {
        use anamnesis::load::Uring;
        let rings: [(&'static str, Arc<dyn Loader>); 3] = [
            ("a ring", Arc::new(Uring::new())),
            (
                "a ring, one page at a time",
                Arc::new(Uring::new().depth(1).piece(1)),
            ),
            (
                "a ring, direct",
                Arc::new(Uring::new().depth(5).piece(64 << 10).direct(true)),
            ),
        ];
        all.into_iter().chain(rings).collect()
    };
    all
}
