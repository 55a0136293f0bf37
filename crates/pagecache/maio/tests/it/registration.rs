//! Templates of a registration: one that exists is followed, one that is missing recorded, and one that is damaged or
//! describes other files refused or ignored.

use std::path::Path;
use std::sync::Arc;

use super::simulation::{
    FileRead, MIB, SimulatedReader, Simulation, create_model, create_template, file_name,
    whole_files,
};
use anamnesis_maio::{Maio, MaioPhase, model_service_id};
use anamnesis_ppc::{EventKind, FileAccess, Interests, Namespace, Policy, PolicyContext};
use anamnesis_template::{Template, TemplateLimits, coverage};

const LENS: [u64; 2] = [24 * MIB, 9 * MIB + 1000];

fn init(dir: &Path, config: &str) -> Result<Maio, String> {
    init_with_root(&dir.join("nowhere"), dir, config)
}

/// Initialises a policy that reads `/sys` and `/proc` below `root`.
fn init_with_root(root: &Path, dir: &Path, config: &str) -> Result<Maio, String> {
    let namespace = Arc::new(Namespace::scan(dir).unwrap());
    let mut policy = Maio::new().root(root);
    policy.init(&PolicyContext {
        namespace,
        config: config.into(),
        memory: 1 << 40,
    })?;
    Ok(policy)
}

/// One thread of one process that reads these bytes at once.
fn reader(pid: u32, reads: &[FileRead]) -> SimulatedReader {
    SimulatedReader {
        pid,
        reads: reads.into(),
        blocks_per_step: 4,
        threads: 1,
        start_step: 0,
    }
}

/// Two workers that read half of the first file each and all of the second.
fn two_readers() -> Vec<SimulatedReader> {
    let reads_of = |worker: u64| vec![(0, worker * 12 * MIB, 12 * MIB), (1, 0, LENS[1])];
    (0..2)
        .map(|worker| SimulatedReader {
            pid: 30 + worker,
            reads: reads_of(worker.into()),
            blocks_per_step: 4,
            threads: 3,
            start_step: u64::from(worker),
        })
        .collect()
}

#[test]
fn a_missing_template_is_recorded_and_the_next_registration_follows_it() {
    let dir = create_model(&LENS);
    let templates = tempfile::tempdir().unwrap();
    let config = format!("{},param.tp=2", templates.path().display());
    let mut recording = Simulation::new(dir.path(), &LENS, &config, 1 << 40, 16);
    assert_eq!(recording.state().phase, MaioPhase::Recording);
    assert_eq!(
        recording.interests,
        Interests {
            touch: true,
            recording: true,
            idle: true,
            ..Interests::default()
        }
    );
    recording.start();
    recording.run(two_readers());
    assert_eq!(
        (recording.requests, recording.state().recorded),
        (0, 24 * MIB + 2 * LENS[1])
    );
    recording.policy.exit();

    let namespace = Arc::new(Namespace::scan(dir.path()).unwrap());
    let id = model_service_id(&namespace, Path::new(""), [("tp", "2")]);
    let recorded = Template::load(
        &templates.path().join(format!("{id}.iot")),
        &TemplateLimits::default(),
    )
    .unwrap();
    assert_eq!((recorded.service(), recorded.groups().len()), (Some(id), 2));
    let workers = two_readers()
        .into_iter()
        .map(|reader| reader.reads)
        .collect::<Vec<_>>();
    let expected = create_template(dir.path(), &LENS, &workers);
    assert_eq!(
        (
            coverage(&expected, &recorded).share(),
            coverage(&recorded, &expected).share()
        ),
        (1.0, 1.0)
    );

    let mut following = Simulation::new(dir.path(), &LENS, &config, 1 << 40, 16);
    assert_eq!(following.state().phase, MaioPhase::Following);
    assert_eq!(following.state().service, Some(id.to_string()));
    following.start();
    following.idle(10);
    following.run(two_readers());
    assert_eq!((following.misses, following.max_loads_of_a_block()), (0, 1));
    // other parameters are another service
    let other_config = format!("{},param.tp=4", templates.path().display());
    assert_eq!(
        init(dir.path(), &other_config).unwrap().state().phase,
        MaioPhase::Recording
    );
}

#[test]
fn a_recording_ends_when_the_model_is_idle_after_a_load() {
    let dir = create_model(&LENS);
    let templates = tempfile::tempdir().unwrap();
    let config = format!(
        "{},service=mine,idle=2s,workers=order",
        templates.path().display()
    );
    let mut simulation = Simulation::new(dir.path(), &LENS, &config, 1 << 40, 16);
    // one read of the model, long before it is loaded
    simulation.run(vec![reader(1, &[(0, 0, MIB)])]);
    simulation.idle(3000);
    simulation.run(vec![reader(1, &[(0, MIB, 3 * MIB)])]);
    assert_eq!(simulation.state().phase, MaioPhase::Recording);
    simulation.idle(3000);
    assert_eq!(simulation.state().phase, MaioPhase::Following);
    assert!(!simulation.interests.recording && simulation.interests.prefetch);
    simulation.run(vec![reader(2, &[(1, 0, MIB)])]);
    let recorded = Template::load(
        &templates.path().join("mine.iot"),
        &TemplateLimits::default(),
    )
    .unwrap();
    assert_eq!(
        recorded.to_string(),
        "1 worker reads 4.2 MB of 1 file in 1 access"
    );
    simulation.policy.exit();
}

#[test]
fn an_empty_recording_is_not_saved() {
    let dir = create_model(&LENS);
    let templates = tempfile::tempdir().unwrap();
    let mut policy = init(dir.path(), &format!("{}", templates.path().display())).unwrap();
    policy.exit();
    assert_eq!(std::fs::read_dir(templates.path()).unwrap().count(), 0);
}

#[test]
fn a_template_of_another_model_is_refused_if_named_and_ignored_if_found_by_service() {
    let (dir, other_model) = (create_model(&LENS), create_model(&[LENS[0], LENS[1] + 1]));
    let templates = tempfile::tempdir().unwrap();
    let path = templates.path().join("mine.iot");
    create_template(
        other_model.path(),
        &[LENS[0], LENS[1] + 1],
        &[whole_files(&LENS, |_| true)],
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
    // found by the id of the service, it is ignored or recorded again
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
    let same = create_model(&LENS);
    create_template(same.path(), &LENS, &[whole_files(&LENS, |_| true)])
        .save(&path, false)
        .unwrap();
    init(dir.path(), path.to_str().unwrap()).unwrap();
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(dir.path().join(file_name(0)))
        .unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"other", 100).unwrap();
    let error = init(dir.path(), path.to_str().unwrap()).unwrap_err();
    assert!(error.contains("different content"), "{error}");
}

#[test]
fn changed_files_are_compared_with_the_template_again() {
    let dir = create_model(&LENS);
    let templates = tempfile::tempdir().unwrap();
    let path = templates.path().join("mine.iot");
    create_template(dir.path(), &LENS, &[whole_files(&LENS, |_| true)])
        .save(&path, false)
        .unwrap();
    std::fs::rename(
        dir.path().join(file_name(1)),
        templates.path().join("later"),
    )
    .unwrap();
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
    std::fs::rename(
        templates.path().join("later"),
        dir.path().join(file_name(1)),
    )
    .unwrap();
    policy.files_changed(&context()).unwrap();
    assert_eq!(
        (policy.state().phase, policy.interests().prefetch),
        (MaioPhase::Following, true)
    );
    let path = Arc::clone(&context().namespace.entries()[0].path);
    let miss = FileAccess {
        kind: EventKind::Miss,
        path,
        start: 8 * MIB,
        len: 4096,
        pid: 7,
        tid: 7,
        time: 1,
    };
    policy.prefetch(&miss).unwrap();
    let state = policy.state();
    assert_eq!(state.groups[0].pid, Some(7));
    // a new file that the template lacks changes nothing
    std::fs::write(dir.path().join("README"), b"about").unwrap();
    policy.files_changed(&context()).unwrap();
    assert_eq!(policy.state(), state);
    // one of the followed files is replaced
    std::fs::remove_file(dir.path().join(file_name(0))).unwrap();
    std::fs::write(dir.path().join(file_name(0)), b"another").unwrap();
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
    // the same with a template that is named, for which a registration would fail
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
fn a_recording_continues_if_a_file_is_added_and_restarts_if_one_is_replaced() {
    let dir = create_model(&LENS);
    let templates = tempfile::tempdir().unwrap();
    let config = format!("{},service=mine", templates.path().display());
    let mut simulation = Simulation::new(dir.path(), &LENS, &config, 1 << 40, 16);
    simulation.run(vec![reader(1, &[(0, 0, MIB)])]);
    let rescan = |simulation: &mut Simulation| {
        let namespace = Arc::new(Namespace::scan(dir.path()).unwrap());
        simulation
            .policy
            .files_changed(&PolicyContext {
                namespace,
                config: config.clone(),
                memory: 1 << 40,
            })
            .unwrap();
        (simulation.state().phase, simulation.state().recorded)
    };
    std::fs::write(dir.path().join("tokenizer.json"), b"{}").unwrap();
    assert_eq!(rescan(&mut simulation), (MaioPhase::Recording, MIB));
    std::fs::File::create(dir.path().join(file_name(0)))
        .unwrap()
        .set_len(9 * MIB)
        .unwrap();
    assert_eq!(rescan(&mut simulation), (MaioPhase::Recording, 0));
}

#[test]
fn an_invalid_configuration_is_refused_with_its_option() {
    let dir = create_model(&LENS);
    std::fs::write(dir.path().join("bad.iot"), b"GIF89a").unwrap();
    let bad = dir.path().join("bad.iot");
    let absent = dir.path().join("none.iot");
    for (config, reason) in [
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
        assert!(error.contains(reason), "{config}: {error}");
    }
    let missing = format!("{},generate=no", dir.path().join("templates").display());
    assert_eq!(
        init(dir.path(), &missing).unwrap().state().phase,
        MaioPhase::Idle
    );
}

#[test]
fn a_model_may_be_a_directory_of_symbolic_links_within_the_namespace() {
    let dir = create_model(&LENS);
    let root = dir.path();
    std::fs::create_dir_all(root.join("blobs")).unwrap();
    std::fs::create_dir_all(root.join("snapshots/main")).unwrap();
    for i in 0..2 {
        std::fs::rename(root.join(file_name(i)), root.join(format!("blobs/{i}"))).unwrap();
        let link = root.join("snapshots/main").join(file_name(i));
        std::os::unix::fs::symlink(format!("../../blobs/{i}"), link).unwrap();
    }
    let templates = tempfile::tempdir().unwrap();
    let path = templates.path().join("t.iot");
    create_template(
        &root.join("snapshots/main"),
        &LENS,
        &[whole_files(&LENS, |_| true)],
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
    let without_links = create_model(&LENS);
    let plain = Arc::new(Namespace::scan(without_links.path()).unwrap());
    assert_eq!(
        model_service_id(&namespace, Path::new("snapshots/main"), []),
        model_service_id(&plain, Path::new(""), [])
    );
}

#[test]
fn accelerators_are_assigned_to_workers_in_turn() {
    let dir = create_model(&LENS);
    let templates = tempfile::tempdir().unwrap();
    let path = templates.path().join("t.iot");
    let halves = [
        vec![(0, 0, 12 * MIB)],
        vec![(0, 12 * MIB, 12 * MIB)],
        vec![(1, 0, LENS[1])],
    ];
    create_template(dir.path(), &LENS, &halves)
        .save(&path, false)
        .unwrap();
    let devices = |root: &Path, config: &str| -> Vec<_> {
        let mut policy =
            init_with_root(root, dir.path(), &format!("{},{config}", path.display())).unwrap();
        policy
            .start()
            .iter()
            .map(|prefetch| (prefetch.queue, prefetch.ranges[0].device))
            .collect()
    };
    // two NUMA nodes with an accelerator each
    let two_nodes = tempfile::tempdir().unwrap();
    for node in 0..2 {
        let accelerator = two_nodes
            .path()
            .join(format!("sys/bus/pci/devices/0000:{node}7:00.0"));
        std::fs::create_dir_all(
            two_nodes
                .path()
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
    let two_nodes = two_nodes.path();
    assert_eq!(
        devices(two_nodes, "devices=0-1"),
        [(0, Some(0)), (1, Some(1)), (2, Some(0))]
    );
    assert_eq!(
        devices(two_nodes, "devices=0-1,affinity=no"),
        [(u32::MAX, None)],
        "all workers share a schedule"
    );
    assert_eq!(
        devices(two_nodes, "devices=0-1,affinity=no,window=64M"),
        [(0, None), (1, None), (2, None)]
    );
    assert_eq!(
        devices(two_nodes, "ranks=1-2,window=64M"),
        [(1, None), (2, None)]
    );
    assert_eq!(devices(two_nodes, "start=no"), []);
    // a machine without NUMA nodes
    assert_eq!(
        devices(&dir.path().join("nowhere"), "devices=4-5"),
        [(u32::MAX, Some(4))]
    );
}
