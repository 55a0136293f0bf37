//! Policies, as they are named on the command line.

use std::path::{Path, PathBuf};

use anamnesis_maio::Maio;
use anamnesis_ppc::host::{HostCommand, Library};
use anamnesis_ppc::{Eager, Limits, Nothing, Policy, Runtime};

use crate::exit::Failure;

/// `[DIR=]POLICY[:CONFIG]`.
pub(super) struct Named<'a> {
    dir: PathBuf,
    name: &'a str,
    config: &'a str,
}

impl<'a> Named<'a> {
    /// `dir` is where it decides if it does not say.
    pub(super) fn parse(text: &'a str, dir: &Path) -> Self {
        // an `=` behind the colon is the configuration's
        let head = text.split_once(':').map_or(text, |(head, _)| head);
        let (at, rest) = match head.find('=') {
            Some(equals) => (dir.join(&text[..equals]), &text[equals + 1..]),
            None => (dir.to_owned(), text),
        };
        let (name, config) = rest.split_once(':').unwrap_or((rest, ""));
        Self {
            dir: at,
            name,
            config,
        }
    }

    /// Registers it.
    pub(super) fn register(&self, runtime: &Runtime, limits: Limits) -> Result<(), Failure> {
        let policy: Box<dyn Policy> = match self.name {
            "none" => Box::new(Nothing),
            "eager" => Box::new(Eager::default()),
            "maio" => Box::new(Maio::new()),
            path if path.contains(['/', '.']) => {
                let own = std::env::current_exe().map_err(|e| {
                    Failure::new("io", format!("this program: {e}"), "start it by its path")
                })?;
                let host = HostCommand::new(own).arg("ppc").arg("host");
                Box::new(Library::new(host, path, limits))
            }
            name => {
                let what = format!("no policy {name:?}");
                return Err(Failure::new(
                    "usage",
                    what,
                    "none, eager, maio:TEMPLATE, or the path of a shared library",
                ));
            }
        };
        runtime
            .reg_policy(&self.dir, self.name, policy, self.config)
            .map_err(super::failure)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_directories_and_configurations() {
        let parsed = |text| {
            let Named { dir, name, config } = Named::parse(text, Path::new("/models"));
            (
                dir.display().to_string(),
                name.to_owned(),
                config.to_owned(),
            )
        };
        let of = |dir: &str, name: &str, config: &str| {
            (dir.to_owned(), name.to_owned(), config.to_owned())
        };
        assert_eq!(parsed("none"), of("/models", "none", ""));
        assert_eq!(
            parsed("maio:t.iot,evict=no"),
            of("/models", "maio", "t.iot,evict=no")
        );
        assert_eq!(
            parsed("llama=maio:t.iot,evict=no"),
            of("/models/llama", "maio", "t.iot,evict=no")
        );
        assert_eq!(
            parsed("/srv/a=./p.so:x:y=z"),
            of("/srv/a", "./p.so", "x:y=z")
        );
    }
}
