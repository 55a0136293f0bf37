//! New blocks: from slabs that have a free spot, or from new slabs.

use std::sync::{Arc, Weak};

use crate::budget::Charge;
use crate::class::Class;
use crate::engine::Engine;
use crate::region::{HUGE, Refusal};
use crate::slab::{Block, Slab};

impl Engine {
    /// A new block, from a slab that has a free spot or from a new one; or why not, and the charge back.
    pub(crate) fn make(&self, mut charge: Charge) -> Result<Block, (Refusal, Charge)> {
        let class = charge.class();
        let wish = self.settings.wish(class);
        let mut slabs = self.slabs[class.index()].lock();
        slabs.retain(|slab| slab.strong_count() > 0);
        for slab in slabs.iter().filter_map(Weak::upgrade) {
            match slab.carve(charge) {
                Ok(block) => return Ok(block),
                Err(back) => charge = back,
            }
        }
        let shared = class.capacity() < HUGE && !wish.heap;
        if !shared {
            drop(slabs);
            return self.map(class, charge).map(|(block, _)| block);
        }
        let (block, slab) = self.map(class, charge)?;
        if slab.is_shared() {
            slabs.push(Arc::downgrade(&slab));
        }
        Ok(block)
    }

    fn map(&self, class: Class, charge: Charge) -> Result<(Block, Arc<Slab>), (Refusal, Charge)> {
        let slab = match self.settings.map(class, &self.counters) {
            Ok(slab) => slab,
            Err(refusal) => return Err((refusal, charge)),
        };
        let block = slab
            .carve(charge)
            .unwrap_or_else(|_| unreachable!("a new slab has room for one"));
        Ok((block, slab))
    }
}
