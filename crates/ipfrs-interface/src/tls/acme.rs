//! Certificates from an authority such as Let's Encrypt, by ACME (RFC 8555). The authority connects to the HTTPS port
//! of each domain (TLS-ALPN-01, RFC 8737), so no other port and no change of the DNS is needed.

use std::collections::HashMap;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{Method, Request, Response};
use instant_acme::{
    Account, AccountBuilder, AccountCredentials, AuthorizationState, AuthorizationStatus, BodyWrapper, BytesResponse,
    ChallengeType, HttpClient, Identifier, NewAccount, NewOrder, Order, OrderStatus, Problem, RetryPolicy,
};
use ipfrs_core::{Error, ErrorKind, Result};
use ipfrs_node::off_workers;
use ipfrs_node::private_file::{Exposed, read_private, write_private};
use parking_lot::Mutex;
use rcgen::{CertificateParams, CustomExtension, KeyPair};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::ClientHello;
use rustls::sign::CertifiedKey;
use serde::Deserialize;
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout};

use super::certificates::{CertificateFiles, read_chain};

/// Protocol by which the authority verifies a domain.
pub(super) const PROTOCOL: &[u8] = b"acme-tls/1";

/// Directory in the repo for the account and the certificate.
const DIRECTORY: &str = "tls";

/// Maximum duration of one attempt to get a certificate.
const MAX_ATTEMPT: Duration = Duration::from_secs(300);

/// Time at the end of an attempt to find out why the authority has not verified the domains.
const FIND_CAUSE: Duration = Duration::from_secs(20);

/// Maximum time between two looks at the age of the certificate.
pub(super) const LOOK: Duration = Duration::from_secs(3600);

/// Time until an attempt is repeated: after the first failure, and at most. Authorities limit failed attempts.
const RETRY: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(6 * 3600));

/// Type of the problem that the authority has no such account (RFC 8555, 6.7).
const NO_ACCOUNT: &str = "urn:ietf:params:acme:error:accountDoesNotExist";

/// Largest response of the authority, in bytes.
const MAX_RESPONSE_BYTES: usize = 1024 * 1024;

/// `[tls] acme`: certificates from an authority.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AcmeConfig {
    /// Names for the certificate; empty for none.
    pub domains: Vec<String>,
    /// URL of the authority's directory.
    pub directory: String,
    /// E-mail address for messages of the authority; empty for none.
    pub contact: String,
    /// Whether the operator agrees to the terms of the authority.
    pub accept_terms: bool,
    /// File with the certificate (PEM) of the issuer for the directory's server; empty for those of the system.
    pub root: PathBuf,
}

impl Default for AcmeConfig {
    fn default() -> Self {
        Self {
            domains: Vec::new(),
            directory: "https://acme-v02.api.letsencrypt.org/directory".to_owned(),
            contact: String::new(),
            accept_terms: false,
            root: PathBuf::new(),
        }
    }
}

impl AcmeConfig {
    pub(super) fn is_enabled(&self) -> bool {
        !self.domains.is_empty()
    }

    pub(super) fn validate(&self) -> Result<()> {
        if !self.is_enabled() {
            return Ok(());
        }
        let is_name = |name: &String| {
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
            let is_address = name.parse::<IpAddr>().is_ok();
            let has_labels = name.split('.').all(|label| !label.is_empty() && label.bytes().all(is_plain));
            name.contains('.') && has_labels && !is_address
        };
        if let Some(wrong) = self.domains.iter().find(|name| !is_name(name)) {
            return Err(Error::invalid(format!(
                "tls.acme.domains: {wrong:?} is not a public name. Names with * need a certificate from elsewhere, in \
                 tls.certificates, because only a change of the DNS can prove them"
            )));
        }
        if !self.accept_terms {
            return Err(Error::invalid(format!(
                "tls.acme.accept_terms: read the terms of service of {} and set it to true to agree to them",
                self.directory
            )));
        }
        if !self.directory.starts_with("https://") {
            let value = &self.directory;
            return Err(Error::invalid(format!("tls.acme.directory = {value:?}: give a URL with https")));
        }
        if !self.contact.is_empty() && (!self.contact.contains('@') || self.contact.contains(char::is_whitespace)) {
            let value = &self.contact;
            return Err(Error::invalid(format!("tls.acme.contact = {value:?}: give an e-mail address, or none")));
        }
        Ok(())
    }

    /// Checks that the files can be used. Blocks on the disk.
    pub(super) fn check_files(&self) -> Result<()> {
        if !self.is_enabled() || self.root.as_os_str().is_empty() {
            return Ok(());
        }
        read_chain(&self.root).map(drop)
    }
}

/// Returns the file with certificate and key.
pub(super) fn files(repo: &Path) -> CertificateFiles {
    let file = repo.join(DIRECTORY).join("certificate.pem");
    CertificateFiles { certificate: file.clone(), key: file }
}

/// Certificates for connections by which the authority verifies a domain. Clones share the state.
#[derive(Debug, Clone, Default)]
pub(super) struct Challenges(Arc<Mutex<HashMap<String, Arc<CertifiedKey>>>>);

impl Challenges {
    /// Returns the certificate for a handshake, if the authority begins it.
    pub(super) fn choose(&self, hello: &ClientHello<'_>) -> Option<Option<Arc<CertifiedKey>>> {
        let is_of_authority = hello.alpn()?.eq([PROTOCOL]);
        is_of_authority.then(|| self.0.lock().get(&hello.server_name()?.to_ascii_lowercase()).cloned())
    }

    /// Serves the certificate of a challenge for `domain` until the returned value is dropped.
    fn serve(&self, domain: &str, digest: &[u8], provider: &CryptoProvider) -> Result<ServedChallenge> {
        let broken = |e: rcgen::Error| Error::internal("cannot create a certificate for a challenge").with_source(e);
        let domain = domain.to_ascii_lowercase();
        let mut params = CertificateParams::new(vec![domain.clone()]).map_err(broken)?;
        params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
        let key = KeyPair::generate().map_err(broken)?;
        let certificate = params.self_signed(&key).map_err(broken)?;
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let key = provider.key_provider.load_private_key(key);
        let key = key.map_err(|e| Error::internal("cannot use the key of a challenge").with_source(e))?;
        // Unchecked, because the check does not know the extension of the challenge, which is critical.
        let key = CertifiedKey::new(vec![certificate.der().clone()], key);
        self.0.lock().insert(domain.clone(), Arc::new(key));
        Ok(ServedChallenge { challenges: self.clone(), domain })
    }
}

/// A challenge whose certificate is served.
struct ServedChallenge {
    challenges: Challenges,
    domain: String,
}

impl Drop for ServedChallenge {
    fn drop(&mut self) {
        self.challenges.0.lock().remove(&self.domain);
    }
}

/// Gets certificates, and new ones in time.
#[derive(Debug)]
pub(super) struct Acme {
    pub(super) config: AcmeConfig,
    pub(super) repo: PathBuf,
    pub(super) challenges: Challenges,
    pub(super) provider: Arc<CryptoProvider>,
}

impl Acme {
    /// Tries to get a certificate, within a time limit.
    pub(super) async fn attempt(&self) -> Result<()> {
        tracing::info!(domains = self.domains(), directory = self.config.directory, "requesting a certificate");
        match timeout(MAX_ATTEMPT, self.obtain()).await {
            Ok(outcome) => outcome,
            Err(_) => Err(failed("the authority did not issue the certificate in time")),
        }
    }

    /// Logs a failed attempt, and waits until the next one. The time doubles with each failure.
    pub(super) async fn wait(&self, error: &Error, failures: &mut u32) {
        let seconds = RETRY.0.saturating_mul(1 << (*failures).min(16)).min(RETRY.1).as_secs();
        *failures += 1;
        tracing::error!(%error, domains = self.domains(), retry_seconds = seconds, "cannot get a certificate");
        sleep(Duration::from_secs(seconds)).await;
    }

    fn domains(&self) -> String {
        self.config.domains.join(", ")
    }

    /// Gets one certificate for all domains, and stores it with its key.
    async fn obtain(&self) -> Result<()> {
        let begun = Instant::now();
        let account = self.account().await?;
        let identifiers: Vec<_> = self.config.domains.iter().cloned().map(Identifier::Dns).collect();
        let mut order = match account.new_order(&NewOrder::new(&identifiers)).await {
            Ok(order) => order,
            Err(instant_acme::Error::Api(problem)) if problem.r#type.as_deref() == Some(NO_ACCOUNT) => {
                self.forget_account().await?;
                return Err(failed("the authority no longer has the account: the next attempt makes a new one"));
            }
            Err(error) => return Err(refused(error)),
        };
        let mut answered = Vec::new();
        let mut authorizations = order.authorizations();
        while let Some(authorization) = authorizations.next().await {
            let mut authorization = authorization.map_err(refused)?;
            match authorization.status {
                AuthorizationStatus::Pending => {}
                AuthorizationStatus::Valid => continue,
                _ => {
                    let why = causes(&authorization);
                    return Err(failed(&format!("the authority refused an earlier attempt: {why}")));
                }
            }
            let challenge = authorization.challenge(ChallengeType::TlsAlpn01);
            let mut challenge = challenge.ok_or_else(|| failed("the authority does not offer TLS-ALPN-01"))?;
            let Identifier::Dns(domain) = challenge.identifier().identifier else {
                return Err(failed("the authority asks for something that is no domain"));
            };
            let digest = challenge.key_authorization().digest();
            answered.push(self.challenges.serve(domain, digest.as_ref(), &self.provider)?);
            challenge.set_ready().await.map_err(refused)?;
        }
        let retries = RetryPolicy::default();
        let left = (MAX_ATTEMPT - FIND_CAUSE).saturating_sub(begun.elapsed());
        match order.poll_ready(&retries.timeout(left)).await {
            Ok(OrderStatus::Ready | OrderStatus::Valid) => {}
            Ok(_) | Err(instant_acme::Error::Timeout(_)) => return Err(self.unverified(order, None).await),
            Err(instant_acme::Error::Api(problem)) => return Err(self.unverified(order, Some(problem)).await),
            Err(error) => return Err(refused(error)),
        }
        drop(answered);
        let key = order.finalize().await.map_err(refused)?;
        let chain = order.poll_certificate(&retries.timeout(MAX_ATTEMPT)).await.map_err(refused)?;
        let path = files(&self.repo).certificate;
        self.store(path, format!("{key}{chain}").into_bytes()).await
    }

    /// Returns why an order has failed. The order need not have a `problem` (RFC 8555, 7.1.3), but its challenges do.
    async fn unverified(&self, mut order: Order, problem: Option<Problem>) -> Error {
        let mut why = Vec::new();
        let mut authorizations = order.authorizations();
        while let Some(authorization) = authorizations.next().await {
            let Ok(mut authorization) = authorization else { continue };
            let is_refused = |it: &AuthorizationState| {
                it.status == AuthorizationStatus::Invalid
                    || it.challenges.iter().any(|challenge| challenge.error.is_some())
            };
            if authorization.refresh().await.is_ok_and(is_refused) {
                why.push(causes(&authorization));
            }
        }
        if let Some(problem) = problem {
            if why.is_empty() {
                return refused(instant_acme::Error::Api(problem));
            }
            why.extend(problem.detail);
        }
        let why = if why.is_empty() { "no reason is given".to_owned() } else { why.join("; ") };
        let names = self.domains();
        failed(&format!(
            "the authority could not verify all of {names}: each must lead to the HTTPS port of this daemon, 443 from \
             outside ({why})"
        ))
    }

    /// Removes the file with the account.
    async fn forget_account(&self) -> Result<()> {
        let path = self.account_file();
        off_workers(move || {
            fs::remove_file(&path).map_err(|e| Error::io(format_args!("cannot remove {}", path.display()), e))
        })
        .await
    }

    fn account_file(&self) -> PathBuf {
        self.repo.join(DIRECTORY).join("account.json")
    }

    /// Returns the account at the authority, and creates it if there is none yet.
    async fn account(&self) -> Result<Account> {
        let path = self.account_file();
        let (read, shown) = (path.clone(), path.display().to_string());
        let stored = off_workers(move || read_private(&read, Exposed::Refuse));
        if let Some(bytes) = stored.await? {
            let stored: Stored = serde_json::from_slice(&bytes).map_err(|e| {
                Error::invalid(format!("{shown} is damaged: remove it, and a new account is made: {e}"))
            })?;
            if stored.directory == self.config.directory {
                return self.builder().await?.from_credentials(stored.credentials).await.map_err(refused);
            }
        }
        let contact = format!("mailto:{}", self.config.contact);
        let contact: &[&str] = if self.config.contact.is_empty() { &[] } else { &[&contact] };
        let new = NewAccount { contact, terms_of_service_agreed: true, only_return_existing: false };
        let builder = self.builder().await?;
        let (account, credentials) =
            builder.create(&new, self.config.directory.clone(), None).await.map_err(refused)?;
        let stored = serde_json::json!({ "directory": self.config.directory, "credentials": credentials });
        self.store(path, stored.to_string().into_bytes()).await?;
        Ok(account)
    }

    async fn builder(&self) -> Result<AccountBuilder> {
        let broken = |e: reqwest::Error| Error::internal("cannot create a client for the authority").with_source(e);
        let mut client = reqwest::Client::builder().timeout(Duration::from_secs(60));
        if !self.config.root.as_os_str().is_empty() {
            let path = self.config.root.clone();
            let pem = off_workers(move || {
                fs::read(&path).map_err(|e| Error::io(format_args!("tls.acme.root: cannot read {}", path.display()), e))
            });
            client = client.tls_certs_only(reqwest::Certificate::from_pem_bundle(&pem.await?).map_err(broken)?);
        }
        Ok(Account::builder_with_http(Box::new(Http(client.build().map_err(broken)?))))
    }

    /// Writes a file that only the owner of the repo can read.
    async fn store(&self, path: PathBuf, bytes: Vec<u8>) -> Result<()> {
        off_workers(move || {
            let cannot = |e| Error::io(format_args!("cannot write {}", path.display()), e);
            path.parent().map_or(Ok(()), fs::create_dir_all).map_err(cannot)?;
            write_private(&path, &bytes).map_err(cannot)
        })
        .await
    }
}

/// Returns what failed for one domain.
fn causes(authorization: &AuthorizationState) -> String {
    let details = authorization.challenges.iter().filter_map(|challenge| challenge.error.as_ref()?.detail.as_deref());
    let details: Vec<_> = details.collect();
    let why = if details.is_empty() { "no reason is given".to_owned() } else { details.join(", ") };
    match authorization.identifier().identifier {
        Identifier::Dns(domain) => format!("{domain}: {why}"),
        _ => why,
    }
}

/// Contents of the file with the account.
#[derive(Deserialize)]
struct Stored {
    directory: String,
    credentials: AccountCredentials,
}

/// HTTP for the ACME library.
struct Http(reqwest::Client);

impl HttpClient for Http {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = std::result::Result<BytesResponse, instant_acme::Error>> + Send>> {
        let client = self.0.clone();
        Box::pin(async move {
            let other = |e: axum::BoxError| instant_acme::Error::Other(e);
            let (parts, body) = request.into_parts();
            let is_get = parts.method == Method::GET;
            let body = axum::body::to_bytes(Body::new(body), MAX_RESPONSE_BYTES).await.map_err(|e| other(e.into()))?;
            let request = reqwest::Request::try_from(Request::from_parts(parts, body)).map_err(|e| other(e.into()))?;
            let mut response = client.execute(request).await.map_err(|e| other(e.into()))?;
            let mut head = Response::builder().status(response.status());
            if let Some(headers) = head.headers_mut() {
                headers.clone_from(response.headers());
            }
            let mut bytes = Vec::new();
            while let Some(piece) = response.chunk().await.map_err(|e| other(e.into()))? {
                if bytes.len() + piece.len() > MAX_RESPONSE_BYTES {
                    return Err(other("the authority sends too much".into()));
                }
                bytes.extend_from_slice(&piece);
            }
            // The library reads the directory whatever the status.
            if is_get && !response.status().is_success() {
                let problem: Value = serde_json::from_slice(&bytes).unwrap_or_default();
                let detail = problem["detail"].as_str().map(|detail| format!(": {detail}")).unwrap_or_default();
                return Err(other(format!("{} has status {}{detail}", response.url(), response.status()).into()));
            }
            Ok(head.body(Body::from(bytes)).map_err(|e| other(e.into()))?.into())
        })
    }
}

fn refused(error: instant_acme::Error) -> Error {
    // The outer errors of a failed connection do not say why.
    let mut cause: &dyn std::error::Error = &error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    let cause = cause.to_string();
    let message = if error.to_string().contains(&cause) { error.to_string() } else { format!("{error}: {cause}") };
    Error::new(ErrorKind::Unavailable, format!("the authority: {message}")).with_source(error)
}

fn failed(why: &str) -> Error {
    Error::new(ErrorKind::Unavailable, why.to_owned())
}
