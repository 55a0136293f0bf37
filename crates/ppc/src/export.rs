//! A [`Policy`] as a shared library: what [`export_policy!`](crate::export_policy) is made of.
#![allow(unsafe_code)]

mod lists;
mod log;

use std::any::Any;
use std::ffi::{CStr, CString, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use lists::Lists;

use crate::abi::{
    EvictIos, MissIo, PpcContext, PrefetchIos, WANTS_EVICT, WANTS_PREFETCH, WANTS_TOUCH,
};
use crate::{Access, Context, Kind, Namespace, Policy};

/// Makes a shared library (`crate-type = ["cdylib"]`) of a [`Policy`]: the expression makes it, when it is registered.
///
/// A panic ends its registration, and unwinds no further. What it writes with `tracing` goes to the daemon's log.
///
/// ```
/// use anamnesis_ppc::{Policy, Wants};
///
/// struct Idle;
///
/// impl Policy for Idle {
///     fn wants(&self) -> Wants {
///         Wants::default()
///     }
/// }
///
/// anamnesis_ppc::export_policy!(Idle);
/// # fn main() {}
/// ```
///
/// A program can contain it once: it defines `register_policy`. A crate that is also linked into programs puts it into a
/// crate or example of its own.
#[macro_export]
macro_rules! export_policy {
    ($make:expr) => {
        const _: () = {
            use $crate::abi::{Abi, EvictIos, MissIo, Operation, PrefetchIos};
            use $crate::export::Exported;

            static EXPORTED: Exported = Exported::new(|| ::std::boxed::Box::new($make));

            unsafe extern "C" fn init(context: *mut ::std::ffi::c_void) -> ::std::ffi::c_int {
                // SAFETY: ppc.h says that it is a context, which is there until the policy ends.
                unsafe { EXPORTED.init(context.cast()) }
            }
            unsafe extern "C" fn exit() -> ::std::ffi::c_int {
                EXPORTED.exit()
            }
            unsafe extern "C" fn prefetch(miss: *mut MissIo) -> *mut PrefetchIos {
                // SAFETY: ppc.h says that it is a miss.
                unsafe { EXPORTED.prefetch(miss) }
            }
            unsafe extern "C" fn evict(miss: *mut MissIo) -> *mut EvictIos {
                // SAFETY: ppc.h says that it is a miss or NULL.
                unsafe { EXPORTED.evict(miss) }
            }
            unsafe extern "C" fn start() -> *mut PrefetchIos {
                EXPORTED.start()
            }
            unsafe extern "C" fn touch(access: *mut MissIo) -> *mut PrefetchIos {
                // SAFETY: ppc.h says that it is an access.
                unsafe { EXPORTED.touch(access) }
            }
            unsafe extern "C" fn wants() -> u32 {
                EXPORTED.wants()
            }

            static OPERATION: Operation = Operation {
                init: Some(init),
                exit: Some(exit),
                prefetch: Some(prefetch),
                evict: Some(evict),
                start: Some(start),
                touch: Some(touch),
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

/// A policy that is exported; of [`export_policy!`](crate::export_policy) only.
#[doc(hidden)]
pub struct Exported {
    make: fn() -> Box<dyn Policy>,
    state: Mutex<Option<State>>,
}

struct State {
    policy: Box<dyn Policy>,
    lists: Lists,
    fail: Option<unsafe extern "C" fn(*const c_char)>,
}

impl State {
    /// Ends the registration when the callback returns.
    fn fail(&self, reason: &str) {
        let reason = CString::new(reason.replace('\0', " ")).unwrap_or_default();
        if let Some(fail) = self.fail {
            // SAFETY: the daemon's function, of the type that ppc.h gives it.
            unsafe { fail(reason.as_ptr()) };
        }
    }
}

impl Exported {
    pub const fn new(make: fn() -> Box<dyn Policy>) -> Self {
        Self {
            make,
            state: Mutex::new(None),
        }
    }

    /// # Safety
    ///
    /// `context` is one, with strings that end.
    pub unsafe fn init(&self, context: *const PpcContext) -> c_int {
        // SAFETY: it is one.
        let context = unsafe { &*context };
        if let Some(to) = context.log {
            log::begin(to);
        }
        let begun = catch_unwind(|| {
            let mut policy = (self.make)();
            // SAFETY: a string of the context.
            let root = Path::new(OsStr::from_bytes(unsafe { bytes(context.root) }));
            // SAFETY: as above.
            let config = String::from_utf8_lossy(unsafe { bytes(context.config) }).into_owned();
            let namespace = Namespace::scan(root).map_err(|error| error.to_string());
            let begun = namespace.and_then(|namespace| {
                policy.init(&Context {
                    namespace: Arc::new(namespace),
                    config,
                    memory: context.memory,
                })
            });
            let begun = begun.and_then(|()| policy.failed().map_or(Ok(()), Err));
            (policy, begun)
        });
        let (state, failed) = match begun {
            Ok((policy, begun)) => (policy, begun.err()),
            Err(panic) => (
                Box::new(Nothing) as Box<dyn Policy>,
                Some(format!("panicked: {}", said(&*panic))),
            ),
        };
        let state = State {
            policy: state,
            lists: Lists::default(),
            fail: context.fail,
        };
        if let Some(reason) = &failed {
            state.fail(reason);
        }
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = Some(state);
        c_int::from(failed.is_some())
    }

    pub fn exit(&self) -> c_int {
        self.call(0, |state| {
            state.policy.exit();
            0
        })
    }

    pub fn wants(&self) -> u32 {
        self.call(0, |state| {
            let wants = state.policy.wants();
            let bit = |there: bool, bit: u32| if there { bit } else { 0 };
            bit(wants.prefetch, WANTS_PREFETCH)
                | bit(wants.evict, WANTS_EVICT)
                | bit(wants.touch, WANTS_TOUCH)
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
    /// `miss` is one.
    pub unsafe fn prefetch(&self, miss: *const MissIo) -> *mut PrefetchIos {
        // SAFETY: it is one.
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
    /// `miss` is one or null.
    pub unsafe fn evict(&self, miss: *const MissIo) -> *mut EvictIos {
        // SAFETY: it is one if it is not null.
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
    /// `touched` is an access.
    pub unsafe fn touch(&self, touched: *const MissIo) -> *mut PrefetchIos {
        // SAFETY: it is one.
        let touched = unsafe { access(touched) };
        self.call(std::ptr::null_mut(), |state| {
            match state.policy.touch(&touched) {
                Some(prefetch) => state.lists.prefetch(&prefetch),
                None => std::ptr::null_mut(),
            }
        })
    }

    /// Calls the policy; nothing unwinds out of it.
    fn call<T>(&self, otherwise: T, with: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(state) = &mut *state else {
            return otherwise;
        };
        let returned = catch_unwind(AssertUnwindSafe(|| {
            let value = with(state);
            (value, state.policy.failed())
        }));
        let reason = match returned {
            Ok((value, None)) => return value,
            Ok((_, Some(reason))) => reason,
            Err(panic) => format!("panicked: {}", said(&*panic)),
        };
        state.fail(&reason);
        otherwise
    }
}

/// In place of a policy that could not be made.
struct Nothing;

impl Policy for Nothing {
    fn wants(&self) -> crate::Wants {
        crate::Wants::default()
    }
}

/// # Safety
///
/// `miss` is one.
unsafe fn access(miss: *const MissIo) -> Access {
    // SAFETY: it is one.
    let miss = unsafe { &*miss };
    let kind = match miss.kind {
        0 => Kind::Miss,
        2 => Kind::Open,
        _ => Kind::Touch,
    };
    // SAFETY: its path ends.
    let path = Path::new(OsStr::from_bytes(unsafe { bytes(miss.path) })).into();
    Access {
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
/// `text` is a string that ends, and is there as long as the result is used.
unsafe fn bytes<'a>(text: *const c_char) -> &'a [u8] {
    // SAFETY: as the caller says.
    unsafe { CStr::from_ptr(text) }.to_bytes()
}

/// The words of a panic.
pub(crate) fn said(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without words")
}
