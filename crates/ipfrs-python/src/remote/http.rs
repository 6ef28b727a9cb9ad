//! Requests to a daemon, over connections that are kept.

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

/// A machine that is there answers sooner, even from the other side of the world.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Servers close connections that are idle for longer: ours does after 30 s.
const IDLE_TIMEOUT: Duration = Duration::from_secs(20);

/// How long the system waits for the other side to take what it was sent, at least and at most.
const TAKING_TIMEOUT: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(24 * 3_600));

/// Most bytes of a URL that servers take: 65,534 in all.
const MAX_URL_BYTES: usize = 64_000;

/// A daemon, and how it is asked.
#[derive(Debug)]
pub(super) struct Http {
    client: Client,
    /// Without a slash at its end.
    base: Url,
    /// As `base`, without a password.
    shown: Arc<str>,
    patience: Patience,
    streams: Arc<Streams>,
}

/// A request, as far as it is made.
#[derive(Debug)]
pub(super) struct Call {
    method: Method,
    path: String,
    query: String,
    headers: HeaderMap,
    body: Option<Body>,
    /// How far the body is, where it is not there from the beginning.
    sending: Option<Sending>,
    /// Whether it may be sent again when the connection broke off before the answer began.
    is_repeatable: bool,
}

impl Call {
    fn new(method: Method, path: String) -> Self {
        let (query, headers) = (String::new(), HeaderMap::new());
        Self { method, path, query, headers, body: None, sending: None, is_repeatable: false }
    }

    /// A command of the RPC that changes nothing.
    pub(super) fn question(command: &str) -> Self {
        Self { is_repeatable: true, ..Self::command(command) }
    }

    /// A command of the RPC.
    pub(super) fn command(command: &str) -> Self {
        Self::new(Method::POST, format!("/api/v0/{command}"))
    }

    /// A route of the native API that is read.
    pub(super) fn get(path: String) -> Self {
        Self { is_repeatable: true, ..Self::new(Method::GET, path) }
    }

    /// A route of the native API that is sent something.
    pub(super) fn post(path: &str) -> Self {
        Self::new(Method::POST, path.to_owned())
    }

    /// The same with a value in its query.
    pub(super) fn with(mut self, name: &str, value: impl ToString) -> Self {
        let query = std::mem::take(&mut self.query);
        self.query = form_urlencoded::Serializer::new(query).append_pair(name, &value.to_string()).finish();
        self
    }

    /// The same with a path as its argument, which need not be UTF-8.
    pub(super) fn with_path(mut self, path: &LinkName) -> Self {
        self.query.push_str(if self.query.is_empty() { "arg=" } else { "&arg=" });
        self.query.extend(form_urlencoded::byte_serialize(path.as_bytes()));
        self
    }

    /// The same with a value in its query, where there is one.
    pub(super) fn with_some(self, name: &str, value: Option<impl ToString>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    /// The same for a client that is told why a stream of the RPC broke off.
    pub(super) fn with_trailers(mut self) -> Self {
        self.headers.insert(TE, HeaderValue::from_static("trailers"));
        self
    }

    pub(super) fn accepting(mut self, media_type: &'static str) -> Self {
        self.headers.insert(ACCEPT, HeaderValue::from_static(media_type));
        self
    }

    /// The same with a body that is all there.
    pub(super) fn sends(mut self, media_type: &str, body: impl Into<Body>) -> Result<Self> {
        let media_type = HeaderValue::from_str(media_type);
        let media_type = media_type.map_err(|e| Error::internal("a media type is no header").with_source(e))?;
        self.headers.insert(CONTENT_TYPE, media_type);
        self.body = Some(body.into());
        Ok(self)
    }

    /// The same with a body that is made while it is sent.
    pub(super) fn streams(self, media_type: &str, body: Body, sending: Sending) -> Result<Self> {
        Ok(Self { sending: Some(sending), ..self.sends(media_type, body)? })
    }

    /// The same although it has a body: it asks for something.
    pub(super) fn repeatable(self) -> Self {
        Self { is_repeatable: true, ..self }
    }
}

impl Http {
    /// The daemon at `url`. Nothing is asked of it yet.
    pub(super) fn new(url: &str, token: Option<&str>, timeout: Option<f64>) -> Result<Self> {
        let (base, shown) = base(url)?;
        if token.is_some() && !(base.username().is_empty() && base.password().is_none()) {
            return Err(Error::invalid(format!(
                "{shown}: there is a token and a user in the URL: leave one of them out"
            )));
        }
        let patience = Patience::of_seconds(timeout)?;
        let mut client = Client::builder()
            .user_agent(concat!("ipfrs-python/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT_TIMEOUT)
            .pool_idle_timeout(IDLE_TIMEOUT)
            // Else it gives up after 30 s, however patient the user is.
            .tcp_user_timeout(patience.longest().map(|longest| longest.clamp(TAKING_TIMEOUT.0, TAKING_TIMEOUT.1)))
            .redirect(redirect::Policy::none())
            .http1_only();
        if is_here(&base) {
            client = client.no_proxy();
        }
        if base.scheme() == "http" {
            // Reading the system's certificates takes longer than a hundred requests.
            client = client.tls_certs_only([]);
        }
        if let Some(token) = token {
            client = client.default_headers(HeaderMap::from_iter([(AUTHORIZATION, bearer(token)?)]));
        }
        let client = client.build().map_err(|e| Error::internal("a client could not be made").with_source(e))?;
        Ok(Self { client, base, shown: shown.into(), patience, streams: Arc::default() })
    }

    /// Lets go of answers that nobody is reading.
    pub(super) fn end_streams(&self) {
        self.streams.end();
    }

    /// The URL of the daemon.
    pub(super) fn shown(&self) -> &Arc<str> {
        &self.shown
    }

    /// Sends a request and waits for the head of its answer. An answer that reports a failure is that failure.
    pub(super) async fn send(&self, call: Call) -> Result<Answer> {
        let Call { method, path, query, headers, body, sending, is_repeatable } = call;
        if path.len() + query.len() > MAX_URL_BYTES {
            return Err(Error::too_large(format!(
                "the arguments are over the limit of {MAX_URL_BYTES} bytes for one request: give fewer of them at a time"
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

/// Reads the URL of a daemon: to ask with, and to show.
fn base(url: &str) -> Result<(Url, String)> {
    let wrong = |why: &str| {
        let form = "give one of the form http://HOST:PORT, such as http://127.0.0.1:8080";
        // What cannot be read may have a password in it anywhere.
        Error::invalid(format!("the URL of the daemon {why}: {form}"))
    };
    let base = Url::parse(url.trim()).map_err(|e| wrong(&format!("cannot be read ({e})")))?;
    if !matches!(base.scheme(), "http" | "https") {
        return Err(wrong(&format!("has the scheme {:?}", base.scheme())));
    }
    if base.host_str().is_none_or(str::is_empty) {
        return Err(wrong("names no host"));
    }
    if base.query().is_some() || base.fragment().is_some() {
        return Err(wrong("has a query or a fragment"));
    }
    let mut shown = base.clone();
    // It has a host: that is all that these ask for.
    let _ = shown.set_username("");
    let _ = shown.set_password(None);
    Ok((base, shown.as_str().trim_end_matches('/').to_owned()))
}

/// Whether a daemon is on this machine: no proxy leads there.
fn is_here(base: &Url) -> bool {
    let host = base.host_str().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || host.ends_with(".localhost") || address.is_ok_and(|address| address.is_loopback())
}

fn bearer(token: &str) -> Result<HeaderValue> {
    let header = HeaderValue::from_str(&format!("Bearer {token}"));
    let mut header = header.map_err(|_| {
        Error::new(ErrorKind::InvalidInput, "the token has characters that no header can carry: is there a line break?")
    })?;
    header.set_sensitive(true);
    Ok(header)
}
