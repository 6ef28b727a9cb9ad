//! The audit log: a line for each request that changes something.

use std::borrow::Cow;

use super::caller::Caller;
use crate::client::Client;

/// Target of the log lines about requests that change something.
const AUDIT_TARGET: &str = "audit";

/// Length of an argument in the audit log above which its middle is left out, in bytes. None is left out as a whole.
const MAX_ARGUMENT_BYTES: usize = 256;

/// Logs a request that changes something. `what` names the route or method, `target` what it is about, and `status`
/// is the outcome. Daemons without authentication log none.
pub fn audit(caller: &Caller, client: Client, what: &str, target: &str, status: &str, request_id: &str) {
    if let Some(principal) = caller.audited() {
        // A field named `target` would share its key with that of the log in JSON, and readers would lose it.
        let object = target;
        tracing::info!(target: AUDIT_TARGET, principal, %client, what, object, status, request_id, "change");
    }
}

/// Returns the beginning and the end of a long argument, and its length.
#[must_use]
pub fn shortened_argument(argument: &str) -> Cow<'_, str> {
    let length = argument.len();
    if length <= MAX_ARGUMENT_BYTES {
        return argument.into();
    }
    let begin = &argument[..argument.floor_char_boundary(MAX_ARGUMENT_BYTES / 2)];
    let end = &argument[argument.ceil_char_boundary(length - MAX_ARGUMENT_BYTES / 2)..];
    format!("{begin}…({length} bytes)…{end}").into()
}

/// Returns the blocks that a batch has stored: the content ID of the first one, and the number of the others.
#[must_use]
pub fn stored_blocks(first: &str, count: usize) -> String {
    match count.saturating_sub(1) {
        0 => first.to_owned(),
        others => format!("{first} and {others} more"),
    }
}

/// A line of the audit log about a change that has begun. Dropping it writes it too, with the status `aborted`: the
/// client left, and what the request had begun may be completed nevertheless.
#[derive(Debug)]
pub struct AuditLine {
    caller: Caller,
    client: Client,
    what: String,
    target: String,
    request_id: String,
    is_written: bool,
}

impl AuditLine {
    /// Returns the line of a change by `caller`. `what` names the route or method.
    #[must_use]
    pub fn new(caller: Caller, client: Client, what: String, request_id: String) -> Self {
        Self { caller, client, what, target: String::new(), request_id, is_written: false }
    }

    /// Sets what the change is about.
    pub fn set_target(&mut self, target: &str) {
        self.target = shortened_argument(target).into_owned();
    }

    /// Writes the line with the outcome.
    pub fn write(mut self, status: &str) {
        self.write_once(status);
    }

    fn write_once(&mut self, status: &str) {
        if !std::mem::replace(&mut self.is_written, true) {
            audit(&self.caller, self.client, &self.what, &self.target, status, &self.request_id);
        }
    }
}

impl Drop for AuditLine {
    fn drop(&mut self) {
        self.write_once("aborted");
    }
}
