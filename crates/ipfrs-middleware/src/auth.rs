//! Authentication and authorisation (`[auth]`), for all front-ends.
//!
//! A front-end has a [requirement](Need) for each of its routes, and calls [`Auth::admit`] before it does anything
//! else for a request. It gets back the [`Caller`].

mod attempts;
mod audit;
mod caller;
mod certificate;
mod config;
mod credentials;
mod failure;
mod jwt;
mod keys;
mod local_token;
mod metrics;
mod principal;
mod rpc_users;
mod scope;
mod sessions;

use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use ipfrs_core::{Error, Result};
use ipfrs_node::{Node, to_the_end};
use prometheus::Registry;

pub use audit::{AuditLine, audit, shortened_argument, stored_blocks};
pub use caller::Caller;
pub use config::AuthConfig;
pub use credentials::Basic;
pub use failure::{challenge, credentials_ended};
pub use jwt::check_key_set;
pub use keys::{CreatedKey, KeyInfo, NewKey, check_api_keys};
pub use local_token::read_local_token;
pub use principal::Principal;
pub use rpc_users::RpcUserConfig;
pub use scope::{Need, Scope, Scopes};
pub use sessions::SESSION_COOKIE;

use crate::client::Client;
use attempts::Attempts;
use credentials::Credential;
use jwt::JwtVerifier;
pub use jwt::PREFIX as TOKEN_PREFIX;
#[cfg(fuzzing)]
pub(crate) use jwt::fuzzing;
use keys::Keys;
use local_token::LocalToken;
use metrics::{AuthMetrics, Method, Outcome};
use rpc_users::RpcUsers;
use sessions::Sessions;

/// Decides about requests by the rights of their callers. Clones share the state.
#[derive(Debug, Clone)]
pub struct Auth(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    mode: Mode,
    keys: Keys,
    /// Failed attempts, also those of front-ends with a password of their own.
    attempts: Attempts,
}

/// Mode of authentication.
#[derive(Debug)]
enum Mode {
    /// Off: this process itself sends the requests, with all rights.
    InProcess,
    /// Off in a daemon (`auth.enabled = false`). The token frees local commands from rate limits. It is `None` for a
    /// repo that is open read-only.
    Off(Option<LocalToken>),
    /// On.
    On(Box<Checks>),
}

/// State of a daemon with `auth.enabled = true`.
#[derive(Debug)]
struct Checks {
    config: AuthConfig,
    jwt: Option<Arc<JwtVerifier>>,
    rpc_users: RpcUsers,
    sessions: Sessions,
    metrics: AuthMetrics,
    /// `None` for a repo that is open read-only.
    local: Option<LocalToken>,
}

/// How a request proves who sends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof {
    /// With the header `Authorization`.
    Header,
    /// With that header, or the cookie of a console session. Only for requests that no foreign page can have sent.
    HeaderOrSession,
}

/// Why a request is refused.
#[derive(Debug)]
pub struct Denied {
    /// The error for the client.
    pub error: Error,
    /// Sender of the request, as far as it is certain.
    pub caller: Caller,
}

impl Auth {
    /// Returns the rules for requests of this process itself, which may do everything.
    #[must_use]
    pub fn in_process(node: &Node) -> Self {
        let attempts = Attempts::new(AuthConfig::default().max_failures_per_minute);
        Self(Arc::new(Shared { mode: Mode::InProcess, keys: Keys::new(node), attempts }))
    }

    /// Returns the rules of a daemon, and reads its API keys if they are needed.
    ///
    /// # Errors
    /// The keys of the repo or those in `auth.jwt_keys` cannot be read, or the metrics are already registered.
    pub async fn of_daemon(node: &Node, config: &AuthConfig, registry: &Registry) -> Result<Self> {
        config.validate()?;
        let keys = Keys::new(node);
        let metrics = AuthMetrics::register(registry)?;
        let attempts = Attempts::new(config.max_failures_per_minute);
        if !config.enabled {
            // Without the token, local commands have the limits of all requests of this machine.
            let local = LocalToken::create(node).await;
            let local = local.inspect_err(|error| tracing::warn!(%error, "local commands are rate-limited"));
            let mode = Mode::Off(local.ok().flatten());
            return Ok(Self(Arc::new(Shared { mode, keys, attempts })));
        }
        keys.load().await?;
        let checks = Checks {
            jwt: JwtVerifier::open(config).await?.map(Arc::new),
            rpc_users: RpcUsers::new(&config.rpc)?,
            sessions: Sessions::new(config.session(), metrics.sessions_active.clone()),
            local: LocalToken::create(node).await?,
            config: config.clone(),
            metrics,
        };
        Ok(Self(Arc::new(Shared { mode: Mode::On(Box::new(checks)), keys, attempts })))
    }

    /// Returns whether callers have to authenticate.
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        matches!(self.0.mode, Mode::On(_))
    }

    /// Returns whether the RPC has users of its own (`auth.rpc`), so that its clients expect to be refused as by Kubo.
    #[must_use]
    pub fn has_rpc_users(&self) -> bool {
        matches!(&self.0.mode, Mode::On(checks) if !checks.rpc_users.is_empty())
    }

    /// Returns whether content needs the scope `read` (`auth.private_gateway`).
    #[must_use]
    pub fn protects_content(&self) -> bool {
        matches!(&self.0.mode, Mode::On(checks) if checks.config.private_gateway)
    }

    /// Decides about a request with these headers, before anything is done for it. Returns its caller. Without
    /// credentials in the headers, that is `certified`, the principal of the connection's client certificate, with the
    /// address of the connection.
    ///
    /// # Errors
    /// [`ErrorKind::Unauthenticated`](ipfrs_core::ErrorKind) without valid credentials, `Forbidden` if they do not
    /// have what the request needs, and `RateLimited` after too many failed attempts.
    pub async fn admit(
        &self,
        headers: &HeaderMap,
        certified: Option<&(Arc<Principal>, Client)>,
        client: Client,
        proof: Proof,
        need: Need,
    ) -> std::result::Result<Caller, Denied> {
        let Mode::On(checks) = &self.0.mode else { return Ok(Caller::unrestricted()) };
        let need = match need {
            Need::Content if checks.config.private_gateway => Need::Path,
            Need::Records if checks.config.private_gateway => Need::Scope(Scope::Read),
            Need::Content | Need::Records => Need::Nothing,
            need => need,
        };
        if need == Need::Nothing {
            return Ok(Caller::anonymous());
        }
        let identified = match Credential::read(headers, proof) {
            Ok(Some(credential)) => self.identify(checks, &credential, client).await.map(Caller::new),
            Ok(None) => match certified.filter(|_| certificate::is_proof(headers, proof, need)) {
                Some((principal, peer)) => {
                    let found = certificate::check(principal);
                    // A proxy forwards requests of others over the connection for which it has a certificate.
                    self.conclude(checks, *peer, Method::Certificate, found).map(Caller::new)
                }
                None => Ok(Caller::anonymous()),
            },
            Err(error) => {
                checks.metrics.count(Method::Unknown, Outcome::Malformed);
                self.0.attempts.fail(client);
                Err(error)
            }
        };
        let caller = identified.map_err(|error| Denied { error, caller: Caller::anonymous() })?;
        match caller.meet(need) {
            Ok(()) => Ok(caller),
            Err(error) => Err(Denied { error, caller }),
        }
    }

    /// Returns whether a client has sent the password of one front-end, which `is_right` checks. It works without
    /// `auth.enabled` too.
    ///
    /// # Errors
    /// [`ErrorKind::RateLimited`](ipfrs_core::ErrorKind) after too many failed attempts; the password is not checked.
    pub fn check_password(&self, client: Client, is_right: impl FnOnce() -> bool) -> Result<bool> {
        self.0.attempts.check(client).map_err(failure::too_many_attempts)?;
        let is_right = is_right();
        if !is_right {
            self.0.attempts.fail(client);
        }
        Ok(is_right)
    }

    /// Returns the caller with this token, for protocols that send it in a message.
    ///
    /// # Errors
    /// As [`admit`](Self::admit).
    pub async fn identify_token(&self, token: &str, client: Client) -> Result<Caller> {
        match &self.0.mode {
            Mode::On(checks) => {
                let caller = Caller::new(self.identify(checks, &Credential::token(token), client).await?);
                caller.require_no_roots()?;
                Ok(caller)
            }
            Mode::InProcess | Mode::Off(_) => Ok(Caller::unrestricted()),
        }
    }

    async fn identify(&self, checks: &Checks, credential: &Credential, client: Client) -> Result<Arc<Principal>> {
        let now = std::time::SystemTime::now();
        let (method, found) = match credential {
            Credential::Session(cookie) => (Method::Session, checks.sessions.find(cookie, &self.0.keys, now)),
            Credential::Token(_) | Credential::Basic { .. } if keys::is_key(credential.as_token()) => {
                let token = credential.as_token();
                let local = checks.local.as_ref().and_then(|local| local.principal(token));
                (Method::Key, local.map_or_else(|| self.0.keys.find(token, now), Ok))
            }
            Credential::Token(_) | Credential::Basic { .. } => {
                // Signatures cost a hundred times as much as a look at the keys, and passwords can be guessed.
                if let Err(wait) = self.0.attempts.check(client) {
                    checks.metrics.count(Method::Jwt, Outcome::Limited);
                    return Err(failure::too_many_attempts(wait));
                }
                match (checks.rpc_users.find(credential), &checks.jwt) {
                    (Some(principal), _) => (Method::Rpc, Ok(principal)),
                    (None, Some(jwt)) => (Method::Jwt, jwt.verify(credential.as_token()).await),
                    (None, None) => (Method::Unknown, Err(Outcome::Unknown)),
                }
            }
        };
        self.conclude(checks, client, method, found)
    }

    /// Counts credentials of a client that were `found` right or not. Those that are not are a failed attempt.
    fn conclude(
        &self,
        checks: &Checks,
        client: Client,
        method: Method,
        found: std::result::Result<Arc<Principal>, Outcome>,
    ) -> Result<Arc<Principal>> {
        match found {
            Ok(principal) => {
                checks.metrics.count(method, Outcome::Accepted);
                Ok(principal)
            }
            // The credentials may be right.
            Err(Outcome::Unavailable) => {
                checks.metrics.count(method, Outcome::Unavailable);
                Err(failure::refused(Outcome::Unavailable))
            }
            Err(outcome) => {
                let limited = self.0.attempts.check(client).err();
                self.0.attempts.fail(client);
                checks.metrics.count(method, if limited.is_some() { Outcome::Limited } else { outcome });
                Err(limited.map_or_else(|| failure::refused(outcome), failure::too_many_attempts))
            }
        }
    }

    /// Begins a session of the console for the caller of a request, who has authenticated with a key. Returns the
    /// cookie's value and how long it is valid.
    ///
    /// # Errors
    /// `Forbidden` if the caller has no key, or its key is restricted to roots.
    pub fn begin_session(&self, caller: &Caller) -> Result<(String, Duration)> {
        let Mode::On(checks) = &self.0.mode else { return Err(not_enabled()) };
        let principal = caller.principal().ok_or_else(failure::no_credentials)?;
        checks.sessions.begin(principal)
    }

    /// Ends the session of a request, if it has one.
    pub fn end_session(&self, headers: &HeaderMap) {
        let Mode::On(checks) = &self.0.mode else { return };
        if let Some(cookie) = credentials::session_cookie(headers) {
            checks.sessions.end(&cookie);
        }
    }

    /// Creates an API key. Its token is in the result, and nowhere else.
    ///
    /// # Errors
    /// `Conflict` in a daemon without `auth.enabled`, where anyone could create keys; the input is invalid, or the
    /// key cannot be stored.
    pub async fn create_key(&self, new: NewKey) -> Result<CreatedKey> {
        self.check_key_access()?;
        let this = self.clone();
        // The file and the memory must not differ.
        to_the_end(async move { this.0.keys.create(new).await }).await
    }

    /// Returns all API keys, the oldest first.
    ///
    /// # Errors
    /// `Conflict` in a daemon without `auth.enabled`; the keys cannot be read.
    pub async fn keys(&self) -> Result<Vec<KeyInfo>> {
        self.check_key_access()?;
        self.0.keys.list().await
    }

    /// Revokes the key with this ID, at once: its sessions and WebSockets end. Returns the key.
    ///
    /// # Errors
    /// `NotFound` if there is none; `Conflict` in a daemon without `auth.enabled`; the change cannot be stored.
    pub async fn revoke_key(&self, id: &str) -> Result<KeyInfo> {
        self.check_key_access()?;
        let (this, id) = (self.clone(), id.to_owned());
        to_the_end(async move {
            let revoked = this.0.keys.revoke(&id).await;
            if let Mode::On(checks) = &this.0.mode
                && !this.0.keys.knows(&id)
            {
                checks.sessions.end_of_key(&id);
            }
            revoked
        })
        .await
    }

    fn check_key_access(&self) -> Result<()> {
        match &self.0.mode {
            Mode::Off(_) => Err(not_enabled()),
            Mode::InProcess | Mode::On(_) => Ok(()),
        }
    }

    /// Reads the API keys of the repo and the keys of the issuer of tokens again. They are used once the result is
    /// called: it ends what was begun with API keys that are no longer there, or have other rights.
    ///
    /// # Errors
    /// A file cannot be read; the old keys stay in use.
    pub async fn reload(&self) -> Result<impl FnOnce()> {
        let jwt = match &self.0.mode {
            Mode::On(checks) => checks.jwt.clone(),
            Mode::InProcess | Mode::Off(_) => None,
        };
        let apply = match jwt {
            Some(jwt) => match Arc::clone(&jwt).reload().await {
                // Their issuer may be down while an operator has to change something else.
                Err(error) if jwt.is_remote() => {
                    tracing::warn!(%error, "the keys of the issuer of tokens could not be read again");
                    None
                }
                apply => Some(apply?),
            },
            None => None,
        };
        // Last, because no key can be created until they are used.
        let keys = match self.is_enabled() {
            true => Some(self.0.keys.read_again().await?),
            false => None,
        };
        let this = self.clone();
        Ok(move || {
            if let Some(apply) = apply {
                apply();
            }
            if let (Some(keys), Mode::On(checks)) = (keys, &this.0.mode) {
                for id in this.0.keys.take_over(keys) {
                    checks.sessions.end_of_key(&id);
                    tracing::info!(id, "an API key ended: the file of the keys has changed");
                }
            }
        })
    }

    /// Changes `auth.max_failures_per_minute`.
    pub fn set_max_failures(&self, per_minute: u32) {
        self.0.attempts.set(per_minute);
    }

    /// Removes the token for commands on this machine. Call it when the daemon ends.
    pub fn close(&self) {
        if let Some(local) = self.local() {
            local.remove();
        }
    }

    /// Whether a request is a command on this machine, by its token. Always `false` with `auth.enabled`, where
    /// [`admit`](Self::admit) recognizes the token.
    #[must_use]
    pub fn is_unauthenticated_local_command(&self, headers: &HeaderMap) -> bool {
        let (Mode::Off(_), Some(local)) = (&self.0.mode, self.local()) else { return false };
        let credential = Credential::read(headers, Proof::Header).ok().flatten();
        credential.is_some_and(|credential| local.principal(credential.as_token()).is_some())
    }

    fn local(&self) -> Option<&LocalToken> {
        match &self.0.mode {
            Mode::InProcess => None,
            Mode::Off(local) => local.as_ref(),
            Mode::On(checks) => checks.local.as_ref(),
        }
    }
}

fn not_enabled() -> Error {
    Error::new(
        ipfrs_core::ErrorKind::Conflict,
        "this daemon does not authenticate anyone: set auth.enabled = true in its configuration and restart it, or stop \
         it and create keys with `ipfrs-cli auth key create`",
    )
}
