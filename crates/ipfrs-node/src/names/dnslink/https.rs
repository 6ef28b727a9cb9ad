//! DNS over HTTPS (RFC 8484): each query is the body of a POST request.

use std::time::Duration;

use hickory_resolver::net::DnsError;
use hickory_resolver::proto::op::{DnsResponse, Edns, Message, MessageType, OpCode, Query};
use hickory_resolver::proto::rr::{Name, RData, Record, RecordType};
use ipfrs_core::{Error, ErrorKind, Result};
use reqwest::header::{ACCEPT, AGE, CONTENT_TYPE};
use reqwest::{Client, Response, Url, redirect};

use super::texts::Texts;

/// Media type of DNS messages.
const MESSAGE: &str = "application/dns-message";
/// Maximum length of a DNS answer, as over TCP.
const MAX_ANSWER_BYTES: usize = 65_535;
/// Maximum number of aliases that are followed within one DNS response.
const MAX_ALIASES: usize = 16;
/// How long an idle connection is kept.
const IDLE: Duration = Duration::from_secs(30);

/// A resolver that is queried over HTTP.
#[derive(Debug)]
pub(super) struct Https {
    url: Url,
    client: Client,
}

impl Https {
    pub(super) fn new(url: Url) -> Result<Self> {
        let client = Client::builder().redirect(redirect::Policy::none()).no_proxy().pool_idle_timeout(IDLE);
        // Plain HTTP needs no certificates, and the system may have none.
        let client = if url.scheme() == "http" { client.tls_certs_only([]) } else { client };
        let client = client.build().map_err(|e| {
            let shown = url.origin().ascii_serialization();
            Error::invalid(format!("the resolver {shown} is unusable: {}; are CA certificates installed?", because(&e)))
        })?;
        Ok(Self { url, client })
    }

    /// Returns the TXT records of `name`, which must be fully qualified.
    pub(super) async fn texts(&self, name: &Name) -> Result<Texts> {
        // ID 0 lets HTTP caches recognize equal queries (RFC 8484, 4.1).
        let mut question = Message::new(0, MessageType::Query, OpCode::Query);
        question.metadata.recursion_desired = true;
        question.add_query(Query::query(name.clone(), RecordType::TXT)).set_edns(Edns::new());
        let question =
            question.to_vec().map_err(|e| Error::internal(format!("cannot encode query for {name}: {e}")))?;
        let request = self.client.post(self.url.clone()).header(CONTENT_TYPE, MESSAGE).header(ACCEPT, MESSAGE);
        let request = match crate::trace::traceparent() {
            Some(parent) => request.header("traceparent", parent),
            None => request,
        };
        let response = request.body(question).send().await.map_err(|e| unavailable(because(&e)))?;
        let age = age_of(&response);
        let response = DnsResponse::from_buffer(body_of(response).await?).map_err(|e| unavailable(e.to_string()))?;
        let mut texts = match DnsError::from_response(response) {
            Ok(response) if response.queries.iter().any(|query| query.name() == name) => {
                Texts::of(&records_of(name, &response.answers))
            }
            Ok(_) => return Err(unavailable("it responded to another query".to_owned())),
            Err(error) => Texts::of_none(&error).ok_or_else(|| unavailable(error.to_string()))?,
        };
        // The TTL is reduced by the time that the response spent in HTTP caches (RFC 8484, 5.1).
        texts.ttl = texts.ttl.saturating_sub(age);
        Ok(texts)
    }
}

/// Returns the TXT records of `name` among `answers`, together with the aliases that lead to them.
fn records_of(name: &Name, answers: &[Record]) -> Vec<Record> {
    let mut records = Vec::new();
    let mut name = name.clone();
    for _ in 0..MAX_ALIASES {
        let of_name = |record: &&Record| record.name == name;
        let alias = answers.iter().filter(of_name).find_map(|record| match &record.data {
            RData::CNAME(target) => Some((record, target.0.clone())),
            _ => None,
        });
        let Some((record, target)) = alias else {
            let texts = answers.iter().filter(of_name).filter(|record| matches!(record.data, RData::TXT(_)));
            records.extend(texts.cloned());
            return records;
        };
        records.push(record.clone());
        name = target;
    }
    Vec::new()
}

async fn body_of(mut response: Response) -> Result<Vec<u8>> {
    let (status, kind) = (response.status(), response.headers().get(CONTENT_TYPE));
    if !status.is_success() {
        return Err(unavailable(format!("it responded with status {status}")));
    }
    if kind.is_none_or(|kind| !kind.as_bytes().eq_ignore_ascii_case(MESSAGE.as_bytes())) {
        return Err(unavailable(format!("its response is not {MESSAGE}")));
    }
    let mut body = Vec::new();
    while let Some(piece) = response.chunk().await.map_err(|e| unavailable(because(&e)))? {
        if body.len() + piece.len() > MAX_ANSWER_BYTES {
            return Err(unavailable(format!("its response has more than {MAX_ANSWER_BYTES} bytes")));
        }
        body.extend_from_slice(&piece);
    }
    Ok(body)
}

fn age_of(response: &Response) -> Duration {
    let age = response.headers().get(AGE).and_then(|age| age.to_str().ok()).and_then(|age| age.trim().parse().ok());
    Duration::from_secs(age.unwrap_or_default())
}

fn unavailable(why: String) -> Error {
    Error::new(ErrorKind::Unavailable, why)
}

/// Returns the innermost cause, because the outer errors only state that something failed.
fn because(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}
