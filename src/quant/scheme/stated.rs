//! The numbers that a configuration states for a weight: their kind, their width, and how many of them share a scale.

use std::fmt;

use crate::base::kernel::Dtype;

/// The numbers that a configuration states for a weight, as far as it does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct StatedNumbers {
    pub(super) kind: Option<StatedKind>,
    pub(super) bits: Option<u32>,
    pub(super) is_packed: Option<bool>,
    pub(super) granularity: Option<StatedGranularity>,
    pub(super) scales: Option<ScaleNumbers>,
    /// The dtype of the scales. Floats may be stored in another width, which is a warning.
    pub(super) scale_dtype: Option<Dtype>,
    /// The dtype of the zero points, before they are packed: integers with a sign, where they are.
    pub(super) zero_dtype: Option<Dtype>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StatedKind {
    Integer,
    Float,
    /// A format of floats by the beginning of its name: `E4M3` is also `E4M3FNUZ`.
    Format(&'static str),
}

/// How many elements share a scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StatedGranularity {
    /// One for all.
    Tensor,
    Channel,
    Group(u64),
    Block(u64, u64),
}

impl StatedGranularity {
    /// By a configured size of groups; -1 is a whole row.
    pub(super) fn of_size(size: i64) -> Option<Self> {
        match size {
            -1 => Some(Self::Channel),
            size => {
                let size = u64::try_from(size).ok().filter(|size| *size > 0);
                size.map(Self::Group)
            }
        }
    }
}

/// The numbers that scales are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScaleNumbers {
    /// Floats of 16 bits and more.
    Floats,
    /// Exponents of 2 in a byte, or floats that may be powers of 2.
    FloatsOrExponents,
    Exponents,
    /// E4M3.
    Float8,
}

impl ScaleNumbers {
    /// Whether they may be stored in this dtype. Older versions of safetensors had no dtypes of a byte but U8.
    pub(super) fn are_stored_in(self, dtype: Dtype) -> bool {
        let floats = matches!(dtype, Dtype::F64 | Dtype::F32 | Dtype::F16 | Dtype::BF16);
        let exponents = matches!(dtype, Dtype::F8_E8M0 | Dtype::U8);
        match self {
            Self::Floats => floats,
            Self::FloatsOrExponents => floats || exponents,
            Self::Exponents => exponents,
            Self::Float8 => matches!(dtype, Dtype::F8_E4M3 | Dtype::U8),
        }
    }
}

/// Statements that all hold for a weight, or else the statements of another group of the configuration do.
pub(super) type Alternatives = Vec<Vec<StatedNumbers>>;

impl StatedNumbers {
    pub(super) fn integers(bits: Option<u32>) -> Self {
        Self {
            kind: Some(StatedKind::Integer),
            bits,
            ..Self::default()
        }
    }

    pub(super) fn floats(bits: Option<u32>) -> Self {
        Self {
            kind: Some(StatedKind::Float),
            bits,
            ..Self::default()
        }
    }

    /// FP8 of a format: `E4M3` or `E5M2`.
    pub(super) fn float8(format: &'static str) -> Self {
        Self {
            kind: Some(StatedKind::Format(format)),
            bits: Some(8),
            ..Self::default()
        }
    }

    /// Codes of which several share a byte or word.
    pub(super) fn packed(self) -> Self {
        Self {
            is_packed: Some(true),
            ..self
        }
    }

    pub(super) fn scaled_by(self, scales: ScaleNumbers) -> Self {
        Self {
            scales: Some(scales),
            ..self
        }
    }

    /// With scales of a dtype, if one is stated.
    pub(super) fn scaled_in(self, dtype: Option<Dtype>) -> Self {
        let scales = match dtype {
            None => self.scales,
            Some(Dtype::F8_E8M0) => Some(ScaleNumbers::Exponents),
            Some(Dtype::F8_E4M3) => Some(ScaleNumbers::Float8),
            Some(_) => Some(ScaleNumbers::Floats),
        };
        Self {
            scales,
            scale_dtype: dtype,
            ..self
        }
    }

    /// With zero points of a dtype, if one is stated.
    pub(super) fn shifted_in(self, dtype: Option<Dtype>) -> Self {
        Self {
            zero_dtype: dtype,
            ..self
        }
    }

    pub(super) fn with_scales(self, granularity: Option<StatedGranularity>) -> Self {
        Self {
            granularity,
            ..self
        }
    }
}

impl fmt::Display for StatedNumbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let packed = if self.is_packed == Some(true) {
            "packed "
        } else {
            ""
        };
        match self.kind {
            Some(StatedKind::Integer) => write!(f, "{packed}integers")?,
            Some(StatedKind::Float) => write!(f, "{packed}floats")?,
            Some(StatedKind::Format(name)) => write!(f, "{packed}floats {name}")?,
            None => write!(f, "{packed}codes")?,
        }
        if let Some(bits) = self.bits {
            write!(f, " of {bits} bits")?;
        }
        match self.granularity {
            Some(StatedGranularity::Tensor) => write!(f, " with one scale")?,
            Some(StatedGranularity::Channel) => write!(f, " with a scale for each row")?,
            Some(StatedGranularity::Group(size)) => {
                write!(f, " with a scale for each {size} columns")?;
            }
            Some(StatedGranularity::Block(u64::MAX, wide)) => {
                write!(f, " with a scale for each {wide} columns of all rows")?;
            }
            Some(StatedGranularity::Block(high, wide)) => {
                write!(f, " with a scale for each {high} by {wide}")?;
            }
            None => {}
        }
        match self.scales {
            Some(ScaleNumbers::Floats) => write!(f, ", in floats of 16 bits and more"),
            Some(ScaleNumbers::FloatsOrExponents) => write!(f, ", in floats or exponents"),
            Some(ScaleNumbers::Exponents) => write!(f, ", in exponents"),
            Some(ScaleNumbers::Float8) => write!(f, ", in E4M3"),
            None => Ok(()),
        }?;
        match self.zero_dtype {
            Some(dtype) => write!(f, ", and zero points in {dtype}"),
            None => Ok(()),
        }
    }
}
