//! Fuzzing of targets in `fuzz/`, for a short time each.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Instant;
use std::{num, thread};

use anyhow::{Context, Result, bail, ensure};

use super::{Done, Report};
use crate::places;

/// Seconds for which each target is fuzzed.
const SECONDS: &str = "40";

/// Memory of fuzzed targets that open a redb database, in MiB. redb reserves the memory of a page before it reads the
/// page. If a page number is damaged, that is up to 4 GiB.
const DATABASE_MEMORY_MIB: &str = "6144";

/// Lines of a log that are shown if its target fails.
const SHOWN_LINES: usize = 60;

/// Returns the name of the part that fuzzes a target.
pub(super) fn part(target: &str) -> String {
    format!("fuzzing of {target}")
}

/// Returns the names of all targets, in order.
pub(super) fn targets() -> Result<Vec<String>> {
    let mut targets = Vec::new();
    for file in fs::read_dir(places::workspace()?.join("fuzz/fuzz_targets")).context("cannot list the fuzz targets")? {
        let path = file.context("cannot list the fuzz targets")?.path();
        targets.push(path.file_stem().unwrap_or_default().to_string_lossy().into_owned());
    }
    targets.sort();
    ensure!(!targets.is_empty(), "there are no fuzz targets");
    Ok(targets)
}

/// Builds `targets`, which may be all, and fuzzes as many at a time as the machine has cores.
pub(super) fn run(report: &mut Report, targets: &[String], are_all: bool) {
    match build(targets, are_all) {
        Ok(()) => {
            for (name, result) in fuzz_all(targets) {
                report.add(&part(name), result);
            }
        }
        Err(error) => report.add("fuzzing", Err(error)),
    }
}

/// Builds all targets in one command, which links several at a time, or some one by one.
fn build(targets: &[String], are_all: bool) -> Result<()> {
    const STEP: &str = "build of the fuzz targets";
    if are_all {
        return crate::run(STEP, &mut cargo_fuzz("build")?);
    }
    targets.iter().try_for_each(|target| crate::run(STEP, cargo_fuzz("build")?.arg(target)))
}

/// Returns a command of cargo-fuzz with the profile `dev` of `fuzz/Cargo.toml`.
fn cargo_fuzz(command: &str) -> Result<Command> {
    let mut cargo = Command::new("cargo");
    cargo.current_dir(places::workspace()?).args(["+nightly", "fuzz", command, "--dev"]);
    Ok(cargo)
}

/// Fuzzes targets on all cores. Returns the results in the order of the names.
fn fuzz_all(targets: &[String]) -> Vec<(&str, Result<Done>)> {
    let workers = thread::available_parallelism().map_or(1, num::NonZero::get);
    let next = &AtomicUsize::new(0);
    let (sender, results) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..workers {
            let sender = sender.clone();
            scope.spawn(move || {
                while let Some(name) = targets.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let result = fuzz(name);
                    eprintln!("xtask: fuzzing: {name}: {}", if result.is_ok() { "done" } else { "FAILED" });
                    // The receiver outlives the threads.
                    let _ = sender.send((name.as_str(), result));
                }
            });
        }
    });
    drop(sender);
    let mut results: Vec<_> = results.into_iter().collect();
    results.sort_by_key(|(name, _)| *name);
    results
}

/// Fuzzes a target. Its output is in `target/fuzzing/NAME.log`.
fn fuzz(name: &str) -> Result<Done> {
    let start = Instant::now();
    let directory = places::target()?.join("fuzzing");
    fs::create_dir_all(&directory).with_context(|| format!("cannot create {}", directory.display()))?;
    let log = directory.join(format!("{name}.log"));
    let output = File::create(&log).with_context(|| format!("cannot create {}", log.display()))?;
    let mut fuzz = cargo_fuzz("run")?;
    fuzz.arg(name).arg("--").arg(format!("-max_total_time={SECONDS}"));
    if name.ends_with("_database") {
        fuzz.arg(format!("-rss_limit_mb={DATABASE_MEMORY_MIB}"));
    }
    fuzz.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
    let status = fuzz.status().context("cargo could not be started")?;
    let text = read(&log)?;
    if !status.success() {
        let lines: Vec<_> = text.lines().collect();
        for line in &lines[lines.len().saturating_sub(SHOWN_LINES)..] {
            eprintln!("{name}: {line}");
        }
        bail!("{status}, see {}", log.display());
    }
    let runs = inputs(&text).with_context(|| format!("the fuzzer did not end, see {}", log.display()))?;
    ensure!(runs > 0, "no input was run, see {}", log.display());
    Ok(Done { summary: format!("{runs} inputs in {} s", start.elapsed().as_secs()), skipped: Vec::new() })
}

/// Returns the text of a log, which may contain parts of inputs.
fn read(log: &Path) -> Result<String> {
    let bytes = fs::read(log).with_context(|| format!("cannot read {}", log.display()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns how many inputs the fuzzer has run, by the last line of libFuzzer.
fn inputs(output: &str) -> Option<u64> {
    let line = output.lines().rev().find_map(|line| line.strip_prefix("Done "))?;
    line.split_once(" runs in ")?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::inputs;

    #[test]
    fn last_line_of_the_fuzzer_has_the_number_of_inputs() {
        assert_eq!(inputs("#2 INITED\nDone 4711 runs in 41 second(s)\n"), Some(4711));
        assert_eq!(inputs("#2 INITED\n==1== ERROR: AddressSanitizer\n"), None);
    }
}
