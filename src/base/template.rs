//! I/O templates: the types of `anamnesis-template` that occur in this crate's signatures, and what compares and combines
//! templates.
//!
//! Templates are made by [`predict()`](crate::predict()), recorded by
//! [`RecordingLoader`](crate::load::RecordingLoader), or built by a [`TemplateBuilder`].

pub use anamnesis_template::{
    Access, AccessGroup, ContentKey, Coverage, Diff, Error, ErrorKind, File, FileCoverage,
    FileSpan, GroupDiff, ServiceId, StridedFileRange, StridedRange, Template, TemplateBuilder,
    TemplateLimits, WEIGHT_ENDINGS, coverage, diff, is_weight_file, merge, page_spans, parallel,
    weight_ending,
};
