//! The systemd unit that is shipped: its command line is started as the unit starts it, without systemd, in a mount namespace, and
//! follows the second load of each of two models. Needs root and a file system on a device, and is skipped with a message elsewhere.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::process::{path_str, workspace};
use crate::runtime_process::RuntimeProcess;
use crate::services::ModelDirectory;

/// The settings of the section `[Service]`.
struct UnitFile(BTreeMap<String, String>);

impl UnitFile {
    fn read() -> Self {
        let path = workspace().join("docs/examples/anamnesis-ppc.service");
        let text = fs::read_to_string(path).unwrap();
        let section = text.split("[Service]\n").nth(1).unwrap();
        let section = section.split("\n[").next().unwrap();
        let lines = section
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#'));
        let settings = lines.map(|line| {
            let (name, value) = line.split_once('=').unwrap();
            (name.to_owned(), value.to_owned())
        });
        Self(settings.collect())
    }

    fn take(&mut self, name: &str) -> String {
        self.0.remove(name).unwrap_or_else(|| panic!("no {name}="))
    }

    /// The command that does what the unit says for these directories.
    fn command(mut self, models: &Path, templates: &Path) -> Command {
        let exec = self.take("ExecStart");
        let arguments = exec.strip_prefix("/usr/bin/anamnesis ").unwrap();
        let capabilities = self.take("CapabilityBoundingSet");
        assert_eq!(self.take("AmbientCapabilities"), capabilities);
        let bounding: Vec<String> = capabilities
            .split(' ')
            .map(|name| format!("+{}", name.strip_prefix("CAP_").unwrap().to_lowercase()))
            .collect();
        let (read_only, read_write) = (self.take("ReadOnlyPaths"), self.take("ReadWritePaths"));
        assert_eq!(
            format!("/var/lib/{}", self.take("StateDirectory")),
            read_write
        );
        for (name, value) in [
            ("Type", "exec"),
            ("ProtectSystem", "strict"),
            ("NoNewPrivileges", "yes"),
            ("ProtectKernelTunables", "no"),
            ("PrivateTmp", "yes"),
            ("MemoryHigh", "infinity"),
            ("Restart", "on-failure"),
        ] {
            assert_eq!(self.take(name), value, "{name}");
        }
        // beside the models, since the unit has a /tmp of its own, which hides a build directory below /tmp
        let program = Path::new(&read_only).with_file_name("anamnesis");
        let nice = self.take("Nice");
        assert!(self.0.is_empty(), "not done by this test: {:?}", self.0);
        let script = format!(
            "set -e
            mount --make-rprivate /
            exec 7<'{binary}' 8<'{models}' 9<'{templates}'
            for at in {read_only} {read_write}; do mount -t tmpfs none \"$(dirname $at | cut -d/ -f1-3)\"; mkdir -p $at; done
            touch {program}
            mount --bind /proc/self/fd/7 {program}
            mount --bind /proc/self/fd/8 {read_only}
            mount --bind /proc/self/fd/9 {read_write}
            mount -o remount,bind,ro {read_only}
            mount -o remount,bind,ro /
            mount -t tmpfs none /tmp
            cd /
            [ -d /sys/kernel/tracing/events ] || mount -t tracefs none /sys/kernel/tracing
            exec 7<&- 8<&- 9<&-
            exec nice -n {nice} setpriv --no-new-privs --bounding-set=-all,{bounding} -- {program} {arguments}",
            models = path_str(models),
            templates = path_str(templates),
            bounding = bounding.join(","),
            binary = env!("CARGO_BIN_EXE_anamnesis"),
            program = path_str(&program),
        );
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", &script]);
        command
    }
}

#[test]
fn the_unit_follows_the_second_load_of_each_of_two_models() {
    let Some(directory) = ModelDirectory::new() else {
        return;
    };
    let allowed = Command::new("unshare")
        .args(["--mount", "setpriv", "--bounding-set=-all", "true"])
        .status();
    if !rustix::process::geteuid().is_root() || !allowed.is_ok_and(|status| status.success()) {
        return eprintln!("SKIPPED: the unit needs root, unshare and setpriv");
    }
    let command = UnitFile::read().command(&directory.models, &directory.templates);
    let runtime = RuntimeProcess::start_command(command);
    for name in ["a", "org/b"] {
        directory.record(&runtime.0, name);
    }
    for name in ["a", "org/b"] {
        directory.follow(&runtime.0, name);
    }
    let status = runtime.status().unwrap();
    assert_eq!(status["policies"][0]["path"], "/srv/models");
}
