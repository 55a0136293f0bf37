//! The policy.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anamnesis_ppc::{Access, Context, Ios, Namespace, Policy, Prefetch, Wants};
use anamnesis_template::{Limits, Template};

use crate::config::Config;
use crate::follow::Follow;
use crate::model::Model;
use crate::record::Record;
use crate::state::{Phase, State, Watch};
use crate::workers::{Accelerators, Workers};

/// Model-accelerated I/O: follows the template of a service, or records it. Set by a [`Config`] with its registration.
#[derive(Debug)]
pub struct Maio {
    root: PathBuf,
    config: Config,
    namespace: Option<Arc<Namespace>>,
    part: Part,
    state: State,
    watch: Watch,
    calls: u64,
}

/// Accesses from one renewal of what a [`Watch`] sees to the next.
const RENEW: u64 = 256;

#[derive(Debug)]
enum Part {
    Idle,
    Follow(Box<Follow>),
    Record(Box<Record>),
}

/// A template that was looked for.
enum Found {
    Template(Template),
    /// It is to be recorded, to be kept there.
    Missing(PathBuf),
    Unfit(Phase, String),
}

impl Default for Maio {
    fn default() -> Self {
        Self::new()
    }
}

impl Maio {
    /// A policy that will be set by its registration.
    pub fn new() -> Self {
        let (config, state) = (Config::default(), State::default());
        Self {
            root: "/".into(),
            config,
            namespace: None,
            part: Part::Idle,
            state,
            watch: Watch::default(),
            calls: 0,
        }
    }

    /// Looks for processes and accelerators below another root: `root/proc`, `root/dev`.
    #[must_use]
    pub fn root(mut self, root: impl Into<PathBuf>) -> Self {
        self.root = root.into();
        self
    }

    /// What it is doing and has done.
    pub fn state(&self) -> State {
        let mut state = self.state.clone();
        match &self.part {
            Part::Idle => {}
            Part::Follow(follow) => follow.tell(&mut state),
            Part::Record(record) => state.recorded = record.nbytes(),
        }
        state
    }

    /// Sees what it is doing after it was given to a runtime.
    pub fn watch(&self) -> Watch {
        self.watch.clone()
    }

    /// Counts an access.
    fn count(&mut self) {
        self.calls += 1;
        if self.calls.is_multiple_of(RENEW) {
            self.watch.renew(self.state());
        }
    }

    /// Finds the template that the configuration names.
    fn find(&mut self, model: &Model) -> Result<Found, String> {
        if let Some(path) = &self.config.template {
            if !path.exists() && self.config.generate == Some(true) {
                return Ok(Found::Missing(path.clone()));
            }
            let template = load(path)?;
            return match model.differs(&template) {
                None => Ok(Found::Template(template)),
                Some(_) if self.config.generate == Some(true) => Ok(Found::Missing(path.clone())),
                Some(why) => Err(format!(
                    "{}: a template of another model, or stale: {why}",
                    path.display()
                )),
            };
        }
        let Some(templates) = &self.config.templates else {
            return Err("no template: give template=FILE or templates=DIR".into());
        };
        let parameters = self
            .config
            .parameters
            .iter()
            .map(|(key, value)| (&**key, &**value));
        let id = self
            .config
            .service
            .clone()
            .unwrap_or_else(|| model.service(parameters).to_string());
        let path = templates.join(format!("{id}.iot"));
        self.state.service = Some(id);
        let generate = self.config.generate.unwrap_or(true);
        if !path.exists() {
            let why = || format!("{} is not there, and generate=no", path.display());
            return Ok(if generate {
                Found::Missing(path)
            } else {
                Found::Unfit(Phase::Idle, why())
            });
        }
        let template = load(&path)?;
        Ok(match model.differs(&template) {
            None => Found::Template(template),
            Some(why) if generate => {
                tracing::warn!("{} is stale and recorded anew: {why}", path.display());
                Found::Missing(path)
            }
            Some(why) => Found::Unfit(Phase::Stale, format!("{}: {why}", path.display())),
        })
    }
}

impl Policy for Maio {
    fn init(&mut self, context: &Context) -> Result<(), String> {
        self.config = context
            .config
            .parse()
            .map_err(|error: crate::ConfigError| error.to_string())?;
        (self.part, self.state) = (Part::Idle, State::default());
        self.namespace = Some(Arc::clone(&context.namespace));
        let model = Model::new(&context.namespace, &self.config.model);
        match self.find(&model)? {
            Found::Template(template) => {
                tracing::info!("following {template}");
                self.state.template = Some(template.to_string());
                let memory = self.config.memory.unwrap_or(context.memory);
                let follow = Follow::new(&template, &model, &self.config, memory, &self.root);
                self.part = Part::Follow(Box::new(follow));
            }
            Found::Missing(path) => {
                tracing::info!("recording {}", path.display());
                let accelerators = Accelerators::new(&self.root, self.config.devices.as_deref());
                let workers = Workers::new(
                    &self.config.workers,
                    false,
                    &self.root.join("proc"),
                    &accelerators,
                );
                let id = self.state.service.as_ref().and_then(|id| id.parse().ok());
                let record = Record::new(model, workers, path, id, &self.config);
                (self.part, self.state.phase) = (Part::Record(Box::new(record)), Phase::Recording);
            }
            Found::Unfit(phase, why) => {
                tracing::warn!("{why}; the kernel decides");
                (self.state.phase, self.state.why) = (phase, Some(why));
            }
        }
        self.watch.renew(self.state());
        Ok(())
    }

    fn renew(&mut self, context: &Context) -> Result<(), String> {
        let now = &context.namespace;
        let before = self.namespace.replace(Arc::clone(now));
        let stayed = |path: &Path| {
            let before = before.as_ref().and_then(|before| before.get(path));
            before.is_some() && before == now.get(path)
        };
        let goes_on = match &mut self.part {
            Part::Idle => false,
            Part::Follow(follow) => follow.paths().all(stayed),
            Part::Record(record) => record.renew(Model::new(now, &self.config.model), stayed),
        };
        if !goes_on && let Err(why) = self.init(context) {
            // they may change again
            tracing::warn!("{why}; the kernel decides");
            (self.state.phase, self.state.why) = (Phase::Stale, Some(why));
            self.watch.renew(self.state());
        }
        Ok(())
    }

    fn wants(&self) -> Wants {
        match &self.part {
            Part::Idle => Wants::default(),
            Part::Follow(follow) => {
                let Config {
                    prefetch, evict, ..
                } = self.config;
                Wants {
                    prefetch,
                    evict,
                    touch: follow.told(),
                    recording: false,
                }
            }
            Part::Record(_) => {
                let touch = self.config.touch != Some(false);
                Wants {
                    prefetch: !touch,
                    evict: false,
                    touch,
                    recording: touch,
                }
            }
        }
    }

    fn exit(&mut self) {
        self.watch.renew(self.state());
        match &mut self.part {
            Part::Idle => {}
            Part::Record(record) => record.save(),
            Part::Follow(_) => {
                for group in self.state().groups {
                    tracing::info!(
                        rank = group.rank,
                        front = group.front,
                        nbytes = group.nbytes,
                        restarts = group.restarts,
                        jumps = group.jumps,
                        evicted = group.evicted,
                        "followed"
                    );
                }
            }
        }
    }

    fn start(&mut self) -> Vec<Prefetch> {
        match &mut self.part {
            Part::Follow(follow) if self.config.start && self.config.prefetch => follow.start(),
            _ => Vec::new(),
        }
    }

    fn prefetch(&mut self, miss: &Access) -> Option<Prefetch> {
        self.count();
        match &mut self.part {
            Part::Idle => None,
            Part::Follow(follow) => follow.miss(miss),
            Part::Record(record) => {
                record.access(miss);
                None
            }
        }
    }

    fn evict(&mut self, miss: Option<&Access>) -> Option<Ios> {
        self.count();
        match &mut self.part {
            Part::Follow(follow) if self.config.evict => follow.evict(miss),
            _ => None,
        }
    }

    fn touch(&mut self, access: &Access) -> Option<Prefetch> {
        self.count();
        match &mut self.part {
            Part::Idle => None,
            Part::Follow(follow) => follow.touch(access),
            Part::Record(record) => {
                record.access(access);
                None
            }
        }
    }
}

fn load(path: &Path) -> Result<Template, String> {
    Template::load(path, &Limits::default()).map_err(|error| match error.remedy() {
        Some(remedy) => format!("{error}; {remedy}"),
        None => error.to_string(),
    })
}
