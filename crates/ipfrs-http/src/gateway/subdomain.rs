//! Roots as labels of host names (<https://specs.ipfs.tech/http-gateways/subdomain-gateway/>): `{cid}.ipfs.{gateway}`,
//! `{key}.ipns.{gateway}`, and domains as one label, `en-wikipedia--on--ipfs-org.ipns.{gateway}`.

use ipfrs_core::{Base, Cid, Error, ErrorKind, Result, cid_to_string, codec, parse_cid};
use ipfrs_node::{Name, NameRoot, Node};

use crate::config::{MAX_LABEL_BYTES, Namespace};

/// What a root is that stands in a host name.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Root {
    /// This, as it stands in a content path.
    Here(String),
    /// One that is to be asked for under another label, so that content has one origin only.
    Moved(String),
}

/// What `id` in front of `.{namespace}.{gateway}` stands for. What is no root at all is given back as it is, for whoever
/// reads the path that it becomes part of.
///
/// # Errors
/// [`ErrorKind::InvalidInput`] for content IDs that fit no label and for those that are no names of keys; as
/// [`Node::dnslink`].
pub(super) async fn root_of(node: &Node, namespace: Namespace, id: &str) -> Result<Root> {
    match namespace {
        Namespace::Ipfs => {
            let id = in_lower_case(id);
            let Ok(cid) = parse_cid(&id) else { return Ok(Root::Here(id)) };
            // Any base is right that has no letters of both cases; browsers would destroy the others.
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

/// Content IDs in bases without a case of their own as browsers write them, everything else as it is.
fn in_lower_case(id: &str) -> String {
    if id.starts_with(['b', 'B', 'k', 'K', 'f', 'F']) { id.to_ascii_lowercase() } else { id.to_owned() }
}

/// The key whose name `id` is: also by a content ID of another codec, as old links have them.
fn key_of(id: &str) -> Result<Option<Name>> {
    if let Ok(name) = Name::parse(id) {
        return Ok(Some(name));
    }
    parse_cid(id).ok().map(|cid| Name::from_multihash(*cid.hash())).transpose()
}

/// The domain that `label` stands for: itself, or what it is when `-` is read as a dot and `--` as `-`.
async fn domain_of(node: &Node, label: String) -> Result<String> {
    if label.contains('.') || !label.contains('-') {
        return Ok(label);
    }
    let domain = from_label(&label);
    // Whoever wrote a label with hyphens meant a domain, most likely: that is what an error is to be about.
    let is_label = !has_dnslink(node, &domain).await? && has_dnslink(node, &label).await?;
    Ok(if is_label { label } else { domain })
}

/// Where a gateway with subdomains redirects `/{namespace}/{root}`: the label or labels in front of `.{namespace}`. `None`
/// for what is no root, which the path gateway says.
///
/// # Errors
/// [`ErrorKind::InvalidInput`] for roots that fit no label; as [`Node::dnslink`].
pub(super) async fn label(node: &Node, namespace: Namespace, root: &str, inline: bool) -> Result<Option<String>> {
    match namespace {
        Namespace::Ipfs => parse_cid(root).ok().map(|cid| label_of(&cid, namespace)).transpose(),
        Namespace::Ipns => {
            if let Some(name) = key_of(root)? {
                return label_of(&name.cid(), namespace).map(Some);
            }
            let is_label = !root.contains('.');
            let domain = if is_label { from_label(root) } else { root.to_owned() };
            // In ASCII, and nothing that would end a host name in a URL.
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

/// Whether a domain links to content. What cannot be a domain does not.
async fn has_dnslink(node: &Node, domain: &str) -> Result<bool> {
    match node.dnslink(domain).await {
        Ok(link) => Ok(link.is_some()),
        Err(e) if e.kind() == ErrorKind::InvalidInput => Ok(false),
        Err(e) => Err(e),
    }
}

/// A content ID as a label: in base 32, or where that is too long in base 36, which names of keys always are in.
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
        "CID incompatible with DNS label length limit of {MAX_LABEL_BYTES}: {cid}; ask for it by path at a gateway without \
         subdomains"
    )))
}

/// A domain as one label.
fn to_label(domain: &str) -> Result<String> {
    let label = domain.replace('-', "--").replace('.', "-");
    if label.len() > MAX_LABEL_BYTES {
        return Err(Error::invalid(format!(
            "inlined DNSLink incompatible with DNS label length limit of {MAX_LABEL_BYTES}: {label:?}"
        )));
    }
    Ok(label)
}

/// The domain that [`to_label`] made `label` of.
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
    fn domains_become_labels_and_come_back() {
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
