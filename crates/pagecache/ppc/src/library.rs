//! Loading the shared library of a policy, and checking that its callbacks are its own. Only used in host processes.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::abi::{Abi, Operation, VERSION};

/// A loaded policy library.
#[derive(Debug)]
pub(crate) struct LoadedLibrary {
    /// Its callbacks. Those that its version of `ppc.h` does not have are `None`.
    pub(crate) operation: Operation,
    /// The structure sizes with which it was compiled.
    pub(crate) abi: Abi,
}

/// Why this build loads no libraries. A build for musl is static, or its dynamic linker has no deep binding: a policy's own
/// functions could not take precedence over the host process's.
#[cfg(not(target_env = "gnu"))]
pub(crate) const UNAVAILABLE: Option<&str> =
    Some("this program was built without glibc, whose dynamic linker loads them");
/// Why this build loads no libraries.
#[cfg(target_env = "gnu")]
pub(crate) const UNAVAILABLE: Option<&str> = None;

/// A function of the policy takes precedence over one of the same name in this process, such as `exit`.
#[cfg(target_env = "gnu")]
const DEEP_BINDING: c_int = libc::RTLD_DEEPBIND;
/// Not used: see [`UNAVAILABLE`].
#[cfg(not(target_env = "gnu"))]
const DEEP_BINDING: c_int = 0;

/// Loads a policy. It is never unloaded: the process ends with the policy.
pub(crate) fn open(path: &Path) -> Result<LoadedLibrary, String> {
    if let Some(why) = UNAVAILABLE {
        return Err(format!(
            "policies in shared libraries are unavailable: {why}"
        ));
    }
    let path =
        // `dladdr` reports this form, with which the addresses of callbacks are compared
        std::fs::canonicalize(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let name = CString::new(path.as_os_str().as_bytes()).map_err(|_| "a path with a zero byte")?;
    // bound now: a missing function fails here and not in a call
    let flags = libc::RTLD_NOW | libc::RTLD_LOCAL | DEEP_BINDING;
    // SAFETY: the path is zero-terminated. The library's constructors run and may do anything to this process, which
    // exists only for this policy.
    let handle = unsafe { libc::dlopen(name.as_ptr(), flags) };
    if handle.is_null() {
        return Err(format!("the library cannot be loaded: {}", last_error()));
    }
    let abi_at = symbol(handle, c"ppc_abi");
    check_own("ppc_abi", abi_at, &name)
        .map_err(|what| format!("{what}; was it compiled with ppc.h?"))?;
    let abi = read_abi(abi_at)?;
    let register = symbol(handle, c"register_policy");
    check_own("register_policy", register, &name)?;
    // SAFETY: the library was compiled with ppc.h, which declares `register_policy` with this type.
    let register: unsafe extern "C" fn() -> *const c_void =
        unsafe { std::mem::transmute(register) };
    // SAFETY: as above; a library with another function of this name may end this process.
    let operation = unsafe { register() };
    if operation.is_null() {
        return Err("register_policy returned NULL".into());
    }
    // SAFETY: `ppc_abi` of the library states this size; each field is a function pointer or NULL.
    let operation = unsafe { read::<Operation>(operation.cast(), abi.operation) };
    check_callbacks(&operation, &name)?;
    Ok(LoadedLibrary { operation, abi })
}

fn read_abi(at: *mut c_void) -> Result<Abi, String> {
    // SAFETY: `ppc_abi` of the library, whose first member is its size in bytes.
    let size = unsafe { at.cast::<u32>().read_unaligned() };
    // SAFETY: the symbol has `size` bytes.
    let abi = unsafe { read::<Abi>(at.cast(), size) };
    // a shorter structure has no version, and is refused by its size below
    if size >= Abi::FIRST.size && abi.version != VERSION {
        let found = abi.version;
        return Err(format!(
            "the library was compiled for version {found} of ppc.h, this program has {VERSION}; compile it again"
        ));
    }
    let sizes = |abi: &Abi| {
        let lists = [
            abi.prefetch_list,
            abi.prefetch_entry,
            abi.evict_list,
            abi.evict_entry,
        ];
        [
            &lists[..],
            &[abi.size, abi.operation, abi.context, abi.miss],
        ]
        .concat()
    };
    // smaller than in the first version, or larger than any structure will grow
    if sizes(&abi)
        .iter()
        .zip(sizes(&Abi::FIRST))
        .any(|(&found, first)| found < first || found > 1 << 16)
    {
        return Err(format!(
            "ppc_abi contains sizes that no version of ppc.h has: {abi:?}"
        ));
    }
    Ok(abi)
}

/// Reads a structure of the policy, which has `size` bytes there. Fields beyond `size` are zero.
///
/// # Safety
///
/// `at` points to `size` readable bytes, and any bit pattern that the policy may store, and zero, is a valid `T`.
pub(crate) unsafe fn read<T: Copy>(at: *const T, size: u32) -> T {
    let mut value = MaybeUninit::<T>::zeroed();
    let size = size_of::<T>().min(usize::try_from(size).unwrap_or(0));
    // SAFETY: `size` is at most the size of both the source and the target.
    unsafe { std::ptr::copy_nonoverlapping(at.cast::<u8>(), value.as_mut_ptr().cast(), size) };
    // SAFETY: the caller guarantees that the copied bytes and zero are valid values.
    unsafe { value.assume_init() }
}

fn check_callbacks(operation: &Operation, library: &CStr) -> Result<(), String> {
    let callbacks = [
        ("ppc_init", operation.init.map(|f| f as *mut c_void)),
        ("ppc_exit", operation.exit.map(|f| f as *mut c_void)),
        ("ppc_prefetch", operation.prefetch.map(|f| f as *mut c_void)),
        ("ppc_evict", operation.evict.map(|f| f as *mut c_void)),
        ("ppc_start", operation.start.map(|f| f as *mut c_void)),
        ("ppc_touch", operation.touch.map(|f| f as *mut c_void)),
        ("ppc_release", operation.release.map(|f| f as *mut c_void)),
        ("ppc_wants", operation.wants.map(|f| f as *mut c_void)),
    ];
    callbacks
        .into_iter()
        .filter_map(|(name, at)| Some((name, at?)))
        .try_for_each(|(name, at)| check_own(name, at, library))
}

/// Returns an error unless the address is in the library. The dynamic linker binds a name that the policy does not
/// define to any function of that name in the process.
fn check_own(what: &str, at: *mut c_void, library: &CStr) -> Result<(), String> {
    if at.is_null() {
        return Err(format!("the library does not define {what}"));
    }
    let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: `dladdr` accepts any address, and `info` is writable.
    let found = unsafe { libc::dladdr(at, info.as_mut_ptr()) };
    // SAFETY: all zero is a valid `Dl_info`, and so is what `dladdr` wrote.
    let info = unsafe { info.assume_init() };
    if found == 0 || info.dli_fname.is_null() {
        return Err(format!("{what} has address {at:p}, which is in no library"));
    }
    let file = copy_string(info.dli_fname);
    if file.as_c_str() == library {
        return Ok(());
    }
    let name = if info.dli_sname.is_null() {
        c"an unnamed symbol".to_owned()
    } else {
        copy_string(info.dli_sname)
    };
    Err(format!(
        "{what} is not in the policy but is `{}` of {}: the policy does not define this function, or another library has one of \
         the same name; define it and make it static",
        name.to_string_lossy(),
        file.to_string_lossy()
    ))
}

fn symbol(handle: *mut c_void, name: &CStr) -> *mut c_void {
    // SAFETY: the library is loaded, and the name is zero-terminated.
    unsafe { libc::dlsym(handle, name.as_ptr()) }
}

fn last_error() -> String {
    // SAFETY: no other thread of this process loads libraries, so the returned string is not overwritten.
    let error = unsafe { libc::dlerror() };
    if error.is_null() {
        "the dynamic linker gave no reason".into()
    } else {
        copy_string(error).to_string_lossy().into_owned()
    }
}

fn copy_string(at: *const c_char) -> CString {
    // SAFETY: a zero-terminated string of the dynamic linker.
    unsafe { CStr::from_ptr(at) }.to_owned()
}
