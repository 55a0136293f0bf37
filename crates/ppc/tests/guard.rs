//! Policies in Rust that break the rules lose their registration, and another goes on.

use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use anamnesis_ppc::{
    Access, Answer, Context, Guarded, Io, Ios, Kind, Limits, Namespace, Policy, Prefetch, Result,
    Wants,
};

/// Longer than anything takes, also on a busy machine.
const SOON: Duration = Duration::from_secs(60);

type Body = Box<dyn FnMut(&Access) -> Option<Prefetch> + Send>;

/// A policy whose functions are what a test needs them to be.
struct Odd {
    prefetch: Body,
    init: Box<dyn FnMut() -> Result<(), String> + Send>,
    exit: Box<dyn FnMut() + Send>,
}

impl Odd {
    fn new(prefetch: impl FnMut(&Access) -> Option<Prefetch> + Send + 'static) -> Self {
        Self {
            prefetch: Box::new(prefetch),
            init: Box::new(|| Ok(())),
            exit: Box::new(|| ()),
        }
    }
}

impl Policy for Odd {
    fn wants(&self) -> Wants {
        Wants {
            prefetch: true,
            evict: true,
            ..Wants::default()
        }
    }
    fn init(&mut self, _: &Context) -> Result<(), String> {
        (self.init)()
    }
    fn exit(&mut self) {
        (self.exit)();
    }
    fn start(&mut self) -> Vec<Prefetch> {
        vec![all("a", 0, 1), all("a", 1, 1)]
    }
    fn prefetch(&mut self, miss: &Access) -> Option<Prefetch> {
        (self.prefetch)(miss)
    }
    fn evict(&mut self, miss: Option<&Access>) -> Option<Ios> {
        miss.map(|miss| all("a", miss.start, 1).ios)
    }
}

fn all(path: &str, start: u64, len: u64) -> Prefetch {
    Prefetch {
        ios: vec![Io {
            path: Path::new(path).into(),
            start,
            len,
            device: None,
        }]
        .into(),
        lane: 0,
    }
}

fn miss(start: u64) -> Access {
    Access {
        kind: Kind::Miss,
        path: Path::new("a").into(),
        start,
        len: 1,
        pid: 1,
        tid: 1,
        time: 0,
    }
}

/// Of a policy that is not lost for being late: the machine may be busy.
fn limits() -> Limits {
    Limits {
        call: SOON,
        begin: SOON,
        ..Limits::default()
    }
}

/// Of one that never answers.
fn short() -> Limits {
    Limits {
        call: Duration::from_millis(200),
        begin: Duration::from_millis(200),
        ..Limits::default()
    }
}

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a"), vec![0; 1 << 20]).unwrap();
        Self(dir)
    }
    fn register(&self, policy: Odd) -> (Result<Guarded>, Receiver<Answer>) {
        self.register_with(policy, limits())
    }
    fn register_with(&self, policy: Odd, limits: Limits) -> (Result<Guarded>, Receiver<Answer>) {
        let namespace = Arc::new(Namespace::scan(self.0.path()).unwrap());
        let (sender, receiver) = channel();
        let context = Context {
            namespace,
            config: String::new(),
            memory: 1 << 30,
        };
        (
            Guarded::register(Box::new(policy), context, limits, move |answer| {
                drop(sender.send(answer))
            }),
            receiver,
        )
    }
}

fn lost(answers: &Receiver<Answer>) -> String {
    match answers.recv_timeout(SOON).unwrap() {
        Answer::Lost(error) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn answers_come_in_order() {
    let (guarded, answers) =
        Place::new().register(Odd::new(|miss| Some(all("a", miss.start + 1, 4096))));
    let guarded = guarded.unwrap();
    guarded.start();
    guarded.evict(Some(miss(77)));
    guarded.evict(None);
    guarded.prefetch(miss(4095));
    let starts: Vec<u64> = (0..3)
        .map(|_| match answers.recv_timeout(SOON).unwrap() {
            Answer::Prefetch(prefetch) => prefetch.ios[0].start,
            Answer::Evict(ios) => ios[0].start + (1 << 40),
            Answer::Lost(error) => panic!("{error}"),
        })
        .filter(|&start| start != 77 + (1 << 40)) // may have been asked before the newer took its place
        .collect();
    assert_eq!(starts[..2], [0, 1]);
    guarded.remove().unwrap();
    assert!(guarded.lost().is_none());
}

#[test]
fn who_breaks_a_rule_is_lost_and_nobody_else() {
    let place = Place::new();
    let (other, others) = place.register(Odd::new(|miss| Some(all("a", miss.start, 1))));
    let other = other.unwrap();
    let cases: [(Limits, Body, &str); 5] = [
        (
            limits(),
            Box::new(|_| panic!("I do not know")),
            "prefetch panicked: I do not know",
        ),
        (
            limits(),
            Box::new(|_| Some(all("../a", 0, 1))),
            "no file of the namespace",
        ),
        (
            limits(),
            Box::new(|_| Some(all("a", 1 << 20, 1))),
            "begins at 1048576",
        ),
        (
            limits(),
            Box::new(|_| Some(all("a", 7, u64::MAX))),
            "the file ends at 1048576",
        ),
        (
            Limits {
                begin: SOON,
                ..short()
            },
            Box::new(|_| {
                std::thread::sleep(Duration::from_secs(3600));
                None
            }),
            "prefetch did not answer within 200ms",
        ),
    ];
    for (limits, body, why) in cases {
        let (guarded, answers) = place.register_with(Odd::new(body), limits);
        let guarded = guarded.unwrap();
        guarded.prefetch(miss(0));
        let said = lost(&answers);
        assert!(said.contains(why), "{said}");
        guarded.prefetch(miss(0));
        assert!(guarded.remove().unwrap_err().to_string().contains(why));
        assert!(
            answers.recv_timeout(Duration::from_millis(10)).is_err(),
            "the last answer is that it was lost"
        );
        other.prefetch(miss(5));
        assert!(matches!(
            others.recv_timeout(SOON).unwrap(),
            Answer::Prefetch(_)
        ));
    }
}

#[test]
fn a_beginning_that_fails_is_no_registration() {
    let place = Place::new();
    type Init = fn() -> Result<(), String>;
    let cases: [(Limits, Init, &str); 3] = [
        (limits(), || Err("no template".into()), "no template"),
        (limits(), || panic!("oh"), "init panicked: oh"),
        (
            short(),
            || {
                std::thread::sleep(Duration::from_secs(3600));
                Ok(())
            },
            "init did not answer within 200ms",
        ),
    ];
    for (limits, init, why) in cases {
        let odd = Odd {
            init: Box::new(init),
            ..Odd::new(|_| None)
        };
        let (guarded, answers) = place.register_with(odd, limits);
        let said = guarded.unwrap_err().to_string();
        assert!(said.contains(why), "{said}");
        assert!(answers.recv_timeout(Duration::from_millis(10)).is_err());
    }
}

#[test]
fn an_end_that_never_comes_is_not_waited_for() {
    let mut odd = Odd::new(|_| None);
    odd.exit = Box::new(|| std::thread::sleep(Duration::from_secs(3600)));
    let (guarded, _answers) = Place::new().register(odd);
    let began = Instant::now();
    let error = guarded.unwrap().remove().unwrap_err();
    assert!(
        error.to_string().contains("exit did not answer within 1s"),
        "{error}"
    );
    assert!(began.elapsed() < SOON);
}

#[test]
fn a_slow_policy_holds_up_nobody() {
    let gate = Arc::new(Barrier::new(2));
    let inside = Arc::clone(&gate);
    let mut first = true;
    let slow = Odd::new(move |miss| {
        if std::mem::take(&mut first) {
            inside.wait();
            inside.wait();
        }
        Some(all("a", miss.start, miss.len))
    });
    let (guarded, answers) = Place::new().register(slow);
    let guarded = guarded.unwrap();
    guarded.prefetch(miss(0));
    gate.wait(); // it is busy now
    for at in 1..=1000 {
        guarded.prefetch(miss(at));
    }
    for at in 0..2000 {
        guarded.prefetch(miss(10_000 + at * 2)); // no neighbours
    }
    let status = guarded.status();
    assert_eq!((status.waiting, status.merged), (1024, 999));
    assert_eq!(status.dropped, 2001 - 1024);
    gate.wait();
    drop(answers.recv_timeout(SOON).unwrap());
    match answers.recv_timeout(SOON).unwrap() {
        Answer::Prefetch(prefetch) => assert_eq!(prefetch.ios[0].start, 10_000 + 2 * (2000 - 1024)),
        other => panic!("{other:?}"),
    }
}
