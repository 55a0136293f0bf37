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

use std::path::Path;

use crate::read::source::files::Files;

/// The number of the rank in a file's name, and how many there are if the name says so.
pub(super) fn rank_of(name: &str) -> Option<(u64, Option<u64>)> {
    let stem = name.rsplit_once('.')?.0;
    let number = |text: &str| -> Option<u64> {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        // the digits end the word
        let ends = !text[digits..].starts_with(|c: char| c.is_ascii_alphanumeric());
        (digits > 0 && ends).then(|| text[..digits].parse().ok())?
    };
    let behind = |word: &str| stem.rsplit_once(word).map(|(_, rest)| rest);
    if let Some(rest) = behind("-mp") {
        let of = number(rest)?;
        let before = stem.rsplit_once("-mp")?.0;
        let digits = before.trim_end_matches(|c: char| c.is_ascii_digit());
        let rank = number(&before[digits.len()..])?;
        return Some((rank, Some(of)));
    }
    if let Some(rest) = behind("world_size_") {
        let (of, rank) = rest.split_once("_rank_")?;
        return Some((number(rank)?, Some(number(of)?)));
    }
    if let Some(rest) = stem.strip_prefix("consolidated.") {
        // a file without a number is the whole model
        return number(rest).map(|rank| (rank, None));
    }
    if let Some(rest) = stem.strip_prefix("rank") {
        return number(rest).map(|rank| (rank, None));
    }
    ["-rank-", "_rank_", "-TP-"]
        .into_iter()
        .find_map(|word| number(behind(word)?))
        .map(|rank| (rank, None))
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
    use super::rank_of;

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
        ] {
            assert_eq!(rank_of(name), Some(expected), "{name}");
        }
        for name in [
            "model.safetensors",
            "consolidated.safetensors",
            "consolidated.pth",
            "ranking.safetensors",
            "model-00001-of-00002.safetensors",
            "rank8lora.safetensors",
            "lora_rank_8b.safetensors",
        ] {
            assert_eq!(rank_of(name), None, "{name}");
        }
    }
}
