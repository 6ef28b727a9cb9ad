//! Sessions of the console, in memory.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use aws_lc_rs::digest;
use ipfrs_core::{Error, ErrorKind, Result};
use parking_lot::Mutex;
use prometheus::IntGauge;

use super::keys::{Keys, random_text};
use super::metrics::Outcome;
use super::principal::Principal;

/// Name of the cookie. Browsers accept the prefix only with `Secure` and `Path=/`, and without `Domain`.
pub const SESSION_COOKIE: &str = "__Host-ipfrs";

/// Maximum number of sessions. A further one ends the one that expires first.
const MAX_SESSIONS: usize = 1_024;
/// Maximum number of sessions of one key, likewise.
const MAX_SESSIONS_PER_KEY: usize = 32;

/// The sessions, by the SHA-256 of their cookie: a lookup takes no longer for a cookie that is nearly right.
#[derive(Debug)]
pub(super) struct Sessions {
    lifetime: Duration,
    sessions: Mutex<HashMap<[u8; 32], Session>>,
    active: IntGauge,
}

#[derive(Debug)]
struct Session {
    key: String,
    expires: Instant,
}

impl Sessions {
    pub(super) fn new(lifetime: Duration, active: IntGauge) -> Self {
        Self { lifetime, sessions: Mutex::default(), active }
    }

    /// Begins a session of a principal with a key. Returns the value of its cookie.
    pub(super) fn begin(&self, principal: &Principal) -> Result<(String, Duration)> {
        let key = principal.key.clone().filter(|_| principal.roots.is_none()).ok_or_else(|| {
            Error::new(ErrorKind::Forbidden, "log in with an API key that is not restricted to roots")
        })?;
        let cookie = random_text()?;
        let now = Instant::now();
        let mut sessions = self.sessions.lock();
        sessions.retain(|_, session| session.expires > now);
        let is_own = |session: &Session| session.key == key;
        let has_many = sessions.values().filter(|session| is_own(session)).count() >= MAX_SESSIONS_PER_KEY;
        if has_many || sessions.len() >= MAX_SESSIONS {
            let candidates = sessions.iter().filter(|(_, session)| !has_many || is_own(session));
            let first = candidates.min_by_key(|(_, session)| session.expires).map(|(hash, _)| *hash);
            first.and_then(|hash| sessions.remove(&hash));
        }
        sessions.insert(hash(&cookie), Session { key, expires: now + self.lifetime });
        self.active.set(sessions.len() as i64);
        Ok((cookie, self.lifetime))
    }

    /// Returns the principal of a session: that of its key, which may have been revoked or have expired.
    pub(super) fn find(
        &self,
        cookie: &str,
        keys: &Keys,
        now: SystemTime,
    ) -> std::result::Result<Arc<Principal>, Outcome> {
        let sessions = self.sessions.lock();
        let session = sessions.get(&hash(cookie)).ok_or(Outcome::Unknown)?;
        if session.expires <= Instant::now() {
            return Err(Outcome::Expired);
        }
        keys.of_id(&session.key, now)
    }

    pub(super) fn end(&self, cookie: &str) {
        let mut sessions = self.sessions.lock();
        sessions.remove(&hash(cookie));
        self.active.set(sessions.len() as i64);
    }

    /// Ends all sessions of a key.
    pub(super) fn end_of_key(&self, id: &str) {
        let mut sessions = self.sessions.lock();
        sessions.retain(|_, session| session.key != id);
        self.active.set(sessions.len() as i64);
    }
}

fn hash(cookie: &str) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest::digest(&digest::SHA256, cookie.as_bytes()).as_ref());
    hash
}
