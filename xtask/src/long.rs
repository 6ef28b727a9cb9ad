//! `cargo xtask test --long`: tests whose strength depends on their duration, AddressSanitizer, and fuzzing.
//!
//! Each part runs, whatever the result of the others. The run ends with a list of what ran, what tests skipped and why,
//! and what failed.

mod fuzzing;

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};
use std::time::Instant;
use std::{env, io, thread};

use anyhow::{Context, Result, bail, ensure};

use crate::{host, places};

/// Settings of the long tests: seconds of the gc stress test, kills of the store and of a daemon, power failures of
/// the disk tests, rounds of the tests that repeat a load, histories of the writer, addresses of clients, and cases of
/// property tests.
const SETTINGS: [(&str, &str); 8] = [
    ("IPFRS_STRESS_SECONDS", "120"),
    ("IPFRS_KILL_ROUNDS", "2000"),
    ("IPFRS_DAEMON_KILLS", "100"),
    ("IPFRS_POWER_FAILURES", "5000"),
    ("IPFRS_ROUNDS", "10"),
    ("IPFRS_STORE_TEST_HISTORIES", "100"),
    ("IPFRS_ADDRESSES", "10000000"),
    ("PROPTEST_CASES", "20000"),
];

/// Tests by the beginning or a part of their names, with the targets that contain them. Targets are selected from the
/// whole workspace, because a single package may select other features of its dependencies, which are then built again.
const TESTS: [(&str, &[&str]); 12] = [
    ("gc_stress_keeps_exactly_the_pinned_blocks", &["--test", "node"]),
    ("hit_ratio_is_that_of_the_simulation", &["--lib"]),
    ("memory_is_bounded_under_any_number_of_addresses", &["--lib"]),
    ("acknowledged_operations_survive_sigkill", &["--test", "store"]),
    ("damaged_", &["--lib", "--test", "store"]),
    ("random_power_failures", &["--lib"]),
    ("random_interleavings_match_returned_outcomes", &["--lib"]),
    ("acknowledged_changes_survive", &["--test", "cli"]),
    ("jumps_of_the_clock", &["--test", "cli"]),
    ("load_within_a_limit_of_memory", &["--test", "cli"]),
    ("clients_that_hold_all_connections", &["--test", "cli"]),
    ("transfers_that_run_at_sigterm", &["--test", "cli"]),
];

/// Result of a part that succeeded.
struct Done {
    summary: String,
    /// Reasons of tests that this machine could not run.
    skipped: Vec<String>,
}

/// Results of the parts, in order.
#[derive(Default)]
struct Report {
    lines: Vec<String>,
    failed: Vec<String>,
}

impl Report {
    fn add(&mut self, part: &str, result: Result<Done>) {
        match result {
            Ok(done) => {
                self.lines.push(format!("ran      {part}: {}", done.summary));
                self.lines.extend(done.skipped.iter().map(|why| format!("SKIPPED  in {part}: {why}")));
            }
            Err(error) => {
                eprintln!("xtask: {part}: FAILED: {error:#}");
                self.lines.push(format!("FAILED   {part}: {error:#}"));
                self.failed.push(part.to_owned());
            }
        }
    }

    /// Prints the results.
    ///
    /// # Errors
    /// Returns an error that names the parts that failed.
    fn finish(&self) -> Result<()> {
        eprintln!("xtask: the long run:");
        for line in &self.lines {
            eprintln!("xtask:   {line}");
        }
        ensure!(self.failed.is_empty(), "the long run failed: {}", self.failed.join(", "));
        Ok(())
    }
}

/// Runs all parts.
///
/// # Errors
/// Returns an error at once if a tool is missing, and at the end if a part failed.
pub(crate) fn run() -> Result<()> {
    check_tools()?;
    let mut report = Report::default();
    for (name, targets) in TESTS {
        report.add(name, named_tests(name, targets));
    }
    report.add("AddressSanitizer", sanitizer());
    fuzzing::run(&mut report);
    report.finish()
}

/// Checks that the tools of all parts are installed.
///
/// # Errors
/// Returns an error that names each missing tool, and what installs it.
fn check_tools() -> Result<()> {
    let works = |program: &str, arguments: &[&str]| {
        Command::new(program).args(arguments).output().is_ok_and(|output| output.status.success())
    };
    let mut missing = Vec::new();
    if !works("rustc", &["+nightly", "--version"]) {
        missing.push("a nightly toolchain: rustup toolchain install nightly");
    }
    if places::found("cargo-fuzz").is_none() {
        missing.push("cargo-fuzz: cargo install cargo-fuzz");
    }
    ensure!(missing.is_empty(), "the long run needs {}", missing.join("; "));
    Ok(())
}

/// Runs the tests with `name` in their names.
fn named_tests(name: &str, targets: &[&str]) -> Result<Done> {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["test", "--workspace", "--no-fail-fast"]).args(targets).args(["--", name]).envs(SETTINGS);
    run_tests(name, &mut cargo)
}

/// Runs the tests of the crates with `unsafe` code, except the Python package, under AddressSanitizer with its search
/// for leaks. Miri cannot run code that maps files.
///
/// The fuzz targets contain the same crates, but share no build with these tests. Cargo builds crates again for other
/// compiler flags, and those of cargo-fuzz add the instrumentation of the fuzzer and `cfg(fuzzing)`, which changes the
/// code under test. The fuzz targets also have a lock file and profile of their own.
fn sanitizer() -> Result<Done> {
    let mut cargo = Command::new("cargo");
    cargo.args(["+nightly", "test", "--package", "ipfrs-store", "--package", "ipfrs-core", "--lib", "--tests"]);
    // With a target, build scripts and macros are built without the sanitizer. The store handles faults itself.
    cargo.arg("--target").arg(host()?).env("RUSTFLAGS", "-Zsanitizer=address");
    cargo.env("ASAN_OPTIONS", "handle_segv=0:handle_sigbus=0").env_remove("CARGO");
    run_tests("AddressSanitizer", &mut cargo)
}

/// Runs `cargo test`, and returns how many tests passed and why some were skipped.
///
/// # Errors
/// Returns an error if the command fails, or if no test ran.
fn run_tests(part: &str, command: &mut Command) -> Result<Done> {
    let start = Instant::now();
    eprintln!("xtask: {part}: {command:?}");
    let (success, output) = shown(command).with_context(|| format!("{part} could not be started"))?;
    ensure!(success, "{}", failures(&output));
    let passed = passed(&output);
    ensure!(passed > 0, "no test has this name");
    let seconds = start.elapsed().as_secs();
    Ok(Done { summary: format!("{passed} tests passed in {seconds} s"), skipped: skipped(&output) })
}

/// Runs a program and shows its output. Returns whether it succeeded, and the output.
fn shown(command: &mut Command) -> Result<(bool, String)> {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let (out, err) = child.stdout.take().zip(child.stderr.take()).context("the program has no output")?;
    let (out, err) = thread::scope(|scope| {
        let err = scope.spawn(|| copy_lines(err));
        (copy_lines(out), err.join())
    });
    let success = child.wait()?.success();
    let Ok(err) = err else { bail!("a thread that reads the output panicked") };
    Ok((success, out? + &err?))
}

/// Copies lines to the standard error, and returns them.
fn copy_lines(from: impl Read) -> io::Result<String> {
    let mut from = BufReader::new(from);
    let mut all = Vec::new();
    loop {
        let start = all.len();
        if from.read_until(b'\n', &mut all)? == 0 {
            return Ok(String::from_utf8_lossy(&all).into_owned());
        }
        io::stderr().write_all(&all[start..])?;
    }
}

/// Returns the sum of the tests that passed.
fn passed(output: &str) -> u64 {
    let results = output.lines().filter_map(|line| line.strip_prefix("test result: ok. "));
    results.filter_map(|line| line.split_once(" passed")?.0.parse::<u64>().ok()).sum()
}

/// Returns the reasons of skipped tests, each once.
fn skipped(output: &str) -> Vec<String> {
    let reasons = output.lines().filter_map(|line| line.strip_prefix("SKIPPED: "));
    let mut reasons: Vec<_> = reasons.map(|why| why.split(" (IPFRS_").next().unwrap_or(why).to_owned()).collect();
    reasons.sort();
    reasons.dedup();
    reasons
}

/// Returns the names of failed tests, or a text if the tests were not built.
fn failures(output: &str) -> String {
    let lines = output.lines().filter_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... FAILED"));
    let names: Vec<_> = lines.collect();
    if names.is_empty() { "the command failed, see above".to_owned() } else { names.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "\
running 2 tests

SKIPPED: no groups (IPFRS_REQUIRE_ALL_TESTS makes this a failure)
test one ... ok
test disk::two ... FAILED

test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 3 filtered out; finished in 0.01s
test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 7 filtered out; finished in 0.01s
SKIPPED: no groups (IPFRS_REQUIRE_ALL_TESTS makes this a failure)
test result: ok. 20 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s
";

    #[test]
    fn output_of_tests_tells_what_ran() {
        assert_eq!(passed(OUTPUT), 23);
        assert_eq!(skipped(OUTPUT), ["no groups"]);
        assert_eq!(failures(OUTPUT), "disk::two");
        assert_eq!(passed("error: could not compile"), 0);
    }

    #[test]
    fn command_without_tests_fails() {
        let print = |text: &str| run_tests("part", Command::new("printf").arg(text));
        assert!(print("test result: ok. 0 passed; 0 failed\n").is_err());
        assert_eq!(print("test result: ok. 1 passed; 0 failed\n").unwrap().skipped, [""; 0]);
        assert!(run_tests("part", &mut Command::new("false")).is_err());
    }

    #[test]
    fn failed_part_fails_the_run_after_all_parts() {
        let mut report = Report::default();
        report.add("first", Err(anyhow::anyhow!("reason")));
        report.add("second", Ok(Done { summary: "1 test".into(), skipped: vec!["why".into()] }));
        assert_eq!(report.lines, ["FAILED   first: reason", "ran      second: 1 test", "SKIPPED  in second: why"]);
        assert_eq!(report.finish().unwrap_err().to_string(), "the long run failed: first");
    }
}
