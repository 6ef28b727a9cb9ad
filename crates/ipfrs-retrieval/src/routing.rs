//! Client of the Delegated Routing V1 HTTP API (<https://specs.ipfs.tech/routing/http-routing-v1/>): providers of a
//! content ID.

use std::net::IpAddr;
use std::time::Duration;

use ipfrs_core::Cid;
use ipfrs_core::turns::Turns;
use reqwest::header::{ACCEPT, CONTENT_TYPE};
use reqwest::{Client, StatusCode, Url};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::timeout;

use crate::address::http_url;
use crate::attempt::Outcome;
use crate::http::{Failure, because};

/// Maximum time for a lookup.
const LOOKUP: Duration = Duration::from_secs(10);
/// Maximum length of a response, in bytes.
const MAX_RESPONSE_BYTES: usize = 1 << 20;
/// Maximum number of concurrent lookups at one router.
const MAX_LOOKUPS: usize = 16;
/// Maximum number of addresses that are read from one record.
const MAX_ADDRESSES: usize = 32;
/// Protocols of the providers that are of use.
const PROTOCOLS: &str = "unknown,transport-bitswap,transport-ipfs-gateway-http";
const HTTP_PROTOCOL: &str = "transport-ipfs-gateway-http";
const BITSWAP_PROTOCOL: &str = "transport-bitswap";

/// Configured routers.
#[derive(Debug)]
pub(crate) struct Routers {
    routers: Vec<Router>,
    client: Client,
}

/// A configured router.
#[derive(Debug)]
pub(crate) struct Router {
    pub(crate) url: Url,
    /// Permits for lookups. Each router has its own, so that one that does not respond delays no lookup at others.
    pub(crate) lookups: Turns<Option<IpAddr>>,
}

/// A provider that a router named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Provider {
    /// URLs of its HTTP gateway.
    pub(crate) urls: Vec<Url>,
    /// Its peer ID and addresses.
    pub(crate) peer: Option<(String, Vec<String>)>,
    /// Whether the peer may exchange blocks by Bitswap.
    pub(crate) exchanges_blocks: bool,
}

/// Record of a provider: schema `peer`, and `bitswap` of older routers.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Record {
    #[serde(default, rename = "ID")]
    id: Option<String>,
    #[serde(default)]
    addrs: Option<Vec<String>>,
    #[serde(default)]
    protocols: Option<Vec<String>>,
}

impl Record {
    fn into_provider(self) -> Option<Provider> {
        let protocols = self.protocols.unwrap_or_default();
        // Routers may ignore the filter of the request. A record without protocols may have any.
        let may_have = |wanted: &str| protocols.is_empty() || protocols.iter().any(|protocol| protocol == wanted);
        let addresses: Vec<_> = self.addrs.unwrap_or_default().into_iter().take(MAX_ADDRESSES).collect();
        let urls: Vec<_> = match may_have(HTTP_PROTOCOL) {
            true => addresses.iter().filter_map(|address| http_url(address)).collect(),
            false => Vec::new(),
        };
        let peer = self.id.map(|id| (id, addresses));
        let exchanges_blocks = peer.is_some() && may_have(BITSWAP_PROTOCOL);
        (!urls.is_empty() || exchanges_blocks).then_some(Provider { urls, peer, exchanges_blocks })
    }
}

/// Whole response in JSON, for routers that do not stream. Records are parsed one by one, because their schemas vary.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ProvidersResponse {
    #[serde(default)]
    providers: Option<Vec<Value>>,
}

impl Routers {
    pub(crate) fn new(urls: Vec<Url>, client: Client) -> Self {
        let router = |url| Router { url, lookups: Turns::new(MAX_LOOKUPS, 1) };
        Self { routers: urls.into_iter().map(router).collect(), client }
    }

    pub(crate) fn all(&self) -> &[Router] {
        &self.routers
    }

    /// Passes the providers of `cid` that a router knows to `found`, as they arrive. `found` returns whether
    /// the provider can be used. Returns the number of bytes of the response. `client` is the one that waits.
    pub(crate) async fn providers(
        &self,
        router: &Router,
        cid: &Cid,
        client: Option<IpAddr>,
        found: impl FnMut(Provider) -> bool + Send,
    ) -> Result<u64, Failure> {
        let _turn = router.lookups.take(client).await;
        let lookup = timeout(LOOKUP, self.lookup(&router.url, cid, found));
        let slow = |_| Failure::new(Outcome::Slow, format!("no complete response in {} s", LOOKUP.as_secs()));
        lookup.await.map_err(slow)?
    }

    async fn lookup(
        &self,
        url: &Url,
        cid: &Cid,
        mut found: impl FnMut(Provider) -> bool + Send,
    ) -> Result<u64, Failure> {
        let target = format!("routing/v1/providers/{cid}?filter-protocols={PROTOCOLS}");
        let url = url.join(&target).map_err(|e| Failure::new(Outcome::Failed, e.to_string()))?;
        let request = self.client.get(url).header(ACCEPT, "application/x-ndjson, application/json");
        let mut response = request.send().await.map_err(|e| Failure::new(Outcome::Failed, because(&e)))?;
        let status = response.status();
        if status == StatusCode::NOT_FOUND {
            return Err(Failure { status: Some(404), ..Failure::new(Outcome::Absent, "it knows no providers") });
        }
        if status != StatusCode::OK {
            let outcome = if status.is_server_error() || status == 429 { Outcome::Busy } else { Outcome::Failed };
            return Err(Failure { status: Some(status.as_u16()), ..Failure::new(outcome, format!("status {status}")) });
        }
        let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let streams = kind.starts_with("application/x-ndjson");
        let (mut received, mut buffer, mut count) = (0, Vec::new(), 0_usize);
        let mut read = |record: Option<Record>| {
            record.and_then(Record::into_provider).into_iter().for_each(|provider| {
                count += usize::from(found(provider));
            });
        };
        while let Some(piece) = response.chunk().await.map_err(|e| Failure::new(Outcome::Failed, because(&e)))? {
            received += piece.len();
            if received > MAX_RESPONSE_BYTES {
                let why = format!("its response is over the limit of {MAX_RESPONSE_BYTES} bytes");
                return Err(Failure::new(Outcome::Invalid, why));
            }
            buffer.extend_from_slice(&piece);
            while let Some(end) = buffer.iter().position(|byte| streams && *byte == b'\n') {
                read(serde_json::from_slice(&buffer[..end]).ok());
                buffer.drain(..=end);
            }
        }
        if streams {
            read(serde_json::from_slice(&buffer).ok());
        } else {
            let parsed: ProvidersResponse = serde_json::from_slice(&buffer)
                .map_err(|e| Failure::new(Outcome::Invalid, format!("its response is not valid JSON: {e}")))?;
            let records = parsed.providers.unwrap_or_default().into_iter();
            records.for_each(|record| read(serde_json::from_value(record).ok()));
        }
        match count {
            0 => Err(Failure { status: Some(200), ..Failure::new(Outcome::Absent, "it knows no providers of use") }),
            _ => Ok(received as u64),
        }
    }
}

#[cfg(fuzzing)]
pub(crate) mod fuzzing {
    use super::*;

    pub(crate) fn read(bytes: &[u8]) {
        let _ = serde_json::from_slice::<Record>(bytes).map(Record::into_provider);
        let Ok(parsed) = serde_json::from_slice::<ProvidersResponse>(bytes) else { return };
        for record in parsed.providers.unwrap_or_default() {
            let _ = serde_json::from_value::<Record>(record).map(Record::into_provider);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn provider(record: &str) -> Option<Vec<String>> {
        let record: Record = serde_json::from_str(record).unwrap();
        let urls = record.into_provider().map(|provider| provider.urls.iter().map(ToString::to_string).collect());
        urls.filter(|urls: &Vec<_>| !urls.is_empty())
    }

    #[test]
    fn records_of_http_providers_are_read() {
        let https = r#"{"Schema":"peer","ID":"12D3","Addrs":["/ip4/192.0.2.1/tcp/4001","/dns/a.example/tcp/443/https"],
            "Protocols":["transport-bitswap","transport-ipfs-gateway-http"],"Extra":1}"#;
        assert_eq!(provider(https), Some(vec!["https://a.example/".to_owned()]));
        let unknown = r#"{"Schema":"peer","ID":"12D3","Addrs":["/dns/a.example/https"]}"#;
        assert_eq!(provider(unknown), Some(vec!["https://a.example/".to_owned()]));
        for none in [
            r#"{"Schema":"peer","Addrs":["/dns/a.example/https"],"Protocols":["transport-bitswap"]}"#,
            r#"{"Schema":"peer","Addrs":["/ip4/192.0.2.1/tcp/4001"],"Protocols":null}"#,
            r#"{"Schema":"unknown"}"#,
            r#"{"Schema":"peer","Addrs":null,"Protocols":[]}"#,
        ] {
            assert_eq!(provider(none), None, "{none}");
        }
    }

    #[test]
    fn records_of_peers_are_read() {
        let peer = |record: &str| {
            let record: Record = serde_json::from_str(record).unwrap();
            let exchanging = record.into_provider().filter(|provider| provider.exchanges_blocks);
            exchanging.and_then(|provider| provider.peer)
        };
        let found = Some(("12D3".to_owned(), vec!["/ip4/192.0.2.1/tcp/4001".to_owned()]));
        for record in [
            r#"{"Schema":"peer","ID":"12D3","Addrs":["/ip4/192.0.2.1/tcp/4001"],"Protocols":["transport-bitswap"]}"#,
            r#"{"Schema":"peer","ID":"12D3","Addrs":["/ip4/192.0.2.1/tcp/4001"]}"#,
            r#"{"Schema":"bitswap","Protocol":"transport-bitswap","ID":"12D3","Addrs":["/ip4/192.0.2.1/tcp/4001"]}"#,
        ] {
            assert_eq!(peer(record), found, "{record}");
        }
        let other = r#"{"Schema":"peer","ID":"12D3","Addrs":[],"Protocols":["transport-ipfs-gateway-http"]}"#;
        assert_eq!(peer(other), None);
    }
}
