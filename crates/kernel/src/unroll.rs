//! A `map` over a short list that leaves no closure in a kernel.

/// Evaluates `body` for each listed item and gives the results as an array: `unroll!(x in [a, b] => f(x))` is
/// `[f(a), f(b)]`.
///
/// `[a, b].map(|x| f(x))` would do the same, but its closure is a function of its own. Within a kernel, a closure has the
/// kernel's target features and `array::map` has none, so the compiler may leave the closure as a call. Whether it does
/// depends on the rest of the program (experiments 32 and 41).
macro_rules! unroll {
    ($x:pat in [$($item:expr),+ $(,)?] => $body:expr) => {[$({
        let $x = $item;
        $body
    }),+]};
}
pub(crate) use unroll;
