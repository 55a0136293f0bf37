//! Small tensors that planning reads: shapes, states, markers and other descriptors of weights.

use serde_json::{Map, Value as Json};

use crate::base::error::Result;
use crate::base::kernel::Dtype;
use crate::quant::settings::{SchemeSettings, unknown_in_descriptor};
use crate::read::catalog::{TensorInfo, quote};

use super::{Context, not_known, plain, unsupported};

/// Maximum size of a small tensor that planning reads, in bytes.
const MAX_DESCRIPTOR_BYTES: u64 = 64 << 10;

/// Maximum bytes of the scales in PyTorch's tensor descriptions that planning reads, over all tensors.
const MAX_SCALE_BYTES: u64 = 64 << 20;

impl Context<'_> {
    /// The bytes of a small tensor, such as a shape or a JSON text.
    pub(crate) fn peek(&self, tensor: usize) -> Result<Vec<u8>> {
        let info = self.info(tensor);
        // planning must not become reading: shapes, states and JSON texts are far below this, and a file decides the
        // size
        if info.nbytes() > MAX_DESCRIPTOR_BYTES {
            return Err(not_known(
                info,
                format!(
                    "{} bytes; planning reads tensors of at most {MAX_DESCRIPTOR_BYTES} bytes",
                    info.nbytes()
                ),
            ));
        }
        self.charge_read(info)?;
        (self.read)(info)
    }

    /// Charges the bytes of a tensor that planning reads. Many tensors can be views of the same bytes.
    fn charge_read(&self, info: &TensorInfo) -> Result<()> {
        self.budget
            .steps(1 + info.nbytes() / 16, "the descriptors of weights")
    }

    /// The bytes of scales that belong to a PyTorch tensor's description and are not in the catalog.
    pub(crate) fn peek_inside(&self, info: &TensorInfo, scales: &TensorInfo) -> Result<Vec<u8>> {
        let read = &self.caches.scales;
        read.set(read.get().saturating_add(scales.nbytes()));
        if read.get() > MAX_SCALE_BYTES {
            return Err(unsupported(
                info,
                format!("per-channel scales of all tensors exceed {MAX_SCALE_BYTES} bytes"),
            ));
        }
        self.charge_read(scales)?;
        (self.read)(scales)
    }

    /// The values of a small tensor of any integer dtype.
    pub(crate) fn peek_integers(&self, tensor: usize) -> Result<Vec<i64>> {
        let info = self.info(tensor);
        let bytes = self.peek(tensor)?;
        Ok(match plain(info) {
            // shapes and flags are stored in whatever integer the writer's library defaults to
            Some(Dtype::I64 | Dtype::U64) => bytes
                .as_chunks::<8>()
                .0
                .iter()
                .map(|b| i64::from_le_bytes(*b))
                .collect(),
            Some(Dtype::I32) => bytes
                .as_chunks::<4>()
                .0
                .iter()
                .map(|b| i32::from_le_bytes(*b).into())
                .collect(),
            Some(Dtype::U32) => bytes
                .as_chunks::<4>()
                .0
                .iter()
                .map(|b| u32::from_le_bytes(*b).into())
                .collect(),
            Some(Dtype::I16) => bytes
                .as_chunks::<2>()
                .0
                .iter()
                .map(|b| i16::from_le_bytes(*b).into())
                .collect(),
            Some(Dtype::I8) => bytes.iter().map(|b| b.cast_signed().into()).collect(),
            Some(Dtype::U8 | Dtype::BOOL) => bytes.iter().map(|b| i64::from(*b)).collect(),
            _ => {
                return Err(not_known(
                    info,
                    format!("dtype {} instead of an integer", info.encoding),
                ));
            }
        })
    }

    /// Compares a descriptor of a weight, such as a marker, with the settings that its writer has. One that decides how
    /// bytes are read is refused, another is a remark of the account.
    pub(crate) fn know_descriptor(
        &self,
        info: &TensorInfo,
        what: &str,
        map: &Map<String, Json>,
        known: &SchemeSettings,
    ) -> Result<()> {
        for setting in unknown_in_descriptor(map, known, self.budget)? {
            let text = format!("{}: {} of {what}", quote(&setting.key), setting.value);
            if setting.decides {
                let what = format!("{text} is not known, and decides how its bytes are read");
                return Err(not_known(info, what));
            }
            self.remark(text)?;
        }
        Ok(())
    }
}
