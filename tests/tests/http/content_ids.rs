//! Content IDs and names that several tests use.

/// `hello\n` as an identity block.
pub(crate) const HELLO: &str = "bafkqabtimvwgy3yk";
/// Name of a key.
pub(crate) const KEY: &str = "k51qzi5uqu5dk3v4rmjber23h16xnr23bsggmqqil9z2gduiis5se8dht36dam";
/// The same name as a peer ID.
pub(crate) const KEY_AS_PEER: &str = "12D3KooWLQzUv2FHWGVPXTXSZpdHs7oHbXub2G5WC8Tx4NQhyd2d";
/// CID of a sha2-512 hash, which is longer than a DNS label in every base.
pub(crate) const LONG: &str =
    "bafkrgqhhyivzstcz3hhswshfjgy6ertgmnqeleynhwt4dlfsthi4hn7zgh4uvlsb5xncykzapi3ocd4lzogukir6ksdy6wzrnz6ohnv4aglcs";
