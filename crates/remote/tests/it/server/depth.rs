//! How many requests follow one another. Also a module of the benchmark's server.

use std::time::Instant;

/// The longest chain of requests, given by when they began and when they were answered, none of which began before the one in
/// front was answered.
pub fn depth(requests: impl IntoIterator<Item = (Instant, Instant)>) -> usize {
    let mut spans: Vec<_> = requests
        .into_iter()
        .map(|(began, ended)| (ended, began))
        .collect();
    spans.sort();
    let (mut depth, mut end) = (0, None);
    for (ended, began) in spans {
        if end.is_none_or(|end| began >= end) {
            (depth, end) = (depth + 1, Some(ended));
        }
    }
    depth
}
