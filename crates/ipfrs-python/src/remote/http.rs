//! Requests to a daemon over persistent connections.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ipfrs_core::{Error, ErrorKind, Result};
use ipfrs_node::LinkName;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, TE};
use reqwest::{Body, Client, Method, RequestBuilder, Url, redirect};

use super::answer::{Answer, Streams};
use super::failure;
use super::patience::{Patience, Sending};

/// Timeout for connecting. A reachable machine responds sooner, even from the other side of the world.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Time after which idle connections are closed. Servers close them too: the ipfrs daemon does after 30 s.
const IDLE_TIMEOUT: Duration = Duration::from_secs(20);

/// Minimum and maximum time that the system waits for the peer to acknowledge sent data.
const TAKING_TIMEOUT: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(24 * 3_600));

/// Maximum length of path and query in bytes. Servers accept URLs of up to 65,534 bytes.
const MAX_URL_BYTES: usize = 64_000;

/// A daemon's address, and the HTTP client with which it is accessed.
#[derive(Debug)]
pub(super) struct Http {
    client: Client,
    /// Base URL, without a trailing slash.
    base: Url,
    /// The base URL without user and password.
    shown: Arc<str>,
    patience: Patience,
    streams: Arc<Streams>,
}

/// A request under construction.
#[derive(Debug)]
pub(super) struct Call {
    method: Method,
    path: String,
    query: String,
    headers: HeaderMap,
    body: Option<Body>,
    /// State of the body, if it is produced while it is sent.
    sending: Option<Sending>,
    /// Whether the request may be sent again if the connection broke before the response began.
    is_repeatable: bool,
}

impl Call {
    fn new(method: Method, path: String) -> Self {
        let (query, headers) = (String::new(), HeaderMap::new());
        Self { method, path, query, headers, body: None, sending: None, is_repeatable: false }
    }

    /// Creates a request for an RPC command that has no side effects.
    pub(super) fn question(command: &str) -> Self {
        Self { is_repeatable: true, ..Self::command(command) }
    }

    /// Creates a request for an RPC command.
    pub(super) fn command(command: &str) -> Self {
        Self::new(Method::POST, format!("/api/v0/{command}"))
    }

    /// Creates a GET request for a route of the native API.
    pub(super) fn get(path: String) -> Self {
        Self { is_repeatable: true, ..Self::new(Method::GET, path) }
    }

    /// Creates a POST request for a route of the native API.
    pub(super) fn post(path: &str) -> Self {
        Self::new(Method::POST, path.to_owned())
    }

    /// Adds a parameter to the query.
    pub(super) fn with(mut self, name: &str, value: impl ToString) -> Self {
        let query = std::mem::take(&mut self.query);
        self.query = form_urlencoded::Serializer::new(query).append_pair(name, &value.to_string()).finish();
        self
    }

    /// Adds a path, which need not be UTF-8, as an argument.
    pub(super) fn with_path(mut self, path: &LinkName) -> Self {
        self.query.push_str(if self.query.is_empty() { "arg=" } else { "&arg=" });
        self.query.extend(form_urlencoded::byte_serialize(path.as_bytes()));
        self
    }

    /// Adds a parameter to the query if `value` is given.
    pub(super) fn with_some(self, name: &str, value: Option<impl ToString>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    /// Requests trailers, with which the RPC API reports why a stream broke off.
    pub(super) fn with_trailers(mut self) -> Self {
        self.headers.insert(TE, HeaderValue::from_static("trailers"));
        self
    }

    pub(super) fn accepting(mut self, media_type: &'static str) -> Self {
        self.headers.insert(ACCEPT, HeaderValue::from_static(media_type));
        self
    }

    /// Sets a body that is complete.
    pub(super) fn sends(mut self, media_type: &str, body: impl Into<Body>) -> Result<Self> {
        let media_type = HeaderValue::from_str(media_type);
        let media_type = media_type.map_err(|e| Error::internal("a media type is no header").with_source(e))?;
        self.headers.insert(CONTENT_TYPE, media_type);
        self.body = Some(body.into());
        Ok(self)
    }

    /// Sets a body that is produced while it is sent.
    pub(super) fn streams(self, media_type: &str, body: Body, sending: Sending) -> Result<Self> {
        Ok(Self { sending: Some(sending), ..self.sends(media_type, body)? })
    }

    /// Marks the request as repeatable. It has a body but no side effects.
    pub(super) fn repeatable(self) -> Self {
        Self { is_repeatable: true, ..self }
    }
}

impl Http {
    /// Creates a client of the daemon at `url`. Sends no request yet.
    pub(super) fn new(url: &str, token: Option<&str>, timeout: Option<f64>) -> Result<Self> {
        let (base, shown) = base(url)?;
        if token.is_some() && !(base.username().is_empty() && base.password().is_none()) {
            return Err(Error::invalid(format!(
                "{shown}: both a token and a user in the URL are set: omit one of them"
            )));
        }
        let patience = Patience::of_seconds(timeout)?;
        let mut client = Client::builder()
            .user_agent(concat!("ipfrs-python/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT_TIMEOUT)
            .pool_idle_timeout(IDLE_TIMEOUT)
            // The default timeout of 30 s would apply even if the user allows a longer time.
            .tcp_user_timeout(patience.longest().map(|longest| longest.clamp(TAKING_TIMEOUT.0, TAKING_TIMEOUT.1)))
            .redirect(redirect::Policy::none())
            .http1_only();
        if is_here(&base) {
            client = client.no_proxy();
        }
        if base.scheme() == "http" {
            // Reading the system's certificates takes longer than a hundred requests, and HTTP does not need them.
            client = client.tls_certs_only([]);
        }
        if let Some(token) = token {
            client = client.default_headers(HeaderMap::from_iter([(AUTHORIZATION, bearer(token)?)]));
        }
        let client = client.build().map_err(|e| Error::internal("cannot create an HTTP client").with_source(e))?;
        Ok(Self { client, base, shown: shown.into(), patience, streams: Arc::default() })
    }

    /// Drops responses that no task is reading.
    pub(super) fn end_streams(&self) {
        self.streams.end();
    }

    /// Returns the URL of the daemon, without user and password.
    pub(super) fn shown(&self) -> &Arc<str> {
        &self.shown
    }

    /// Sends a request and waits for the headers of its response. If the response reports a failure, returns that
    /// error.
    pub(super) async fn send(&self, call: Call) -> Result<Answer> {
        let Call { method, path, query, headers, body, sending, is_repeatable } = call;
        if path.len() + query.len() > MAX_URL_BYTES {
            return Err(Error::too_large(format!(
                "the arguments are over the limit of {MAX_URL_BYTES} bytes for one request: pass fewer of them at a time"
            )));
        }
        let mut url = self.base.clone();
        url.set_path(&format!("{}{path}", self.base.path().trim_end_matches('/')));
        url.set_query(Some(query.as_str()).filter(|query| !query.is_empty()));
        let mut request = self.client.request(method, url).headers(headers);
        if let Some(body) = body {
            request = request.body(body);
        }
        let again = if is_repeatable { request.try_clone() } else { None };
        let sent = self.patience.wait(&self.shown, sending.as_ref(), request.send()).await?;
        let sent = match (sent, again) {
            (Err(e), Some(again)) if failure::is_of_idle_connection(&e) => self.send_again(again).await?,
            (sent, _) => sent,
        };
        let response = sent.map_err(|e| failure::unanswered(&self.shown, &e))?;
        let is_success = response.status().is_success();
        let answer = Answer::new(response, self.shown.clone(), self.patience, sending, self.streams.clone());
        if is_success { Ok(answer) } else { Err(answer.failure().await) }
    }

    async fn send_again(&self, request: RequestBuilder) -> Result<reqwest::Result<reqwest::Response>> {
        self.patience.wait(&self.shown, None, request.send()).await
    }
}

/// Parses the URL of a daemon. Returns the URL for requests, and one without user and password to show.
fn base(url: &str) -> Result<(Url, String)> {
    let invalid_url = |why: &str| {
        let form = "give one of the form http://HOST:PORT, such as http://127.0.0.1:8080";
        // An invalid URL may contain a password anywhere, so it is not shown.
        Error::invalid(format!("the URL of the daemon {why}: {form}"))
    };
    let base = Url::parse(url.trim()).map_err(|e| invalid_url(&format!("cannot be read ({e})")))?;
    if !matches!(base.scheme(), "http" | "https") {
        return Err(invalid_url(&format!("has the scheme {:?}", base.scheme())));
    }
    if base.host_str().is_none_or(str::is_empty) {
        return Err(invalid_url("has no host"));
    }
    if base.query().is_some() || base.fragment().is_some() {
        return Err(invalid_url("has a query or a fragment"));
    }
    let mut shown = base.clone();
    // Setting these fails only for a URL without a host.
    let _ = shown.set_username("");
    let _ = shown.set_password(None);
    Ok((base, shown.as_str().trim_end_matches('/').to_owned()))
}

/// Whether the daemon runs on this machine, which is not reached through a proxy.
fn is_here(base: &Url) -> bool {
    let host = base.host_str().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || host.ends_with(".localhost") || address.is_ok_and(|address| address.is_loopback())
}

fn bearer(token: &str) -> Result<HeaderValue> {
    let header = HeaderValue::from_str(&format!("Bearer {token}"));
    let mut header = header.map_err(|_| {
        Error::new(
            ErrorKind::InvalidInput,
            "the token has characters that are not allowed in a header: is there a line break?",
        )
    })?;
    header.set_sensitive(true);
    Ok(header)
}
