//! The classes of torchao's that a pickle may name, by their own names: their modules moved from version to version.
//! Sources: torchao 0.18 and 0.13, what their modules pass to `torch.serialization.add_safe_globals`.

/// A class of torchao's: a row of [`CLASSES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Torchao(u8);

/// The first so many are tensors around another one, and say how its inputs are quantised.
const WRAPPERS: usize = 2;

/// The first so many are tensors; the others are among their attributes, and mostly say how to multiply by them.
const TENSORS: usize = 16;

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
    // functions, which quantise inputs
    "_input_activation_quant_func_fp8",
    "_int8_asymm_per_token_quant",
    "_int8_symm_per_token_quant",
    "_int8_symm_per_token_reduced_range_quant",
    "_int8_symm_per_token_reduced_range_quant_noop_decode",
];

impl Torchao {
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
        usize::from(self.0) < WRAPPERS
    }

    pub(crate) fn is_tensor(self) -> bool {
        usize::from(self.0) < TENSORS
    }
}

#[cfg(test)]
mod tests {
    use super::{CLASSES, TENSORS, Torchao};

    #[test]
    fn names_are_found_and_tensors_come_first() {
        for (i, name) in CLASSES.iter().enumerate() {
            let class = Torchao::named(name).unwrap();
            assert_eq!(class.name(), *name);
            let ends = ["Tensor", "TensorImpl", "Metadata"]
                .iter()
                .any(|end| name.ends_with(end));
            let called = ends && *name != "PerTensor"; // how scales are shared
            assert_eq!(called, i < TENSORS, "{name}");
            assert_eq!(class.is_tensor(), i < TENSORS, "{name}");
            assert_eq!(
                class.is_wrapper(),
                name.contains("LinearActivation"),
                "{name}"
            );
        }
    }
}
