//! Writing to a bucket: objects by one request or in parts, and removing them.

use std::sync::Arc;

use crate::bucket::Bucket;
use crate::error::{Error, ErrorKind, Result};
use crate::runtime::wait_while;
use crate::store::{Store, key};
use crate::uploads::{NewObject, Uploads};

impl Store {
    /// The bucket that is written to.
    fn written_bucket(&self) -> Result<Arc<Bucket>> {
        let bucket = self.bucket().map(Arc::clone).ok_or_else(|| {
            let what = "only buckets are written to: s3://, gs://, az:// and abfss://";
            Error::new(ErrorKind::Unsupported, what)
        })?;
        self.check_online()?;
        self.forget();
        Ok(bucket)
    }

    /// Whether it is a bucket, which is also written to.
    pub fn is_bucket(&self) -> bool {
        self.bucket().is_some()
    }

    /// Bytes of the object with this path; `None` if there is none. `wanted` is called meanwhile, and ends the wait by returning false.
    ///
    /// # Errors
    /// [`Unsupported`](ErrorKind::Unsupported) for a place that is not a bucket; the errors of the request;
    /// [`Cancelled`](ErrorKind::Cancelled), also by [`RemoteOptions::cancel`](crate::RemoteOptions::cancel).
    pub fn length(&self, path: &str, wanted: &mut dyn FnMut() -> bool) -> Result<Option<u64>> {
        let (bucket, key) = (self.written_bucket()?, key(path).to_owned());
        let length = async move { bucket.length(&key).await };
        wait_while(length, &mut || wanted() && self.is_wanted())
    }

    /// Writes an object by one request: it is there as a whole or not at all. `wanted` as for [`length`](Self::length).
    ///
    /// # Errors
    /// [`Exists`](ErrorKind::Exists) for an object that is there, unless `replace` is set; as [`length`](Self::length).
    pub fn put(
        &self,
        path: &str,
        bytes: Vec<u8>,
        replace: bool,
        wanted: &mut dyn FnMut() -> bool,
    ) -> Result<()> {
        let (bucket, key) = (self.written_bucket()?, key(path).to_owned());
        let (counters, len) = (self.counters().clone(), bytes.len() as u64);
        let put = async move {
            counters.sent();
            bucket.put(&key, bytes.into(), replace).await?;
            counters.uploaded(len);
            Ok(())
        };
        wait_while(put, &mut || wanted() && self.is_wanted())
    }

    /// Removes an object, if there is one. `wanted` as for [`length`](Self::length).
    ///
    /// # Errors
    /// The errors of [`length`](Self::length).
    pub fn remove(&self, path: &str, wanted: &mut dyn FnMut() -> bool) -> Result<()> {
        let (bucket, key) = (self.written_bucket()?, key(path).to_owned());
        let counters = self.counters().clone();
        let remove = async move {
            counters.sent();
            bucket.remove(&key).await
        };
        wait_while(remove, wanted)
    }

    /// Uploads of these objects, in parts of [`RemoteOptions::part`](crate::RemoteOptions::part) bytes. Nothing is sent before
    /// bytes are written.
    ///
    /// # Errors
    /// [`Unsupported`](ErrorKind::Unsupported) for a place that is not a bucket; [`Invalid`](ErrorKind::Invalid) for an object
    /// that is longer than any service stores.
    pub fn uploads(&self, objects: Vec<NewObject>) -> Result<Uploads> {
        let objects = objects.into_iter();
        let objects = objects.map(|object| (key(&object.path).to_owned(), object));
        Uploads::new(
            self.written_bucket()?,
            self.options(),
            self.counters().clone(),
            objects.collect(),
        )
    }
}
