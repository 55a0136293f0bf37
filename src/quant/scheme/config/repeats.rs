//! Names that an object of a configuration file has twice, with different values. Python and this library read the last, other
//! readers the first, and the writer meant one of them.

use crate::quant::settings::is_altering;
use crate::read::catalog::quote;

use super::sections::{ConfigSection, is_of_packing};

/// The statements about names with two values, each behind the names of the objects around it. `of_quantisation`: the whole file
/// describes quantisation, and no more than sections of it in `config.json`.
pub(super) fn statements(
    repeats: &[String],
    file: &str,
    of_quantisation: bool,
) -> impl Iterator<Item = ConfigSection> {
    repeats.iter().map(move |path| ConfigSection {
        text: format!("the first of two values of {} of {file}", quote(path)),
        decides: of_quantisation || path.split('.').any(is_of_packing) || is_altering(path),
        of_quantised: true,
    })
}
