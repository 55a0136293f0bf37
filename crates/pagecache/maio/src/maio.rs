//! The policy [`Maio`]: what a runtime registers and calls.
//!
//! Each model below the directory of the policy (`models.rs`) is a service of its own (`service.rs`), with its own template. The
//! calls of a runtime are passed to the service that a file belongs to. A named template or service id makes the directory one
//! service.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anamnesis_ppc::{
    FileAccess, FileRange, Interests, Namespace, Policy, PolicyContext, PrefetchRequest, RangeList,
    ServiceReport,
};

use crate::config::MaioConfig;
use crate::model_files::ModelFiles;
use crate::models::models_below;
use crate::service::{MaioService, ServiceContext};
use crate::state::{MaioState, StateWatch};

/// A page-cache policy that follows the templates of inference services, or records them. A [`MaioConfig`] in the registration
/// configures it.
#[derive(Debug)]
pub struct Maio {
    context: ServiceContext,
    namespace: Option<Arc<Namespace>>,
    services: Vec<MaioService>,
    /// The service of each file, as an index into `services`, if there are several.
    owners: HashMap<Arc<Path>, usize>,
    /// The service whose files were accessed last.
    last: usize,
    watch: StateWatch,
    accesses: u64,
}

/// Number of events between two updates of what a [`StateWatch`] returns. Copying the states for
/// each event would cost more than handling the event.
const STATE_UPDATE_INTERVAL: u64 = 256;

impl Default for Maio {
    fn default() -> Self {
        Self::new()
    }
}

impl Maio {
    /// Creates a policy that is configured by its registration.
    pub fn new() -> Self {
        let context = ServiceContext {
            config: MaioConfig::default(),
            memory: 0,
            root: "/".into(),
        };
        Self {
            context,
            namespace: None,
            services: Vec::new(),
            owners: HashMap::new(),
            last: 0,
            watch: StateWatch::default(),
            accesses: 0,
        }
    }

    /// Searches processes and accelerators below another root: `root/proc`, `root/dev`, `root/sys`.
    #[must_use]
    pub fn root(mut self, root: impl Into<PathBuf>) -> Self {
        self.context.root = root.into();
        self
    }

    /// Returns the current activity and its counters for the model that was read last, or for the first.
    pub fn state(&self) -> MaioState {
        let service = self.services.get(self.last);
        service.map(MaioService::state).unwrap_or_default()
    }

    /// Returns the current activities and their counters for all models, in the order of their paths.
    pub fn services(&self) -> Vec<MaioState> {
        self.services.iter().map(MaioService::state).collect()
    }

    /// Returns a handle that observes the states after the policy was moved into a runtime.
    pub fn watch(&self) -> StateWatch {
        self.watch.clone()
    }

    fn update_watch(&self) {
        self.watch.update(self.last, self.services());
    }

    /// The service of a file. Counts the event and updates the watched states at intervals.
    fn owner(&mut self, access: &FileAccess) -> Option<&mut MaioService> {
        self.accesses += 1;
        if self.accesses.is_multiple_of(STATE_UPDATE_INTERVAL) {
            self.update_watch();
        }
        self.last = self.owner_index(&access.path)?;
        self.services.get_mut(self.last)
    }

    fn owner_index(&self, path: &Path) -> Option<usize> {
        match self.services.len() {
            // also of files that it does not know: it counts them
            1 => Some(0),
            _ => self.owners.get(path).copied(),
        }
    }

    /// The models of the directory.
    fn models(&self, namespace: &Arc<Namespace>) -> Vec<ModelFiles> {
        let config = &self.context.config;
        if self.context.is_one_service() {
            vec![ModelFiles::new(namespace, &config.model)]
        } else {
            models_below(namespace, &config.model)
        }
    }

    /// Sets the services of the models of a directory. A service continues if the files that it follows or records are
    /// `unchanged`.
    ///
    /// # Errors
    ///
    /// The errors of [`MaioService::open`], if there is only this service. Otherwise it is stale.
    fn set_services(
        &mut self,
        namespace: &Arc<Namespace>,
        unchanged: impl Fn(&Path) -> bool,
    ) -> Result<(), String> {
        let before = std::mem::take(&mut self.services);
        let last = before
            .get(self.last)
            // by path, since the numbers of services change with the files
            .map(|service| service.path().to_owned());
        let mut numbers: BTreeSet<u32> = before.iter().map(MaioService::number).collect();
        let mut before: HashMap<PathBuf, MaioService> = before
            .into_iter()
            .map(|service| (service.path().to_owned(), service))
            .collect();
        self.owners.clear();
        for mut model in self.models(namespace) {
            let path = model.path();
            for file in model.paths() {
                // a file of several models belongs to the first
                self.owners
                    .entry(Arc::clone(file))
                    .or_insert(self.services.len());
            }
            let mut known = before.remove(&path);
            if let Some(service) = &mut known {
                match service.update_files(model, &unchanged) {
                    None => {
                        self.services.extend(known);
                        continue;
                    }
                    Some(changed) => model = changed,
                }
            }
            let number = known.map_or_else(
                // the lowest free number: reversed bits of small numbers do not reach the numbers of ranks
                || (0..).find(|number| !numbers.contains(number)).unwrap_or(0),
                // its queue stays the same, so that its next list replaces the one before
                |service| service.number(),
            );
            numbers.insert(number);
            let service = match MaioService::open(model, number, &self.context) {
                Ok(service) => service,
                Err(reason) if self.context.is_one_service() => return Err(reason),
                Err(reason) => MaioService::stale(path, number, reason),
            };
            self.services.push(service);
        }
        let is_last = |service: &MaioService| last.as_deref() == Some(service.path());
        self.last = self.services.iter().position(is_last).unwrap_or(0);
        self.update_watch();
        Ok(())
    }

    fn configure(&mut self, context: &PolicyContext) -> Result<(), String> {
        let config = context.config.parse();
        self.context.config = config.map_err(|error: crate::MaioConfigError| error.to_string())?;
        self.context.memory = context.memory;
        self.namespace = Some(Arc::clone(&context.namespace));
        Ok(())
    }
}

/// The queue of a service's request. Ranks count from 0 and the list of all workers has the highest number, so the lowest bits
/// of a service's number are put into the highest bits, and no two are equal.
fn of_service(number: u32, request: PrefetchRequest) -> PrefetchRequest {
    PrefetchRequest {
        queue: request.queue ^ number.reverse_bits(),
        ..request
    }
}

impl Policy for Maio {
    fn init(&mut self, context: &PolicyContext) -> Result<(), String> {
        self.configure(context)?;
        self.services.clear();
        self.set_services(&context.namespace, |_| false)
    }

    fn files_changed(&mut self, context: &PolicyContext) -> Result<(), String> {
        let before = self.namespace.take();
        self.configure(context)?;
        let now = &context.namespace;
        let unchanged = |path: &Path| {
            let before = before.as_ref().and_then(|before| before.get(path));
            // a file that was not there is not unchanged
            before.is_some() && before == now.get(path)
        };
        if let Err(reason) = self.set_services(now, unchanged) {
            // Deregistering would be final, while the files may change again.
            let path = self.context.config.model.clone();
            self.services = vec![MaioService::stale(path, 0, reason)];
            self.update_watch();
        }
        Ok(())
    }

    fn interests(&self) -> Interests {
        let config = &self.context.config;
        let all = self
            .services
            .iter()
            .map(|service| service.interests(config));
        all.fold(Interests::default(), |a, b| Interests {
            prefetch: a.prefetch || b.prefetch,
            evict: a.evict || b.evict,
            touch: a.touch || b.touch,
            recording: a.recording || b.recording,
            idle: a.idle || b.idle,
        })
    }

    fn report(&self) -> Vec<ServiceReport> {
        self.services.iter().map(MaioService::report).collect()
    }

    fn exit(&mut self) {
        self.update_watch();
        self.services.iter_mut().for_each(MaioService::exit);
    }

    fn start(&mut self) -> Vec<PrefetchRequest> {
        let MaioConfig {
            start, prefetch, ..
        } = self.context.config;
        match &mut self.services[..] {
            // which of several models the service will read shows at its first access
            [only] if start && prefetch => {
                let number = only.number();
                let requests = only.start().into_iter();
                requests
                    .map(|request| of_service(number, request))
                    .collect()
            }
            _ => Vec::new(),
        }
    }

    fn prefetch(&mut self, miss: &FileAccess) -> Option<PrefetchRequest> {
        let touch = self.context.config.touch;
        let service = self.owner(miss)?;
        let number = service.number();
        let request = service.miss(miss, touch)?;
        // empty if the miss reads all that the template has
        (!request.ranges.is_empty()).then(|| of_service(number, request))
    }

    fn evict(&mut self, miss: Option<&FileAccess>) -> Option<RangeList> {
        // also without eviction, since this counts the access
        let has_owner = miss.is_some_and(|miss| self.owner(miss).is_some());
        let owner = has_owner.then_some(self.last);
        if !self.context.config.evict {
            return None;
        }
        // lists of all services: memory is short for all of them
        let services = self.services.iter_mut().enumerate();
        let mut lists: Vec<RangeList> = services
            // a miss concerns its own service alone
            .filter_map(|(index, service)| service.evict(miss.filter(|_| owner == Some(index))))
            .collect();
        // the usual case, without a copy
        if lists.len() < 2 {
            return lists.pop();
        }
        let ranges: Vec<FileRange> = lists.iter().flat_map(|list| list.iter().cloned()).collect();
        Some(ranges.into())
    }

    fn touch(&mut self, access: &FileAccess) -> Option<PrefetchRequest> {
        let service = self.owner(access)?;
        let number = service.number();
        Some(of_service(number, service.access(access)?))
    }

    fn idle(&mut self, now: u64) -> Vec<PrefetchRequest> {
        let mut requests = Vec::new();
        let mut any_ended = false;
        for service in &mut self.services {
            let was_recording = service.is_recording();
            let request = service.end_recording(now, &self.context);
            any_ended |= was_recording && !service.is_recording();
            requests.extend(request.map(|request| of_service(service.number(), request)));
        }
        if any_ended {
            self.update_watch();
        }
        requests
    }
}
