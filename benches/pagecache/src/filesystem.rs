//! Which file system a directory is on, and an XFS of our own to measure on as well.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Failure;

/// Its name, as far as the evaluation meets it; its number else.
pub fn name(dir: &Path) -> Result<String, Failure> {
    let kind = rustix::fs::statfs(dir)?.f_type as u64;
    let known = [(0xef53, "ext4"), (0x5846_5342, "xfs"), (0x9123_683e, "btrfs"), (0x0102_1994, "tmpfs")];
    let name = known.iter().find(|(number, _)| *number == kind).map(|(_, name)| (*name).to_owned());
    Ok(name.unwrap_or_else(|| format!("{kind:#x}")))
}

/// An XFS in a file, mounted beside it until the value is dropped.
pub struct Xfs {
    image: PathBuf,
    device: String,
    pub dir: PathBuf,
}

impl Xfs {
    /// Makes one in `dir` with room for a file of so many bytes.
    pub fn mount(dir: &Path, bytes: u64) -> Result<Self, Failure> {
        // from here on, what there is of it goes with it
        let mut xfs = Self { image: dir.join("xfs.img"), device: String::new(), dir: dir.join("xfs") };
        File::create(&xfs.image)?.set_len(bytes + (1 << 30))?;
        fs::create_dir_all(&xfs.dir)?;
        run("mkfs.xfs", &["-q".as_ref(), "-f".as_ref(), &xfs.image])?;
        // past the page cache below: what is measured is cached once
        let args = ["--find", "--show", "--direct-io=on"].map(Path::new);
        xfs.device = run("losetup", &[&args[..], &[&xfs.image]].concat())?;
        run("mount", &[xfs.device.as_ref(), &xfs.dir])?;
        Ok(xfs)
    }
}

impl Drop for Xfs {
    fn drop(&mut self) {
        // each as far as it goes: what was never mounted cannot be unmounted
        let _ = run("umount", &[&self.dir]);
        let _ = run("losetup", &["--detach".as_ref(), self.device.as_ref()]);
        let _ = fs::remove_dir(&self.dir);
        let _ = fs::remove_file(&self.image);
    }
}

/// What a program says.
fn run(program: &str, args: &[&Path]) -> Result<String, Failure> {
    let out = Command::new(program).args(args).output().map_err(|e| format!("{program}: {e}"))?;
    if !out.status.success() {
        return Err(format!("{program}: {}", String::from_utf8_lossy(&out.stderr).trim()).into());
    }
    Ok(String::from_utf8(out.stdout)?.trim().to_owned())
}
