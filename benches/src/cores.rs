//! Assignment of clients and servers to CPU cores.
//!
//! A request takes a fifth of the time if client and server share a core, because no sleeping core has to be woken.
//! The scheduler may or may not place them on the same core. With one core for the client and another one for the
//! server under test, every run is the same, and all threads of a server share the time of one core.

use anyhow::{Context, Result};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Cores of this process. A setting applies to the calling thread and to the processes that it starts afterwards.
#[derive(Debug, Clone)]
pub struct Cores {
    all: CpuSet,
    /// One core for the server and one for the client, if there are two cores and pinning is enabled.
    pair: Option<(usize, usize)>,
}

impl Cores {
    /// Reads the available cores. `is_pinned` gives servers and clients separate cores.
    ///
    /// # Errors
    /// Returns an error if the system does not report the cores.
    pub fn new(is_pinned: bool) -> Result<Self> {
        let all = sched_getaffinity(None).context("cannot get the cores of this process")?;
        let mut usable = (0..CpuSet::MAX_CPU).filter(|cpu| all.is_set(*cpu));
        let pair = usable.next().zip(usable.next_back()).filter(|_| is_pinned);
        Ok(Self { all, pair })
    }

    /// Whether servers and clients have separate cores.
    #[must_use]
    pub fn is_pinned(&self) -> bool {
        self.pair.is_some()
    }

    /// Pins the calling thread to the server core, either before it starts servers under test or for a client that
    /// shares their core.
    ///
    /// # Errors
    /// Returns an error if the system refuses.
    pub fn for_servers(&self) -> Result<()> {
        self.run_on(self.pair.map(|(server, _)| server))
    }

    /// Pins the calling thread to the client core.
    ///
    /// # Errors
    /// Returns an error if the system refuses.
    pub fn for_clients(&self) -> Result<()> {
        self.run_on(self.pair.map(|(_, client)| client))
    }

    /// Lets the calling thread run on any core.
    ///
    /// # Errors
    /// Returns an error if the system refuses.
    pub fn for_anything(&self) -> Result<()> {
        self.run_on(None)
    }

    fn run_on(&self, cpu: Option<usize>) -> Result<()> {
        let set = cpu.map_or(self.all, |cpu| {
            let mut one = CpuSet::new();
            one.set(cpu);
            one
        });
        sched_setaffinity(None, &set).context("cannot set the cores of this process")
    }
}
