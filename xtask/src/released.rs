//! Checks a release as its users get it: the files of the package and the archive, and a start of their programs.

mod daemon;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::places::{emptied, found, target, workspace};
use crate::{dist, run, text_of};

/// Files of the Debian package without manual pages, with their modes.
const PACKAGED: [(&str, &str); 12] = [
    ("usr/bin/ipfrs-cli", "-rwxr-xr-x"),
    ("usr/share/bash-completion/completions/ipfrs-cli", "-rw-r--r--"),
    ("usr/share/zsh/vendor-completions/_ipfrs-cli", "-rw-r--r--"),
    ("usr/share/fish/vendor_completions.d/ipfrs-cli.fish", "-rw-r--r--"),
    ("usr/lib/systemd/system/ipfrs.service", "-rw-r--r--"),
    ("usr/lib/systemd/system/ipfrs.socket", "-rw-r--r--"),
    ("usr/lib/sysusers.d/ipfrs.conf", "-rw-r--r--"),
    ("etc/ipfrs/config.toml", "-rw-r--r--"),
    ("usr/share/doc/ipfrs/README.md", "-rw-r--r--"),
    ("usr/share/doc/ipfrs/OPERATIONS.md", "-rw-r--r--"),
    ("usr/share/doc/ipfrs/LICENSE-MIT", "-rw-r--r--"),
    ("usr/share/doc/ipfrs/copyright", "-rw-r--r--"),
];

/// Files that the package and the archive both contain, with their paths in each.
const COMMON: [(&str, &str); 7] = [
    ("usr/bin/ipfrs-cli", "ipfrs-cli"),
    ("usr/lib/systemd/system/ipfrs.service", "packaging/ipfrs.service"),
    ("usr/lib/systemd/system/ipfrs.socket", "packaging/ipfrs.socket"),
    ("usr/lib/sysusers.d/ipfrs.conf", "packaging/sysusers.d/ipfrs.conf"),
    ("etc/ipfrs/config.toml", "packaging/config.toml"),
    ("usr/share/doc/ipfrs/OPERATIONS.md", "OPERATIONS.md"),
    ("usr/share/doc/ipfrs/LICENSE-MIT", "LICENSE-MIT"),
];

/// Shells that must accept the scripts of the package. Debian's `/bin/sh` is dash.
const SHELLS: [&str; 2] = ["sh", "dash"];

/// Modes of files by their paths, without directories.
type Modes = BTreeMap<String, String>;

/// Checks the files that `cargo xtask dist` has written to `target/distribution`.
///
/// # Errors
/// Returns an error that names the first file, unit, script or response that is wrong.
pub(crate) fn check() -> Result<()> {
    let mut skipped = Vec::new();
    let distribution = &target()?.join("distribution");
    check_sums(distribution)?;
    let unpacked = emptied(&target()?.join("released"))?;

    let package = only(distribution, ".deb")?;
    let root = emptied(&unpacked.join("package"))?;
    run("check of the package", Command::new("dpkg-deb").arg("--extract").arg(&package).arg(&root))?;
    let pages = pages(&root.join("usr/bin/ipfrs-cli"), &unpacked)?;
    let pages_of_package = pages.iter().map(|page| format!("usr/share/man/man1/{page}.gz"));
    let contents = text_of(Command::new("dpkg-deb").arg("--contents").arg(&package))?;
    compare("package", &modes(&contents, "./")?, &expected(&PACKAGED, pages_of_package))?;
    check_scripts(&package, &unpacked, &mut skipped)?;
    check_units(&root, &unpacked, &mut skipped)?;

    let archive = only(distribution, ".tar.gz")?;
    let name = archive.file_name().and_then(OsStr::to_str).and_then(|name| name.strip_suffix(".tar.gz"));
    let name = name.context("the archive has no name")?;
    let mut tar = Command::new("tar");
    run("check of the archive", tar.arg("--extract").arg("--file").arg(&archive).arg("--directory").arg(&unpacked))?;
    let mut list = Command::new("tar");
    let contents = text_of(list.args(["--list", "--verbose", "--numeric-owner", "--file"]).arg(&archive))?;
    let files = dist::files().into_iter().chain(pages.iter().map(|page| format!("man1/{page}")));
    let contained = modes(&contents, &format!("{name}/"))?;
    compare("archive", &contained, &expected(&[("ipfrs-cli", "-rwxr-xr-x")], files))?;
    let copy = unpacked.join(name);
    for (packaged, archived) in COMMON {
        let [one, other] = [root.join(packaged), copy.join(archived)].map(|path| read(&path));
        ensure!(one? == other?, "{archived} of the archive is not {packaged} of the package");
    }

    let version = text_of(Command::new("dpkg-deb").arg("--field").arg(&package).arg("Version"))?;
    for (what, installed) in [
        (
            "package",
            daemon::Installed {
                program: root.join("usr/bin/ipfrs-cli"),
                service: root.join("usr/lib/systemd/system/ipfrs.service"),
                config: root.join("etc/ipfrs/config.toml"),
            },
        ),
        (
            "archive",
            daemon::Installed {
                program: copy.join("ipfrs-cli"),
                service: copy.join("packaging/ipfrs.service"),
                config: copy.join("packaging/config.toml"),
            },
        ),
    ] {
        let directory = emptied(&unpacked.join(format!("run-{what}")))?;
        eprintln!("xtask: check of the {what}: the daemon, in {}", directory.display());
        check_version(&installed.program, version.trim())?;
        daemon::check(&installed, &directory).with_context(|| format!("the program of the {what}"))?;
    }
    fs::remove_dir_all(&unpacked).with_context(|| format!("cannot remove {}", unpacked.display()))?;
    for reason in skipped {
        eprintln!("xtask: check of the release: SKIPPED: {reason}");
    }
    eprintln!("xtask: check of the release: checksums, files, scripts and units are right, and both programs work");
    Ok(())
}

/// Checks that a program has the version of the package, which is the former and the number of the package.
fn check_version(program: &Path, of_package: &str) -> Result<()> {
    let text = text_of(Command::new(program).arg("version"))?;
    let version = text.split_whitespace().last().context("the program has no version")?;
    // Debian sorts `~` before all else, so that a pre-release precedes its release.
    let is_same = of_package.rsplit_once('-').is_some_and(|(first, _)| first == version.replace('-', "~"));
    ensure!(is_same, "{} is of version {version}, the package of {of_package}", program.display());
    Ok(())
}

/// Compares the checksums, which must be of all files.
fn check_sums(distribution: &Path) -> Result<()> {
    let mut sums = Command::new("sha256sum");
    run("checksums", sums.args(["--check", "--strict", "--quiet", "SHA256SUMS"]).current_dir(distribution))?;
    let text = fs::read_to_string(distribution.join("SHA256SUMS")).context("cannot read SHA256SUMS")?;
    let listed: BTreeSet<_> = text.lines().filter_map(|line| Some(line.split_once("  ")?.1.to_owned())).collect();
    let mut present = BTreeSet::new();
    for entry in fs::read_dir(distribution)? {
        present.insert(entry?.file_name().to_string_lossy().into_owned());
    }
    present.remove("SHA256SUMS");
    ensure!(listed == present, "SHA256SUMS has the files {listed:?} in place of {present:?}");
    Ok(())
}

/// Returns the names of the manual pages that the program generates.
fn pages(program: &Path, unpacked: &Path) -> Result<Vec<String>> {
    let directory = emptied(&unpacked.join("man1"))?;
    run("manual pages", Command::new(program).arg("man").arg(&directory))?;
    let mut pages = Vec::new();
    for entry in fs::read_dir(&directory).with_context(|| format!("cannot read {}", directory.display()))? {
        pages.push(entry?.file_name().to_string_lossy().into_owned());
    }
    Ok(pages)
}

/// Returns the modes of files, from the verbose listing of tar or dpkg-deb. Their paths follow `prefix`.
///
/// # Errors
/// Returns an error for a file that is not root's, and for a directory that others cannot list or may change.
fn modes(listing: &str, prefix: &str) -> Result<Modes> {
    let mut modes = Modes::new();
    for line in listing.lines() {
        // Mode, owner, size, date, time and path.
        let mut words = line.split_whitespace();
        let (mode, owner) = words.next().zip(words.next()).with_context(|| format!("not a listing: {line}"))?;
        let path = words.nth(3).and_then(|path| path.strip_prefix(prefix));
        let path = path.with_context(|| format!("not a file below {prefix}: {line}"))?;
        ensure!(["0/0", "root/root"].contains(&owner), "the owner is not root: {line}");
        if mode.starts_with('d') {
            ensure!(mode == "drwxr-xr-x", "mode of a directory: {line}");
        } else {
            ensure!(modes.insert(path.to_owned(), mode.to_owned()).is_none(), "twice: {line}");
        }
    }
    Ok(modes)
}

/// Returns the modes of files of which most are readable by everyone.
fn expected(files: &[(&str, &str)], readable: impl IntoIterator<Item = String>) -> Modes {
    let files = files.iter().map(|(path, mode)| ((*path).to_owned(), (*mode).to_owned()));
    files.chain(readable.into_iter().map(|path| (path, "-rw-r--r--".to_owned()))).collect()
}

fn compare(what: &str, contained: &Modes, expected: &Modes) -> Result<()> {
    let lacks: Vec<_> = expected.iter().filter(|(path, mode)| contained.get(*path) != Some(*mode)).collect();
    let has: Vec<_> = contained.iter().filter(|(path, mode)| expected.get(*path) != Some(*mode)).collect();
    ensure!(lacks.is_empty() && has.is_empty(), "the {what} lacks {lacks:?}, and has {has:?}");
    Ok(())
}

/// Checks the scripts and the list of configuration files in the package.
fn check_scripts(package: &Path, unpacked: &Path, skipped: &mut Vec<String>) -> Result<()> {
    let control = emptied(&unpacked.join("control"))?;
    run("check of the scripts", Command::new("dpkg-deb").arg("--control").arg(package).arg(&control))?;
    let sources = workspace()?.join("packaging/debian");
    for entry in fs::read_dir(&sources).with_context(|| format!("cannot read {}", sources.display()))? {
        let source = entry?.path();
        let script = control.join(source.file_name().context("a script without a name")?);
        ensure!(read(&script)? == read(&source)?, "{} differs from its source", script.display());
        for shell in SHELLS.into_iter().filter(|shell| found(shell).is_some()) {
            run("check of the scripts", Command::new(shell).arg("-n").arg(&script))?;
        }
        let mode = fs::metadata(&script)?.permissions().mode() & 0o7777;
        ensure!(mode == 0o755, "{} has the mode {mode:o}", script.display());
    }
    if found("dash").is_none() {
        skipped.push("the scripts of the package in dash, which is not installed".to_owned());
    }
    let listed = fs::read_to_string(control.join("conffiles")).context("the package has no configuration files")?;
    ensure!(listed.lines().eq(["/etc/ipfrs/config.toml"]), "configuration files of the package: {listed}");
    Ok(())
}

/// Checks the units with systemd, and that `sysusers.d` creates the user of the service.
fn check_units(root: &Path, unpacked: &Path, skipped: &mut Vec<String>) -> Result<()> {
    let unit = fs::read_to_string(root.join("usr/lib/systemd/system/ipfrs.service"))?;
    let user = unit.lines().find_map(|line| line.strip_prefix("User=")).context("the service has no user")?;
    let users = fs::read_to_string(root.join("usr/lib/sysusers.d/ipfrs.conf"))?;
    let creates = users.lines().any(|line| line.split_whitespace().take(2).eq(["u", user]));
    ensure!(creates, "sysusers.d does not create the user {user}");
    if found("systemd-analyze").is_none() {
        skipped.push("the units, because systemd-analyze is not installed".to_owned());
        return Ok(());
    }
    let directory = emptied(&unpacked.join("units"))?;
    let mut verify = Command::new("systemd-analyze");
    verify.args(["verify", "--man=no"]);
    for name in ["ipfrs.service", "ipfrs.socket"] {
        let text = fs::read_to_string(root.join("usr/lib/systemd/system").join(name))?;
        let copy = directory.join(name);
        // systemd looks for the program.
        fs::write(&copy, text.replace("/usr/bin/ipfrs-cli", &root.join("usr/bin/ipfrs-cli").to_string_lossy()))?;
        verify.arg(copy);
    }
    let output = verify.output().context("systemd-analyze could not be started")?;
    let text = String::from_utf8_lossy(&output.stderr);
    // Unknown keys are only reported. Other units of this machine may have faults.
    let own = directory.to_string_lossy();
    let faults: Vec<_> = text.lines().filter(|line| line.contains(&*own)).collect();
    ensure!(output.status.success() && faults.is_empty(), "systemd-analyze: {}: {text}", output.status);
    Ok(())
}

/// Returns the only file in a directory whose name ends so.
fn only(directory: &Path, end: &str) -> Result<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).with_context(|| format!("cannot read {}", directory.display()))? {
        let path = entry?.path();
        if path.to_string_lossy().ends_with(end) {
            files.push(path);
        }
    }
    ensure!(files.len() == 1, "{} has {} files *{end} in place of one", directory.display(), files.len());
    files.pop().context("no file")
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTING: &str = "\
drwxr-xr-x 0/0               0 2026-11-30 00:00 ./usr/
-rwxr-xr-x root/root        12 2026-11-30 00:00 ./usr/program
-rw-r--r-- 0/0               0 2026-11-30 00:00 ./usr/page.gz
";

    #[test]
    fn listing_with_other_files_modes_or_owners_is_an_error() {
        let pages = || ["usr/page.gz".to_owned()];
        let right = modes(LISTING, "./").unwrap();
        compare("package", &right, &expected(&[("usr/program", "-rwxr-xr-x")], pages())).unwrap();
        for other in [("usr/program", "-rwxrwxr-x"), ("usr/another", "-rwxr-xr-x")] {
            assert!(compare("package", &right, &expected(&[other], pages())).is_err(), "{other:?}");
        }
        assert!(compare("package", &right, &expected(&[], pages())).is_err());
        for wrong in [
            LISTING.replace("root/root", "user/root"),
            LISTING.replace("drwxr-xr-x", "drwxrwxrwx"),
            LISTING.replace("./usr/page.gz", "/usr/page.gz"),
        ] {
            assert!(modes(&wrong, "./").is_err(), "{wrong}");
        }
    }
}
