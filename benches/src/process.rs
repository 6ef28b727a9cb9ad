//! Child processes: resource usage, existence and termination.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::param::clock_ticks_per_second;
use rustix::process::{Resource, Signal, getrlimit, set_parent_process_death_signal, setrlimit};

/// Environment variable with the path of the `ipfrs-cli` to measure.
pub const PROGRAM: &str = "GATEWAY";

/// Interval between checks of the state of a process.
pub const POLL: Duration = Duration::from_millis(10);
/// Timeout of the start and of the end of a process.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// Field numbers in `/proc/PID/stat`.
const UTIME: usize = 14;
const CUTIME: usize = 16;

/// Memory of a process, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// Maximum resident memory so far, including mapped files.
    pub peak_resident: u64,
    /// Resident memory that is not backed by a file.
    pub anonymous: u64,
}

/// Raises the limit of open files to its maximum. Processes that are started afterwards inherit it.
///
/// # Errors
/// Returns an error if the system refuses.
pub fn raise_open_file_limit() -> Result<()> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).context("cannot raise the limit of open files")
}

/// Returns the maximum number of open files of this process, or `None` if there is no limit.
#[must_use]
pub fn open_file_limit() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// First argument of a child of this program that replaces itself with another program, by [`become_program`].
pub const BECOME: &str = "become";

/// Replaces this process with another program, which is terminated when the parent process ends for any reason.
/// Returns only on failure.
///
/// # Errors
/// Returns an error if the program cannot be run.
pub fn become_program(command: &[String]) -> Result<()> {
    let (program, arguments) = command.split_first().context("no program is given")?;
    set_parent_process_death_signal(Some(Signal::TERM)).context("cannot request a signal at the end of the parent")?;
    Err(Command::new(program).args(arguments).exec()).with_context(|| format!("{program} cannot be run"))
}

/// Returns the CPU seconds, user and system, that `pids` have used so far, in ticks of the system clock (usually 10
/// ms).
///
/// # Errors
/// Returns an error if one of the processes has ended.
pub fn cpu_seconds(pids: &[u32]) -> Result<f64> {
    let mut seconds = 0.0;
    for pid in pids {
        seconds += stat_seconds(&pid.to_string(), UTIME)?;
    }
    Ok(seconds)
}

/// Returns the CPU seconds, user and system, of child processes that have ended.
///
/// # Errors
/// Returns an error if the system does not report them.
pub fn ended_children_cpu_seconds() -> Result<f64> {
    stat_seconds("self", CUTIME)
}

/// Returns the sum of the user and the system time in `/proc/PROCESS/stat`. `first` is the field number of the user
/// time (proc(5)).
fn stat_seconds(process: &str, first: usize) -> Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).context("a server has ended")?;
    // The second field, the name in parentheses, may contain spaces.
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
    let times: Vec<u64> = fields.skip(first - 3).take(2).filter_map(|field| field.parse().ok()).collect();
    let [user, system] = times[..] else { bail!("/proc/{process}/stat cannot be read: {stat}") };
    Ok((user + system) as f64 / clock_ticks_per_second() as f64)
}

/// Returns the memory usage of `pid`.
///
/// # Errors
/// Returns an error if the process has ended.
pub fn memory(pid: u32) -> Result<Memory> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).context("a server has ended")?;
    let field = |name: &str| {
        let value = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        let kib: Option<u64> = value.trim_start_matches(':').trim().trim_end_matches("kB").trim().parse().ok();
        kib.map(|kib| kib * 1_024).with_context(|| format!("/proc/{pid}/status has no {name}"))
    };
    Ok(Memory { peak_resident: field("VmHWM")?, anonymous: field("RssAnon")? })
}

/// Returns the number of bytes that the system has read from disks for `pids`, that is, not from the page cache.
///
/// # Errors
/// Returns an error if one of the processes has ended or the system does not count reads.
pub fn read_from_disk(pids: &[u32]) -> Result<f64> {
    let mut bytes = 0.0;
    for pid in pids {
        let counts = fs::read_to_string(format!("/proc/{pid}/io")).context("cannot determine the bytes read")?;
        let read = counts.lines().find_map(|line| line.strip_prefix("read_bytes:")?.trim().parse::<f64>().ok());
        bytes += read.with_context(|| format!("/proc/{pid}/io has no read_bytes"))?;
    }
    Ok(bytes)
}

/// Returns the running child processes of `pid`.
///
/// # Errors
/// Returns an error if the process has ended.
pub fn children(pid: u32) -> Result<Vec<u32>> {
    let list =
        fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).context("cannot list the child processes")?;
    list.split_whitespace().map(|pid| pid.parse().context("cannot list the child processes")).collect()
}

/// Waits until `child` has ended. Returns `false` if it does not end in time.
#[must_use]
pub fn has_ended(child: &mut Child) -> bool {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        if !matches!(child.try_wait(), Ok(None)) {
            return true;
        }
        thread::sleep(POLL);
    }
    false
}

/// Returns the first line that `program` prints for `flag`, or `None` if the program is not installed and not
/// required.
///
/// # Errors
/// Returns an error if the program cannot be run, or is required and not installed.
pub fn version(program: &str, flag: &str, package: &str, is_required: bool) -> Result<Option<String>> {
    let output = match Command::new(program).arg(flag).stdin(Stdio::null()).output() {
        Ok(output) => output,
        Err(e) if e.kind() == io::ErrorKind::NotFound && is_required => {
            bail!("{program} is not installed: apt-get install {package}")
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            eprintln!("{program} is not installed and is skipped: apt-get install {package}");
            return Ok(None);
        }
        Err(e) => return Err(e).with_context(|| format!("{program} cannot be run")),
    };
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    Ok(Some(text.lines().next().unwrap_or_default().to_owned()))
}
