//! The numbers that a configuration states for a weight: their kind, their width, and how many of them share a scale.

use std::fmt;

/// The numbers that a configuration states for a weight, as far as it does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct StatedNumbers {
    pub(super) kind: Option<StatedKind>,
    pub(super) bits: Option<u32>,
    pub(super) is_packed: Option<bool>,
    pub(super) granularity: Option<StatedGranularity>,
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
    Channel,
    Group(u64),
    Block(u64, u64),
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
            Some(StatedGranularity::Channel) => write!(f, " with a scale for each row"),
            Some(StatedGranularity::Group(size)) => {
                write!(f, " with a scale for each {size} columns")
            }
            Some(StatedGranularity::Block(high, wide)) => {
                write!(f, " with a scale for each {high} by {wide}")
            }
            None => Ok(()),
        }
    }
}
