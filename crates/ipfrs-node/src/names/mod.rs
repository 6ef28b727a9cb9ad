//! Names that lead to content: those that stand behind `/ipns/`.

pub(crate) mod dnslink;

pub use dnslink::Link;
