//! The options that builders have in common: threads, the filter by name, the progress callback, the cancel token.

use crate::base::progress::RunControl;
use crate::read::selection::Selection;

/// The options of a run. A builder has them in a field `options`, its own or an inner builder's, and their methods by
/// [`run_options`].
#[derive(Clone, Default)]
pub(crate) struct RunOptions<'c> {
    /// 0 for one per core.
    pub(crate) threads: usize,
    pub(crate) selection: Selection<'c>,
    pub(crate) control: RunControl<'c>,
}

/// The methods of a builder that set its `options`: those that are named, each with what the builder adds to its documentation.
///
/// A macro, and no trait: callers need no import, and each builder's page lists all of its methods.
macro_rules! run_options {
    ($builder:ident { $($(#[$more:meta])* $option:ident,)* }) => {
        $crate::read::run_options::run_options!($builder [options] { $($(#[$more])* $option,)* });
    };
    ($builder:ident $path:tt { $($(#[$more:meta])* $option:ident,)* }) => {
        impl<'c> $builder<'c> {
            $($crate::read::run_options::run_options!(@ $option $path $(#[$more])*);)*
        }
    };
    (@ threads [$($path:tt)+] $(#[$more:meta])*) => {
        /// The number of threads; 0, the default, for one per core. The result does not depend on it.
        $(#[$more])*
        #[must_use]
        pub fn threads(mut self, threads: usize) -> Self {
            self.$($path)+.threads = threads;
            self
        }
    };
    (@ filter [$($path:tt)+] $(#[$more:meta])*) => {
        /// Restricts the run to names that this accepts.
        $(#[$more])*
        #[must_use]
        pub fn filter(mut self, keep: impl Fn(&str) -> bool + Send + Sync + 'c) -> Self {
            self.$($path)+.selection.set_filter(keep);
            self
        }
    };
    (@ progress [$($path:tt)+] $(#[$more:meta])*) => {
        /// A callback for progress, which one thread at a time invokes: about every 4 MiB, and at the end.
        $(#[$more])*
        #[must_use]
        pub fn progress(
            mut self,
            callback: impl FnMut($crate::base::progress::Progress) + Send + 'c,
        ) -> Self {
            self.$($path)+.control.set_progress(callback);
            self
        }
    };
    (@ cancel [$($path:tt)+] $(#[$more:meta])*) => {
        /// A token that cancels the run, which then returns [`ErrorKind::Cancelled`](crate::ErrorKind::Cancelled).
        $(#[$more])*
        #[must_use]
        pub fn cancel(mut self, token: &$crate::base::progress::CancelToken) -> Self {
            self.$($path)+.control.set_cancel(token);
            self
        }
    };
}

pub(crate) use run_options;
