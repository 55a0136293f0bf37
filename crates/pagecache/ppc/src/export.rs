//! Exporting a [`Policy`] as a shared library: the implementation of [`export_policy!`](crate::export_policy).
//!
//! The callbacks are C functions without a state argument, so the policy is kept in a static, behind a mutex. No
//! panic unwinds into C: [`ExportedPolicy`] catches it and ends the registration.
#![allow(unsafe_code)]

mod lists;
mod log;

use std::any::Any;
use std::ffi::{CStr, CString, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use lists::ReturnedLists;

use crate::abi::{
    EvictIos, MissIo, PpcContext, PrefetchIos, WANTS_EVICT, WANTS_PREFETCH, WANTS_TOUCH,
};
use crate::{EventKind, FileAccess, Namespace, Policy, PolicyContext};

/// Exports a [`Policy`] from a shared library (`crate-type = ["cdylib"]`). The expression is evaluated at
/// registration.
///
/// A panic ends the registration. Events of `tracing` are written to the daemon's log.
///
/// ```
/// use anamnesis_ppc::{Policy, Interests};
///
/// struct Idle;
///
/// impl Policy for Idle {
///     fn interests(&self) -> Interests {
///         Interests::default()
///     }
/// }
///
/// anamnesis_ppc::export_policy!(Idle);
/// # fn main() {}
/// ```
///
/// The macro defines the symbol `register_policy`, so a binary can contain it only once. A library crate that
/// programs also link should export its policy from a separate crate or example.
#[macro_export]
macro_rules! export_policy {
    ($make:expr) => {
        const _: () = {
            use $crate::abi::{Abi, EvictIos, MissIo, Operation, PrefetchIos};
            use $crate::export::ExportedPolicy;

            static EXPORTED: ExportedPolicy = ExportedPolicy::new(|| ::std::boxed::Box::new($make));

            unsafe extern "C" fn init(context: *mut ::std::ffi::c_void) -> ::std::ffi::c_int {
                // SAFETY: ppc.h specifies a context that is valid until `exit` returns.
                unsafe { EXPORTED.init(context.cast()) }
            }
            unsafe extern "C" fn exit() -> ::std::ffi::c_int {
                EXPORTED.exit()
            }
            unsafe extern "C" fn prefetch(miss: *mut MissIo) -> *mut PrefetchIos {
                // SAFETY: ppc.h specifies a miss.
                unsafe { EXPORTED.prefetch(miss) }
            }
            unsafe extern "C" fn evict(miss: *mut MissIo) -> *mut EvictIos {
                // SAFETY: ppc.h specifies a miss or NULL.
                unsafe { EXPORTED.evict(miss) }
            }
            unsafe extern "C" fn start() -> *mut PrefetchIos {
                EXPORTED.start()
            }
            unsafe extern "C" fn touch(access: *mut MissIo) -> *mut PrefetchIos {
                // SAFETY: ppc.h specifies an access.
                unsafe { EXPORTED.touch(access) }
            }
            unsafe extern "C" fn wants() -> u32 {
                EXPORTED.interests()
            }

            static OPERATION: Operation = Operation {
                init: Some(init),
                exit: Some(exit),
                prefetch: Some(prefetch),
                evict: Some(evict),
                start: Some(start),
                touch: Some(touch),
                // lists are kept until the next answer and freed by this side
                release: None,
                wants: Some(wants),
            };

            #[unsafe(export_name = "ppc_abi")]
            pub static ABI: Abi = Abi::CURRENT;

            #[unsafe(export_name = "register_policy")]
            pub extern "C" fn register() -> *const Operation {
                &raw const OPERATION
            }
        };
    };
}

/// The exported policy. Only for use by [`export_policy!`](crate::export_policy).
#[doc(hidden)]
pub struct ExportedPolicy {
    make: fn() -> Box<dyn Policy>,
    state: Mutex<Option<PolicyState>>,
}

struct PolicyState {
    policy: Box<dyn Policy>,
    lists: ReturnedLists,
    fail: Option<unsafe extern "C" fn(*const c_char)>,
}

impl PolicyState {
    /// Reports a failure, which ends the registration when the callback returns.
    fn fail(&self, reason: &str) {
        // a C string ends at its first zero byte
        let reason = CString::new(reason.replace('\0', " ")).unwrap_or_default();
        if let Some(fail) = self.fail {
            // SAFETY: a function of the host process with the type that ppc.h declares.
            unsafe { fail(reason.as_ptr()) };
        }
    }
}

impl ExportedPolicy {
    pub const fn new(make: fn() -> Box<dyn Policy>) -> Self {
        Self {
            make,
            state: Mutex::new(None),
        }
    }

    /// # Safety
    ///
    /// `context` points to a valid context, whose strings are zero-terminated.
    pub unsafe fn init(&self, context: *const PpcContext) -> c_int {
        // SAFETY: guaranteed by the caller.
        let context = unsafe { &*context };
        if let Some(callback) = context.log {
            log::install(callback);
        }
        // a panic must not unwind into C, which is undefined
        let result = catch_unwind(|| {
            let mut policy = (self.make)();
            // SAFETY: the context's strings are zero-terminated.
            let root = Path::new(OsStr::from_bytes(unsafe { bytes(context.root) }));
            // SAFETY: as above.
            let config = String::from_utf8_lossy(unsafe { bytes(context.config) }).into_owned();
            let namespace = Namespace::scan(root).map_err(|error| error.to_string());
            let initialised = namespace.and_then(|namespace| {
                policy.init(&PolicyContext {
                    namespace: Arc::new(namespace),
                    config,
                    memory: context.memory,
                })
            });
            let initialised = initialised.and_then(|()| policy.failed().map_or(Ok(()), Err));
            (policy, initialised)
        });
        let (policy, failure) = match result {
            Ok((policy, initialised)) => (policy, initialised.err()),
            Err(panic) => (
                // the host calls `exit` all the same, which must find a state
                Box::new(NoPolicy) as Box<dyn Policy>,
                Some(format!("panicked: {}", panic_message(&*panic))),
            ),
        };
        let state = PolicyState {
            policy,
            lists: ReturnedLists::default(),
            fail: context.fail,
        };
        if let Some(reason) = &failure {
            state.fail(reason);
        }
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = Some(state);
        c_int::from(failure.is_some())
    }

    pub fn exit(&self) -> c_int {
        self.call(0, |state| {
            state.policy.exit();
            0
        })
    }

    pub fn interests(&self) -> u32 {
        self.call(0, |state| {
            let wants = state.policy.interests();
            let bit_if = |wanted: bool, bit: u32| if wanted { bit } else { 0 };
            bit_if(wants.prefetch, WANTS_PREFETCH)
                | bit_if(wants.evict, WANTS_EVICT)
                | bit_if(wants.touch, WANTS_TOUCH)
        })
    }

    pub fn start(&self) -> *mut PrefetchIos {
        self.call(std::ptr::null_mut(), |state| {
            let all = state.policy.start();
            state.lists.chain(&all)
        })
    }

    /// # Safety
    ///
    /// `miss` points to a valid miss.
    pub unsafe fn prefetch(&self, miss: *const MissIo) -> *mut PrefetchIos {
        // SAFETY: guaranteed by the caller.
        let miss = unsafe { access(miss) };
        self.call(std::ptr::null_mut(), |state| {
            match state.policy.prefetch(&miss) {
                Some(prefetch) => state.lists.prefetch(&prefetch),
                None => std::ptr::null_mut(),
            }
        })
    }

    /// # Safety
    ///
    /// `miss` points to a valid miss or is null.
    pub unsafe fn evict(&self, miss: *const MissIo) -> *mut EvictIos {
        // SAFETY: guaranteed by the caller, and not null.
        let miss = (!miss.is_null()).then(|| unsafe { access(miss) });
        self.call(std::ptr::null_mut(), |state| {
            match state.policy.evict(miss.as_ref()) {
                Some(ios) => state.lists.evict(&ios),
                None => std::ptr::null_mut(),
            }
        })
    }

    /// # Safety
    ///
    /// `touched` points to a valid access.
    pub unsafe fn touch(&self, touched: *const MissIo) -> *mut PrefetchIos {
        // SAFETY: guaranteed by the caller.
        let touched = unsafe { access(touched) };
        self.call(std::ptr::null_mut(), |state| {
            match state.policy.touch(&touched) {
                Some(prefetch) => state.lists.prefetch(&prefetch),
                None => std::ptr::null_mut(),
            }
        })
    }

    /// Calls the policy. Returns `default` if there is none, or if it panics or fails.
    fn call<T>(&self, default: T, with: impl FnOnce(&mut PolicyState) -> T) -> T {
        // never contended: the host calls on one thread. The lock makes the static sound
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(state) = &mut *state else {
            return default;
        };
        // a policy that panicked is in an unknown state; it is called no more, except for `exit`
        let returned = catch_unwind(AssertUnwindSafe(|| {
            let value = with(state);
            (value, state.policy.failed())
        }));
        let reason = match returned {
            Ok((value, None)) => return value,
            // the value of a failed call is dropped: its list may hold ranges that the failure invalidated
            Ok((_, Some(reason))) => reason,
            Err(panic) => format!("panicked: {}", panic_message(&*panic)),
        };
        state.fail(&reason);
        default
    }
}

/// Stands in for a policy whose construction panicked, until the registration ends.
struct NoPolicy;

impl Policy for NoPolicy {
    fn interests(&self) -> crate::Interests {
        crate::Interests::default()
    }
}

/// # Safety
///
/// `miss` points to a valid miss.
unsafe fn access(miss: *const MissIo) -> FileAccess {
    // SAFETY: guaranteed by the caller.
    let miss = unsafe { &*miss };
    let kind = match miss.kind {
        0 => EventKind::Miss,
        2 => EventKind::Open,
        // kinds of later versions: an access is the weakest statement about them
        _ => EventKind::Touch,
    };
    // SAFETY: the path of a valid miss is zero-terminated.
    let path = Path::new(OsStr::from_bytes(unsafe { bytes(miss.path) })).into();
    FileAccess {
        kind,
        path,
        start: miss.offset,
        len: miss.size,
        pid: miss.pid,
        tid: miss.tid,
        time: miss.time_ns,
    }
}

/// # Safety
///
/// `text` is zero-terminated and valid for the lifetime of the result.
unsafe fn bytes<'a>(text: *const c_char) -> &'a [u8] {
    // SAFETY: guaranteed by the caller.
    unsafe { CStr::from_ptr(text) }.to_bytes()
}

/// The message of a panic.
pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a message")
}
