//! Free blocks that no thread keeps: one stack per class, last in, first out, in one shard or several.

use std::collections::VecDeque;

use crate::class::Class;
use crate::slab::Block;
use crate::sync::Mutex;

/// The bottom is the block that lay longest.
type Stack = Mutex<VecDeque<Block>>;

pub(crate) struct Stacks {
    shards: Box<[Shard]>,
}

/// On cache lines of its own.
#[repr(align(128))]
struct Shard(Box<[Stack]>);

impl Stacks {
    /// `shards` is a power of two.
    pub(crate) fn new(shards: usize) -> Self {
        let shard = || Shard(Class::all().map(|_| Mutex::new(VecDeque::new())).collect());
        Self {
            shards: (0..shards).map(|_| shard()).collect(),
        }
    }

    /// The shards' stacks of one class, beginning with the one of this thread.
    fn from(&self, thread: usize, class: Class) -> impl Iterator<Item = &Stack> {
        let mask = self.shards.len() - 1;
        (0..self.shards.len()).map(move |i| &self.shards[(thread + i) & mask].0[class.index()])
    }

    /// The block that came last to this thread's shard, or else to another.
    #[inline]
    pub(crate) fn pop(&self, thread: usize, class: Class) -> Option<Block> {
        self.from(thread, class)
            .find_map(|stack| stack.lock().pop_back())
    }

    /// The block that lay longest in some shard.
    pub(crate) fn pop_coldest(&self, class: Class) -> Option<Block> {
        self.from(0, class)
            .find_map(|stack| stack.lock().pop_front())
    }

    #[inline]
    pub(crate) fn push(&self, thread: usize, block: Block) {
        let mask = self.shards.len() - 1;
        self.shards[thread & mask].0[block.class().index()]
            .lock()
            .push_back(block);
    }

    /// Keeps at most `limit` blocks of this class, all in one shard so that the count is exact, and returns the one
    /// that has to go for it: the one that lay longest.
    pub(crate) fn push_limited(&self, block: Block, limit: usize) -> Option<Block> {
        let mut stack = self.shards[0].0[block.class().index()].lock();
        stack.push_back(block);
        if stack.len() > limit {
            stack.pop_front()
        } else {
            None
        }
    }

    pub(crate) fn blocks(&self, class: Class) -> usize {
        self.from(0, class).map(|stack| stack.lock().len()).sum()
    }
}
