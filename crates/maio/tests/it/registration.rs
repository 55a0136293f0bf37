//! Registrations: templates that exist, are missing, are recorded, describe another model or are damaged.

mod world;

use std::path::Path;
use std::sync::Arc;

use anamnesis_maio::{Maio, MaioPhase, model_service_id};
use anamnesis_ppc::{EventKind, FileAccess, Interests, Namespace, Policy, PolicyContext};
use anamnesis_template::{Template, TemplateLimits, coverage};
use world::{M, SimulatedReader, World, files_of, model, name, template};

const LENS: [u64; 2] = [24 * M, 9 * M + 1000];

fn init(dir: &Path, config: &str) -> Result<Maio, String> {
    init_below(&dir.join("nowhere"), dir, config)
}

/// Initialises a policy that sees the machine below `root`.
fn init_below(root: &Path, dir: &Path, config: &str) -> Result<Maio, String> {
    let namespace = Arc::new(Namespace::scan(dir).unwrap());
    let mut policy = Maio::new().root(root);
    policy.init(&PolicyContext {
        namespace,
        config: config.into(),
        memory: 1 << 40,
    })?;
    Ok(policy)
}

fn readers() -> Vec<SimulatedReader> {
    let part = |worker: u64| vec![(0, worker * 12 * M, 12 * M), (1, 0, LENS[1])];
    (0..2)
        .map(|w| SimulatedReader {
            pid: 30 + w,
            reads: part(w.into()),
            pace: 4,
            threads: 3,
            begins: u64::from(w),
        })
        .collect()
}

#[test]
fn a_missing_template_is_recorded_then_followed() {
    let dir = model(&LENS);
    let templates = tempfile::tempdir().unwrap();
    let config = format!("{},param.tp=2", templates.path().display());
    let mut first = World::new(dir.path(), &LENS, &config, 1 << 40, 16);
    assert_eq!(first.state().phase, MaioPhase::Recording);
    assert_eq!(
        first.wants,
        Interests {
            touch: true,
            recording: true,
            ..Interests::default()
        }
    );
    first.start();
    first.run(readers());
    assert_eq!(
        (first.requests, first.state().recorded),
        (0, 24 * M + 2 * LENS[1])
    );
    first.policy.exit();

    let namespace = Arc::new(Namespace::scan(dir.path()).unwrap());
    let id = model_service_id(&namespace, Path::new(""), [("tp", "2")]);
    let recorded = Template::load(
        &templates.path().join(format!("{id}.iot")),
        &TemplateLimits::default(),
    )
    .unwrap();
    assert_eq!((recorded.service(), recorded.groups().len()), (Some(id), 2));
    let workers = readers()
        .into_iter()
        .map(|reader| reader.reads)
        .collect::<Vec<_>>();
    let exact = template(dir.path(), &LENS, &workers);
    assert_eq!(
        (
            coverage(&exact, &recorded).share(),
            coverage(&recorded, &exact).share()
        ),
        (1.0, 1.0)
    );

    let mut second = World::new(dir.path(), &LENS, &config, 1 << 40, 16);
    assert_eq!(second.state().phase, MaioPhase::Following);
    assert_eq!(second.state().service, Some(id.to_string()));
    second.start();
    second.idle(10);
    second.run(readers());
    assert_eq!((second.misses, second.most_loads()), (0, 1));
    // other parameters make another service
    let other = format!("{},param.tp=4", templates.path().display());
    assert_eq!(
        init(dir.path(), &other).unwrap().state().phase,
        MaioPhase::Recording
    );
}

#[test]
fn a_recording_ends_after_idle_time() {
    let dir = model(&LENS);
    let templates = tempfile::tempdir().unwrap();
    let config = format!(
        "{},service=mine,idle=2s,workers=order",
        templates.path().display()
    );
    let mut world = World::new(dir.path(), &LENS, &config, 1 << 40, 16);
    // one read of the model, long before it is loaded
    world.run(vec![SimulatedReader {
        pid: 1,
        reads: vec![(0, 0, M)],
        pace: 4,
        threads: 1,
        begins: 0,
    }]);
    world.idle(3000);
    world.run(vec![SimulatedReader {
        pid: 1,
        reads: vec![(0, M, 3 * M)],
        pace: 4,
        threads: 1,
        begins: 0,
    }]);
    world.idle(3000);
    world.run(vec![SimulatedReader {
        pid: 2,
        reads: vec![(1, 0, M)],
        pace: 4,
        threads: 1,
        begins: 0,
    }]);
    let kept = Template::load(
        &templates.path().join("mine.iot"),
        &TemplateLimits::default(),
    )
    .unwrap();
    assert_eq!(
        kept.to_string(),
        "1 worker reads 4.2 MB of 1 file in 1 access"
    );
    world.policy.exit();
}

#[test]
fn an_empty_recording_is_not_saved() {
    let dir = model(&LENS);
    let templates = tempfile::tempdir().unwrap();
    let mut policy = init(dir.path(), &format!("{}", templates.path().display())).unwrap();
    policy.exit();
    assert_eq!(std::fs::read_dir(templates.path()).unwrap().count(), 0);
}

#[test]
fn a_template_of_another_model_is_refused_or_ignored() {
    let (dir, other) = (model(&LENS), model(&[LENS[0], LENS[1] + 1]));
    let templates = tempfile::tempdir().unwrap();
    let path = templates.path().join("mine.iot");
    template(
        other.path(),
        &[LENS[0], LENS[1] + 1],
        &[files_of(&LENS, |_| true)],
    )
    .save(&path, false)
    .unwrap();
    let error = init(dir.path(), path.to_str().unwrap()).unwrap_err();
    assert!(
        error.contains("another model")
            && error.contains("1.safetensors")
            && error.contains("bytes"),
        "{error}"
    );
    // found by the service's id: it is ignored or recorded again
    let config = format!("{},service=mine", templates.path().display());
    let policy = init(dir.path(), &format!("{config},generate=no")).unwrap();
    assert_eq!(
        (policy.state().phase, policy.interests()),
        (MaioPhase::Stale, Interests::default())
    );
    assert!(
        policy
            .state()
            .reason
            .unwrap()
            .contains("1 of 2 files differ")
    );
    assert_eq!(
        init(dir.path(), &config).unwrap().state().phase,
        MaioPhase::Recording
    );
    // same lengths, different content
    let same = model(&LENS);
    template(same.path(), &LENS, &[files_of(&LENS, |_| true)])
        .save(&path, false)
        .unwrap();
    init(dir.path(), path.to_str().unwrap()).unwrap();
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(dir.path().join(name(0)))
        .unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"other", 100).unwrap();
    let error = init(dir.path(), path.to_str().unwrap()).unwrap_err();
    assert!(error.contains("different content"), "{error}");
}

#[test]
fn a_new_model_is_searched_again_and_an_unchanged_one_stays_followed() {
    let dir = model(&LENS);
    let templates = tempfile::tempdir().unwrap();
    let path = templates.path().join("mine.iot");
    template(dir.path(), &LENS, &[files_of(&LENS, |_| true)])
        .save(&path, false)
        .unwrap();
    std::fs::rename(dir.path().join(name(1)), templates.path().join("later")).unwrap();
    let config = format!("{},service=mine,generate=no", templates.path().display());
    let context = || {
        let namespace = Arc::new(Namespace::scan(dir.path()).unwrap());
        PolicyContext {
            namespace,
            config: config.clone(),
            memory: 1 << 40,
        }
    };
    let mut policy = init(dir.path(), &config).unwrap();
    assert_eq!(
        (policy.state().phase, policy.interests()),
        (MaioPhase::Stale, Interests::default())
    );
    // the missing file exists now
    std::fs::rename(templates.path().join("later"), dir.path().join(name(1))).unwrap();
    policy.files_changed(&context()).unwrap();
    assert_eq!(
        (policy.state().phase, policy.interests().prefetch),
        (MaioPhase::Following, true)
    );
    let path = Arc::clone(&context().namespace.entries()[0].path);
    let miss = FileAccess {
        kind: EventKind::Miss,
        path,
        start: 8 * M,
        len: 4096,
        pid: 7,
        tid: 7,
        time: 1,
    };
    policy.prefetch(&miss).unwrap();
    let state = policy.state();
    assert_eq!(state.groups[0].pid, Some(7));
    // a new file does not disturb the files that are followed
    std::fs::write(dir.path().join("README"), b"about").unwrap();
    policy.files_changed(&context()).unwrap();
    assert_eq!(policy.state(), state);
    // one of the followed files was replaced
    std::fs::remove_file(dir.path().join(name(0))).unwrap();
    std::fs::write(dir.path().join(name(0)), b"another").unwrap();
    policy.files_changed(&context()).unwrap();
    assert_eq!(
        (policy.state().phase, policy.interests()),
        (MaioPhase::Stale, Interests::default())
    );
    assert!(
        policy
            .state()
            .reason
            .unwrap()
            .contains("1 of 2 files differ")
    );
    // the same for a template named explicitly, which a registration would refuse
    let config = templates.path().join("mine.iot").display().to_string();
    policy
        .files_changed(&PolicyContext {
            config,
            ..context()
        })
        .unwrap();
    assert_eq!(policy.state().phase, MaioPhase::Stale);
    assert!(policy.state().reason.unwrap().contains("another model"));
}

#[test]
fn a_recording_continues_while_the_recorded_files_are_unchanged() {
    let dir = model(&LENS);
    let templates = tempfile::tempdir().unwrap();
    let config = format!("{},service=mine", templates.path().display());
    let mut world = World::new(dir.path(), &LENS, &config, 1 << 40, 16);
    world.run(vec![SimulatedReader {
        pid: 1,
        reads: vec![(0, 0, M)],
        pace: 4,
        threads: 1,
        begins: 0,
    }]);
    let renew = |world: &mut World| {
        let namespace = Arc::new(Namespace::scan(dir.path()).unwrap());
        world
            .policy
            .files_changed(&PolicyContext {
                namespace,
                config: config.clone(),
                memory: 1 << 40,
            })
            .unwrap();
        (world.state().phase, world.state().recorded)
    };
    std::fs::write(dir.path().join("tokenizer.json"), b"{}").unwrap();
    assert_eq!(renew(&mut world), (MaioPhase::Recording, M));
    std::fs::File::create(dir.path().join(name(0)))
        .unwrap()
        .set_len(9 * M)
        .unwrap();
    assert_eq!(renew(&mut world), (MaioPhase::Recording, 0));
}

#[test]
fn an_invalid_configuration_is_refused() {
    let dir = model(&LENS);
    std::fs::write(dir.path().join("bad.iot"), b"GIF89a").unwrap();
    let bad = dir.path().join("bad.iot");
    let absent = dir.path().join("none.iot");
    for (config, part) in [
        ("", "template=FILE"),
        ("distance=1X,T.iot", "distance=1X: not a size"),
        ("colour=red", "colour=red: unknown option"),
        ("evict=maybe", "evict=maybe: expected yes or no"),
        ("service=../x", "service=../x: an id consists"),
        ("model=/etc", "model=/etc: not a path relative"),
        ("template=a.iot,templates=b", "exclude each other"),
        ("ranks=3-1", "ranks=3-1: not a range"),
        ("idle=0", "idle=0: not a time"),
        ("workers=env:", "workers=env:: expected one of"),
        ("window=", "window=: the value is missing"),
        (
            bad.to_str().unwrap(),
            "predict or record the template again",
        ),
        (absent.to_str().unwrap(), "none.iot"),
    ] {
        let error = init(dir.path(), config).unwrap_err();
        assert!(error.contains(part), "{config}: {error}");
    }
    let missing = format!("{},generate=no", dir.path().join("templates").display());
    assert_eq!(
        init(dir.path(), &missing).unwrap().state().phase,
        MaioPhase::Idle
    );
}

#[test]
fn a_model_may_be_a_directory_of_links_within_the_namespace() {
    let dir = model(&LENS);
    let root = dir.path();
    std::fs::create_dir_all(root.join("blobs")).unwrap();
    std::fs::create_dir_all(root.join("snapshots/main")).unwrap();
    for i in 0..2 {
        std::fs::rename(root.join(name(i)), root.join(format!("blobs/{i}"))).unwrap();
        let link = root.join("snapshots/main").join(name(i));
        std::os::unix::fs::symlink(format!("../../blobs/{i}"), link).unwrap();
    }
    let templates = tempfile::tempdir().unwrap();
    let path = templates.path().join("t.iot");
    template(
        &root.join("snapshots/main"),
        &LENS,
        &[files_of(&LENS, |_| true)],
    )
    .save(&path, false)
    .unwrap();
    let mut policy = init(root, &format!("{},model=./snapshots/main", path.display())).unwrap();
    let requests = policy.start();
    let paths: std::collections::BTreeSet<_> = requests[0]
        .ranges
        .iter()
        .map(|io| Arc::clone(&io.path))
        .collect();
    assert_eq!(
        paths
            .iter()
            .map(|path| path.to_str().unwrap())
            .collect::<Vec<_>>(),
        ["blobs/0", "blobs/1"]
    );
    let state = serde_json::to_value(policy.state()).unwrap();
    assert_eq!(state["phase"], "following");
    assert!(init(root, path.to_str().unwrap()).is_err());
    // a recording uses names relative to the model
    let namespace = Arc::new(Namespace::scan(root).unwrap());
    let other = model(&LENS);
    let plain = Arc::new(Namespace::scan(other.path()).unwrap());
    assert_eq!(
        model_service_id(&namespace, Path::new("snapshots/main"), []),
        model_service_id(&plain, Path::new(""), [])
    );
}

#[test]
fn accelerators_are_assigned_in_turn_or_as_they_are_held() {
    let dir = model(&LENS);
    let templates = tempfile::tempdir().unwrap();
    let path = templates.path().join("t.iot");
    let halves = [
        vec![(0, 0, 12 * M)],
        vec![(0, 12 * M, 12 * M)],
        vec![(1, 0, LENS[1])],
    ];
    template(dir.path(), &LENS, &halves)
        .save(&path, false)
        .unwrap();
    let devices = |root: &Path, config: &str| -> Vec<_> {
        let mut policy =
            init_below(root, dir.path(), &format!("{},{config}", path.display())).unwrap();
        policy
            .start()
            .iter()
            .map(|prefetch| (prefetch.queue, prefetch.ranges[0].device))
            .collect()
    };
    // two NUMA nodes with an accelerator each
    let two = tempfile::tempdir().unwrap();
    for node in 0..2 {
        let accelerator = two
            .path()
            .join(format!("sys/bus/pci/devices/0000:{node}7:00.0"));
        std::fs::create_dir_all(
            two.path()
                .join(format!("sys/devices/system/node/node{node}")),
        )
        .unwrap();
        std::fs::create_dir_all(&accelerator).unwrap();
        for (file, text) in [
            ("class", "0x030200"),
            ("vendor", "0x10de"),
            ("numa_node", &node.to_string()),
        ] {
            std::fs::write(accelerator.join(file), text).unwrap();
        }
    }
    let two = two.path();
    assert_eq!(
        devices(two, "devices=0-1"),
        [(0, Some(0)), (1, Some(1)), (2, Some(0))]
    );
    assert_eq!(
        devices(two, "devices=0-1,affinity=no"),
        [(u32::MAX, None)],
        "one list for all workers"
    );
    assert_eq!(
        devices(two, "devices=0-1,affinity=no,window=64M"),
        [(0, None), (1, None), (2, None)]
    );
    assert_eq!(devices(two, "ranks=1-2,window=64M"), [(1, None), (2, None)]);
    assert_eq!(devices(two, "start=no"), []);
    // memory without NUMA nodes
    assert_eq!(
        devices(&dir.path().join("nowhere"), "devices=4-5"),
        [(u32::MAX, Some(4))]
    );
}
