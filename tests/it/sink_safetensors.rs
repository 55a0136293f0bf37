//! The sink that writes safetensors files: after an error or a cancel no file is left, and nothing that exists is overwritten
//! unless the caller allows it.

mod exchange;
mod failures;
mod targets;

use std::io;
use std::ops::ControlFlow;
use std::path::Path;

use crate::support::random::random_bytes;
use crate::support::writers::{StoredTensor, gguf};
use anamnesis::sink::Sharding;
use anamnesis::{
    CancelToken, Checkpoint, Dtype, Error, ErrorKind, Progress, Remember, Result, remember,
};

/// A GGUF file whose output in F32 is 16 MiB: progress is reported several times, and each shard of 8 MiB holds one weight.
fn gguf_file() -> Vec<u8> {
    let weight = |name: &str| {
        StoredTensor::new(
            name,
            "2",
            &[64, 32 << 10],
            random_bytes(1, (2 << 20) / 32 * 18),
        )
    };
    gguf(
        false,
        &[],
        &[
            weight("a.weight"),
            weight("b.weight"),
            StoredTensor::new("n", "0", &[2], vec![0; 8]),
        ],
    )
}

fn gguf_checkpoint() -> Checkpoint {
    Checkpoint::from_bytes(gguf_file()).unwrap()
}

fn remember_f32(checkpoint: &Checkpoint) -> Remember<'_> {
    remember(checkpoint).dtype(Dtype::F32).threads(2)
}

/// Writes to a file or a directory; `watch` is called at each progress report and may cancel.
fn write_files(
    remember: &Remember<'_>,
    to: &Path,
    sharding: &Sharding,
    watch: &mut (dyn FnMut(Progress) -> ControlFlow<()> + Send),
) -> Result<()> {
    let token = CancelToken::new();
    let remember = remember.clone().cancel(&token).progress(|progress| {
        if watch(progress).is_break() {
            token.cancel();
        }
    });
    let mut sink = remember.safetensors(to, sharding.clone())?;
    remember.run(&remember.plan()?, &mut sink)
}

fn io_kind(error: &Error) -> Option<io::ErrorKind> {
    match error.kind() {
        ErrorKind::Io(e) => Some(e.kind()),
        _ => None,
    }
}

const SHARDINGS: [Sharding; 3] = [
    Sharding::SingleFile,
    Sharding::Shards(1 << 30),
    Sharding::Shards(8 << 20),
];
