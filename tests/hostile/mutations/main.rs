//! Mutated files of quantised weights: each is decoded or refused with an error that names a tensor, within limits of memory and
//! time. A test binary of its own, as the kernel reports the peak memory per process.

mod mutate;
mod seeds;
#[path = "../../support/mod.rs"]
mod support;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use anamnesis::sink::NullSink;
use anamnesis::{BlockFormat, Limits, OpenOptions, QuantConfig, remember, source};
use mutate::{mutated_configs, mutated_sizes, mutated_tensors};
use seeds::{Seed, generated_seed, seed_of};
use support::corpus::quantised_files;
use support::process_status::status_bytes;
use support::random::random_bytes;
use support::testing::ThreadTime;
use support::writers::{StoredTensor, gguf, safetensors};

/// Small, so that memory which is not charged on them exceeds `MAX_PEAK`.
const LIMITS: Limits = Limits {
    memory: 16 << 20,
    tensors: 10_000,
    depth: 16,
    steps: 100_000,
    tensor_bytes: 64 << 20,
    tile_bytes: 64 << 20,
    expansion: 1032,
};

/// Plans with more bytes of output are not executed.
const MAX_OUTPUT: u64 = 32 << 20;

/// Memory of the process: the limits, the mutated file and slack.
const MAX_PEAK: u64 = 192 << 20;

/// Processor time for one mutated file, from opening to the last weight.
const TIME_LIMIT: Duration = Duration::from_secs(2);

/// How many files had each outcome.
#[derive(Debug, Default)]
struct Outcomes {
    not_opened: usize,
    decoded: usize,
    /// Files with at least one weight that is refused.
    refused: usize,
    failed: usize,
}

impl Outcomes {
    fn total(&self) -> usize {
        self.not_opened + self.decoded + self.refused + self.failed
    }

    /// Opens, plans and decodes; a panic is reported with the description of the mutation.
    fn check(&mut self, bytes: Vec<u8>, config: Option<&[u8]>, what: &dyn Fn() -> String) {
        let outcome = catch_unwind(AssertUnwindSafe(|| self.decode(bytes, config, what)));
        outcome.unwrap_or_else(|_| panic!("{}", what()));
    }

    fn decode(&mut self, bytes: Vec<u8>, config: Option<&[u8]>, what: &dyn Fn() -> String) {
        let started = ThreadTime::start();
        let options = OpenOptions::new().limits(LIMITS);
        let Ok(checkpoint) = options.from_source(source::MemorySource::new(bytes)) else {
            self.not_opened += 1;
            return;
        };
        // it may be over a limit
        let _ = anamnesis::fit(&checkpoint).memory(1 << 30).estimate();
        if let Ok(found) = anamnesis::diff(&checkpoint, &checkpoint).threads(1).run() {
            // without a tensor nothing is compared, and so nothing is the same
            let is_without_tensors = found.compared == 0 && found.tensors.is_empty();
            assert!(
                found.same || is_without_tensors,
                "{}: differs from itself",
                what()
            );
        }
        let mut remember = remember(&checkpoint).threads(1);
        if let Some(config) = config.and_then(|text| QuantConfig::from_json(text).ok()) {
            remember = remember.config(config);
        }
        let mut plan = remember
            .plan()
            .unwrap_or_else(|e| panic!("{}: planning fails: {e}", what()));
        let names: Vec<&str> = checkpoint
            .catalog()
            .tensors()
            .iter()
            .map(|t| &*t.name)
            .collect();
        for refusal in &plan.refused {
            let text = refusal.error.to_string();
            let is_named = |name: &str| text.contains(&format!("`{name}`"));
            // the weight, or one of its parts
            let found = is_named(&refusal.name) || names.iter().any(|name| is_named(name));
            assert!(
                found,
                "{}: {} is refused by an error that names no tensor: {text}",
                what(),
                refusal.name
            );
        }
        self.refused += usize::from(!plan.refused.is_empty());
        plan.refused.clear();
        for range in plan.reads(checkpoint.catalog()) {
            assert!(
                range.end() <= checkpoint.catalog().files()[0].nbytes,
                "{}: reads {range:?}",
                what()
            );
        }
        if plan.nbytes() <= MAX_OUTPUT {
            match remember.run(&plan, &mut NullSink) {
                Ok(()) => self.decoded += 1,
                Err(_) => self.failed += 1,
            }
        }
        assert!(
            started.elapsed() < TIME_LIMIT,
            "{} took {:?}",
            what(),
            started.elapsed()
        );
    }
}

#[test]
fn mutated_safetensors_are_decoded_or_refused() {
    let mut outcomes = Outcomes::default();
    for (number, seed) in std::iter::once(generated_seed())
        .chain(quantised_files().iter().map(|path| seed_of(path)))
        .enumerate()
    {
        let Seed {
            path,
            tensors,
            metadata,
            config,
        } = &seed;
        let metadata: Vec<_> = metadata
            .iter()
            .map(|(key, text)| (&**key, &**text))
            .collect();
        let config = config.as_deref();
        outcomes.check(safetensors(tensors, &metadata), config, &|| {
            path.display().to_string()
        });
        outcomes.check(safetensors(tensors, &metadata), None, &|| {
            format!("{} without configuration", path.display())
        });
        for (i, tensor) in tensors.iter().enumerate() {
            for (round, (what, replacement)) in
                mutated_tensors(tensor, tensors).into_iter().enumerate()
            {
                // the corpus has many files of a scheme: each gets a third of the mutations
                if number > 0 && (round + number + i) % 3 != 0 {
                    continue;
                }
                let file = [&tensors[..i], &replacement, &tensors[i + 1..]].concat();
                let what = || format!("{}: {} {what}", path.display(), tensor.name);
                outcomes.check(
                    safetensors(&file, &metadata),
                    config.filter(|_| round % 4 != 0),
                    &what,
                );
            }
        }
        for (what, config) in config.map(mutated_configs).unwrap_or_default() {
            outcomes.check(safetensors(tensors, &metadata), Some(&config), &|| {
                format!("{}: {what}", path.display())
            });
        }
    }
    println!("{} files: {outcomes:?}", outcomes.total());
    assert!(
        outcomes.decoded > 100 && outcomes.refused > 50 && outcomes.not_opened > 50,
        "{outcomes:?}"
    );
    let peak = status_bytes("VmHWM");
    assert!(
        peak.is_none_or(|peak| peak < MAX_PEAK),
        "{peak:?} bytes at the peak"
    );
}

#[test]
fn mutated_gguf_files_are_decoded_or_refused() {
    let mut outcomes = Outcomes::default();
    for format in BlockFormat::all() {
        let block = format.block_bytes as usize;
        let base = [
            StoredTensor::new(
                "blk.0.w.weight",
                &format.ggml_type.to_string(),
                &[2, 3, 256],
                random_bytes(1, 6 * 256 * block / format.block_len as usize),
            ),
            StoredTensor::new("blk.0.w.scale", "0", &[2], random_bytes(2, 8)),
            StoredTensor::new("norm.weight", "1", &[4], random_bytes(3, 8)),
        ];
        let mutate = |i: usize, change: &dyn Fn(&mut StoredTensor)| {
            let mut file = base.to_vec();
            change(&mut file[i]);
            file
        };
        let mut files = vec![base.to_vec()];
        for i in 0..base.len() {
            files.extend((0..44u32).map(|id| mutate(i, &|t| t.dtype = id.to_string())));
            for dimension in 0..base[i].shape.len() {
                for size in mutated_sizes(base[i].shape[dimension]) {
                    files.push(mutate(i, &|t| t.shape[dimension] = size));
                }
            }
            files.push(mutate(i, &|t| t.shape.reverse()));
            files.push(mutate(i, &|t| t.shape.clear()));
            files.push(mutate(i, &|t| t.name.push('x')));
            files.push(mutate(i, &|t| t.name = "blk.0.w.weight".into()));
            files.push(mutate(i, &|t| t.bytes.truncate(t.bytes.len() / 2)));
            files.push(mutate(i, &|t| t.bytes.fill(0xff)));
            files.push(
                base.iter()
                    .enumerate()
                    .filter(|(j, _)| *j != i)
                    .map(|(_, t)| t.clone())
                    .collect(),
            );
        }
        for (n, file) in files.into_iter().enumerate() {
            let what = || format!("{} {n}: {file:?}", format.name);
            outcomes.check(gguf(n % 5 == 0, &[], &file), None, &what);
        }
    }
    println!("{} files: {outcomes:?}", outcomes.total());
    assert!(
        outcomes.decoded > 100 && outcomes.refused > 50 && outcomes.not_opened > 50,
        "{outcomes:?}"
    );
}
