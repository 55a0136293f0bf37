//! GGUF headers through a reader: with a window, with a second one, and with a read for every few bytes.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::PathBuf;

use anamnesis::Checkpoint;

use super::{case, often};
use crate::inspect;
use crate::make::{self, Gguf, SEVENTEEN};
use crate::report::{Job, options::Options};

const NAME: &str = "gguf-by-reader";
const VARIANTS: &[&str] = &[
    "ours: reader",
    "ours: path",
    "ours: reader, BufReader of 64 KiB around the file",
    "ours: reader, 16 bytes a read at most",
    "anamnesis 0.7.10: path",
    "anamnesis 0.7.10: reader",
];

pub fn jobs(_: &Options) -> Vec<Job> {
    let job = |&(kind, vocabulary): &'static (&str, u64)| {
        let name = format!("{kind}, {vocabulary} tokens");
        Job::new(&name.clone(), move |options: &Options| {
            let file = file(options, kind, vocabulary)?;
            let mut case = case(NAME, &name, VARIANTS, &[&file], inspect::read);
            case.same = Some("tensors");
            Ok(case)
        })
    };
    SEVENTEEN.iter().map(job).collect()
}

/// A header, and a hole where the data would be: nobody reads it here.
fn file(options: &Options, kind: &str, vocabulary: u64) -> Result<String, String> {
    let folder = options.files().join("seventeen");
    let path: PathBuf = folder.join(format!("{kind}-{vocabulary}.gguf"));
    if !path.exists() {
        let vocabulary = if options.small {
            vocabulary / 64
        } else {
            vocabulary
        };
        let gguf = Gguf::new(kind, 1024, 2048, vocabulary.next_multiple_of(256), 24);
        let made = std::fs::create_dir_all(&folder).and_then(|()| {
            make::whole(&path, |to| {
                gguf.write(to, false)?;
                let end = to.stream_position()? + gguf.data() + 32 * gguf.tensors.len() as u64;
                to.get_ref().set_len(end)
            })
        });
        made.map_err(|e| format!("{}: {e}", path.display()))?;
    }
    Ok(path.to_str().expect("a printable path").to_owned())
}

pub fn one(variant: &str, args: &[&str]) -> Option<()> {
    let &[path] = args else { return None };
    let open = || File::open(path).expect("the file");
    let count = |checkpoint: anamnesis::Result<Checkpoint>| {
        checkpoint.expect("it opens").catalog().tensors().len()
    };
    let (median, least, tensors) = match variant {
        "ours: path" => often(|| count(Checkpoint::open(path))),
        "ours: reader" => often(|| count(Checkpoint::from_reader(open()))),
        "ours: reader, BufReader of 64 KiB around the file" => often(|| {
            count(Checkpoint::from_reader(BufReader::with_capacity(
                64 << 10,
                open(),
            )))
        }),
        "ours: reader, 16 bytes a read at most" => {
            often(|| count(Checkpoint::from_reader(Few(open()))))
        }
        "anamnesis 0.7.10: path" => often(|| peer::parse_gguf(path).expect("it opens").len()),
        "anamnesis 0.7.10: reader" => often(|| {
            peer::inspect_gguf_from_reader(open())
                .expect("it opens")
                .tensor_count
        }),
        _ => return None,
    };
    println!("{median} {least} {tensors}");
    Some(())
}

/// As many system calls as a parser makes that reads number by number.
struct Few(File);

impl Read for Few {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let n = into.len().min(16);
        self.0.read(&mut into[..n])
    }
}

impl Seek for Few {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.0.seek(to)
    }
}
