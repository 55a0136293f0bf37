//! Options of `peers report` and of the single comparisons.

use std::path::PathBuf;

pub const USAGE: &str = "\
options:
  --rounds N     processes per variant (default 7)
  --minutes N    time of all sections together (default 74)
  --only NAME,…  only variants whose names contain one of these
  --cold         `load`: evict the file from the page cache before each load
  --small        files of a hundredth of the size: tests the harness, measures nothing
  --work DIR     directory of generated files, Python environment and finished cases (benches/peers/target/report)
  --fresh        repeat the cases that an interrupted run has finished
  --as-built     build and install nothing
  --publish      `report`: afterwards render the results into the documents
  --tables       `report`: print the tables of the committed results and measure nothing";

#[derive(Clone, Debug)]
pub struct Options {
    /// Arguments that are no options: files, types or sections.
    pub words: Vec<String>,
    /// Processes per variant.
    pub rounds: usize,
    /// Time of all sections together. Variants get fewer rounds, but at least three, when it does not suffice.
    pub minutes: f64,
    /// Directory of generated files, the Python environment and finished cases.
    pub work: PathBuf,
    /// Repeats cases that an interrupted run has finished.
    pub fresh: bool,
    /// Files of a hundredth of the size.
    pub small: bool,
    /// Builds and installs nothing; what is missing is reported.
    pub as_built: bool,
    /// Renders the results into the documents afterwards.
    pub publish: bool,
    /// Prints the tables of the committed results instead of measuring.
    pub tables: bool,
    /// Evicts the file from the page cache before each load.
    pub cold: bool,
    /// Only variants whose names contain one of these; empty for all.
    pub only: Vec<String>,
}

impl Options {
    pub fn parse(args: &[&str]) -> Result<Self, String> {
        let work = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("target/report");
        let mut options = Self {
            words: Vec::new(),
            rounds: 7,
            minutes: 74.0,
            work,
            fresh: false,
            small: false,
            as_built: false,
            publish: false,
            tables: false,
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
                "--tables" => options.tables = true,
                "--cold" => options.cold = true,
                word if !word.starts_with('-') => options.words.push(arg.to_owned()),
                _ => return Err(format!("unknown option {arg:?}\n{USAGE}")),
            }
        }
        if options.rounds == 0 {
            Err("--rounds must be at least 1".to_owned())
        } else {
            Ok(options)
        }
    }

    /// Directory of the generated files.
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
                .contains("unknown option")
        );
    }
}
