//! tracefs: where trace points are described, and the layout of their records.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

use crate::source::native_endian::read_uint;
use crate::{Error, ErrorKind, Result};

/// A readable tracefs.
#[derive(Debug)]
pub(crate) struct Tracefs {
    path: PathBuf,
    /// A detached mount exists as long as this descriptor is open.
    _mount: Option<OwnedFd>,
}

impl Tracefs {
    /// Uses the first of the directories that has trace points; if none has and `mount` is set, a detached mount.
    pub(crate) fn find(directories: &[PathBuf], mount: bool) -> Result<Self> {
        if let Some(path) = directories.iter().find(|path| has_trace_points(path)) {
            return Ok(Self {
                path: path.clone(),
                _mount: None,
            });
        }
        if mount && let Ok(tracefs) = Self::mount_detached() {
            return Ok(tracefs);
        }
        Err(unavailable(directories))
    }

    /// Mounts tracefs without attaching it to a directory (Linux 5.2, as root). Other processes do not see the mount, and
    /// the kernel removes it with the descriptor, even if this process is killed.
    fn mount_detached() -> io::Result<Self> {
        let context = fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_create(&context)?;
        // only descriptions are read: trace points are opened by `perf_event_open`
        let attributes = MountAttrFlags::MOUNT_ATTR_RDONLY | MountAttrFlags::MOUNT_ATTR_NOSUID;
        let mount = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
        let path = PathBuf::from(format!("/proc/self/fd/{}", mount.as_raw_fd()));
        if has_trace_points(&path) {
            Ok(Self {
                path,
                _mount: Some(mount),
            })
        } else {
            Err(io::ErrorKind::NotFound.into())
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

fn has_trace_points(path: &Path) -> bool {
    path.join("events/filemap").is_dir()
}

fn unavailable(directories: &[PathBuf]) -> Error {
    let first = directories
        .first()
        .map(|path| path.display().to_string())
        .unwrap_or_default();
    // a directory that may not be read looks as if it had no trace points
    let denied = directories
        .iter()
        .find_map(|path| fs::read_dir(path).err())
        .is_some_and(|error| error.kind() == io::ErrorKind::PermissionDenied);
    if denied {
        return access_denied(Path::new(&first));
    }
    Error::new(ErrorKind::Unavailable(format!(
        "there are no trace points at {first}; as root: mount -t tracefs tracefs {first} (the kernel needs CONFIG_FTRACE)"
    )))
}

/// The error for a tracefs that this process may not read.
pub(crate) fn access_denied(tracefs: &Path) -> Error {
    let path = tracefs.display();
    Error::new(ErrorKind::Unavailable(format!(
        "reading the trace points at {path} needs root, CAP_DAC_READ_SEARCH, or a mount with gid= of a group of this process; \
         the sources of fanotify need CAP_SYS_ADMIN, and shim needs nothing"
    )))
}

/// An integer field of a trace point's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordField {
    offset: usize,
    size: usize,
}

impl RecordField {
    /// The value of the field in a record; `None` if the record is too short.
    pub(crate) fn read(self, raw: &[u8]) -> Option<u64> {
        read_uint(raw.get(self.offset..self.offset.checked_add(self.size)?)?)
    }
}

/// The `format` file of a trace point.
#[derive(Debug)]
pub(crate) struct RecordFormat {
    /// The number by which the trace point is opened.
    pub(crate) id: u32,
    fields: Vec<(String, RecordField)>,
}

impl RecordFormat {
    /// Parses a `format` file. Its field lines have the form `field:unsigned long i_ino; offset:8; size:8; signed:0;`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let id = text
            .lines()
            .find_map(|line| line.strip_prefix("ID:"))?
            .trim()
            .parse()
            .ok()?;
        let fields = text
            .lines()
            .filter_map(|line| Self::parse_field(line.trim()))
            .collect();
        Some(Self { id, fields })
    }

    fn parse_field(line: &str) -> Option<(String, RecordField)> {
        let mut parts = line.split(';').map(str::trim);
        let declared = parts.next()?.strip_prefix("field:")?;
        // the last word of a C declaration, after the `*` of a pointer
        let name = declared.rsplit([' ', '*']).next()?;
        let offset = parts.next()?.strip_prefix("offset:")?.parse().ok()?;
        let size = parts.next()?.strip_prefix("size:")?.parse().ok()?;
        Some((name.to_owned(), RecordField { offset, size }))
    }

    /// The integer field of this name. `None` if there is none, or its size is not 1, 2, 4 or 8 bytes.
    pub(crate) fn field(&self, name: &str) -> Option<RecordField> {
        let field = self.fields.iter().find(|(known, _)| known == name)?.1;
        // arrays are fields, too
        matches!(field.size, 1 | 2 | 4 | 8).then_some(field)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_directory_with_trace_points_is_used() {
        let (empty, with_trace_points) =
            (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::create_dir_all(with_trace_points.path().join("events/filemap")).unwrap();
        let paths = [empty.path().join("tracing"), empty.path().to_owned()];
        let error = Tracefs::find(&paths, false).unwrap_err().to_string();
        assert!(error.contains("mount -t tracefs"), "{error}");
        let paths = [empty.path().to_owned(), with_trace_points.path().to_owned()];
        assert_eq!(
            Tracefs::find(&paths, true).unwrap().path(),
            with_trace_points.path()
        );
    }

    #[test]
    fn a_detached_mount_is_in_no_mount_table_and_ends_when_dropped() {
        let Ok(tracefs) = Tracefs::find(&[], true) else {
            return eprintln!("SKIPPED: no tracefs can be mounted here");
        };
        let path = tracefs.path().to_owned();
        assert!(
            fs::read_to_string(path.join("events/filemap/mm_filemap_add_to_page_cache/format"))
                .is_ok()
        );
        let mounts = || fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!mounts().contains(path.to_str().unwrap()));
        drop(tracefs);
        assert!(!has_trace_points(&path));
    }

    const TEXT: &str = "name: page_cache_sync_ra\nID: 617\nformat:\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
        \tfield:struct file * file;\toffset:8;\tsize:8;\tsigned:0;\n\
        \tfield:dev_t s_dev;\toffset:16;\tsize:4;\tsigned:0;\n\
        \tfield:char comm[16];\toffset:20;\tsize:16;\tsigned:0;\n\
        \tfield:broken;\toffset:x;\tsize:4;\n\nprint fmt: \"\"\n";

    #[test]
    fn fields_are_found_by_name() {
        let format = RecordFormat::parse(TEXT).unwrap();
        assert_eq!(format.id, 617);
        assert_eq!(
            format.field("s_dev"),
            Some(RecordField {
                offset: 16,
                size: 4
            })
        );
        assert_eq!(
            format.field("file"),
            Some(RecordField { offset: 8, size: 8 })
        );
        assert_eq!(format.field("comm[16]"), None, "not an integer");
        assert_eq!(format.field("broken"), None);
        assert_eq!(RecordFormat::parse("format:\n").map(|f| f.id), None);
    }

    #[test]
    fn a_short_record_has_no_value() {
        let field = RecordFormat::parse(TEXT).unwrap().field("s_dev").unwrap();
        let mut raw = [0; 20];
        raw[16..].copy_from_slice(&0xfe00_0000u32.to_ne_bytes());
        assert_eq!(field.read(&raw), Some(0xfe00_0000));
        assert_eq!(field.read(&raw[..19]), None);
        assert_eq!(
            RecordField {
                offset: usize::MAX,
                size: 8
            }
            .read(&raw),
            None
        );
    }
}
