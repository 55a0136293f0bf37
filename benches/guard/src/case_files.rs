//! The files that cases read: copies of fixtures, and generated large files. Names and bytes are the same wherever the guard
//! runs.

mod archive;
mod large;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::process;

/// Copied fixtures, by path below `fixtures/`.
const FIXTURES: &[&str] = &[
    "safetensors/all_dtypes.safetensors",
    "safetensors/sharded/model-00001-of-00002.safetensors",
    "safetensors/sharded/model-00002-of-00002.safetensors",
    "safetensors/sharded/model.safetensors.index.json",
    "model/scribe-Q8_0.gguf",
    "npy/v1.npy",
    "npy/hdr_big_v2.npy",
    "npz/all_le.npz",
    "npz/all_le_compressed.npz",
    "pth/state_dict.pth",
    "pth/many.legacy.pth",
];

/// Tensors of the large headers.
pub(crate) const TENSORS: usize = 10_000;
/// Members of the large archives.
pub(crate) const MEMBERS: usize = 2_000;
/// The file of the load cases: number of tensors, bytes of each.
pub(crate) const LOADED: [usize; 2] = [64, 512 << 10];
/// The shape of the large weight: 64 MB in Q4_0.
pub(crate) const WEIGHT: [usize; 2] = [8192, 13_888];

/// A temporary directory of case files, deleted on drop.
pub(crate) struct CaseFiles(PathBuf);

impl CaseFiles {
    pub(crate) fn make() -> Result<Self, String> {
        let path = std::env::temp_dir().join(format!("anamnesis-guard-{}", std::process::id()));
        let files = Self(path);
        files
            .fill()
            .map_err(|e| format!("{}: {e}", files.0.display()))?;
        Ok(files)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    fn fill(&self) -> io::Result<()> {
        let write = |name: &str, bytes: &[u8]| {
            let path = self.0.join(name);
            fs::create_dir_all(path.parent().unwrap_or(&path))?;
            fs::write(path, bytes)
        };
        for name in FIXTURES {
            let fixture = Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("../../fixtures")
                .join(name);
            write(name, &fs::read(fixture)?)?;
        }
        fs::copy(std::env::current_exe()?, self.0.join(process::SELF))?;
        write("large/header.safetensors", &large::header())?;
        for (name, bytes) in large::shards() {
            write(&format!("large/shards/{name}"), &bytes)?;
        }
        write("large/tokens.gguf", &large::tokens())?;
        write("large/arrays.npz", &archive::arrays(MEMBERS))?;
        write("large/state.pth", &archive::state(MEMBERS))?;
        write("large/load.safetensors", &large::loaded())?;
        write("large/q4_0.gguf", &large::q4_0())
    }
}

impl Drop for CaseFiles {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}
