//! The `--policy` argument.

use std::path::{Path, PathBuf};

use anamnesis::quote::escape;
use anamnesis::source::local_path;
use anamnesis_maio::{Maio, MaioConfig};
use anamnesis_os::trust;
use anamnesis_ppc::host::{HostCommand, LibraryPolicy};
use anamnesis_ppc::{EagerPolicy, NoopPolicy, Policy, PolicyLimits, Runtime};

use crate::failure::Failure;
use crate::shown_path::shown;
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
        Ok(Self::of_directory(rest, at))
    }

    /// Parses an argument without DIR.
    pub(super) fn of_directory(text: &'a str, dir: PathBuf) -> Self {
        let (name, config) = text.split_once(':').unwrap_or((text, ""));
        Self { dir, name, config }
    }

    /// An argument without DIR, with the same meaning in any working directory: paths of libraries and of MAIO's templates are
    /// absolute.
    ///
    /// # Errors
    ///
    /// The working directory is not known.
    pub(super) fn with_absolute_paths(text: &'a str) -> Result<String, Failure> {
        let absolute = |path: &str| {
            let absolute = std::path::absolute(path).map_err(|error| {
                let message = format!("{path}: {error}");
                Failure::new("io", message, "check the path and its permissions")
            })?;
            Ok::<_, Failure>(absolute.to_string_lossy().into_owned())
        };
        let Self { name, config, .. } = Self::of_directory(text, PathBuf::new());
        if is_library(name) {
            return Ok(format!("{}:{config}", absolute(name)?));
        }
        if name != "maio" {
            return Ok(text.to_owned());
        }
        // only MAIO's configuration is known here; a library's is opaque, and may contain commas of its own
        let items = config.split(',').map(str::trim);
        let items = items
            .filter(|item| !item.is_empty())
            .map(|item| match item.split_once('=') {
                None => absolute(item),
                Some((key @ ("template" | "templates"), path)) => {
                    Ok(format!("{key}={}", absolute(path)?))
                }
                Some(_) => Ok(item.to_owned()),
            });
        let items: Vec<String> = items.collect::<Result<_, Failure>>()?;
        Ok(format!("maio:{}", items.join(",")))
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
            "maio" => {
                if let Ok(config) = self.config.parse::<MaioConfig>() {
                    let named = [config.template, config.templates];
                    named.into_iter().flatten().for_each(|path| {
                        warn_of_stranger(&path, "says what this process prefetches and evicts");
                    });
                }
                Box::new(Maio::new())
            }
            path if is_library(path) => {
                if let Some(why) = LibraryPolicy::UNAVAILABLE {
                    let message = format!("policies in shared libraries are unavailable: {why}");
                    let remedy = "use none, eager or maio:TEMPLATE, or the build for glibc";
                    return Err(Failure::new("unavailable", message, remedy));
                }
                let own = std::env::current_exe().map_err(|e| {
                    Failure::new(
                        "io",
                        format!("this program: {e}"),
                        "start `anamnesis` by its full path",
                    )
                })?;
                warn_of_stranger(Path::new(path), "runs with the rights of this process");
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

/// Warns that another user can change a file or directory, which need not exist, that the caller has named.
fn warn_of_stranger(path: &Path, role: &str) {
    // a path that cannot be looked at cannot be read either, which is an error of its own
    if let Ok(Some(stranger)) = trust::stranger_to_place(path) {
        eprintln!(
            "anamnesis: warning: {} {role}, and {}",
            escape(&shown(path)),
            escape(&stranger.to_string())
        );
    }
}

/// Whether the name of a policy is the path of a shared library.
fn is_library(name: &str) -> bool {
    // no built-in policy has such a name, and `dlopen` searches the system's directories for one without a slash
    name.contains(['/', '.'])
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
        let absolute = |text| PolicyArgument::with_absolute_paths(text).unwrap();
        let own = std::env::current_dir().unwrap().display().to_string();
        assert_eq!(absolute("eager"), "eager");
        assert_eq!(
            absolute("maio:t.iot, evict=no"),
            format!("maio:{own}/t.iot,evict=no")
        );
        assert_eq!(
            absolute("maio:templates=/srv/t,param.tp=2"),
            "maio:/srv/t,param.tp=2".replace("/srv", "templates=/srv")
        );
        assert_eq!(absolute("./p.so:x=y"), format!("{own}/p.so:x=y"));
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
