//! Files that come and go below a registered directory while a runtime listens.

mod disk;

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anamnesis_ppc::runtime::Options;
use anamnesis_ppc::source::{self, Fake};
use anamnesis_ppc::{
    Access, Context, Eager, Event, Inode, Io, Kind, Limits, Namespace, Policies, Policy, Prefetch,
    Runtime, Wants,
};
use disk::until;

/// What a [`Hears`] was told.
#[derive(Debug, Default)]
struct Heard {
    begun: u32,
    files: Vec<Vec<String>>,
    misses: Vec<String>,
    ended: u32,
}

/// Keeps what it is told, and wants misses once there is a file `model`. Answers with a file that may have gone.
struct Hears {
    heard: Arc<Mutex<Heard>>,
    wants: Wants,
    first: Option<Io>,
}

impl Hears {
    fn new() -> (Box<Self>, Arc<Mutex<Heard>>) {
        let heard = Arc::<Mutex<Heard>>::default();
        (
            Box::new(Self {
                heard: Arc::clone(&heard),
                wants: Wants::default(),
                first: None,
            }),
            heard,
        )
    }
}

fn names(namespace: &Namespace) -> Vec<String> {
    namespace
        .entries()
        .iter()
        .map(|entry| entry.path.to_str().unwrap().to_owned())
        .collect()
}

impl Policy for Hears {
    fn wants(&self) -> Wants {
        self.wants
    }

    fn init(&mut self, context: &Context) -> Result<(), String> {
        self.heard.lock().unwrap().begun += 1;
        self.first = context.namespace.entries().first().map(|entry| Io {
            path: entry.path.clone(),
            start: 0,
            len: entry.len,
            device: None,
        });
        self.renew(context)
    }

    fn renew(&mut self, context: &Context) -> Result<(), String> {
        if context.namespace.get(Path::new("bad")).is_some() {
            return Err("a bad file".into());
        }
        self.wants.prefetch = context.namespace.get(Path::new("new/model")).is_some();
        self.heard
            .lock()
            .unwrap()
            .files
            .push(names(&context.namespace));
        Ok(())
    }

    fn prefetch(&mut self, miss: &Access) -> Option<Prefetch> {
        self.heard
            .lock()
            .unwrap()
            .misses
            .push(miss.path.to_str().unwrap().into());
        self.first.clone().map(|io| Prefetch {
            ios: vec![io].into(),
            lane: 0,
        })
    }

    fn exit(&mut self) {
        self.heard.lock().unwrap().ended += 1;
    }
}

fn inode(path: &Path) -> Inode {
    Inode::of(&rustix::fs::stat(path).unwrap())
}

fn miss(inode: Inode, start: u64) -> Event {
    Event {
        kind: Kind::Miss,
        inode,
        start,
        len: 4096,
        pid: 1,
        tid: 1,
        time: 0,
    }
}

#[test]
fn who_decides_for_a_directory_decides_for_what_comes_into_it() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::write(at("old"), vec![0; 8192]).unwrap();
    let old = inode(&at("old"));
    let runtime = Runtime::new(Options::default()).unwrap();
    let (policy, heard) = Hears::new();
    runtime.reg_policy(dir.path(), "hears", policy, "").unwrap();
    let (source, hand) = Fake::new().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            runtime
                .run(Box::new(source), &AtomicBool::new(false))
                .unwrap()
        });
        until("it listens", || hand.watched() == [old]);
        hand.push(&[miss(old, 0)]); // does not want it yet

        // as a download does: another name first, in a directory that comes too
        fs::create_dir(at("new")).unwrap();
        let mut part = File::create(at("new/model.part")).unwrap();
        std::io::Write::write_all(&mut part, &[1; 8192]).unwrap();
        drop(part);
        fs::rename(at("new/model.part"), at("new/model")).unwrap();
        let model = inode(&at("new/model"));
        until("the file is listened to", || {
            hand.watched().contains(&model)
        });
        hand.push(&[miss(model, 0), miss(old, 4096)]);
        until("its misses are told", || {
            heard.lock().unwrap().misses == ["new/model", "old"]
        });

        fs::remove_file(at("old")).unwrap();
        until("the file is not listened to", || hand.watched() == [model]);
        // what the policy knows may have gone: that costs nothing
        hand.push(&[miss(model, 4096)]);
        until("and it goes on", || heard.lock().unwrap().misses.len() == 3);
        assert!(runtime.policies().all()[0].policy().lost().is_none());
        assert_eq!(runtime.status().policies[0].files, 1);
        runtime.rm_policy(dir.path()).unwrap();
        hand.end();
    });
    let heard = heard.lock().unwrap();
    assert_eq!((heard.begun, heard.ended), (1, 1), "its state was kept");
    assert_eq!(heard.files.first().unwrap(), &["old"]);
    assert!(
        heard
            .files
            .contains(&vec!["old".to_owned(), "new/model".to_owned()]),
        "{heard:?}"
    );
    assert_eq!(heard.files.last().unwrap(), &["new/model"]);
}

#[test]
fn a_registration_is_renewed_and_stays_the_same() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("old"), [0; 10]).unwrap();
    let policies = Policies::new(1 << 30, Limits::default(), |_, _| ());
    let (policy, heard) = Hears::new();
    let number = policies
        .reg_policy(dir.path(), policy, "")
        .unwrap()
        .origin()
        .number;
    let changes = policies.changes();
    assert!(!policies.renew(dir.path()).unwrap());
    assert_eq!(
        (policies.changes(), heard.lock().unwrap().files.len()),
        (changes, 1),
        "nothing came"
    );
    let write = |name: &str| {
        let file = File::create(dir.path().join(name)).unwrap();
        file.set_modified(std::time::SystemTime::now() - Duration::from_secs(2))
            .unwrap();
    };
    write("other");
    assert!(!policies.renew(dir.path()).unwrap());
    assert_eq!(policies.changes(), changes + 1);
    assert_eq!(
        heard.lock().unwrap().files.last().unwrap(),
        &["old", "other"]
    );
    let now = Arc::clone(&policies.all()[0]);
    assert_eq!(
        (now.origin().number, names(&now.origin().namespace)),
        (number, vec!["old".into(), "other".into()])
    );
    // one that cannot go on says so
    write("bad");
    policies.renew(dir.path()).unwrap();
    assert!(
        now.policy()
            .lost()
            .unwrap()
            .to_string()
            .contains("a bad file")
    );
    assert!(policies.renew(Path::new("/proc")).is_err());
}

#[test]
fn the_kernel_tells_of_files_that_came() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let cold = |name: &str| {
        let path = dir.path().join(name);
        fs::write(&path, vec![7; 8 << 20]).unwrap();
        let file = File::open(&path).unwrap();
        file.sync_all().unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        path
    };
    let brought = |path: &Path| disk::brought(path, 0, 8 << 20);
    if brought(&cold("first")) > 0 {
        return eprintln!(
            "SKIPPED: the file system of {} keeps its files in memory",
            dir.path().display()
        );
    }
    let runtime = Runtime::new(Options::default()).unwrap();
    runtime
        .reg_policy(dir.path(), "eager", Box::new(Eager::default()), "")
        .unwrap();
    let source = match source::by_name("misses", &Namespace::scan(dir.path()).unwrap()) {
        Ok(source) => source,
        Err(error) => return eprintln!("SKIPPED: {error}"),
    };
    let stop = AtomicBool::new(false);
    // until it is heard: nobody says from when on a file that came is listened to
    let read = |path: &Path| {
        let before = runtime.status().events.misses;
        until("a miss is heard", || {
            rustix::fs::fadvise(
                File::open(path).unwrap(),
                0,
                None,
                rustix::fs::Advice::DontNeed,
            )
            .unwrap();
            let mut dd = Command::new("dd");
            dd.args([
                "bs=4k",
                "count=1",
                "skip=1500",
                "status=none",
                "of=/dev/null",
            ]);
            assert!(
                dd.arg(format!("if={}", path.display()))
                    .status()
                    .unwrap()
                    .success()
            );
            let asked = Instant::now();
            while runtime.status().events.misses == before
                && asked.elapsed() < Duration::from_secs(2)
            {
                std::thread::sleep(Duration::from_millis(10));
            }
            runtime.status().events.misses > before
        });
    };
    std::thread::scope(|scope| {
        scope.spawn(|| runtime.run(source, &stop).unwrap());
        let stopped = Stop(&stop);
        until("it listens", || !runtime.status().source.is_empty());
        let second = cold("second");
        until("the file came", || runtime.status().policies[0].files == 2);
        read(&second);
        until("it is brought, and the one before too", || {
            brought(&second) == 8 << 20 && brought(&dir.path().join("first")) == 8 << 20
        });
        let third = cold("third");
        until("the file came", || runtime.status().policies[0].files == 3);
        read(&third);
        until("it is brought", || brought(&third) == 8 << 20);
        drop(stopped);
    });
}

/// Ends a runtime, also where a test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}
