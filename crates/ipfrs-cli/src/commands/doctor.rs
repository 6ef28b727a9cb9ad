//! `doctor`: checks what a daemon needs, and prints what mends each finding.

mod access;
mod certificates;
mod checks;
mod listeners;
mod remedy;

use anyhow::{Result, bail};
use serde::Serialize;

use self::remedy::Remedies;
use crate::args::Globals;
use crate::output::Output;
use crate::runtime;
use crate::session::{self, Session};

/// Severity of an outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Status {
    Ok,
    /// A daemon runs, but not as well as it could.
    Warning,
    /// A daemon does not start, or fails.
    Error,
}

impl Status {
    fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// Outcome of a check, with a remedy unless all is well.
#[derive(Debug, Serialize)]
struct Finding {
    check: &'static str,
    status: Status,
    message: String,
    /// Command that mends it, or the first one to run; a text if none can.
    #[serde(skip_serializing_if = "Option::is_none")]
    fix: Option<String>,
}

impl Finding {
    fn ok(check: &'static str, message: impl Into<String>) -> Self {
        Self { check, status: Status::Ok, message: message.into(), fix: None }
    }

    fn warning(check: &'static str, message: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { check, status: Status::Warning, message: message.into(), fix: Some(fix.into()) }
    }

    fn error(check: &'static str, message: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { check, status: Status::Error, message: message.into(), fix: Some(fix.into()) }
    }
}

pub(super) fn run(globals: &Globals, out: &mut Output) -> Result<()> {
    let repo = session::repo(globals)?;
    let remedies = Remedies::new(globals);
    let (finding, config) = checks::configuration(globals, &repo, &remedies);
    let mut findings = vec![finding];
    let session = Session::with(globals, config.clone())?;
    let (daemon, content) = runtime::run(&config.server, async {
        let daemon = checks::daemon(&session, &remedies).await?;
        // Without a valid configuration, the place of the store is not known.
        let is_known = daemon.is_none() && findings.iter().all(|finding| finding.status != Status::Error);
        let content = if is_known { checks::content(&session, &remedies).await } else { None };
        anyhow::Ok((daemon, content))
    })?;
    let is_running = daemon.is_some();
    findings.extend(daemon);
    findings.extend(content);
    findings.push(access::permissions(&repo, config.store.read_only, &remedies));
    findings.push(checks::private_keys(globals, &repo, &config));
    findings.extend(checks::token_keys(&config));
    findings.extend(checks::private_content(&repo, &config));
    findings.push(checks::disk(&repo, &config, &remedies));
    findings.push(checks::clock(&repo, &config));
    findings.push(checks::open_files(&config, &remedies));
    findings.push(checks::memory(&config, &remedies));
    findings.push(listeners::reachability(&config, &remedies));
    findings.extend(certificates::check(&repo, &config));
    if !is_running {
        findings.extend(listeners::check(&config, &remedies));
    }
    for finding in &findings {
        print(finding, out)?;
    }
    let errors = findings.iter().filter(|finding| finding.status == Status::Error).count();
    if errors > 0 {
        bail!("{errors} of {} checks failed", findings.len());
    }
    Ok(())
}

fn print(finding: &Finding, out: &mut Output) -> Result<()> {
    if out.is_json() {
        return out.object(finding);
    }
    let Finding { check, status, message, fix } = finding;
    out.line(&format!("{:<8} {check}: {message}", status.name()))?;
    match fix {
        Some(fix) => out.line(&format!("         fix: {fix}")),
        None => Ok(()),
    }
}
