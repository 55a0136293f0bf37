//! Sources that serve bytes in memory through a function, like the clients of a remote store.

use std::io;

use anamnesis::Source;
use anamnesis::source::FnSource;

/// Serves these bytes.
pub fn fn_source(bytes: Vec<u8>) -> impl Source {
    let len = bytes.len() as u64;
    FnSource::new(len, move |start, buf: &mut [u8]| {
        copy_from(&bytes, start, buf);
        Ok(())
    })
}

/// The text of the error of [`disconnecting_source`].
pub const DISCONNECTED: &str = "the server closed the connection";

/// Serves these bytes; every read that starts behind `last_start` fails.
pub fn disconnecting_source(bytes: Vec<u8>, last_start: u64) -> impl Source {
    let len = bytes.len() as u64;
    FnSource::new(len, move |start, buf: &mut [u8]| {
        if start > last_start {
            return Err(io::Error::new(io::ErrorKind::ConnectionReset, DISCONNECTED));
        }
        copy_from(&bytes, start, buf);
        Ok(())
    })
}

fn copy_from(bytes: &[u8], start: u64, buf: &mut [u8]) {
    let start = usize::try_from(start).unwrap();
    buf.copy_from_slice(&bytes[start..start + buf.len()]);
}
