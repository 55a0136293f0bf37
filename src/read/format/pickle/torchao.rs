//! The classes of torchao that a pickle may name. They are found by class name alone, because torchao moves them between
//! modules from version to version.
//!
//! Sources: torchao 0.18 and 0.13, the arguments of their calls of `torch.serialization.add_safe_globals`.

/// A class of torchao: the index of a row of [`CLASSES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TorchaoClass(u8);

/// The first classes of the table, this many, wrap another tensor and add how the inputs of its layer are quantised.
const WRAPPER_COUNT: usize = 2;

/// The first classes of the table, this many, are tensors. The others occur in their attributes, mostly as options of the
/// matrix multiplication.
const TENSOR_CLASS_COUNT: usize = 16;

static CLASSES: &[&str] = &[
    "LinearActivationQuantizedTensor",
    "WeightTensorWithLinearActivationQuantizationMetadata",
    "AffineQuantizedTensor",
    "PlainAQTTensorImpl",
    "TensorCoreTiledAQTTensorImpl",
    "Float8AQTTensorImpl",
    "Float8Tensor",
    "Int8Tensor",
    "IntxUnpackedToInt8Tensor",
    "IntxOpaqueTensor",
    "Int4Tensor",
    "Int4PlainInt32Tensor",
    "Int4TilePackedTo4dTensor",
    "Int4PreshuffledTensor",
    "MXTensor",
    "NVFP4Tensor",
    "Float8Layout",
    "Float8MMConfig",
    "Float8PackingFormat",
    "Int4PackingFormat",
    "Int4ChooseQParamsAlgorithm",
    "IntxPackingFormat",
    "IntxChooseQParamsAlgorithm",
    "IntxUnpackedToInt8TensorActivationQuantization",
    "KernelPreference",
    "MappingType",
    "PerAxis",
    "PerBlock",
    "PerGroup",
    "PerRow",
    "PerTensor",
    "PerToken",
    "PlainLayout",
    "QuantizeTensorToFloat8Kwargs",
    "QuantizeTensorToInt8Kwargs",
    "QuantizeTensorToMXKwargs",
    "QuantizeTensorToNVFP4Kwargs",
    "ScaleCalculationMode",
    "TensorCoreTiledLayout",
    "ZeroPointDomain",
    // functions that quantise the inputs of a layer
    "_input_activation_quant_func_fp8",
    "_int8_asymm_per_token_quant",
    "_int8_symm_per_token_quant",
    "_int8_symm_per_token_reduced_range_quant",
    "_int8_symm_per_token_reduced_range_quant_noop_decode",
];

impl TorchaoClass {
    pub(super) fn named(name: &str) -> Option<Self> {
        CLASSES
            .iter()
            .position(|class| *class == name)
            .and_then(|i| u8::try_from(i).ok())
            .map(Self)
    }

    pub(crate) fn name(self) -> &'static str {
        CLASSES[usize::from(self.0)]
    }

    pub(crate) fn is_wrapper(self) -> bool {
        usize::from(self.0) < WRAPPER_COUNT
    }

    pub(crate) fn is_tensor(self) -> bool {
        usize::from(self.0) < TENSOR_CLASS_COUNT
    }
}

#[cfg(test)]
mod tests {
    use super::{CLASSES, TENSOR_CLASS_COUNT, TorchaoClass};

    #[test]
    fn class_names_resolve_and_tensor_classes_come_first() {
        for (i, name) in CLASSES.iter().enumerate() {
            let class = TorchaoClass::named(name).unwrap();
            assert_eq!(class.name(), *name);
            let ends = ["Tensor", "TensorImpl", "Metadata"]
                .iter()
                .any(|end| name.ends_with(end));
            let named_as_tensor = ends && *name != "PerTensor"; // a scale granularity, not a tensor
            assert_eq!(named_as_tensor, i < TENSOR_CLASS_COUNT, "{name}");
            assert_eq!(class.is_tensor(), i < TENSOR_CLASS_COUNT, "{name}");
            assert_eq!(
                class.is_wrapper(),
                name.contains("LinearActivation"),
                "{name}"
            );
        }
    }
}
