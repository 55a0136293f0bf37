//! An upload is undone: parts under way end first, then uploads are aborted, then objects that have appeared are removed.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{JoinHandle, JoinSet};

use crate::error::{ErrorKind, Result};
use crate::runtime::wait;

use super::complete::AT_A_TIME;
use super::{CompletionState, SharedUploads, Uploads};

/// How long is waited for the id of an upload that is being started: without it, the upload cannot be aborted.
const FOR_IDS: Duration = Duration::from_secs(5);

/// How long after a part was cut off its upload is aborted again: the bucket may have had the part already.
const AGAIN_AFTER: Duration = Duration::from_millis(100);

/// Uploads and objects that could not be undone. `Display` says what to do about it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct UploadLeftovers {
    /// Uploads that stay open at the bucket: paths, with the ids that are known.
    pub uploads: Vec<String>,
    /// Paths of objects that are there.
    pub objects: Vec<String>,
}

impl UploadLeftovers {
    /// Whether everything was undone.
    pub fn is_empty(&self) -> bool {
        self.uploads.is_empty() && self.objects.is_empty()
    }

    fn extend(&mut self, other: Self) {
        self.uploads.extend(other.uploads);
        self.objects.extend(other.objects);
    }
}

impl fmt::Display for UploadLeftovers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// Names that a message has.
        const MOST: usize = 4;
        let names = |names: &[String]| {
            let more = names.len().saturating_sub(MOST);
            let mut text = names[..names.len().min(MOST)].join(", ");
            if more > 0 {
                text.push_str(&format!(" and {more} more"));
            }
            text
        };
        if !self.uploads.is_empty() {
            let uploads = names(&self.uploads);
            write!(
                f,
                "these uploads may still be open, and are charged for: {uploads}; abort them, or give the bucket a lifecycle \
                 rule that aborts incomplete uploads"
            )?;
        }
        if !self.objects.is_empty() {
            let between = if self.uploads.is_empty() { "" } else { "; " };
            let objects = names(&self.objects);
            write!(
                f,
                "{between}these objects could not be removed: {objects}; remove them"
            )?;
        }
        Ok(())
    }
}

impl Uploads {
    /// Undoes what has begun: ends the parts under way, aborts the uploads, and removes completed objects that have replaced
    /// none. Returns what could not be undone. A further call, and one after [`keep`](Self::keep), does nothing.
    pub fn abort(&self) -> UploadLeftovers {
        let (tasks, starts) = {
            let mut state = self.0.lock();
            if std::mem::replace(&mut state.ended, true) {
                return UploadLeftovers::default();
            }
            state.open.clear();
            state.free.clear();
            (
                std::mem::take(&mut state.tasks),
                std::mem::take(&mut state.starts),
            )
        };
        // writers that wait end now
        self.0.changed.notify_all();
        let shared = Arc::clone(&self.0);
        let aborted = wait(async move { Ok(shared.abort_all(tasks, starts).await) });
        // without an answer nothing is known of any upload
        aborted.unwrap_or_else(|_| {
            let paths = self.0.objects.iter().map(|object| object.path.clone());
            UploadLeftovers {
                uploads: paths.collect(),
                objects: Vec::new(),
            }
        })
    }
}

impl SharedUploads {
    async fn abort_all(
        self: Arc<Self>,
        tasks: Vec<JoinHandle<()>>,
        starts: Vec<(usize, JoinHandle<()>)>,
    ) -> UploadLeftovers {
        let was_cut = tasks.iter().any(|task| !task.is_finished());
        tasks.iter().for_each(JoinHandle::abort);
        // a part that arrived behind the abort would keep the upload open
        for task in tasks {
            let _ = task.await;
        }
        let mut left = UploadLeftovers::default();
        let deadline = tokio::time::Instant::now() + FOR_IDS;
        for (file, mut start) in starts {
            if tokio::time::timeout_at(deadline, &mut start).await.is_err() {
                start.abort();
                let _ = start.await;
                if self.objects[file].id.borrow().is_none() {
                    left.uploads.push(self.unanswered(file));
                }
            }
        }
        let mut running = JoinSet::new();
        for file in 0..self.objects.len() {
            if running.len() == AT_A_TIME {
                left.extend(joined(running.join_next().await));
            }
            let shared = Arc::clone(&self);
            running.spawn(async move { shared.abort_one(file, was_cut).await });
        }
        while let Some(one) = running.join_next().await {
            left.extend(joined(Some(one)));
        }
        left
    }

    /// The upload of an object whose id is not known.
    fn unanswered(&self, file: usize) -> String {
        format!("{} (of unknown id)", self.objects[file].path)
    }

    async fn abort_one(&self, file: usize, was_cut: bool) -> UploadLeftovers {
        let mut left = UploadLeftovers::default();
        let object = &self.objects[file];
        let completion = self.lock().completion[file];
        let id = object.id.borrow().clone();
        match id {
            Some(Ok(id)) if completion != CompletionState::Complete => {
                let mut outcome = self.abort_upload(&object.key, &id).await;
                if was_cut {
                    tokio::time::sleep(AGAIN_AFTER).await;
                    outcome = self.abort_upload(&object.key, &id).await;
                }
                if outcome.is_err() {
                    left.uploads.push(format!("{} (id {id})", object.path));
                }
            }
            // the bucket may have started it, and its answer was lost
            Some(Err(e)) if matches!(e.kind(), ErrorKind::TimedOut | ErrorKind::Network) => {
                left.uploads.push(self.unanswered(file));
            }
            _ => {}
        }
        // an object whose completion has no known outcome may be there too
        if completion != CompletionState::Open && !object.replaces {
            self.counters.sent();
            if self.bucket.remove(&object.key).await.is_err() {
                left.objects.push(object.path.clone());
            }
        }
        left
    }

    async fn abort_upload(&self, key: &str, id: &str) -> Result<()> {
        self.counters.sent();
        self.bucket.abort_upload(key, &id.to_owned()).await
    }
}

fn joined(one: Option<Result<UploadLeftovers, tokio::task::JoinError>>) -> UploadLeftovers {
    one.and_then(Result::ok).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leftovers_say_what_to_do() {
        let mut left = UploadLeftovers::default();
        assert!(left.is_empty() && left.to_string().is_empty());
        left.uploads = (0..6).map(|i| format!("s3://b/{i} (id x)")).collect();
        let text = left.to_string();
        assert!(text.contains("s3://b/3 (id x) and 2 more; abort them"));
        assert!(text.contains("lifecycle rule"), "{text}");
        left.objects.push("s3://b/k".to_owned());
        assert!(left.to_string().ends_with("removed: s3://b/k; remove them"));
    }
}
