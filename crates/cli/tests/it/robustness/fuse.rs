//! Models on a FUSE file system, whose server counts the bytes that are requested: no byte is requested twice because of a policy.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::model::RandomModel;
use crate::failing_pages::faulty_files::{FaultyFiles, FileCall, Outcome};
use crate::process::{Run, path_str, run};
use crate::runtime_process::on_device;

/// Bytes that are requested besides the model: the first bytes of files, which policies compare and identify them by.
const OVERHEAD: u64 = 512 << 10;

/// A model on a FUSE file system, and the bytes that were requested from its server.
struct ServedModel {
    files: FaultyFiles,
    model: RandomModel,
    template: std::path::PathBuf,
    served: Arc<AtomicU64>,
    _dirs: [tempfile::TempDir; 2],
}

impl ServedModel {
    /// `None`, with a message, without the privileges for events or for mounting.
    fn new() -> Option<Self> {
        let (scratch, mounted) = (on_device()?, tempfile::tempdir().unwrap());
        let files = FaultyFiles::mount(mounted.path())
            .inspect_err(|error| eprintln!("SKIPPED: a FUSE file system: {error}"))
            .ok()?;
        let local = RandomModel::below(scratch.path(), 8);
        let template = local.template(scratch.path());
        for name in local.names() {
            if name.ends_with(".safetensors") {
                files.write(&name, std::fs::read(local.root.join(&name)).unwrap());
            }
        }
        let served = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&served);
        files.fail(move |call| {
            if let FileCall::Read { len, .. } = call {
                counted.fetch_add(len as u64, Ordering::SeqCst);
                // as a server at the other end of a network
                std::thread::sleep(Duration::from_micros(300));
            }
            Outcome::Success
        });
        let model = local.at(mounted.path());
        Some(Self {
            files,
            model,
            template,
            served,
            _dirs: [mounted, scratch],
        })
    }

    /// Makes the kernel discard all pages, and counts from 0.
    fn evict(&self) {
        self.model.evict();
        self.served.store(0, Ordering::SeqCst);
    }

    /// The bytes that were requested since [`evict`](Self::evict).
    fn requested(&self) -> u64 {
        self.served.load(Ordering::SeqCst)
    }

    /// Loads the model with this policy, and checks its bytes.
    fn load_with(&self, policy: &str) -> Run {
        self.evict();
        // the prefetch begins before the load does
        let script = format!("sleep 0.3; {}", RandomModel::script(&self.model.root));
        let args = ["ppc", "run", "--dir", path_str(&self.model.root)];
        let done = run(&[&args[..], &["--policy", policy, "--", "sh", "-c", &script]].concat());
        assert_eq!((done.code, &done.stdout), (0, &self.model.expected));
        done
    }

    fn policies(&self) -> [String; 2] {
        ["eager".into(), format!("maio:{}", self.template.display())]
    }
}

#[test]
fn policies_read_no_byte_twice_from_a_server_that_keeps_no_pages() {
    let Some(served) = ServedModel::new() else {
        return;
    };
    for (cached, why) in [
        (true, "discards cached pages whenever a file is opened"),
        (false, "caches no pages"),
    ] {
        served.files.use_page_cache(cached);
        served.evict();
        assert_eq!(served.model.load(), served.model.expected);
        let alone = served.requested();
        for policy in served.policies() {
            let done = served.load_with(&policy);
            let requested = served.requested();
            eprintln!("{policy}, which {why}: {requested} bytes, {alone} without a policy");
            assert!(
                requested <= alone + OVERHEAD,
                "{policy}: {requested} of {alone}"
            );
            assert_eq!(done.stderr.matches(why).count(), 1, "{}", done.stderr);
            assert!(done.stderr.contains("; 0 B prefetched"), "{}", done.stderr);
        }
        let warmed = run(&["warm", path_str(&served.model.root)]);
        assert_eq!(warmed.code, 0, "{}", warmed.stderr);
        assert_eq!(warmed.stderr.matches(why).count(), 1, "{}", warmed.stderr);
    }
}

#[test]
fn policies_prefetch_from_a_server_that_keeps_pages_and_read_no_byte_twice() {
    let Some(served) = ServedModel::new() else {
        return;
    };
    served.files.keep_pages(true);
    let len = served.model.len();
    for policy in served.policies() {
        let done = served.load_with(&policy);
        let requested = served.requested();
        eprintln!("{policy}: {requested} of {len} bytes: {}", done.stderr);
        assert!(
            (len..len + OVERHEAD).contains(&requested),
            "{policy}: {requested} of {len}"
        );
        assert!(!done.stderr.contains("FUSE"), "{}", done.stderr);
        assert!(!done.stderr.contains("; 0 B prefetched"), "{}", done.stderr);
    }
    served.evict();
    let warmed = run(&["warm", path_str(&served.model.root)]);
    assert_eq!((warmed.code, &*warmed.stderr), (0, ""));
    assert_eq!(served.model.load(), served.model.expected);
    assert!(
        served.requested() < len + OVERHEAD,
        "{}",
        served.requested()
    );
}
