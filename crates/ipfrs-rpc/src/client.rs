//! A client of a daemon over persistent HTTP connections, or of a router in this process.
//!
//! Calls can be made from many tasks at once. Failures have the [`ErrorKind`] with which the daemon reported them.

mod address;
mod failure;
mod idle_timeout;
mod multipart;
mod request;
mod response;
mod upload;

use std::error::Error as StdError;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::BoxStream;
use http::HeaderMap;
use http::header::{AUTHORIZATION, HOST, HeaderValue};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use ipfrs_core::{Error, ErrorKind, Result};
pub use reqwest::Body;
use reqwest::{RequestBuilder, Url, redirect};
use tower::util::BoxCloneSyncService;
use tower::{Service, ServiceExt};

use address::Address;
use idle_timeout::IdleTimeout;
use response::OpenResponses;

/// How to walk over a local tree.
pub use ipfrs_unixfs::Attributes;
pub use ipfrs_unixfs::local_tree::{IgnoreRules, WalkOptions, size_of_tree};
pub use multipart::{Form, Source, multipart};
pub use request::{Request, escape_path};
pub use response::Response;

/// A stream of bytes, in pieces of at most a few megabytes. An error is its last item.
pub type Pieces = BoxStream<'static, Result<Bytes>>;

type BoxError = Box<dyn StdError + Send + Sync>;
type ResponseBody = UnsyncBoxBody<Bytes, BoxError>;
type Router = BoxCloneSyncService<http::Request<Body>, http::Response<ResponseBody>, BoxError>;

/// Timeout for connecting. A reachable machine responds sooner, even from the other side of the world.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Time after which idle connections are closed. Servers close them too: the ipfrs daemon does after 30 s.
const IDLE_TIMEOUT: Duration = Duration::from_secs(20);

/// Minimum and maximum time that the system waits for the peer to acknowledge sent data.
const ACKNOWLEDGEMENT_TIMEOUT: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(24 * 3_600));

/// Options of a client.
#[derive(Debug, Clone, Copy)]
pub struct ClientOptions<'a> {
    /// Value of the header `User-Agent`.
    pub user_agent: &'a str,
    /// Token that every request carries as `Authorization: Bearer`.
    pub token: Option<&'a str>,
    /// Maximum time in seconds that the daemon may neither send data nor accept sent data. `None` for no limit.
    pub timeout: Option<f64>,
}

/// A client of a daemon.
#[derive(Debug)]
pub struct Client {
    transport: Transport,
    /// URL of the daemon without user and password, for messages.
    url: Arc<str>,
    timeout: IdleTimeout,
    open: Arc<OpenResponses>,
}

#[derive(Debug)]
enum Transport {
    /// `base` has no trailing slash.
    Remote {
        http: reqwest::Client,
        base: Url,
    },
    InProcess(Router),
}

impl Client {
    /// Creates a client of the daemon at `url`, such as `http://127.0.0.1:8080`, which may include a path prefix, or a
    /// multiaddr such as `/ip4/127.0.0.1/tcp/5001` or `/unix/run/ipfs.sock`. Sends no request yet.
    ///
    /// # Errors
    /// Returns [`ErrorKind::InvalidInput`] for an invalid URL, token or timeout.
    pub fn remote(url: &str, options: &ClientOptions<'_>) -> Result<Self> {
        let address = Address::parse(url)?;
        let is_this_machine = address.is_this_machine();
        let Address { base, shown, socket } = address;
        if options.token.is_some() && !(base.username().is_empty() && base.password().is_none()) {
            return Err(Error::invalid(format!(
                "{shown}: both a token and a user in the URL are set: omit one of them"
            )));
        }
        let timeout = IdleTimeout::of_seconds(options.timeout)?;
        let (min, max) = ACKNOWLEDGEMENT_TIMEOUT;
        let mut http = reqwest::Client::builder()
            .user_agent(options.user_agent)
            .connect_timeout(CONNECT_TIMEOUT)
            .pool_idle_timeout(IDLE_TIMEOUT)
            // The default timeout of 30 s would apply even if the user allows a longer time.
            .tcp_user_timeout(timeout.get().map(|timeout| timeout.clamp(min, max)))
            .redirect(redirect::Policy::none())
            .http1_only();
        if is_this_machine {
            http = http.no_proxy();
        }
        if base.scheme() == "http" {
            // Reading the system's certificates takes longer than a hundred requests, and HTTP does not need them.
            http = http.tls_certs_only([]);
        }
        #[cfg(unix)]
        if let Some(socket) = socket {
            http = http.unix_socket(socket);
        }
        if let Some(token) = options.token {
            http = http.default_headers(HeaderMap::from_iter([(AUTHORIZATION, bearer(token)?)]));
        }
        let http = http.build().map_err(|e| Error::internal("cannot create an HTTP client").with_source(e))?;
        let transport = Transport::Remote { http, base };
        Ok(Self { transport, url: shown.into(), timeout, open: Arc::default() })
    }

    /// Creates a client of `router`, which serves the API in this process.
    pub fn in_process<S, B>(router: S) -> Self
    where
        S: Service<http::Request<Body>, Response = http::Response<B>> + Clone + Send + Sync + 'static,
        S::Error: Into<BoxError>,
        S::Future: Send + 'static,
        B: BodyExt<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let router = router.map_response(boxed).map_err(Into::into);
        let transport = Transport::InProcess(Router::new(router));
        Self { transport, url: "this process".into(), timeout: IdleTimeout::NONE, open: Arc::default() }
    }

    /// Returns the URL of the daemon, without user and password.
    #[must_use]
    pub fn url(&self) -> &Arc<str> {
        &self.url
    }

    /// Drops responses that no task is reading. Their unread rest would keep connections open, and would delay the
    /// shutdown of a daemon.
    pub fn close(&self) {
        self.open.close();
    }

    /// Sends a request and waits for the headers of its response.
    ///
    /// # Errors
    /// Returns the error that the response reports, if it reports one.
    pub async fn send(&self, request: Request) -> Result<Response> {
        let response = self.send_for_any(request).await?;
        if response.status().is_success() { Ok(response) } else { Err(response.failure().await) }
    }

    /// Sends a request and waits for the headers of its response, which may report a failure.
    ///
    /// # Errors
    /// Fails if there is no response.
    pub async fn send_for_any(&self, request: Request) -> Result<Response> {
        request.check_length()?;
        let mut request = request;
        let upload = request.upload.take();
        let sent = match &self.transport {
            Transport::Remote { http, base } => self.send_remote(http, base, request, upload.as_ref()).await,
            Transport::InProcess(router) => send_in_process(router, request).await,
        };
        match sent {
            Ok(response) => Ok(Response::new(response, self.url.clone(), self.timeout, upload, self.open.clone())),
            Err(error) => Err(match &upload {
                Some(upload) => upload.state.explain(error),
                None => error,
            }),
        }
    }

    async fn send_remote(
        &self,
        http: &reqwest::Client,
        base: &Url,
        request: Request,
        upload: Option<&upload::Upload>,
    ) -> Result<http::Response<ResponseBody>> {
        let Request { method, path, query, headers, body, is_repeatable, .. } = request;
        let mut url = base.clone();
        url.set_path(&format!("{}{path}", base.path().trim_end_matches('/')));
        url.set_query(Some(query.as_str()).filter(|query| !query.is_empty()));
        let mut request = http.request(method, url).headers(headers);
        if let Some(body) = body {
            request = request.body(body);
        }
        let again = if is_repeatable { request.try_clone() } else { None };
        let sent = self.timeout.wait(&self.url, upload.map(|upload| &upload.state), request.send()).await?;
        let sent = match (sent, again) {
            (Err(e), Some(again)) if failure::is_of_idle_connection(&e) => self.send_again(again).await?,
            (sent, _) => sent,
        };
        let response = sent.map_err(|e| failure::no_response(&self.url, &e))?;
        Ok(boxed(http::Response::<Body>::from(response)))
    }

    async fn send_again(&self, request: RequestBuilder) -> Result<reqwest::Result<reqwest::Response>> {
        self.timeout.wait(&self.url, None, request.send()).await
    }
}

async fn send_in_process(router: &Router, request: Request) -> Result<http::Response<ResponseBody>> {
    let Request { method, path, query, headers, body, .. } = request;
    let uri = if query.is_empty() { path } else { format!("{path}?{query}") };
    let request = http::Request::builder().method(method).uri(uri).header(HOST, "localhost");
    let request = request.body(body.unwrap_or_default());
    let mut request = request.map_err(|e| Error::internal("a request is invalid").with_source(e))?;
    request.headers_mut().extend(headers);
    let failed = |e: BoxError| Error::internal(format!("the request failed: {e}")).with_source(e);
    router.clone().oneshot(request).await.map_err(failed)
}

fn boxed<B>(response: http::Response<B>) -> http::Response<ResponseBody>
where
    B: BodyExt<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    response.map(|body| body.map_err(Into::into).boxed_unsync())
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
