//! Arguments and options of a command.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRequestParts, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::HeaderMap;
use http::request::Parts;
use ipfrs_core::{Base, Cid, Error, Result, cid_text, cid_to_string, to_base, uri_as_path};
use ipfrs_middleware::{RequestDeadline, RequestMemory};
use ipfrs_node::{ContentPath, LinkName, Node};
use ipfrs_rpc::commands::Definition;
use ipfrs_rpc::duration;
use ipfrs_rpc::types::CidLink;
use percent_encoding::percent_decode_str;

use super::command::Command;
use super::command_result::has_body;
use super::options::Options;
use super::paths::{cleaned, content_path};
use super::{multipart, stdin};
use crate::command_log::RunningCommand;
use crate::error::RpcError;
use crate::state::AppState;

/// Arguments and options of a command from the query and the body, and response options from the request headers.
#[cfg_attr(test, derive(Default))]
#[derive(Debug, Clone)]
pub(super) struct Args {
    arguments: Vec<String>,
    /// The same arguments as bytes: paths need not be UTF-8.
    paths: Vec<LinkName>,
    options: Options,
    /// Format of content IDs in the response.
    pub(super) render: Render,
    /// Whether the client accepts trailers.
    pub(super) takes_trailers: bool,
    /// Whether missing content may be retrieved, if the request says so (`offline`).
    online: Option<bool>,
    /// Whether `local` is set.
    local: bool,
    /// Memory reserved for arguments from the body.
    _memory: Option<Arc<RequestMemory>>,
}

/// Middleware that parses the arguments and options of a command for its handler, and refuses invalid ones.
pub(crate) async fn read(State(state): State<AppState>, request: Request, next: Next) -> Response {
    match Args::read(&state, request).await {
        Ok((request, running)) => next.run(request).await.map(|body| running.until_end_of(body)),
        Err(e) => e.into_response(),
    }
}

impl<S: Sync> FromRequestParts<S> for Args {
    type Rejection = RpcError;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, RpcError> {
        parts.extensions.remove().ok_or_else(|| Error::internal("the options of a command were not read").into())
    }
}

/// Whether the client accepts trailers, according to `TE: trailers`. HTTP/2 permits trailers in every response, but
/// even there a client that ignores them (curl) would mistake a partial body that ends with one for a complete body.
pub(super) fn takes_trailers(headers: &HeaderMap) -> bool {
    let te = headers.get_all(http::header::TE).iter().filter_map(|value| value.to_str().ok());
    te.flat_map(|value| value.split(',')).any(|item| item.trim().eq_ignore_ascii_case("trailers"))
}

impl Args {
    /// Stores the arguments and options of a request in its extensions, and logs the command. Arguments from the body
    /// follow those from the query, as in go-ipfs-cmds.
    async fn read(state: &AppState, mut request: Request) -> Result<(Request, RunningCommand), RpcError> {
        let command: &'static Command =
            *request.extensions().get().ok_or_else(|| Error::internal("a command has no definition"))?;
        let definition = command.definition;
        if let Some(deadline) = request.extensions().get::<RequestDeadline>().filter(|_| command.is_maintenance) {
            deadline.lift();
        }
        let found = uri_arguments(request.uri().path(), request.uri().query().unwrap_or_default(), definition);
        let UriArguments { mut arguments, mut paths, options } = found;
        multipart::remove_type_of_no_body(&mut request);
        let is_multipart = multipart::boundary(request.headers())?.is_some();
        if let Some(file) = definition.file().filter(|_| !is_multipart && !has_body(&request)) {
            return Err(RpcError::Request(format!("file argument '{}' is required", file.name)));
        }
        let parsed = Options::read(definition.tables(), &options)?;
        let render = Render::of(&parsed)?;
        let (lines, memory) = stdin::read(state, definition.argument_in_body(), &mut request).await?;
        arguments.extend(lines.iter().map(|line| line.to_string_lossy().into_owned()));
        paths.extend(lines);
        check_arguments(definition, arguments.len())?;
        let takes_trailers = takes_trailers(request.headers());
        let memory = memory.map(Arc::new);
        // Keys of services and values of settings must not be shown.
        let shown = match definition.path {
            "pin/remote/service/add" => &[],
            "config" => &arguments[..arguments.len().min(1)],
            _ => arguments.as_slice(),
        };
        let running = state.command_log.begin(definition.path, shown, &options);
        let options = parsed;
        let (online, local) = (options.global("offline").map(|offline| !offline), options.global("local"));
        let local = local.unwrap_or(false);
        let args = Self { arguments, paths, options, render, takes_trailers, online, local, _memory: memory };
        request.extensions_mut().insert(args);
        Ok((request, running))
    }

    /// Returns the arguments, of which there must be at least one; `name` is used in the error message.
    pub(super) fn required(&self, name: &str) -> Result<&[String], RpcError> {
        if self.arguments.is_empty() {
            return Err(RpcError::Request(format!("argument {name:?} is required")));
        }
        Ok(&self.arguments)
    }

    /// Returns the arguments, one for each of `names`.
    pub(super) fn all(&self, names: &[&str]) -> Result<&[String], RpcError> {
        if let Some(name) = names.get(self.arguments.len()) {
            return Err(RpcError::Request(format!("argument {name:?} is required")));
        }
        if self.arguments.len() > names.len() {
            let (given, expected) = (self.arguments.len(), names.len());
            return Err(RpcError::Request(format!("{given} arguments given, {expected} expected")));
        }
        Ok(&self.arguments)
    }

    /// Returns the only argument.
    pub(super) fn one(&self, name: &str) -> Result<&str, RpcError> {
        only(self.required(name)?, name).map(String::as_str)
    }

    /// Same as [`Self::required`], for arguments that are paths.
    pub(super) fn required_paths(&self, name: &str) -> Result<&[LinkName], RpcError> {
        self.required(name).map(|_| &*self.paths)
    }

    /// Same as [`Self::one`], for an argument that is a path.
    pub(super) fn one_path(&self, name: &str) -> Result<&LinkName, RpcError> {
        only(self.required_paths(name)?, name)
    }

    /// Returns the argument, if there is one.
    ///
    /// # Errors
    /// If there are several.
    pub(super) fn at_most_one(&self, name: &str) -> Result<Option<&str>, RpcError> {
        self.has_arguments().then(|| self.one(name)).transpose()
    }

    /// Same as [`Self::at_most_one`], for an argument that is a path.
    pub(super) fn at_most_one_path(&self, name: &str) -> Result<Option<&LinkName>, RpcError> {
        self.has_arguments().then(|| self.one_path(name)).transpose()
    }

    /// Returns the only argument as a content path, resolving a name (`/ipns/...`).
    pub(super) async fn path(&self, node: &Node, name: &str) -> Result<ContentPath, RpcError> {
        content_path(node, self.one_path(name)?).await
    }

    /// Returns the arguments, of which there must be at least one, as content paths, resolving names.
    pub(super) async fn paths(&self, node: &Node, name: &str) -> Result<Vec<ContentPath>, RpcError> {
        let arguments = self.required_paths(name)?;
        let mut paths = Vec::with_capacity(arguments.len());
        for argument in arguments {
            paths.push(content_path(node, argument).await?);
        }
        Ok(paths)
    }

    /// Returns the arguments.
    pub(super) fn arguments(&self) -> &[String] {
        &self.arguments
    }

    /// Returns a required argument by its position. The definition of the command requires it.
    pub(super) fn text_at(&self, index: usize) -> &str {
        self.arguments.get(index).map(String::as_str).unwrap_or_default()
    }

    /// Same as [`Self::text_at`], for a content path, resolving a name.
    pub(super) async fn path_at(&self, node: &Node, index: usize) -> Result<ContentPath, RpcError> {
        let path = self.paths.get(index).ok_or_else(|| Error::internal("a required argument is missing"))?;
        content_path(node, path).await
    }

    /// Whether there are any arguments.
    pub(super) fn has_arguments(&self) -> bool {
        !self.arguments.is_empty()
    }

    /// Returns an option as text. An empty value is a value: most commands refuse it, as in Kubo.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.options.text(name)
    }

    /// Returns the text of an option that has a default.
    pub(super) fn text_or_default(&self, name: &str) -> &str {
        self.text(name).unwrap_or_default()
    }

    /// Returns the values of an option that is a list.
    pub(super) fn texts(&self, name: &str) -> impl Iterator<Item = &str> {
        self.options.texts(name)
    }

    /// Returns an option as text, for those of which Kubo takes an empty value as none.
    pub(super) fn nonempty_text(&self, name: &str) -> Option<&str> {
        self.text(name).filter(|value| !value.is_empty())
    }

    /// Returns a numeric option.
    pub(super) fn number<T: TryFrom<i128>>(&self, name: &str) -> Result<Option<T>, RpcError> {
        self.options.number(name)
    }

    /// Returns a Boolean option.
    pub(super) fn bool(&self, name: &str) -> Option<bool> {
        self.options.bool(name)
    }

    /// Sets a Boolean option.
    pub(super) fn set(&mut self, name: &'static str) {
        self.options.set(name);
    }

    /// Whether a Boolean option is set. Without a default in its definition, it is false.
    pub(super) fn is_set(&self, name: &str) -> bool {
        self.bool(name).unwrap_or(false)
    }

    /// Whether missing content is not retrieved (`offline`, `local`).
    pub(super) fn is_offline(&self) -> bool {
        self.local || self.online == Some(false)
    }

    /// Whether the request says that missing content is retrieved (`offline=false`).
    pub(super) fn is_explicitly_online(&self) -> bool {
        self.online == Some(true)
    }

    /// Returns an option that is a duration.
    ///
    /// # Errors
    /// If the text is not a duration.
    pub(super) fn duration(&self, name: &str) -> Result<Option<Duration>> {
        let parse = |text| {
            let invalid = || format!("time: invalid duration {text:?} of {name}: use a duration such as 30s or 1h30m");
            duration::parse(text).ok_or_else(|| Error::invalid(invalid()))
        };
        self.text(name).map(parse).transpose()
    }

    /// Whether an option is a duration below zero, which [`duration`](Self::duration) refuses.
    pub(super) fn is_negative_duration(&self, name: &str) -> bool {
        let below = self.text(name).and_then(|text| text.strip_prefix('-')).and_then(duration::parse);
        below.is_some_and(|duration| !duration.is_zero())
    }
}

/// Arguments and options in the URI of a request.
#[derive(Debug, Default)]
pub(super) struct UriArguments {
    /// As text, with U+FFFD in place of each byte that is not part of a character.
    pub(super) arguments: Vec<String>,
    /// The same arguments as bytes.
    pub(super) paths: Vec<LinkName>,
    /// All other names and values of the query.
    pub(super) options: Vec<(String, String)>,
}

impl UriArguments {
    fn push(&mut self, argument: LinkName) {
        self.arguments.push(argument.to_string_lossy().into_owned());
        self.paths.push(argument);
    }
}

/// Returns the arguments and options in the path and the query of a request.
pub(super) fn uri_arguments(path: &str, query: &str, command: &Definition) -> UriArguments {
    let mut found = UriArguments::default();
    if let Some(escaped) = argument_in_path(path, command.path) {
        found.push(percent_decode_str(escaped).collect::<Vec<_>>().into());
    }
    for pair in query.split('&') {
        for (name, value) in form_urlencoded::parse(pair.as_bytes()) {
            if name == "arg" {
                found.push(unescaped(pair.split_once('=').unwrap_or_default().1));
            } else {
                found.options.push((name.into_owned(), value.into_owned()));
            }
        }
    }
    found
}

/// Returns the argument that follows a command in the path of a request: `/cat/{argument}`.
fn argument_in_path<'a>(path: &'a str, command: &str) -> Option<&'a str> {
    path.strip_prefix('/')?.strip_prefix(command)?.strip_prefix('/').filter(|argument| !argument.is_empty())
}

/// Checks the number of arguments. As in Kubo, a command without arguments ignores them.
fn check_arguments(command: &Definition, given: usize) -> Result<(), RpcError> {
    if let Some(missing) = command.texts().nth(given).filter(|argument| argument.is_required) {
        return Err(RpcError::Request(format!("argument {:?} is required", missing.name)));
    }
    let expected = command.texts().count();
    if given > expected && expected > 0 && command.texts().all(|argument| !argument.is_repeated) {
        return Err(RpcError::Request(format!("{given} arguments given, at most {expected} expected")));
    }
    Ok(())
}

/// Returns the only one of `arguments`; `name` is used in the error message.
fn only<'a, T>(arguments: &'a [T], name: &str) -> Result<&'a T, RpcError> {
    match arguments {
        [one] => Ok(one),
        more => Err(RpcError::Request(format!("{} arguments given, one {name:?} expected", more.len()))),
    }
}

/// Returns the base with a name, or with a prefix as its name. The identity base, whose prefix is a zero byte, is no
/// text.
pub(super) fn text_base(name: &str) -> Result<Base> {
    let mut chars = name.chars();
    let code = chars.next().filter(|_| chars.next().is_none());
    let by_prefix = code.and_then(|code| Base::from_code(code).ok()).filter(|base| *base != Base::Identity);
    let unknown = |e| Error::invalid(format!("unsupported multibase encoding: {name}: {e}"));
    by_prefix.map_or_else(|| to_base(name).map_err(unknown), Ok)
}

/// Returns a value of a query as bytes. [`form_urlencoded`] would replace bytes that are not UTF-8.
fn unescaped(value: &str) -> LinkName {
    percent_decode_str(&value.replace('+', " ")).collect::<Vec<_>>().into()
}

/// Format of content IDs, with the base that `cid-base` selects.
#[cfg_attr(test, derive(Default))]
#[derive(Debug, Clone, Copy)]
pub(super) struct Render {
    base: Option<Base>,
    /// Whether CIDv0 is converted to version 1. If `None`, it is converted only if the base requires it.
    upgrade: Option<bool>,
}

impl Render {
    fn of(options: &Options) -> Result<Self, RpcError> {
        let base = options.text("cid-base").filter(|name| !name.is_empty()).map(text_base).transpose()?;
        Ok(Self { base, upgrade: options.bool("upgrade-cidv0-in-output") })
    }

    /// Returns this format, but without `cid-base` uses the base of the content ID at the beginning of `path`:
    /// `{cid}/...`, `/ipfs/{cid}/...`, `ipfs://{cid}/...`.
    pub(super) fn or_like(self, path: &str) -> Self {
        let path = cleaned(&uri_as_path(path.as_bytes()));
        let path = path.to_string_lossy();
        let rest = ["/ipfs/", "/ipld/"].iter().find_map(|prefix| path.strip_prefix(prefix)).unwrap_or(&path);
        // A CIDv0 has no base prefix, so it does not select a base.
        let is_v0 = rest.starts_with("Qm");
        let base = rest.chars().next().filter(|_| !is_v0).and_then(|code| Base::from_code(code).ok());
        Self { base: self.base.or(base), ..self }
    }

    pub(super) fn link(self, cid: &Cid) -> Result<CidLink> {
        Ok(CidLink { cid: self.cid(cid)? })
    }

    pub(super) fn cid(self, cid: &Cid) -> Result<String> {
        let is_v0 = u64::from(cid.version()) == 0;
        match (self.base, self.upgrade) {
            (base, Some(true)) if is_v0 => {
                cid_to_string(&Cid::new_v1(cid.codec(), *cid.hash()), base.unwrap_or(Base::Base32Lower))
            }
            (Some(base), upgrade) if !(is_v0 && upgrade == Some(false)) => cid_to_string(cid, base),
            _ => Ok(cid_text(cid)),
        }
    }
}
