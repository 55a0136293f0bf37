//! A load through an overlay, with the runtime on the overlay or on its lower directory.

use std::fs;
use std::process::Command;

use super::model::{RandomModel, wait_until};
use super::mounts::MountPoint;
use crate::page_cache::resident;
use crate::process::path_str;
use crate::runtime_process::{RuntimeProcess, on_device};

#[test]
fn a_load_through_an_overlay_is_prefetched_from_either_directory() {
    let Some(dir) = on_device() else { return };
    let [lower, upper, work, merged] =
        ["lower", "upper", "work", "merged"].map(|name| dir.path().join(name));
    for path in [&lower, &upper, &work, &merged] {
        fs::create_dir(path).unwrap();
    }
    let model = RandomModel::below(&lower, 8);
    let scratch = tempfile::tempdir().unwrap();
    let template = model.template(scratch.path());
    let options = format!(
        "-olowerdir={},upperdir={},workdir={}",
        lower.display(),
        upper.display(),
        work.display()
    );
    let Some(mounted) = MountPoint::new(&["-toverlay", &options, "overlay"], &merged) else {
        return;
    };
    for root in [&lower, &mounted.0] {
        for policy in [
            "eager".to_owned(),
            format!("maio:{},start=no", template.display()),
        ] {
            let what = format!("{}, {policy}", root.display());
            let runtime = RuntimeProcess::start(&["--dir", path_str(root), "--policy", &policy]);
            model.evict();
            // the first page, through the overlay
            let mut read = Command::new("dd");
            let path = mounted.0.join("model-00001-of-00002.safetensors");
            read.arg(format!("if={}", path.display()));
            read.args(["of=/dev/null", "bs=4k", "count=1", "status=none"]);
            assert!(read.status().unwrap().success());
            wait_until(&format!("{what}: prefetched model"), || {
                runtime.assert_runs("it prefetched the model");
                model.cached() >= model.len() / 100 * 99
            });
            // pages of a lower file are cached once, for both paths
            assert!(resident(&model.path(1)) > 0);
            let mut load = Command::new("sh");
            load.args(["-c", &RandomModel::script(&mounted.0)]);
            let printed = load.output().unwrap().stdout;
            assert_eq!(
                String::from_utf8(printed).unwrap(),
                model.expected,
                "{what}"
            );
            let status = runtime.status().unwrap();
            assert!(status["policies"][0]["failure"].is_null(), "{status}");
        }
    }
}
