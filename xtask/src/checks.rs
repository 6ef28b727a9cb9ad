//! `cargo xtask test`: all checks of a change, the checks for one crate, and the checks that take long.

use std::collections::BTreeSet;
use std::env;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::{browser, cargo, go, places, python, run};

/// Packages whose change the HTTP tests cover better than the package's own tests.
const SERVED: [&str; 6] =
    ["ipfrs-grpc", "ipfrs-http", "ipfrs-interface", "ipfrs-middleware", "ipfrs-node", "ipfrs-rpc"];

/// Settings of the long tests: seconds of the gc stress test, kills of the store and of a daemon, power failures of
/// the disk tests, rounds of the tests that repeat a load, and cases of property tests.
const LONG: [(&str, &str); 6] = [
    ("IPFRS_STRESS_SECONDS", "120"),
    ("IPFRS_KILL_ROUNDS", "2000"),
    ("IPFRS_DAEMON_KILLS", "100"),
    ("IPFRS_POWER_FAILURES", "5000"),
    ("IPFRS_ROUNDS", "10"),
    ("PROPTEST_CASES", "20000"),
];

/// Seconds for which each target is fuzzed.
const FUZZ_SECONDS: &str = "20";

/// Memory of fuzzed targets that open a redb database, in MiB. redb reserves the memory of a page before it reads the
/// page. If a page number is damaged, that is up to 4 GiB.
const DATABASE_MEMORY_MIB: &str = "6144";

/// Runs all steps, the cheapest first.
pub(crate) fn all() -> Result<()> {
    formatting()?;
    lints()?;
    dependencies()?;
    cargo("tests", &["test", "--workspace", "--no-fail-fast"], &[])?;
    attacks()?;
    cargo("documentation", &["doc", "--workspace", "--no-deps", "--quiet"], &[("RUSTDOCFLAGS", "-D warnings")])?;
    browser::test()?;
    go::test()?;
    python::test()
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

/// Attacks a gateway in the short form of the target `hostile`, which checks how the gateway reacts, not how fast. The
/// selection of packages gives dependencies the same features as for the tests.
fn attacks() -> Result<()> {
    for proxy in ["nginx", "haproxy"] {
        if places::found(proxy).is_none() {
            eprintln!("xtask: hostile clients: SKIPPED behind {proxy}, because it is not installed");
        }
    }
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["test", "--workspace", "--bench", "hostile"]);
    // A measurement in CI fails without nginx, this test does not.
    run("hostile clients", cargo.env_remove("CI"))
}

/// Runs the tests whose strength depends on their duration, those of the crates with `unsafe` code under
/// AddressSanitizer, and fuzzing.
pub(crate) fn long() -> Result<()> {
    for (package, name) in [
        ("ipfrs-node", "gc_stress_keeps_exactly_the_pinned_blocks"),
        ("ipfrs-store", "acknowledged_operations_survive_sigkill"),
        ("ipfrs-store", "damaged_"),
        ("ipfrs-store", "random_power_failures"),
        ("ipfrs-cli", "acknowledged_changes_survive"),
        ("ipfrs-cli", "jumps_of_the_clock"),
        ("ipfrs-cli", "load_within_a_limit_of_memory"),
        ("ipfrs-cli", "clients_that_hold_all_connections"),
        ("ipfrs-cli", "transfers_that_run_at_sigterm"),
    ] {
        cargo("long tests", &["test", "--package", package, "--", name], &LONG)?;
    }
    sanitizer()?;
    fuzzing()
}

/// Runs the tests of the crates with `unsafe` code, except the Python package, under AddressSanitizer with its search
/// for leaks. Miri cannot run code that maps files.
fn sanitizer() -> Result<()> {
    let nightly = Command::new("rustc").args(["+nightly", "--version"]).output();
    if !nightly.is_ok_and(|output| output.status.success()) {
        eprintln!("xtask: AddressSanitizer: SKIPPED, because it needs `rustup toolchain install nightly`");
        return Ok(());
    }
    let mut cargo = Command::new("cargo");
    cargo.args(["+nightly", "test", "--package", "ipfrs-store", "--package", "ipfrs-core", "--lib", "--tests"]);
    // With a target, build scripts and macros are built without the sanitizer. The store handles faults itself.
    cargo.args(["--target", "x86_64-unknown-linux-gnu"]).env("RUSTFLAGS", "-Zsanitizer=address");
    cargo.env("ASAN_OPTIONS", "handle_segv=0:handle_sigbus=0").env_remove("CARGO");
    run("AddressSanitizer", &mut cargo)
}

fn fuzzing() -> Result<()> {
    let has_fuzz = Command::new("cargo").args(["+nightly", "fuzz", "--version"]).output();
    if !has_fuzz.is_ok_and(|output| output.status.success()) {
        eprintln!("xtask: fuzzing: SKIPPED, because it needs `cargo install cargo-fuzz` and a nightly toolchain");
        return Ok(());
    }
    let root = places::workspace()?;
    let targets = std::fs::read_dir(root.join("fuzz/fuzz_targets")).context("cannot list the fuzz targets")?;
    for target in targets {
        let path = target.context("cannot list the fuzz targets")?.path();
        let name = path.file_stem().unwrap_or_default();
        let mut fuzz = Command::new("cargo");
        fuzz.current_dir(&root).args(["+nightly", "fuzz", "run"]).arg(name);
        fuzz.arg("--").arg(format!("-max_total_time={FUZZ_SECONDS}"));
        if name.to_string_lossy().ends_with("_database") {
            fuzz.arg(format!("-rss_limit_mb={DATABASE_MEMORY_MIB}"));
        }
        run("fuzzing", &mut fuzz)?;
    }
    Ok(())
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
