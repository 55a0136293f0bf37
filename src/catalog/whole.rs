//! What a reader of a whole tensor reads of the files.

use super::{ByteRange, Catalog, Layout, Quantizer, TensorInfo};

impl Catalog {
    /// The stored bytes of a tensor and of what its description refers to; of one in an archive, all of its member with
    /// what is checked in front of it. `each` hears with them the member's number, since tensors may share one.
    pub(crate) fn stored(&self, info: &TensorInfo, each: &mut dyn FnMut(ByteRange, Option<u32>)) {
        let member = info
            .member
            .and_then(|number| Some((number, self.members.get(usize::try_from(number).ok()?)?)));
        match (member, &info.layout) {
            (_, Layout::Absent) => {}
            (_, Layout::Sparse(sparse)) => {
                sparse.parts.iter().for_each(|part| self.stored(part, each))
            }
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
        }) = info.quantizer.as_deref()
        {
            self.stored(scales, each);
            self.stored(zero_points, each);
        }
    }
}
