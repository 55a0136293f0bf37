//! Attributes of a file besides its bytes, its owner and its permissions, which a copy in its place keeps.

use std::fs::File;
use std::io;

/// The longest value of an extended attribute in Linux, and the longest list of names.
#[cfg(any(target_os = "linux", target_os = "android"))]
const LONGEST: usize = 64 << 10;

/// Gives a file the extended attributes of another one, access-control lists among them, and the time of its last access. Attributes
/// that this user, or the file system, cannot set are left out.
///
/// # Errors
///
/// The errors of reading the attributes.
pub fn carry(from: &File, to: &File) -> io::Result<()> {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        use rustix::buffer::spare_capacity;
        use rustix::fs::{XattrFlags, fgetxattr, flistxattr, fsetxattr};
        use rustix::io::Errno;
        use std::ffi::CStr;

        let mut names = Vec::with_capacity(LONGEST);
        match flistxattr(from, spare_capacity(&mut names)) {
            // a file system without attributes
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
            listed => drop(listed?),
        }
        for name in names.split_inclusive(|byte| *byte == 0) {
            let Ok(name) = CStr::from_bytes_with_nul(name) else {
                continue;
            };
            let mut value = Vec::with_capacity(LONGEST);
            match fgetxattr(from, name, spare_capacity(&mut value)) {
                // removed meanwhile, or one that only its subsystem reads
                Err(Errno::NODATA | Errno::ACCESS | Errno::PERM) => continue,
                read => drop(read?),
            }
            // labels of security modules are theirs to set
            let _ = fsetxattr(to, name, &value, XattrFlags::empty());
        }
    }
    let accessed = from.metadata()?.accessed();
    if let Ok(accessed) = accessed {
        // the process may not, where the file has another owner
        let _ = to.set_times(std::fs::FileTimes::new().set_accessed(accessed));
    }
    Ok(())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::io::Write;
    use std::time::{Duration, SystemTime};

    use rustix::fs::{XattrFlags, fgetxattr, fsetxattr};

    use super::*;

    #[test]
    fn attributes_and_the_time_of_access_are_carried() {
        let directory = tempfile::tempdir().unwrap();
        let create = |name: &str| {
            let mut options = File::options();
            let file = options.read(true).write(true).create_new(true);
            file.open(directory.path().join(name)).unwrap()
        };
        let (mut from, to) = (create("from"), create("to"));
        from.write_all(b"bytes").unwrap();
        let then = SystemTime::now() - Duration::from_secs(100_000);
        let times = std::fs::FileTimes::new().set_accessed(then);
        from.set_times(times).unwrap();
        let set = fsetxattr(&from, c"user.note", b"kept", XattrFlags::empty());
        carry(&from, &to).unwrap();
        let accessed = to.metadata().unwrap().accessed().unwrap();
        assert!(accessed.duration_since(then).unwrap_or_default() < Duration::from_secs(1));
        if set.is_err() {
            eprintln!("SKIPPED: the file system has no attributes of users");
            return;
        }
        let mut value = Vec::with_capacity(16);
        fgetxattr(
            &to,
            c"user.note",
            rustix::buffer::spare_capacity(&mut value),
        )
        .unwrap();
        assert_eq!(value, b"kept");
    }
}
