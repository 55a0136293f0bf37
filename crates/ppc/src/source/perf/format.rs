//! Where a trace point keeps its fields: tracefs's `format` files.

use crate::source::bytes::number;

/// A field of a trace point's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Field {
    offset: usize,
    size: usize,
}

impl Field {
    /// Its value in a record; `None` if that is too short.
    pub(crate) fn read(self, raw: &[u8]) -> Option<u64> {
        number(raw.get(self.offset..self.offset.checked_add(self.size)?)?)
    }
}

/// A trace point's number and fields.
#[derive(Debug)]
pub(crate) struct Format {
    /// The number by which it is opened.
    pub(crate) id: u32,
    fields: Vec<(String, Field)>,
}

impl Format {
    /// Of the text of a `format` file, whose lines look so: `field:unsigned long i_ino; offset:8; size:8; signed:0;`
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let id = text
            .lines()
            .find_map(|line| line.strip_prefix("ID:"))?
            .trim()
            .parse()
            .ok()?;
        let fields = text
            .lines()
            .filter_map(|line| Self::field_of(line.trim()))
            .collect();
        Some(Self { id, fields })
    }

    fn field_of(line: &str) -> Option<(String, Field)> {
        let mut parts = line.split(';').map(str::trim);
        let declared = parts.next()?.strip_prefix("field:")?;
        let name = declared.rsplit([' ', '*']).next()?;
        let offset = parts.next()?.strip_prefix("offset:")?.parse().ok()?;
        let size = parts.next()?.strip_prefix("size:")?.parse().ok()?;
        Some((name.to_owned(), Field { offset, size }))
    }

    /// A whole number of 1, 2, 4 or 8 bytes by its name.
    pub(crate) fn field(&self, name: &str) -> Option<Field> {
        let field = self.fields.iter().find(|(known, _)| known == name)?.1;
        matches!(field.size, 1 | 2 | 4 | 8).then_some(field)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "name: page_cache_sync_ra\nID: 617\nformat:\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
        \tfield:struct file * file;\toffset:8;\tsize:8;\tsigned:0;\n\
        \tfield:dev_t s_dev;\toffset:16;\tsize:4;\tsigned:0;\n\
        \tfield:char comm[16];\toffset:20;\tsize:16;\tsigned:0;\n\
        \tfield:broken;\toffset:x;\tsize:4;\n\nprint fmt: \"\"\n";

    #[test]
    fn fields_are_found_by_name() {
        let format = Format::parse(TEXT).unwrap();
        assert_eq!(format.id, 617);
        assert_eq!(
            format.field("s_dev"),
            Some(Field {
                offset: 16,
                size: 4
            })
        );
        assert_eq!(format.field("file"), Some(Field { offset: 8, size: 8 }));
        assert_eq!(format.field("comm[16]"), None, "no number");
        assert_eq!(format.field("broken"), None);
        assert_eq!(Format::parse("format:\n").map(|f| f.id), None);
    }

    #[test]
    fn a_record_that_is_too_short_has_no_value() {
        let field = Format::parse(TEXT).unwrap().field("s_dev").unwrap();
        let mut raw = [0; 20];
        raw[16..].copy_from_slice(&0xfe00_0000u32.to_ne_bytes());
        assert_eq!(field.read(&raw), Some(0xfe00_0000));
        assert_eq!(field.read(&raw[..19]), None);
        assert_eq!(
            Field {
                offset: usize::MAX,
                size: 8
            }
            .read(&raw),
            None
        );
    }
}
