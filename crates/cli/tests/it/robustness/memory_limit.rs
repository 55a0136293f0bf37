//! A control group with memory for half of the model.

use std::process::Command;

use super::memory_group::MemoryGroup;
use super::model::{RandomModel, wait_until};
use crate::process::{finish, path_str};
use crate::runtime_process::RuntimeProcess;

/// The length of each of the two files, and the memory.
const MIB: usize = 64;

#[test]
fn with_memory_for_half_of_the_model_every_byte_is_right_and_the_policy_evicts() {
    let Some(model) = RandomModel::new(MIB) else {
        return;
    };
    let scratch = tempfile::tempdir().unwrap();
    let template = model.template(scratch.path());
    let policy = format!("maio:{}", template.display());
    let script = RandomModel::script(&model.root);
    let half = (MIB as u64) << 20;
    let Some(alone) = MemoryGroup::new("alone", half) else {
        return;
    };
    let mut native = Command::new("sh");
    native.args(["-c", &format!("{}; {script}", alone.enter())]);
    let native = finish(native);
    assert_eq!(native.stdout, model.expected);
    let times_alone = alone.times_full();
    model.evict();

    // the runtime and its command in the group
    let group = MemoryGroup::new("policy", half).unwrap();
    let args = ["ppc", "run", "--dir", path_str(&model.root)];
    let load = ["--policy", &policy, "--", "sh", "-c", &script];
    let done = group.run(&[&args[..], &load].concat());
    assert_eq!((done.code, &done.stdout), (0, &model.expected));
    let times = group.times_full();
    eprintln!(
        "the limit was reached {times_alone} times by the kernel alone, {times} times with MAIO: {}",
        done.stderr
    );
    assert!(times_alone > 20, "{times_alone}");
    assert!(!done.stderr.contains(" 0 B evicted"), "{}", done.stderr);
    model.evict();

    // the runtime outside, which joins the group of a process
    let joined = MemoryGroup::new("joined", half).unwrap();
    let begin = scratch.path().join("begin");
    let waits = format!(
        "{}; while [ ! -e '{}' ]; do sleep 0.02; done; {script}",
        joined.enter(),
        begin.display()
    );
    let mut service = Command::new("sh");
    service
        .args(["-c", &waits])
        .stdout(std::process::Stdio::piped());
    let service = service.spawn().unwrap();
    wait_until("process in the group", || {
        let groups = std::fs::read_to_string(format!("/proc/{}/cgroup", service.id()));
        groups.unwrap().contains("anamnesis-joined")
    });
    let pid = service.id().to_string();
    let args = ["--dir", path_str(&model.root), "--policy", &policy];
    let runtime = RuntimeProcess::start(&[&args[..], &["--join", &pid]].concat());
    std::fs::write(&begin, "").unwrap();
    let loaded = service.wait_with_output().unwrap().stdout;
    assert_eq!(String::from_utf8(loaded).unwrap(), model.expected);
    let status = runtime.status().unwrap();
    assert_eq!(status["memory"]["limit"], half, "{status}");
    assert!(status["policies"][0]["failure"].is_null(), "{status}");
    let times = joined.times_full();
    eprintln!("the limit was reached {times} times with a runtime that joined the group");
    drop(runtime);
}
