//! Paths named in a snapshot, which must stay in the snapshot's directory.
//!
//! Paths in a snapshot are not trusted: `..`, absolute paths, drive letters and symbolic links that
//! point outside the directory are rejected unless the user allows them.

use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Why a path is rejected.
#[derive(Debug, Error)]
pub enum PathError {
    /// The path is empty.
    #[error("empty path")]
    Empty,
    /// It points outside the snapshot's directory.
    #[error("leads outside the snapshot's directory (--allow-outside permits it)")]
    Outside,
    /// It names a directory, a pipe or a device.
    #[error("not a file")]
    NotAFile,
    /// The file cannot be opened.
    #[error("{}", io_text(.0))]
    Io(#[from] io::Error),
}

fn io_text(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "no such file".into(),
        io::ErrorKind::PermissionDenied => "permission denied".into(),
        _ => error.to_string(),
    }
}

/// Normalises a path: `/` between its components, no empty or `.` components. Backslashes are
/// separators too; `..` removes a component. `None` if the path goes above its start, is absolute
/// or has a drive letter.
pub fn normal(written: &str) -> Option<String> {
    let written = written.replace('\\', "/");
    if written.starts_with('/') || written.contains('\0') {
        return None;
    }
    let mut parts: Vec<&str> = Vec::new();
    for part in written.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    // Windows: the name of another drive, after any removed components, or of a stream of a file.
    let drive = parts.first().and_then(|part| part.as_bytes().get(1)) == Some(&b':');
    let stream = cfg!(windows) && parts.iter().any(|part| part.contains(':'));
    (!drive && !stream).then(|| parts.join("/"))
}

/// Returns the path of the file that `written` names, an existing regular file below `root`.
///
/// # Errors
///
/// Returns an error if the path is empty, points outside, or does not name a regular file that can
/// be opened.
pub fn resolve(root: &Path, written: &str, allow_outside: bool) -> Result<PathBuf, PathError> {
    if written.trim().is_empty() {
        return Err(PathError::Empty);
    }
    if allow_outside {
        let path = root.join(written.replace('\\', "/"));
        return match path.metadata()?.is_file() {
            true => Ok(path),
            false => Err(PathError::NotAFile),
        };
    }
    let relative = normal(written).ok_or(PathError::Outside)?;
    let path = root.join(relative);
    // Canonical paths resolve symbolic links.
    let (root, canonical) = (root.canonicalize()?, path.canonicalize()?);
    if !canonical.starts_with(&root) {
        return Err(PathError::Outside);
    }
    match canonical.metadata()?.is_file() {
        // Other programs do not understand `\\?\C:`.
        true => Ok(dunce::simplified(&canonical).to_owned()),
        false => Err(PathError::NotAFile),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normal_paths() {
        assert_eq!(normal("a/./b//c.bin").as_deref(), Some("a/b/c.bin"));
        assert_eq!(normal("sub\\x.bin").as_deref(), Some("sub/x.bin"));
        assert_eq!(normal("a/../b").as_deref(), Some("b"));
        for out in [
            "../x",
            "a/../../x",
            "/etc/passwd",
            "C:\\x",
            "c:x",
            "./c:x",
            "a/../c:/x",
            "\\\\host\\x",
            "a\0b",
        ] {
            assert_eq!(normal(out), None, "{out}");
        }
    }

    #[test]
    #[cfg(unix)]
    fn paths_outside_the_snapshot_are_rejected() {
        use std::os::unix::fs::symlink;
        let parent = tempfile::tempdir().unwrap();
        let root = parent.path().join("snapshot");
        std::fs::create_dir_all(root.join("sub")).unwrap();
        std::fs::write(parent.path().join("secret"), "s").unwrap();
        std::fs::write(root.join("sub/x.bin"), "x").unwrap();
        symlink(parent.path().join("secret"), root.join("link")).unwrap();
        symlink(parent.path(), root.join("up")).unwrap();
        symlink("sub/x.bin", root.join("inner")).unwrap();

        for inside in ["sub/x.bin", "sub\\x.bin", "./sub/../sub/x.bin", "inner"] {
            assert!(resolve(&root, inside, false).is_ok(), "{inside}");
        }
        let secret = parent.path().join("secret");
        for outside in ["../secret", "link", "up/secret", secret.to_str().unwrap()] {
            assert!(
                matches!(resolve(&root, outside, false), Err(PathError::Outside)),
                "{outside}"
            );
            assert!(resolve(&root, outside, true).is_ok(), "{outside}");
        }
        assert!(matches!(
            resolve(&root, "sub", false),
            Err(PathError::NotAFile)
        ));
        assert!(matches!(resolve(&root, " ", false), Err(PathError::Empty)));
        assert!(matches!(
            resolve(&root, "none", false),
            Err(PathError::Io(_))
        ));
    }
}
