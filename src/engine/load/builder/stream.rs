//! Loading tensors one by one: within a closure, or through a handle.

use super::{Load, Ownership};
use crate::base::error::Result;
use crate::engine::load::loaded::TensorStream;
use crate::engine::load::running::RunningLoad;
use crate::engine::load::tasks::LoadRun;
use crate::read::checkpoint::Checkpoint;

impl<'c> Load<'c> {
    /// Passes tensors to `consumer` one by one, in order, while the next ones are read. Memory is bounded by
    /// [`read_ahead`](Self::read_ahead) and what `consumer` keeps. Tensors that it does not consume are not loaded.
    ///
    /// ```
    /// use anamnesis::{Checkpoint, load};
    ///
    /// let checkpoint = Checkpoint::open("fixtures/safetensors/sharded")?;
    /// load(&checkpoint).read_ahead(64 << 20).stream(|tensors| {
    ///     for tensor in tensors {
    ///         let tensor = tensor?;
    ///         println!("{}: {} bytes", tensor.name(), tensor.bytes().len());
    ///     }
    ///     Ok(())
    /// })?;
    /// # Ok::<(), anamnesis::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`run`](Self::run), and the error of `consumer`.
    pub fn stream(
        &self,
        mut consumer: impl FnMut(&mut TensorStream<'_, 'c>) -> Result<()> + Send,
    ) -> Result<()> {
        match &self.checkpoint.0 {
            Ownership::Borrowed(checkpoint) => self.stream_on(checkpoint, &mut consumer),
            Ownership::Shared(checkpoint) => self.stream_on(checkpoint, &mut |tensors| {
                tensors.shared(checkpoint, |tensors| consumer(tensors))
            }),
        }
    }

    /// Like [`stream`](Self::stream), with tensors that borrow from the checkpoint.
    fn stream_on<'k>(
        &self,
        checkpoint: &'k Checkpoint,
        consumer: &mut (dyn FnMut(&mut TensorStream<'_, 'k>) -> Result<()> + Send),
    ) -> Result<()>
    where
        'c: 'k,
    {
        let pool = self.pool_or_new();
        let (reads, tasks) = self.tasks(checkpoint, false)?;
        let run = LoadRun::new(&pool, self.memory, &tasks, &self.options.control);
        let choice = self.chosen(&reads);
        let context = self.context(checkpoint, &pool, self.read_ahead);
        Self::feed(choice.clone(), &context, &reads, &mut |feed| {
            // one tensor at a time, on the thread of the consumer: what it does not request is not loaded
            let mut next = || run.load_next(feed);
            consumer(&mut TensorStream::new(&mut next, &choice, &|| {
                feed.report()
            }))
        })?;
        // a consumer may stop early; then no callback reports an end that was not reached
        if run.progress.is_complete() {
            run.progress.finish();
        }
        Ok(())
    }
}

impl Load<'static> {
    /// Starts to load on a thread of its own, and returns a handle from which tensors are taken one by one, in order: as
    /// [`stream`](Self::stream), for a caller that cannot stay within a closure. For a builder over an `Arc<Checkpoint>`;
    /// callbacks have no lifetime either.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::task::Poll;
    /// use std::time::Duration;
    /// use anamnesis::{Checkpoint, load};
    ///
    /// let checkpoint = Arc::new(Checkpoint::open("fixtures/safetensors/sharded")?);
    /// let mut tensors = load(&checkpoint).read_ahead(64 << 20).start()?;
    /// let first = tensors.next().expect("the checkpoint has tensors")?;
    /// println!("{}: {} bytes", first.name(), first.bytes().len());
    /// // or in short waits, between which the caller does other work
    /// loop {
    ///     match tensors.next_timeout(Duration::from_millis(50)) {
    ///         Poll::Pending => println!("{:?}", tensors.progress()),
    ///         Poll::Ready(Some(tensor)) => println!("{}", tensor?.name()),
    ///         Poll::Ready(None) => break,
    ///     }
    /// }
    /// # Ok::<(), anamnesis::Error>(())
    /// ```
    ///
    /// # Errors
    /// If no thread can be started. Every other error is an item of the handle.
    pub fn start(&self) -> Result<RunningLoad> {
        let mut load = self.clone();
        let monitor = load.options.control.monitor();
        RunningLoad::spawn(monitor, move |handle| {
            load.stream(|tensors| handle.send_all(tensors))
        })
    }
}
