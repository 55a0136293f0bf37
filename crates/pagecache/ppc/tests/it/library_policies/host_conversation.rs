//! Conversations between daemon and host process are recorded, damaged and replayed, in both directions: truncated at each
//! byte, with changed bytes, and with messages dropped, doubled and swapped. Each replay ends normally or with one error.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use anamnesis_ppc::host::{HostCommand, LibraryPolicy};
use anamnesis_ppc::{PolicyLimits, PolicyOutput, Supervisor};

use super::faults::{expect_unaffected, register_unaffected_policy};
use super::registered_policy::{PolicyDirectory, miss};
use super::rust_policies::example;
use crate::support::files::HANG_TIMEOUT;

/// Bytes changed per direction and conversation.
const CHANGED_BYTES: usize = 150;

/// The messages of one direction, each with its header.
type Messages = Vec<Vec<u8>>;

struct Conversation {
    policy: &'static str,
    requests: Messages,
    replies: Messages,
}

fn split(mut bytes: &[u8]) -> Messages {
    let mut messages = Vec::new();
    while let Some((len, _)) = bytes.split_first_chunk() {
        let len = 8 + u32::from_ne_bytes(*len) as usize;
        messages.push(bytes[..len].to_vec());
        bytes = &bytes[len..];
    }
    messages
}

/// Registers a policy with this host, and makes calls of each kind. Returns how many outputs it had and why it failed.
/// Panics if it fails more than once, or if an output follows the failure.
fn converse(
    directory: &PolicyDirectory,
    host: HostCommand,
    library: &Path,
    config: &str,
    limits: PolicyLimits,
) -> (usize, Option<String>) {
    let policy = LibraryPolicy::new(host, library, limits);
    let (sender, outputs) = channel();
    let send = move |output| drop(sender.send(output));
    let context = directory.context(config);
    let supervisor = match Supervisor::spawn(Box::new(policy), context, limits, send) {
        Ok(supervisor) => supervisor,
        Err(error) => return (outputs.iter().count(), Some(error.to_string())),
    };
    // two accesses that are not adjacent, as adjacent ones are merged in the queue
    supervisor.queue_start();
    supervisor.queue_prefetch(miss("a", 1 << 19));
    supervisor.queue_prefetch(miss("a", 0));
    supervisor.queue_evict(Some(miss("sub/b", 0)));
    supervisor.queue_touch(miss("a", 1 << 20));
    let deadline = Instant::now() + HANG_TIMEOUT;
    while supervisor.status().queued > 0 && supervisor.failure().is_none() {
        assert!(Instant::now() < deadline, "calls remain in the queue");
        std::thread::sleep(Duration::from_micros(200));
    }
    let failure = supervisor.shut_down().err().map(|error| error.to_string());
    drop(supervisor);
    let outputs: Vec<PolicyOutput> = outputs.iter().collect();
    let failures = outputs
        .iter()
        .filter(|output| matches!(output, PolicyOutput::Failed(_)))
        .count();
    assert_eq!(failures, usize::from(failure.is_some()), "{outputs:?}");
    if let (Some(failure), Some(PolicyOutput::Failed(last))) = (&failure, outputs.last()) {
        assert_eq!(*failure, last.to_string());
    } else {
        assert!(failure.is_none(), "an output follows the failure");
    }
    (outputs.len() - failures, failure)
}

/// Records a conversation of each example policy. The records remain, as seeds of the fuzz target `host`.
fn record(test: &str, directory: &PolicyDirectory) -> Option<Vec<Conversation>> {
    let recorder = example("recording_host")?;
    let mut conversations = Vec::new();
    for (policy, config, outputs, failure) in [
        ("ahead", "1", 4, None),
        ("faulty_policy", "", 3, None),
        ("faulty_policy", "touch", 3, Some("touched a")),
    ] {
        let library = example(policy)?;
        let records = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join("host-conversations")
            .join(test)
            .join(format!("{policy}-{config}"));
        std::fs::create_dir_all(&records).unwrap();
        let host = HostCommand::new(&recorder)
            .arg("record")
            .arg(env!("CARGO_BIN_EXE_ppc-host"))
            .arg(&records);
        let (found, failed) = converse(directory, host, &library, config, directory.limits);
        assert_eq!(found, outputs, "{policy}: {failed:?}");
        match (failed, failure) {
            (None, None) => {}
            (Some(found), Some(expected)) if found.contains(expected) => {}
            (found, _) => panic!("{policy}: {found:?}"),
        }
        let read = |name| split(&std::fs::read(records.join(name)).unwrap());
        conversations.push(Conversation {
            policy,
            requests: read("requests"),
            replies: read("replies"),
        });
    }
    Some(conversations)
}

/// The bytes that are sent instead of the messages of one direction.
struct Damaged {
    what: String,
    parts: Messages,
    /// Whether the receiver must notice it. It cannot notice other values, or what follows the last message.
    noticed: bool,
}

/// The messages themselves, then damaged ones.
fn damaged(messages: &Messages) -> Vec<Damaged> {
    let mut all = Vec::new();
    let mut add = |what: String, parts: Messages, noticed: bool| {
        all.push(Damaged {
            what,
            parts,
            noticed,
        });
    };
    add("unchanged".into(), messages.clone(), false);
    for (index, message) in messages.iter().enumerate() {
        for len in 0..message.len() {
            let mut cut = messages[..=index].to_vec();
            cut[index].truncate(len);
            add(format!("message {index} cut at {len}"), cut, true);
        }
        let mut dropped = messages.clone();
        dropped.remove(index);
        add(format!("message {index} dropped"), dropped, true);
        let mut doubled = messages.clone();
        doubled[index].extend_from_slice(message);
        let last = index + 1 == messages.len();
        add(format!("message {index} doubled"), doubled, !last);
        if index > 0 {
            let mut swapped = messages.clone();
            swapped.swap(index - 1, index);
            add(format!("message {index} swapped"), swapped, true);
        }
    }
    let total: usize = messages.iter().map(Vec::len).sum();
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    for _ in 0..CHANGED_BYTES {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let mut at = usize::try_from(state >> 8).unwrap() % total;
        let mut changed = messages.clone();
        for (index, message) in changed.iter_mut().enumerate() {
            if let Some(byte) = message.get_mut(at) {
                *byte = byte.wrapping_add(1 + u8::try_from(state % 255).unwrap());
                // the length and the number
                add(
                    format!("byte {at} of message {index} changed"),
                    changed,
                    at < 8,
                );
                break;
            }
            at -= message.len();
        }
    }
    all
}

#[test]
fn a_daemon_survives_damaged_replies_and_reports_each_once() {
    let directory = PolicyDirectory::new();
    let Some(conversations) = record("replies", &directory) else {
        return;
    };
    let unaffected = register_unaffected_policy(&directory);
    let recorder = example("recording_host").unwrap();
    let file = directory.output_dir.path().join("replies");
    // short, as a changed length ends with the deadline
    let limits = PolicyLimits {
        call: Duration::from_secs(1),
        ..directory.limits
    };
    for Conversation {
        policy, replies, ..
    } in conversations
    {
        let unchanged_failure = replies.iter().any(|reply| reply[8] == 1);
        for Damaged {
            what,
            parts,
            noticed,
        } in damaged(&replies)
        {
            let parts = parts.iter().flat_map(|part| {
                let len = u32::try_from(part.len()).unwrap();
                [&len.to_ne_bytes()[..], part].concat()
            });
            std::fs::write(&file, parts.collect::<Vec<u8>>()).unwrap();
            let host = HostCommand::new(&recorder).arg("replay").arg(&file);
            let started = Instant::now();
            let (_, failure) = converse(&directory, host, Path::new(policy), "", limits);
            assert!(started.elapsed() < HANG_TIMEOUT / 2, "{policy}: {what}");
            if noticed || what == "unchanged" {
                assert_eq!(
                    failure.is_some(),
                    noticed || unchanged_failure,
                    "{policy}: {what}: {failure:?}"
                );
            }
            if let Some(failure) = failure {
                assert!(failure.len() < 2000, "{policy}: {what}: {failure}");
                assert!(!failure.chars().any(char::is_control), "{failure:?}");
            }
        }
    }
    if let Some(unaffected) = unaffected {
        expect_unaffected(&unaffected);
    }
}

#[test]
fn a_host_ends_after_damaged_requests() {
    let directory = PolicyDirectory::new();
    let Some(conversations) = record("requests", &directory) else {
        return;
    };
    for Conversation {
        policy,
        requests,
        replies,
    } in conversations
    {
        for Damaged {
            what,
            parts,
            noticed,
        } in damaged(&requests)
        {
            let what = format!("{policy}: {what}");
            let (mut daemon, theirs) = UnixStream::pair().unwrap();
            let mut host = Command::new(env!("CARGO_BIN_EXE_ppc-host"))
                .stdin(Stdio::from(OwnedFd::from(theirs)))
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            daemon.set_read_timeout(Some(HANG_TIMEOUT)).unwrap();
            // the host may end before it has read everything
            let _ = daemon.write_all(&parts.concat());
            let mut answered = Vec::new();
            if parts.first() == requests.first() {
                answered.resize(replies[0].len(), 0);
                daemon.read_exact(&mut answered).unwrap();
            } else {
                // a host whose daemon has ended before it starts reads nothing; there may be no reply to wait for
                std::thread::sleep(Duration::from_millis(10));
            }
            let _ = daemon.shutdown(std::net::Shutdown::Write);
            if let Err(error) = daemon.read_to_end(&mut answered) {
                // unread requests in a socket that is closed reset the connection
                let kind = error.kind();
                assert_eq!(kind, std::io::ErrorKind::ConnectionReset, "{what}");
            }
            let status = host.wait().unwrap();
            // a conversation that only ends early looks as if the daemon had ended
            let reordered = ["dropped", "doubled", "swapped"]
                .iter()
                .any(|damage| what.ends_with(damage));
            if reordered && noticed && !requests.starts_with(&parts) {
                assert!(!status.success(), "{what}");
            }
            let answered = split(&answered);
            assert!(answered.len() <= parts.len() + 1, "{what}");
            for (index, reply) in answered.iter().enumerate() {
                let number = u32::from_ne_bytes(reply[4..8].try_into().unwrap());
                assert_eq!(number as usize, index + 1, "{what}");
            }
            if what.ends_with("unchanged") {
                assert_eq!(answered, replies, "{what}");
            }
        }
    }
}

#[test]
fn messages_without_end_are_refused() {
    let directory = PolicyDirectory::new();
    let limits = PolicyLimits {
        init: Duration::from_millis(500),
        stall: Duration::ZERO,
        ..directory.limits
    };
    // zeros are empty messages; the other is text, whose first bytes are a length beyond the limit
    for (script, expected) in [
        ("exec cat /dev/zero >&0", "malformed message"),
        ("exec yes >&0", "malformed message"),
        (
            "head -c 4 /dev/zero >&0; exec sleep 100",
            "did not return within 500ms",
        ),
        ("exec cat <&0 >/dev/null", "did not return within 500ms"),
    ] {
        let host = HostCommand::new("sh").arg("-c").arg(script);
        let library = PathBuf::from("policy");
        let (_, failure) = converse(&directory, host, &library, "", limits);
        let failure = failure.unwrap();
        assert!(failure.contains(expected), "{script}: {failure}");
    }
}
