//! Divides memory among the workers: how many bytes are prefetched ahead of each, and how many are
//! kept behind it.

use crate::config::{MaioConfig, PrefetchWindow};

/// Default distance, and its largest without an explicit setting: 1 GiB, for slower threads and for
/// transfers to an accelerator, which use pages for some time after they were read. A chosen
/// default; the experiments measured fractions of memory, not this bound.
const MAX_DISTANCE: u64 = 1 << 30;
/// Largest reach. The threads of a loader and the kernel's read-ahead access bytes some MiB around
/// the position; a larger difference is a read elsewhere. A chosen bound, not a measured one.
const MAX_REACH: u64 = 64 << 20;

/// The sizes that control one worker's part of memory, in bytes.
///
/// ```text
///         evicted       kept: distance    prefetched: window     on the device
/// ───────────────────┤──────────────────┤──────────────────────┤────────────────▶ the schedule
///             eviction cursor      read position
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WindowSizes {
    /// Bytes kept behind the read position.
    pub(crate) distance: u64,
    /// Bytes prefetched ahead of it; `None`: all.
    pub(crate) window: Option<u64>,
    /// Further bytes prefetched ahead while fewer than `distance` bytes lie behind: at first there
    /// is nothing to keep, and memory reserved for it would be unused (docs/page-cache.md, "What
    /// was found").
    pub(crate) extra: u64,
    /// Advance of the position after which the window is requested again.
    pub(crate) step: u64,
    /// Largest difference between an access and the position at which the access still belongs to
    /// the position: ahead of it by read-ahead or another thread, behind it by a slower thread.
    pub(crate) reach: u64,
    /// Whether the bytes of all groups exceed memory.
    pub(crate) exceeds_memory: bool,
}

impl WindowSizes {
    /// Divides `memory` bytes of page cache (0: unknown) among `groups` groups that read `sum`
    /// bytes, `footprint` of them distinct. Groups that read the same bytes share the pages.
    ///
    /// `memory` is 90 % of the memory limit: the runtime subtracts a tenth. Seven eighths of it are
    /// divided; the last eighth holds pages that were read and await eviction. An eighth of each
    /// part, about a tenth of the limit, is kept behind the reader. Using 80 % and a quarter was
    /// slower: 0.76 of the native duration with `pread`, against 0.69 (docs/perf-experiments.md
    /// 40).
    pub(crate) fn new(
        config: &MaioConfig,
        memory: u64,
        groups: usize,
        sum: u64,
        footprint: u64,
        chunk_len: u64,
    ) -> Self {
        let usable = memory / 8 * 7;
        let exceeds_memory = memory > 0 && footprint > usable;
        let groups = groups.max(1) as u64;
        // bytes that n groups read count n times in `sum` and once in `footprint`, since they share
        // the pages: each group's part grows by that factor. In 128 bits, as the product of two
        // sizes exceeds 64
        let shared = u128::from(usable) * u128::from(sum)
            / u128::from(footprint.max(1))
            / u128::from(groups);
        let each = u64::try_from(shared).unwrap_or(usable).min(usable);
        let min_window = 4 * chunk_len;
        // Under memory pressure no more is kept than slower threads need: nothing is evicted, and
        // so nothing prefetched, until that much has been read.
        let max_distance = if exceeds_memory { each / 8 } else { u64::MAX };
        let distance = match config.distance {
            Some(distance) if exceeds_memory => distance.min(each / 4 * 3),
            Some(distance) => distance,
            None => MAX_DISTANCE.min(max_distance),
        };
        let window = match config.window {
            PrefetchWindow::All => None,
            PrefetchWindow::Bytes(bytes) => Some(bytes.max(chunk_len)),
            // Without access events nothing would move the window between misses.
            PrefetchWindow::Auto if !exceeds_memory || config.touch == Some(false) => None,
            PrefetchWindow::Auto => Some(each.saturating_sub(distance).max(min_window)),
        };
        let extra = if config.window == PrefetchWindow::Auto && window.is_some() {
            distance
        } else {
            0
        };
        // at most half of what is kept and of what is prefetched, so that an access within reach
        // lies in bytes that are in memory
        let reach = MAX_REACH
            .min(distance / 2)
            .min(window.unwrap_or(MAX_REACH) / 2)
            .max(2 * chunk_len);
        let step = window.map_or(reach, |window| window / 8).max(chunk_len);
        Self {
            distance,
            window,
            extra,
            step,
            reach,
            exceeds_memory,
        }
    }

    /// Returns where prefetching ends for a worker at `position`: at the end of the window,
    /// extended by what is not yet kept behind. `None`: at the end of the schedule.
    pub(crate) fn end(&self, position: u64) -> Option<u64> {
        self.window.map(|window| {
            position
                .saturating_add(window)
                .saturating_add(self.extra.saturating_sub(position))
        })
    }
}

/// Detects that less memory is available than the limit says: memory stays short although
/// everything behind the readers was evicted, because other processes use part of it. Then the
/// windows must shrink, or prefetched pages would be evicted by the kernel before they are read.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WindowShrinker {
    /// The sum of the read positions at the last call.
    at: u64,
    /// How far the sum has advanced while memory was short without interruption.
    moved: u64,
}

impl WindowShrinker {
    /// Handles memory pressure while the read positions sum up to `at`. If pressure lasted while
    /// the positions advanced by a quarter of the window, the window of `sizes` shrinks by an
    /// eighth, at least to `min_window`. Pressure was interrupted if the positions advanced by more
    /// than half a step per group since the last call: the runtime calls at short intervals while
    /// memory is short.
    pub(crate) fn memory_is_short(
        &mut self,
        at: u64,
        groups: usize,
        sizes: &mut WindowSizes,
        min_window: u64,
    ) {
        let Some(window) = sizes.window else { return };
        let groups = groups.max(1) as u64;
        let moved = at.saturating_sub(self.at);
        self.at = at;
        self.moved = if moved > sizes.step.saturating_mul(groups) / 2 {
            0
        } else {
            self.moved + moved
        };
        if self.moved >= (window / 4).saturating_mul(groups) && window > min_window {
            let smaller = (window - window / 8).max(min_window);
            (sizes.window, self.moved) = (Some(smaller), 0);
            sizes.extra = 0;
            sizes.reach = sizes.reach.min(smaller / 2).max(min_window / 2);
            sizes.step = (smaller / 8).max(min_window / 4);
            tracing::info!(
                window = smaller,
                "memory is short although everything behind the readers was evicted: the prefetch window shrinks"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const M: u64 = 1 << 20;
    const G: u64 = 1 << 30;

    fn sizes(config: &str, memory: u64, groups: usize, sum: u64, footprint: u64) -> WindowSizes {
        WindowSizes::new(&config.parse().unwrap(), memory, groups, sum, footprint, M)
    }

    #[test]
    fn a_model_that_fits_is_prefetched_to_the_end() {
        let sizes = sizes("", 64 * G, 1, 15 * G, 15 * G);
        assert_eq!(
            (sizes.distance, sizes.window, sizes.exceeds_memory),
            (G, None, false)
        );
    }

    #[test]
    fn windows_stay_below_the_eviction_threshold() {
        for (groups, sum, footprint) in
            [(1, 16 * G, 16 * G), (4, 16 * G, 16 * G), (4, 16 * G, 4 * G)]
        {
            let memory = footprint / 2;
            let sizes = sizes("", memory, groups, sum, footprint);
            let different =
                (sizes.distance + sizes.window.unwrap()) * groups as u64 / (sum / footprint);
            assert!(different <= memory / 8 * 7 + M, "{sizes:?}");
            assert!(different >= memory / 8 * 6, "{sizes:?}");
            assert!(
                sizes.distance <= G && sizes.distance >= 200 * M,
                "{sizes:?}"
            );
            // At first the kept distance is part of the window.
            let window = sizes.window.unwrap();
            assert_eq!(sizes.end(0), Some(window + sizes.distance));
            assert_eq!(sizes.end(sizes.distance), Some(window + sizes.distance));
            assert_eq!(sizes.end(2 * G), Some(2 * G + window));
        }
        assert_eq!(
            sizes("distance=4G", 2 * G, 1, 4 * G, 4 * G).distance,
            2 * G / 8 * 7 / 4 * 3
        );
        assert_eq!(sizes("window=all", 2 * G, 1, 4 * G, 4 * G).window, None);
        assert_eq!(sizes("touch=no", 2 * G, 1, 4 * G, 4 * G).window, None);
        let fixed = sizes("window=64M", 0, 1, 4 * G, 4 * G);
        assert_eq!((fixed.window, fixed.end(0)), (Some(64 * M), Some(64 * M)));
    }
}
