//! Other processes: what they have used, whether they are there, and their end.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::param::clock_ticks_per_second;
use rustix::process::{Resource, Signal, getrlimit, set_parent_process_death_signal, setrlimit};

/// How often a process is looked at while something is expected of it.
pub const POLL: Duration = Duration::from_millis(10);
/// How long a process may take to start or to end.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// Fields of `/proc/PID/stat`.
const UTIME: usize = 14;
const CUTIME: usize = 16;

/// Memory of a process, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// The most that was resident at any time, mapped files included.
    pub peak_resident: u64,
    /// What is resident now and is in no file.
    pub anonymous: u64,
}

/// Raises the limit of open files as far as it goes; processes that are started from then on inherit it.
///
/// # Errors
/// When the system refuses.
pub fn raise_open_file_limit() -> Result<()> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).context("the limit of open files cannot be raised")
}

/// How many files this process may have open; `None` where there is no limit.
#[must_use]
pub fn open_file_limit() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// Becomes another program that is ended when the process that started this one is gone, however that came about.
/// Returns only when it cannot.
///
/// # Errors
/// When it cannot.
pub fn become_program(command: &[String]) -> Result<()> {
    let (program, arguments) = command.split_first().context("no program is named")?;
    set_parent_process_death_signal(Some(Signal::TERM)).context("the end of the parent cannot be watched")?;
    Err(Command::new(program).args(arguments).exec()).with_context(|| format!("{program} cannot be run"))
}

/// CPU seconds, user and system, that `pids` have used so far, in steps of the system's clock (10 ms as a rule).
///
/// # Errors
/// When one of them has ended.
pub fn cpu_seconds(pids: &[u32]) -> Result<f64> {
    let mut seconds = 0.0;
    for pid in pids {
        seconds += stat_seconds(&pid.to_string(), UTIME)?;
    }
    Ok(seconds)
}

/// CPU seconds, user and system, of processes that this one has started and that have ended.
///
/// # Errors
/// When the system does not tell.
pub fn ended_children_cpu_seconds() -> Result<f64> {
    stat_seconds("self", CUTIME)
}

/// The sum of two fields of `/proc/PROCESS/stat`, user and system time, of which `first` is the first (proc(5)).
fn stat_seconds(process: &str, first: usize) -> Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).context("a server has ended")?;
    // The second field, the name in parentheses, may have spaces.
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
    let times: Vec<u64> = fields.skip(first - 3).take(2).filter_map(|field| field.parse().ok()).collect();
    let [user, system] = times[..] else { bail!("/proc/{process}/stat cannot be read: {stat}") };
    Ok((user + system) as f64 / clock_ticks_per_second() as f64)
}

/// What `pid` has in memory.
///
/// # Errors
/// When it has ended.
pub fn memory(pid: u32) -> Result<Memory> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).context("a server has ended")?;
    let field = |name: &str| {
        let value = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        let kib: Option<u64> = value.trim_start_matches(':').trim().trim_end_matches("kB").trim().parse().ok();
        kib.map(|kib| kib * 1_024).with_context(|| format!("/proc/{pid}/status has no {name}"))
    };
    Ok(Memory { peak_resident: field("VmHWM")?, anonymous: field("RssAnon")? })
}

/// Bytes that the system has read from disks for `pids`: those that were not in the page cache.
///
/// # Errors
/// When one of them has ended, or the system does not count.
pub fn read_from_disk(pids: &[u32]) -> Result<f64> {
    let mut bytes = 0.0;
    for pid in pids {
        let counts = fs::read_to_string(format!("/proc/{pid}/io")).context("what was read cannot be told")?;
        let read = counts.lines().find_map(|line| line.strip_prefix("read_bytes:")?.trim().parse::<f64>().ok());
        bytes += read.with_context(|| format!("/proc/{pid}/io has no read_bytes"))?;
    }
    Ok(bytes)
}

/// The processes that `pid` has started and that are there.
///
/// # Errors
/// When it has ended.
pub fn children(pid: u32) -> Result<Vec<u32>> {
    let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).context("children cannot be listed")?;
    list.split_whitespace().map(|pid| pid.parse().context("children cannot be listed")).collect()
}

/// Waits until `child` has ended; `false` when it takes too long.
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

/// The first line that `program` prints for `flag`. A program that is not there is an error if it is required, else
/// `None`.
///
/// # Errors
/// When it cannot be run, or is required and not installed.
pub fn version(program: &str, flag: &str, package: &str, is_required: bool) -> Result<Option<String>> {
    let output = match Command::new(program).arg(flag).stdin(Stdio::null()).output() {
        Ok(output) => output,
        Err(e) if e.kind() == io::ErrorKind::NotFound && is_required => {
            bail!("{program} is not installed: apt-get install {package}")
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            eprintln!("{program} is not installed and is left out: apt-get install {package}");
            return Ok(None);
        }
        Err(e) => return Err(e).with_context(|| format!("{program} cannot be run")),
    };
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    Ok(Some(text.lines().next().unwrap_or_default().to_owned()))
}
