//! The policy [`Maio`]: what a runtime registers and calls.
//!
//! A registration finds a template and then either follows it (`follower.rs`), records it
//! (`recorder.rs`) or stays idle. The calls of a runtime are passed to that activity.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anamnesis_ppc::{
    FileAccess, Interests, Namespace, Policy, PolicyContext, PrefetchRequest, RangeList,
};
use anamnesis_template::{Template, TemplateLimits};

use crate::config::MaioConfig;
use crate::follower::TemplateFollower;
use crate::model_files::ModelFiles;
use crate::recorder::TemplateRecorder;
use crate::state::{MaioPhase, MaioState, StateWatch};
use crate::worker_identity::{Accelerators, WorkerIdentifier};

/// A page-cache policy that follows the template of an inference service, or records it. A
/// [`MaioConfig`] in the registration configures it.
#[derive(Debug)]
pub struct Maio {
    root: PathBuf,
    config: MaioConfig,
    namespace: Option<Arc<Namespace>>,
    activity: Activity,
    state: MaioState,
    watch: StateWatch,
    accesses: u64,
}

/// Number of events between two updates of what a [`StateWatch`] returns. Copying the state for
/// each event would cost more than handling the event.
const STATE_UPDATE_INTERVAL: u64 = 256;

#[derive(Debug)]
enum Activity {
    Idle,
    Follow(Box<TemplateFollower>),
    Record(Box<TemplateRecorder>),
}

/// The result of searching for the configured template.
enum TemplateLookup {
    Found(Template),
    /// The template is missing or stale: record it to this path.
    ToRecord(PathBuf),
    Unusable(MaioPhase, String),
}

impl Default for Maio {
    fn default() -> Self {
        Self::new()
    }
}

impl Maio {
    /// Creates a policy that is configured by its registration.
    pub fn new() -> Self {
        let (config, state) = (MaioConfig::default(), MaioState::default());
        Self {
            root: "/".into(),
            config,
            namespace: None,
            activity: Activity::Idle,
            state,
            watch: StateWatch::default(),
            accesses: 0,
        }
    }

    /// Searches processes and accelerators below another root: `root/proc`, `root/dev`, `root/sys`.
    #[must_use]
    pub fn root(mut self, root: impl Into<PathBuf>) -> Self {
        self.root = root.into();
        self
    }

    /// Returns the current activity and its counters.
    pub fn state(&self) -> MaioState {
        let mut state = self.state.clone();
        match &self.activity {
            Activity::Idle => {}
            Activity::Follow(follower) => follower.report(&mut state),
            Activity::Record(recorder) => state.recorded = recorder.nbytes(),
        }
        state
    }

    /// Returns a handle that observes the state after the policy was moved into a runtime.
    pub fn watch(&self) -> StateWatch {
        self.watch.clone()
    }

    /// Counts an event and updates the watched state at intervals.
    fn count(&mut self) {
        self.accesses += 1;
        if self.accesses.is_multiple_of(STATE_UPDATE_INTERVAL) {
            self.watch.update(self.state());
        }
    }

    /// Searches for the template that the configuration names.
    fn find_template(&mut self, model: &ModelFiles) -> Result<TemplateLookup, String> {
        if let Some(path) = &self.config.template {
            if !path.exists() && self.config.generate == Some(true) {
                return Ok(TemplateLookup::ToRecord(path.clone()));
            }
            let template = load(path)?;
            return match model.difference(&template) {
                None => Ok(TemplateLookup::Found(template)),
                // only on request: a path that was given by name may be a template that
                // is to be kept
                Some(_) if self.config.generate == Some(true) => {
                    Ok(TemplateLookup::ToRecord(path.clone()))
                }
                Some(reason) => Err(format!(
                    "{}: the template describes another model or is stale: {reason}",
                    path.display()
                )),
            };
        }
        let Some(templates) = &self.config.templates else {
            return Err("no template configured: set template=FILE or templates=DIR".into());
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
            .unwrap_or_else(|| model.service_id(parameters).to_string());
        let path = templates.join(format!("{id}.iot"));
        self.state.service = Some(id);
        let generate = self.config.generate.unwrap_or(true);
        if !path.exists() {
            let reason = || {
                format!(
                    "{} does not exist, and generate=no forbids recording it",
                    path.display()
                )
            };
            return Ok(if generate {
                TemplateLookup::ToRecord(path)
            } else {
                TemplateLookup::Unusable(MaioPhase::Idle, reason())
            });
        }
        let template = load(&path)?;
        Ok(match model.difference(&template) {
            None => TemplateLookup::Found(template),
            Some(reason) if generate => {
                tracing::warn!(
                    "{} is stale and will be recorded again: {reason}",
                    path.display()
                );
                TemplateLookup::ToRecord(path)
            }
            Some(reason) => {
                TemplateLookup::Unusable(MaioPhase::Stale, format!("{}: {reason}", path.display()))
            }
        })
    }
}

impl Policy for Maio {
    fn init(&mut self, context: &PolicyContext) -> Result<(), String> {
        self.config = context
            .config
            .parse()
            .map_err(|error: crate::MaioConfigError| error.to_string())?;
        (self.activity, self.state) = (Activity::Idle, MaioState::default());
        self.namespace = Some(Arc::clone(&context.namespace));
        let model = ModelFiles::new(&context.namespace, &self.config.model);
        match self.find_template(&model)? {
            TemplateLookup::Found(template) => {
                tracing::info!("following {template}");
                self.state.template = Some(template.to_string());
                let memory = self.config.memory.unwrap_or(context.memory);
                let follower =
                    TemplateFollower::new(&template, &model, &self.config, memory, &self.root);
                self.activity = Activity::Follow(Box::new(follower));
            }
            TemplateLookup::ToRecord(path) => {
                tracing::info!("recording {}", path.display());
                let accelerators = Accelerators::new(&self.root, self.config.devices.as_deref());
                let workers = WorkerIdentifier::new(
                    &self.config.workers,
                    false,
                    &self.root.join("proc"),
                    &accelerators,
                );
                let id = self.state.service.as_ref().and_then(|id| id.parse().ok());
                let recorder = TemplateRecorder::new(model, workers, path, id, &self.config);
                (self.activity, self.state.phase) =
                    (Activity::Record(Box::new(recorder)), MaioPhase::Recording);
            }
            TemplateLookup::Unusable(phase, reason) => {
                tracing::warn!("{reason}; the kernel alone manages the page cache");
                (self.state.phase, self.state.reason) = (phase, Some(reason));
            }
        }
        self.watch.update(self.state());
        Ok(())
    }

    fn files_changed(&mut self, context: &PolicyContext) -> Result<(), String> {
        let now = &context.namespace;
        let before = self.namespace.replace(Arc::clone(now));
        let unchanged = |path: &Path| {
            let before = before.as_ref().and_then(|before| before.get(path));
            before.is_some() && before == now.get(path)
        };
        let continues = match &mut self.activity {
            Activity::Idle => false,
            Activity::Follow(follower) => follower.paths().all(unchanged),
            Activity::Record(recorder) => {
                recorder.update_files(ModelFiles::new(now, &self.config.model), unchanged)
            }
        };
        if !continues && let Err(reason) = self.init(context) {
            // Deregistering would be final, while the files may change again.
            tracing::warn!("{reason}; the kernel alone manages the page cache");
            (self.state.phase, self.state.reason) = (MaioPhase::Stale, Some(reason));
            self.watch.update(self.state());
        }
        Ok(())
    }

    fn interests(&self) -> Interests {
        match &self.activity {
            Activity::Idle => Interests::default(),
            Activity::Follow(follower) => {
                let MaioConfig {
                    prefetch, evict, ..
                } = self.config;
                Interests {
                    prefetch,
                    evict,
                    touch: follower.needs_accesses(),
                    recording: false,
                }
            }
            Activity::Record(_) => {
                let touch = self.config.touch != Some(false);
                Interests {
                    prefetch: !touch,
                    evict: false,
                    touch,
                    recording: touch,
                }
            }
        }
    }

    fn exit(&mut self) {
        self.watch.update(self.state());
        match &mut self.activity {
            Activity::Idle => {}
            Activity::Record(recorder) => recorder.save(),
            Activity::Follow(_) => {
                for group in self.state().groups {
                    tracing::info!(
                        rank = group.rank,
                        position = group.position,
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

    fn start(&mut self) -> Vec<PrefetchRequest> {
        match &mut self.activity {
            Activity::Follow(follower) if self.config.start && self.config.prefetch => {
                follower.start()
            }
            _ => Vec::new(),
        }
    }

    fn prefetch(&mut self, miss: &FileAccess) -> Option<PrefetchRequest> {
        self.count();
        match &mut self.activity {
            Activity::Idle => None,
            Activity::Follow(follower) => follower.miss(miss),
            Activity::Record(recorder) => {
                recorder.access(miss);
                None
            }
        }
    }

    fn evict(&mut self, miss: Option<&FileAccess>) -> Option<RangeList> {
        self.count();
        match &mut self.activity {
            Activity::Follow(follower) if self.config.evict => follower.evict(miss),
            _ => None,
        }
    }

    fn touch(&mut self, access: &FileAccess) -> Option<PrefetchRequest> {
        self.count();
        match &mut self.activity {
            Activity::Idle => None,
            Activity::Follow(follower) => follower.access(access),
            Activity::Record(recorder) => {
                recorder.access(access);
                None
            }
        }
    }
}

fn load(path: &Path) -> Result<Template, String> {
    Template::load(path, &TemplateLimits::default()).map_err(|error| match error.remedy() {
        Some(remedy) => format!("{error}; {remedy}"),
        None => error.to_string(),
    })
}
