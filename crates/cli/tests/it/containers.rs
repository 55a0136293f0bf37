//! The examples of `docs/containers.md`: the command lines of their containers are run in namespaces, with the user, the
//! capabilities, the mounts and the read-only root that the files state. Needs root, PyYAML and a file system on a device, and is
//! skipped with a message elsewhere.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::platform::yaml_of;
use crate::process::{assert_runs, path_str, workspace};
use crate::runtime_process::RuntimeProcess;
use crate::services::ModelDirectory;

/// The description of a container in a file.
#[derive(Debug)]
struct ContainerSpec {
    command: Vec<String>,
    user: u64,
    capabilities: Vec<String>,
    /// Path on the node, path in the container, whether it is read-only.
    mounts: Vec<(String, String, bool)>,
    host_pid: bool,
}

/// The documents of an example; `None`, with a message, without PyYAML.
fn example(name: &str) -> Option<Value> {
    yaml_of(&workspace().join("docs/examples/containers").join(name))
}

fn strings(value: &Value) -> Vec<String> {
    let all = value.as_array().into_iter().flatten();
    all.map(|text| text.as_str().unwrap().to_owned()).collect()
}

/// The containers of a Pod that run this command, by their names.
fn of_pod(spec: &Value) -> BTreeMap<String, ContainerSpec> {
    let volume = |name: &Value| {
        let volumes = spec["volumes"].as_array().unwrap();
        let volume = volumes
            .iter()
            .find(|volume| volume["name"] == *name)
            .unwrap();
        volume["hostPath"]["path"].as_str().unwrap().to_owned()
    };
    let lists = [&spec["initContainers"], &spec["containers"]];
    let containers = lists.into_iter().filter_map(Value::as_array).flatten();
    containers
        .filter(|container| container["command"][0] == "anamnesis")
        .map(|container| {
            let security = &container["securityContext"];
            assert_eq!(security["readOnlyRootFilesystem"], true, "{container}");
            assert_eq!(security["allowPrivilegeEscalation"], false, "{container}");
            assert_eq!(security["capabilities"]["drop"][0], "ALL", "{container}");
            let mounts = container["volumeMounts"].as_array().unwrap().iter();
            let mounts = mounts.map(|mount| {
                let at = mount["mountPath"].as_str().unwrap().to_owned();
                (volume(&mount["name"]), at, mount["readOnly"] == true)
            });
            let spec = ContainerSpec {
                command: strings(&container["command"]),
                user: security["runAsUser"].as_u64().unwrap(),
                capabilities: strings(&security["capabilities"]["add"]),
                mounts: mounts.collect(),
                host_pid: spec["hostPID"] == true,
            };
            (container["name"].as_str().unwrap().to_owned(), spec)
        })
        .collect()
}

/// The services of a Compose file that run this command, by their names.
fn of_compose(document: &Value) -> BTreeMap<String, ContainerSpec> {
    let services = document["services"].as_object().unwrap();
    services
        .iter()
        .filter(|(_, service)| service["command"][0] == "anamnesis")
        .map(|(name, service)| {
            assert_eq!(service["read_only"], true, "{service}");
            assert_eq!(service["cap_drop"][0], "ALL", "{service}");
            let user = service["user"].as_str().unwrap();
            let mounts = strings(&service["volumes"]).into_iter().map(|text| {
                let parts: Vec<&str> = text.split(':').collect();
                (
                    parts[0].to_owned(),
                    parts[1].to_owned(),
                    parts.get(2) == Some(&"ro"),
                )
            });
            let spec = ContainerSpec {
                command: strings(&service["command"]),
                user: user.split(':').next().unwrap().parse().unwrap(),
                capabilities: strings(&service["cap_add"]),
                mounts: mounts.collect(),
                host_pid: false,
            };
            (name.clone(), spec)
        })
        .collect()
}

/// A root directory with the command and a server, in which containers are run.
struct ContainerImage {
    dir: tempfile::TempDir,
    models: ModelDirectory,
}

impl ContainerImage {
    /// `None`, with a message, where events or namespaces are not available.
    fn new() -> Option<Self> {
        let models = ModelDirectory::new()?;
        models.add("llama", 1 << 20);
        let namespaces = Command::new("unshare")
            .args(["--mount", "--pid", "--fork", "true"])
            .status();
        if !rustix::process::geteuid().is_root() || !namespaces.is_ok_and(|status| status.success())
        {
            eprintln!("SKIPPED: containers need root and namespaces");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let programs = dir.path().join("programs");
        fs::create_dir(&programs).unwrap();
        fs::create_dir(dir.path().join("root")).unwrap();
        fs::copy(env!("CARGO_BIN_EXE_anamnesis"), programs.join("anamnesis")).unwrap();
        // stands for `python serve.py MODEL`: reads the model, unless there is a template, which is then to be followed
        let server = "#!/bin/sh\n[ -z \"$(ls /templates)\" ] || exec sleep 2\nexec cat \"$2\"/model.safetensors > /dev/null\n";
        fs::write(programs.join("python"), server).unwrap();
        for path in [programs.clone(), programs.join("python")] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        Some(Self { dir, models })
    }

    /// The command that runs a container.
    fn command(&self, container: &ContainerSpec) -> Command {
        let root = self.dir.path().join("root");
        let root = path_str(&root);
        let mut script = format!(
            "set -e
            mount --make-rprivate /
            exec 7<'{programs}' 8<'{models}' 9<'{templates}'
            mount -t tmpfs -o mode=755 none {root}
            for name in bin lib lib64 usr etc dev; do
                if [ -L /$name ]; then cp -P /$name {root}/$name
                elif [ -d /$name ]; then mkdir {root}/$name; mount --rbind /$name {root}/$name; fi
            done
            mkdir {root}/proc {root}/sys {root}/programs
            mount -t proc none {root}/proc
            mount -t sysfs -o ro none {root}/sys
            mount --bind /proc/self/fd/7 {root}/programs\n",
            programs = path_str(&self.dir.path().join("programs")),
            models = path_str(&self.models.models),
            templates = path_str(&self.models.templates),
        );
        for (from, at, read_only) in &container.mounts {
            let mount = match &**from {
                "/srv/models" => "--bind /proc/self/fd/8",
                "/var/lib/anamnesis/templates" => "--bind /proc/self/fd/9",
                "/sys/kernel/tracing" => "-t tracefs none",
                other => panic!("{other} is not provided by this test"),
            };
            script += &format!("mkdir -p {root}{at}; mount {mount} {root}{at}\n");
            if *read_only {
                script += &format!("mount -o remount,bind,ro {root}{at}\n");
            }
        }
        let added: String = container
            .capabilities
            .iter()
            .map(|name| format!(",+{}", name.to_lowercase()))
            .collect();
        let arguments: Vec<String> = container
            .command
            .iter()
            .map(|text| format!("'{text}'"))
            .collect();
        script += &format!(
            "mount -o remount,ro {root}
            exec 7<&- 8<&- 9<&-
            cd {root}
            PATH=/programs:$PATH exec chroot {root} setpriv --reuid {user} --regid {user} --clear-groups --no-new-privs \
             --inh-caps=-all --bounding-set=-all{added} -- {arguments}",
            user = container.user,
            arguments = arguments.join(" "),
        );
        let mut command = Command::new("unshare");
        command.arg("--mount");
        if !container.host_pid {
            command.args(["--pid", "--fork"]);
        }
        command.args(["sh", "-c", &script]).stdin(Stdio::null());
        // a process group of its own, so that all processes of a container can be killed
        command.process_group(0);
        command
    }

    /// Runs a container to its end, with the model not cached, and checks that the model is cached afterwards.
    fn run(&self, container: &ContainerSpec) -> String {
        self.models.evict("llama");
        let done = self.command(container).output().unwrap();
        let printed = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(done.status.success(), "{container:?}: {printed}");
        // it has ended
        self.models.wait_cached("llama", || {});
        printed
    }
}

/// A container that is killed when this is dropped.
struct RunningContainer(Child);

impl Drop for RunningContainer {
    fn drop(&mut self) {
        let group = rustix::process::Pid::from_child(&self.0);
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        let _ = self.0.wait();
    }
}

#[test]
fn containers_that_warm_need_no_capabilities() {
    let Some(image) = ContainerImage::new() else {
        return;
    };
    let (Some(init), Some(sidecar), Some(compose)) = (
        example("warm-init.yaml"),
        example("warm-sidecar.yaml"),
        example("compose.yaml"),
    ) else {
        return;
    };
    for container in [
        &of_pod(&init["spec"])["warm"],
        &of_compose(&compose)["warm"],
    ] {
        assert!(container.user == 1000 && container.capabilities.is_empty());
        image.run(container);
    }
    // it waits, so that it is not started again
    let sidecar = &of_pod(&sidecar["spec"])["warm"];
    assert!(sidecar.user == 1000 && sidecar.capabilities.is_empty());
    image.models.evict("llama");
    let running = RunningContainer(image.command(sidecar).spawn().unwrap());
    let runs = || assert_runs(&running.0, "it warmed the model");
    image.models.wait_cached("llama", runs);
    runs();
}

#[test]
fn containers_with_a_runtime_record_and_follow() {
    let Some(image) = ContainerImage::new() else {
        return;
    };
    let (Some(pod), Some(compose), Some(daemon)) = (
        example("pod.yaml"),
        example("compose.yaml"),
        example("daemonset.yaml"),
    ) else {
        return;
    };
    for container in [
        &of_pod(&pod["spec"])["serve"],
        &of_compose(&compose)["serve-maio"],
    ] {
        image.models.forget();
        let recorded = image.run(container);
        assert!(!recorded.contains("warning"), "{recorded}");
        assert_eq!(image.models.saved().len(), 1, "{recorded}");
        // the server reads nothing
        image.run(container);
    }
    image.models.forget();
    let daemon = of_pod(&daemon["spec"]["template"]["spec"])
        .remove("ppc")
        .unwrap();
    let running = RuntimeProcess::start_command(image.command(&daemon));
    for name in ["llama", "org/b"] {
        image.models.record(&running.0, name);
    }
    for name in ["llama", "org/b"] {
        image.models.follow(&running.0, name);
    }
    assert_eq!(running.status().unwrap()["policies"][0]["path"], "/models");
}

#[test]
fn every_example_is_named_in_the_page() {
    let page = fs::read_to_string(workspace().join("docs/containers.md")).unwrap();
    let files = fs::read_dir(workspace().join("docs/examples/containers")).unwrap();
    for file in files {
        let name = file.unwrap().file_name();
        let link = Path::new("examples/containers").join(name);
        assert!(page.contains(path_str(&link)), "{}", link.display());
    }
}
