//! Every template survives both forms.

mod common;

use anamnesis_template::{ByteRange, File, Template, TemplateBuilder, TemplateLimits};
use proptest::prelude::*;

fn limits() -> TemplateLimits {
    TemplateLimits {
        runs: u64::MAX,
        ..TemplateLimits::default()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn binary(template in common::template()) {
        let bytes = template.to_bytes();
        let read = Template::from_bytes(&bytes, &limits()).unwrap();
        prop_assert_eq!(&read, &template);
        prop_assert_eq!(read.to_bytes(), bytes);
    }

    #[test]
    fn json(template in common::template()) {
        let json = template.to_json();
        let read = Template::from_json(json.as_bytes(), &limits()).unwrap();
        prop_assert_eq!(&read, &template);
        prop_assert_eq!(read.to_json(), json);
    }

    #[test]
    fn printed_short(template in common::template()) {
        let printed = format!("{template:?}");
        prop_assert!(printed.len() < 400);
    }
}

/// The premise of the tests above: random templates contain accesses.
#[test]
fn random_templates_are_not_empty() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let made: Vec<_> = (0..300)
        .map(|_| common::template().new_tree(&mut runner).unwrap().current())
        .collect();
    let having =
        |what: fn(&Template) -> bool| made.iter().filter(|template| what(template)).count();
    assert!(having(|t| t.accesses().count() > 3) > 80);
    assert!(having(|t| t.groups().len() > 1) > 60);
    assert!(having(|t| t.accesses().any(|(_, access)| access.bytes.count > 2)) > 60);
    assert!(having(|t| t.accesses().any(|(_, access)| access.at.is_some())) > 60);
    assert!(having(|t| t.accesses().any(|(_, access)| access.file > 0)) > 40);
}

#[test]
fn templates_are_saved_and_loaded() {
    let directory = tempfile::tempdir().unwrap();
    let mut builder = TemplateBuilder::new();
    let file = builder.file(File::new("m.gguf", 10).unwrap()).unwrap();
    builder
        .access(
            0,
            ByteRange {
                file,
                start: 2,
                len: 3,
            },
            Some(7),
        )
        .unwrap();
    let template = builder.finish();
    for (name, sync) in [("t.iot", false), ("t.iot", true), ("t.json", true)] {
        let path = directory.path().join(name);
        template.save(&path, sync).unwrap();
        assert_eq!(
            Template::load(&path, &TemplateLimits::default()).unwrap(),
            template
        );
    }
    assert_eq!(
        std::fs::read_dir(&directory).unwrap().count(),
        2,
        "nothing is left beside"
    );
    let error = template
        .save(&directory.path().join("no/t.iot"), false)
        .unwrap_err();
    assert!(
        error.to_string().contains("t.iot") && error.remedy().is_some(),
        "{error}"
    );
    // If the name is a directory, the temporary file is removed.
    std::fs::create_dir(directory.path().join("d.iot")).unwrap();
    template
        .save(&directory.path().join("d.iot"), false)
        .unwrap_err();
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 3);
    let long = TemplateLimits {
        bytes: 20,
        ..TemplateLimits::default()
    };
    assert!(
        Template::load(&directory.path().join("t.iot"), &long)
            .unwrap_err()
            .to_string()
            .contains("`bytes`")
    );
}

#[test]
fn probing_reads_length_time_and_key() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("a")).unwrap();
    std::fs::write(directory.path().join("a/m"), vec![7; 70_000]).unwrap();
    let file = File::probe(directory.path(), "a/m").unwrap();
    assert_eq!((file.nbytes, &*file.path), (70_000, "a/m"));
    assert!(file.mtime.unwrap() > 1_600_000_000_000_000_000);
    assert_eq!(
        file.key,
        Some(anamnesis_template::ContentKey::of(&[7; 1 << 16]))
    );
    let mut builder = TemplateBuilder::new();
    builder.file(file.clone()).unwrap();
    let template = builder.finish();
    assert!(
        template
            .stale(|path| File::probe(directory.path(), path).ok())
            .is_empty()
    );
    std::fs::write(directory.path().join("a/m"), vec![8; 70_000]).unwrap();
    assert_eq!(
        template.stale(|path| File::probe(directory.path(), path).ok()),
        [&file]
    );
    assert!(File::probe(directory.path(), "../a/m").is_err());
}
