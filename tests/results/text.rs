//! Splits documents into generated blocks and other text, and finds the numbers of a line.

const KINDS: [&str; 2] = ["results", "pagecache"];

/// The text between two markers.
pub(crate) struct Block {
    pub(crate) kind: &'static str,
    /// The name in the marker.
    pub(crate) name: String,
    pub(crate) text: String,
}

impl Block {
    /// Whether the block has no digits yet because its section has not been measured.
    pub(crate) fn is_empty(&self) -> bool {
        !self.text.contains(|c: char| c.is_ascii_digit())
    }
}

/// The text without its blocks, and the blocks.
pub(crate) fn split(text: &str) -> Result<(String, Vec<Block>), String> {
    let (mut outside, mut blocks, mut rest) = (String::new(), Vec::new(), text);
    while let Some((at, kind)) = KINDS
        .iter()
        .filter_map(|kind| Some((rest.find(&begin(kind))?, *kind)))
        .min()
    {
        outside += &rest[..at];
        let (name, after) = rest[at + begin(kind).len()..]
            .split_once("-->")
            .ok_or("a marker has no `-->`")?;
        let end = format!("<!-- /{kind} -->");
        let (block, next) = after
            .split_once(&end)
            .ok_or_else(|| format!("{name}has no end"))?;
        blocks.push(Block {
            kind,
            name: name.trim().to_owned(),
            text: block.to_owned(),
        });
        rest = next;
    }
    Ok((outside + rest, blocks))
}

fn begin(kind: &str) -> String {
    format!("<!-- {kind}: ")
}

/// Lines with a measured figure outside of code, each with its heading.
pub(crate) fn figures(text: &str) -> Vec<(String, String)> {
    let (mut heading, mut code, mut found) = (String::new(), false, Vec::new());
    for line in text.lines() {
        if line.starts_with("```") {
            code = !code;
        } else if line.starts_with('#') && !code {
            heading = line.trim_start_matches('#').trim().to_owned();
        } else if !code
            && numbers(line)
                .iter()
                .any(|(_, _, unit)| ["ns", "µs", "ms", "s", "×", "GB/s"].contains(unit))
        {
            found.push((heading.clone(), line.to_owned()));
        }
    }
    found
}

/// Numbers of a line with their units: digits that do not follow a letter or digit, with at most one decimal point.
fn numbers(line: &str) -> Vec<(&str, f64, &str)> {
    let mut found = Vec::new();
    let (mut at, mut before) = (0, ' ');
    while let Some(c) = line[at..].chars().next() {
        if !c.is_ascii_digit() || before.is_alphanumeric() || before == '_' {
            (at, before) = (at + c.len_utf8(), c);
            continue;
        }
        let len = line[at..]
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(line.len() - at);
        let text = line[at..at + len].trim_end_matches('.');
        let rest = line[at + text.len()..].trim_start_matches([' ', '\u{a0}', '*']);
        let unit = if rest.starts_with('×') {
            "×"
        } else {
            &rest[..rest
                .find(|c: char| !c.is_alphabetic() && c != '/')
                .unwrap_or(rest.len())]
        };
        found.extend(text.parse().ok().map(|value| (text, value, unit)));
        (at, before) = (at + len, '0');
    }
    found
}

#[test]
fn blocks_of_both_kinds_are_split_off() {
    let text = "a 3 ms\n<!-- pagecache: x -->\n4 ms\n<!-- /pagecache -->\nb\n<!-- results: y z -->5<!-- /results -->c";
    let (outside, blocks) = split(text).unwrap();
    assert_eq!(outside, "a 3 ms\n\nb\nc");
    let names: Vec<_> = blocks
        .iter()
        .map(|block| (block.kind, block.name.as_str()))
        .collect();
    assert_eq!(names, [("pagecache", "x"), ("results", "y z")]);
    assert_eq!(figures(&outside).len(), 1);
    assert!(split("<!-- pagecache: x -->").is_err());
}
