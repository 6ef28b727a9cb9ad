//! `cargo xtask test`: all checks of a change, and those of the packages that it touches.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::thread;

use anyhow::{Context, Result, anyhow, ensure};

use crate::{browser, cargo, go, places, python};

/// Packages whose change the HTTP tests cover better than the package's own tests.
const SERVED: [&str; 6] =
    ["ipfrs-grpc", "ipfrs-http", "ipfrs-interface", "ipfrs-middleware", "ipfrs-node", "ipfrs-rpc"];

/// Runs all steps, the cheapest first.
pub(crate) fn all() -> Result<()> {
    formatting()?;
    lints()?;
    dependencies()?;
    tests()?;
    let cli = crate::command_line("command line")?;
    // The compiler and the tests take about one core each.
    thread::scope(|scope| {
        let build = scope.spawn(|| documentation().and_then(|()| python::build()));
        let tested = browser::test(&cli).and_then(|()| go::test(&cli));
        build.join().map_err(|_| anyhow!("the thread that builds panicked"))?.and(tested)
    })?;
    python::test(&cli)
}

fn documentation() -> Result<()> {
    cargo("documentation", &["doc", "--workspace", "--no-deps", "--quiet"], &[("RUSTDOCFLAGS", "-D warnings")])
}

/// Checks a change before it is complete: formatting, lints of the workspace, and the tests of the packages with
/// changed files. Changes of a package that serves requests run the HTTP tests too.
pub(crate) fn fast() -> Result<()> {
    formatting()?;
    lints()?;
    let mut packages = changed_packages()?;
    if packages.is_empty() {
        eprintln!("xtask: tests: no package differs from main");
        return Ok(());
    }
    if packages.iter().any(|package| SERVED.contains(&package.as_str())) {
        packages.insert("ipfrs-tests".to_owned());
    }
    let selected = packages.iter().flat_map(|package| ["--package", package]);
    cargo("tests", &["test", "--tests"].into_iter().chain(selected).collect::<Vec<_>>(), &[])
}

/// Runs all tests. They include the short form of the bench target `hostile`, which checks how a gateway reacts to
/// hostile clients, not how fast.
fn tests() -> Result<()> {
    for proxy in ["nginx", "haproxy"] {
        if places::found(proxy).is_none() {
            eprintln!("xtask: hostile clients: SKIPPED behind {proxy}, because it is not installed");
        }
    }
    cargo("tests", &["test", "--workspace", "--no-fail-fast"], &[])
}

fn formatting() -> Result<()> {
    cargo("formatting", &["fmt", "--all", "--check"], &[])
}

fn lints() -> Result<()> {
    cargo("lints", &["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"], &[])?;
    let node = ["clippy", "--package", "ipfrs-node", "--no-default-features", "--quiet", "--", "-D", "warnings"];
    cargo("lints of the node without features", &node, &[])
}

/// Checks licences and sources of all dependencies (`deny.toml`). Advisories need a database from the network.
fn dependencies() -> Result<()> {
    if places::found("cargo-deny").is_none() {
        eprintln!("xtask: dependencies: SKIPPED, because it needs `cargo install cargo-deny`");
        return Ok(());
    }
    cargo("dependencies", &["deny", "--log-level", "error", "check", "licenses", "bans", "sources"], &[])
}

/// Returns the packages with files that differ from the branch `main` of the remote repository, or from the last
/// commit if there is no such branch.
fn changed_packages() -> Result<BTreeSet<String>> {
    let root = places::workspace()?;
    let base = git(&root, &["merge-base", "HEAD", "origin/main"]).unwrap_or_else(|_| "HEAD".to_owned());
    let changed = git(&root, &["diff", "--name-only", base.trim()])?;
    let untracked = git(&root, &["ls-files", "--others", "--exclude-standard"])?;
    let files = changed.lines().chain(untracked.lines());
    Ok(files.filter_map(|file| package_of(&root, Path::new(file))).collect())
}

/// Returns the name of the package that contains a file, from the nearest manifest above it.
fn package_of(root: &Path, file: &Path) -> Option<String> {
    // Fuzz targets are not a part of the workspace.
    if file.starts_with("fuzz") {
        return None;
    }
    file.ancestors().skip(1).find_map(|dir| {
        let manifest = std::fs::read_to_string(root.join(dir).join("Cargo.toml")).ok()?;
        let line = manifest.lines().find_map(|line| line.strip_prefix("name = \""))?;
        manifest.contains("[package]").then(|| line.trim_end_matches('"').to_owned())
    })
}

fn git(root: &Path, arguments: &[&str]) -> Result<String> {
    let output = Command::new("git").current_dir(root).args(arguments).output().context("git could not be started")?;
    ensure!(output.status.success(), "git {} failed", arguments.join(" "));
    String::from_utf8(output.stdout).context("git printed a file name that is not UTF-8")
}
