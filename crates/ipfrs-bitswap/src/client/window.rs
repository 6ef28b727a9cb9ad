//! Number of blocks that a session requests from one peer at the same time.

use std::time::Duration;

/// Size of a new window. It doubles with every round trip until a limit is reached.
const INITIAL: usize = 32;
/// Smallest size.
const MIN: usize = 4;
/// Largest size. Peers accept 1,024 wants of all sessions.
const MAX: usize = 512;
/// Bytes of blocks that may be requested at the same time: enough for 2 Gbit/s at 250 ms.
const MAX_BYTES: usize = 64 << 20;
/// While responses take less than this, the window grows.
const LOW_LATENCY: Duration = Duration::from_secs(1);
/// While responses take more than this, the window shrinks: blocks wait at the peer.
const HIGH_LATENCY: Duration = Duration::from_secs(2);

/// The window of one peer.
#[derive(Debug, Clone)]
pub(crate) struct Window {
    size: usize,
    /// Moving average of the time until a response.
    latency: Duration,
    /// Moving average of the size of blocks, in bytes.
    block_bytes: usize,
}

impl Default for Window {
    fn default() -> Self {
        Self { size: INITIAL, latency: Duration::ZERO, block_bytes: 0 }
    }
}

impl Window {
    /// Returns the number of blocks that may be requested at the same time.
    pub(crate) fn size(&self) -> usize {
        let by_bytes = MAX_BYTES.checked_div(self.block_bytes).unwrap_or(MAX);
        self.size.min(by_bytes).max(MIN)
    }

    /// Returns the moving average of the time until a response.
    pub(crate) fn latency(&self) -> Duration {
        self.latency
    }

    /// Records a block. `in_flight` is the number of requests at the peer before it arrived.
    pub(crate) fn on_block(&mut self, latency: Duration, bytes: usize, in_flight: usize) {
        let is_first = self.latency.is_zero();
        self.latency = if is_first { latency } else { (self.latency * 7 + latency) / 8 };
        self.block_bytes = if is_first { bytes } else { (self.block_bytes * 7 + bytes) / 8 };
        if self.latency > HIGH_LATENCY {
            self.size = (self.size - 1).max(MIN);
        } else if self.latency < LOW_LATENCY && in_flight * 2 >= self.size {
            self.size = (self.size + 1).min(MAX);
        }
    }

    /// Records that the peer did not respond in time.
    pub(crate) fn on_timeout(&mut self) {
        self.size = (self.size / 2).max(MIN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_grows_while_it_is_used_and_responses_are_fast() {
        let mut window = Window::default();
        (0..INITIAL).for_each(|_| window.on_block(Duration::from_millis(40), 1000, INITIAL));
        assert_eq!(window.size(), 2 * INITIAL, "it doubles with a round trip");
        (0..2000).for_each(|_| window.on_block(Duration::from_millis(40), 1000, MAX));
        assert_eq!(window.size(), MAX);
        let mut unused = Window::default();
        (0..100).for_each(|_| unused.on_block(Duration::from_millis(40), 1000, 1));
        assert_eq!(unused.size(), INITIAL);
    }

    #[test]
    fn window_shrinks_when_blocks_wait_and_after_timeouts() {
        let mut window = Window::default();
        (0..100).for_each(|_| window.on_block(Duration::from_secs(5), 1000, INITIAL));
        assert_eq!(window.size(), MIN);
        let mut window = Window::default();
        window.on_timeout();
        assert_eq!(window.size(), INITIAL / 2);
    }

    #[test]
    fn window_is_limited_in_bytes() {
        let mut window = Window::default();
        (0..1000).for_each(|_| window.on_block(Duration::from_millis(1), 1 << 20, MAX));
        assert_eq!(window.size(), 64);
    }
}
