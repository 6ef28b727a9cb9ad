//! A start of a released program, with the command lines of the service and the configuration of the package.

use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;
use std::{env, thread};

use anyhow::{Context, Result, bail, ensure};

/// Longest wait for the daemon to be ready, to respond and to end. It ends after 30 seconds at the latest.
const LIMIT: Duration = Duration::from_secs(60);

/// Settings in place of those of the package: free ports.
const PORTS: [(&str, &str); 3] = [("IPFRS_SERVER_PORT", "0"), ("IPFRS_API_PORT", "0"), ("IPFRS_GRPC_PORT", "0")];

/// Bytes of the file that is added, in units of four: more than one block.
const WORDS: u32 = 800_000;

/// Files of an installation.
pub(super) struct Installed {
    pub(super) program: PathBuf,
    pub(super) service: PathBuf,
    pub(super) config: PathBuf,
}

/// Starts the daemon as the service does, adds a file, fetches it, stops the daemon, and fetches the file again after
/// another start. The repo is below `directory`.
///
/// # Errors
/// Returns an error that names the step that failed. The log of the daemon is printed.
pub(super) fn check(installed: &Installed, directory: &Path) -> Result<()> {
    let repo = directory.join("repo");
    // As StateDirectory= does.
    DirBuilder::new().mode(0o700).create(&repo).with_context(|| format!("cannot create {}", repo.display()))?;
    let log = directory.join("log");
    let used = use_twice(installed, &repo, &log);
    if used.is_err() {
        eprint!("{}", fs::read_to_string(&log).unwrap_or_default());
    }
    used
}

fn use_twice(installed: &Installed, repo: &Path, log: &Path) -> Result<()> {
    let service = fs::read_to_string(&installed.service).context("cannot read the service")?;
    let line = |key: &str| command_line(&service, key, installed, repo);
    output(command(&line("ExecStartPre=")?, repo)?).context("ExecStartPre= of the service failed")?;
    let start = line("ExecStart=")?;
    // The program and the options before the subcommand.
    let options: Vec<_> = start.iter().take_while(|word| *word != "gateway").cloned().collect();
    let client = |arguments: &[&OsStr]| {
        let words: Vec<_> = options.iter().cloned().chain(arguments.iter().map(OsString::from)).collect();
        output(command(&words, repo)?)
    };

    let content: Vec<u8> = (0..WORDS).flat_map(u32::to_le_bytes).collect();
    let file = repo.with_file_name("added");
    fs::write(&file, &content).with_context(|| format!("cannot write {}", file.display()))?;
    let daemon = Daemon::start(command(&start, repo)?, log)?;
    client(&["gateway", "status", "--ready"].map(OsStr::new)).context("the daemon is not ready")?;
    let added = client(&[OsStr::new("add"), OsStr::new("-Q"), file.as_os_str()]).context("cannot add a file")?;
    let cid = String::from_utf8(added).context("the content ID is not text")?.trim().to_owned();
    ensure!(daemon.get(&format!("/ipfs/{cid}"))? == content, "the gateway sent other content");
    daemon.stop()?;
    ensure!(!repo.join("api").exists(), "the daemon left its address in the repo");

    let daemon = Daemon::start(command(&start, repo)?, log)?;
    let read = client(&["cat", &cid].map(OsStr::new)).context("cannot read the file after a restart")?;
    ensure!(read == content, "the restarted daemon sent other content");
    daemon.stop()
}

/// Returns the words of a command line of the service, with the paths of the installation.
///
/// # Errors
/// Returns an error if the service has no such line, or one with another absolute path.
fn command_line(service: &str, key: &str, installed: &Installed, repo: &Path) -> Result<Vec<OsString>> {
    let line = service.lines().find_map(|line| line.strip_prefix(key));
    let words = line.with_context(|| format!("the service has no {key}"))?.split_whitespace();
    let installed = |word: &str| -> Result<OsString> {
        Ok(match word {
            "/usr/bin/ipfrs-cli" => installed.program.clone().into_os_string(),
            "/etc/ipfrs/config.toml" => installed.config.clone().into_os_string(),
            "/var/lib/ipfrs" => repo.as_os_str().to_owned(),
            word if word.starts_with('/') => bail!("{key} of the service has the unexpected path {word}"),
            word => OsString::from(word),
        })
    };
    words.map(installed).collect()
}

/// Returns a command without the `IPFRS_` variables of this process, in the directory of the repo's parent.
fn command(words: &[OsString], repo: &Path) -> Result<Command> {
    let (program, arguments) = words.split_first().context("the command line is empty")?;
    let home = repo.parent().context("the repo has no parent")?;
    let mut command = Command::new(program);
    command.args(arguments).current_dir(home).env("HOME", home).stdin(Stdio::null());
    for (name, _) in env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("IPFRS_")) {
        command.env_remove(name);
    }
    command.envs(PORTS);
    Ok(command)
}

/// Runs a command, and returns what it prints.
fn output(mut command: Command) -> Result<Vec<u8>> {
    let output = command.output().with_context(|| format!("{command:?} could not be started"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {}: {}", output.status, text.trim());
    Ok(output.stdout)
}

/// A running daemon, which is killed if it is dropped.
struct Daemon {
    child: Child,
    /// Lines that the daemon prints. The channel closes when the daemon ends.
    lines: Receiver<String>,
    /// Address of the gateway.
    address: String,
}

impl Daemon {
    /// Starts a daemon, and waits until it is ready.
    fn start(mut command: Command, log: &Path) -> Result<Self> {
        let log = File::options().create(true).append(true).open(log).context("cannot open the log")?;
        let mut child =
            command.stdout(Stdio::piped()).stderr(log).spawn().context("the daemon could not be started")?;
        let stdout = child.stdout.take().context("the daemon has no output")?;
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    // The daemon is killed.
                    return;
                }
            }
        });
        let mut daemon = Self { child, lines, address: String::new() };
        loop {
            let line = daemon.lines.recv_timeout(LIMIT).context("the daemon did not get ready")?;
            if line == "Ready" {
                break;
            }
            if let Some(address) = line.strip_prefix("Gateway: http://") {
                address.clone_into(&mut daemon.address);
            }
        }
        ensure!(!daemon.address.is_empty(), "the daemon did not print the address of the gateway");
        Ok(daemon)
    }

    /// Fetches a path from the gateway.
    fn get(&self, path: &str) -> Result<Vec<u8>> {
        let mut connection = TcpStream::connect(&self.address).context("cannot connect to the gateway")?;
        connection.set_read_timeout(Some(LIMIT))?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.address);
        connection.write_all(request.as_bytes())?;
        let mut response = Vec::new();
        connection.read_to_end(&mut response).context("the gateway did not respond")?;
        let end = response.windows(4).position(|bytes| bytes == b"\r\n\r\n").context("the gateway sent no head")?;
        let body = response.split_off(end + 4);
        let head = String::from_utf8_lossy(&response);
        ensure!(head.starts_with("HTTP/1.1 200 "), "the gateway responded {head}");
        Ok(body)
    }

    /// Stops the daemon as systemd does, and checks its status.
    fn stop(mut self) -> Result<()> {
        let id = self.child.id().to_string();
        let sent = Command::new("sh").args(["-c", "kill -TERM \"$0\"", id.as_str()]).status();
        ensure!(sent.context("sh could not be started")?.success(), "cannot stop the daemon");
        loop {
            match self.lines.recv_timeout(LIMIT) {
                Ok(_) => {}
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => bail!("the daemon did not end after SIGTERM"),
            }
        }
        let status = self.child.wait().context("cannot wait for the daemon")?;
        ensure!(status.success(), "the daemon ended with {status} after SIGTERM");
        Ok(())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Both fail if the daemon has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines_of_the_service_get_the_paths_of_the_installation() {
        let service = include_str!("../../../packaging/ipfrs.service");
        let installed = Installed { program: "/a/b".into(), service: PathBuf::new(), config: "/a/c".into() };
        for (key, last) in [("ExecStartPre=", ["config", "check"]), ("ExecStart=", ["gateway", "start"])] {
            let words = command_line(service, key, &installed, Path::new("/repo")).unwrap();
            assert_eq!(words, ["/a/b", "--repo", "/repo", "--config", "/a/c", last[0], last[1]]);
        }
        let other = "ExecStart=/usr/bin/ipfrs-cli --config /etc/other.toml gateway start";
        assert!(command_line(other, "ExecStart=", &installed, Path::new("/repo")).is_err());
        assert!(command_line("", "ExecStart=", &installed, Path::new("/repo")).is_err());
    }
}
