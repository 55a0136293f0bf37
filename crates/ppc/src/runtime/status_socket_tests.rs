//! The status socket and its attackers: threads whose user is another one. The kernel keeps credentials per thread, and
//! stores those of the thread that calls `connect` or `listen`.

use std::sync::mpsc::channel;

use rustix::process::Uid;

use super::*;

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

/// One test at a time has a status socket: its name is that of the process.
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
    let socket = StatusSocket::bind(|| "document".into()).unwrap();
    let pid = std::process::id();
    let own = (pid, "document".to_owned());
    assert!(query_all().unwrap().documents.contains(&own));
    assert_eq!(query_status(pid).unwrap(), "document");
    assert_eq!(query_status(pid).unwrap(), "document");
    // a second one of the same process is refused
    let second = StatusSocket::bind(String::new).unwrap_err();
    assert_eq!(second.kind(), io::ErrorKind::AddrInUse);
    drop(socket);
    assert!(query_status(pid).is_err());
    assert!(!query_all().unwrap().documents.contains(&own));
}

#[test]
fn another_user_receives_nothing() {
    let _lock = lock();
    let _socket = StatusSocket::bind(|| "secret".into()).unwrap();
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
    let socket = StatusSocket::bind(|| "document".into()).unwrap();
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
    let socket = StatusSocket::bind(|| "document".into()).unwrap();
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

#[test]
fn one_deadline_covers_a_whole_answer() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    let trickle = std::thread::spawn(move || {
        let mut theirs = theirs;
        while theirs.write_all(b"x").is_ok() {
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    let until = Instant::now() + Duration::from_millis(200);
    let received = receive(&ours, until).unwrap_err();
    assert_eq!(received.kind(), io::ErrorKind::TimedOut);
    drop(ours);
    trickle.join().unwrap();
    // a client that reads nothing
    let (ours, theirs) = UnixStream::pair().unwrap();
    let until = Instant::now() + Duration::from_millis(200);
    let sent = send(&ours, &vec![b'x'; MAX_DOCUMENT], until).unwrap_err();
    assert_eq!(sent.kind(), io::ErrorKind::TimedOut);
    drop(theirs);
    // a server that sends without end
    let (ours, theirs) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    let endless = std::thread::spawn(move || {
        let mut theirs = theirs;
        while theirs.write_all(&[b'x'; 1 << 16]).is_ok() {}
    });
    let received = receive(&ours, Instant::now() + HANG).unwrap_err();
    assert_eq!(received.kind(), io::ErrorKind::InvalidData);
    drop(ours);
    endless.join().unwrap();
}
