//! What a registration says: which template, and which of the policy's parts.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

/// How a [`Maio`](crate::Maio) is set, from the string of its registration: items with commas between them.
///
/// | item | means | default |
/// |---|---|---|
/// | `T.iot`, `template=T.iot` | follow this template | |
/// | `DIR`, `templates=DIR` | follow the template of the service in this directory, `<id>.iot` | |
/// | `service=ID` | the service's id | computed from the model and `param.*` |
/// | `param.KEY=VALUE` | a run-time parameter of the service, part of its id | |
/// | `model=DIR` | where in the namespace the model is | its root |
/// | `generate=yes\|no` | record the template if there is none | `yes` with `templates` |
/// | `gap=SIZE` | of a recording: gaps up to this size are filled | `2M` |
/// | `idle=TIME` | of a recording: it ends when nothing was read for so long after a load | `60s` |
/// | `workers=auto\|bytes\|order\|env\|env:NAME\|accelerator` | which process is which worker | `auto` |
/// | `ranks=0-3` | the workers that run on this machine | all |
/// | `devices=0-3` | the accelerators of the service, of worker 0, 1, … | all there are |
/// | `start=yes\|no` | prefetch when the service starts, before the first miss | `yes` |
/// | `prefetch=yes\|no` | prefetch | `yes` |
/// | `window=auto\|all\|SIZE` | how far ahead of a worker | as memory allows |
/// | `affinity=yes\|no` | bring bytes near the worker's accelerator | `yes` |
/// | `evict=yes\|no` | let go of what was read | `yes` |
/// | `distance=SIZE` | keep so much behind a worker | `1G`, less if memory is short |
/// | `memory=SIZE` | how much of memory is for the page cache | what the runtime says |
/// | `touch=auto\|yes\|no` | learn from every access where workers are, not from misses only | if memory is short |
///
/// Sizes are bytes, with `K`, `M`, `G` or `T` in powers of 1024; times are seconds.
///
/// ```
/// use anamnesis_maio::Config;
///
/// let config: Config = "/var/lib/templates,param.tp=4,distance=512M,workers=env:LOCAL_RANK".parse()?;
/// assert_eq!(config.distance, Some(512 << 20));
/// let error = "T.iot,distance=far".parse::<Config>().unwrap_err();
/// assert_eq!(error.to_string(), "distance=far: not a size, such as 512M or 1G");
/// # Ok::<(), anamnesis_maio::ConfigError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The template's file.
    pub template: Option<PathBuf>,
    /// The directory of templates.
    pub templates: Option<PathBuf>,
    /// The service's id, a file name without its ending.
    pub service: Option<String>,
    /// Run-time parameters of the service.
    pub parameters: BTreeMap<String, String>,
    /// Where in the namespace the model is.
    pub model: PathBuf,
    /// Record a template if there is none.
    pub generate: Option<bool>,
    /// Gaps up to so many bytes are filled in a recording.
    pub gap: u64,
    /// A recording ends when nothing was read for so long.
    pub idle: Duration,
    /// Which process is which worker.
    pub workers: Workers,
    /// The first and the last worker of this machine.
    pub ranks: Option<(u32, u32)>,
    /// The accelerators of the service.
    pub devices: Option<Vec<u32>>,
    /// Prefetch when the service starts.
    pub start: bool,
    /// Prefetch.
    pub prefetch: bool,
    /// How far ahead.
    pub window: Window,
    /// Bring bytes near the worker's accelerator.
    pub affinity: bool,
    /// Let go of what was read.
    pub evict: bool,
    /// Keep so much behind a worker.
    pub distance: Option<u64>,
    /// How much of memory is for the page cache.
    pub memory: Option<u64>,
    /// Learn from every access; `None`: if memory is short.
    pub touch: Option<bool>,
}

/// How it is known which worker a process is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Workers {
    /// By the bytes it reads, where workers read different bytes; else by its environment, the accelerator it holds,
    /// and the order of appearance, the first that tells.
    #[default]
    Auto,
    /// By the bytes it reads. A recording has nothing to compare with and takes the order.
    Bytes,
    /// The first process that reads is the first worker.
    Order,
    /// A variable of its environment; the first of these that is a number.
    Env(Vec<String>),
    /// The accelerator whose device file it has open.
    Accelerator,
}

/// How far ahead of a worker is prefetched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Window {
    /// To the end of what the worker reads if that fits into memory; else as far as fits.
    #[default]
    Auto,
    /// To the end.
    All,
    /// So many bytes.
    Bytes(u64),
}

/// An item of a configuration that cannot be meant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{item}: {why}")]
pub struct ConfigError {
    /// The item as it was given.
    pub item: String,
    /// What is wrong.
    pub why: String,
}

impl Default for Config {
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
            workers: Workers::Auto,
            ranks: None,
            devices: None,
            start: true,
            prefetch: true,
            window: Window::Auto,
            affinity: true,
            evict: true,
            distance: None,
            memory: None,
            touch: None,
        }
    }
}

impl FromStr for Config {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let mut config = Self::default();
        for item in text
            .split(',')
            .map(str::trim)
            .filter(|item| !item.is_empty())
        {
            let set = match item.split_once('=') {
                Some((key, value)) => config.set(key.trim(), value.trim()),
                None => config.path(item),
            };
            set.map_err(|why| ConfigError {
                item: item.into(),
                why: why.to_string(),
            })?;
        }
        if config.template.is_some() && config.templates.is_some() {
            let why = "give `template` or `templates`, not both".into();
            return Err(ConfigError {
                item: text.into(),
                why,
            });
        }
        Ok(config)
    }
}

impl Config {
    /// An item without a key.
    fn path(&mut self, item: &str) -> Result<(), Why> {
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

    fn set(&mut self, key: &str, value: &str) -> Result<(), Why> {
        match key {
            _ if value.is_empty() => return Err(Why("no value")),
            "template" => self.template = Some(value.into()),
            "templates" => self.templates = Some(value.into()),
            "service" => self.service = Some(name(value)?),
            "model" => self.model = beneath(value)?,
            "generate" => self.generate = Some(yes(value)?),
            "gap" => self.gap = size(value)?,
            "idle" => self.idle = time(value)?,
            "workers" => self.workers = value.parse()?,
            "ranks" => self.ranks = Some(span(value)?),
            "devices" => {
                let (first, last) = span(value)?;
                self.devices = Some((first..=last).collect());
            }
            "start" => self.start = yes(value)?,
            "prefetch" => self.prefetch = yes(value)?,
            "window" if value == "auto" => self.window = Window::Auto,
            "window" if value == "all" => self.window = Window::All,
            "window" => self.window = Window::Bytes(size(value)?),
            "affinity" => self.affinity = yes(value)?,
            "evict" => self.evict = yes(value)?,
            "distance" => self.distance = Some(size(value)?),
            "memory" => self.memory = Some(size(value)?),
            "touch" if value == "auto" => self.touch = None,
            "touch" => self.touch = Some(yes(value)?),
            _ => match key.strip_prefix("param.").filter(|key| !key.is_empty()) {
                Some(key) => drop(self.parameters.insert(key.into(), value.into())),
                None => return Err(Why("no such option")),
            },
        }
        Ok(())
    }
}

impl FromStr for Workers {
    type Err = Why;

    fn from_str(text: &str) -> Result<Self, Why> {
        Ok(match text {
            "auto" => Self::Auto,
            "bytes" => Self::Bytes,
            "order" => Self::Order,
            "accelerator" => Self::Accelerator,
            "env" => Self::Env(RANKS.map(String::from).into()),
            _ => match text.strip_prefix("env:").filter(|name| !name.is_empty()) {
                Some(name) => Self::Env(vec![name.into()]),
                None => return Err(Why("one of auto, bytes, order, env, env:NAME, accelerator")),
            },
        })
    }
}

/// Variables in which launchers say which worker a process is.
pub(crate) const RANKS: [&str; 4] = ["RANK", "LOCAL_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"];

/// What is wrong with a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Why(&'static str);

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

fn yes(text: &str) -> Result<bool, Why> {
    match text {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err(Why("yes or no")),
    }
}

fn size(text: &str) -> Result<u64, Why> {
    let wrong = Why("not a size, such as 512M or 1G");
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
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

fn time(text: &str) -> Result<Duration, Why> {
    let seconds = text.strip_suffix('s').unwrap_or(text).parse::<f64>().ok();
    let time = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    time.filter(|time| !time.is_zero())
        .ok_or(Why("not a time in seconds, such as 60s"))
}

fn span(text: &str) -> Result<(u32, u32), Why> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let span = first.parse().ok().zip(last.parse().ok());
    let span = span.filter(|(first, last)| first <= last && last - first < 1 << 16);
    span.ok_or(Why("not a span of numbers, such as 0-3"))
}

/// What names a file in the directory of templates and none outside.
fn name(text: &str) -> Result<String, Why> {
    let plain = text
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || "._-".contains(c));
    let plain = plain && !text.starts_with('.') && text.len() <= 200;
    plain
        .then(|| text.into())
        .ok_or(Why("an id is made of letters, digits, `.`, `_` and `-`"))
}

fn beneath(text: &str) -> Result<PathBuf, Why> {
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
        Err(Why("not a directory relative to the namespace's root"))
    }
}
