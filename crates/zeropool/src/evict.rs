//! Which free buffer goes when the budget has no room for a new one.
//!
//! Buffers of one class are alike, so a policy picks a class; of that class the buffer goes that lay longest.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::budget::Ledger;
use crate::class::Class;
use crate::clockpro::ClockPro;
use crate::engine::Engine;
use crate::slab::Block;
use crate::sync::Mutex;

/// Which free buffers are given up first when the budget has no room left.
///
/// Only free buffers ever are; those in use are their users'.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum EvictionPolicy {
    /// By size alone: the smallest free buffer that makes enough room, or the largest there is. Of its class, the one
    /// that lay longest: stacks are last in, first out. No bookkeeping.
    #[default]
    Lifo,
    /// By use: size classes that are asked for again and again are hot and stay, those asked for once are cold and go,
    /// and a cold one that is missed soon after becomes hot (CLOCK-Pro: Jiang, Chen and Zhang, 2005, over size classes
    /// instead of pages). One store per request, and a look at some classes per eviction.
    ClockPro,
}

#[derive(Debug)]
pub(crate) enum Policy {
    Lifo,
    ClockPro(Mutex<ClockPro>, Touches),
}

/// Which classes were asked for, by class. Requests share it.
#[derive(Debug, Clone)]
pub(crate) struct Touches(Arc<[Touched]>);

impl Touches {
    #[inline]
    pub(crate) fn touch(&self, class: Class) {
        let touched = &self.0[class.index()];
        // most are set already, and then nobody writes to the shared line
        if !touched.load(Relaxed) {
            touched.store(true, Relaxed);
        }
    }
}

/// Set by requests, cleared by the clock's hands.
pub(crate) type Touched = crate::sync::AtomicBool;

/// What a policy may look at.
pub(crate) trait Shelf {
    fn held(&self, class: Class) -> usize;
    fn has_free(&self, class: Class) -> bool;
    fn budget(&self) -> usize;
}

impl Shelf for Engine {
    fn held(&self, class: Class) -> usize {
        self.ledger.held_in(class)
    }

    fn has_free(&self, class: Class) -> bool {
        self.free_in(class) > 0
    }

    fn budget(&self) -> usize {
        self.ledger.limit()
    }
}

impl Policy {
    pub(crate) fn new(policy: EvictionPolicy) -> Self {
        match policy {
            EvictionPolicy::Lifo => Self::Lifo,
            EvictionPolicy::ClockPro => {
                let touched = Class::all().map(|_| Touched::new(false)).collect();
                Self::ClockPro(Mutex::new(ClockPro::default()), Touches(touched))
            }
        }
    }

    /// Where requests leave word of their classes, if the policy wants to know.
    pub(crate) fn touches(&self) -> Option<&Touches> {
        match self {
            Self::Lifo => None,
            Self::ClockPro(_, touches) => Some(touches),
        }
    }

    /// A block of this class is about to be made.
    pub(crate) fn admitted(&self, class: Class, ledger: &Ledger) {
        if let Self::ClockPro(clock, Touches(touched)) = self {
            clock.lock().admitted(
                class,
                ledger.limit(),
                &|class| ledger.held_in(class),
                touched,
            );
        }
    }

    /// A free block to give up, where `lacks` bytes are lacking.
    pub(crate) fn victim(&self, engine: &Engine, lacks: usize) -> Option<Block> {
        // a policy's choice may be taken by another thread meanwhile
        self.choice(engine, lacks)
            .and_then(|class| engine.coldest(class))
            .or_else(|| by_size(engine, lacks))
    }

    fn choice(&self, engine: &Engine, lacks: usize) -> Option<Class> {
        let _ = lacks;
        match self {
            Self::Lifo => None,
            Self::ClockPro(clock, Touches(touched)) => clock.lock().victim(engine, touched),
        }
    }
}

/// The smallest free block of at least `lacks` bytes, or the largest.
fn by_size(engine: &Engine, lacks: usize) -> Option<Block> {
    let enough = Class::of(lacks).map_or(Class::COUNT, Class::index);
    let larger = Class::all()
        .skip(enough)
        .find_map(|class| engine.coldest(class));
    larger.or_else(|| {
        Class::all()
            .take(enough)
            .rev()
            .find_map(|class| engine.coldest(class))
    })
}
