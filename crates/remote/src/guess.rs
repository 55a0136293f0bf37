//! The ranges that are requested of a file before anything is known of it, by the ending of its name.

/// The first and the last bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FirstRequests {
    pub(crate) head: u64,
    /// 0: only the head.
    pub(crate) tail: u64,
}

/// In KiB.
const fn first(head: u64, tail: u64) -> FirstRequests {
    FirstRequests {
        head: head << 10,
        tail: tail << 10,
    }
}

/// The pickle is the first member of an archive, and the last bytes are its directory.
const PYTORCH: FirstRequests = first(128, 64);

/// Bytes cost less than a round trip: at 30 ms and 50 MB/s, one is worth 1.5 MB.
static BY_ENDING: &[(&str, FirstRequests)] = &[
    // an index is read whole. The indices of 155 000 tensors have 15 MB
    (".index.json", first(8 << 10, 0)),
    // headers of 777 to 852 tensors: 97 to 100 KB
    (".safetensors", first(128, 0)),
    // metadata up to the vocabulary, whose length tells the rest
    (".gguf", first(256, 0)),
    (".npy", first(4, 0)),
    // a directory of some 600 members
    (".npz", first(8, 64)),
    (".pth", PYTORCH),
    (".pt", PYTORCH),
    (".bin", PYTORCH),
    (".ckpt", PYTORCH),
    (".metadata", first(1 << 10, 0)),
    (".distcp", first(4, 64)),
];

/// For other endings: configuration files, which are read whole.
const UNKNOWN: FirstRequests = first(128, 0);

impl FirstRequests {
    /// For an archive of files: its first headers, and the end, which tar fills up to 10 KiB.
    pub(crate) const ARCHIVE: Self = first(4, 12);

    /// For a file of this name.
    pub(crate) fn of(name: &str) -> Self {
        let known = BY_ENDING.iter().find(|(ending, _)| name.ends_with(ending));
        known.map_or(UNKNOWN, |(_, first)| *first)
    }
}

/// The names of all shards, if the beginning of an index names one of a numbered set: `…-00003-of-00064.safetensors`.
pub fn shard_names(index: &[u8]) -> Option<impl Iterator<Item = String>> {
    /// More shards than any checkpoint has, and few enough to be listed before the index is checked.
    const MOST: u32 = 10_000;
    let text = String::from_utf8_lossy(index);
    let (before, behind) = text.split_once("-of-")?;
    let name = &before[before.rfind('"')? + 1..];
    let (prefix, number) = name.rsplit_once('-')?;
    let value = &behind[..behind.find('"')?];
    let (of, ending) = value.split_once('.')?;
    let digits = |text: &str| text.len() == 5 && text.bytes().all(|b| b.is_ascii_digit());
    // five digits, as `save_pretrained` writes them; other forms are read from the index itself
    if !digits(number)
        || !digits(of)
        || name.contains(['/', '\\', ':'])
        || ending.contains(['/', '\\'])
    {
        return None;
    }
    let count: u32 = of.parse().ok().filter(|count| *count <= MOST)?;
    let (prefix, of, ending) = (prefix.to_owned(), of.to_owned(), ending.to_owned());
    Some((1..=count).map(move |n| format!("{prefix}-{n:05}-of-{of}.{ending}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(index: &str) -> Vec<String> {
        shard_names(index.as_bytes()).map_or(Vec::new(), Iterator::collect)
    }

    #[test]
    fn the_first_shard_of_an_index_names_all() {
        let index = r#"{"metadata": {"total_size": 1}, "weight_map": {"a": "model-00002-of-00003.safetensors", "b": "mo"#;
        assert_eq!(
            names(index),
            [
                "model-00001-of-00003.safetensors",
                "model-00002-of-00003.safetensors",
                "model-00003-of-00003.safetensors"
            ]
        );
    }

    #[test]
    fn other_names_announce_nothing() {
        for value in [
            "model.safetensors",
            "../m-00001-of-00002.bin",
            "m-1-of-2.bin",
            "m-00001-of-99999.bin",
            "m-00001-of-00002",
            "m-00001-of-",
        ] {
            assert!(
                names(&format!(r#"{{"weight_map": {{"a": "{value}"#)).is_empty(),
                "{value}"
            );
            assert!(
                names(&format!(r#"{{"weight_map": {{"a": "{value}"}}}}"#)).is_empty(),
                "{value}"
            );
        }
    }

    #[test]
    fn an_index_is_not_taken_for_another_json() {
        let head = |name| FirstRequests::of(name).head;
        assert_eq!(head("model.safetensors.index.json"), 8 << 20);
        assert_eq!(head("config.json"), 128 << 10);
        assert_eq!(FirstRequests::of("a.npz").tail, 64 << 10);
    }
}
