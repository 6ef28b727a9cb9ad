//! Who runs on which core.
//!
//! One request at a time takes a fifth of the time while client and server share a core, as no sleeping core has to be
//! woken, and the scheduler puts them together or apart as it likes. With a core for the client and another one for the
//! server under test, every run is the same, and a server has one core's time for all of its threads.

use anyhow::{Context, Result};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The cores of this process. What it sets holds for the calling thread and for processes that it starts from then on.
#[derive(Debug)]
pub struct Cores {
    all: CpuSet,
    /// One for the server and one for the client, where there are two and they are to be told apart.
    pair: Option<(usize, usize)>,
}

impl Cores {
    /// `is_pinned`: whether servers and clients are kept apart.
    ///
    /// # Errors
    /// When the system does not tell.
    pub fn new(is_pinned: bool) -> Result<Self> {
        let all = sched_getaffinity(None).context("the cores of this process cannot be told")?;
        let mut usable = (0..CpuSet::MAX_CPU).filter(|cpu| all.is_set(*cpu));
        let pair = usable.next().zip(usable.next_back()).filter(|_| is_pinned);
        Ok(Self { all, pair })
    }

    /// Whether servers and clients are kept apart.
    #[must_use]
    pub fn is_pinned(&self) -> bool {
        self.pair.is_some()
    }

    /// What is started next are servers under test, or what runs now is a client on their core.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn for_servers(&self) -> Result<()> {
        self.run_on(self.pair.map(|(server, _)| server))
    }

    /// What runs now, or is started next, are clients with a core of their own.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn for_clients(&self) -> Result<()> {
        self.run_on(self.pair.map(|(_, client)| client))
    }

    /// What runs now, or is started next, may run anywhere.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn for_anything(&self) -> Result<()> {
        self.run_on(None)
    }

    fn run_on(&self, cpu: Option<usize>) -> Result<()> {
        let set = cpu.map_or(self.all, |cpu| {
            let mut one = CpuSet::new();
            one.set(cpu);
            one
        });
        sched_setaffinity(None, &set).context("the cores of this process cannot be set")
    }
}
