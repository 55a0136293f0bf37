//! Safetensors files built in memory, tensor by tensor.

use std::fmt::Write;

use anamnesis::{Checkpoint, Dtype};

/// A safetensors file to which tensors can be added and from which they can be removed.
#[derive(Clone, Default)]
pub struct CheckpointBuilder(Vec<(String, Dtype, Vec<u64>, Vec<u8>)>);

impl CheckpointBuilder {
    #[must_use]
    pub fn with(mut self, name: &str, dtype: Dtype, shape: &[usize], bytes: Vec<u8>) -> Self {
        let shape: Vec<u64> = shape.iter().map(|n| *n as u64).collect();
        assert_eq!(
            dtype.nbytes(shape.iter().product()),
            Some(bytes.len() as u64),
            "{name}"
        );
        self.0.push((name.to_owned(), dtype, shape, bytes));
        self
    }

    /// With a tensor of packed codes or group indices: dtype `I32`.
    #[must_use]
    pub fn words(self, name: &str, shape: &[usize], words: &[u32]) -> Self {
        self.with(
            name,
            Dtype::I32,
            shape,
            words.iter().flat_map(|w| w.to_le_bytes()).collect(),
        )
    }

    #[must_use]
    pub fn without(mut self, name: &str) -> Self {
        self.0.retain(|(tensor, ..)| tensor != name);
        self
    }

    /// The file.
    pub fn bytes(&self) -> Vec<u8> {
        let (mut header, mut start) = (String::from("{"), 0);
        for (i, (name, dtype, shape, bytes)) in self.0.iter().enumerate() {
            let (comma, end) = (if i == 0 { "" } else { "," }, start + bytes.len());
            write!(header, r#"{comma}"{name}":{{"dtype":"{dtype}","shape":{shape:?},"data_offsets":[{start},{end}]}}"#)
                .unwrap();
            start = end;
        }
        header.push('}');
        let mut file = (header.len() as u64).to_le_bytes().to_vec();
        file.extend(header.bytes());
        self.0.iter().for_each(|(.., bytes)| file.extend(bytes));
        file
    }

    pub fn open(&self) -> Checkpoint {
        Checkpoint::from_bytes(self.bytes()).unwrap()
    }
}
