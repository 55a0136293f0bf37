//! The work of the policy for one model: it finds a template and then either follows it (`follower.rs`), records it
//! (`recorder.rs`) or stays idle.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anamnesis_ppc::{EventKind, FileAccess, Interests, PrefetchRequest, RangeList, ServiceReport};
use anamnesis_template::{Template, TemplateLimits};

use crate::config::MaioConfig;
use crate::follower::TemplateFollower;
use crate::model_files::ModelFiles;
use crate::recorder::TemplateRecorder;
use crate::state::{MaioPhase, MaioState};
use crate::worker_identity::{Accelerators, WorkerIdentifier};

/// The common part of the services of a policy.
#[derive(Debug)]
pub(crate) struct ServiceContext {
    pub(crate) config: MaioConfig,
    /// Bytes of memory for the page cache.
    pub(crate) memory: u64,
    /// Below it, processes and accelerators are searched.
    pub(crate) root: PathBuf,
}

impl ServiceContext {
    /// Whether the directory is one service, whatever is in it.
    pub(crate) fn is_one_service(&self) -> bool {
        self.config.service.is_some() || self.config.templates.is_none()
    }
}

/// One model, and what is done for it.
#[derive(Debug)]
pub(crate) struct MaioService {
    /// The path of the model, by which it is known between scans.
    path: PathBuf,
    /// Distinguishes the prefetch queues of services.
    number: u32,
    activity: Activity,
    state: MaioState,
}

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

impl MaioService {
    /// Searches the template of a model, and begins to follow or record it.
    ///
    /// # Errors
    ///
    /// The configured template cannot be read, or describes other files.
    pub(crate) fn open(
        mut model: ModelFiles,
        number: u32,
        context: &ServiceContext,
    ) -> Result<Self, String> {
        let mut service = Self::idle(model.path(), number);
        match find_template(&mut model, &context.config, &mut service.state)? {
            TemplateLookup::Found(template) => service.follow(&template, &model, context),
            TemplateLookup::ToRecord(path) => {
                tracing::info!("recording {}", path.display());
                let ServiceContext { config, root, .. } = context;
                let proc = root.join("proc");
                let accelerators = Accelerators::new(root, config.devices.as_deref());
                let workers = WorkerIdentifier::new(&config.workers, false, &proc, &accelerators);
                let id = service.state.service.as_ref();
                let id = id.and_then(|id| id.parse().ok());
                let recorder = TemplateRecorder::new(model, workers, path, id, config, proc);
                (service.activity, service.state.phase) =
                    (Activity::Record(Box::new(recorder)), MaioPhase::Recording);
            }
            TemplateLookup::Unusable(phase, reason) => service.leave(phase, reason),
        }
        Ok(service)
    }

    /// A model whose template cannot be used.
    pub(crate) fn stale(path: PathBuf, number: u32, reason: String) -> Self {
        let mut service = Self::idle(path, number);
        service.leave(MaioPhase::Stale, reason);
        service
    }

    fn idle(path: PathBuf, number: u32) -> Self {
        let state = MaioState {
            model: path.display().to_string(),
            ..MaioState::default()
        };
        Self {
            path,
            number,
            activity: Activity::Idle,
            state,
        }
    }

    fn leave(&mut self, phase: MaioPhase, reason: String) {
        tracing::warn!("{reason}; the kernel alone manages the page cache");
        (self.state.phase, self.state.reason) = (phase, Some(reason));
    }

    fn follow(&mut self, template: &Template, model: &ModelFiles, context: &ServiceContext) {
        tracing::info!("following {template}");
        self.state.template = Some(template.to_string());
        self.state.phase = MaioPhase::Following;
        let ServiceContext {
            config,
            memory,
            root,
        } = context;
        let memory = config.memory.unwrap_or(*memory);
        let follower = TemplateFollower::new(template, model, config, memory, root);
        self.activity = Activity::Follow(Box::new(follower));
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// Returns the current activity and its counters.
    pub(crate) fn state(&self) -> MaioState {
        let mut state = self.state.clone();
        match &self.activity {
            Activity::Idle => {}
            Activity::Follow(follower) => follower.report(&mut state),
            Activity::Record(recorder) => state.recorded = recorder.nbytes(),
        }
        state
    }

    /// Returns the same for the status of a runtime.
    pub(crate) fn report(&self) -> ServiceReport {
        let state = self.state();
        let files = match &self.activity {
            Activity::Idle => Vec::new(),
            Activity::Follow(follower) => follower.files(),
            Activity::Record(recorder) => recorder.model().paths().map(Arc::clone).collect(),
        };
        ServiceReport {
            model: state.model,
            phase: state.phase.to_string(),
            reason: state.reason,
            wanted: state.wanted,
            recorded: state.recorded,
            files,
        }
    }

    pub(crate) fn is_recording(&self) -> bool {
        matches!(self.activity, Activity::Record(_))
    }

    pub(crate) fn interests(&self, config: &MaioConfig) -> Interests {
        match &self.activity {
            Activity::Idle => Interests::default(),
            Activity::Follow(follower) => Interests {
                prefetch: config.prefetch,
                evict: config.evict,
                touch: follower.needs_accesses(),
                ..Interests::default()
            },
            Activity::Record(_) => {
                let touch = records_accesses(config.touch);
                Interests {
                    // misses are needed only where not every access is reported
                    prefetch: !touch,
                    // evicting during a recording would turn later reads into misses that the service does not have by
                    // itself
                    evict: false,
                    touch,
                    recording: touch,
                    // that a load has ended shows only while nothing is read
                    idle: true,
                }
            }
        }
    }

    /// The files were scanned again. `is_unchanged` says of a path whether its file is the same. Returns the files if the activity
    /// cannot go on with them.
    pub(crate) fn update_files(
        &mut self,
        model: ModelFiles,
        is_unchanged: impl Fn(&Path) -> bool,
    ) -> Option<ModelFiles> {
        match &mut self.activity {
            // other files of the model may change: the template does not read them
            Activity::Follow(follower) if follower.paths().all(&is_unchanged) => None,
            Activity::Record(recorder) => recorder.update_files(model, is_unchanged),
            _ => Some(model),
        }
    }

    pub(crate) fn start(&mut self) -> Vec<PrefetchRequest> {
        match &mut self.activity {
            Activity::Follow(follower) => follower.start(),
            _ => Vec::new(),
        }
    }

    /// Handles a miss. `touch` is the configured option.
    pub(crate) fn miss(
        &mut self,
        miss: &FileAccess,
        touch: Option<bool>,
    ) -> Option<PrefetchRequest> {
        match &mut self.activity {
            Activity::Follow(follower) => follower.miss(miss),
            // every access is recorded already, if another service needs misses
            Activity::Record(recorder) if !records_accesses(touch) => {
                recorder.access(miss);
                None
            }
            _ => None,
        }
    }

    pub(crate) fn access(&mut self, access: &FileAccess) -> Option<PrefetchRequest> {
        match &mut self.activity {
            // others arrive while another service is recorded, and contain what the kernel read ahead
            Activity::Follow(follower) if follower.needs_accesses() => follower.access(access),
            Activity::Record(recorder) => {
                recorder.access(access);
                None
            }
            _ => None,
        }
    }

    pub(crate) fn evict(&mut self, miss: Option<&FileAccess>) -> Option<RangeList> {
        match &mut self.activity {
            Activity::Follow(follower) => follower.evict(miss),
            _ => None,
        }
    }

    /// Ends a recording that is complete, and follows it. Returns what to prefetch if another load has begun.
    pub(crate) fn end_recording(
        &mut self,
        now: u64,
        context: &ServiceContext,
    ) -> Option<PrefetchRequest> {
        match &self.activity {
            Activity::Record(recorder) if recorder.is_complete(now) => {}
            _ => return None,
        }
        let Activity::Record(mut recorder) = std::mem::replace(&mut self.activity, Activity::Idle)
        else {
            return None;
        };
        let next = recorder.take_next();
        self.state.recorded = recorder.nbytes();
        let Some(template) = recorder.save() else {
            // no byte of the model was read, so that there is nothing to follow yet
            self.activity = Activity::Record(recorder);
            return None;
        };
        self.follow(&template, recorder.model(), context);
        let Activity::Follow(follower) = &mut self.activity else {
            return None;
        };
        let next = next?;
        // a load begins with a miss, which a recording is notified of as an access
        let begins = next.kind == EventKind::Miss || recorder.is_new_process(next.pid);
        begins.then(|| follower.miss(&next)).flatten()
    }

    /// The registration ends.
    pub(crate) fn exit(&mut self) {
        if let Activity::Record(recorder) = &mut self.activity {
            // the load may not have ended: the reads so far are a template all the same
            recorder.save();
        }
        for group in self.state().groups {
            tracing::info!(
                model = self.state.model,
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

/// Whether a recording is of all accesses, or of misses only, with this setting.
fn records_accesses(touch: Option<bool>) -> bool {
    touch != Some(false)
}

/// Searches for the template that the configuration names. Sets the id of the service in `state`.
fn find_template(
    model: &mut ModelFiles,
    config: &MaioConfig,
    state: &mut MaioState,
) -> Result<TemplateLookup, String> {
    if let Some(path) = &config.template {
        if !path.exists() && config.generate == Some(true) {
            return Ok(TemplateLookup::ToRecord(path.clone()));
        }
        let template = load(path)?;
        return match model.difference(&template) {
            None => Ok(TemplateLookup::Found(template)),
            // only on request: a path that was given by name may be a template that is to be kept
            Some(_) if config.generate == Some(true) => Ok(TemplateLookup::ToRecord(path.clone())),
            Some(reason) => Err(format!(
                "{}: the template describes another model or is stale: {reason}",
                path.display()
            )),
        };
    }
    let Some(templates) = &config.templates else {
        return Err("no template configured: set template=FILE or templates=DIR".into());
    };
    let parameters = config.parameters.iter();
    let parameters = parameters.map(|(key, value)| (&**key, &**value));
    let id = match &config.service {
        Some(id) => id.clone(),
        None => model.service_id(parameters).to_string(),
    };
    let path = templates.join(format!("{id}.iot"));
    state.service = Some(id);
    // in a directory of templates a missing one is the normal case; a file that is named is expected to exist
    let generate = config.generate.unwrap_or(true);
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

fn load(path: &Path) -> Result<Template, String> {
    Template::load(path, &TemplateLimits::default()).map_err(|error| match error.remedy() {
        Some(remedy) => format!("{error}; {remedy}"),
        None => error.to_string(),
    })
}
