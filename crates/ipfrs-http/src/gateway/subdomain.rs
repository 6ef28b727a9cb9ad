//! Roots as labels of host names (<https://specs.ipfs.tech/http-gateways/subdomain-gateway/>): `{cid}.ipfs.{gateway}`,
//! `{key}.ipns.{gateway}`, and domains as one label, `en-wikipedia--on--ipfs-org.ipns.{gateway}`.

use ipfrs_core::{Base, Cid, Error, ErrorKind, Result, cid_to_string, codec, parse_cid};
use ipfrs_node::{Name, NameRoot, Node};

use crate::config::{MAX_LABEL_BYTES, Namespace};

/// A root in a host name.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Root {
    /// The root as written in a content path.
    Here(String),
    /// The canonical label of the root, to which the client is redirected so that content has only one origin.
    Moved(String),
}

/// Returns the root for `id` in front of `.{namespace}.{gateway}`. An invalid root is returned unchanged, because
/// parsing the resulting path reports the error.
///
/// # Errors
/// [`ErrorKind::InvalidInput`] if a content ID does not fit into a label, or is not the name of a key under `/ipns`;
/// see also [`Node::dnslink`].
pub(super) async fn root_of(node: &Node, namespace: Namespace, id: &str) -> Result<Root> {
    match namespace {
        Namespace::Ipfs => {
            let id = in_lower_case(id);
            let Ok(cid) = parse_cid(&id) else { return Ok(Root::Here(id)) };
            // Only bases with letters of one case are accepted, because browsers lowercase host names.
            let fits = id.len() <= MAX_LABEL_BYTES && id.starts_with(['b', 'k', 'f']);
            if fits { Ok(Root::Here(id)) } else { label_of(&cid, Namespace::Ipfs).map(Root::Moved) }
        }
        Namespace::Ipns => {
            let id = in_lower_case(id);
            match key_of(&id)? {
                Some(name) if name.to_string() == id => Ok(Root::Here(id)),
                Some(name) => label_of(&name.cid(), Namespace::Ipns).map(Root::Moved),
                None => domain_of(node, id.to_ascii_lowercase()).await.map(Root::Here),
            }
        }
    }
}

/// Returns an ID in lower case if its base is case-insensitive, and unchanged otherwise.
fn in_lower_case(id: &str) -> String {
    if id.starts_with(['b', 'B', 'k', 'K', 'f', 'F']) { id.to_ascii_lowercase() } else { id.to_owned() }
}

/// Returns the key with the name `id`. Content IDs with other codecs are accepted, since old links use them.
fn key_of(id: &str) -> Result<Option<Name>> {
    if let Ok(name) = Name::parse(id) {
        return Ok(Some(name));
    }
    parse_cid(id).ok().map(|cid| Name::from_multihash(*cid.hash())).transpose()
}

/// Returns the domain for `label`: the label itself, or the label with `-` replaced by a dot and `--` by `-`.
async fn domain_of(node: &Node, label: String) -> Result<String> {
    if label.contains('.') || !label.contains('-') {
        return Ok(label);
    }
    let domain = from_label(&label);
    // A label with hyphens most likely stands for a domain, so errors should mention the domain.
    let is_label = !has_dnslink(node, &domain).await? && has_dnslink(node, &label).await?;
    Ok(if is_label { label } else { domain })
}

/// Returns the label or labels in front of `.{namespace}` to which a gateway with subdomains redirects
/// `/{namespace}/{root}`. Returns `None` for an invalid root, which the path gateway reports.
///
/// # Errors
/// [`ErrorKind::InvalidInput`] if the root does not fit into a label; see also [`Node::dnslink`].
pub(super) async fn label(node: &Node, namespace: Namespace, root: &str, inline: bool) -> Result<Option<String>> {
    match namespace {
        Namespace::Ipfs => parse_cid(root).ok().map(|cid| label_of(&cid, namespace)).transpose(),
        Namespace::Ipns => {
            if let Some(name) = key_of(root)? {
                return label_of(&name.cid(), namespace).map(Some);
            }
            let is_label = !root.contains('.');
            let domain = if is_label { from_label(root) } else { root.to_owned() };
            // The parsed domain is ASCII and contains no character that could end a host name in a URL.
            let Ok(NameRoot::Domain(domain)) = NameRoot::parse(&domain) else { return Ok(None) };
            if !is_label && !inline {
                return Ok(Some(domain));
            }
            match has_dnslink(node, &domain).await? {
                true if inline => to_label(&domain).map(Some),
                false if is_label => Ok(None),
                _ => Ok(Some(domain)),
            }
        }
    }
}

/// Whether a domain has a DNSLink. False for invalid domain names.
async fn has_dnslink(node: &Node, domain: &str) -> Result<bool> {
    match node.dnslink(domain).await {
        Ok(link) => Ok(link.is_some()),
        Err(e) if e.kind() == ErrorKind::InvalidInput => Ok(false),
        Err(e) => Err(e),
    }
}

/// Returns a content ID as a label: in base 32, or in base 36 if that is too long. Names of keys are always in base
/// 36.
fn label_of(cid: &Cid, namespace: Namespace) -> Result<String> {
    let (codec, bases) = match namespace {
        Namespace::Ipfs => (cid.codec(), [Base::Base32Lower, Base::Base36Lower].as_slice()),
        Namespace::Ipns => (codec::LIBP2P_KEY, [Base::Base36Lower].as_slice()),
    };
    let cid = Cid::new_v1(codec, *cid.hash());
    for base in bases {
        let text = cid_to_string(&cid, *base)?;
        if text.len() <= MAX_LABEL_BYTES {
            return Ok(text);
        }
    }
    Err(Error::invalid(format!(
        "CID incompatible with DNS label length limit of {MAX_LABEL_BYTES}: {cid}; request it by path at a gateway without \
         subdomains"
    )))
}

/// Encodes a domain as one label.
fn to_label(domain: &str) -> Result<String> {
    let label = domain.replace('-', "--").replace('.', "-");
    if label.len() > MAX_LABEL_BYTES {
        return Err(Error::invalid(format!(
            "inlined DNSLink incompatible with DNS label length limit of {MAX_LABEL_BYTES}: {label:?}"
        )));
    }
    Ok(label)
}

/// Decodes a label made by [`to_label`].
fn from_label(label: &str) -> String {
    let mut domain = String::with_capacity(label.len());
    let mut chars = label.chars().peekable();
    while let Some(c) = chars.next() {
        domain.push(match c {
            '-' if chars.next_if_eq(&'-').is_some() => '-',
            '-' => '.',
            c => c,
        });
    }
    domain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn domain_to_label_round_trips() {
        for (domain, label) in [
            ("my.v-long.example.com", "my-v--long-example-com"),
            ("en.wikipedia-on-ipfs.org", "en-wikipedia--on--ipfs-org"),
            ("a--b.example", "a----b-example"),
        ] {
            assert_eq!(to_label(domain).unwrap(), label);
            assert_eq!(from_label(label), domain);
        }
        assert!(to_label(&format!("{}.example", "a".repeat(60))).unwrap_err().message().contains("limit of 63"));
    }

    #[test]
    fn content_ids_fit_labels_or_are_refused() {
        let v0 = parse_cid("QmbFMke1KXqnYyBBWxB74N4c5SBnJMVAiMNRcGu6x1AwQH").unwrap();
        assert_eq!(
            label_of(&v0, Namespace::Ipfs).unwrap(),
            "bafybeif7ztnhq65lumvvtr4ekcwd2ifwgm3awq4zfr3srh462rwyinlb4y"
        );
        let key = Name::parse("12D3KooWLQzUv2FHWGVPXTXSZpdHs7oHbXub2G5WC8Tx4NQhyd2d").unwrap().cid();
        let label = label_of(&key, Namespace::Ipns).unwrap();
        assert_eq!(label, "k51qzi5uqu5dk3v4rmjber23h16xnr23bsggmqqil9z2gduiis5se8dht36dam");
        // In base 32 it has 65 characters.
        assert_eq!(label_of(&key, Namespace::Ipfs).unwrap(), label);
        let long = parse_cid(
            "bafkrgqhhyivzstcz3hhswshfjgy6ertgmnqeleynhwt4dlfsthi4hn7zgh4uvlsb5xncykzapi3ocd4lzogukir6ksdy6wzrnz6ohnv4aglcs",
        );
        let error = label_of(&long.unwrap(), Namespace::Ipfs).unwrap_err();
        assert!(error.message().contains("CID incompatible with DNS label length limit of 63"), "{error}");
    }
}
