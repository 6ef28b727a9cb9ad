//! Tests of the gateway's pages in a real browser: `tests/browser`, which needs Node.js, npm and Chromium.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::places::{found, workspace};

/// Program names of Chromium, in order of preference.
const CHROMIUM: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

/// Runs the tests of a command line if their tools are available. Otherwise prints the reason on a separate line at the
/// end.
pub(crate) fn test(cli: &Path) -> Result<()> {
    let start = Instant::now();
    match tools() {
        Ok(tools) => run(&tools, cli)?,
        Err(reason) => {
            eprintln!("xtask: browser: SKIPPED, the pages were not tested: {reason:#}");
            return Ok(());
        }
    }
    eprintln!("xtask: browser: done in {:.0} s", start.elapsed().as_secs_f64());
    Ok(())
}

struct Tools {
    node: PathBuf,
    chromium: PathBuf,
    tests: PathBuf,
}

/// Finds the tools of the tests and installs their packages.
///
/// # Errors
/// Returns an error that names the missing tool and the remedy.
fn tools() -> Result<Tools> {
    let remedy = "is not on the PATH (Debian: apt-get install nodejs npm chromium)";
    let node = found("node").with_context(|| format!("node {remedy}"))?;
    check_version(&node)?;
    let npm = found("npm").with_context(|| format!("npm {remedy}"))?;
    let chromium = CHROMIUM.into_iter().find_map(found).with_context(|| format!("chromium {remedy}"))?;
    let tests = workspace()?.join("tests/browser");
    if !is_installed(&tests) {
        let mut install = Command::new(npm);
        install.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"]).current_dir(&tests);
        let status = install.status().context("npm could not be started")?;
        if !status.success() {
            bail!("npm ci could not download the packages of the tests ({status})");
        }
    }
    Ok(Tools { node, chromium, tests })
}

/// Oldest Node.js version that supports playwright-core and the arguments below.
const OLDEST_NODE: (u32, u32) = (20, 11);

fn check_version(node: &Path) -> Result<()> {
    let output = Command::new(node).arg("--version").output().context("node could not be started")?;
    let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let mut numbers = version.trim_start_matches('v').split('.').map_while(|number| number.parse::<u32>().ok());
    let found = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
    if found < OLDEST_NODE {
        let (major, minor) = OLDEST_NODE;
        bail!("{} is {version}, and Node.js {major}.{minor} or newer is needed", node.display());
    }
    Ok(())
}

/// Whether the packages in the lock file were installed after it was written.
fn is_installed(tests: &Path) -> bool {
    let written = |file: &str| fs::metadata(tests.join(file)).and_then(|metadata| metadata.modified()).ok();
    match (written("node_modules/.package-lock.json"), written("package-lock.json")) {
        (Some(installed), Some(locked)) => installed >= locked,
        _ => false,
    }
}

fn run(tools: &Tools, cli: &Path) -> Result<()> {
    let arguments = [
        "--test",
        "--test-timeout=180000",
        "--test-reporter=spec",
        "pages.test.mjs",
        "graphql.test.mjs",
        "docs.test.mjs",
        "console.test.mjs",
        "console_add.test.mjs",
        "clients.test.mjs",
        "kubo.test.mjs",
        "helia.test.mjs",
    ];
    eprintln!("xtask: browser: node {} in tests/browser", arguments.join(" "));
    let status = Command::new(&tools.node)
        .args(arguments)
        .current_dir(&tools.tests)
        .env("IPFRS_CLI", cli)
        .env("CHROMIUM", &tools.chromium)
        .status()
        .context("browser: node could not be started")?;
    if !status.success() {
        bail!("browser failed: node {}", arguments.join(" "));
    }
    Ok(())
}
