//! `cargo xtask test --long`: tests whose strength depends on their duration, AddressSanitizer, and fuzzing.
//!
//! Each part runs, whatever the result of the others. The user may choose some of them. The run ends with a list of
//! what ran, what tests skipped and why, what failed, and what was left out.

mod fuzzing;

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};
use std::time::Instant;
use std::{io, thread};

use anyhow::{Context, Result, bail, ensure};

use crate::{host, places};

/// Settings of the long tests: seconds of the gc stress test, kills of the store and of a daemon, power failures below
/// a store and below a daemon, which starts after each of them, rounds of the tests that repeat a load, histories of
/// the writer, addresses of clients, and cases of property tests.
const SETTINGS: [(&str, &str); 9] = [
    ("IPFRS_STRESS_SECONDS", "120"),
    ("IPFRS_KILL_ROUNDS", "2000"),
    ("IPFRS_DAEMON_KILLS", "100"),
    ("IPFRS_POWER_FAILURES", "5000"),
    ("IPFRS_DAEMON_POWER_FAILURES", "1000"),
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

/// Name of the part that runs tests under AddressSanitizer.
const SANITIZER: &str = "AddressSanitizer";

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

    /// Adds a part that was not chosen.
    fn leave_out(&mut self, part: &str) {
        self.lines.push(format!("left out {part}"));
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

/// The parts that run, and those that do not, by their names.
#[derive(Debug, PartialEq, Eq)]
struct Choice {
    chosen: Vec<String>,
    left_out: Vec<String>,
}

impl Choice {
    /// Chooses from `parts` those whose names contain one of `words`, in any case; without words, all.
    ///
    /// # Errors
    /// Returns an error that names the words without a part, and all parts.
    fn new(parts: Vec<String>, words: &[&str]) -> Result<Self> {
        let contains = |part: &String, word: &str| part.to_ascii_lowercase().contains(&word.to_ascii_lowercase());
        let unknown: Vec<_> =
            words.iter().copied().filter(|word| !parts.iter().any(|part| contains(part, word))).collect();
        ensure!(
            unknown.is_empty(),
            "no part of the long run has a name with {}: the parts are {}",
            unknown.join(" or "),
            parts.join(", ")
        );
        let is_chosen = |part: &String| words.is_empty() || words.iter().any(|word| contains(part, word));
        let (chosen, left_out) = parts.into_iter().partition(is_chosen);
        Ok(Self { chosen, left_out })
    }

    fn has(&self, part: &str) -> bool {
        self.chosen.iter().any(|chosen| chosen == part)
    }
}

/// Runs the parts whose names contain one of `words`; without words, all.
///
/// # Errors
/// Returns an error at once if a word is in no name, or if a tool is missing, and at the end if a part failed.
pub(crate) fn run(words: &[&str]) -> Result<()> {
    let targets = fuzzing::targets()?;
    let tests = TESTS.iter().map(|(name, _)| (*name).to_owned());
    let parts = tests.chain([SANITIZER.to_owned()]).chain(targets.iter().map(|target| fuzzing::part(target)));
    let choice = Choice::new(parts.collect(), words)?;
    let (fuzzed, unfuzzed): (Vec<_>, Vec<_>) =
        targets.into_iter().partition(|target| choice.has(&fuzzing::part(target)));
    check_tools(choice.has(SANITIZER) || !fuzzed.is_empty(), !fuzzed.is_empty())?;
    let mut report = Report::default();
    for (name, targets) in TESTS {
        if choice.has(name) {
            report.add(name, named_tests(name, targets));
        }
    }
    if choice.has(SANITIZER) {
        report.add(SANITIZER, sanitizer());
    }
    if !fuzzed.is_empty() {
        fuzzing::run(&mut report, &fuzzed, unfuzzed.is_empty());
    }
    choice.left_out.iter().for_each(|part| report.leave_out(part));
    report.finish()
}

/// Checks that the tools of the chosen parts are installed.
///
/// # Errors
/// Returns an error that names each missing tool, and what installs it.
fn check_tools(needs_nightly: bool, needs_fuzzer: bool) -> Result<()> {
    let works = |program: &str, arguments: &[&str]| {
        Command::new(program).args(arguments).output().is_ok_and(|output| output.status.success())
    };
    let mut missing = Vec::new();
    if needs_nightly && !works("rustc", &["+nightly", "--version"]) {
        missing.push("a nightly toolchain: rustup toolchain install nightly");
    }
    if needs_fuzzer && places::found("cargo-fuzz").is_none() {
        missing.push("cargo-fuzz: cargo install cargo-fuzz");
    }
    ensure!(missing.is_empty(), "the long run needs {}", missing.join("; "));
    Ok(())
}

/// Runs the tests with `name` in their names.
fn named_tests(name: &str, targets: &[&str]) -> Result<Done> {
    let mut cargo = crate::cargo_command();
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
    run_tests(SANITIZER, &mut cargo)
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
    fn words_choose_the_parts_with_names_that_contain_them() {
        let parts = || ["jumps_of_the_clock", "AddressSanitizer", "fuzzing of car_reader", "fuzzing of dag_node"];
        let choice = |words: &[&str]| Choice::new(parts().map(str::to_owned).into(), words);
        let all = choice(&[]).unwrap();
        assert_eq!(all.chosen, parts());
        assert!(all.left_out.is_empty());
        let some = choice(&["clock", "fuzzing"]).unwrap();
        assert_eq!(some.chosen, ["jumps_of_the_clock", "fuzzing of car_reader", "fuzzing of dag_node"]);
        assert_eq!(some.left_out, ["AddressSanitizer"]);
        assert_eq!(choice(&["car_reader"]).unwrap().chosen, ["fuzzing of car_reader"]);
        assert!(choice(&["addresssanitizer"]).unwrap().has(SANITIZER));
        let error = choice(&["clock", "nonsense", "tock"]).unwrap_err().to_string();
        assert!(
            error.starts_with("no part of the long run has a name with nonsense or tock: the parts are "),
            "{error}"
        );
        assert!(parts().iter().all(|part| error.contains(*part)), "{error}");
    }

    #[test]
    fn every_part_can_be_chosen_by_its_name() {
        for (name, _) in TESTS {
            assert!(Choice::new(vec![name.to_owned()], &[name]).unwrap().has(name));
        }
        let targets = fuzzing::targets().unwrap();
        assert!(targets.iter().any(|target| target == "car_reader"), "{targets:?}");
        assert!(fuzzing::part("car_reader").contains("fuzzing"));
    }

    #[test]
    fn failed_part_fails_the_run_after_all_parts() {
        let mut report = Report::default();
        report.add("first", Err(anyhow::anyhow!("reason")));
        report.add("second", Ok(Done { summary: "1 test".into(), skipped: vec!["why".into()] }));
        report.leave_out("third");
        let lines = ["FAILED   first: reason", "ran      second: 1 test", "SKIPPED  in second: why", "left out third"];
        assert_eq!(report.lines, lines);
        assert_eq!(report.finish().unwrap_err().to_string(), "the long run failed: first");
    }
}
