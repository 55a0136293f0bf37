//! The regular expressions that configurations name modules by, as far as writers of configurations use them: literals, `.`, `.*`,
//! escaped signs, `^` in front and `$` at the end. Others are not read, and a caller treats their modules as unknown.

/// Signs that names of modules do not have, and that are not read but for `*` behind a dot, `^` in front and `$` at the end.
const SIGNS: &[u8] = b"*+?^$()[]{}|";

/// A part of a pattern between two `.*`: literal bytes, and `None` for any one.
type PatternPiece = Vec<Option<u8>>;

/// Whether a pattern matches the beginning of a name, as `re.match` does; or, with `anywhere`, a part of it, as `re.search` does.
/// `None` for a pattern with other signs than those above.
pub(super) fn matches(pattern: &str, name: &str, anywhere: bool) -> Option<bool> {
    let (pattern, anywhere) = match pattern.strip_prefix('^') {
        Some(rest) => (rest, false),
        None => (pattern, anywhere),
    };
    let (pattern, whole) = match pattern.strip_suffix('$') {
        Some(front) if !front.ends_with('\\') => (front, true),
        _ => (pattern, false),
    };
    let mut pieces = pieces(pattern)?;
    if anywhere {
        pieces.insert(0, PatternPiece::new());
    }
    let (first, rest) = pieces.split_first()?;
    let name = name.as_bytes();
    if !begins(name, first) {
        return Some(false);
    }
    let mut left = &name[first.len()..];
    let Some((last, middle)) = rest.split_last() else {
        return Some(!whole || left.is_empty());
    };
    for piece in middle {
        match find(left, piece) {
            Some(at) => left = &left[at + piece.len()..],
            None => return Some(false),
        }
    }
    if !whole {
        return Some(find(left, last).is_some());
    }
    let end = left.len().checked_sub(last.len());
    Some(end.is_some_and(|at| begins(&left[at..], last)))
}

/// Whether a text has a sign of a regular expression, which no name of a module has.
pub(super) fn is_pattern(text: &str) -> bool {
    text.bytes()
        .any(|byte| byte == b'\\' || SIGNS.contains(&byte))
}

fn pieces(pattern: &str) -> Option<Vec<PatternPiece>> {
    let mut pieces = vec![PatternPiece::new()];
    let mut bytes = pattern.bytes().peekable();
    while let Some(byte) = bytes.next() {
        let next = match byte {
            b'.' if bytes.peek() == Some(&b'*') => {
                bytes.next();
                pieces.push(PatternPiece::new());
                continue;
            }
            b'.' => None,
            b'\\' => Some(bytes.next().filter(u8::is_ascii_punctuation)?),
            byte if SIGNS.contains(&byte) => return None,
            byte => Some(byte),
        };
        pieces.last_mut()?.push(next);
    }
    Some(pieces)
}

fn begins(name: &[u8], piece: &PatternPiece) -> bool {
    let fits = |(byte, wanted): (&u8, &Option<u8>)| wanted.is_none_or(|wanted| wanted == *byte);
    name.len() >= piece.len() && name.iter().zip(piece).all(fits)
}

fn find(name: &[u8], piece: &PatternPiece) -> Option<usize> {
    let last = name.len().checked_sub(piece.len())?;
    (0..=last).find(|&at| begins(&name[at..], piece))
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns_of_configurations() {
        let name = "model.layers.10.mlp.down_proj";
        for pattern in [
            ".*down_proj",
            r".*\.down_proj$",
            "^model.*mlp.*",
            r"model\.layers\.10\.mlp",
            "model.layers.10.mlp.down_proj",
            ".*",
        ] {
            assert_eq!(matches(pattern, name, false), Some(true), "{pattern}");
        }
        for pattern in [
            "down_proj",
            r".*mlp\.down$",
            ".*up_proj.*",
            r".*mlp\.down_proj.x",
        ] {
            assert_eq!(matches(pattern, name, false), Some(false), "{pattern}");
        }
        assert_eq!(matches(".*mlp$", name, false), Some(false));
        assert_eq!(matches(".*down_proj$", name, false), Some(true));
        assert_eq!(matches("mlp", name, true), Some(true));
        assert_eq!(matches("^mlp", name, true), Some(false));
        for pattern in [".*(down|up)_proj", r".*\d+.*", "model.layers.[0-9]"] {
            assert_eq!(matches(pattern, name, false), None, "{pattern}");
        }
    }
}
