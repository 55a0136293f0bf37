//! Opening the shared library of a policy, and whether its callbacks are its own. In a host process only.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_void};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::abi::{Abi, Operation, VERSION};

/// What a library says of itself.
#[derive(Debug)]
pub(crate) struct Library {
    /// Its callbacks; those that it does not know are absent.
    pub(crate) operation: Operation,
    /// The sizes that it was compiled with.
    pub(crate) abi: Abi,
}

/// Opens a policy. It stays open as long as the process lives.
pub(crate) fn open(path: &Path) -> Result<Library, String> {
    let path =
        std::fs::canonicalize(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let name = CString::new(path.as_os_str().as_bytes()).map_err(|_| "a path with a zero byte")?;
    // deep binding: the policy's own `exit` is its `exit`, whatever this process has of that name
    let flags = libc::RTLD_NOW | libc::RTLD_LOCAL | libc::RTLD_DEEPBIND;
    // SAFETY: a terminated string. The library's constructors run; what they may break is this process, which is the
    // policy's own.
    let handle = unsafe { libc::dlopen(name.as_ptr(), flags) };
    if handle.is_null() {
        return Err(format!("cannot be loaded: {}", last_error()));
    }
    let abi_at = symbol(handle, c"ppc_abi");
    own("ppc_abi", abi_at, &name).map_err(|what| format!("{what}; was it compiled with ppc.h?"))?;
    let abi = read_abi(abi_at)?;
    let register = symbol(handle, c"register_policy");
    own("register_policy", register, &name)?;
    // SAFETY: the library was compiled with ppc.h, which declares `register_policy` with this type.
    let register: unsafe extern "C" fn() -> *const c_void =
        unsafe { std::mem::transmute(register) };
    // SAFETY: as above; a library that lies ends this process.
    let operation = unsafe { register() };
    if operation.is_null() {
        return Err("register_policy returned NULL".into());
    }
    // SAFETY: as the library says; a field is a function or none.
    let operation = unsafe { read::<Operation>(operation.cast(), abi.operation) };
    check(&operation, &name)?;
    Ok(Library { operation, abi })
}

fn read_abi(at: *mut c_void) -> Result<Abi, String> {
    // SAFETY: a symbol of the library's own, whose first member is its size.
    let size = unsafe { at.cast::<u32>().read_unaligned() };
    // SAFETY: it has so many bytes.
    let abi = unsafe { read::<Abi>(at.cast(), size) };
    if size >= Abi::FIRST.size && abi.version != VERSION {
        let found = abi.version;
        return Err(format!(
            "compiled for version {found} of the policy interface, this is {VERSION}; compile it again"
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
    if sizes(&abi)
        .iter()
        .zip(sizes(&Abi::FIRST))
        .any(|(&found, first)| found < first || found > 1 << 16)
    {
        return Err(format!("sizes that no version of ppc.h has: {abi:?}"));
    }
    Ok(abi)
}

/// What a policy's pointer leads to: the fields that both sides know, zeroes in those that the policy does not.
///
/// # Safety
///
/// `size` bytes are there, and zeroes and any address are values of `T`'s fields.
pub(crate) unsafe fn read<T: Copy>(at: *const T, size: u32) -> T {
    let mut value = MaybeUninit::<T>::zeroed();
    let size = size_of::<T>().min(usize::try_from(size).unwrap_or(0));
    // SAFETY: so many bytes are there on both sides.
    unsafe { std::ptr::copy_nonoverlapping(at.cast::<u8>(), value.as_mut_ptr().cast(), size) };
    // SAFETY: as the caller says of its fields.
    unsafe { value.assume_init() }
}

fn check(operation: &Operation, library: &CStr) -> Result<(), String> {
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
        .try_for_each(|(name, at)| own(name, at, library))
}

/// Whether an address lies in the library. What a policy does not define itself is bound to whatever has the name.
fn own(what: &str, at: *mut c_void, library: &CStr) -> Result<(), String> {
    if at.is_null() {
        return Err(format!("it does not define {what}"));
    }
    let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: any address may be asked for; the answer's place is ours.
    let found = unsafe { libc::dladdr(at, info.as_mut_ptr()) };
    // SAFETY: zeroes are a value of it, and so is what `dladdr` wrote.
    let info = unsafe { info.assume_init() };
    if found == 0 || info.dli_fname.is_null() {
        return Err(format!("{what} is at {at:p}, which is in no library"));
    }
    let file = text(info.dli_fname);
    if file.as_c_str() == library {
        return Ok(());
    }
    let name = if info.dli_sname.is_null() {
        c"something".to_owned()
    } else {
        text(info.dli_sname)
    };
    Err(format!(
        "{what} is not in the policy but is `{}` of {}: a function that the policy does not define itself, or whose name \
         another library has too; define it, and make it static",
        name.to_string_lossy(),
        file.to_string_lossy()
    ))
}

fn symbol(handle: *mut c_void, name: &CStr) -> *mut c_void {
    // SAFETY: an open library and a terminated string.
    unsafe { libc::dlsym(handle, name.as_ptr()) }
}

fn last_error() -> String {
    // SAFETY: no other thread of this process loads libraries.
    let error = unsafe { libc::dlerror() };
    if error.is_null() {
        "for no known reason".into()
    } else {
        text(error).to_string_lossy().into_owned()
    }
}

fn text(at: *const c_char) -> CString {
    // SAFETY: a terminated string of the dynamic linker's.
    unsafe { CStr::from_ptr(at) }.to_owned()
}
