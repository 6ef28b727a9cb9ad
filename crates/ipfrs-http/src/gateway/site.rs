//! Where content stands in the URLs of a request, and the links that lead there.

use std::borrow::Cow;

use crate::config::Namespace;

/// What is served under the host of a request.
#[derive(Debug, Clone)]
pub(crate) struct Site {
    mount: Mount,
    /// Whether only what a client can verify is served: blocks, CARs and IPNS records.
    pub(super) is_trustless: bool,
}

#[derive(Debug, Clone)]
enum Mount {
    /// All content, each under its path: `/ipfs/{cid}/...`.
    Paths,
    /// One root, on an origin of its own: `{id}.{namespace}.{gateway}`.
    Subdomain {
        /// `/ipfs/{cid}` or `/ipns/{name}`.
        root: String,
        /// The host of the gateway, with its port.
        gateway: String,
    },
    /// The website that a domain links to.
    Website {
        /// `/ipns/{domain}`.
        root: String,
        /// The host, with its port.
        host: String,
    },
}

impl Site {
    /// All content by its path.
    pub(crate) const PATHS: Self = Self { mount: Mount::Paths, is_trustless: false };

    /// All content by its path; `deserialized` as in `[gateway.hosts]`.
    pub(super) fn paths(deserialized: bool) -> Self {
        Self { mount: Mount::Paths, is_trustless: !deserialized }
    }

    /// One root of a gateway with subdomains.
    pub(super) fn subdomain(namespace: Namespace, id: &str, gateway: String, deserialized: bool) -> Self {
        let root = format!("/{}/{id}", namespace.as_str());
        Self { mount: Mount::Subdomain { root, gateway }, is_trustless: !deserialized }
    }

    /// The website of a domain.
    pub(super) fn website(domain: &str, host: String, deserialized: bool) -> Self {
        let root = format!("/ipns/{domain}");
        Self { mount: Mount::Website { root, host }, is_trustless: !deserialized }
    }

    /// The content path that the path of a URL stands for, encoded as it is there.
    pub(super) fn content_path<'a>(&self, url: &'a str) -> Cow<'a, str> {
        match &self.mount {
            Mount::Paths => Cow::Borrowed(url),
            Mount::Subdomain { root, .. } | Mount::Website { root, .. } => Cow::Owned(format!("{root}{url}")),
        }
    }

    /// Whether nothing but one root is served under the host, so that what it says of its own URLs may be done.
    pub(super) fn is_isolated(&self) -> bool {
        !matches!(self.mount, Mount::Paths)
    }

    /// Whether the host is the domain of a website.
    pub(super) fn is_website(&self) -> bool {
        matches!(self.mount, Mount::Website { .. })
    }

    /// The links of pages about content whose path begins with `root`, which is `/ipfs/{cid}` or `/ipns/{name}`.
    pub(super) fn links(&self, root: &str) -> Links {
        match &self.mount {
            Mount::Paths => Links {
                names: root.to_owned(),
                root: root.to_owned(),
                trail: root.to_owned(),
                content: Some(String::new()),
            },
            // The heading leads to the paths of the gateway, which redirects: it is the same on all roots of it.
            Mount::Subdomain { gateway, .. } => {
                let trail = format!("//{gateway}{root}");
                Links { names: String::new(), root: trail.clone(), trail, content: Some(format!("//{gateway}")) }
            }
            Mount::Website { host, .. } => {
                let trail = format!("//{host}");
                Links { names: String::new(), root: format!("{trail}/"), trail, content: None }
            }
        }
    }
}

/// The beginnings of the links of a page about content.
#[derive(Debug)]
pub(super) struct Links {
    /// What stands before the names below the root.
    pub(super) names: String,
    /// Where the root leads in the heading of a page.
    pub(super) root: String,
    /// What stands before the names below the root in the heading of a page.
    pub(super) trail: String,
    /// What stands before `/ipfs/{cid}` where that leads to any content; nothing where the host gives its own content only.
    pub(super) content: Option<String>,
}
