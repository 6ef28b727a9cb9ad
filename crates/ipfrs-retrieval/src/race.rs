//! Attempts at one source after the other, with a second one beside an attempt that is late.

use std::pin::pin;
use std::sync::Arc;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::time::{Instant, sleep_until};

use crate::session::Session;
use crate::source::Source;

/// Maximum number of attempts at the same time.
const MAX_CONCURRENT: usize = 2;

/// Returns the result of the first successful attempt. It begins with the best source, and adds the next one when an
/// attempt fails or is later than 95 % of the responses of its source. All sources that it uses are added to `tried`.
/// Returns `None` if no source is left.
pub(crate) async fn race<T, A: Future<Output = Option<T>>>(
    session: &Session,
    tried: &mut Vec<Arc<Source>>,
    usable: impl Fn(&Source) -> bool,
    attempt: impl Fn(Arc<Source>) -> A,
) -> Option<T> {
    let mut running = FuturesUnordered::new();
    let mut late = pin!(sleep_until(Instant::now()));
    let (mut needs_next, mut is_exhausted) = (true, false);
    loop {
        tokio::select! {
            biased;
            Some(done) = running.next(), if !running.is_empty() => match done {
                Some(value) => return Some(value),
                None => needs_next = true,
            },
            source = session.candidates.next(tried, &usable, || session.search()),
                if needs_next && !is_exhausted && running.len() < MAX_CONCURRENT =>
            {
                match source {
                    Some(source) => {
                        tried.push(Arc::clone(&source));
                        late.as_mut().reset(Instant::now() + source.late_after());
                        running.push(attempt(source));
                        needs_next = false;
                    }
                    None => is_exhausted = true,
                }
            }
            () = &mut late, if !needs_next && !is_exhausted => needs_next = true,
        }
        if is_exhausted && running.is_empty() {
            return None;
        }
    }
}
