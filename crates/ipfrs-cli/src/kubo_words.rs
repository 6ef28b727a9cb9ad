//! Commands of Kubo that have other names here, or none.

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Commands of Kubo, each with the command or setting to use instead.
const WORDS: [(&str, &str); 17] = [
    ("bitswap", "ipfrs-cli stats bitswap"),
    ("bootstrap", "retrieval.bitswap.bootstrap in the configuration, the peers to which the daemon stays connected"),
    ("daemon", "ipfrs-cli gateway start"),
    ("dht", "there is no DHT; retrieval.routers in the configuration names servers that know providers"),
    ("diag", "ipfrs-cli gateway status, and /metrics"),
    ("id", "ipfrs-cli key list -l, where `self` is the identity"),
    ("init", "nothing is needed: the first command that stores something creates the repo"),
    ("log", "log.level in the configuration, which a running gateway reads again on SIGHUP"),
    ("mount", "there is no FUSE mount; ipfrs-cli get saves content to disk"),
    ("object", "ipfrs-cli dag, for nodes of all codecs"),
    ("p2p", "there are no tunnels to peers"),
    ("provide", "there is no DHT; peers ask for blocks while they are connected"),
    ("pubsub", "there is no pubsub; GET /ws of the gateway has its events"),
    ("routing", "there is no DHT; retrieval.routers in the configuration names servers that know providers"),
    ("shutdown", "ipfrs-cli gateway stop"),
    ("tar", "ipfrs-cli get -a, for TAR archives"),
    ("update", "install the new version; the repo is kept"),
];

/// Adds to the error for an unknown command what to do, if Kubo has the command, and to that for a negative number how
/// to write it.
pub(crate) fn explain(mut error: clap::Error) -> clap::Error {
    let (kind, tip) =
        match (error.kind(), error.get(ContextKind::InvalidSubcommand), error.get(ContextKind::InvalidArg)) {
            (ErrorKind::InvalidSubcommand, Some(ContextValue::String(word)), _) => {
                let Some((_, instead)) = WORDS.iter().find(|(known, _)| known == word) else { return error };
                (ContextKind::SuggestedSubcommand, format!("in place of `ipfs {word}`: {instead}"))
            }
            (ErrorKind::UnknownArgument, _, Some(ContextValue::String(word))) => {
                let is_number =
                    word.strip_prefix('-').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
                if !is_number {
                    return error;
                }
                (ContextKind::SuggestedArg, format!("to give an option a negative value, write --option={word}"))
            }
            _ => return error,
        };
    error.remove(kind);
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![StyledStr::from(tip)]));
    error
}
