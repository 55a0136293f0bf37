//! A look at a file that nobody else notices.

use std::fs::File;
use std::io::{self, Read};

use rustix::fs::{Advice, fadvise};

use super::Residency;

/// The first `len` bytes of a file that was just opened, fewer if it has fewer; the page cache is left as it was, so that
/// who reads them next waits for the device as if nobody had looked. Without that a policy that looks at its model would
/// keep the first miss from happening.
///
/// # Errors
///
/// The system's.
pub fn peek(mut file: File, len: u64) -> io::Result<Vec<u8>> {
    let before = Residency::of(&file, 0, len).map_or(len, |found| found.cached);
    // nothing is read ahead; where the file system takes no advice, it is
    let _ = fadvise(&file, 0, None, Advice::Random);
    let mut bytes = Vec::new();
    file.by_ref().take(len).read_to_end(&mut bytes)?;
    if before == 0 {
        let _ = fadvise(&file, 0, std::num::NonZeroU64::new(len), Advice::DontNeed);
    }
    Ok(bytes)
}
