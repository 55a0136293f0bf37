//! The thread of a load that starts requests, repeats late ones, and completes those whose bytes have arrived.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use zeropool::BufferPart;

use super::super::on_demand::truncated;
use super::super::read_ahead::{NextRequest, ReadAhead, ReadRequest};
use super::hedge::Hedges;
use super::memory::{Copied, RequestMemory, touch};
use super::pace::Pace;
use crate::read::source::{ReadReceiver, Source, StartedRead};

/// How long the thread waits for an event before it looks for late requests, room in the queue, and whether the load has ended.
const TICK: Duration = Duration::from_millis(10);
/// Requests whose memory is prepared before they are started.
const READY: usize = 4;
/// Bytes of memory that are prepared between two looks for an event.
const PREPARED: usize = 256 << 10;

pub(super) struct RequestDriver<'d, 'c> {
    queue: &'d ReadAhead<'c>,
    sources: &'d [Arc<dyn Source>],
    pace: Pace,
    hedges: Hedges,
    /// By number, the first one started first.
    running: BTreeMap<u64, RunningRequest>,
    next: u64,
    /// The next requests of the queue.
    ready: VecDeque<ReadyRequest>,
    sender: Sender<RequestEvent>,
    events: Receiver<RequestEvent>,
    /// Bytes that have arrived.
    arrived: Arc<AtomicU64>,
    begun: Instant,
    /// When late requests were looked for.
    looked: Instant,
}

/// A request that is under way.
struct RunningRequest {
    request: ReadRequest,
    memory: Arc<RequestMemory>,
    /// One, or two if it was late. Dropping them ends them.
    reads: Vec<StartedRead>,
    /// Reads that have not ended.
    pending: usize,
    /// Bytes of its memory that are prepared; `None` if no more are to be.
    prepared: Option<usize>,
    /// Whether the time of its first byte was noted.
    is_sampled: bool,
    error: Option<io::Error>,
}

/// Ends what is under way: no byte is copied to its memory once this is dropped.
impl Drop for RunningRequest {
    fn drop(&mut self) {
        self.memory.give_up();
    }
}

/// A request that is not started.
struct ReadyRequest {
    request: ReadRequest,
    part: BufferPart,
    prepared: Option<usize>,
}

/// A report of the receivers to the thread.
enum RequestEvent {
    /// The server refuses requests for the moment, or fails.
    Delayed,
    /// All bytes of a request have arrived, or one of its reads has ended.
    Ended(u64, io::Result<()>),
}

impl<'d, 'c> RequestDriver<'d, 'c> {
    /// `sources` have concurrent reads.
    pub(super) fn new(
        queue: &'d ReadAhead<'c>,
        sources: &'d [Arc<dyn Source>],
        most: usize,
    ) -> Self {
        let (sender, events) = channel();
        let begun = Instant::now();
        Self {
            queue,
            sources,
            pace: Pace::new(most),
            hedges: Hedges::default(),
            running: BTreeMap::new(),
            next: 0,
            ready: VecDeque::new(),
            sender,
            events,
            arrived: Arc::default(),
            begun,
            looked: begun,
        }
    }

    /// Returns when the queue is finished or has stopped.
    pub(super) fn run(mut self) {
        // consumers would otherwise wait forever for bytes that no thread reads
        let _stop = self.queue.stop_on_panic();
        loop {
            let is_finished = self.start_requests();
            if self.queue.is_stopped() || (is_finished && self.running.is_empty()) {
                // requests that are under way are dropped, which ends them
                return;
            }
            let event = self.prepare_memory();
            let event = event.or_else(|| self.events.recv_timeout(TICK).ok());
            event.into_iter().for_each(|event| self.end(event));
            // all that have arrived, so that the next requests start without a wait
            while let Ok(event) = self.events.try_recv() {
                self.end(event);
            }
            // relaxed: the number publishes no other data
            let arrived = self.arrived.load(Ordering::Relaxed);
            let under_way = self.running.len();
            self.pace.observe(self.begun.elapsed(), arrived, under_way);
            if self.looked.elapsed() >= TICK {
                self.looked = Instant::now();
                self.repeat_late();
            }
        }
    }

    /// Starts as many requests as may be under way. Returns whether there are no others.
    fn start_requests(&mut self) -> bool {
        let mut is_finished = false;
        loop {
            while self.running.len() < self.pace.limit()
                && let Some(ready) = self.ready.pop_front()
            {
                self.start(ready);
            }
            // also the next ones, whose memory is prepared while these are under way
            if is_finished || self.ready.len() >= READY {
                return is_finished && self.ready.is_empty();
            }
            // waits for a request only if none is under way
            match self
                .queue
                .next(self.running.is_empty() && self.ready.is_empty())
            {
                NextRequest::Request(request, part) => self.ready.push_back(ReadyRequest {
                    request,
                    part,
                    prepared: Some(0),
                }),
                NextRequest::Full => return false,
                NextRequest::Finished => is_finished = true,
            }
        }
    }

    fn start(&mut self, ready: ReadyRequest) {
        let ReadyRequest {
            request,
            part,
            prepared,
        } = ready;
        let number = self.next;
        self.next += 1;
        let memory = RequestMemory::new(part, request.start, request.needed);
        let mut running = RunningRequest {
            request,
            memory: Arc::new(memory),
            reads: Vec::new(),
            pending: 0,
            prepared,
            is_sampled: false,
            error: None,
        };
        self.hedges.started();
        self.read(number, &mut running, 0);
        self.running.insert(number, running);
    }

    /// Starts a read of what follows the first `filled` bytes of a request.
    fn read(&self, number: u64, running: &mut RunningRequest, filled: usize) {
        let receiver = Box::new(RequestReceiver {
            number,
            memory: Arc::clone(&running.memory),
            sender: self.sender.clone(),
            arrived: Arc::clone(&self.arrived),
            has_ended: false,
        });
        let ReadRequest {
            file,
            start,
            needed,
            ..
        } = running.request;
        let again = running.pending > 0;
        running.pending += 1;
        let source = self.sources[file as usize].concurrent();
        let source = source.expect("checked before the load began");
        let (start, len) = (start + filled as u64, (needed - filled) as u64);
        running
            .reads
            .push(source.start(start, len, again, receiver));
    }

    /// Prepares memory until there is an event, which is returned, or nothing is left to prepare.
    fn prepare_memory(&mut self) -> Option<RequestEvent> {
        let Self {
            running,
            ready,
            events,
            ..
        } = self;
        // the memory of what is under way first, since it is filled first
        let running = running.values_mut().map(|running| {
            let memory = &running.memory;
            let step: Box<dyn FnMut(usize) -> Option<usize> + '_> =
                Box::new(|from| memory.prepare(from, PREPARED));
            (&mut running.prepared, step)
        });
        let ready = ready.iter_mut().map(|ready| {
            let memory = &mut ready.part[..ready.request.needed];
            let step: Box<dyn FnMut(usize) -> Option<usize> + '_> =
                Box::new(|from| touch(memory, from, PREPARED));
            (&mut ready.prepared, step)
        });
        for (prepared, mut step) in running.chain(ready) {
            while let Some(from) = *prepared {
                if let Ok(event) = events.try_recv() {
                    return Some(event);
                }
                *prepared = step(from);
            }
        }
        None
    }

    /// After an event: completes the request, waits for its other read, or stops the queue with its error.
    fn end(&mut self, event: RequestEvent) {
        let (number, outcome) = match event {
            RequestEvent::Delayed => return self.pace.delayed(self.begun.elapsed()),
            RequestEvent::Ended(number, outcome) => (number, outcome),
        };
        // the other read may also report the end of a request that was completed
        let Some(running) = self.running.get_mut(&number) else {
            return;
        };
        if let Some(part) = running.memory.take_full() {
            sample(running, &mut self.hedges);
            let request = running.request;
            self.running.remove(&number);
            return self.queue.complete(request, part);
        }
        running.pending = running.pending.saturating_sub(1);
        if let Err(error) = outcome {
            running.error.get_or_insert(error);
        }
        // the other read may still succeed
        if running.pending > 0 {
            return;
        }
        let ReadRequest {
            file,
            start,
            needed,
            ..
        } = running.request;
        // its reads may have ended early and without an error
        let error = running.error.take().unwrap_or_else(truncated);
        let at = start + running.memory.filled() as u64;
        let text = format!(
            "{error} (of the requested bytes {start} to {})",
            start + needed as u64
        );
        self.queue
            .fail(file, at, io::Error::new(error.kind(), text));
    }

    /// Starts a second read of each request that has been silent for too long, as far as that is allowed.
    fn repeat_late(&mut self) {
        for running in self.running.values_mut() {
            sample(running, &mut self.hedges);
        }
        // one at a time: each may be the last that is allowed
        while let Some(patience) = self.hedges.patience() {
            let late = self.running.iter().find(|(_, running)| {
                running.reads.len() == 1
                    && running.memory.silence() > patience
                    // all bytes are there, and the event that says so is on its way
                    && running.memory.filled() < running.request.needed
            });
            let Some(number) = late.map(|(number, _)| *number) else {
                return;
            };
            // removed while it changes, since `read` borrows the driver
            let mut running = self.running.remove(&number).expect("it was found");
            let filled = running.memory.filled();
            self.read(number, &mut running, filled);
            self.hedges.repeated();
            self.running.insert(number, running);
        }
    }
}

/// Notes how long the first byte of a request took, once.
fn sample(running: &mut RunningRequest, hedges: &mut Hedges) {
    if !running.is_sampled
        && let Some(time) = running.memory.first_byte()
    {
        running.is_sampled = true;
        hedges.first_byte(time);
    }
}

/// Copies the bytes of one read, and reports its end.
struct RequestReceiver {
    number: u64,
    memory: Arc<RequestMemory>,
    sender: Sender<RequestEvent>,
    arrived: Arc<AtomicU64>,
    has_ended: bool,
}

impl RequestReceiver {
    fn report(&mut self, outcome: io::Result<()>) {
        if !self.has_ended {
            self.has_ended = true;
            // the load may have ended
            let _ = self.sender.send(RequestEvent::Ended(self.number, outcome));
        }
    }
}

impl ReadReceiver for RequestReceiver {
    fn arrived(&mut self, start: u64, bytes: &[u8]) -> ControlFlow<()> {
        let copied = self.memory.copy(start, bytes);
        if let Copied::More(n) | Copied::Full(n) = copied {
            self.arrived.fetch_add(n as u64, Ordering::Relaxed);
        }
        match copied {
            Copied::More(_) => ControlFlow::Continue(()),
            Copied::Full(_) => {
                self.report(Ok(()));
                ControlFlow::Break(())
            }
            Copied::Refused => ControlFlow::Break(()),
        }
    }

    fn delayed(&mut self) {
        let _ = self.sender.send(RequestEvent::Delayed); // the load may have ended
    }

    fn ended(mut self: Box<Self>, outcome: io::Result<()>) {
        self.report(outcome);
    }
}

impl Drop for RequestReceiver {
    // a source that drops its receiver must not leave the request pending
    fn drop(&mut self) {
        self.report(Err(io::Error::other("a read ended without an answer")));
    }
}
