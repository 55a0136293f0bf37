//! The byte ranges of the files that reading a complete tensor touches.

use super::{ByteRange, Catalog, Layout, Quantizer, TensorInfo};

impl Catalog {
    /// Reports the stored bytes of a tensor, its sparse parts and its quantisation parameters to `each`. For a tensor in
    /// an archive they are the complete member with the header that is checked in front of it, with the member's
    /// number, since several tensors may share one.
    pub(crate) fn stored(&self, info: &TensorInfo, each: &mut dyn FnMut(ByteRange, Option<u32>)) {
        let member = info
            .member
            .and_then(|number| Some((number, self.members.get(usize::try_from(number).ok()?)?)));
        match (member, &info.layout) {
            (_, Layout::Absent) => {}
            (_, Layout::Sparse(sparse)) => {
                sparse.parts.iter().for_each(|part| self.stored(part, each))
            }
            (_, Layout::Chunked(chunks)) => chunks
                .iter()
                .for_each(|chunk| self.stored(&chunk.part, each)),
            (None, _) => each(info.bytes, None),
            (Some((number, member)), _) => {
                let front = member.front();
                each(
                    ByteRange {
                        len: member.bytes.end() - front.start,
                        ..front
                    },
                    Some(number),
                );
            }
        }
        if let Some(Quantizer::PerChannel {
            scales,
            zero_points,
            ..
        }) = info.quantizer()
        {
            self.stored(scales, each);
            self.stored(zero_points, each);
        }
    }
}
