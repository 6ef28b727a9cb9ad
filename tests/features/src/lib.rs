//! Nothing but features of dependencies: see `Cargo.toml`.
