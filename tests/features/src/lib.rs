//! An empty crate that selects features of dependencies: see `Cargo.toml`.
