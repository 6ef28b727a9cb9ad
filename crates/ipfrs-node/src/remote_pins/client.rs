//! A client of the API of pinning services.

use std::collections::VecDeque;
use std::time::{Duration, SystemTime};

use futures::stream::{self, Stream};
use ipfrs_core::{Error, ErrorKind, Result, timestamp};
use ipfrs_rpc::types::{PinResults, PinState, PinStatus, PinningFailure, RequestedPin};
use reqwest::{Method, RequestBuilder, Response, Url, redirect};
use serde::de::DeserializeOwned;
use zeroize::Zeroizing;

use super::RemotePinFilter;

/// Longest time to establish a connection, and for a whole request.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// Largest response, in bytes: 1,000 pins of 16 KiB each.
const MAX_RESPONSE_BYTES: usize = 16 * 1024 * 1024;
/// Number of pins that are requested at once, the maximum of the specification.
const PAGE_PINS: usize = 1_000;
/// Largest number of content IDs in one request, as in the specification.
const MAX_CIDS: usize = 10;
const MAX_REDIRECTS: usize = 3;

/// A pinning service.
pub(super) struct Client {
    http: reqwest::Client,
    endpoint: Url,
    key: Zeroizing<String>,
}

impl Client {
    pub(super) fn new(endpoint: Url, key: Zeroizing<String>) -> Result<Self> {
        let http = reqwest::Client::builder()
            .redirect(redirect::Policy::limited(MAX_REDIRECTS))
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(REQUEST_TIMEOUT);
        // Plain HTTP needs no certificates, and the system may have none.
        let http = if endpoint.scheme() == "http" { http.tls_certs_only([]) } else { http };
        let http = http.build().map_err(|e| {
            Error::new(ErrorKind::Unavailable, format!("{endpoint} cannot be used: are CA certificates installed?"))
                .with_source(e)
        })?;
        Ok(Self { http, endpoint, key })
    }

    pub(super) async fn add(&self, pin: &RequestedPin) -> Result<PinStatus> {
        self.read(self.request(Method::POST, None)?.json(pin)).await
    }

    pub(super) async fn status(&self, id: &str) -> Result<PinStatus> {
        self.read(self.request(Method::GET, Some(id))?).await
    }

    pub(super) async fn remove(&self, id: &str) -> Result<()> {
        self.send(self.request(Method::DELETE, Some(id))?).await.map(drop)
    }

    /// Returns the number of pins in a state.
    pub(super) async fn count(&self, state: PinState) -> Result<u64> {
        let request = self.select(&[("limit", "1"), ("status", state.name())])?;
        Ok(self.read::<PinResults>(request).await?.count)
    }

    /// Returns all pins that `filter` selects, page by page.
    pub(super) fn list(self, filter: RemotePinFilter) -> impl Stream<Item = Result<PinStatus>> + Send {
        let mut cids: VecDeque<Vec<String>> =
            filter.cids.chunks(MAX_CIDS).map(|cids| cids.iter().map(ToString::to_string).collect()).collect();
        if cids.is_empty() {
            cids.push_back(Vec::new());
        }
        let listing = Listing { client: self, filter, cids, before: None, page: VecDeque::new(), is_last: false };
        stream::try_unfold(listing, |mut listing| async move { Ok(listing.next().await?.map(|pin| (pin, listing))) })
    }

    /// Returns a request for the pins that `query` selects.
    fn select(&self, query: &[(&str, &str)]) -> Result<RequestBuilder> {
        let mut url = self.url(None)?;
        url.query_pairs_mut().extend_pairs(query);
        Ok(self.http.get(url).bearer_auth(self.key.as_str()))
    }

    fn request(&self, method: Method, id: Option<&str>) -> Result<RequestBuilder> {
        Ok(self.http.request(method, self.url(id)?).bearer_auth(self.key.as_str()))
    }

    fn url(&self, id: Option<&str>) -> Result<Url> {
        let mut url = self.endpoint.clone();
        let cannot = |()| Error::internal("a checked endpoint has no path");
        url.path_segments_mut().map_err(cannot)?.pop_if_empty().push("pins").extend(id);
        Ok(url)
    }

    async fn send(&self, request: RequestBuilder) -> Result<Response> {
        let response = request.send().await.map_err(|e| self.unreachable(&e))?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        // Any body is welcome as an explanation, but none is needed.
        let body = body_of(response).await.unwrap_or_default();
        let reason = serde_json::from_slice::<PinningFailure>(&body).map_or_else(
            |_| status.canonical_reason().unwrap_or("no reason").to_owned(),
            |failure| format!("reason: {:?}, details: {:?}", failure.error.reason, failure.error.details),
        );
        let hint = match status.as_u16() {
            401 | 403 => " (access denied: check the key of the service)",
            404 => " (check the endpoint of the service)",
            _ => "",
        };
        let why = format!("remote pinning service returned http error {}{hint}: {reason}", status.as_u16());
        Err(Error::new(ErrorKind::BadSource, why))
    }

    async fn read<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<T> {
        let body = body_of(self.send(request).await?).await?;
        serde_json::from_slice(&body).map_err(|e| {
            let why = format!("remote pinning service sent a response that is not of its API: {e}");
            Error::new(ErrorKind::BadSource, why).with_source(e)
        })
    }

    fn unreachable(&self, error: &reqwest::Error) -> Error {
        let mut cause: &dyn std::error::Error = error;
        let mut is_dns = false;
        while let Some(inner) = cause.source() {
            is_dns |= inner.to_string().contains("dns error");
            cause = inner;
        }
        let host = self.endpoint.host_str().unwrap_or_default();
        let why = if is_dns { format!("lookup {host}: no such host: {cause}") } else { cause.to_string() };
        Error::new(ErrorKind::Unavailable, format!("empty response from remote pinning service: {why}"))
    }
}

async fn body_of(mut response: Response) -> Result<Vec<u8>> {
    let failed = |e: reqwest::Error| {
        Error::new(ErrorKind::Unavailable, "the response of the remote pinning service broke off").with_source(e)
    };
    let mut body = Vec::new();
    while let Some(piece) = response.chunk().await.map_err(failed)? {
        if body.len() + piece.len() > MAX_RESPONSE_BYTES {
            let why = format!("the response of the remote pinning service has more than {MAX_RESPONSE_BYTES} bytes");
            return Err(Error::new(ErrorKind::BadSource, why));
        }
        body.extend_from_slice(&piece);
    }
    Ok(body)
}

/// A list that is being read.
struct Listing {
    client: Client,
    filter: RemotePinFilter,
    /// Content IDs of this request and of the next ones.
    cids: VecDeque<Vec<String>>,
    /// Time of the oldest pin so far, with its text.
    before: Option<(SystemTime, String)>,
    page: VecDeque<PinStatus>,
    is_last: bool,
}

impl Listing {
    async fn next(&mut self) -> Result<Option<PinStatus>> {
        loop {
            if let Some(pin) = self.page.pop_front() {
                return Ok(Some(pin));
            }
            if self.is_last {
                self.cids.pop_front();
                (self.before, self.is_last) = (None, false);
            }
            let Some(cids) = self.cids.front() else { return Ok(None) };
            let states: Vec<_> = self.filter.states.iter().map(|state| state.name()).collect();
            let (cids, states, limit) = (cids.join(","), states.join(","), PAGE_PINS.to_string());
            let query = [
                ("limit", Some(limit.as_str())),
                ("status", Some(states.as_str())),
                ("cid", Some(cids.as_str()).filter(|cids| !cids.is_empty())),
                ("name", self.filter.name.as_deref()),
                ("before", self.before.as_ref().map(|(_, before)| before.as_str())),
            ];
            let query: Vec<_> = query.iter().filter_map(|(name, value)| Some((*name, (*value)?))).collect();
            let request = self.client.select(&query)?;
            let results: PinResults = self.client.read(request).await?;
            self.is_last = results.results.is_empty() || results.results.len() as u64 >= results.count;
            if let Some(oldest) = results.results.last().filter(|_| !self.is_last) {
                let time = timestamp::parse(&oldest.created);
                // Otherwise the same page would be requested again and again.
                let is_older = |time: &SystemTime| self.before.as_ref().is_none_or(|(before, _)| time < before);
                let time = time.filter(is_older).ok_or_else(|| {
                    let why = format!("remote pinning service listed a pin with the time {:?}", oldest.created);
                    Error::new(ErrorKind::BadSource, format!("{why}, which is not before the earlier ones"))
                })?;
                self.before = Some((time, oldest.created.clone()));
            }
            self.page = results.results.into();
        }
    }
}
