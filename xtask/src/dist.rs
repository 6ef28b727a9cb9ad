//! `cargo xtask dist`: what a release consists of.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::places::{emptied, found, target, workspace};
use crate::{cargo, host, profile, released, run, text_of};

/// Programs that the release needs, with what installs them.
const TOOLS: [(&str, &str); 6] = [
    ("cargo-deb", "cargo install cargo-deb"),
    ("cargo-cyclonedx", "cargo install cargo-cyclonedx"),
    ("dpkg-deb", "apt-get install dpkg"),
    ("tar", "apt-get install tar"),
    ("gzip", "apt-get install gzip"),
    ("sha256sum", "apt-get install coreutils"),
];

/// Files of the repository in the archive, with their directories in it.
const FILES: [(&str, &str); 9] = [
    ("README.md", ""),
    ("CHANGELOG.md", ""),
    ("LICENSE-APACHE", ""),
    ("LICENSE-MIT", ""),
    ("docs/OPERATIONS.md", ""),
    ("packaging/config.toml", "packaging"),
    ("packaging/ipfrs.service", "packaging"),
    ("packaging/ipfrs.socket", "packaging"),
    ("packaging/sysusers.d/ipfrs.conf", "packaging/sysusers.d"),
];

/// Shells with completions, and the names of the files.
const COMPLETIONS: [(&str, &str); 3] = [("bash", "ipfrs-cli.bash"), ("zsh", "_ipfrs-cli"), ("fish", "ipfrs-cli.fish")];

/// The binary of a release.
#[derive(Clone, Copy)]
pub(crate) enum Binary {
    /// Built with a profile of its use.
    Optimised,
    /// Built without a profile, in half of the time.
    Plain,
    /// The one in `target/dist`.
    Existing,
}

/// Writes the files of a release to `target/distribution`, and checks them.
///
/// # Errors
/// Returns an error if a tool is missing, a step fails or the release is not as expected.
pub(crate) fn release(binary: Binary) -> Result<()> {
    for (program, install) in TOOLS {
        if found(program).is_none() {
            bail!("{program} is not on the PATH: {install}");
        }
    }
    // Completions and pages are beside the binary, where cargo-deb finds them.
    let built = target()?.join("dist");
    match binary {
        Binary::Optimised => {
            let program = profile::optimised_program()?;
            fs::create_dir_all(&built).with_context(|| format!("cannot create {}", built.display()))?;
            copy(&program, &built)?;
        }
        Binary::Plain => cargo("build", &["build", "--locked", "--profile", "dist", "--package", "ipfrs-cli"], &[])?,
        Binary::Existing => {}
    }
    let binary = built.join("ipfrs-cli");
    if !binary.is_file() {
        bail!("there is no {}: run `cargo xtask dist` without --no-build", binary.display());
    }
    let completions = emptied(&built.join("completions"))?;
    for (shell, file) in COMPLETIONS {
        let path = completions.join(file);
        let output = File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
        run("completions", Command::new(&binary).args(["completions", shell]).stdout(output))?;
    }
    let pages = emptied(&built.join("man1"))?;
    run("manual pages", Command::new(&binary).arg("man").arg(&pages))?;

    let distribution = emptied(&target()?.join("distribution"))?;
    let version = text_of(Command::new(&binary).arg("version"))?;
    let version = version.split_whitespace().last().context("the binary has no version")?.to_owned();
    let host = host()?;
    let name = format!("ipfrs-{version}-{host}");
    archive(&name, &binary, &[&completions, &pages], &distribution)?;
    let package = workspace()?.join("crates/ipfrs-cli");
    // As Debian's policy says; archives are compressed as a whole.
    let plain: Vec<PathBuf> = fs::read_dir(&pages)?.map(|page| Ok(page?.path())).collect::<Result<_>>()?;
    run("compression of the pages", Command::new("gzip").arg("-9n").args(plain))?;
    let mut deb = Command::new("cargo");
    deb.args(["deb", "--quiet", "--locked", "--no-build", "--no-strip", "--profile", "dist", "--package", "ipfrs-cli"]);
    run("Debian package", deb.arg("--output").arg(&distribution).current_dir(workspace()?))?;
    materials(&package, &host, &format!("{name}.cdx"), &distribution)?;
    checksums(&distribution)?;
    released::check()
}

/// Returns the paths of the files in the archive besides the binary and the manual pages.
pub(crate) fn files() -> Vec<String> {
    let files = FILES.into_iter().map(|(file, directory)| (directory, file.rsplit('/').next().unwrap_or(file)));
    let completions = COMPLETIONS.into_iter().map(|(_, file)| ("completions", file));
    let paths = files.chain(completions);
    paths.map(|(directory, name)| [directory, name].join("/").trim_start_matches('/').to_owned()).collect()
}

/// Writes the archive. Its bytes depend only on the files.
fn archive(name: &str, binary: &Path, generated: &[&Path], distribution: &Path) -> Result<()> {
    let parent = emptied(&target()?.join("dist/archive"))?;
    let root = parent.join(name);
    fs::create_dir(&root)?;
    copy(binary, &root)?;
    for (file, directory) in FILES {
        let directory = root.join(directory);
        fs::create_dir_all(&directory)?;
        copy(&workspace()?.join(file), &directory)?;
    }
    for from in generated {
        let to = root.join(from.file_name().context("a directory without a name")?);
        fs::create_dir(&to)?;
        for entry in fs::read_dir(from)? {
            copy(&entry?.path(), &to)?;
        }
    }
    let file = distribution.join(format!("{name}.tar.gz"));
    let mut tar = Command::new("tar");
    tar.args(["--sort=name", "--mtime=@0", "--owner=0", "--group=0", "--numeric-owner", "--mode=u=rwX,go=rX"]);
    tar.args(["--use-compress-program=gzip -9n", "-cf"]).arg(&file).arg("-C").arg(&parent).arg(name);
    run("archive", &mut tar)?;
    fs::remove_dir_all(&parent).context("cannot remove the copies for the archive")
}

/// Writes the bill of materials: all packages that the binary is built from.
fn materials(package: &Path, host: &str, name: &str, distribution: &Path) -> Result<()> {
    let mut cyclonedx = Command::new("cargo");
    cyclonedx.args(["cyclonedx", "--quiet", "--format", "json", "--spec-version", "1.5", "--target", host]);
    cyclonedx.args(["--override-filename", name]).arg("--manifest-path").arg(package.join("Cargo.toml"));
    let made = run("bill of materials", &mut cyclonedx);
    let file = format!("{name}.json");
    let kept = package.join(&file);
    if made.is_ok() {
        fs::copy(&kept, distribution.join(&file)).with_context(|| format!("cannot copy {}", kept.display()))?;
    }
    // The program writes a file beside the manifest of each package of the workspace.
    let root = workspace()?;
    let mut directories = vec![root.join("tests/features"), root.join("benches/kubo")];
    for parent in [root.clone(), root.join("crates")] {
        for entry in fs::read_dir(parent)? {
            directories.push(entry?.path());
        }
    }
    for other in directories.into_iter().map(|directory| directory.join(&file)).filter(|other| other.is_file()) {
        fs::remove_file(&other).with_context(|| format!("cannot remove {}", other.display()))?;
    }
    made
}

/// Writes the checksums of all files, which `sha256sum --check SHA256SUMS` compares.
fn checksums(distribution: &Path) -> Result<()> {
    let mut names = Vec::new();
    for entry in fs::read_dir(distribution)? {
        names.push(entry?.file_name());
    }
    names.sort();
    let sums = distribution.join("SHA256SUMS");
    let output = File::create(&sums).with_context(|| format!("cannot create {}", sums.display()))?;
    run("checksums", Command::new("sha256sum").args(&names).current_dir(distribution).stdout(output))?;
    eprint!("{}", fs::read_to_string(&sums)?);
    eprintln!("xtask: dist: {}", distribution.display());
    Ok(())
}

fn copy(file: &Path, directory: &Path) -> Result<()> {
    let to = directory.join(file.file_name().context("a file without a name")?);
    fs::copy(file, to).with_context(|| format!("cannot copy {}", file.display()))?;
    Ok(())
}
