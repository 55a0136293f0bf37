//! How memory is shared: how far ahead of a worker bytes are brought, and how far behind it they are kept.

use crate::config::{Config, Window};

/// What is kept behind a worker unless something else is said, or memory is short.
const DISTANCE: u64 = 1 << 30;
/// Positions around the front that are taken for it.
const REACH: u64 = 64 << 20;

/// The sizes by which one worker's part of memory is used.
///
/// ```text
///         evicted      kept: distance     brought: window         on the device
/// ───────────────────┤──────────────────┤──────────────────────┤────────────────▶ the group, in order
///                  cursor             front
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    /// Bytes behind the front that are kept.
    pub(crate) distance: u64,
    /// Bytes ahead of it that are brought; `None`: all.
    pub(crate) window: Option<u64>,
    /// Bytes more that are brought ahead while nothing lies behind yet: what is kept behind takes them over.
    pub(crate) spare: u64,
    /// How far the front moves before the window is moved with it.
    pub(crate) step: u64,
    /// How far ahead of the front an access is still the front's, and behind it a thread that lags.
    pub(crate) reach: u64,
    /// Whether what the groups read does not fit into memory.
    pub(crate) short: bool,
}

impl Share {
    /// For each of `groups` groups, that read `sum` bytes, `footprint` of them different, when the page cache may
    /// have `memory` bytes (0: unknown). Of these, seven eighths are divided: what was read and waits for eviction has
    /// the rest. Groups that read the same bytes share what they bring.
    pub(crate) fn new(
        config: &Config,
        memory: u64,
        groups: usize,
        sum: u64,
        footprint: u64,
        piece: u64,
    ) -> Self {
        let usable = memory / 8 * 7;
        let short = memory > 0 && footprint > usable;
        let groups = groups.max(1) as u64;
        let shared = u128::from(usable) * u128::from(sum)
            / u128::from(footprint.max(1))
            / u128::from(groups);
        let each = u64::try_from(shared).unwrap_or(usable).min(usable);
        let least = 4 * piece;
        // what was read keeps no more than threads that lag need: until so much is read, nothing goes, and nothing comes
        let most = if short { each / 8 } else { u64::MAX };
        let distance = match config.distance {
            Some(distance) if short => distance.min(each / 4 * 3),
            Some(distance) => distance,
            None => DISTANCE.min(most),
        };
        let window = match config.window {
            Window::All => None,
            Window::Bytes(bytes) => Some(bytes.max(piece)),
            // without being told of accesses there is nothing that would move it
            Window::Auto if !short || config.touch == Some(false) => None,
            Window::Auto => Some(each.saturating_sub(distance).max(least)),
        };
        let spare = if config.window == Window::Auto && window.is_some() {
            distance
        } else {
            0
        };
        let reach = REACH
            .min(distance / 2)
            .min(window.unwrap_or(REACH) / 2)
            .max(2 * piece);
        let step = window.map_or(reach, |window| window / 8).max(piece);
        Self {
            distance,
            window,
            spare,
            step,
            reach,
            short,
        }
    }

    /// Where prefetching ends for a worker at `front`: at the window's end, later while less than the distance lies behind
    /// it; `None`: at the end of what it reads.
    pub(crate) fn end(&self, front: u64) -> Option<u64> {
        self.window.map(|window| {
            front
                .saturating_add(window)
                .saturating_add(self.spare.saturating_sub(front))
        })
    }
}

/// Notices that there is less room than was thought: memory is short again and again, though what lies behind the
/// fronts was let go. Then others have part of it, and windows must be smaller.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pressure {
    /// Where the fronts were, summed, at the last call.
    at: u64,
    /// How far they moved since memory has been short all the time.
    moved: u64,
}

impl Pressure {
    /// Memory is short. Makes the window of `share` an eighth smaller, down to `least`, if it was short all the while
    /// that the fronts, now at `at` in sum, moved by a quarter of it. Had there been room, they would have moved by
    /// more than a step of each of `groups` groups since the call before.
    pub(crate) fn felt(&mut self, at: u64, groups: usize, share: &mut Share, least: u64) {
        let Some(window) = share.window else { return };
        let groups = groups.max(1) as u64;
        let moved = at.saturating_sub(self.at);
        self.at = at;
        self.moved = if moved > share.step.saturating_mul(groups) / 2 {
            0
        } else {
            self.moved + moved
        };
        if self.moved >= (window / 4).saturating_mul(groups) && window > least {
            let smaller = (window - window / 8).max(least);
            (share.window, self.moved) = (Some(smaller), 0);
            share.spare = 0;
            share.reach = share.reach.min(smaller / 2).max(least / 2);
            share.step = (smaller / 8).max(least / 4);
            tracing::info!(
                window = smaller,
                "memory is shorter than its limit says: less is brought ahead"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const M: u64 = 1 << 20;
    const G: u64 = 1 << 30;

    fn share(config: &str, memory: u64, groups: usize, sum: u64, footprint: u64) -> Share {
        Share::new(&config.parse().unwrap(), memory, groups, sum, footprint, M)
    }

    #[test]
    fn what_fits_is_brought_to_the_end() {
        let share = share("", 64 * G, 1, 15 * G, 15 * G);
        assert_eq!(
            (share.distance, share.window, share.short),
            (G, None, false)
        );
    }

    #[test]
    fn what_does_not_fit_leaves_room_below_the_threshold() {
        for (groups, sum, footprint) in
            [(1, 16 * G, 16 * G), (4, 16 * G, 16 * G), (4, 16 * G, 4 * G)]
        {
            let memory = footprint / 2;
            let share = share("", memory, groups, sum, footprint);
            let different =
                (share.distance + share.window.unwrap()) * groups as u64 / (sum / footprint);
            assert!(different <= memory / 8 * 7 + M, "{share:?}");
            assert!(different >= memory / 8 * 6, "{share:?}");
            assert!(
                share.distance <= G && share.distance >= 200 * M,
                "{share:?}"
            );
            // all of it lies ahead at first
            let window = share.window.unwrap();
            assert_eq!(share.end(0), Some(window + share.distance));
            assert_eq!(share.end(share.distance), Some(window + share.distance));
            assert_eq!(share.end(2 * G), Some(2 * G + window));
        }
        assert_eq!(
            share("distance=4G", 2 * G, 1, 4 * G, 4 * G).distance,
            2 * G / 8 * 7 / 4 * 3
        );
        assert_eq!(share("window=all", 2 * G, 1, 4 * G, 4 * G).window, None);
        assert_eq!(share("touch=no", 2 * G, 1, 4 * G, 4 * G).window, None);
        let told = share("window=64M", 0, 1, 4 * G, 4 * G);
        assert_eq!((told.window, told.end(0)), (Some(64 * M), Some(64 * M)));
    }
}
