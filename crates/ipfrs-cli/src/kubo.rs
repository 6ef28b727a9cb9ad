//! Repos of Kubo, read without Kubo. Nothing in them is changed.

pub(crate) mod flatfs;
mod leveldb;
pub(crate) mod pins;
pub(crate) mod repo;
