//! Main loop of a host process: loads one policy and answers the daemon's requests.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

use super::confine;
use super::foreign::ForeignPolicy;
use super::message::{Init, MAX_QUEUES, Reply, Request};
use super::wire::{receive, send};
use crate::error::{Error, Result};
use crate::library::LoadedLibrary;

/// The main function of a [`HostCommand`](super::HostCommand)'s executable. Serves one policy to the daemon, which is
/// connected to standard input, and returns when the daemon sends its last request or ends. Closes all descriptors
/// except the standard ones.
///
/// # Errors
///
/// If standard input is not connected to a daemon, or the connection fails.
pub fn serve() -> Result<()> {
    // before anything is received: none of the daemon's descriptors is open when a policy is loaded
    let stream = confine::enter()?;
    answer_requests(&stream, |init| {
        // before the library is loaded, whose constructors run as the policy's code
        confine::set_limits(init.process_memory)
            .map_err(|error| format!("resource limits cannot be set: {error}"))?;
        crate::library::open(Path::new(OsStr::from_bytes(&init.library)))
    })
}

/// Answers requests until the last one, or until the daemon ends.
pub(super) fn answer_requests(
    stream: &UnixStream,
    open: impl Fn(&Init) -> Result<LoadedLibrary, String>,
) -> Result<()> {
    let mut policy = None;
    let mut number = 0u32;
    loop {
        let frame = match receive(stream, None) {
            Ok(frame) => frame,
            // the daemon has ended, or dropped the policy without a last request
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        number = number.wrapping_add(1);
        if frame.number != number {
            return Err(Error::invalid("the requests are not in succession"));
        }
        let request = Request::decode(&frame.message).map_err(|_| {
            Error::invalid("the request is malformed or of another protocol version")
        })?;
        // not held while the policy runs: a frame may have megabytes
        drop(frame);
        let last = request == Request::Exit;
        let reply = match (request, &mut policy) {
            (Request::Init(init), policy @ None) => open(&init)
                .and_then(|library| load(library, &init))
                .map(|(loaded, reply)| {
                    *policy = Some(loaded);
                    reply
                }),
            (request, Some(policy)) => answer(policy, &request),
            (_, None) => Err("no policy is loaded".into()),
        };
        let reply = reply.unwrap_or_else(|what| Reply::Failed(what.into_bytes()));
        let mut message = reply.encode();
        // the daemon would end this process for a longer message
        if message.len() > super::wire::MAX_MESSAGE {
            message = Reply::Failed(b"the returned lists exceed 32 MiB".to_vec()).encode();
        }
        send(stream, number, &message, None)?;
        if last {
            return Ok(());
        }
    }
}

fn load(library: LoadedLibrary, init: &Init) -> Result<(ForeignPolicy, Reply), String> {
    let start = library.operation.start.is_some();
    let policy = ForeignPolicy::init(library, init)?;
    let wants = policy.interests()?;
    Ok((policy, Reply::Ready { wants, start }))
}

fn answer(policy: &mut ForeignPolicy, request: &Request) -> Result<Reply, String> {
    let lists = match request {
        Request::Init(_) => return Err("a policy is loaded already".into()),
        Request::Start => policy.start(MAX_QUEUES)?,
        Request::Prefetch(access) => policy.prefetch(access)?.into_iter().collect(),
        Request::Evict(access) => policy.evict(access.as_ref())?.into_iter().collect(),
        Request::Touch(access) => policy.touch(access)?.into_iter().collect(),
        Request::Exit => {
            policy.exit()?;
            Vec::new()
        }
    };
    Ok(Reply::Lists(lists))
}
