//! IPNS records (<https://specs.ipfs.tech/ipns/ipns-record/>), which point a name to its content and are signed by
//! its key.

mod data;
mod entry;

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use ipfrs_core::{Error, Result, timestamp};
use prost::Message;

use crate::{Name, PrivateKey, PublicKey};
use data::Data;
use entry::IpnsEntry;

/// Largest record, in bytes: 10 KiB.
pub const MAX_RECORD_BYTES: usize = 10 * 1024;

/// Prefix of the data that V2 signatures cover.
const V2_PREFIX: &[u8] = b"ipns-signature:";

/// Name of the only validity type in the data that V1 signatures cover.
const V1_VALIDITY_TYPE: &[u8] = b"EOL";

/// A record that was parsed or created. Callers must call [`verify`](Self::verify) before they trust a parsed record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    bytes: Bytes,
    entry: IpnsEntry,
    data: Data,
    validity: SystemTime,
}

impl Record {
    /// Parses a record from its protobuf. Only its form is checked: it must not exceed [`MAX_RECORD_BYTES`], must
    /// have signed data and a V2 signature, and every field of the data must be well-formed.
    ///
    /// # Errors
    /// Returns [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) for a malformed record, with the fault, and
    /// [`ErrorKind::TooLarge`](ipfrs_core::ErrorKind) for a record over the limit.
    pub fn parse(bytes: impl Into<Bytes>) -> Result<Self> {
        let bytes = bytes.into();
        if bytes.len() > MAX_RECORD_BYTES {
            return Err(Error::too_large(format!(
                "the IPNS record of {} bytes exceeds {MAX_RECORD_BYTES} bytes: sign a record with a shorter value",
                bytes.len()
            )));
        }
        let entry = IpnsEntry::decode(bytes.clone())
            .map_err(|e| invalid("record is malformed: it is not valid protobuf").with_source(e))?;
        if entry.signature_v2().is_empty() || entry.data().is_empty() {
            return Err(invalid("it has no V2 signature: records with V1 signatures only are no longer accepted"));
        }
        let data = Data::decode(entry.data())?;
        let validity = std::str::from_utf8(&data.validity).ok().and_then(timestamp::parse);
        let validity = validity.ok_or_else(|| invalid("its validity is not an RFC 3339 time"))?;
        Ok(Self { bytes, entry, data, validity })
    }

    /// Creates and signs a record, including the fields that implementations without V2 signatures read.
    ///
    /// `value` is a content path (`/ipfs/...`, `/ipns/...`), and `validity` is the time at which the record expires.
    /// `ttl` is the time for which resolvers may cache the result (up to 584 years). Of several records for one name,
    /// the one with the highest `sequence` takes precedence.
    ///
    /// # Errors
    /// Returns [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) for a validity before 1970 or after 9999,
    /// [`ErrorKind::TooLarge`](ipfrs_core::ErrorKind) for a value that no record can hold, and the errors of the key.
    pub fn create<V: AsRef<[u8]>>(
        key: &PrivateKey,
        value: V,
        sequence: u64,
        validity: SystemTime,
        ttl: Duration,
    ) -> Result<Self> {
        Self::signed(key, value.as_ref(), sequence, validity, ttl, true)
    }

    /// Creates and signs a record like [`create`](Self::create), but without the fields that only implementations
    /// without V2 signatures read. The record is shorter.
    ///
    /// # Errors
    /// Returns the errors of [`create`](Self::create).
    pub fn create_v2_only<V: AsRef<[u8]>>(
        key: &PrivateKey,
        value: V,
        sequence: u64,
        validity: SystemTime,
        ttl: Duration,
    ) -> Result<Self> {
        Self::signed(key, value.as_ref(), sequence, validity, ttl, false)
    }

    fn signed(
        key: &PrivateKey,
        value: &[u8],
        sequence: u64,
        validity: SystemTime,
        ttl: Duration,
        has_v1: bool,
    ) -> Result<Self> {
        let since = validity.duration_since(SystemTime::UNIX_EPOCH).ok();
        let validity =
            since.and_then(|since| timestamp::format(i64::try_from(since.as_secs()).ok()?, since.subsec_nanos()));
        let validity =
            validity.ok_or_else(|| Error::invalid("the validity of an IPNS record must be between 1970 and 9999"))?;
        let ttl = u64::try_from(ttl.as_nanos()).unwrap_or(u64::MAX);
        let data = Data { value: Bytes::copy_from_slice(value), validity: validity.into(), sequence, ttl: Some(ttl) };
        let encoded = data.encode()?;
        let holds_key = Name::of(key.public()).public_key().is_some();
        let mut entry = IpnsEntry {
            public_key: (!holds_key).then(|| key.public().to_protobuf().into()),
            signature_v2: Some(key.sign(&[V2_PREFIX, &encoded].concat())?.into()),
            data: Some(encoded.into()),
            ..IpnsEntry::default()
        };
        if has_v1 {
            entry.signature_v1 =
                Some(key.sign(&[data.value.as_ref(), data.validity.as_ref(), V1_VALIDITY_TYPE].concat())?.into());
            entry.value = Some(data.value);
            entry.validity_type = Some(0);
            entry.validity = Some(data.validity);
            entry.sequence = Some(sequence);
            entry.ttl = Some(ttl);
        }
        Self::parse(entry.encode_to_vec())
    }

    /// Checks that the record belongs to `name` and is valid at `now`. The key must match the name and must have
    /// signed the data. The fields outside of the data must agree with it, and the record must not have expired.
    ///
    /// # Errors
    /// Returns [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) if a check fails. The message contains the name and
    /// the failed check.
    pub fn verify(&self, name: &Name, now: SystemTime) -> Result<()> {
        self.verify_signature(name).and_then(|()| self.check_expiry(now)).map_err(|e| {
            Error::invalid(format!("the record is not valid for the IPNS name {name}: {}", e.message())).with_source(e)
        })
    }

    /// Returns whether the record has expired at `now`.
    #[must_use]
    pub fn is_expired(&self, now: SystemTime) -> bool {
        self.validity < now
    }

    fn check_expiry(&self, now: SystemTime) -> Result<()> {
        if self.is_expired(now) {
            let text = String::from_utf8_lossy(&self.data.validity);
            return Err(Error::invalid(format!("it expired at {text}")));
        }
        Ok(())
    }

    /// Checks the record like [`verify`](Self::verify), but ignores its expiry.
    ///
    /// # Errors
    /// Returns [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) if a check fails. The message contains the failed
    /// check.
    pub fn verify_signature(&self, name: &Name) -> Result<()> {
        let key = self.key_of(name)?;
        let message = [V2_PREFIX, self.entry.data()].concat();
        key.verify(&message, self.entry.signature_v2())
            .map_err(|e| Error::invalid("its signature was not created by the name's key").with_source(e))?;
        match self.entry.contradiction(&self.data) {
            Some(field) => Err(Error::invalid(format!("its field {field} does not match the signed data"))),
            None => Ok(()),
        }
    }

    /// Returns the key that must have signed the record: the key in the record, if it matches the name, or the key in
    /// the name.
    fn key_of(&self, name: &Name) -> Result<PublicKey> {
        let Some(embedded) = self.entry.public_key.as_deref().filter(|key| !key.is_empty()) else {
            return name
                .public_key()
                .ok_or_else(|| Error::invalid("neither the name nor the record contains a usable public key"));
        };
        let key = PublicKey::from_protobuf(embedded)?;
        if Name::of(&key) != *name {
            return Err(Error::invalid("its public key belongs to another name"));
        }
        Ok(key)
    }

    /// Returns the protobuf of the record, as it was received or will be sent.
    #[must_use]
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Returns the target of the name: a content path as text in all current records, or a binary CID in some old
    /// ones.
    #[must_use]
    pub fn value(&self) -> &Bytes {
        &self.data.value
    }

    /// Returns the time at which the record expires.
    #[must_use]
    pub fn validity(&self) -> SystemTime {
        self.validity
    }

    /// Returns the sequence number. Of several records for one name, the one with the highest number takes
    /// precedence.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.data.sequence
    }

    /// Returns the time for which resolvers may cache the result, if the record defines it.
    #[must_use]
    pub fn ttl(&self) -> Option<Duration> {
        self.data.ttl.map(Duration::from_nanos)
    }

    /// Returns the time for which a result from this record may be used at `now`: its TTL, or `default` if it has
    /// none, and at most until the record expires.
    #[must_use]
    pub fn lifetime(&self, now: SystemTime, default: Duration) -> Duration {
        let left = self.validity.duration_since(now).unwrap_or_default();
        self.ttl().unwrap_or(default).min(left)
    }

    /// Returns the validity in the form in which the record contains it.
    #[must_use]
    pub fn validity_text(&self) -> String {
        String::from_utf8_lossy(&self.data.validity).into_owned()
    }

    /// Returns the V1 signature, if the record has one. Callers must not trust it.
    #[must_use]
    pub fn signature_v1(&self) -> Option<&[u8]> {
        self.entry.signature_v1.as_deref().filter(|signature| !signature.is_empty())
    }

    /// Returns whether this record takes precedence over `other`, given that both are valid for one name. The higher
    /// sequence wins, then the later validity, then the bytes that sort later. Every holder of both records therefore
    /// keeps the same one.
    #[must_use]
    pub fn supersedes(&self, other: &Self) -> bool {
        let rank = |record: &Self| (record.data.sequence, record.validity);
        (rank(self), &self.bytes) > (rank(other), &other.bytes)
    }
}

fn invalid(why: &str) -> Error {
    Error::invalid(format!("invalid IPNS record: {why}"))
}
