//! Access to URLs, with the feature `remote`: bounds on time and requests, and counts of what was requested. See
//! [`OpenOptions::remote`](crate::OpenOptions::remote).

pub use anamnesis_remote::{
    CancelCheck, RemoteOptions, RequestCounters, RequestHeaders, RequestStats, Variables,
};
