//! The host process: loads one policy and asks it what the daemon asks.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::confine;
use super::foreign::Foreign;
use super::message::{Init, LANES, Reply, Request};
use super::wire::{receive, send};
use crate::error::{Error, Result};

/// All that the executable of a [`HostCommand`](super::HostCommand) does: serves one policy to the daemon at standard
/// input, until the daemon wants no more. Closes every descriptor of the process but the standard ones.
///
/// # Errors
///
/// Standard input is no connection to a daemon, or it broke.
pub fn serve() -> Result<()> {
    let stream = confine::begin()?;
    let mut policy = None;
    loop {
        let request = match receive(&stream, None) {
            Ok(request) => request,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let request = Request::decode(&request)
            .map_err(|_| Error::invalid("the daemon speaks another protocol"))?;
        let last = request == Request::Exit;
        let reply = match (request, &mut policy) {
            (Request::Init(init), at @ None) => begin(&init).map(|(begun, reply)| {
                *at = Some(begun);
                reply
            }),
            (request, Some(policy)) => answer(policy, &request),
            (_, None) => Err("no policy was loaded".into()),
        };
        let reply = reply.unwrap_or_else(|what| Reply::Failed(what.into_bytes()));
        let mut message = reply.encode();
        if message.len() > super::wire::FRAME {
            message = Reply::Failed(b"a list that is too long to be sent".to_vec()).encode();
        }
        send(&stream, &message)?;
        if last {
            return Ok(());
        }
    }
}

fn begin(init: &Init) -> Result<(Foreign, Reply), String> {
    confine::limit(init.memory).map_err(|error| format!("limits cannot be set: {error}"))?;
    let library = crate::library::open(Path::new(OsStr::from_bytes(&init.library)))?;
    let start = library.operation.start.is_some();
    let policy = Foreign::init(library, init)?;
    let wants = policy.wants()?;
    Ok((policy, Reply::Ready { wants, start }))
}

fn answer(policy: &mut Foreign, request: &Request) -> Result<Reply, String> {
    let lists = match request {
        Request::Init(_) => return Err("a policy was loaded already".into()),
        Request::Start => policy.start(LANES)?,
        Request::Prefetch(told) => policy.prefetch(told)?.into_iter().collect(),
        Request::Evict(told) => policy.evict(told.as_ref())?.into_iter().collect(),
        Request::Touch(told) => policy.touch(told)?.into_iter().collect(),
        Request::Exit => {
            policy.exit()?;
            Vec::new()
        }
    };
    Ok(Reply::Lists(lists))
}
