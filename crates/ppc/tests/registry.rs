//! One policy for each directory, replaced while misses come.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anamnesis_ppc::{
    Access, Answer, Context, Entry, Event, Io, Kind, Limits, Namespace, Policies, Policy, Prefetch,
    Wants,
};

/// Answers each miss with its own bytes, and counts what it sees.
struct Echo {
    seen: Arc<AtomicU64>,
    log: Arc<Mutex<Vec<String>>>,
    name: &'static str,
}

impl Policy for Echo {
    fn wants(&self) -> Wants {
        Wants {
            prefetch: true,
            ..Wants::default()
        }
    }
    fn init(&mut self, context: &Context) -> Result<(), String> {
        self.log
            .lock()
            .unwrap()
            .push(format!("{} begins", self.name));
        if context.config == "never" {
            Err("as it was told".into())
        } else {
            Ok(())
        }
    }
    fn exit(&mut self) {
        self.log.lock().unwrap().push(format!("{} ends", self.name));
    }
    fn prefetch(&mut self, miss: &Access) -> Option<Prefetch> {
        self.seen.fetch_add(1, SeqCst);
        let Access { start, len, .. } = *miss;
        let path = if miss.pid == 666 {
            Path::new("..").into()
        } else {
            Arc::clone(&miss.path)
        };
        Some(Prefetch {
            ios: vec![Io {
                path,
                start,
                len,
                device: None,
            }]
            .into(),
            lane: 0,
        })
    }
}

#[derive(Default)]
struct Scene {
    log: Arc<Mutex<Vec<String>>>,
}

impl Scene {
    fn echo(&self, name: &'static str) -> (Box<dyn Policy>, Arc<AtomicU64>) {
        let seen = Arc::new(AtomicU64::new(0));
        (
            Box::new(Echo {
                seen: Arc::clone(&seen),
                log: Arc::clone(&self.log),
                name,
            }),
            seen,
        )
    }
}

fn tree() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("one/deep")).unwrap();
    std::fs::create_dir_all(dir.path().join("two")).unwrap();
    for file in ["top", "one/a", "one/deep/b", "two/c"] {
        std::fs::write(dir.path().join(file), vec![0; 1 << 16]).unwrap();
    }
    dir
}

fn event(entry: &Entry, start: u64) -> Event {
    // each of its own thread: neighbours would be merged
    let tid = u32::try_from(start).unwrap();
    Event {
        kind: Kind::Miss,
        inode: entry.inode,
        start,
        len: 1,
        pid: 1,
        tid,
        time: 0,
    }
}

fn limits() -> Limits {
    Limits {
        call: Duration::from_secs(30),
        begin: Duration::from_secs(30),
        waiting: 1 << 20,
        ..Limits::default()
    }
}

#[test]
fn the_deepest_directory_decides() {
    let (scene, dir) = (Scene::default(), tree());
    let root = dir.path().canonicalize().unwrap();
    let whole = Namespace::scan(&root).unwrap();
    let policies = Policies::new(1 << 30, limits(), |_, _| ());
    policies
        .reg_policy(&root, scene.echo("root").0, "")
        .unwrap();
    policies
        .reg_policy(&root.join("one/deep"), scene.echo("deep").0, "")
        .unwrap();
    policies
        .reg_policy(&root.join("two"), scene.echo("two").0, "")
        .unwrap();
    let whose = |name: &str| {
        let inode = whole.get(Path::new(name)).unwrap().inode;
        let found = policies.find(inode, |at, entry| {
            (at.origin().namespace.root().to_owned(), entry.path.clone())
        });
        let (path, entry) = found.unwrap();
        assert_eq!(
            policies
                .at(&root.join(name))
                .unwrap()
                .origin()
                .namespace
                .root(),
            path
        );
        assert_eq!(path.join(entry), root.join(name));
        path
    };
    assert_eq!(whose("top"), root);
    assert_eq!(whose("one/a"), root);
    assert_eq!(whose("one/deep/b"), root.join("one/deep"));
    assert_eq!(whose("two/c"), root.join("two"));
    policies.rm_policy(&root.join("one/deep")).unwrap();
    assert_eq!(whose("one/deep/b"), root);
    policies.rm_policy(&root).unwrap();
    assert!(policies.at(&root.join("top")).is_none());
    assert!(
        policies
            .find(whole.get(Path::new("top")).unwrap().inode, |_, _| ())
            .is_none()
    );
    assert_eq!(whose("two/c"), root.join("two"));
    let error = policies.rm_policy(&root).unwrap_err().to_string();
    assert!(error.contains("no policy is registered here"), "{error}");
}

#[test]
fn who_cannot_begin_replaces_nobody() {
    let (scene, dir) = (Scene::default(), tree());
    let policies = Policies::new(1 << 30, limits(), |_, _| ());
    policies
        .reg_policy(dir.path(), scene.echo("old").0, "")
        .unwrap();
    let error = policies
        .reg_policy(dir.path(), scene.echo("new").0, "never")
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("as it was told") && error.contains(dir.path().to_str().unwrap()),
        "{error}"
    );
    assert_eq!(policies.all().len(), 1);
    assert_eq!(policies.all()[0].origin().number, 1);
    assert_eq!(*scene.log.lock().unwrap(), ["old begins", "new begins"]);
    assert!(
        policies
            .reg_policy(Path::new("/nowhere"), scene.echo("none").0, "")
            .is_err()
    );
}

#[test]
fn one_that_is_lost_decides_no_more_and_others_do() {
    let (scene, dir) = (Scene::default(), tree());
    let (tell, told) = std::sync::mpsc::channel();
    let tell = Mutex::new(tell);
    let policies = Policies::new(1 << 30, limits(), move |origin, answer| {
        tell.lock().unwrap().send((origin.number, answer)).unwrap();
    });
    let one = policies
        .reg_policy(&dir.path().join("one"), scene.echo("one").0, "")
        .unwrap();
    let two = policies
        .reg_policy(&dir.path().join("two"), scene.echo("two").0, "")
        .unwrap();
    let (a, c) = (
        &one.origin().namespace.entries()[0],
        &two.origin().namespace.entries()[0],
    );
    let tell = |entry: &Entry, event: Event| {
        policies
            .find(entry.inode, |at, entry| {
                at.policy().prefetch(at.access(&event, entry))
            })
            .is_some()
    };
    assert!(tell(
        a,
        Event {
            pid: 666,
            ..event(a, 0)
        }
    ));
    let (number, answer) = told.recv_timeout(Duration::from_secs(30)).unwrap();
    assert!(
        matches!(answer, Answer::Lost(_)) && number == one.origin().number,
        "{answer:?}"
    );
    assert!(!tell(a, event(a, 0)));
    assert!(tell(c, event(c, 4096)));
    let (number, answer) = told.recv_timeout(Duration::from_secs(30)).unwrap();
    assert!(
        matches!(answer, Answer::Prefetch(_)) && number == two.origin().number,
        "{answer:?}"
    );
    assert!(
        policies.all()[0]
            .policy()
            .lost()
            .unwrap()
            .to_string()
            .contains("no file of the namespace")
    );
    assert!(
        policies
            .rm_policy(&dir.path().join("one"))
            .unwrap_err()
            .to_string()
            .contains("no file")
    );
}

#[test]
fn replaced_under_load_each_miss_goes_to_one() {
    let (scene, dir) = (Scene::default(), tree());
    let answers = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&answers);
    let policies = Policies::new(1 << 30, limits(), move |_, answer| {
        assert!(!matches!(answer, Answer::Lost(_)));
        count.fetch_add(1, SeqCst);
    });
    let (first, seen) = scene.echo("first");
    let mut seen = vec![seen];
    let registered = policies.reg_policy(dir.path(), first, "").unwrap();
    let entry = registered
        .origin()
        .namespace
        .get(Path::new("top"))
        .unwrap()
        .clone();
    drop(registered);
    let over = AtomicBool::new(false);
    let mut told = 0;
    std::thread::scope(|scope| {
        let load = scope.spawn(|| {
            let mut told = 0;
            while !over.load(SeqCst) {
                let event = event(&entry, told % 60_000);
                let found = policies.find(entry.inode, |at, entry| {
                    at.policy().prefetch(at.access(&event, entry))
                });
                assert!(found.is_some(), "there is always one that decides");
                told += 1;
                std::thread::sleep(Duration::from_micros(20));
            }
            told
        });
        for _ in 0..30 {
            let (next, seen_by_next) = scene.echo("next");
            policies.reg_policy(dir.path(), next, "").unwrap();
            let until = std::time::Instant::now() + Duration::from_secs(30);
            while seen_by_next.load(SeqCst) == 0 {
                assert!(
                    std::time::Instant::now() < until && !load.is_finished(),
                    "the new one is never asked"
                );
                std::thread::sleep(Duration::from_micros(100));
            }
            seen.push(seen_by_next);
        }
        over.store(true, SeqCst);
        told = load.join().unwrap();
    });
    policies.rm_policy(dir.path()).unwrap();
    // those that still waited when their policy was replaced went with it
    let seen: u64 = seen.iter().map(|seen| seen.load(SeqCst)).sum();
    assert!(
        seen <= told && answers.load(SeqCst) == seen,
        "{seen} of {told}, {} answers",
        answers.load(SeqCst)
    );
    let log = scene.log.lock().unwrap();
    let (begun, ended) = (
        log.iter().filter(|line| line.ends_with("begins")),
        log.iter().filter(|l| l.ends_with("ends")),
    );
    assert_eq!((begun.count(), ended.count()), (31, 31));
    // at no time did the old one end before the new one had begun
    assert_eq!(log[..3], ["first begins", "next begins", "first ends"]);
}
