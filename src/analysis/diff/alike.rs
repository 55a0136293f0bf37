//! Whether two tensors are stored alike: equal bytes are equal values then, and nothing needs to be decoded.

use crate::base::kernel::Dtype;
use crate::plan::decode::Cast;
use crate::plan::{Job, JobWork};
use crate::read::catalog::{Encoding, Layout, TensorInfo, elements};

use super::identity::{FileIdentity, is_same_file};
use super::numbers::is_number;
use super::sides::{ComparedTensor, Side};

/// The files of both sides, by what they are known to be.
pub(super) struct Identities {
    pub(super) a: Vec<FileIdentity>,
    pub(super) b: Vec<FileIdentity>,
}

/// A tensor of a side.
#[derive(Clone, Copy)]
pub(super) struct SideTensor<'s, 'c> {
    pub(super) side: &'s Side<'c>,
    pub(super) tensor: &'s ComparedTensor,
}

impl<'s, 'c> SideTensor<'s, 'c> {
    pub(super) fn job(&self) -> Option<&'s Job> {
        self.side.job(self.tensor)
    }

    pub(super) fn shape(&self) -> &'s [u64] {
        self.side.shape(self.tensor)
    }

    /// Number of its elements.
    pub(super) fn elements(&self) -> u64 {
        elements(self.shape()).unwrap_or(u64::MAX)
    }

    /// The stored tensors that hold its bytes; the parts of a sparse one instead of itself.
    pub(super) fn stored(&self) -> Vec<&'c TensorInfo> {
        let parts = (0..self.tensor.parts.len()).map(|part| self.side.part(self.tensor, part));
        parts
            .flat_map(|info| match &info.layout {
                Layout::Sparse(sparse) => sparse.parts.iter().collect(),
                Layout::Absent => Vec::new(),
                _ => vec![info],
            })
            .collect()
    }

    /// The job and its dtype, if its values can be compared.
    pub(super) fn numbers(&self) -> Option<&'s Job> {
        self.job().filter(|job| is_number(job.output.dtype))
    }
}

/// Whether equal bytes mean equal tensors: of one scheme, with the same parameters and parts of the same types.
pub(super) fn is_alike(a: SideTensor<'_, '_>, b: SideTensor<'_, '_>) -> bool {
    let layouts = |of: SideTensor<'_, '_>| {
        let info = of.side.part(of.tensor, 0);
        matches!(info.layout, Layout::Sparse(_) | Layout::Absent).then(|| info.layout.name())
    };
    let (x, y) = (a.stored(), b.stored());
    let parts = x.len() == y.len() && x.iter().zip(&y).all(|(x, y)| same_type(x, y));
    if !parts || layouts(a) != layouts(b) {
        return false;
    }
    match (a.job(), b.job()) {
        (Some(x), Some(y)) => {
            let roles = |job: &Job| job.parts.iter().map(|part| part.role).collect::<Vec<_>>();
            // equal bytes decode differently under another group size or zero point, which `form` has
            x.scheme == y.scheme && roles(x) == roles(y) && form(x) == form(y)
        }
        // stored tensors, of which one is not decoded
        _ => true,
    }
}

/// Whether two stored tensors have as many elements, of one type.
fn same_type(a: &TensorInfo, b: &TensorInfo) -> bool {
    // numbers are swapped when they are read; blocks are not
    let order = !matches!(a.encoding, Encoding::Block(_)) || a.endian == b.endian;
    a.encoding == b.encoding && a.elements() == b.elements() && order
}

/// The parameters that decide the elements of a job, besides the stored bytes.
fn form(job: &Job) -> String {
    match &job.work {
        // the debug form has every field, so that a new parameter of a decoder is compared without a change here
        JobWork::Tiles { decoder, .. } => format!("{decoder:?}"),
        JobWork::Stream { from, .. } => {
            let elements = elements(&job.output.shape).unwrap_or(u64::MAX);
            let from: Dtype = *from;
            format!("{:?}", Cast { from, elements })
        }
    }
}

/// Whether both are the same bytes of the same files, which need not be read.
pub(super) fn is_same_bytes(
    a: SideTensor<'_, '_>,
    b: SideTensor<'_, '_>,
    files: &Identities,
) -> bool {
    let same = |x: &TensorInfo, y: &TensorInfo| {
        let range = |info: &TensorInfo| (info.bytes.start, info.bytes.len);
        is_same_file(&files.a, &files.b, (x.bytes.file, y.bytes.file))
            && range(x) == range(y)
            && (x.packing, x.endian) == (y.packing, y.endian)
            && (&x.layout, &x.shape, &x.pytorch) == (&y.layout, &y.shape, &y.pytorch)
            // the pieces of a chunked tensor have ranges in several files
            && !matches!(x.layout, Layout::Chunked(_) | Layout::Sparse(_))
    };
    let (x, y) = (a.stored(), b.stored());
    x.len() == y.len() && x.iter().zip(&y).all(|(x, y)| same(x, y))
}

/// Whether two shapes have the same dimensions once dimensions of one element are left out.
pub(super) fn is_squeezed(a: &[u64], b: &[u64]) -> bool {
    let squeezed = |shape: &[u64]| {
        shape
            .iter()
            .copied()
            .filter(|n| *n != 1)
            .collect::<Vec<_>>()
    };
    squeezed(a) == squeezed(b)
}

/// Whether the last two dimensions of one shape are exchanged in the other.
pub(super) fn is_swapped(a: &[u64], b: &[u64]) -> bool {
    match (a, b) {
        ([outer_a @ .., m, n], [outer_b @ .., p, q]) => {
            // a square matrix has the same shape transposed: nothing tells the two apart
            outer_a == outer_b && (m, n) == (q, p) && m != n
        }
        _ => false,
    }
}
