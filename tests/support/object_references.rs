//! Rules that hold for the object of every PyTorch file, however damaged: references and views exist. The fuzz target
//! includes this file too.

use anamnesis::Objects;
use anamnesis::objects::{ObjectId, ObjectNode, ObjectQuantizer, ObjectTensor};

/// Panics unless every node that a node refers to exists, every storage is listed, and every tensor is inside of its storage.
/// `rows` is the number of tensors in the catalog that tensors refer to.
pub fn check(objects: &Objects, rows: usize) {
    let tree = objects.tree();
    let storages = objects.storages().catalog().tensors();
    assert_eq!(storages.len(), tree.storages as usize);
    assert!(!tree.nodes.is_empty(), "the saved object is a node");
    for node in &tree.nodes {
        for id in references(node) {
            assert!((id as usize) < tree.nodes.len(), "{node:?}");
        }
        match node {
            ObjectNode::Storage(number, _) => assert!(*number < tree.storages, "{node:?}"),
            ObjectNode::Tensor(tensor) => {
                assert!(tensor.entry.is_none_or(|row| (row as usize) < rows));
                let storage = storages.get(tensor.storage as usize);
                let nbytes = storage.expect("the storage is listed").nbytes();
                assert!(end(tensor) <= nbytes.into(), "{nbytes} bytes: {tensor:?}");
            }
            _ => {}
        }
    }
}

fn references(node: &ObjectNode) -> Vec<ObjectId> {
    let mut all = Vec::new();
    match node {
        ObjectNode::Tuple(items) | ObjectNode::List(items) | ObjectNode::Set(items, _) => {
            all.extend(items);
        }
        ObjectNode::Dict {
            entries,
            attributes,
            ..
        } => {
            all.extend(entries.iter().flat_map(|&(key, value)| [key, value]));
            all.extend(attributes);
        }
        ObjectNode::Parameter {
            data, attributes, ..
        } => {
            all.push(*data);
            all.extend(attributes);
        }
        ObjectNode::SparseTensor { parts, .. } => all.extend(parts),
        ObjectNode::Opaque {
            arguments,
            state,
            items,
            ..
        } => {
            all.extend(arguments);
            all.extend(state.iter().chain(items));
        }
        ObjectNode::Tensor(tensor) => {
            all.extend(tensor.attributes);
            if let Some(ObjectQuantizer::PerChannel {
                scales,
                zero_points,
                ..
            }) = tensor.quantizer
            {
                all.extend([scales, zero_points]);
            }
        }
        _ => {}
    }
    all
}

/// Bytes from the beginning of the storage to the end of the last element, at least; 0 of an empty tensor.
fn end(tensor: &ObjectTensor) -> u128 {
    assert_eq!(tensor.shape.len(), tensor.strides.len(), "{tensor:?}");
    if tensor.shape.contains(&0) {
        return 0;
    }
    let item = match tensor.dtype {
        "complex128" => 16,
        "float64" | "int64" | "complex64" => 8,
        "float32" | "int32" => 4,
        "float16" | "bfloat16" | "int16" => 2,
        "int8" | "uint8" | "bool" => 1,
        // elements can share bytes
        _ => return 0,
    };
    let steps = tensor.shape.iter().zip(&tensor.strides);
    let last: u128 = steps
        .map(|(&size, &stride)| u128::from(size - 1) * u128::from(stride))
        .sum();
    (u128::from(tensor.offset) + last + 1) * item
}
