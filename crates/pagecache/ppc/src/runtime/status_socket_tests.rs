//! The status socket and its attackers: threads whose user is another one. The kernel keeps credentials per thread, and
//! stores the credentials of the thread that calls `connect` or `listen`.

use std::sync::Arc;
use std::sync::mpsc::channel;

use rustix::process::Uid;

use super::*;
use crate::runtime::status_query::{
    MAX_DOCUMENT, PendingAnswer, RunningRuntimes, listed_sockets, receive_ready,
};
use crate::runtime::{change_policies, query_all, query_status};

/// The user of the attackers.
const OTHER_USER: u32 = 65534;

/// Runs `attack` on a thread of another user; `None`, with a message, without the privilege to change it.
fn as_other_user<T: Send + 'static>(attack: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let thread = std::thread::spawn(move || {
        let user = Uid::from_raw(OTHER_USER);
        rustix::thread::set_thread_res_uid(user, user, user).ok()?;
        Some(attack())
    });
    let result = thread.join().unwrap();
    if result.is_none() {
        eprintln!("SKIPPED: another user needs CAP_SETUID");
    }
    result
}

fn bind_as_other_user(name: &'static [u8]) -> Option<UnixListener> {
    as_other_user(move || {
        UnixListener::bind_addr(&SocketAddr::from_abstract_name(name).unwrap()).unwrap()
    })
}

/// One test at a time has a status socket: its name is the process's.
static ONE_SOCKET: std::sync::Mutex<()> = std::sync::Mutex::new(());

fn lock() -> std::sync::MutexGuard<'static, ()> {
    ONE_SOCKET
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Processor-independent bound: far above the timeouts, far below an answer that trickles.
const HANG: Duration = Duration::from_secs(30);

fn name(pid: u32) -> String {
    format!("{NAME_PREFIX}{pid}")
}

#[test]
fn status_is_served_until_the_socket_is_dropped() {
    let _lock = lock();
    let socket = StatusSocket::bind(|| "document".into(), None).unwrap();
    let pid = std::process::id();
    let own = (pid, "document".to_owned());
    assert!(query_all().unwrap().documents.contains(&own));
    assert_eq!(query_status(pid).unwrap(), "document");
    assert_eq!(query_status(pid).unwrap(), "document");
    // a second one of the same process is refused
    let second = StatusSocket::bind(String::new, None).unwrap_err();
    assert_eq!(second.kind(), io::ErrorKind::AddrInUse);
    drop(socket);
    assert!(query_status(pid).is_err());
    assert!(!query_all().unwrap().documents.contains(&own));
}

#[test]
fn another_user_receives_nothing() {
    let _lock = lock();
    let _socket = StatusSocket::bind(|| "secret".into(), None).unwrap();
    let pid = std::process::id();
    let received = as_other_user(move || {
        let mut stream = connect(name(pid).as_bytes()).unwrap();
        stream.set_nonblocking(false).unwrap();
        let mut received = Vec::new();
        let _ = stream.read_to_end(&mut received);
        received
    });
    assert!(received.is_none_or(|received| received.is_empty()));
    assert_eq!(query_status(pid).unwrap(), "secret");
}

#[test]
fn a_name_that_another_user_bound_is_replaced_and_not_read() {
    let _lock = lock();
    let pid = std::process::id();
    let Some(bound) =
        as_other_user(move || UnixListener::bind_addr(&SocketAddr::from_abstract_name(name(pid))?))
    else {
        return;
    };
    let bound = bound.unwrap();
    let forger = std::thread::spawn(move || {
        // the client has closed the connection, or does so now
        let (mut stream, _) = bound.accept().unwrap();
        let _ = stream.write_all(b"forged");
    });
    let denied = query_status(pid).unwrap_err();
    assert_eq!(denied.kind(), io::ErrorKind::PermissionDenied);
    forger.join().unwrap();
    // the listener is closed now; the name is taken again, by a listener that accepts nothing
    let _bound = as_other_user(move || {
        UnixListener::bind_addr(&SocketAddr::from_abstract_name(name(pid)).unwrap()).unwrap()
    });
    let socket = StatusSocket::bind(|| "document".into(), None).unwrap();
    assert_eq!(query_status(pid).unwrap(), "document");
    let all = query_all().unwrap();
    assert!(all.documents.contains(&(pid, "document".to_owned())));
    assert!(all.untrusted >= 1);
    drop(socket);
}

/// Names that are no numbers, or bytes that are no text, cost the others nothing.
#[test]
fn forged_names_do_not_hide_the_others() {
    let _lock = lock();
    let socket = StatusSocket::bind(|| "document".into(), None).unwrap();
    let names: [&[u8]; 5] = [
        b"anamnesis-ppc/\xff\xfe",
        b"anamnesis-ppc/99999999999999999999",
        b"anamnesis-ppc/1\n0: 1 2 3 4 5 6 @anamnesis-ppc/2",
        b"anamnesis-ppc/4000001",
        b"anamnesis-ppc/\x1b[2J",
    ];
    let listeners: Vec<_> = names.into_iter().map_while(bind_as_other_user).collect();
    if listeners.len() < names.len() {
        return;
    }
    // a listener whose queue is full: a blocking `connect` would wait for it
    let full = b"anamnesis-ppc/4000001";
    let mut waiting = Vec::new();
    while let Ok(stream) = connect(full) {
        waiting.push(stream);
        assert!(waiting.len() < 100_000);
    }
    let (sender, receiver) = channel();
    std::thread::spawn(move || sender.send(query_all()));
    let all = receiver.recv_timeout(HANG).expect("no hang").unwrap();
    assert!(
        all.documents
            .contains(&(std::process::id(), "document".to_owned()))
    );
    drop(socket);
}

#[test]
fn sockets_are_found_by_the_start_of_their_names() {
    let listed = listed_sockets(
        b"Num       RefCount Protocol Flags    Type St Inode Path\n\
        0: 00000002 00000000 00010000 0001 01 11 @anamnesis-ppc/12\n\
        0: 00000002 00000000 00010000 0001 01 12 @anamnesis-ppc/12/00ff\n\
        0: 00000003 00000000 00000000 0001 03 13 @anamnesis-ppc/12\n\
        0: 00000002 00000000 00010000 0001 01 14 /tmp/@anamnesis-ppc/13\n\
        0: 00000002 00000000 00010000 0001 01 15 @other/anamnesis-ppc/14\n\
        0: 00000002 00000000 00010000 0001 01 16 @anamnesis-ppc/\xff\n\
        0: 00000002 00000000 00010000 0001 01 17\n",
    );
    let listed: Vec<_> = listed
        .iter()
        .map(|socket| (socket.pid, &*socket.name))
        .collect();
    assert_eq!(
        listed,
        [
            (12, &b"anamnesis-ppc/12"[..]),
            (12, b"anamnesis-ppc/12/00ff")
        ]
    );
}

/// Receives one answer before the deadline.
fn receive(stream: UnixStream, until: Instant) -> RunningRuntimes {
    stream.set_nonblocking(true).unwrap();
    let (mut pending, mut found) = (
        vec![PendingAnswer::new(1, stream)],
        RunningRuntimes::default(),
    );
    while !pending.is_empty() && Instant::now() < until {
        let left = until.saturating_duration_since(Instant::now());
        receive_ready(&mut pending, left, &mut found);
    }
    found
}

#[test]
fn an_answer_is_received_in_pieces_and_bounded() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let pieces = std::thread::spawn(move || {
        let mut theirs = theirs;
        for _ in 0..20 {
            theirs.write_all(b"xy").unwrap();
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    let found = receive(ours, Instant::now() + HANG);
    assert_eq!(found.documents, [(1, "xy".repeat(20))]);
    pieces.join().unwrap();
    // a server that sends without end
    let (ours, theirs) = UnixStream::pair().unwrap();
    let endless = std::thread::spawn(move || {
        let mut theirs = theirs;
        while theirs.write_all(&[b'x'; 1 << 16]).is_ok() {}
    });
    let found = receive(ours, Instant::now() + HANG);
    assert_eq!((found.documents, found.unresponsive), (vec![], vec![1]));
    endless.join().unwrap();
    // bytes that are no text
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    theirs.write_all(b"\xff").unwrap();
    drop(theirs);
    assert_eq!(receive(ours, Instant::now() + HANG).unresponsive, [1]);
}

#[test]
fn a_client_that_reads_nothing_is_cut_off() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    let until = Instant::now() + Duration::from_millis(200);
    let sent = send(&ours, &vec![b'x'; MAX_DOCUMENT], until).unwrap_err();
    assert_eq!(sent.kind(), io::ErrorKind::TimedOut);
    drop(theirs);
}

/// Several that do not answer are waited for together, and hide none that does.
#[test]
fn runtimes_that_do_not_answer_are_listed() {
    let _lock = lock();
    let socket = StatusSocket::bind(|| "document".into(), None).unwrap();
    let (own, other) = (std::process::id(), std::os::unix::process::parent_id());
    let bind = |pid: u32, end: &str| {
        let address = SocketAddr::from_abstract_name(format!("{}{end}", name(pid)));
        UnixListener::bind_addr(&address.unwrap()).unwrap()
    };
    let silent = ["", "/0", "/1", "/2", "/3"].map(|end| bind(other, end));
    // accepts, and sends a byte at a time
    let trickling = bind(own, "/trickling");
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = trickling.accept() {
            while stream.write_all(b"x").is_ok() {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    });
    let begun = Instant::now();
    let found = query_all().unwrap();
    assert!(begun.elapsed() < HANG);
    assert!(found.documents.contains(&(own, "document".to_owned())));
    assert!(
        found.unresponsive.contains(&own) && found.unresponsive.contains(&other),
        "{found:?}"
    );
    let silent_one = query_status(other).unwrap_err();
    assert_eq!(silent_one.kind(), io::ErrorKind::TimedOut);
    drop((silent, socket));
}

#[test]
fn policies_are_changed_while_the_status_is_served() {
    let _lock = lock();
    let (begun, begins) = channel();
    let (proceed, proceeds) = channel::<Result<(), String>>();
    let proceeds = std::sync::Mutex::new(proceeds);
    let change: ChangeCallback = Arc::new(move |change: &PolicyChange| {
        begun.send(change.clone()).unwrap();
        proceeds.lock().unwrap().recv().unwrap()
    });
    let socket = StatusSocket::bind(|| "document".into(), Some(change)).unwrap();
    let pid = std::process::id();
    let register = PolicyChange::Register {
        directory: "/models".into(),
        policy: "maio:/t.iot".into(),
    };
    let request = register.clone();
    let changing = std::thread::spawn(move || change_policies(pid, &request));
    assert_eq!(begins.recv_timeout(HANG).unwrap(), register);
    assert_eq!(query_status(pid).unwrap(), "document");
    let unregister = PolicyChange::Unregister {
        directory: "/models".into(),
    };
    let second = change_policies(pid, &unregister).unwrap().unwrap_err();
    assert!(second.contains("in progress"), "{second}");
    proceed.send(Ok(())).unwrap();
    assert_eq!(changing.join().unwrap().unwrap(), Ok(()));
    // the thread of the first change may still be about to end
    proceed.send(Err("no such directory".into())).unwrap();
    let refused = loop {
        match change_policies(pid, &unregister).unwrap() {
            Err(reason) if reason.contains("in progress") => std::thread::yield_now(),
            other => break other,
        }
    };
    assert_eq!(refused, Err("no such directory".to_owned()));
    assert_eq!(begins.recv_timeout(HANG).unwrap(), unregister);
    let long = PolicyChange::Unregister {
        directory: "x".repeat(MAX_REQUEST).into(),
    };
    let too_long = change_policies(pid, &long).unwrap_err();
    assert_eq!(too_long.kind(), io::ErrorKind::InvalidInput);
    drop(socket);
    let fixed = StatusSocket::bind(String::new, None).unwrap();
    let refused = change_policies(pid, &unregister).unwrap().unwrap_err();
    assert!(refused.contains("cannot be changed"), "{refused}");
    drop(fixed);
}

#[test]
fn requests_that_are_no_change_are_refused() {
    let _lock = lock();
    let change: ChangeCallback = Arc::new(|_: &PolicyChange| panic!("not called"));
    let socket = StatusSocket::bind(|| "document".into(), Some(change)).unwrap();
    let pid = std::process::id();
    let ask = |request: &[u8]| {
        let mut stream = connect(name(pid).as_bytes()).unwrap();
        stream.set_nonblocking(false).unwrap();
        // the server closes the connection when it has enough
        let _ = stream.write_all(request);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        answer
    };
    for request in ["null", "{}", "{\"register\":{}}", "register", "\u{0}"] {
        let answer = ask(request.as_bytes());
        assert!(answer.contains("not known"), "{request}: {answer}");
    }
    assert_eq!(ask(&vec![b'['; 2 * MAX_REQUEST]), "");
    assert_eq!(ask(b""), "document");
    // a client that sends a part of a request, and waits
    let mut waiting = connect(name(pid).as_bytes()).unwrap();
    waiting.write_all(b"{").unwrap();
    let begun = Instant::now();
    while query_status(pid).ok().as_deref() != Some("document") {
        assert!(begun.elapsed() < HANG);
    }
    drop((waiting, socket));
}

/// A process of a container may have the same user, and none of the capabilities.
#[test]
fn only_root_changes_the_policies_of_a_runtime_with_capabilities() {
    let (ours, _theirs) = UnixStream::pair().unwrap();
    assert!(peer::may_change_policies(&ours).is_ok() || !rustix::process::geteuid().is_root());
    // a thread of another user that keeps its capabilities
    let refused = std::thread::spawn(|| {
        let user = Uid::from_raw(OTHER_USER);
        rustix::thread::set_keep_capabilities(true).ok()?;
        rustix::thread::set_thread_res_uid(user, user, user).ok()?;
        let (ours, _theirs) = UnixStream::pair().unwrap();
        Some(peer::may_change_policies(&ours))
    });
    match refused.join().unwrap() {
        Some(refused) => assert!(refused.unwrap_err().contains("capabilities")),
        None => eprintln!("SKIPPED: another user needs CAP_SETUID"),
    }
    if let Some(allowed) = as_other_user(|| {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        peer::may_change_policies(&ours)
    }) {
        assert_eq!(allowed, Ok(()));
    }
}
