//! A repo in a temporary directory, helpers that run the binary on it, and daemons that are killed even if a test
//! fails.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// A temporary directory for one test.
pub(crate) struct Place {
    directory: TempDir,
}

/// Output and exit code of a command.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

impl Ran {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.stdout).unwrap().trim_end()
    }
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        let stderr = String::from_utf8(output.stderr).unwrap();
        Self { code: output.status.code(), stdout: output.stdout, stderr }
    }
}

impl Place {
    pub(crate) fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn repo(&self) -> PathBuf {
        self.path("repo")
    }

    /// Returns a command that runs the binary in this directory and on its repo, without the developer's own
    /// settings.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ipfrs-cli"));
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("IPFRS_")) {
            command.env_remove(name);
        }
        command
            .env_remove("RUST_LOG")
            .env("IPFRS_PATH", self.repo())
            .env("IPFRS_GRPC_PORT", "0")
            .env("IPFRS_API_PORT", "0")
            .current_dir(self.directory.path());
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Ran {
        self.command(arguments).output().unwrap().into()
    }

    /// Runs a command that must succeed, and returns its output.
    pub(crate) fn ok(&self, arguments: &[&str]) -> String {
        let ran = self.run(arguments);
        assert_eq!(ran.code, Some(0), "{arguments:?}: {}", ran.stderr);
        ran.text().to_owned()
    }

    /// Runs a command that must fail, and returns its error message.
    pub(crate) fn fails(&self, arguments: &[&str]) -> String {
        let ran = self.run(arguments);
        assert_eq!(ran.code, Some(1), "{arguments:?}: {}", ran.stderr);
        assert!(ran.stderr.starts_with("Error: "), "{arguments:?}: {}", ran.stderr);
        ran.stderr
    }

    pub(crate) fn run_with_input(&self, arguments: &[&str], input: &[u8]) -> Ran {
        let mut child = self.command(arguments).stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input).unwrap();
        child.wait_with_output().unwrap().into()
    }

    pub(crate) fn write(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }

    /// Creates a tree with sizes around chunk boundaries, names that need escaping, a symlink and an empty directory.
    pub(crate) fn tree(&self, name: &str) -> PathBuf {
        for size in [0, 1, 262_143, 262_144, 262_145, 1_000_000] {
            self.write(&format!("{name}/sizes/{size}"), &noise(size));
        }
        for file in ["plain.txt", "with space", "per%20cent", "plus+and&amp;\"quote\"", "ünïcode/näme", "a/b/c/d/deep"]
        {
            self.write(&format!("{name}/names/{file}"), file.as_bytes());
        }
        fs::create_dir(self.path(name).join("empty")).unwrap();
        symlink("names/plain.txt", self.path(name).join("link")).unwrap();
        symlink("nowhere", self.path(name).join("dangling")).unwrap();
        self.path(name)
    }

    /// Starts a daemon and waits until it reports that it is ready.
    pub(crate) fn start(&self, arguments: &[&str]) -> Daemon {
        let arguments = [&["gateway", "start", "--port", "0", "--workers", "2"], arguments].concat();
        Daemon::start(self.command(&arguments))
    }
}

/// Returns a shell that runs `script` in the place of a command, whose program is `$0` and whose arguments are `$@`.
pub(crate) fn in_shell(script: &str, command: &Command) -> Command {
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(script).arg(command.get_program()).args(command.get_args());
    shell.current_dir(command.get_current_dir().unwrap());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    shell
}

/// A running daemon, which is killed when the test ends.
pub(crate) struct Daemon {
    child: Child,
    pub(crate) urls: Vec<String>,
    /// URL of the API listener, if there is one.
    api: Option<String>,
    /// Address of the gRPC listener, if there is one.
    pub(crate) grpc: Option<String>,
    _stdout: BufReader<ChildStdout>,
    log: BufReader<std::process::ChildStderr>,
}

impl Daemon {
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command.spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let (mut urls, mut api, mut grpc) = (Vec::new(), None, None);
        loop {
            let mut line = String::new();
            if stdout.read_line(&mut line).unwrap() == 0 {
                let mut rest = String::new();
                log.read_to_string(&mut rest).unwrap();
                child.wait().unwrap();
                panic!("the daemon ended before it was ready: {rest}");
            }
            match line.trim_end().split_once(": ") {
                Some(("Gateway", url)) => urls.push(url.to_owned()),
                Some(("API", url)) => api = Some(url.to_owned()),
                Some(("gRPC", address)) => grpc = Some(address.to_owned()),
                None if line == "Ready\n" => break,
                _ => {}
            }
        }
        Self { child, urls, api, grpc, _stdout: stdout, log }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn url(&self) -> &str {
        &self.urls[0]
    }

    /// Opens a connection to the API listener.
    pub(crate) fn connect_to_api(&self) -> TcpStream {
        TcpStream::connect(self.api.as_ref().unwrap().strip_prefix("http://").unwrap()).unwrap()
    }

    /// Opens a connection and sends `request` on it.
    pub(crate) fn send(&self, request: &str) -> TcpStream {
        let mut connection = TcpStream::connect(self.url().strip_prefix("http://").unwrap()).unwrap();
        connection.write_all(request.as_bytes()).unwrap();
        connection
    }

    /// Opens a connection with a `POST` of `length` bytes to `path`, up to the daemon's request for the body, which
    /// shows that the request is in progress.
    pub(crate) fn begin_upload(&self, path: &str, length: usize) -> TcpStream {
        let mut connection = self.send(&format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/octet-stream\r\n\
             Expect: 100-continue\r\nContent-Length: {length}\r\n\r\n"
        ));
        let mut asked = [0; 25];
        connection.read_exact(&mut asked).unwrap();
        assert_eq!(&asked, b"HTTP/1.1 100 Continue\r\n\r\n");
        connection
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Reads the log up to the first line that contains `text`.
    pub(crate) fn wait_for_log(&mut self, text: &str) -> String {
        loop {
            let mut line = String::new();
            assert_ne!(self.log.read_line(&mut line).unwrap(), 0, "the log ended without {text:?}");
            if line.contains(text) {
                return line;
            }
        }
    }

    /// Waits for the daemon to exit. Returns its exit code and the rest of the log.
    pub(crate) fn wait(mut self) -> (Option<i32>, String) {
        let mut log = String::new();
        self.log.read_to_string(&mut log).unwrap();
        (self.child.wait().unwrap().code(), log)
    }

    /// Waits for the daemon to exit, without reading its log.
    pub(crate) fn exit_code(mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }

    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reports a test that this machine cannot run. Fails if `IPFRS_REQUIRE_ALL_TESTS` is set, for machines that can run
/// all.
pub(crate) fn skipped(why: &str) {
    // Not `eprintln!`, whose output the test harness shows for failed tests only.
    let _ = writeln!(std::io::stderr(), "\nSKIPPED: {why} (IPFRS_REQUIRE_ALL_TESTS makes this a failure)");
    assert!(std::env::var_os("IPFRS_REQUIRE_ALL_TESTS").is_none(), "{why}");
}

/// Returns how many rounds a test has whose strength depends on them: one, unless the variable `IPFRS_ROUNDS` sets
/// another number.
pub(crate) fn rounds() -> usize {
    std::env::var("IPFRS_ROUNDS").map_or(1, |rounds| rounds.parse().unwrap())
}

/// Returns pseudorandom bytes (xorshift64*), so that no two chunks are equal.
pub(crate) fn noise(size: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64 ^ size as u64;
    let mut bytes = Vec::with_capacity(size + 8);
    while bytes.len() < size {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        bytes.extend_from_slice(&state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes());
    }
    bytes.truncate(size);
    bytes
}

/// Returns all files, directories and symlinks below `root`, with their content.
pub(crate) fn content_of(root: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut pending = vec![root.to_owned()];
    while let Some(path) = pending.pop() {
        let kind = fs::symlink_metadata(&path).unwrap().file_type();
        let content = if kind.is_symlink() {
            [b"-> ", fs::read_link(&path).unwrap().as_os_str().as_bytes()].concat()
        } else if kind.is_dir() {
            pending.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            b"directory".to_vec()
        } else {
            fs::read(&path).unwrap()
        };
        found.push((path.strip_prefix(root).unwrap().to_owned(), content));
    }
    found.sort();
    found
}
