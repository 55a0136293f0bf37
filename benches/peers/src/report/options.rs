//! The command line of `report` and of the comparisons.

use std::path::PathBuf;

pub const USAGE: &str = "options: --rounds N, --minutes N, --work DIR, --fresh, --small, --as-built, --publish, --cold, --only NAME,…";

#[derive(Clone, Debug)]
pub struct Options {
    /// Files, types or sections.
    pub words: Vec<String>,
    /// Processes per variant.
    pub rounds: usize,
    /// What all sections together may take; rounds beyond three are left out when it is short.
    pub minutes: f64,
    /// Where files, the Python environment and finished cases are kept.
    pub work: PathBuf,
    /// Begins anew, whatever is finished.
    pub fresh: bool,
    /// Small files, to see whether everything works.
    pub small: bool,
    /// Nothing is built or installed: what is there takes part.
    pub as_built: bool,
    /// The experiments too, and then the documents.
    pub publish: bool,
    /// With the page cache dropped before each process.
    pub cold: bool,
    /// Parts of the names of the variants that run; all if there are none.
    pub only: Vec<String>,
}

impl Options {
    pub fn parse(args: &[&str]) -> Result<Self, String> {
        let work = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("target/report");
        let mut options = Self {
            words: Vec::new(),
            rounds: 7,
            minutes: 45.0,
            work,
            fresh: false,
            small: false,
            as_built: false,
            publish: false,
            cold: false,
            only: Vec::new(),
        };
        let mut args = args.iter();
        while let Some(&arg) = args.next() {
            let (name, given) = arg
                .split_once('=')
                .map_or((arg, None), |(name, value)| (name, Some(value)));
            let mut value = || {
                given
                    .or_else(|| args.next().copied())
                    .ok_or_else(|| format!("{name} needs a value\n{USAGE}"))
            };
            match name {
                "--rounds" => options.rounds = number(name, value()?)?,
                "--minutes" => options.minutes = number(name, value()?)?,
                "--work" => {
                    options.work =
                        std::path::absolute(value()?).map_err(|e| format!("--work: {e}"))?
                }
                "--only" => options.only = value()?.split(',').map(str::to_owned).collect(),
                "--fresh" => options.fresh = true,
                "--small" => options.small = true,
                "--as-built" => options.as_built = true,
                "--publish" => options.publish = true,
                "--cold" => options.cold = true,
                word if !word.starts_with('-') => options.words.push(arg.to_owned()),
                _ => return Err(format!("{arg:?} is not understood\n{USAGE}")),
            }
        }
        if options.rounds == 0 {
            Err("--rounds 0 measures nothing".to_owned())
        } else {
            Ok(options)
        }
    }

    /// Where the large files are.
    pub fn files(&self) -> PathBuf {
        self.work.join(if self.small { "small" } else { "files" })
    }
}

fn number<T: std::str::FromStr<Err: std::fmt::Display>>(
    name: &str,
    text: &str,
) -> Result<T, String> {
    text.parse().map_err(|e| format!("{name}: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_follow_or_are_joined() {
        let options =
            Options::parse(&["load", "--rounds=3", "--only", "ours,torch", "--small"]).unwrap();
        assert_eq!(
            (
                options.words,
                options.rounds,
                options.only.len(),
                options.small
            ),
            (vec!["load".to_owned()], 3, 2, true)
        );
        assert!(
            Options::parse(&["--rounds"]).is_err() && Options::parse(&["--rounds", "0"]).is_err()
        );
        assert!(
            Options::parse(&["--quick"])
                .unwrap_err()
                .contains("not understood")
        );
    }
}
