//! Arguments and options of a command.

use std::collections::HashMap;
use std::str::FromStr;

use axum::extract::FromRequestParts;
use http::HeaderMap;
use http::request::Parts;
use ipfrs_core::{Base, Cid, Error, Result, cid_to_string, to_base};
use ipfrs_node::{ContentPath, LinkName, Node};
use percent_encoding::percent_decode_str;

use crate::error::RpcError;

/// The query of a command, and what the request's head says of its answer.
pub(super) struct Args {
    arguments: Vec<String>,
    /// The same as bytes: paths need not be UTF-8.
    paths: Vec<LinkName>,
    options: HashMap<String, String>,
    /// How content IDs are written in the answer.
    pub(super) render: Render,
    /// Whether the client takes trailers.
    pub(super) takes_trailers: bool,
}

impl<S: Sync> FromRequestParts<S> for Args {
    type Rejection = RpcError;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, RpcError> {
        Self::parse(parts.uri.query().unwrap_or_default(), takes_trailers(&parts.headers))
    }
}

/// Whether the client says that it takes trailers, with `TE: trailers`. HTTP/2 has room for them in every answer, but there
/// as well a client that does not look at them (curl) would take a part that ends with one for the whole.
pub(super) fn takes_trailers(headers: &HeaderMap) -> bool {
    let te = headers.get_all(http::header::TE).iter().filter_map(|value| value.to_str().ok());
    te.flat_map(|value| value.split(',')).any(|item| item.trim().eq_ignore_ascii_case("trailers"))
}

impl Args {
    fn parse(query: &str, takes_trailers: bool) -> Result<Self, RpcError> {
        let (mut arguments, mut paths, mut options) = (Vec::new(), Vec::new(), HashMap::new());
        for pair in query.split('&') {
            for (name, value) in form_urlencoded::parse(pair.as_bytes()) {
                if name == "arg" {
                    paths.push(unescaped(pair.split_once('=').unwrap_or_default().1));
                    arguments.push(value.into_owned());
                } else {
                    options.insert(name.into_owned(), value.into_owned());
                }
            }
        }
        let base = options.get("cid-base").map(|name| to_base(name));
        let base = base.transpose().map_err(|e| RpcError::Request(e.to_string()))?;
        Ok(Self { arguments, paths, options, render: Render(base), takes_trailers })
    }

    /// The arguments, of which there must be at least one; `name` is what the message calls it.
    pub(super) fn required(&self, name: &str) -> Result<&[String], RpcError> {
        if self.arguments.is_empty() {
            return Err(RpcError::Request(format!("argument {name:?} is required")));
        }
        Ok(&self.arguments)
    }

    /// The one argument.
    pub(super) fn one(&self, name: &str) -> Result<&str, RpcError> {
        only(self.required(name)?, name).map(String::as_str)
    }

    /// As [`Self::required`], for arguments that are paths.
    pub(super) fn required_paths(&self, name: &str) -> Result<&[LinkName], RpcError> {
        self.required(name).map(|_| &*self.paths)
    }

    /// As [`Self::one`], for an argument that is a path.
    pub(super) fn one_path(&self, name: &str) -> Result<&LinkName, RpcError> {
        only(self.required_paths(name)?, name)
    }

    /// The one argument as a content path; a name (`/ipns/...`) is resolved.
    pub(super) async fn path(&self, node: &Node, name: &str) -> Result<ContentPath, RpcError> {
        Ok(node.content_path(self.one_path(name)?).await?)
    }

    /// The arguments, of which there must be at least one, as content paths; names are resolved.
    pub(super) async fn paths(&self, node: &Node, name: &str) -> Result<Vec<ContentPath>, RpcError> {
        let arguments = self.required_paths(name)?;
        let mut paths = Vec::with_capacity(arguments.len());
        for argument in arguments {
            paths.push(node.content_path(argument).await?);
        }
        Ok(paths)
    }

    /// The first argument, where there is one.
    pub(super) fn first(&self) -> Option<&str> {
        self.arguments.first().map(String::as_str)
    }

    /// An option as text, unless it is absent or empty.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.options.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// An option as text, empty where it is.
    pub(super) fn given(&self, name: &str) -> Option<&str> {
        self.options.get(name).map(String::as_str)
    }

    /// An option of a type with a text form.
    pub(super) fn get<T: FromStr>(&self, name: &str) -> Result<Option<T>, RpcError> {
        let parse = |value: &str| {
            value.parse().map_err(|_| RpcError::Request(format!("invalid value {value:?} for option {name:?}")))
        };
        self.text(name).map(parse).transpose()
    }

    /// A Boolean option, in the spellings that Go's `strconv.ParseBool` takes; present without a value is true.
    pub(super) fn bool(&self, name: &str) -> Result<Option<bool>, RpcError> {
        match self.options.get(name).map(String::as_str) {
            None => Ok(None),
            Some("" | "1" | "t" | "T" | "true" | "TRUE" | "True") => Ok(Some(true)),
            Some("0" | "f" | "F" | "false" | "FALSE" | "False") => Ok(Some(false)),
            Some(other) => {
                Err(RpcError::Request(format!("invalid value {other:?} for option {name:?}: use true or false")))
            }
        }
    }

    /// Refuses options that would change the answer but are not offered, so that nobody gets something else unnoticed.
    pub(super) fn refuse(&self, names: &[&str]) -> Result<()> {
        for name in names {
            // A value that is no Boolean is one that was given on purpose.
            if self.options.contains_key(*name) && !matches!(self.bool(name), Ok(Some(false))) {
                return Err(Error::unsupported(format!("option {name:?} is not offered by this version")));
            }
        }
        Ok(())
    }
}

/// Returns the one argument of `arguments`; `name` is what the message calls it.
fn only<'a, T>(arguments: &'a [T], name: &str) -> Result<&'a T, RpcError> {
    match arguments {
        [one] => Ok(one),
        more => Err(RpcError::Request(format!("{} arguments given, one {name:?} expected", more.len()))),
    }
}

/// Returns a value of a query as bytes, where [`form_urlencoded`] would replace those that are not UTF-8.
fn unescaped(value: &str) -> LinkName {
    percent_decode_str(&value.replace('+', " ")).collect::<Vec<_>>().into()
}

/// Writes content IDs in the base that `cid-base` asks for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Render(Option<Base>);

impl Render {
    /// The same, or where `cid-base` was not given as the content ID at the beginning of a path is written: `{cid}/...`,
    /// `/ipfs/{cid}/...`, `ipfs://{cid}/...`.
    pub(super) fn or_like(self, path: &str) -> Self {
        let rest = ["/ipfs/", "/ipld/", "ipfs://"].iter().find_map(|prefix| path.strip_prefix(prefix)).unwrap_or(path);
        // A CIDv0 has no prefix that says its base: nothing is known of others then.
        let is_v0 = rest.starts_with("Qm");
        let base = rest.chars().next().filter(|_| !is_v0).and_then(|code| Base::from_code(code).ok());
        Self(self.0.or(base))
    }

    pub(super) fn cid(self, cid: &Cid) -> Result<String> {
        match self.0 {
            Some(base) => cid_to_string(cid, base),
            None => Ok(cid.to_string()),
        }
    }
}
