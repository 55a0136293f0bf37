//! The command line of `peers remember`.

pub const USAGE: &str =
    "usage: peers remember FILE.gguf [--threads N] [--dir DIR] [--ours PROGRAM]";

pub struct Options {
    pub file: String,
    pub threads: usize,
    /// Directory of the outputs, which are deleted afterwards.
    pub dir: String,
    /// The path of our command.
    pub ours: String,
}

impl Options {
    pub fn parse(args: &[&str]) -> Result<Self, String> {
        let dir = std::env::temp_dir().to_string_lossy().into_owned();
        let mut options = Self {
            file: String::new(),
            threads: 1,
            dir,
            ours: "target/release/anamnesis".to_owned(),
        };
        let mut words = args.iter();
        while let Some(&word) = words.next() {
            let mut value = || {
                words
                    .next()
                    .ok_or_else(|| format!("{word} needs a value\n{USAGE}"))
            };
            match word {
                "--threads" => {
                    options.threads = value()?.parse().map_err(|e| format!("--threads: {e}"))?
                }
                "--dir" => options.dir = value()?.to_string(),
                "--ours" => options.ours = value()?.to_string(),
                file if options.file.is_empty() && !file.starts_with('-') => {
                    options.file = file.to_owned()
                }
                _ => return Err(format!("unknown argument {word:?}\n{USAGE}")),
            }
        }
        if options.file.is_empty() {
            Err(USAGE.to_owned())
        } else {
            Ok(options)
        }
    }
}
