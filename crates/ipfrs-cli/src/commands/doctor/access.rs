//! Access of this user to the repo.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::Finding;
use super::remedy::{Remedies, quoted_path};

/// Returns the command that gives this user access to `all`, of which `denied` cannot be used: another permission if
/// this user owns it, and another owner otherwise.
pub(super) fn fix(denied: &Path, all: &Path) -> String {
    command(is_own(denied), all)
}

/// Whether this user owns a file or directory.
pub(super) fn is_own(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|metadata| metadata.uid() == geteuid().as_raw())
}

fn command(is_owner: bool, all: &Path) -> String {
    let shown = quoted_path(all);
    match is_owner {
        true => format!("chmod -R u+rwX {shown}"),
        false => format!("sudo chown -R \"$(id -u):$(id -g)\" {shown}"),
    }
}

/// Checks whether the repo, or the directory in which it will be created, can be written.
pub(super) fn permissions(repo: &Path, is_read_only: bool, remedies: &Remedies) -> Finding {
    const CHECK: &str = "repo";
    let place = existing(repo);
    let needed = if is_read_only { Access::READ_OK | Access::EXEC_OK } else { Access::WRITE_OK | Access::EXEC_OK };
    let shown = place.display();
    if let Err(error) = access(&place, needed) {
        let what = if is_read_only { "read" } else { "written" };
        if error == Errno::ROFS {
            let message =
                format!("{shown} cannot be written: {error}. store.read_only = true makes it sufficient to read");
            let target = format!("\"$(findmnt -n -o TARGET --target {})\"", quoted_path(&place));
            return Finding::error(CHECK, message, format!("sudo mount -o remount,rw {target}"));
        }
        return Finding::error(CHECK, format!("{shown} cannot be {what}: {error}"), fix(&place, &place));
    }
    if let Some(path) = without_access(repo, needed) {
        return Finding::error(CHECK, format!("this user has no access to {}", path.display()), fix(&path, &place));
    }
    if repo.exists() {
        return Finding::ok(CHECK, format!("{shown} can be {}", if is_read_only { "read" } else { "written" }));
    }
    let message = format!("{} does not exist", repo.display());
    if is_read_only {
        return Finding::error(CHECK, message, remedies.set("store.read_only", "false"));
    }
    Finding::ok(CHECK, format!("{message}: the first command that needs it creates it"))
}

/// Returns the path, or its nearest ancestor that exists.
pub(super) fn existing(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    absolute.ancestors().find(|ancestor| ancestor.exists()).unwrap_or(Path::new("/")).to_owned()
}

/// Returns a file or directory of the repo that this user may not use as needed: another one, such as root, may have
/// made it.
fn without_access(repo: &Path, needed: Access) -> Option<PathBuf> {
    let entries = |directory: &Path| {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        entries.map(|entry| (entry.path(), entry.file_type().is_ok_and(|kind| kind.is_dir())))
    };
    let mut all = entries(repo).flat_map(|(path, is_directory)| {
        let below = is_directory.then(|| entries(&path)).into_iter().flatten().collect::<Vec<_>>();
        std::iter::once((path, is_directory)).chain(below)
    });
    let lacks = |(path, is_directory): &(PathBuf, bool)| {
        let needed = if *is_directory { needed } else { needed & !Access::EXEC_OK };
        // A key that others may not read is read by its owner only.
        let needed = if needed.contains(Access::WRITE_OK) { needed | Access::READ_OK } else { needed };
        matches!(access(path, needed), Err(Errno::ACCESS | Errno::PERM))
    };
    all.find(lacks).map(|(path, _)| path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fix_changes_permissions_of_own_files_and_the_owner_of_others() {
        let repo = tempfile::tempdir().unwrap();
        let file = repo.path().join("pins.redb");
        fs::write(&file, "").unwrap();
        assert_eq!(fix(&file, repo.path()), format!("chmod -R u+rwX {}", repo.path().display()));
        let of_other = command(false, repo.path());
        assert!(of_other.starts_with("sudo chown -R ") && of_other.ends_with(&repo.path().display().to_string()));
    }
}
