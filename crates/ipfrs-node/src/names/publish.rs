//! Publishing: signing a record that contains the target of a name.

use std::borrow::Cow;
use std::time::{Duration, SystemTime};

use ipfrs_core::{Error, ErrorKind, Result, uri_as_path};
use ipfrs_ipns::{Name, PrivateKey, Record};
use tokio::task::spawn_blocking;

use super::NameRoot;
use super::target::{Target, TargetRoot};
use crate::{LinkName, Node, to_the_end};

/// Options for publishing a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishOptions {
    /// Name or ID of the key. `self` is the identity.
    pub key: String,
    /// Validity of the record; `None` means `ipns.record_lifetime_seconds`.
    pub lifetime: Option<Duration>,
    /// Time to live for resolvers, at most the lifetime. `None` means `ipns.record_ttl_seconds`, or the lifetime if
    /// that is shorter.
    pub ttl: Option<Duration>,
    /// Sequence number, higher than that of the last record; `None` means the next one.
    pub sequence: Option<u64>,
    /// Whether the target must exist in this node.
    pub must_resolve: bool,
    /// Whether the record includes the fields that implementations without V2 signatures read.
    pub has_v1: bool,
}

impl Default for PublishOptions {
    fn default() -> Self {
        Self { key: "self".into(), lifetime: None, ttl: None, sequence: None, must_resolve: true, has_v1: true }
    }
}

/// A published name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishedName {
    /// The name.
    pub name: Name,
    /// Its new target, a content path.
    pub value: LinkName,
}

impl Node {
    /// Publishes `path` as the target of the name of a key: `/ipfs/{cid}/...`, `{cid}/...`, or `/ipns/{name}/...`.
    /// When this returns, the record is durable and this node uses it.
    ///
    /// If the value differs from that of the last record, the sequence number increases. A record with the same value
    /// and a longer validity keeps it.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for an invalid path, and for a lifetime, TTL or sequence out of its range;
    /// [`ErrorKind::NotFound`] for an unknown key, and for a path that does not resolve here, unless `must_resolve`
    /// is false; [`ErrorKind::Forbidden`] if the repo is read-only.
    pub async fn publish_name(&self, path: impl AsRef<[u8]>, options: &PublishOptions) -> Result<PublishedName> {
        self.check_writable()?;
        let value = written(path.as_ref());
        let target = Target::parse(value.as_bytes())?;
        let (lifetime, ttl) = self.times(options)?;
        let (_, key) = self.private_key(&options.key).await?;
        let name = Name::of(key.public());
        if matches!(&target.root, TargetRoot::Name(NameRoot::Key(next)) if *next == name) {
            return Err(Error::invalid(format!("the name {name} cannot point to itself")));
        }
        if options.must_resolve {
            let path = self.content_path(&value).await?;
            self.resolve(path).await?;
        }
        let validity = SystemTime::now()
            .checked_add(lifetime)
            .ok_or_else(|| Error::invalid(format!("a lifetime of {} seconds is too long", lifetime.as_secs())))?;
        let (node, requested, has_v1, target) = (self.clone(), options.sequence, options.has_v1, value.clone());
        to_the_end(async move {
            // Held until the record is stored, so that the sequence number stays correct.
            let _publishing = node.inner.keystore.publishing.lock().await;
            let last = node.last_ipns_record(&name).await?;
            let sequence = sequence(last.as_ref(), requested, &target, validity)?;
            let record = sign(key, target, sequence, validity, ttl, has_v1).await?;
            node.put_own_record(&name, record.bytes().clone()).await
        })
        .await?;
        Ok(PublishedName { name, value })
    }

    /// Returns the validity and the time to live of a record.
    fn times(&self, options: &PublishOptions) -> Result<(Duration, Duration)> {
        let config = &self.inner.config.ipns;
        let lifetime = options.lifetime.unwrap_or_else(|| config.record_lifetime());
        if lifetime.is_zero() {
            return Err(Error::invalid("the lifetime must be greater than zero"));
        }
        let ttl = match options.ttl {
            Some(ttl) if ttl > lifetime => {
                return Err(Error::invalid(format!("ttl ({ttl:?}) must not be greater than lifetime ({lifetime:?})")));
            }
            Some(ttl) => ttl,
            None => config.record_ttl().min(lifetime),
        };
        Ok((lifetime, ttl))
    }
}

/// Returns a content path as a record has it. As in Kubo, the content ID or name stays as it is given, and so does a
/// slash at the end.
fn written(path: &[u8]) -> LinkName {
    let path = uri_as_path(path);
    let path = if path.starts_with(b"/") { path } else { Cow::Owned([b"/ipfs/", &*path].concat()) };
    let mut parts = Vec::new();
    for part in path.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    let end: &[u8] = if path.ends_with(b"/") { b"/" } else { b"" };
    [b"/", parts.join(&b'/').as_slice(), end].concat().into()
}

/// Returns the sequence number of the next record.
fn sequence(last: Option<&Record>, requested: Option<u64>, value: &LinkName, validity: SystemTime) -> Result<u64> {
    let lowest = match last {
        None if requested.is_none() => return Ok(0),
        None => 1,
        Some(last) => {
            let holds_on = last.value().as_ref() == value.as_bytes() && last.validity() < validity;
            if requested.is_none() && holds_on {
                return Ok(last.sequence());
            }
            last.sequence().checked_add(1).ok_or_else(|| {
                Error::new(ErrorKind::Conflict, "the name has a record with the highest sequence: use another key")
            })?
        }
    };
    match requested {
        Some(requested) if requested < lowest => {
            let why = "sequence number must be greater than the current record sequence";
            Err(Error::invalid(format!("{why}: {requested} is below {lowest}")))
        }
        requested => Ok(requested.unwrap_or(lowest)),
    }
}

/// Creates a record on a blocking thread. RSA takes milliseconds.
pub(super) async fn sign(
    key: PrivateKey,
    value: LinkName,
    sequence: u64,
    validity: SystemTime,
    ttl: Duration,
    has_v1: bool,
) -> Result<Record> {
    let create = if has_v1 { Record::create } else { Record::create_v2_only };
    let signing = spawn_blocking(move || create(&key, value, sequence, validity, ttl));
    signing.await.map_err(|e| Error::internal("signing a record failed").with_source(e))?
}
