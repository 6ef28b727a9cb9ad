//! Requests to trustless gateways: whole parts of DAGs as CARs, and single blocks.

use std::time::{Duration, SystemTime};

use bytes::{Bytes, BytesMut};
use ipfrs_core::limits::MAX_BLOCK_BYTES;
use ipfrs_core::{Block, Cid, Error, Result};
use reqwest::header::{ACCEPT, CONTENT_TYPE, RETRY_AFTER, VIA};
use reqwest::{Client, Response, StatusCode, Version, redirect};
use tokio::time::timeout;

use crate::address::{PublicResolver, has_public_host};
use crate::attempt::{Outcome, SourceKind};
use crate::metrics::ReceivedBytes;
use crate::source::Source;

/// Maximum time for opening a connection.
const CONNECT: Duration = Duration::from_secs(5);
/// Maximum wait for the head of a response.
pub(crate) const HEAD: Duration = Duration::from_secs(10);
/// Maximum time for the body of a block.
const BODY: Duration = Duration::from_secs(30);
/// How long an idle connection is kept.
const IDLE: Duration = Duration::from_secs(60);
/// Size up to which a block is hashed on the calling thread, in bytes.
const INLINE_HASH_BYTES: usize = 32 * 1024;

/// Media types of the requests. Blocks that a DAG has several times are sent once.
const CAR: &str = "application/vnd.ipld.car; version=1; order=dfs; dups=n";
const RAW: &str = "application/vnd.ipld.raw";

/// Reason why an attempt did not deliver everything.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) outcome: Outcome,
    pub(crate) detail: String,
    pub(crate) status: Option<u16>,
    pub(crate) retry_after: Option<Duration>,
}

impl Failure {
    pub(crate) fn new(outcome: Outcome, detail: impl Into<String>) -> Self {
        Self { outcome, detail: detail.into(), status: None, retry_after: None }
    }
}

/// Returns a client. One that is not `trusted` connects to public addresses only.
pub(crate) fn client(trusted: bool) -> Result<Client> {
    let client = Client::builder()
        .user_agent(concat!("ipfrs/", env!("CARGO_PKG_VERSION")))
        .redirect(redirect::Policy::none())
        .no_proxy()
        .connect_timeout(CONNECT)
        .pool_idle_timeout(IDLE)
        .http2_adaptive_window(true);
    let client = if trusted { client } else { client.dns_resolver(PublicResolver) };
    let because =
        |e| Error::internal("the HTTP client cannot be created: are CA certificates installed?").with_source(e);
    client.build().map_err(because)
}

/// Sends a request and waits for the head of the response, which has a body of the expected kind.
async fn get(source: &Source, target: &str, accept: &str, via: &str, restricted: bool) -> Result<Response, Failure> {
    let url = source.url.join(target).map_err(|e| Failure::new(Outcome::Failed, e.to_string()))?;
    if restricted && source.kind != SourceKind::Gateway && !has_public_host(&url) {
        let why = "its address is private, and retrieval.allow_private_addresses is false";
        return Err(Failure::new(Outcome::Unusable, why));
    }
    let request = source.client.get(url).header(ACCEPT, accept).header(VIA, via);
    let sent = timeout(HEAD, request.send()).await;
    let sent = sent.map_err(|_| Failure::new(Outcome::Slow, format!("no response in {} s", HEAD.as_secs())))?;
    let response = sent.map_err(|e| Failure::new(Outcome::Failed, because(&e)))?;
    let status = response.status();
    let is_public_https = source.kind == SourceKind::Provider && restricted && source.url.scheme() == "https";
    let failure = if is_public_https && response.version() < Version::HTTP_2 {
        Failure::new(Outcome::Failed, "it does not offer HTTP/2")
    } else if status == StatusCode::OK {
        return Ok(response);
    } else if status.is_redirection() {
        let why = format!("status {status}: redirects are not followed, configure the URL that this one leads to");
        Failure::new(Outcome::Failed, why)
    } else {
        Failure::new(outcome_of(status), format!("status {status}"))
    };
    let retry_after = response.headers().get(RETRY_AFTER).and_then(|value| pause(value.to_str().ok()?.trim()));
    Err(Failure { status: Some(status.as_u16()), retry_after, ..failure })
}

/// Returns the time until a source wants to be asked again: seconds, or a date (RFC 9110, 10.2.3).
fn pause(retry_after: &str) -> Option<Duration> {
    if let Ok(seconds) = retry_after.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = httpdate::parse_http_date(retry_after).ok()?;
    Some(date.duration_since(SystemTime::now()).unwrap_or_default())
}

/// Returns the meaning of a status that is not 200, as boxo's HTTP client reads it.
fn outcome_of(status: StatusCode) -> Outcome {
    match status.as_u16() {
        // A gateway that has searched in vain says 502 or 504, about this content only.
        403 | 404 | 410 | 451 | 502 | 504 => Outcome::Absent,
        429 | 503 => Outcome::Busy,
        _ => Outcome::Failed,
    }
}

/// Requests a CAR. The body of the response has not been read yet.
pub(crate) async fn request_car(
    source: &Source,
    target: &str,
    via: &str,
    restricted: bool,
) -> Result<Response, Failure> {
    let response = get(source, target, CAR, via, restricted).await;
    let (lacks_car, is_clear) = match &response {
        Ok(response) => (!is_kind(response, "application/vnd.ipld.car"), true),
        // The other two may be about this request alone.
        Err(failure) => {
            (matches!(failure.status, Some(400 | 406 | 415 | 501)), matches!(failure.status, Some(406 | 415)))
        }
    };
    if lacks_car {
        source.note_no_car(is_clear);
        return Err(Failure::new(Outcome::Absent, "it does not serve this as a CAR"));
    }
    response
}

/// Requests one block. The body of the response has not been read yet.
pub(crate) async fn request_block(
    source: &Source,
    cid: &Cid,
    via: &str,
    restricted: bool,
) -> Result<Response, Failure> {
    get(source, &format!("ipfs/{cid}?format=raw"), RAW, via, restricted).await
}

/// Returns the memory that the block of a response may need, in bytes.
pub(crate) fn block_bytes(response: &Response) -> Result<usize, Failure> {
    match response.content_length() {
        None => Ok(MAX_BLOCK_BYTES),
        Some(length) => usize::try_from(length).ok().filter(|length| *length <= MAX_BLOCK_BYTES).ok_or_else(too_long),
    }
}

fn too_long() -> Failure {
    Failure::new(Outcome::Unusable, format!("over the limit of {MAX_BLOCK_BYTES} bytes for a block"))
}

/// Receives one block and verifies it.
pub(crate) async fn receive_block(
    mut response: Response,
    cid: &Cid,
    received: &ReceivedBytes,
    kind: SourceKind,
) -> Result<Block, Failure> {
    let is_page = kind == SourceKind::Gateway && is_kind(&response, "text/html");
    let whole = async {
        let mut body = BytesMut::new();
        let mut first: Option<Bytes> = None;
        while let Some(piece) = response.chunk().await.map_err(|e| Failure::new(Outcome::Failed, because(&e)))? {
            received.add(piece.len() as u64);
            if body.len() + first.as_ref().map_or(0, Bytes::len) + piece.len() > MAX_BLOCK_BYTES {
                return Err(too_long());
            }
            // A block that arrives in one piece is not copied.
            match first.take() {
                None if body.is_empty() => first = Some(piece),
                None => body.extend_from_slice(&piece),
                Some(before) => {
                    body.extend_from_slice(&before);
                    body.extend_from_slice(&piece);
                }
            }
        }
        Ok(first.unwrap_or_else(|| body.freeze()))
    };
    let slow = |_| Failure::new(Outcome::Slow, format!("the block took more than {} s", BODY.as_secs()));
    let data = timeout(BODY, whole).await.map_err(slow)??;
    let cid = *cid;
    let verified = if data.len() <= INLINE_HASH_BYTES {
        Block::new(cid, data)
    } else {
        let hashed = tokio::task::spawn_blocking(move || Block::new(cid, data)).await;
        hashed.unwrap_or_else(|e| Err(Error::internal("hashing a block failed").with_source(e)))
    };
    // A page about maintenance or of a captive portal is no attack.
    let outcome = if is_page { Outcome::Failed } else { Outcome::Invalid };
    verified
        .map_err(|e| Failure::new(outcome, if is_page { "it sent a page (text/html)".into() } else { e.to_string() }))
}

/// Whether the source states that its CAR has each block once.
pub(crate) fn excludes_repeats(response: &Response) -> bool {
    let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    kind.split(';').skip(1).any(|parameter| parameter.trim().eq_ignore_ascii_case("dups=n"))
}

fn is_kind(response: &Response, media_type: &str) -> bool {
    let Some(kind) = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()) else { return false };
    kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case(media_type))
}

/// Returns the innermost cause, because the outer errors only state that something failed.
pub(crate) fn because(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}
