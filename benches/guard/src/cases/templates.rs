//! I/O templates: building, writing and reading 20 000 accesses of four workers.

use anamnesis_template::{ByteRange, File, Template, TemplateBuilder, TemplateLimits};

use crate::case::{Case, Metric};

const METRICS: &[Metric] = &[Metric::Instructions, Metric::Allocations, Metric::HeapPeak];
const WORKERS: u32 = 4;
const ACCESSES: u64 = 5_000;

pub(super) fn cases() -> Vec<Case> {
    let build = Case::new("template build", METRICS, || {
        assert_eq!(template().groups().len(), WORKERS as usize);
        Box::new(|| drop(template()))
    });
    let write = Case::new("template write", METRICS, || {
        let template = template();
        assert!(template.to_bytes().len() > 100);
        Box::new(move || drop(template.to_bytes()))
    });
    let read = Case::new("template read", METRICS, || {
        let bytes = template().to_bytes();
        let read = move || {
            Template::from_bytes(&bytes, &TemplateLimits::default()).expect("what was written")
        };
        assert!(read() == template());
        Box::new(move || drop(read()))
    });
    vec![build, write, read]
}

/// Accesses that repeat like layers, in an order that is not quite regular.
fn template() -> Template {
    let mut builder = TemplateBuilder::new();
    let files: Vec<u32> = (0..8)
        .map(|i| {
            builder
                .file(File::new(format!("model-{i}.safetensors"), 1 << 40).expect("a path"))
                .expect("a file")
        })
        .collect();
    for rank in 0..WORKERS {
        for i in 0..ACCESSES {
            let file = files[usize::try_from(i % 8).expect("less than eight")];
            let start = (i * 7 % ACCESSES) * (1 << 20) + u64::from(rank) * (1 << 12);
            builder
                .access(
                    rank,
                    ByteRange {
                        file,
                        start,
                        len: 4096 + i % 3 * 512,
                    },
                    Some(i * 10),
                )
                .expect("in the file");
        }
    }
    builder.finish()
}
