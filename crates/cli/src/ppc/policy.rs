//! The `--policy` argument.

use std::path::{Path, PathBuf};

use anamnesis::source::local_path;
use anamnesis_maio::{Maio, MaioConfig};
use anamnesis_ppc::host::{HostCommand, LibraryPolicy};
use anamnesis_ppc::{EagerPolicy, NoopPolicy, Policy, PolicyLimits, Runtime};

use crate::exit::Failure;
use crate::warm::PolicyModel;

/// A parsed `--policy` argument: `[DIR=]POLICY[:CONFIG]`.
pub(super) struct PolicyArgument<'a> {
    dir: PathBuf,
    name: &'a str,
    config: &'a str,
}

impl<'a> PolicyArgument<'a> {
    /// Parses an argument. `dir` is the directory of `--dir`: the default of DIR, and the base of a relative one.
    ///
    /// # Errors
    ///
    /// DIR is a repository in the hub's cache without a snapshot that could be chosen.
    pub(super) fn parse(text: &'a str, dir: &Path) -> Result<Self, Failure> {
        // an equals sign after the first colon belongs to the configuration
        let before_config = text.split_once(':').map_or(text, |(before, _)| before);
        let (at, rest) = match before_config.find('=') {
            Some(equals) => {
                let at = local_path(dir.join(&text[..equals])).map_err(Failure::from)?;
                (at, &text[equals + 1..])
            }
            None => (dir.to_owned(), text),
        };
        let (name, config) = rest.split_once(':').unwrap_or((rest, ""));
        Ok(Self {
            dir: at,
            name,
            config,
        })
    }

    /// The model that the policy would prefetch; `None` for a policy that prefetches none.
    pub(super) fn model(&self) -> Option<PolicyModel> {
        let whole = || PolicyModel {
            dir: self.dir.clone(),
            template: None,
        };
        match self.name {
            "eager" => Some(whole()),
            "maio" => {
                let config: MaioConfig = self.config.parse().ok()?;
                config.prefetch.then(|| PolicyModel {
                    dir: self.dir.join(config.model),
                    template: config.template,
                })
            }
            _ => None,
        }
    }

    /// Registers the policy with the runtime.
    pub(super) fn register(&self, runtime: &Runtime, limits: PolicyLimits) -> Result<(), Failure> {
        let policy: Box<dyn Policy> = match self.name {
            "none" => Box::new(NoopPolicy),
            "eager" => Box::new(EagerPolicy::default()),
            "maio" => Box::new(Maio::new()),
            path if path.contains(['/', '.']) => {
                let own = std::env::current_exe().map_err(|e| {
                    Failure::new(
                        "io",
                        format!("this program: {e}"),
                        "start `anamnesis` by its full path",
                    )
                })?;
                // this program is its own host: no second executable has to be installed
                let host = HostCommand::new(own).arg("ppc").arg("host");
                Box::new(LibraryPolicy::new(host, path, limits))
            }
            name => {
                let message = format!("unknown policy {name:?}");
                return Err(Failure::new(
                    "usage",
                    message,
                    "use none, eager, maio:TEMPLATE or the path of a shared library",
                ));
            }
        };
        runtime
            .register(&self.dir, self.name, policy, self.config)
            .map_err(super::failure)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_argument_is_parsed_into_directory_name_and_configuration() {
        let parsed = |text| {
            let parsed = PolicyArgument::parse(text, Path::new("/models"));
            let PolicyArgument { dir, name, config } = parsed.unwrap();
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
        let model = |text| {
            PolicyArgument::parse(text, Path::new("/models"))
                .unwrap()
                .model()
        };
        assert_eq!(model("none"), None);
        assert_eq!(model("maio:t.iot,prefetch=no"), None);
        let expected = |dir: &str, template: Option<&str>| {
            Some(PolicyModel {
                dir: dir.into(),
                template: template.map(PathBuf::from),
            })
        };
        assert_eq!(
            model("a=maio:t.iot,model=b"),
            expected("/models/a/b", Some("t.iot"))
        );
        assert_eq!(model("maio:templates"), expected("/models", None));
        assert_eq!(model("eager"), expected("/models", None));
        assert_eq!(
            parsed("/srv/a=./p.so:x:y=z"),
            of("/srv/a", "./p.so", "x:y=z")
        );
    }
}
