//! Location of content in the URLs of a request, and the links to it.

use std::borrow::Cow;

use crate::config::Namespace;

/// Content that is served under the host of a request.
#[derive(Debug, Clone)]
pub(crate) struct Site {
    mount: Mount,
    /// Whether only verifiable content is served: blocks, CARs and IPNS records.
    pub(super) is_trustless: bool,
    /// Whether missing content is retrieved.
    pub(super) retrieves: bool,
}

#[derive(Debug, Clone)]
enum Mount {
    /// All content, each under its path: `/ipfs/{cid}/...`.
    Paths,
    /// One root, on an origin of its own: `{id}.{namespace}.{gateway}`.
    Subdomain {
        /// Content path of the root: `/ipfs/{cid}` or `/ipns/{name}`.
        root: String,
        /// Host of the gateway, with its port.
        gateway: String,
    },
    /// The website of a domain.
    Website {
        /// Content path of the website: `/ipns/{domain}`.
        root: String,
        /// Host of the website, with its port.
        host: String,
    },
}

impl Site {
    /// Creates a site for all content by its path; `deserialized` as in `[gateway]`.
    pub(crate) fn paths(deserialized: bool) -> Self {
        Self { mount: Mount::Paths, is_trustless: !deserialized, retrieves: true }
    }

    /// Creates the site of one root of a gateway with subdomains.
    pub(super) fn subdomain(namespace: Namespace, id: &str, gateway: String, deserialized: bool) -> Self {
        let root = format!("/{}/{id}", namespace.as_str());
        Self { mount: Mount::Subdomain { root, gateway }, is_trustless: !deserialized, retrieves: true }
    }

    /// Creates the site of a domain's website.
    pub(super) fn website(domain: &str, host: String, deserialized: bool) -> Self {
        let root = format!("/ipns/{domain}");
        Self { mount: Mount::Website { root, host }, is_trustless: !deserialized, retrieves: true }
    }

    /// Sets whether missing content is retrieved, `retrieve` in `[gateway.hosts]`.
    pub(super) fn retrieving(self, retrieves: bool) -> Self {
        Self { retrieves, ..self }
    }

    /// Returns the content path for the path of a URL, still encoded.
    pub(super) fn content_path<'a>(&self, url: &'a str) -> Cow<'a, str> {
        match &self.mount {
            Mount::Paths => Cow::Borrowed(url),
            Mount::Subdomain { root, .. } | Mount::Website { root, .. } => Cow::Owned(format!("{root}{url}")),
        }
    }

    /// Whether the host serves only one root, so that rules of the root may apply to all URLs of the host.
    pub(super) fn is_isolated(&self) -> bool {
        !matches!(self.mount, Mount::Paths)
    }

    /// Whether the host is the domain of a website.
    pub(super) fn is_website(&self) -> bool {
        matches!(self.mount, Mount::Website { .. })
    }

    /// Returns the links for pages about content whose path begins with `root`, which is `/ipfs/{cid}` or
    /// `/ipns/{name}`.
    pub(super) fn links(&self, root: &str) -> Links {
        match &self.mount {
            Mount::Paths => Links {
                names: root.to_owned(),
                root: root.to_owned(),
                trail: root.to_owned(),
                content: Some(String::new()),
            },
            // The heading links to the path gateway, which redirects to subdomains. These links are valid on all its
            // roots.
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

/// URL prefixes of the links in a page about content.
#[derive(Debug)]
pub(super) struct Links {
    /// Prefix of the names below the root.
    pub(super) names: String,
    /// Link to the root in the heading of a page.
    pub(super) root: String,
    /// Prefix of the names below the root in the heading of a page.
    pub(super) trail: String,
    /// URL prefix of `/ipfs/{cid}` for any content; `None` if the host serves only its own content.
    pub(super) content: Option<String>,
}
