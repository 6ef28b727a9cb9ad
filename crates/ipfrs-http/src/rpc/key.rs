//! `key/gen`, `key/import`, `key/list`, `key/rename`, `key/rm`, `key/sign`, `key/verify`. As in Kubo, there is no
//! `key/export`: private keys are never sent over HTTP.

use axum::extract::{Request, State};
use ipfrs_core::limits::MAX_BLOCK_BYTES;
use ipfrs_core::{Base, Error, Result};
use ipfrs_node::{KeyFormat, KeyType, Name, NamedKey};
use ipfrs_rpc::types::{Key, Keys, RenamedKey, SignatureCheck, Signed};
use zeroize::Zeroizing;

use super::args::{Args, text_base};
use super::command_result::CommandResult;
use super::multipart::one_file;
use super::output;
use crate::error::RpcError;
use crate::state::AppState;

/// Maximum size of a key file, in bytes: an RSA key of 8,192 bits takes a tenth of it.
const MAX_KEY_BYTES: usize = 64 * 1024;

/// Size that clients send if their caller gives none.
const CLIENTS_DEFAULT_BITS: i64 = 2_048;

/// Maximum size of a message to sign or verify, in bytes.
const MAX_MESSAGE_BYTES: usize = MAX_BLOCK_BYTES;

/// Encoding of key IDs: `ipns-base`.
#[derive(Clone, Copy)]
pub(super) enum KeyEncoding {
    /// CIDv1 in a base.
    Cid(Base),
    /// Peer ID in base58.
    PeerId,
}

impl KeyEncoding {
    fn of(args: &Args) -> Result<Self> {
        Self::named(args.text_or_default("ipns-base"))
    }

    /// Returns the encoding with a name.
    pub(super) fn named(name: &str) -> Result<Self> {
        match name {
            "b58mh" | "v0" => Ok(Self::PeerId),
            "" => Err(Error::invalid("empty multibase encoding")),
            name => text_base(name).map(Self::Cid).map_err(|e| Error::invalid(format!("{e}; b58mh is a peer ID"))),
        }
    }

    pub(super) fn id(self, id: &Name) -> Result<String> {
        match self {
            Self::PeerId => Ok(id.peer_id()),
            Self::Cid(base) => ipfrs_core::cid_to_string(&id.cid(), base),
        }
    }

    fn key(self, key: &NamedKey) -> Result<Key> {
        Ok(Key { name: key.name.clone(), id: self.id(&key.id)? })
    }

    fn keys(self, keys: &[NamedKey]) -> Result<Keys> {
        Ok(Keys { keys: keys.iter().map(|key| self.key(key)).collect::<Result<_>>()? })
    }
}

/// `key/gen?arg=name[&type=][&size=][&ipns-base=]`: generates a key.
pub(super) async fn generate(State(state): State<AppState>, args: Args) -> CommandResult {
    let (name, encoding) = (args.one("name")?, KeyEncoding::of(&args)?);
    let key_type: KeyType = args.text_or_default("type").parse()?;
    // Kubo's Go clients send -1 for an unset size, and aioipfs the default of RSA keys for all types.
    let is_unset = |size: &i64| *size == -1 || *size == CLIENTS_DEFAULT_BITS && key_type != KeyType::Rsa;
    let size = args.number("size")?.filter(|size| !is_unset(size)).map(key_bits).transpose()?;
    let key = state.node.generate_key(name, key_type, size).await?;
    Ok(output::object(encoding.key(&key)?))
}

fn key_bits(size: i64) -> Result<u32, RpcError> {
    let why = || RpcError::Request(format!("invalid value {size} for option \"size\": use a number of bits"));
    u32::try_from(size).map_err(|_| why())
}

/// `key/import?arg=name[&format=][&allow-any-key-type=][&ipns-base=]`: imports the key in the body.
pub(super) async fn import(State(state): State<AppState>, args: Args, request: Request) -> CommandResult {
    let (name, encoding) = (args.one("name")?, KeyEncoding::of(&args)?);
    let format: KeyFormat = args.text_or_default("format").parse()?;
    let takes_any_type = args.is_set("allow-any-key-type");
    let bytes = Zeroizing::new(Vec::from(one_file(&state.memory, request, "key", MAX_KEY_BYTES).await?.bytes));
    let key = state.node.import_key(name, bytes, format, takes_any_type).await?;
    Ok(output::object(encoding.key(&key)?))
}

/// `key/list[?ipns-base=]`, or `key/ls`: lists all keys, the identity first.
pub(super) async fn list(State(state): State<AppState>, args: Args) -> CommandResult {
    let encoding = KeyEncoding::of(&args).map_err(|e| Error::invalid(format!("cannot get key encoder: {e}")))?;
    Ok(output::object(encoding.keys(&state.node.keys().await?)?))
}

/// `key/rename?arg=name&arg=newName[&force=][&ipns-base=]`: renames a key.
pub(super) async fn rename(State(state): State<AppState>, args: Args) -> CommandResult {
    let [from, to] = args.required("name")? else {
        return Err(RpcError::Request("two arguments are required: \"name\" and \"newName\"".into()));
    };
    let encoding = KeyEncoding::of(&args)?;
    let replaces = args.is_set("force");
    let (key, overwrite) = state.node.rename_key(from, to, replaces).await?;
    let id = encoding.id(&key.id)?;
    Ok(output::object(RenamedKey { was: from.clone(), now: key.name, id, overwrite }))
}

/// `key/rm?arg=name[&arg=...][&ipns-base=]`: removes all the given keys, or none of them.
pub(super) async fn rm(State(state): State<AppState>, args: Args) -> CommandResult {
    let encoding = KeyEncoding::of(&args)?;
    Ok(output::object(encoding.keys(&state.node.remove_keys(args.required("name")?).await?)?))
}

/// `key/sign[?key=][&ipns-base=]`: signs the body.
pub(super) async fn sign(State(state): State<AppState>, args: Args, request: Request) -> CommandResult {
    let encoding = KeyEncoding::of(&args)?;
    let message = one_file(&state.memory, request, "data", MAX_MESSAGE_BYTES).await?;
    let (key, signature) = state.node.sign_message(args.nonempty_text("key").unwrap_or("self"), &message.bytes).await?;
    let signature = format!("{}{}", Base::Base64Url.code(), Base::Base64Url.encode(signature));
    Ok(output::only_object(&Signed { key: encoding.key(&key)?, signature }, args.takes_trailers))
}

/// `key/verify?signature=[&key=][&ipns-base=]`: verifies a signature, in any multibase, over the body.
pub(super) async fn verify(State(state): State<AppState>, args: Args, request: Request) -> CommandResult {
    let encoding = KeyEncoding::of(&args)?;
    let no_signature = || Error::invalid("cannot decode multibase for zero length string: signature is required");
    let signature = args.nonempty_text("signature").ok_or_else(no_signature)?;
    let signature = decode_multibase(signature)
        .ok_or_else(|| Error::invalid("selected encoding not supported: the signature is not multibase"))?;
    let message = one_file(&state.memory, request, "data", MAX_MESSAGE_BYTES).await?;
    let key = args.nonempty_text("key").unwrap_or("self");
    let (key, signature_valid) = state.node.verify_message(key, &message.bytes, &signature).await?;
    Ok(output::only_object(&SignatureCheck { key: encoding.key(&key)?, signature_valid }, args.takes_trailers))
}

fn decode_multibase(text: &str) -> Option<Vec<u8>> {
    let code = text.chars().next()?;
    Base::from_code(code).ok()?.decode(&text[code.len_utf8()..]).ok()
}
