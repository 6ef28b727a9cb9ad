//! `cid/*`: conversion and inspection of content IDs. These commands read no blocks.

use futures::stream;
use ipfrs_core::hash::{HashFunction, SHA2_256};
use ipfrs_core::multiformats::{
    BASES, IPLD_CODECS, base_name, decode_multibase, encode_multibase, find_base, hash_name, ipld_codec_name,
};
use ipfrs_core::{Base, Cid, Error, Result, codec, new_cid};
use ipfrs_node::Name;
use ipfrs_rpc::types::{CodeAndName, FormattedCid, InspectedBase, InspectedCid, InspectedCodec, InspectedHash};

use super::args::Args;
use super::command_result::CommandResult;
use super::options::go_number;
use super::output;

/// Length of a CIDv0 as text.
const V0_BYTES: usize = 46;

/// Codecs that commands of this daemon read or write.
const SUPPORTED: [u64; 9] = [
    codec::CBOR,
    codec::RAW,
    codec::DAG_PB,
    codec::DAG_CBOR,
    codec::LIBP2P_KEY,
    codec::GIT_RAW,
    codec::DAG_JOSE,
    codec::DAG_JSON,
    codec::JSON,
];

/// Conversion of content IDs.
struct Conversion {
    format: String,
    version: Option<u64>,
    codec: Option<u64>,
    base: Option<Base>,
}

/// `cid/format?arg=cid[&arg=...][&f=][&v=][&mc=][&b=]`: writes content IDs in a format, another version, codec or
/// base. Sends a line for each.
pub(super) async fn format(args: Args) -> CommandResult {
    let text = |option| args.nonempty_text(option);
    let format = args.text_or_default("f").to_owned();
    if !format.contains('%') {
        return Err(Error::invalid(format!("invalid format string: {format:?}")).into());
    }
    let codec = text("mc").map(|name| {
        let named = IPLD_CODECS.iter().find(|(_, known)| *known == name).map(|(code, _)| *code);
        let number = || if name == "identity" { Some(codec::IDENTITY) } else { go_number(name) };
        named.or_else(number).ok_or_else(|| Error::invalid(format!("unknown multicodec: {name:?}")))
    });
    // As in Kubo, the code 0 does not change the codec.
    let codec = codec.transpose()?.filter(|code| *code != codec::IDENTITY);
    let base = text("b");
    let version = match text("v") {
        None => base.map(|_| 1),
        Some("0") if codec.is_some_and(|codec| codec != codec::DAG_PB) => {
            return Err(Error::invalid("cannot convert to CIDv0 with any codec other than dag-pb").into());
        }
        Some("0") if base.is_some_and(|base| base != "base58btc") => {
            let why = "cannot convert to CIDv0 with any multibase other than the implicit base58btc";
            return Err(Error::invalid(why).into());
        }
        Some("0") => Some(0),
        Some("1") => Some(1),
        Some(other) => return Err(Error::invalid(format!("invalid cid version: {other:?}")).into()),
    };
    let base = base.map(named_base).transpose()?;
    lines(&args, &Conversion { format, version, codec, base })
}

/// `cid/base32?arg=cid[&arg=...]`: converts content IDs to version 1 in base32. Sends a line for each.
pub(super) async fn base32(args: Args) -> CommandResult {
    let conversion =
        Conversion { format: "%s".to_owned(), version: Some(1), codec: None, base: Some(Base::Base32Lower) };
    lines(&args, &conversion)
}

/// Returns the base of an option.
///
/// # Errors
/// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) for an unknown base.
pub(super) fn named_base(name: &str) -> Result<Base> {
    if name.is_empty() {
        return Err(Error::invalid("empty multibase encoding"));
    }
    find_base(name).ok_or_else(|| Error::invalid(format!("unsupported multibase encoding: {name}")))
}

fn lines(args: &Args, conversion: &Conversion) -> CommandResult {
    let mut lines = Vec::new();
    for text in args.required("cid")? {
        let converted = decode(text).map_err(|e| (e, true)).and_then(|(cid, base)| conversion.apply(cid, base));
        let (formatted, error_msg) = match converted {
            Ok(formatted) => (formatted, String::new()),
            Err((error, true)) => (String::new(), error.message().to_owned()),
            // The format is wrong for every content ID.
            Err((error, false)) if lines.is_empty() => return Err(error.into()),
            Err((error, false)) => {
                lines.push(Err(error));
                break;
            }
        };
        lines.push(output::line(&FormattedCid { cid_str: text.clone(), formatted, error_msg }));
    }
    Ok(output::objects(stream::iter(lines), args.takes_trailers))
}

impl Conversion {
    /// Converts a content ID that was written in `base`. The Boolean in an error tells whether the error concerns only
    /// this content ID.
    fn apply(&self, cid: Cid, base: Base) -> Result<String, (Error, bool)> {
        let mut cid = cid;
        if let Some(codec) = self.codec.filter(|codec| *codec != cid.codec()) {
            cid = Cid::new_v1(codec, *cid.hash());
        }
        let version = self.version.unwrap_or_else(|| cid.version().into());
        if version == 0 && cid.codec() != codec::DAG_PB {
            return Err((Error::invalid("can't convert non-dag-pb nodes to cidv0"), true));
        }
        let cid = new_cid(version, cid.codec(), *cid.hash()).map_err(|e| (e, true))?;
        let base = self.base.unwrap_or(if version == 0 { Base::Base58Btc } else { base });
        self.write(&cid, base)
    }

    fn write(&self, cid: &Cid, base: Base) -> Result<String, (Error, bool)> {
        let encoded = |data: &[u8], is_bare| {
            let text = String::from_utf8_lossy(&encode_multibase(base, data)).into_owned();
            if is_bare { text.chars().skip(1).collect() } else { text }
        };
        let (version, hash) = (u64::from(cid.version()), cid.hash());
        let codec_name = ipld_codec_name(cid.codec()).map_or_else(|| format!("Code({})", cid.codec()), str::to_owned);
        let hash_name = hash_name(hash.code()).unwrap_or_else(|| format!("hash?{}", hash.code()));
        let mut out = String::new();
        let mut rest = self.format.chars();
        while let Some(char) = rest.next() {
            if char != '%' {
                out.push(char);
                continue;
            }
            let Some(specifier) = rest.next() else {
                return Err((Error::invalid("premature end of format string"), false));
            };
            let text = match specifier {
                '%' => "%".to_owned(),
                'b' => base_name(base).unwrap_or_default().to_owned(),
                'B' => base.code().to_string(),
                'v' => format!("cidv{version}"),
                'V' => version.to_string(),
                'c' => codec_name.clone(),
                'C' => cid.codec().to_string(),
                'h' => hash_name.clone(),
                'H' => hash.code().to_string(),
                'L' => hash.size().to_string(),
                'm' | 'M' => encoded(&hash.to_bytes(), specifier == 'M'),
                'd' | 'D' => encoded(hash.digest(), specifier == 'D'),
                's' if version == 0 && base == Base::Base58Btc => cid.to_string(),
                's' if version == 0 => return Err((Error::invalid("invalid base encoding"), true)),
                's' => encoded(&cid.to_bytes(), false),
                'S' => encoded(&cid.to_bytes(), true),
                'P' => format!("cidv{version}-{codec_name}-{hash_name}-{}", hash.size()),
                other => {
                    let why = format!("unrecognized specifier in format string: %{other}");
                    return Err((Error::invalid(why), false));
                }
            };
            out.push_str(&text);
        }
        Ok(out)
    }
}

/// Parses a content ID in any base. Returns the base too.
fn decode(text: &str) -> Result<(Cid, Base)> {
    let invalid = |why: &str| Error::invalid(format!("invalid cid: {why}"));
    if text.len() < 2 {
        return Err(invalid("cid too short"));
    }
    let (base, bytes) = if text.len() == V0_BYTES && text.starts_with("Qm") {
        let bytes = Base::Base58Btc.decode(text).map_err(|e| invalid(&e.to_string()))?;
        (Base::Base58Btc, bytes)
    } else {
        decode_multibase(text.as_bytes()).map_err(|e| invalid(e.message()))?
    };
    let mut rest = bytes.as_slice();
    let cid = Cid::read_bytes(&mut rest).map_err(|e| invalid(&e.to_string()))?;
    if rest.is_empty() { Ok((cid, base)) } else { Err(invalid("trailing bytes in data buffer passed to cid Cast")) }
}

/// `cid/inspect?arg=cid`: returns the parts of a content ID.
pub(super) async fn inspect(args: Args) -> CommandResult {
    let text = args.one("cid")?;
    let inspected = match decode(text) {
        Ok((cid, base)) => inspected(text, &cid, base)?,
        Err(error) => {
            let mut error_msg = format!("invalid CID: {error}");
            let is_peer = text.starts_with("12D3") || text.starts_with("Qm") || text.starts_with("1");
            if let Some(name) = Name::parse(text).ok().filter(|_| is_peer) {
                error_msg += "\nNote: the value is a PeerID; inspect its CID representation instead:\n  ";
                error_msg += &name.to_string();
            }
            InspectedCid { cid: text.to_owned(), error_msg, ..InspectedCid::default() }
        }
    };
    Ok(output::object(inspected))
}

fn inspected(text: &str, cid: &Cid, base: Base) -> Result<InspectedCid> {
    let (hash, codec) = (cid.hash(), cid.codec());
    let or_unknown = |name: Option<String>| name.unwrap_or_else(|| "unknown".to_owned());
    let can_be_v0 = codec == codec::DAG_PB && hash.code() == SHA2_256 && hash.digest().len() == 32;
    let v1_base = if codec == codec::LIBP2P_KEY { Base::Base36Lower } else { Base::Base32Lower };
    let v1 = encode_multibase(v1_base, &Cid::new_v1(codec, *hash).to_bytes());
    Ok(InspectedCid {
        cid: text.to_owned(),
        version: cid.version().into(),
        multibase: InspectedBase {
            prefix: base.code().to_string(),
            name: base_name(base).unwrap_or_default().to_owned(),
        },
        multicodec: InspectedCodec { code: codec, name: or_unknown(ipld_codec_name(codec).map(str::to_owned)) },
        multihash: InspectedHash {
            code: hash.code(),
            name: or_unknown(hash_name(hash.code())),
            length: hash.digest().len(),
            digest: Base::Base16Lower.encode(hash.digest()),
        },
        cid_v0: if can_be_v0 { new_cid(0, codec, *hash)?.to_string() } else { String::new() },
        cid_v1: String::from_utf8_lossy(&v1).into_owned(),
        error_msg: String::new(),
    })
}

/// `cid/bases` and `multibase/list`: lists the multibases.
pub(super) async fn bases() -> CommandResult {
    let entry = |(name, base): &(&str, Base)| CodeAndName { code: u32::from(base.code()).into(), name: (*name).into() };
    Ok(output::object(BASES.iter().map(entry).collect::<Vec<_>>()))
}

/// `cid/codecs[?supported=]`: lists the IPLD codecs, or those that commands of this daemon read or write.
pub(super) async fn codecs(args: Args) -> CommandResult {
    let only_supported = args.is_set("supported");
    let shown = IPLD_CODECS.iter().filter(|(code, _)| !only_supported || SUPPORTED.contains(code));
    let entry = |(code, name): &(u64, &str)| CodeAndName { code: *code, name: (*name).to_owned() };
    Ok(output::object(shown.map(entry).collect::<Vec<_>>()))
}

/// `cid/hashes`: lists the hash functions of blocks that this daemon accepts.
pub(super) async fn hashes() -> CommandResult {
    let entry = |hash: HashFunction| CodeAndName { code: hash.code(), name: hash.name().into_owned() };
    Ok(output::object(HashFunction::ALL.map(entry).to_vec()))
}
