//! Random templates are the same after both forms, binary and JSON; saving, loading and probing files.

use anamnesis_template::{ByteRange, File, Template, TemplateBuilder, TemplateLimits};
use proptest::prelude::*;

use crate::random_templates::any_template;

fn unlimited_runs() -> TemplateLimits {
    TemplateLimits {
        runs: u64::MAX,
        ..TemplateLimits::default()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 1500 }))]

    #[test]
    fn the_binary_form_keeps_the_template(template in any_template()) {
        let bytes = template.to_bytes();
        let read = Template::from_bytes(&bytes, &unlimited_runs()).unwrap();
        prop_assert_eq!(&read, &template);
        prop_assert_eq!(read.to_bytes(), bytes);
    }

    #[test]
    fn the_json_form_keeps_the_template(template in any_template()) {
        let json = template.to_json();
        let read = Template::from_json(json.as_bytes(), &unlimited_runs()).unwrap();
        prop_assert_eq!(&read, &template);
        prop_assert_eq!(read.to_json(), json);
    }

    #[test]
    fn the_debug_output_is_short(template in any_template()) {
        let printed = format!("{template:?}");
        prop_assert!(printed.len() < 400);
    }
}

/// The premise of the tests above.
#[test]
#[cfg_attr(
    miri,
    ignore = "counts hundreds of templates, which take an interpreter many minutes"
)]
fn random_templates_have_accesses_groups_and_times() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let templates: Vec<_> = (0..300)
        .map(|_| any_template().new_tree(&mut runner).unwrap().current())
        .collect();
    let count_with =
        |property: fn(&Template) -> bool| templates.iter().filter(|t| property(t)).count();
    assert!(count_with(|t| t.accesses().count() > 3) > 80);
    assert!(count_with(|t| t.groups().len() > 1) > 60);
    assert!(count_with(|t| t.accesses().any(|(_, access)| access.bytes.count > 2)) > 60);
    assert!(count_with(|t| t.accesses().any(|(_, access)| access.at.is_some())) > 60);
    assert!(count_with(|t| t.accesses().any(|(_, access)| access.file > 0)) > 40);
}

#[test]
#[cfg_attr(miri, ignore = "Miri opens no file with O_NONBLOCK")]
fn a_saved_template_loads_the_same_and_leaves_no_other_file() {
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
        "a temporary file was left"
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
    // the longest name that file systems have
    let long = directory.path().join("n".repeat(255));
    template.save_new(&long, true).unwrap();
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 4);
    template
        .save(&directory.path().join("n".repeat(256)), true)
        .unwrap_err();
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 4);
    let small_limit = TemplateLimits {
        bytes: 20,
        ..TemplateLimits::default()
    };
    assert!(
        Template::load(&directory.path().join("t.iot"), &small_limit)
            .unwrap_err()
            .to_string()
            .contains("`bytes`")
    );
}

#[test]
#[cfg_attr(miri, ignore = "Miri opens no file with O_NONBLOCK")]
fn a_probed_file_has_length_time_and_key_and_detects_changes() {
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

#[cfg(unix)]
#[test]
#[cfg_attr(miri, ignore = "Miri opens no file with O_NONBLOCK")]
fn only_regular_files_are_probed_and_loaded() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let made = std::process::Command::new("mkfifo")
        .arg(path("fifo"))
        .status();
    let _listener = std::os::unix::net::UnixListener::bind(path("socket")).unwrap();
    std::os::unix::fs::symlink("/dev/zero", path("zero")).unwrap();
    std::fs::create_dir(path("directory")).unwrap();
    for name in ["fifo", "socket", "zero", "directory"] {
        if name == "fifo" && !made.as_ref().is_ok_and(std::process::ExitStatus::success) {
            eprintln!("SKIPPED: mkfifo is not to be had");
            continue;
        }
        let root = directory.path().to_owned();
        let (sender, receiver) = std::sync::mpsc::channel();
        // a thread, which is left behind if it waits for a writer
        std::thread::spawn(move || {
            let loaded = Template::load(&root.join(name), &TemplateLimits::none());
            sender.send([File::probe(&root, name).map(drop), loaded.map(drop)])
        });
        let results = receiver
            .recv_timeout(std::time::Duration::from_secs(60))
            .unwrap_or_else(|_| panic!("{name}: hangs"));
        for result in results {
            assert!(result.unwrap_err().to_string().contains(name));
        }
    }
    // regular by its type, but longer than its length, which is 0
    let memory = std::path::Path::new("/proc/self/smaps");
    if memory.exists() {
        let error = Template::load(memory, &TemplateLimits::default()).unwrap_err();
        assert!(error.to_string().contains("malformed"), "{error}");
    }
}
