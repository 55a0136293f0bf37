//! Whether a list of a bucket goes on: a server may name a next page for ever.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use object_store::ListResult;

use crate::error::{Error, Result};

/// Pages in sequence without a name that is new: services send a few, where objects were removed.
const IDLE_PAGES: u32 = 100;

/// The pages of a list so far, and their tokens, as hashes.
#[derive(Default)]
pub(crate) struct ListProgress {
    tokens: HashSet<u64>,
    pages: HashSet<u64>,
    idle: u32,
}

impl ListProgress {
    /// Counts a page, and the token of the next one.
    ///
    /// # Errors
    ///
    /// A page before had the same token, or a hundred pages in sequence have nothing that others have not.
    pub(crate) fn add(&mut self, page: Option<u64>, next: Option<&str>) -> Result<()> {
        let Some(token) = next else {
            return Ok(());
        };
        if !self.tokens.insert(hash_of([token])) {
            return Err(Error::refused(
                "the bucket's listing does not go on: two of its pages have the same token",
            ));
        }
        match page.is_some_and(|page| self.pages.insert(page)) {
            true => self.idle = 0,
            false => self.idle += 1,
        }
        if self.idle > IDLE_PAGES {
            return Err(Error::refused(format!(
                "the bucket's listing does not go on: more than {IDLE_PAGES} of its pages in sequence have no new name"
            )));
        }
        Ok(())
    }
}

/// A hash of all names of a page; `None` if it has none.
pub(crate) fn fingerprint(page: &ListResult) -> Option<u64> {
    let objects = page.objects.iter().map(|object| object.location.as_ref());
    let folders = page.common_prefixes.iter().map(AsRef::as_ref);
    let mut names = objects.chain(folders).peekable();
    names.peek()?;
    Some(hash_of(names))
}

fn hash_of<'n>(texts: impl IntoIterator<Item = &'n str>) -> u64 {
    // a server that makes two pages of one hash ends its own list
    let mut hasher = DefaultHasher::new();
    texts.into_iter().for_each(|text| text.hash(&mut hasher));
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_does_not_go_on_ends() {
        let mut progress = ListProgress::default();
        let token = |n: u64| format!("token-{n}");
        // new pages for ever are a matter of time and number
        for n in 0..1000 {
            progress.add(Some(n), Some(&token(n))).unwrap();
        }
        // a circle of several pages
        assert!(progress.add(Some(2000), Some(&token(17))).is_err());
        for page in [None, Some(5)] {
            let mut progress = ListProgress::default();
            progress.add(Some(5), Some("first")).unwrap();
            let ended = (0..1000).find(|n| progress.add(page, Some(&token(*n))).is_err());
            assert_eq!(ended, Some(u64::from(IDLE_PAGES)), "{page:?}");
        }
        assert!(progress.add(None, None).is_ok());
    }
}
