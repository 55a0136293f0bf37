//! The shared stacks of free objects, for what thread-local magazines do not keep: one stack per class and shard. Last in,
//! first out, so that a request gets the object whose memory is most likely in the CPU's caches.

use std::collections::VecDeque;

use crate::class::Class;
use crate::slab::Object;
use crate::sync::Mutex;

/// The front is the object that has been free longest.
type ObjectStack = Mutex<VecDeque<Object>>;

pub(crate) struct Stacks {
    shards: Box<[StackShard]>,
}

/// Aligned so that no two shards share a cache line.
#[repr(align(128))]
struct StackShard(Box<[ObjectStack]>);

impl Stacks {
    /// `shards` is a power of two.
    pub(crate) fn new(shards: usize) -> Self {
        let shard = || StackShard(Class::all().map(|_| Mutex::new(VecDeque::new())).collect());
        Self {
            shards: (0..shards).map(|_| shard()).collect(),
        }
    }

    /// The stacks of one class in all shards, beginning with this thread's shard.
    fn from(&self, thread: usize, class: Class) -> impl Iterator<Item = &ObjectStack> {
        // a power of two, so that a mask replaces the division
        let mask = self.shards.len() - 1;
        (0..self.shards.len()).map(move |i| &self.shards[(thread + i) & mask].0[class.index()])
    }

    /// The object that was pushed last to this thread's shard, or else to another.
    #[inline]
    pub(crate) fn pop(&self, thread: usize, class: Class) -> Option<Object> {
        self.from(thread, class)
            .find_map(|stack| stack.lock().pop_back())
    }

    /// The object that has been free longest in the first shard that has one.
    pub(crate) fn pop_coldest(&self, class: Class) -> Option<Object> {
        self.from(0, class)
            .find_map(|stack| stack.lock().pop_front())
    }

    #[inline]
    pub(crate) fn push(&self, thread: usize, object: Object) {
        let mask = self.shards.len() - 1;
        self.shards[thread & mask].0[object.class().index()]
            .lock()
            .push_back(object);
    }

    /// Pushes an object of a class with a limit. Such objects are all in one shard, so that the count is exact. Returns the
    /// object that exceeds the limit: the one that has been free longest.
    pub(crate) fn push_limited(&self, object: Object, limit: usize) -> Option<Object> {
        let mut stack = self.shards[0].0[object.class().index()].lock();
        stack.push_back(object);
        if stack.len() > limit {
            stack.pop_front()
        } else {
            None
        }
    }

    /// Number of objects of this class.
    pub(crate) fn objects(&self, class: Class) -> usize {
        self.from(0, class).map(|stack| stack.lock().len()).sum()
    }
}
