//! Loading into memory of the caller.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::{Load, not_one};
use crate::base::error::{Error, Result};
use crate::engine::load::LoadContext;
use crate::engine::load::caller_memory::IntoPieces;
use crate::engine::load::loaded::LoadOutcome;
use crate::engine::load::tasks::LoadTask;
use crate::read::catalog::quote;

impl Load<'_> {
    /// Loads tensors, or their [slices](Self::slice), into memory of the caller: each into exactly the slice that is given
    /// with its name. These names replace a [filter](Self::filter). Several threads read or copy.
    ///
    /// ```
    /// use anamnesis::{Checkpoint, load};
    ///
    /// let checkpoint = Checkpoint::open("fixtures/safetensors/sharded")?;
    /// let (mut embedding, mut head) = (vec![0; 1024], vec![0; 1024]);
    /// let outputs = [("model.embed_tokens.weight", &mut embedding[..]), ("lm_head.weight", &mut head[..])];
    /// load(&checkpoint).run_into(outputs)?;
    /// assert_eq!(head, *checkpoint.tensor("lm_head.weight").expect("it exists").bytes()?);
    /// # Ok::<(), anamnesis::Error>(())
    /// ```
    ///
    /// Bytes are read straight into that memory where the loader does ordinary reads through the page cache, and copied from
    /// the map where it maps. Direct I/O, io_uring and requests for URLs read into buffers of the pool, from which pieces of at
    /// most 16 MiB are copied: direct I/O needs aligned buffers, a read may extend beyond the tensor, a cancelled read of
    /// io_uring may still write to its buffer, which the pool keeps until the kernel is done, and the parts of an answer
    /// arrive on another thread. The pool then holds
    /// [`read_ahead`](Self::read_ahead) bytes, and the pieces that threads wait for or copy.
    ///
    /// Nothing writes to the memory after this has returned. After an error, its content is unspecified.
    ///
    /// # Errors
    /// The errors of [`run`](Self::run), without the limit of the pool's budget on all tensors; and, before anything is
    /// read, one for a name that the checkpoint does not have or that is given twice, for memory of another length, and if
    /// [`slices`](Self::slices) chooses none or several parts of a tensor.
    pub fn run_into<'b, N: Into<String>>(
        &self,
        outputs: impl IntoIterator<Item = (N, &'b mut [u8])>,
    ) -> Result<LoadOutcome> {
        let mut by_name = HashMap::new();
        for (name, out) in outputs {
            match by_name.entry(name.into()) {
                Entry::Vacant(free) => free.insert(out),
                Entry::Occupied(taken) => {
                    let name = quote(taken.key());
                    let what = format!("tensor {name} is given memory twice");
                    return Err(Error::invalid_argument(what));
                }
            };
        }
        let only = self.only(by_name.keys().map(String::as_str));
        let (_, tasks) = only.tasks(&self.checkpoint, false)?;
        let memory = take_memory(&tasks, &mut by_name)?;
        // the first by name: a table has no order
        if let Some(missing) = by_name.into_keys().min() {
            return Err(not_one(&missing, "no slice"));
        }
        let pool = self.pool_or_new();
        let context = LoadContext {
            into_memory: true,
            ..self.context(&self.checkpoint, &pool, self.read_ahead)
        };
        let pieces = IntoPieces::new(tasks.iter().zip(memory), &context);
        let (run, reads) = pieces.into_run(&self.options.control);
        let outcome = Self::feed(self.chosen(&reads), &context, &reads, &mut |feed| {
            run.fill_all(feed, self.options.threads)
        })?;
        run.progress.finish();
        Ok(outcome)
    }

    /// Loads one tensor, or its [`slice`](Self::slice), into memory of exactly its length in bytes: as
    /// [`run_into`](Self::run_into).
    ///
    /// # Errors
    /// The errors of [`run_into`](Self::run_into).
    pub fn tensor_into(&self, name: &str, out: &mut [u8]) -> Result<()> {
        self.run_into([(name, out)]).map(drop)
    }
}

/// The memory of each task, which has its length.
fn take_memory<'b>(
    tasks: &[LoadTask<'_>],
    by_name: &mut HashMap<String, &'b mut [u8]>,
) -> Result<Vec<&'b mut [u8]>> {
    let take = |task: &LoadTask<'_>| {
        let name = &task.tensor.info().name;
        // the filter selected these names, and names of a catalog are unique: an earlier slice of the tensor has it
        let out = by_name
            .remove(&**name)
            .ok_or_else(|| not_one(name, "several slices"))?;
        // the length of a tensor that cannot be read is not known either
        task.tensor.readable()?;
        let needed = task.nbytes();
        if out.len() as u64 == needed {
            return Ok(out);
        }
        Err(Error::invalid_argument(format!(
            "tensor {} has {needed} bytes, and the memory for it {}",
            quote(name),
            out.len()
        )))
    };
    tasks.iter().map(take).collect()
}
