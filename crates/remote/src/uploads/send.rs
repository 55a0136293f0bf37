//! Parts get buffers in order, and are sent when they are full.

use std::sync::Arc;

use bytes::Bytes;
use object_store::MultipartId;
use object_store::multipart::PartId;

use crate::error::{Error, ErrorKind, Result};
use crate::runtime::runtime;

use super::layout::{self, UploadPart};
use super::{OpenPart, SharedUploads, UploadState};

/// Handles of ended tasks that are kept.
const ENDED_TASKS: usize = 64;

impl SharedUploads {
    /// Gives buffers to the parts up to this one, as far as memory allows.
    pub(super) fn open_to(self: &Arc<Self>, state: &mut UploadState, number: usize) -> Result<()> {
        while state.next <= number {
            let Some(part) = layout::part(&self.parts, state.next) else {
                return Ok(());
            };
            // a part that is longer than all memory has it for itself
            if state.buffered > 0 && state.buffered.saturating_add(part.len) > self.memory {
                return Ok(());
            }
            let open = self.buffer(part, state.free.pop())?;
            state.buffered += part.len;
            state.most_buffered = state.most_buffered.max(state.buffered);
            let is_full = open.filled >= part.len;
            state.open.insert(state.next, open);
            state.next += 1;
            if is_full {
                self.send(state, state.next - 1);
            }
        }
        Ok(())
    }

    /// The buffer of a part, with what the head of the object has of it. `free`: memory of a part that has been sent.
    fn buffer(&self, part: UploadPart, free: Option<Vec<u8>>) -> Result<OpenPart> {
        let len = usize::try_from(part.len).ok();
        // memory of a shorter part would be copied as it grows
        let free = free.filter(|free| len.is_some_and(|len| free.capacity() >= len));
        let mut bytes = free.unwrap_or_default();
        bytes.clear();
        // fallible: a lack of memory fails the upload and not the process
        let len = len.filter(|len| bytes.try_reserve_exact(*len).is_ok());
        let len = len.ok_or_else(|| {
            let what = format!("there is no memory for a part of {} bytes", part.len);
            Error::new(ErrorKind::Invalid, what)
        })?;
        let head = &self.objects[part.file].head;
        let start = usize::try_from(part.start).unwrap_or(usize::MAX);
        let head = head.get(start..).unwrap_or_default();
        let head = &head[..head.len().min(len)];
        bytes.extend_from_slice(head);
        bytes.resize(len, 0);
        Ok(OpenPart {
            bytes,
            filled: head.len() as u64,
        })
    }

    /// Sends a part that is full, and starts its object's upload if it is the first.
    pub(super) fn send(self: &Arc<Self>, state: &mut UploadState, number: usize) {
        let part = layout::part(&self.parts, number).expect("it has a buffer");
        let open = state.open.remove(&number).expect("it has a buffer");
        let runtime = match runtime() {
            Ok(runtime) => runtime,
            Err(e) => {
                state.buffered -= part.len;
                state.failure.get_or_insert(e);
                return self.changed.notify_all();
            }
        };
        state.sending += 1;
        // an upload that is being started has no id yet
        if !state.starts.iter().any(|(file, _)| *file == part.file)
            && self.objects[part.file].id.borrow().is_none()
        {
            let shared = Arc::clone(self);
            let start = runtime.spawn(async move { shared.start(part.file).await });
            state.starts.push((part.file, start));
        }
        // now and then and not each time: an object has up to 10,000 parts
        if state.tasks.len() >= ENDED_TASKS {
            state.tasks.retain(|task| !task.is_finished());
        }
        let shared = Arc::clone(self);
        state.tasks.push(runtime.spawn(async move {
            let _sending = SendingPart {
                shared: &shared,
                len: part.len,
            };
            let bytes = Bytes::from(open.bytes);
            let outcome = shared.send_part(part, bytes.clone()).await;
            let mut state = shared.lock();
            state.sending -= 1;
            state.buffered -= part.len;
            // the next part gets the same memory: the allocator would keep what threads free, and take more for others
            if let (false, Ok(bytes)) = (state.ended, bytes.try_into_mut()) {
                state.free.push(bytes.into());
            }
            match outcome {
                Ok(id) => state.sent[part.file][part.number] = Some(id),
                Err(e) => {
                    // the first failure, as others often follow from it
                    state.failure.get_or_insert(e);
                }
            }
            // before the notification, so that a woken thread finds the lock free
            drop(state);
            shared.changed.notify_all();
        }));
    }

    async fn start(&self, file: usize) {
        let object = &self.objects[file];
        let starting = StartingUpload(&object.id);
        self.counters.sent();
        let started = self.bucket.create_upload(&object.key).await;
        starting.0.send_replace(Some(started));
    }

    /// The id of an object's upload, once it has been started.
    async fn id(&self, file: usize) -> Result<MultipartId> {
        let mut id = self.objects[file].id.subscribe();
        match id.wait_for(Option::is_some).await {
            Ok(id) => id.clone().expect("waited for"),
            Err(_) => Err(Error::cancelled()),
        }
    }

    async fn send_part(&self, part: UploadPart, bytes: Bytes) -> Result<PartId> {
        let id = self.id(part.file).await?;
        let key = &self.objects[part.file].key;
        self.counters.sent();
        let sent = self.bucket.put_part(key, &id, part.number, bytes);
        let sent = sent.await?;
        self.counters.uploaded(part.len);
        Ok(sent)
    }
}

/// The error of a task that has panicked, which its waiters would otherwise wait for.
fn without_answer() -> Error {
    Error::new(ErrorKind::Network, "a request ended without an answer")
}

/// A part whose task runs.
struct SendingPart<'s> {
    shared: &'s SharedUploads,
    len: u64,
}

impl Drop for SendingPart<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        let mut state = self.shared.lock();
        state.sending -= 1;
        state.buffered -= self.len;
        state.failure.get_or_insert_with(without_answer);
        drop(state);
        self.shared.changed.notify_all();
    }
}

/// An upload that is being started.
struct StartingUpload<'s>(&'s tokio::sync::watch::Sender<Option<Result<MultipartId>>>);

impl Drop for StartingUpload<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.send_replace(Some(Err(without_answer())));
        }
    }
}
