//! The storages of a pickle as tensors of a catalog of their own, which a load reads.

use hashbrown::HashMap;

use crate::base::error::{Error, Result};
use crate::base::kernel::Dtype;
use crate::base::limits::text_cost;
use crate::read::catalog::{ByteRange, Catalog, Encoding, Endian, Member, Packing, TensorInfo};
use crate::read::format::pickle::globals::TorchDtype;
use crate::read::format::pickle::value_heap::{PickleValue, ValueHeap, ValueId};
use crate::read::format::pth::rebuild::RebuiltTensors;
use crate::read::format::pth::storage::PersistentId;

use super::{ObjectSource, WHAT};

struct StorageRow<'h> {
    nbytes: u64,
    endian: Endian,
    deflated: bool,
    /// The dtype whose numbers are swapped; bytes if little endian.
    dtype: Dtype,
    location: &'h str,
}

/// The storages, numbered as the members of the interpreted calls are: in the order of their first use.
pub(super) struct ObjectStorages<'h> {
    by_key: HashMap<&'h str, u32>,
    rows: Vec<StorageRow<'h>>,
}

impl<'h> ObjectStorages<'h> {
    pub(super) fn find(
        heap: &'h ValueHeap<'_>,
        rebuilt: &RebuiltTensors,
        source: &ObjectSource<'_>,
    ) -> Result<Self> {
        let mut found = Self {
            by_key: HashMap::new(),
            rows: Vec::new(),
        };
        for (number, &tuple) in (0u32..).zip(&rebuilt.storage_ids) {
            let storage = PersistentId::parse(heap, tuple)?;
            // an entry of a table that doubles, while the table before it is copied
            heap.budget().memory(128, WHAT)?;
            let endian = source.endian[usize::from(storage.dtype.is_none())];
            let row = StorageRow {
                nbytes: storage.nbytes,
                endian,
                deflated: (source.deflated)(storage.key),
                dtype: match (endian, storage.dtype.and_then(TorchDtype::dtype)) {
                    (Endian::Big, Some(dtype)) if dtype.swap_unit() > 1 => dtype,
                    _ => Dtype::U8,
                },
                location: storage.location,
            };
            heap.budget().push(&mut found.rows, row, WHAT)?;
            found.by_key.insert(storage.key, number);
        }
        // ids of one storage can state several sizes, of which the largest is read
        heap.budget().steps(heap.len() as u64, WHAT)?;
        for id in heap.ids() {
            if let PickleValue::Persistent(tuple) = heap.get(id) {
                let storage = PersistentId::parse(heap, tuple)?;
                let row = &mut found.rows[found.by_key[storage.key] as usize];
                row.nbytes = row.nbytes.max(storage.nbytes);
            }
        }
        // an untyped storage has the dtypes of its tensors
        for tensor in &rebuilt.tensors {
            let (Some(member), Encoding::Plain(dtype)) = (tensor.member, &tensor.encoding) else {
                continue;
            };
            let row = &mut found.rows[member as usize];
            if row.endian == Endian::Big && row.dtype == Dtype::U8 && dtype.swap_unit() > 1 {
                row.dtype = *dtype;
            }
        }
        Ok(found)
    }

    /// The devices that the storages were saved from.
    pub(super) fn locations(&self, heap: &ValueHeap<'_>) -> Result<Vec<Box<str>>> {
        let budget = heap.budget();
        let mut locations = Vec::new();
        budget.reserve(&mut locations, self.rows.len(), WHAT)?;
        for row in &self.rows {
            // each has a text of its own, and the pickle may have one for all
            budget.memory(text_cost(row.location.len()), WHAT)?;
            locations.push(row.location.into());
        }
        Ok(locations)
    }

    /// The number of the storage that a persistent id names, and its dtype.
    pub(super) fn number(
        &self,
        heap: &ValueHeap<'_>,
        tuple: ValueId,
    ) -> Result<(u32, Option<TorchDtype>)> {
        let id = PersistentId::parse(heap, tuple)?;
        Ok((self.by_key[id.key], id.dtype))
    }

    /// Whether the numbers of a dtype, in this byte order, are swapped as the storage's numbers are.
    pub(super) fn swaps_like(&self, number: u32, dtype: Dtype, endian: Endian) -> bool {
        let row = &self.rows[number as usize];
        let unit = dtype.swap_unit();
        // a stream can name one storage with a dtype and without, which it writes in different orders
        (unit == 1 || row.endian == endian)
            && (row.endian == Endian::Little || row.dtype.swap_unit() == unit)
    }

    pub(super) fn catalog(&self, heap: &ValueHeap<'_>, members: Vec<Member>) -> Result<Catalog> {
        let budget = heap.budget();
        let mut catalog = Catalog::new(crate::read::format::pth::FORMAT.name);
        budget.reserve(&mut catalog.tensors, self.rows.len(), WHAT)?;
        for ((number, row), member) in (0u32..).zip(&self.rows).zip(&members) {
            budget.tensors(1)?;
            budget.memory(64, WHAT)?;
            let item = row.dtype.item_bytes().unwrap_or(1);
            if row.nbytes % item != 0 {
                return Err(Error::unsupported(format!(
                    "storage {number} holds big-endian numbers of {item} bytes and ends within one"
                ))
                .at(member.bytes.start));
            }
            let bytes = if row.deflated {
                member.bytes
            } else {
                ByteRange {
                    len: row.nbytes,
                    ..member.bytes
                }
            };
            let shape = [row.nbytes / item].into_iter().collect();
            let encoding = Encoding::Plain(row.dtype);
            let mut info = TensorInfo::new(number.to_string(), shape, encoding, bytes);
            info.endian = row.endian;
            info.member = Some(number);
            if row.deflated {
                info.packing = Packing::Deflate {
                    inflated: member.inflated,
                    skip: 0,
                };
            }
            catalog.tensors.push(info);
        }
        catalog.members = members;
        Ok(catalog)
    }
}
