//! Files that hold a part of each tensor: what one process of several has written.
//!
//! | names | written by |
//! |---|---|
//! | `rank0.safetensors` | TensorRT-LLM |
//! | `model-rank-0-part-0.safetensors` | vLLM (`sharded_state`) |
//! | `model0-mp2.safetensors` | DeepSeek's `convert.py` |
//! | `consolidated.00.pth` | Meta |
//! | `pytorch_model-00000-TP-001.safetensors` | Grok |
//! | `mp_rank_00_model_states.pt`, `…zero_pp_rank_0_mp_rank_00_optim_states.pt` | DeepSpeed, Megatron |
//! | `model_world_size_2_rank_0.pt` | FSDP, verl |
//! | `model.rank0.safetensors`, `rank_0_of_2.safetensors` | scripts |

use std::ops::Range;
use std::path::Path;

use crate::read::source::files::Files;

/// Whether a file's name may be of a part, by any of the words below: most are not, and searching words costs as much as the
/// rest of opening a small file.
pub(super) fn may_be_part(path: &Path) -> bool {
    let words = [b"ran", b"-mp", b"-TP", b"con", b"_of", b"-of"];
    let path = path.as_os_str().as_encoded_bytes();
    // not `file_name`, which takes the path apart
    let start = path.iter().rposition(|byte| matches!(byte, b'/' | b'\\'));
    let name = &path[start.map_or(0, |at| at + 1)..];
    let mut windows = name.array_windows::<3>();
    windows.any(|window| words.contains(&window))
}

/// The number of the rank in a file's name, and how many there are if the name says so.
pub(super) fn rank_of(name: &str) -> Option<(u64, Option<u64>)> {
    rank_in(name).map(|found| (found.rank, found.of))
}

/// The rank in a file's name.
pub(super) struct RankInName {
    pub(super) rank: u64,
    pub(super) of: Option<u64>,
    /// Where its digits are in the name.
    digits: Range<usize>,
}

impl RankInName {
    /// The name that the file of another rank has, beside the file of this `name`.
    pub(super) fn name_of(&self, name: &str, rank: u64) -> String {
        let (start, end) = (self.digits.start, self.digits.end);
        let width = end - start;
        format!("{}{rank:0width$}{}", &name[..start], &name[end..])
    }
}

/// The rank in a file's name, if it has one.
pub(super) fn rank_in(name: &str) -> Option<RankInName> {
    let stem = name.rsplit_once('.')?.0;
    // the rank of an adapter is the size of its matrices
    if stem.to_ascii_lowercase().contains("lora") {
        return None;
    }
    let number = |text: &str| Some(leading_number(text)?.0);
    // the rank at the beginning of a text that ends at `end` of the name
    let found = |text: &str, end: usize, of: Option<u64>| {
        let (rank, rest) = leading_number(text)?;
        let digits = end - text.len()..end - rest.len();
        Some(RankInName { rank, of, digits })
    };
    let behind = |word: &str| stem.rsplit_once(word).map(|(_, rest)| rest);
    if let Some(rest) = behind("-mp") {
        let of = number(rest)?;
        let before = stem.rsplit_once("-mp")?.0;
        let digits = before.trim_end_matches(|c: char| c.is_ascii_digit());
        return found(&before[digits.len()..], before.len(), Some(of));
    }
    if let Some(rest) = behind("world_size_") {
        let (of, rank) = rest.split_once("_rank_")?;
        return found(rank, stem.len(), Some(number(of)?));
    }
    if let Some(rest) = stem.strip_prefix("consolidated.") {
        // a file without a number is the whole model
        return found(rest, stem.len(), None);
    }
    let of_tensors = behind("-TP-").and_then(|rest| found(rest, stem.len(), None));
    if of_tensors.is_some() {
        return of_tensors;
    }
    let mut rests = [".rank", "_rank", "-rank"].into_iter().filter_map(behind);
    let rest = stem.strip_prefix("rank").or_else(|| rests.next())?;
    let ranked = rest.strip_prefix(['_', '-', '.']).unwrap_or(rest);
    let (_, rest) = leading_number(ranked)?;
    let of = ["_of_", "-of-"]
        .into_iter()
        .find_map(|of| number(rest.strip_prefix(of)?));
    found(ranked, stem.len(), of)
}

/// The digits at the beginning of a text, which end a word, and the text behind them.
fn leading_number(text: &str) -> Option<(u64, &str)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, rest) = text.split_at(digits);
    let ends = !rest.starts_with(|c: char| c.is_ascii_alphanumeric());
    (digits > 0 && ends).then(|| Some((number.parse().ok()?, rest)))?
}

/// The number of a shard and how many there are, where underscores stand in the place of hyphens: `model_00001_of_00003`.
pub(super) fn underscored_shard(name: &str) -> Option<(u64, u64)> {
    let stem = name.rsplit_once('.')?.0;
    let (rest, of) = stem.rsplit_once("_of_")?;
    let (_, number) = rest.rsplit_once('_')?;
    let parsed = |text: &str| {
        text.bytes()
            .all(|b| b.is_ascii_digit())
            .then(|| text.parse().ok())?
    };
    Some((parsed(number)?, parsed(of)?))
}

/// Whether the file of rank 1 stands beside the file of rank 0.
pub(super) fn next_exists(files: &Files, path: &Path, name: &str) -> bool {
    // the last number 0 of a name is the rank's in most, and the part's in vLLM's
    let last = match name.find("-rank-0") {
        Some(at) => at + "-rank-".len(),
        None => match name.rfind('0') {
            Some(at) => at,
            None => return false,
        },
    };
    let next = format!("{}1{}", &name[..last], &name[last + 1..]);
    files.exists(&path.with_file_name(next))
}

/// Whether a file's name is one that DeepSpeed gives to the states of its ranks.
pub(super) fn is_deepspeed(name: &str) -> bool {
    name.ends_with("_optim_states.pt") || name.ends_with("_model_states.pt")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{may_be_part, rank_in, rank_of, underscored_shard};

    #[test]
    fn shards_with_underscores() {
        assert_eq!(
            underscored_shard("model_00002_of_00003.safetensors"),
            Some((2, 3))
        );
        for name in [
            "model-00002-of-00003.safetensors",
            "best_of_2.pt",
            "_of_.pt",
            "a_1_of_b.pt",
        ] {
            assert_eq!(underscored_shard(name), None, "{name}");
        }
    }

    #[test]
    fn ranks_are_recognised_by_name() {
        for (name, expected) in [
            ("rank0.safetensors", (0, None)),
            ("rank11.safetensors", (11, None)),
            ("model-rank-1-part-0.safetensors", (1, None)),
            ("model1-mp2.safetensors", (1, Some(2))),
            ("consolidated.03.pth", (3, None)),
            ("pytorch_model-00000-TP-001.safetensors", (1, None)),
            ("mp_rank_00_model_states.pt", (0, None)),
            ("model_world_size_4_rank_2.pt", (2, Some(4))),
            ("rank_0_of_2.safetensors", (0, Some(2))),
            ("model.rank1.safetensors", (1, None)),
            ("model-rank-1-of-4.safetensors", (1, Some(4))),
        ] {
            assert_eq!(rank_of(name), Some(expected), "{name}");
            let found = rank_in(name).unwrap();
            assert_eq!(found.name_of(name, found.rank), name);
            let other = found.name_of(name, 7);
            assert_eq!(rank_of(&other), Some((7, expected.1)), "{other}");
            assert!(may_be_part(Path::new(name)), "{name}");
        }
        for name in [
            "model.safetensors",
            "consolidated.safetensors",
            "consolidated.pth",
            "ranking.safetensors",
            "model-00001-of-00002.safetensors",
            "rank8lora.safetensors",
            "lora_rank_8b.safetensors",
            "lora.rank16.safetensors",
            "adapter_lora_rank_8.safetensors",
        ] {
            assert_eq!(rank_of(name), None, "{name}");
        }
    }
}
