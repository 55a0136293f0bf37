//! The outputs cut into files: one implementation for a sink that writes all of them, and for workers that write one each.

use serde_json::json;

use crate::base::error::Result;
use crate::plan::{PLAN_ID_KEY, PlanId, TensorSpec};

use super::Sharding;
use super::header::{self, FileLayout};

/// Which outputs each file has, at which offsets, and the files' headers.
#[derive(Debug)]
pub(super) struct FileCut {
    pub(super) layouts: Vec<FileLayout>,
    pub(super) headers: Vec<Vec<u8>>,
}

impl FileCut {
    pub(super) fn new(
        outputs: &[TensorSpec],
        sharding: &Sharding,
        metadata: &[(String, String)],
        id: Option<PlanId>,
    ) -> Result<Self> {
        let layouts = header::layouts(outputs, sharding)?;
        let first = file_metadata(metadata, true, id);
        let others = file_metadata(metadata, false, id);
        let metadata = std::iter::once(&first).chain(std::iter::repeat(&others));
        let headers = layouts
            .iter()
            .zip(metadata)
            .map(|(layout, metadata)| header::header(layout, outputs, metadata));
        let headers = headers.collect::<Result<_>>()?;
        Ok(Self { layouts, headers })
    }

    pub(super) fn count(&self) -> usize {
        self.layouts.len()
    }

    /// The length of a file.
    pub(super) fn file_bytes(&self, file: usize) -> u64 {
        self.layouts[file]
            .nbytes
            .saturating_add(self.headers[file].len() as u64)
    }

    /// Each output's file, by index, and its offset in it.
    pub(super) fn places(&self, outputs: usize) -> Vec<(usize, u64)> {
        let mut places = vec![(0, 0); outputs];
        for (file, layout) in self.layouts.iter().enumerate() {
            let header = self.headers[file].len() as u64;
            for &(output, start) in &layout.outputs {
                places[output] = (file, header + start);
            }
        }
        places
    }

    /// The text of the index, for files of these names.
    pub(super) fn index(&self, outputs: &[TensorSpec], names: &[String]) -> String {
        let mut files = vec![0; outputs.len()];
        for (file, layout) in self.layouts.iter().enumerate() {
            for &(output, _) in &layout.outputs {
                files[output] = file;
            }
        }
        let map = outputs
            .iter()
            .zip(files)
            .map(|(output, file)| (output.name.to_string(), json!(names[file])));
        let map: serde_json::Map<_, _> = map.collect();
        // `total_size` counts the tensors without headers, as transformers writes it
        let size: u64 = self.layouts.iter().map(|layout| layout.nbytes).sum();
        let text = json!({"metadata": {"total_size": size}, "weight_map": map});
        format!("{text:#}\n")
    }
}

/// The metadata of a file. Only the first carries all of it: a tokenizer of megabytes is not repeated in every shard.
/// `format`, without which transformers refuses a file, and the id of the plan are in each.
pub(crate) fn file_metadata(
    metadata: &[(String, String)],
    is_first: bool,
    id: Option<PlanId>,
) -> Vec<(String, String)> {
    let id = id.map(|id| (PLAN_ID_KEY.to_owned(), id.to_string()));
    metadata
        .iter()
        .filter(|(key, _)| is_first || key == "format")
        .cloned()
        .chain(id)
        .collect()
}
