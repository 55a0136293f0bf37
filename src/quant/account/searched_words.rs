//! Searches for several words at once. Most names that are searched contain none of them.

/// A word in lower case, and its letters.
#[derive(Clone, Copy)]
pub(super) struct SearchedWord {
    text: &'static str,
    letters: u128,
}

/// A word to search for.
pub(super) const fn word(text: &'static str) -> SearchedWord {
    SearchedWord {
        text,
        letters: letters(text.as_bytes()),
    }
}

/// The set of the ASCII letters of a text.
const fn letters(text: &[u8]) -> u128 {
    let (mut set, mut at) = (0, 0);
    while at < text.len() {
        if text[at] < 128 {
            set |= 1 << text[at];
        }
        at += 1;
    }
    set
}

/// A text that is searched, and its letters.
#[derive(Clone, Copy)]
pub(super) struct SearchedText<'t> {
    text: &'t str,
    letters: u128,
}

impl<'t> SearchedText<'t> {
    #[inline]
    pub(super) fn new(text: &'t str) -> Self {
        let letters = letters(text.as_bytes());
        Self { text, letters }
    }

    #[inline]
    pub(super) fn text(self) -> &'t str {
        self.text
    }

    /// Whether it contains one of the words. A word is looked for only where all its letters are.
    #[inline]
    pub(super) fn has(self, words: &[SearchedWord]) -> bool {
        words.iter().any(|word| {
            self.letters & word.letters == word.letters && self.text.contains(word.text)
        })
    }
}
