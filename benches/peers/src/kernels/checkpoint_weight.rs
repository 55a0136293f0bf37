//! A weight in a safetensors checkpoint in memory: planned once, dequantised in every call.

use anamnesis::execute::Executor;
use anamnesis::sink::MemorySink;
use anamnesis::{Checkpoint, Dtype, Plan, QuantConfig, remember};
use serde_json::json;

/// Name, dtype, shape and bytes of a stored tensor.
pub type StoredTensor<'b> = (&'static str, &'static str, Vec<usize>, &'b [u8]);

/// A safetensors file of these tensors, opened from memory.
pub fn checkpoint(tensors: &[StoredTensor<'_>]) -> Checkpoint {
    let mut header = serde_json::Map::new();
    let mut data = Vec::new();
    for (name, dtype, shape, bytes) in tensors {
        let range = [data.len(), data.len() + bytes.len()];
        header.insert(
            (*name).to_owned(),
            json!({"dtype": dtype, "shape": shape, "data_offsets": range}),
        );
        data.extend_from_slice(bytes);
    }
    let mut header = serde_json::to_vec(&header).expect("strings and numbers serialise to JSON");
    header.resize(header.len().next_multiple_of(8), b' ');
    let file = [&(header.len() as u64).to_le_bytes()[..], &header, &data].concat();
    Checkpoint::from_bytes(file).expect("the header is valid")
}

/// A checkpoint with one weight, and the plan that dequantises it.
pub struct CheckpointWeight {
    checkpoint: Checkpoint,
    plan: Plan,
}

impl CheckpointWeight {
    pub fn new(config: &str, tensors: &[StoredTensor<'_>], dtype: Dtype) -> Self {
        let checkpoint = checkpoint(tensors);
        let config = QuantConfig::from_json(config.as_bytes()).expect("the configuration is JSON");
        let plan = remember(&checkpoint)
            .dtype(dtype)
            .config(config)
            .plan()
            .expect("the weight can be planned");
        assert!(
            plan.refused.is_empty() && plan.jobs.len() == 1,
            "{:?} {:?}",
            plan.refused,
            plan.jobs
        );
        Self { checkpoint, plan }
    }

    pub fn decode(&self, out: &mut [u8]) {
        let mut sink = MemorySink::new(vec![out]);
        Executor::new(&self.checkpoint, &self.plan)
            .threads(1)
            .run(&mut sink)
            .expect("the weight can be dequantised");
    }
}
