//! Our decoders of safetensors schemes: a checkpoint in memory, planned once, made again and again.

use anamnesis::execute::execute;
use anamnesis::sink::Memory;
use anamnesis::{Checkpoint, Dtype, Plan, QuantConfig, remember};
use serde_json::json;

/// A stored tensor: name, dtype, shape, bytes.
pub type Stored<'b> = (&'static str, &'static str, Vec<usize>, &'b [u8]);

/// A checkpoint of these tensors.
pub fn checkpoint(tensors: &[Stored<'_>]) -> Checkpoint {
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
    let mut header = serde_json::to_vec(&header).expect("texts and numbers");
    header.resize(header.len().next_multiple_of(8), b' ');
    let file = [&(header.len() as u64).to_le_bytes()[..], &header, &data].concat();
    Checkpoint::from_bytes(file).expect("a safetensors file")
}

/// A checkpoint of one weight.
pub struct Weight {
    checkpoint: Checkpoint,
    plan: Plan,
}

impl Weight {
    pub fn new(config: &str, tensors: &[Stored<'_>], dtype: Dtype) -> Self {
        let checkpoint = checkpoint(tensors);
        let config = QuantConfig::from_json(config.as_bytes()).expect("JSON");
        let plan = remember(&checkpoint)
            .dtype(dtype)
            .config(config)
            .plan()
            .expect("a plan");
        assert!(
            plan.refused.is_empty() && plan.jobs.len() == 1,
            "{:?} {:?}",
            plan.refused,
            plan.jobs
        );
        Self { checkpoint, plan }
    }

    pub fn decode(&self, out: &mut [u8]) {
        let mut sink = Memory::new(vec![out]);
        let go_on = &mut |_| std::ops::ControlFlow::Continue(());
        execute(&self.checkpoint, &self.plan, None, &mut sink, 1, go_on).expect("a weight");
    }
}
