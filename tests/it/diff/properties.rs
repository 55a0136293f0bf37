//! Properties of every pair.

use anamnesis::diff::DifferenceKind;
use anamnesis::{Checkpoint, Dtype, diff};
use proptest::prelude::*;

use crate::support::writers::{StoredTensor, safetensors};

/// Tensors of a file: dtype, sizes and bytes of each.
fn tensors() -> impl Strategy<Value = Vec<(Dtype, Vec<u64>, Vec<u8>)>> {
    let dtypes = [
        Dtype::F32,
        Dtype::BF16,
        Dtype::F16,
        Dtype::F64,
        Dtype::I8,
        Dtype::I64,
        Dtype::BOOL,
        Dtype::U16,
    ];
    let tensor = (
        prop::sample::select(dtypes.to_vec()),
        prop::collection::vec(0u64..40, 0..4),
    );
    let tensor = tensor.prop_flat_map(|(dtype, shape)| {
        let count = usize::try_from(shape.iter().product::<u64>()).unwrap() * dtype.width();
        let bytes = prop::collection::vec(any::<u8>(), count);
        (Just(dtype), Just(shape), bytes)
    });
    prop::collection::vec(tensor, 1..6)
}

fn file(tensors: &[(Dtype, Vec<u64>, Vec<u8>)]) -> Checkpoint {
    let stored: Vec<StoredTensor> = tensors
        .iter()
        .enumerate()
        .map(|(i, (dtype, shape, bytes))| {
            StoredTensor::new(&format!("t{i}.w"), dtype.name(), shape, bytes.clone())
        })
        .collect();
    Checkpoint::from_bytes(safetensors(&stored, &[])).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn a_checkpoint_is_the_same_as_itself(tensors in tensors(), threads in 1usize..4) {
        let (a, b) = (file(&tensors), file(&tensors));
        for values in [false, true] {
            let found = diff(&a, &b).values(values).threads(threads).run().unwrap();
            prop_assert!(found.same);
            prop_assert_eq!(found.counts.equal, tensors.len() as u64);
            prop_assert!(found.tensors.is_empty());
        }
    }

    #[test]
    fn a_changed_element_is_found_by_its_index(
        tensors in tensors(), tensor in any::<prop::sample::Index>(), byte in any::<prop::sample::Index>(),
        threads in 1usize..4,
    ) {
        let mut changed = tensors.clone();
        let at = tensor.index(changed.len());
        let (dtype, shape, bytes) = &mut changed[at];
        prop_assume!(!bytes.is_empty());
        let byte = byte.index(bytes.len());
        bytes[byte] ^= 1;
        let (mut element, mut index) = ((byte / dtype.width()) as u64, vec![0; shape.len()]);
        for (index, size) in index.iter_mut().zip(&*shape).rev() {
            *index = element % size;
            element /= size;
        }
        let (a, b) = (file(&tensors), file(&changed));
        let found = diff(&a, &b).threads(threads).run().unwrap();
        prop_assert!(!found.same);
        prop_assert!(!diff(&a, &b).verdict_only(true).run().unwrap().same);
        prop_assert_eq!(found.counts.changed, 1);
        let row = &found.tensors[0];
        prop_assert_eq!(row.kind, DifferenceKind::Changed);
        prop_assert_eq!(row.differing_bits, Some(1));
        prop_assert!(row.differing.unwrap() <= 1);
        prop_assert_eq!(row.first.as_ref(), Some(&index));
        // other orders of the work change nothing
        let again = diff(&a, &b).threads(1).run().unwrap();
        prop_assert_eq!(found, again);
    }
}
