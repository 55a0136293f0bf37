//! Objects appear: their uploads are completed, several at a time.

use std::ops::Range;
use std::sync::Arc;

use tokio::task::JoinSet;

use crate::error::{Error, ErrorKind, Result};
use crate::runtime::wait_while;

use super::{CompletionState, SharedUploads, Uploads};

/// Uploads that are completed or aborted at a time.
pub(super) const AT_A_TIME: usize = 8;

impl Uploads {
    /// Completes the uploads of these objects, all parts of which have been sent. `wait` is called meanwhile with true, and ends the wait
    /// by returning false.
    ///
    /// # Errors
    /// The errors of the requests, and [`Cancelled`](ErrorKind::Cancelled); some of the objects may be there then.
    pub fn complete(
        &self,
        objects: Range<usize>,
        wait: &mut dyn FnMut(bool) -> bool,
    ) -> Result<()> {
        let shared = Arc::clone(&self.0);
        let completed = async move {
            let (mut running, mut outcome) = (JoinSet::new(), Ok(()));
            for object in objects {
                if running.len() == AT_A_TIME {
                    outcome = outcome.and(ended(running.join_next().await));
                }
                if outcome.is_err() {
                    break;
                }
                let shared = Arc::clone(&shared);
                running.spawn(async move { shared.complete_one(object).await });
            }
            // requests that were sent are waited for: their objects may be there
            while let Some(one) = running.join_next().await {
                outcome = outcome.and(ended(Some(one)));
            }
            outcome
        };
        wait_while(completed, &mut || wait(true))
    }
}

fn ended(one: Option<Result<Result<()>, tokio::task::JoinError>>) -> Result<()> {
    one.map_or(Ok(()), |one| {
        one.unwrap_or_else(|_| Err(Error::cancelled()))
    })
}

impl SharedUploads {
    async fn complete_one(&self, file: usize) -> Result<()> {
        let (object, len) = (&self.objects[file], self.parts[file].len);
        let id = object.id.borrow().clone();
        let id = id.unwrap_or_else(|| Err(Error::cancelled()))?;
        let parts = {
            let mut state = self.lock();
            let parts: Option<Vec<_>> = state.sent[file].iter().cloned().collect();
            // before the request, whose outcome may stay unknown
            state.completion[file] = CompletionState::Requested;
            parts
        };
        let parts = parts.ok_or_else(|| {
            let what = "not all bytes of the object have been written";
            Error::new(ErrorKind::Invalid, what)
        })?;
        self.counters.sent();
        match self.bucket.complete_upload(&object.key, &id, parts).await {
            Ok(()) => {}
            // a repetition after an answer that was lost: the upload has ended, and the object was not there before
            Err(e) if e.kind() == ErrorKind::NotFound && !object.replaces => {
                self.counters.sent();
                if self.bucket.length(&object.key).await? != Some(len) {
                    return Err(e);
                }
            }
            Err(e) => return Err(e),
        }
        self.lock().completion[file] = CompletionState::Complete;
        Ok(())
    }
}
