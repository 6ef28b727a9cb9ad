//! The native part of `import ipfrs`: the [node](local) in the process, a client of a daemon, and what brings their bytes
//! to Python and back without copies.

mod backing;
