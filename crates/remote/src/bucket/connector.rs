//! Connections of `object_store` by the client of this crate, whose answers must begin in time.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use object_store::client::{
    ClientOptions, HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpResponseBody, HttpService,
};

use crate::options::RemoteOptions;

/// The client of this crate for `object_store`. A request that is silent ends there, and is repeated as one that fails.
#[derive(Clone)]
pub(crate) struct SharedConnector {
    client: Arc<dyn HttpService>,
    first_byte: Duration,
    least_rate: u64,
    /// The longest list in bytes.
    longest_list: u64,
}

impl SharedConnector {
    pub(crate) fn new(client: impl HttpService, options: &RemoteOptions) -> Self {
        Self {
            client: Arc::new(client),
            first_byte: options.first_byte,
            least_rate: options.least_rate,
            longest_list: LONGEST_LIST.min(options.memory / MEMORY_OF_LIST),
        }
    }

    /// The longest answer to a request in bytes.
    fn longest_answer(&self, request: &HttpRequest) -> u64 {
        let query = request.uri().query().unwrap_or_default();
        let is_list = |field| matches!(field, "list-type=2" | "comp=list");
        match query.split('&').any(is_list) {
            true => self.longest_list,
            false => LONGEST_ANSWER,
        }
    }

    /// The longest that sending a body of this many bytes and waiting for its answer takes.
    pub(super) fn time_for(&self, len: u64) -> Duration {
        // a rate of 0 is no bound
        let sending = match self.least_rate {
            0 => Duration::MAX,
            rate => Duration::from_millis(len.saturating_mul(1000) / rate),
        };
        self.first_byte.saturating_add(sending)
    }

    /// The longest that joining the parts of an upload takes: minutes, as the services say, before any byte of an answer.
    pub(super) fn time_for_joining(&self) -> Duration {
        self.first_byte.saturating_mul(20)
    }
}

/// Whether a request completes an upload: of S3 and Google by its id, of Azure by a list of blocks.
fn joins_parts(request: &HttpRequest) -> bool {
    let query = request.uri().query().unwrap_or_default();
    let mut fields = query.split('&');
    fields.any(|field| {
        (request.method() == "POST" && field.starts_with("uploadId=")) || field == "comp=blocklist"
    })
}

impl fmt::Debug for SharedConnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedConnector").finish_non_exhaustive()
    }
}

impl HttpConnector for SharedConnector {
    fn connect(&self, _options: &ClientOptions) -> object_store::Result<HttpClient> {
        // the options are for a client that `object_store` makes itself
        Ok(HttpClient::new(self.clone()))
    }
}

impl HttpService for SharedConnector {
    // the type that `async_trait` makes of an asynchronous function
    fn call<'s, 'f>(
        &'s self,
        request: HttpRequest,
    ) -> Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'f>>
    where
        's: 'f,
        Self: 'f,
    {
        Box::pin(async move {
            let most = if joins_parts(&request) {
                self.time_for_joining()
            } else {
                self.time_for(request.body().content_length() as u64)
            };
            let longest = self.longest_answer(&request);
            match tokio::time::timeout(most, self.client.call(request)).await {
                Ok(answer) => answer.map(|answer| {
                    // errors of lists are as short as others
                    let most = match answer.status().is_success() {
                        true => longest,
                        false => LONGEST_ANSWER,
                    };
                    answer.map(|body| BoundedBody::within(body, most))
                }),
                Err(_) => Err(HttpError::new(
                    HttpErrorKind::Timeout,
                    io::Error::new(io::ErrorKind::TimedOut, "the bucket does not answer"),
                )),
            }
        })
    }
}

/// Bytes of a list that `object_store` reads whole before it parses it: a page of 1000 names of 1 KiB, each character
/// escaped. Objects are not read by it.
const LONGEST_LIST: u64 = 16 << 20;

/// Bytes of memory for each byte of a list, which is made into elements before its names are counted: at most 6.2 were measured,
/// of nested elements (`tests/answer_memory.rs`).
const MEMORY_OF_LIST: u64 = 8;

/// Bytes of other answers: errors, ids of uploads, and what was written.
const LONGEST_ANSWER: u64 = 256 << 10;

/// The body of an answer, which fails where it is longer than any honest one.
struct BoundedBody {
    body: HttpResponseBody,
    most: u64,
    left: u64,
}

impl BoundedBody {
    fn within(body: HttpResponseBody, most: u64) -> HttpResponseBody {
        HttpResponseBody::new(Self {
            body,
            most,
            left: most,
        })
    }
}

impl Body for BoundedBody {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        let len = match &frame {
            Some(Ok(frame)) => frame.data_ref().map_or(0, |bytes| bytes.len() as u64),
            _ => 0,
        };
        Poll::Ready(match self.left.checked_sub(len) {
            Some(left) => {
                self.left = left;
                frame
            }
            None => {
                let what = format!("the bucket's answer is longer than {} bytes", self.most);
                let what = io::Error::new(io::ErrorKind::InvalidData, what);
                Some(Err(HttpError::new(HttpErrorKind::Decode, what)))
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        // memory is reserved by it, and a server may announce any length
        let announced = self.body.size_hint();
        match announced.lower() <= self.left {
            true => announced,
            false => SizeHint::new(),
        }
    }
}
