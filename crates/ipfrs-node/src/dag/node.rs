//! DAG nodes as values of the IPLD data model (<https://ipld.io/docs/data-model/>), converted between codecs.

use std::collections::BTreeMap;

use bytes::Bytes;
use ipfrs_core::hash::HashFunction;
use ipfrs_core::{Cid, Error, ErrorKind, Result, codec};
use ipfrs_unixfs::{LinkName, dag_pb, git, jose, ordered_cbor};
use ipld_core::cid::Cid as LinkCid;
use ipld_core::ipld::Ipld;

use super::dag_cbor::Tree;
use super::plain::{Plain, numbers};
use super::{dag_cbor, dag_json};
use crate::{BlockFormat, ContentPath, DagPath, Node, PutBlock, PutBlockOptions};

/// Upper bound of the memory of a decoded value per byte of its block. A list of small numbers is the worst case.
const MEMORY_PER_BYTE: usize = 256;

/// Maximum size of data that is converted on the runtime worker, in bytes.
const INLINE_BYTES: usize = 4 * 1024;

/// Node to store.
#[derive(Debug, Clone)]
pub struct PutNode {
    /// The node, encoded in the codec `input`.
    pub data: Bytes,
    /// Multicodec code of `data`: dag-json, dag-cbor, json, cbor, dag-pb, git-raw, dag-jose or raw.
    pub input: u64,
    /// Multicodec code of the stored block: one of the same codecs.
    pub store: u64,
    /// Hash function of the content ID, which has version 1.
    pub hash: HashFunction,
    /// How the block is stored.
    pub options: PutBlockOptions,
}

impl Node {
    /// Resolves a path to a block or to a value inside a block, and returns the target with the value in the codec
    /// `output`. A whole block that is already in this codec is returned unchanged, if it is well-formed.
    ///
    /// # Errors
    /// As [`Self::resolve`]; [`ErrorKind::Unsupported`](ipfrs_core::ErrorKind) for codecs other than those of
    /// [`PutNode::input`], and for a link name that is not UTF-8 when converting to dag-cbor;
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) for a value that the codec cannot represent, such as a map
    /// in raw.
    pub async fn get_node(&self, path: ContentPath, output: u64) -> Result<(DagPath, Bytes)> {
        let object = self.resolve(path).await?;
        let found = DagPath { cid: object.cid, remainder: object.resolved.remainder.clone() };
        let is_as_stored = found.remainder.is_empty() && found.cid.codec() == output;
        if is_as_stored && output == codec::RAW {
            return Ok((found, object.block));
        }
        let DagPath { cid, remainder } = found.clone();
        let data = self.convert(object.block, move |block| {
            if is_as_stored && output == codec::DAG_PB {
                dag_pb::decode(block).map_err(|e| Error::invalid_content(format!("block {cid}: {e}")))?;
                return Ok(block.clone());
            }
            let value = match (cid.codec(), output) {
                (codec::DAG_PB, codec::DAG_JSON) => decode_dag_pb(block, NameText::Replaced),
                (codec, _) => decode(codec, block),
            };
            let value = value.map_err(|e| match e.kind() {
                ErrorKind::InvalidInput => Error::invalid_content(format!("block {cid}: {e}")),
                kind => Error::new(kind, format!("block {cid}: {e}")),
            })?;
            if is_as_stored {
                return Ok(block.clone());
            }
            if remainder.is_empty() && cid.codec() == codec::DAG_PB && output == codec::CBOR {
                // Kubo writes the fields of a stored node in the order of their definition: Links, Data.
                return Plain::from_ipld(value, plain_name(output))?.reversed().to_cbor();
            }
            if remainder.is_empty() && matches!(output, codec::JSON | codec::CBOR) {
                return convert(cid.codec(), block, output).map_err(|e| e.error);
            }
            encode(output, &within(value, &remainder)?)
        });
        Ok((found, data.await?))
    }

    /// Stores a node durably and returns its content ID.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) if the data is malformed in its codec or cannot be
    /// represented in the other one; [`ErrorKind::Unsupported`](ipfrs_core::ErrorKind) for a link name that is not
    /// UTF-8 in a codec other than dag-pb; otherwise as [`Self::put_block_with`].
    pub async fn put_node(&self, node: PutNode) -> Result<Cid> {
        let PutNode { data, input, store, hash, options } = node;
        let data = self
            .convert(data, move |data| {
                let explained = |e: Error| {
                    Error::new(e.kind(), format!("the node: {e} (set input-codec to the codec of the data)"))
                };
                // A dag-pb field that is absent and one that has its default value decode to the same value but are
                // two blocks, and the headers of a git object keep no order. The data is therefore stored as it is.
                let checked = match input {
                    _ if input != store => None,
                    codec::DAG_PB => Some(dag_pb::decode(data).map(drop)),
                    codec::GIT_RAW => Some(git::check(data).map_err(|e| is_not("git-raw", &e))),
                    _ => None,
                };
                if let Some(checked) = checked {
                    return checked.map(|()| data.clone()).map_err(explained);
                }
                convert(input, data, store).map_err(|e| if e.is_input { explained(e.error) } else { e.error })
            })
            .await?;
        let block =
            PutBlock { data, cid: None, format: BlockFormat { version: 1, codec: store, hash, digest_bytes: None } };
        let (cid, _) = self.put_block_with(block, options).await?;
        Ok(cid)
    }

    /// Converts small data on the calling thread, and larger data on a blocking thread once its memory is reserved.
    async fn convert(&self, data: Bytes, work: impl FnOnce(&Bytes) -> Result<Bytes> + Send + 'static) -> Result<Bytes> {
        if data.len() <= INLINE_BYTES {
            return work(&data);
        }
        let work_memory = self.work_memory(data.len().saturating_mul(MEMORY_PER_BYTE)).await?;
        let converted = tokio::task::spawn_blocking(move || {
            let _until_done = work_memory;
            work(&data)
        });
        converted.await.map_err(|e| Error::internal("converting a node failed").with_source(e))?
    }
}

/// Error of a conversion.
pub(super) struct ConversionError {
    /// Whether the data is not valid in its codec.
    is_input: bool,
    pub(super) error: Error,
}

/// Converts data between codecs. json and cbor get the keys of dag-json, dag-cbor, json and cbor in their order.
pub(super) fn convert(from: u64, data: &Bytes, to: u64) -> Result<Bytes, ConversionError> {
    let input = |error| ConversionError { is_input: true, error };
    let output = |error| ConversionError { is_input: false, error };
    let plain = match (from, to) {
        (codec::JSON, codec::JSON | codec::CBOR) => {
            check_integers(data, "json").and_then(|()| Plain::from_json(data)).map_err(input)?
        }
        (codec::CBOR, codec::JSON | codec::CBOR) => decode_plain_cbor(data).map_err(input)?,
        (codec::DAG_CBOR, codec::JSON | codec::CBOR) => {
            let tree = decode_dag_cbor(data).map_err(input)?;
            Plain::from_tree(tree, plain_name(to)).map_err(output)?
        }
        (codec::DAG_JSON, codec::JSON | codec::CBOR) => {
            let tree = decode_dag_json(data).map_err(input)?;
            Plain::from_tree(tree, plain_name(to)).map_err(output)?
        }
        (_, codec::JSON | codec::CBOR) => {
            Plain::from_ipld(decode(from, data).map_err(input)?, plain_name(to)).map_err(output)?
        }
        _ => return encode(to, &decode(from, data).map_err(input)?).map_err(output),
    };
    if to == codec::JSON { plain.to_json() } else { plain.to_cbor() }.map_err(output)
}

/// Returns the name of json or of cbor.
fn plain_name(code: u64) -> &'static str {
    if code == codec::JSON { "json" } else { "cbor" }
}

fn decode_dag_cbor(data: &Bytes) -> Result<Tree> {
    let tree = ordered_cbor(data).and_then(|cbor| dag_cbor::decode(&cbor));
    tree.map_err(|e| is_not("dag-cbor", &e))
}

fn decode_dag_json(data: &Bytes) -> Result<Tree> {
    check_integers(data, "dag-json")?;
    dag_json::decode(data).map_err(|e| is_not("dag-json", &e))
}

fn decode_plain_cbor(data: &Bytes) -> Result<Plain> {
    let tree = ordered_cbor(data).and_then(|cbor| dag_cbor::decode(&cbor));
    tree.and_then(Plain::from_cbor).map_err(|e| is_not("cbor", &e))
}

pub(super) fn decode(from: u64, data: &Bytes) -> Result<Ipld> {
    match from {
        codec::JSON => {
            check_integers(data, "json")?;
            Plain::from_json(data).map(Plain::into_ipld)
        }
        codec::CBOR => decode_plain_cbor(data).map(Plain::into_ipld),
        codec::RAW => Ok(Ipld::Bytes(data.to_vec())),
        codec::DAG_PB => decode_dag_pb(data, NameText::Exact),
        codec::GIT_RAW => git::decode(data).map_err(|e| is_not("git-raw", &e)),
        codec::DAG_JOSE => jose::decode(data).map_err(|e| is_not("dag-jose", &e)),
        codec::DAG_CBOR => decode_dag_cbor(data).map(Tree::into_ipld),
        codec::DAG_JSON => decode_dag_json(data).map(Tree::into_ipld),
        other => Err(unsupported(other)),
    }
}

fn is_not(codec: &str, error: &Error) -> Error {
    match error.kind() {
        ErrorKind::InvalidInput => Error::invalid(format!("it is not {codec}: {error}")),
        kind => Error::new(kind, error.message()),
    }
}

/// Rejects JSON integers of more than 64 bits, which the parser would round to floating-point numbers.
fn check_integers(json: &[u8], codec: &str) -> Result<()> {
    numbers(json).try_for_each(|number| check_integer(&json[number], codec))
}

fn check_integer(number: &[u8], codec: &str) -> Result<()> {
    let text = str::from_utf8(number).unwrap_or_default();
    let is_integer = !text.contains(['.', 'e', 'E']);
    if is_integer && text.len() > 18 && text.parse::<i64>().is_err() && text.parse::<u64>().is_err() {
        let shown: String = text.chars().take(40).collect();
        return Err(Error::invalid(format!("it is not {codec}: the integer {shown} has more than 64 bits")));
    }
    Ok(())
}

fn encode(to: u64, value: &Ipld) -> Result<Bytes> {
    match (to, value) {
        (codec::RAW, Ipld::Bytes(bytes)) => Ok(bytes.clone().into()),
        (codec::RAW, _) => Err(Error::invalid("raw can represent only bytes: use dag-json or dag-cbor")),
        (codec::DAG_PB, value) => encode_dag_pb(value),
        (codec::GIT_RAW, value) => git::encode(value).map(Bytes::from),
        (codec::DAG_JOSE, value) => jose::encode(value).map(Bytes::from),
        (codec::DAG_CBOR, value) => dag_cbor::encode(value)
            .map(Bytes::from)
            .map_err(|e| Error::new(e.kind(), format!("dag-cbor cannot represent it: {e}"))),
        (codec::DAG_JSON, value) => {
            dag_json::encode(value).map_err(|e| Error::new(e.kind(), format!("dag-json cannot represent it: {e}")))
        }
        (codec::JSON, value) => Plain::from_ipld(value.clone(), "json")?.to_json(),
        (codec::CBOR, value) => Plain::from_ipld(value.clone(), "cbor")?.to_cbor(),
        (other, _) => Err(unsupported(other)),
    }
}

fn unsupported(code: u64) -> Error {
    let name = codec::name(code).map_or_else(|| format!("0x{code:x}"), str::to_owned);
    Error::unsupported(format!(
        "codec {name} is not one of dag-json, dag-cbor, json, cbor, dag-pb, git-raw, dag-jose and raw"
    ))
}

/// Returns the value that `segments` lead to.
fn within(mut value: Ipld, segments: &[String]) -> Result<Ipld> {
    for segment in segments {
        let found = match value {
            Ipld::Map(mut map) => map.remove(segment),
            Ipld::List(mut list) => match segment.parse::<usize>() {
                Ok(index) if index < list.len() => Some(list.swap_remove(index)),
                _ => None,
            },
            _ => None,
        };
        value = found.ok_or_else(|| Error::not_found(format!("there is no value named {segment:?}")))?;
    }
    Ok(value)
}

/// Decodes dag-pb to its logical format (<https://ipld.io/specs/codecs/dag-pb/spec/#logical-format>). Strings of the
/// data model are UTF-8; `names` selects how other link names are converted.
fn decode_dag_pb(data: &Bytes, names: NameText) -> Result<Ipld> {
    let node = dag_pb::decode(data)?;
    let links = node.links.into_iter().map(|link| {
        let hash = LinkCid::try_from(link.cid.to_bytes())
            .map_err(|e| Error::unsupported(format!("the link {} has a digest that is too long: {e}", link.cid)))?;
        Ok(map([
            ("Hash", Ipld::Link(hash)),
            ("Name", Ipld::String(names.of(&link.name)?)),
            ("Tsize", Ipld::Integer(i128::from(link.tsize))),
        ]))
    });
    let links = Ipld::List(links.collect::<Result<_>>()?);
    Ok(match node.data {
        Some(data) => map([("Data", Ipld::Bytes(data.to_vec())), ("Links", links)]),
        None => map([("Links", links)]),
    })
}

/// Conversion of link names to text.
#[derive(Debug, Clone, Copy)]
enum NameText {
    /// The name itself. Fails if it is not UTF-8, because stored data must not change.
    Exact,
    /// For display: invalid UTF-8 is replaced with replacement characters, as in Kubo.
    Replaced,
}

impl NameText {
    fn of(self, name: &LinkName) -> Result<String> {
        match (self, name.to_str()) {
            (_, Some(text)) => Ok(text.to_owned()),
            (Self::Replaced, None) => Ok(name.to_string_lossy().into_owned()),
            (Self::Exact, None) => Err(Error::unsupported(format!(
                "the link {name:?} has a name that is not UTF-8: request it as dag-json to display it, or as dag-pb"
            ))),
        }
    }
}

fn map<const N: usize>(entries: [(&str, Ipld); N]) -> Ipld {
    Ipld::Map(entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
}

/// Encodes the fields that are present, with links sorted by name.
fn encode_dag_pb(value: &Ipld) -> Result<Bytes> {
    let node = fields(value, &["Data", "Links"], "a node")?;
    let Some(Ipld::List(links)) = node.get("Links") else { return Err(not_dag_pb("a node must have a list of Links")) };
    let mut encoded = links.iter().map(encode_link).collect::<Result<Vec<_>>>()?;
    encoded.sort_by_key(|(name, _)| *name);
    let mut out = Vec::new();
    encoded.iter().for_each(|(_, link)| put_field(&mut out, 0x12, link));
    match node.get("Data") {
        Some(Ipld::Bytes(data)) => put_field(&mut out, 0x0a, data),
        Some(_) => return Err(not_dag_pb("Data must be bytes")),
        None => {}
    }
    Ok(out.into())
}

/// Returns the name and the encoding of a link.
fn encode_link(value: &Ipld) -> Result<(&[u8], Vec<u8>)> {
    let link = fields(value, &["Hash", "Name", "Tsize"], "a link")?;
    let Some(Ipld::Link(hash)) = link.get("Hash") else { return Err(not_dag_pb("a link must have a Hash")) };
    let (mut out, mut sorted_by) = (Vec::new(), &[][..]);
    put_field(&mut out, 0x0a, &hash.to_bytes());
    match link.get("Name") {
        Some(Ipld::String(name)) => {
            put_field(&mut out, 0x12, name.as_bytes());
            sorted_by = name.as_bytes();
        }
        Some(_) => return Err(not_dag_pb("Name must be text")),
        None => {}
    }
    match link.get("Tsize") {
        Some(Ipld::Integer(size)) => {
            out.push(0x18);
            put_varint(&mut out, u64::try_from(*size).map_err(|_| not_dag_pb("Tsize must be a number of bytes"))?);
        }
        Some(_) => return Err(not_dag_pb("Tsize must be a number of bytes")),
        None => {}
    }
    Ok((sorted_by, out))
}

/// Returns the entries of a map that may have only the keys in `allowed`.
fn fields<'a>(value: &'a Ipld, allowed: &[&str], what: &str) -> Result<&'a BTreeMap<String, Ipld>> {
    let Ipld::Map(map) = value else { return Err(not_dag_pb(&format!("{what} must be a map"))) };
    match map.keys().find(|key| !allowed.contains(&key.as_str())) {
        Some(key) => Err(not_dag_pb(&format!("{what} has no {key:?}"))),
        None => Ok(map),
    }
}

fn not_dag_pb(why: &str) -> Error {
    Error::invalid(format!("dag-pb cannot represent it: {why}"))
}

fn put_field(out: &mut Vec<u8>, key: u8, bytes: &[u8]) {
    out.push(key);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}
