//! The configuration of a policy, parsed from the string of its registration.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use crate::options::{MaioOption, OPTIONS, is_known};

/// The configuration of a [`Maio`](crate::Maio), parsed from its registration: items separated by commas.
///
/// [`OPTIONS`](Self::OPTIONS) lists them.
///
/// Sizes are bytes, with `K`, `M`, `G` or `T` in powers of 1024; times are seconds.
///
/// ```
/// use anamnesis_maio::MaioConfig;
///
/// let config: MaioConfig = "/var/lib/templates,param.tp=4,distance=512M,workers=env:LOCAL_RANK".parse()?;
/// assert_eq!(config.distance, Some(512 << 20));
/// let error = "T.iot,distance=far".parse::<MaioConfig>().unwrap_err();
/// assert_eq!(error.to_string(), "distance=far: not a size, such as 512M or 1G");
/// # Ok::<(), anamnesis_maio::MaioConfigError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MaioConfig {
    /// The file of the template.
    pub template: Option<PathBuf>,
    /// The directory of templates.
    pub templates: Option<PathBuf>,
    /// The service's id: a file name without its extension.
    pub service: Option<String>,
    /// Run-time parameters of the service.
    pub parameters: BTreeMap<String, String>,
    /// The directory of the model within the namespace.
    pub model: PathBuf,
    /// Whether a missing or stale template is recorded; `None`: yes with `templates`, no with
    /// `template`.
    pub generate: Option<bool>,
    /// Gaps up to this many bytes are filled in a recording.
    pub gap: u64,
    /// A recording ends when nothing was read for this long after a load, or when the processes that have read most of the model
    /// have ended.
    pub idle: Duration,
    /// Which process is which worker.
    pub workers: WorkerRule,
    /// The first and the last worker that run on this machine.
    pub ranks: Option<(u32, u32)>,
    /// The accelerators of the service.
    pub devices: Option<Vec<u32>>,
    /// Whether to prefetch when the service starts, before its first miss.
    pub start: bool,
    /// Whether to prefetch.
    pub prefetch: bool,
    /// How far ahead of a worker to prefetch.
    pub window: PrefetchWindow,
    /// Whether to place bytes on the NUMA node of the worker's accelerator.
    pub affinity: bool,
    /// Whether to evict behind the reader.
    pub evict: bool,
    /// Bytes kept behind a worker; `None`: 1 GiB, or less under memory pressure.
    pub distance: Option<u64>,
    /// Bytes of memory for the page cache; `None`: what the runtime states.
    pub memory: Option<u64>,
    /// Whether to subscribe to every access; `None`: if the model exceeds memory.
    pub touch: Option<bool>,
}

/// How the worker of a process is identified.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum WorkerRule {
    /// By the bytes that it reads, where workers read different bytes; otherwise by its
    /// environment, its accelerator or the order of appearance, whichever applies first.
    #[default]
    Auto,
    /// By the bytes that it reads. A recording has no template to compare with and uses the order
    /// of appearance.
    Bytes,
    /// By the order of appearance: the first process that reads is worker 0.
    Order,
    /// By the first of these environment variables that is a number.
    Env(Vec<String>),
    /// By the accelerator whose device file it has open.
    Accelerator,
}

/// How far ahead of a worker bytes are prefetched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PrefetchWindow {
    /// To the end of the worker's schedule if the model fits into memory, otherwise as far as
    /// memory permits.
    #[default]
    Auto,
    /// To the end of the worker's schedule.
    All,
    /// This many bytes.
    Bytes(u64),
}

/// An invalid item of a configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{item}: {reason}")]
pub struct MaioConfigError {
    /// The item as it was given.
    pub item: String,
    /// The fault of the value.
    pub reason: String,
}

impl Default for MaioConfig {
    fn default() -> Self {
        Self {
            template: None,
            templates: None,
            service: None,
            parameters: BTreeMap::new(),
            model: PathBuf::new(),
            generate: None,
            gap: 2 << 20,
            idle: Duration::from_secs(60),
            workers: WorkerRule::Auto,
            ranks: None,
            devices: None,
            start: true,
            prefetch: true,
            window: PrefetchWindow::Auto,
            affinity: true,
            evict: true,
            distance: None,
            memory: None,
            touch: None,
        }
    }
}

impl FromStr for MaioConfig {
    type Err = MaioConfigError;

    fn from_str(text: &str) -> Result<Self, MaioConfigError> {
        let mut config = Self::default();
        for item in text
            .split(',')
            .map(str::trim)
            .filter(|item| !item.is_empty())
        {
            let set = match item.split_once('=') {
                Some((key, value)) => config.set(key.trim(), value.trim()),
                None => config.set_path(item),
            };
            set.map_err(|reason| MaioConfigError {
                item: item.into(),
                reason: reason.to_string(),
            })?;
        }
        // after all items, as they may have any order
        if config.template.is_some() && config.templates.is_some() {
            let reason = "`template` and `templates` exclude each other".into();
            return Err(MaioConfigError {
                item: text.into(),
                reason,
            });
        }
        Ok(config)
    }
}

impl MaioConfig {
    /// All options. An item without a key is `template=` if it ends with `.iot` or `.json`, and `templates=` otherwise.
    pub const OPTIONS: &[MaioOption] = OPTIONS;

    /// Parses an item without a key.
    fn set_path(&mut self, item: &str) -> Result<(), InvalidValue> {
        let key = if Path::new(item)
            .extension()
            .is_some_and(|end| end == "iot" || end == "json")
        {
            "template"
        } else {
            "templates"
        };
        self.set(key, item)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), InvalidValue> {
        match key {
            // by the table of the documentation, so that no option is accepted that is not in it
            _ if !is_known(key) => return Err(InvalidValue("unknown option")),
            _ if value.is_empty() => return Err(InvalidValue("the value is missing")),
            "template" => self.template = Some(value.into()),
            "templates" => self.templates = Some(value.into()),
            "service" => self.service = Some(service_id_text(value)?),
            "model" => self.model = relative_directory(value)?,
            "generate" => self.generate = Some(yes_or_no(value)?),
            "gap" => self.gap = byte_size(value)?,
            "idle" => self.idle = seconds(value)?,
            "workers" => self.workers = value.parse()?,
            "ranks" => self.ranks = Some(number_range(value)?),
            "devices" => {
                let (first, last) = number_range(value)?;
                self.devices = Some((first..=last).collect());
            }
            "start" => self.start = yes_or_no(value)?,
            "prefetch" => self.prefetch = yes_or_no(value)?,
            "window" if value == "auto" => self.window = PrefetchWindow::Auto,
            "window" if value == "all" => self.window = PrefetchWindow::All,
            "window" => self.window = PrefetchWindow::Bytes(byte_size(value)?),
            "affinity" => self.affinity = yes_or_no(value)?,
            "evict" => self.evict = yes_or_no(value)?,
            "distance" => self.distance = Some(byte_size(value)?),
            "memory" => self.memory = Some(byte_size(value)?),
            "touch" if value == "auto" => self.touch = None,
            "touch" => self.touch = Some(yes_or_no(value)?),
            _ => match key.strip_prefix("param.").filter(|key| !key.is_empty()) {
                Some(key) => drop(self.parameters.insert(key.into(), value.into())),
                // not reached: `is_known` has checked the key
                None => return Err(InvalidValue("unknown option")),
            },
        }
        Ok(())
    }
}

impl FromStr for WorkerRule {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        Ok(match text {
            "auto" => Self::Auto,
            "bytes" => Self::Bytes,
            "order" => Self::Order,
            "accelerator" => Self::Accelerator,
            "env" => Self::Env(RANK_VARIABLES.map(String::from).into()),
            _ => match text.strip_prefix("env:").filter(|name| !name.is_empty()) {
                Some(name) => Self::Env(vec![name.into()]),
                None => {
                    return Err(InvalidValue(
                        "expected one of auto, bytes, order, env, env:NAME, accelerator",
                    ));
                }
            },
        })
    }
}

/// Environment variables in which launchers (torchrun, Open MPI, Slurm) state the rank of a
/// process.
pub(crate) const RANK_VARIABLES: [&str; 4] =
    ["RANK", "LOCAL_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"];

/// The fault of a value, in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidValue(&'static str);

impl fmt::Display for InvalidValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

fn yes_or_no(text: &str) -> Result<bool, InvalidValue> {
    match text {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err(InvalidValue("expected yes or no")),
    }
}

fn byte_size(text: &str) -> Result<u64, InvalidValue> {
    let wrong = InvalidValue("not a size, such as 512M or 1G");
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    // `1G` and `1GiB` are the same
    let shift = match text[digits.len()..].trim_end_matches("iB") {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return Err(wrong),
    };
    digits
        .parse::<u64>()
        .ok()
        .and_then(|n| n.checked_mul(1 << shift))
        .ok_or(wrong)
}

fn seconds(text: &str) -> Result<Duration, InvalidValue> {
    let number = text.strip_suffix('s').unwrap_or(text).parse::<f64>().ok();
    let time = number.and_then(|number| Duration::try_from_secs_f64(number).ok());
    // a recording would end at once
    time.filter(|time| !time.is_zero())
        .ok_or(InvalidValue("not a time in seconds, such as 60s"))
}

fn number_range(text: &str) -> Result<(u32, u32), InvalidValue> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let span = first.parse().ok().zip(last.parse().ok());
    // bounded, because the devices of a range become a list
    let span = span.filter(|(first, last)| first <= last && last - first < 1 << 16);
    span.ok_or(InvalidValue("not a range of numbers, such as 0-3"))
}

/// Accepts an id that names a file directly inside the directory of templates, and none outside of
/// it.
fn service_id_text(text: &str) -> Result<String, InvalidValue> {
    let plain = text
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || "._-".contains(c));
    // a file name has at most 255 bytes, of which the extension and a temporary name need some
    let plain = plain && !text.starts_with('.') && text.len() <= 200;
    plain.then(|| text.into()).ok_or(InvalidValue(
        "an id consists of at most 200 letters, digits, `.`, `_` and `-`, and does not begin with `.`",
    ))
}

fn relative_directory(text: &str) -> Result<PathBuf, InvalidValue> {
    // `./model` is a usual form; `..` and absolute paths would leave the namespace
    let path: PathBuf = Path::new(text)
        .components()
        .filter(|part| *part != Component::CurDir)
        .collect();
    let plain = path
        .components()
        .all(|part| matches!(part, Component::Normal(_)));
    if plain {
        Ok(path)
    } else {
        Err(InvalidValue("not a path relative to the namespace's root"))
    }
}
