//! Generates the large files that are measured; every run writes the same bytes.

mod gguf;
mod npz;
pub mod safetensors;

use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::report::{options::Options, python};

/// Name and shape of an F32 tensor.
pub struct TensorSpec {
    pub name: String,
    pub shape: Vec<u64>,
}

impl TensorSpec {
    pub fn new(name: impl Into<String>, shape: &[u64]) -> Self {
        Self {
            name: name.into(),
            shape: shape.to_vec(),
        }
    }

    fn elements(&self) -> u64 {
        self.shape.iter().product()
    }
}

/// Names and shapes like GPT-2's: 149 tensors, 428 MB; with `small` about a hundredth of that.
fn transformer(small: bool) -> Vec<TensorSpec> {
    if small {
        layers(64, 1024)
    } else {
        layers(768, 27_648)
    }
}

/// The same names with wider layers: 4.06 GB.
fn large(small: bool) -> Vec<TensorSpec> {
    if small {
        layers(192, 1024)
    } else {
        layers(2560, 27_648)
    }
}

/// The same names with still wider layers: 12.1 GB.
fn huge(small: bool) -> Vec<TensorSpec> {
    if small {
        layers(320, 1024)
    } else {
        layers(4480, 27_648)
    }
}

fn layers(width: u64, vocabulary: u64) -> Vec<TensorSpec> {
    let mut all = vec![
        TensorSpec::new("wte.weight", &[vocabulary, width]),
        TensorSpec::new("wpe.weight", &[1024, width]),
    ];
    for layer in 0..12 {
        let shapes: [(&str, &[u64]); 12] = [
            ("ln_1.weight", &[width]),
            ("ln_1.bias", &[width]),
            ("attn.c_attn.weight", &[width, 3 * width]),
            ("attn.c_attn.bias", &[3 * width]),
            ("attn.c_proj.weight", &[width, width]),
            ("attn.c_proj.bias", &[width]),
            ("ln_2.weight", &[width]),
            ("ln_2.bias", &[width]),
            ("mlp.c_fc.weight", &[width, 4 * width]),
            ("mlp.c_fc.bias", &[4 * width]),
            ("mlp.c_proj.weight", &[4 * width, width]),
            ("mlp.c_proj.bias", &[width]),
        ];
        all.extend(
            shapes
                .iter()
                .map(|(name, shape)| TensorSpec::new(format!("h.{layer}.{name}"), shape)),
        );
    }
    let ends = [
        TensorSpec::new("ln_f.weight", &[width]),
        TensorSpec::new("ln_f.bias", &[width]),
        TensorSpec::new("bias", &[vocabulary]),
    ];
    all.extend(ends);
    all
}

/// The path of the file with this name, generated if it does not exist.
pub fn file(options: &Options, name: &str) -> Result<String, String> {
    let folder = options.files();
    fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let path = folder.join(name);
    if !path.exists() {
        eprintln!("generating {}", path.display());
        let (small, failed) = (options.small, |e: io::Error| {
            format!("cannot generate {name}: {e}")
        });
        match name {
            "model.safetensors" => {
                write_atomically(&path, |to| safetensors::write(to, &transformer(small)))
                    .map_err(failed)?
            }
            "large.safetensors" => {
                write_atomically(&path, |to| safetensors::write(to, &large(small)))
                    .map_err(failed)?
            }
            "huge.safetensors" => {
                write_atomically(&path, |to| safetensors::write(to, &huge(small)))
                    .map_err(failed)?
            }
            "model.npz" => {
                write_atomically(&path, |to| npz::write(to, &transformer(small))).map_err(failed)?
            }
            "model.gguf" => {
                write_atomically(&path, |to| gguf::llama(small).write(to)).map_err(failed)?
            }
            "large.gguf" => {
                write_atomically(&path, |to| gguf::large_llama(small).write(to)).map_err(failed)?
            }
            "model.pth" | "large.pth" => {
                let from = file(options, &name.replace(".pth", ".safetensors"))?;
                let to = path.to_str().expect("a printable path");
                python::script(options, "make_pth.py", &[&from, to])
                    .map_err(|e| format!("cannot generate {name}: {e}"))?;
            }
            _ => unreachable!("no generator for {name}"),
        }
    }
    Ok(path.to_str().expect("a printable path").to_owned())
}

/// Writes to a temporary name and renames, so that an interrupted run leaves no truncated file under the final name.
fn write_atomically(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<fs::File>) -> io::Result<()>,
) -> io::Result<()> {
    let partial: PathBuf = path.with_extension("partial");
    let mut to = BufWriter::with_capacity(1 << 20, fs::File::create(&partial)?);
    write(&mut to)?;
    to.into_inner()
        .map_err(io::IntoInnerError::into_error)?
        .sync_all()?;
    fs::rename(partial, path)
}

/// The pseudo-random generator splitmix64.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A value in the range of trained weights: at most 0.04 in magnitude.
    fn weight(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1 << 24) as f32 * 0.08 - 0.04
    }

    fn weights(&mut self, count: u64, to: &mut impl Write) -> io::Result<()> {
        let mut chunk = Vec::new();
        for _ in 0..count {
            chunk.extend_from_slice(&self.weight().to_le_bytes());
            if chunk.len() == 1 << 20 {
                to.write_all(&chunk)?;
                chunk.clear();
            }
        }
        to.write_all(&chunk)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anamnesis::Checkpoint;

    #[test]
    fn generated_files_open_with_their_tensors() {
        let mut st = Vec::new();
        safetensors::write(&mut st, &transformer(true)).unwrap();
        let catalog = Checkpoint::from_bytes(st.clone()).unwrap();
        assert_eq!(catalog.catalog().tensors().len(), 149);
        let mut again = Vec::new();
        safetensors::write(&mut again, &transformer(true)).unwrap();
        assert_eq!(st, again, "every run writes the same bytes");
        let mut gg = Vec::new();
        gguf::llama(true).write(&mut gg).unwrap();
        assert!(
            Checkpoint::from_bytes(gg)
                .unwrap()
                .catalog()
                .tensors()
                .len()
                > 9
        );
        let bytes: u64 = transformer(false)
            .iter()
            .map(|spec| spec.elements() * 4)
            .sum();
        assert!((420_000_000..440_000_000).contains(&bytes), "{bytes}");
        let bytes: u64 = large(false).iter().map(|spec| spec.elements() * 4).sum();
        assert!((4_000_000_000..4_100_000_000).contains(&bytes), "{bytes}");
        assert!(
            (490_000_000..520_000_000).contains(&gguf::llama(false).data()),
            "{}",
            gguf::llama(false).data()
        );
    }
}
