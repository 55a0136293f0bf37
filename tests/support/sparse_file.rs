//! Sparse files of several gigabytes, one per container format: headers as the format's own writer writes them, and data that
//! reads as zeros.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Mutex;

use anamnesis::Source;

/// A file of byte segments with zeros between them.
#[derive(Default)]
pub struct SparseFile {
    pub len: u64,
    /// `(offset, bytes)`.
    pub segments: Vec<(u64, Vec<u8>)>,
    /// Bytes that must be read to list the tensors.
    pub header_bytes: u64,
}

impl SparseFile {
    /// Appends bytes of the header.
    pub fn append(&mut self, bytes: Vec<u8>) {
        let offset = self.len;
        self.len += bytes.len() as u64;
        self.header_bytes += bytes.len() as u64;
        self.segments.push((offset, bytes));
    }

    pub fn append_zeros(&mut self, n: u64) {
        self.len += n;
    }

    pub fn align(&mut self, alignment: u64) {
        self.len = self.len.next_multiple_of(alignment);
    }

    pub fn write(&self, path: &Path) -> io::Result<()> {
        let mut file = File::create(path)?;
        file.set_len(self.len)?;
        for (offset, bytes) in &self.segments {
            file.seek(SeekFrom::Start(*offset))?;
            file.write_all(bytes)?;
        }
        file.sync_all()
    }
}

/// A sparse file as a source that records the `(start, length)` of each read.
pub struct CountingSource {
    file: SparseFile,
    pub reads: std::sync::Arc<Mutex<Vec<(u64, u64)>>>,
}

impl CountingSource {
    pub fn new(file: SparseFile) -> Self {
        Self {
            file,
            reads: Default::default(),
        }
    }
}

impl Source for CountingSource {
    fn len(&self) -> Option<u64> {
        Some(self.file.len)
    }

    fn read_at(&self, start: u64, buf: &mut [u8]) -> io::Result<usize> {
        let end = self.file.len.min(start + buf.len() as u64);
        let n = usize::try_from(end.saturating_sub(start)).unwrap();
        buf[..n].fill(0);
        for (offset, bytes) in &self.file.segments {
            let (from, to) = (start.max(*offset), end.min(offset + bytes.len() as u64));
            if from < to {
                let index = |n: u64| usize::try_from(n).unwrap();
                buf[index(from - start)..index(to - start)]
                    .copy_from_slice(&bytes[index(from - offset)..index(to - offset)]);
            }
        }
        self.reads.lock().unwrap().push((start, n as u64));
        Ok(n)
    }
}

const GIB: u64 = 1 << 30;

pub fn safetensors() -> SparseFile {
    let mut header = String::from("{");
    for i in 0..300u64 {
        let (from, to) = ((i * 32) << 20, ((i + 1) * 32) << 20);
        let comma = if i > 0 { "," } else { "" };
        header += &format!(
            "{comma}\"layers.{i}.weight\":{{\"dtype\":\"BF16\",\"shape\":[4096,4096],\"data_offsets\":[{from},{to}]}}"
        );
    }
    header += "}";
    let mut file = SparseFile::default();
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(header.as_bytes());
    file.append(bytes);
    file.append_zeros((300 * 32) << 20);
    file
}

pub fn gguf() -> SparseFile {
    let string = |s: &str| [&(s.len() as u64).to_le_bytes(), s.as_bytes()].concat();
    let mut bytes = b"GGUF\x03\0\0\0".to_vec();
    bytes.extend(64u64.to_le_bytes());
    bytes.extend(2u64.to_le_bytes());
    bytes.extend(string("general.architecture"));
    bytes.extend(8u32.to_le_bytes());
    bytes.extend(string("llama"));
    bytes.extend(string("tokenizer.ggml.tokens"));
    bytes.extend(9u32.to_le_bytes());
    bytes.extend(8u32.to_le_bytes());
    bytes.extend(150_000u64.to_le_bytes());
    for i in 0..150_000 {
        bytes.extend(string(&format!("token{i}")));
    }
    for i in 0..64u64 {
        bytes.extend(string(&format!("blk.{i}.weight")));
        bytes.extend(2u32.to_le_bytes());
        bytes.extend(16384u64.to_le_bytes());
        bytes.extend(16384u64.to_le_bytes());
        bytes.extend(2u32.to_le_bytes()); // Q4_0: 18 bytes for 32 elements
        bytes.extend((i * (16384 * 16384 / 32 * 18)).to_le_bytes());
    }
    let mut file = SparseFile::default();
    file.append(bytes);
    file.align(32);
    file.append_zeros(64 * (16384 * 16384 / 32 * 18));
    file
}

fn npy_header() -> Vec<u8> {
    let mut text =
        String::from("{'descr': '<f4', 'fortran_order': False, 'shape': (16384, 32768), }");
    text += &" ".repeat(117 - text.len());
    text.push('\n');
    [
        b"\x93NUMPY\x01\0",
        &118u16.to_le_bytes()[..],
        text.as_bytes(),
    ]
    .concat()
}

pub fn npy() -> SparseFile {
    let mut file = SparseFile::default();
    file.append(npy_header());
    file.append_zeros(2 * GIB);
    file
}

/// A writer of a zip archive with 64-bit sizes and offsets.
struct Zip {
    file: SparseFile,
    directory: Vec<u8>,
    count: u64,
    /// As PyTorch writes archives: data aligned to 64 bytes, sizes in a descriptor after the data.
    torch_layout: bool,
}

impl Zip {
    fn new(torch_layout: bool) -> Self {
        Self {
            file: SparseFile::default(),
            directory: Vec::new(),
            count: 0,
            torch_layout,
        }
    }

    /// Appends a member whose data starts with these bytes and continues with zeros.
    fn member(&mut self, name: &str, data: Vec<u8>, zeros: u64) {
        let offset = self.file.len;
        let len = data.len() as u64 + zeros;
        let flags: u16 = if self.torch_layout { 0x808 } else { 0 };
        let extra = if self.torch_layout {
            let unpadded = offset + 30 + name.len() as u64 + 4;
            let pad = usize::try_from(unpadded.next_multiple_of(64) - unpadded).unwrap();
            [
                b"FB",
                &u16::try_from(pad).unwrap().to_le_bytes()[..],
                &b"Z".repeat(pad),
            ]
            .concat()
        } else {
            [
                &1u16.to_le_bytes()[..],
                &16u16.to_le_bytes(),
                &len.to_le_bytes(),
                &len.to_le_bytes(),
            ]
            .concat()
        };
        let mut local = b"PK\x03\x04\x2d\0".to_vec();
        local.extend(flags.to_le_bytes());
        local.extend([0; 10]); // method, time, checksum
        local.extend(if self.torch_layout { [0; 8] } else { [0xff; 8] });
        local.extend(u16::try_from(name.len()).unwrap().to_le_bytes());
        local.extend(u16::try_from(extra.len()).unwrap().to_le_bytes());
        local.extend(name.as_bytes());
        local.extend(extra);
        let header_bytes = self.file.header_bytes;
        self.file.append(local);
        if self.torch_layout {
            self.file.header_bytes = header_bytes; // the local header of a PyTorch member need not be read
        }
        self.file.append(data);
        self.file.append_zeros(zeros);
        if self.torch_layout {
            let header_bytes = self.file.header_bytes;
            // miniz writes 64-bit sizes where the sizes or the offset need them
            let wide = len.max(offset) >= u64::from(u32::MAX);
            self.file
                .append([b"PK\x07\x08", &[0; 20][..if wide { 20 } else { 12 }]].concat());
            self.file.header_bytes = header_bytes;
        }
        self.count += 1;
        let entry = &mut self.directory;
        entry.extend(b"PK\x01\x02\x2d\0\x2d\0");
        entry.extend(flags.to_le_bytes());
        entry.extend([0; 10]);
        entry.extend([0xff; 8]);
        entry.extend(u16::try_from(name.len()).unwrap().to_le_bytes());
        entry.extend(28u16.to_le_bytes());
        entry.extend([0; 10]);
        entry.extend([0xff; 4]);
        entry.extend(name.as_bytes());
        entry.extend([&1u16.to_le_bytes()[..], &24u16.to_le_bytes()].concat());
        entry.extend([len.to_le_bytes(), len.to_le_bytes(), offset.to_le_bytes()].concat());
    }

    /// Appends the central directory and its end records.
    fn finish(mut self) -> SparseFile {
        let directory_offset = self.file.len;
        let size = self.directory.len() as u64;
        self.file.append(self.directory);
        let record_offset = self.file.len;
        let mut end = b"PK\x06\x06".to_vec();
        end.extend(44u64.to_le_bytes());
        end.extend([45, 0, 45, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        end.extend(
            [
                self.count.to_le_bytes(),
                self.count.to_le_bytes(),
                size.to_le_bytes(),
                directory_offset.to_le_bytes(),
            ]
            .concat(),
        );
        end.extend(b"PK\x06\x07\0\0\0\0");
        end.extend(record_offset.to_le_bytes());
        end.extend(1u32.to_le_bytes());
        end.extend(b"PK\x05\x06\0\0\0\0");
        end.extend([0xff; 12]);
        end.extend([0; 2]);
        self.file.append(end);
        self.file
    }
}

pub fn npz() -> SparseFile {
    let mut zip = Zip::new(false);
    for name in ["W_enc", "W_dec", "b_enc", "b_dec", "threshold"] {
        zip.member(&format!("{name}.npy"), npy_header(), 2 * GIB);
    }
    zip.finish()
}

/// Elements of a tensor of the state dict.
const NUMEL: u32 = 4096 * 2048;

/// The pickle of a state dict of 300 F32 tensors, as `torch.save` writes it.
fn state_dict() -> Vec<u8> {
    let text = |s: &str| {
        [
            &b"X"[..],
            &u32::try_from(s.len()).unwrap().to_le_bytes(),
            s.as_bytes(),
        ]
        .concat()
    };
    let int = |n: u32| [&b"J"[..], &n.to_le_bytes()].concat();
    let mut pickle = b"\x80\x02}(".to_vec();
    for i in 0..300 {
        pickle.extend(text(&format!("layers.{i}.weight")));
        pickle.extend(b"ctorch._utils\n_rebuild_tensor_v2\n((");
        pickle.extend(text("storage"));
        pickle.extend(b"ctorch\nFloatStorage\n");
        pickle.extend(text(&i.to_string()));
        pickle.extend(text("cpu"));
        pickle.extend(int(NUMEL));
        pickle.extend(b"tQ");
        pickle.extend(
            [
                int(0),
                int(4096),
                int(2048),
                b"\x86".to_vec(),
                int(2048),
                int(1),
                b"\x86".to_vec(),
            ]
            .concat(),
        );
        pickle.extend(b"\x89ccollections\nOrderedDict\n)RtR");
    }
    pickle.extend(b"u.");
    pickle
}

/// A PyTorch archive (zip).
pub fn pth() -> SparseFile {
    let mut zip = Zip::new(true);
    zip.member("archive/data.pkl", state_dict(), 0);
    zip.member("archive/byteorder", b"little".to_vec(), 0);
    for i in 0..300 {
        zip.member(
            &format!("archive/data/{i}"),
            Vec::new(),
            u64::from(NUMEL) * 4,
        );
    }
    zip.member("archive/version", b"3\n".to_vec(), 0);
    zip.finish()
}

/// A PyTorch file of the legacy container.
pub fn pth_legacy() -> SparseFile {
    let mut file = SparseFile::default();
    let mut header =
        b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.\x80\x02}(".to_vec();
    let text = |s: &str| {
        [
            &b"X"[..],
            &u32::try_from(s.len()).unwrap().to_le_bytes(),
            s.as_bytes(),
        ]
        .concat()
    };
    header.extend([text("little_endian"), b"\x88u.".to_vec()].concat());
    header.extend(state_dict());
    header.extend(b"\x80\x02](");
    for i in 0..300 {
        header.extend(text(&i.to_string()));
    }
    header.extend(b"e.");
    file.append(header);
    for _ in 0..300 {
        let header_bytes = file.header_bytes;
        file.append(u64::from(NUMEL).to_le_bytes().to_vec());
        file.header_bytes = header_bytes;
        file.append_zeros(u64::from(NUMEL) * 4);
    }
    file
}
