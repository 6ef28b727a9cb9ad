//! Requests that read from a session, and sessions that wait for the next one.

use std::collections::VecDeque;
use std::fmt;
use std::net::IpAddr;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use ipfrs_core::Result;
use ipfrs_core::fair_pool::Share;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::time::sleep;

use crate::car_stream::CarStream;
use crate::session::Session;

/// How long streams continue without a reader. The next step of the same request may need them.
const LINGER: Duration = Duration::from_secs(1);

/// Maximum number of sessions that continue without a reader.
pub(crate) const MAX_LINGERING: usize = 1_024;

/// Requests that read from a session.
#[derive(Debug, Default)]
pub(crate) struct Readers {
    count: usize,
    /// Permit of the session while there are any.
    permit: Option<Share<Option<IpAddr>>>,
    /// Client of the request that took the permit.
    pub(crate) client: Option<IpAddr>,
}

/// A session for a request that reads from it.
pub(crate) struct Reading(Arc<Session>);

impl Reading {
    /// Reads from a session. If no other request does, `take` returns its permit.
    pub(crate) fn of(session: Arc<Session>, take: impl FnOnce() -> Result<Share<Option<IpAddr>>>) -> Result<Self> {
        {
            let mut readers = session.readers.lock();
            if readers.count == 0 {
                let permit = take()?;
                readers.client = permit.client();
                readers.permit = Some(permit);
            }
            readers.count += 1;
        }
        Ok(Self(session))
    }
}

impl Deref for Reading {
    type Target = Arc<Session>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        let mut readers = self.0.readers.lock();
        readers.count -= 1;
        if readers.count == 0 {
            readers.permit = None;
        }
    }
}

/// Sessions that continue for a moment after their last reader has left.
#[derive(Clone)]
pub(crate) struct Lingering {
    state: Arc<Mutex<State>>,
    /// Maximum number of sessions.
    most: usize,
}

#[derive(Default)]
struct State {
    /// The oldest first.
    sessions: VecDeque<(u64, Kept)>,
    next: u64,
}

type Kept = (Arc<Session>, Vec<Arc<CarStream>>);

impl fmt::Debug for Lingering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lingering").field("sessions", &self.state.lock().sessions.len()).finish()
    }
}

impl Lingering {
    /// Keeps at most as many sessions as may be read from.
    pub(crate) fn new(max_sessions: usize) -> Self {
        Self { state: Arc::default(), most: max_sessions.min(MAX_LINGERING) }
    }

    /// Keeps a session and its streams for a moment. If there are too many, the oldest ends.
    pub(crate) fn keep(&self, session: Arc<Session>, streams: Vec<Arc<CarStream>>) {
        // Without a runtime the process ends.
        let Ok(runtime) = Handle::try_current() else { return };
        let (number, oldest) = {
            let mut state = self.state.lock();
            let number = state.next;
            state.next += 1;
            state.sessions.push_back((number, (session, streams)));
            let is_full = state.sessions.len() > self.most;
            (number, is_full.then(|| state.sessions.pop_front()))
        };
        drop(oldest);
        let all = self.clone();
        runtime.spawn(async move {
            sleep(LINGER).await;
            let ended = {
                let mut state = all.state.lock();
                let place = state.sessions.binary_search_by_key(&number, |(number, _)| *number);
                place.ok().and_then(|place| state.sessions.remove(place))
            };
            drop(ended);
        });
    }
}
