//! IPNS records (<https://specs.ipfs.tech/ipns/ipns-record/>): what a name leads to, signed by its key.

mod data;
mod entry;

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use ipfrs_core::{Error, Result};
use prost::Message;

use crate::{Name, PrivateKey, PublicKey, timestamp};
use data::Data;
use entry::IpnsEntry;

/// Largest record: 10 KiB.
pub const MAX_RECORD_BYTES: usize = 10 * 1024;

/// What V2 signatures sign before the data.
const V2_PREFIX: &[u8] = b"ipns-signature:";

/// How the one validity type is called in what V1 signatures sign.
const V1_VALIDITY_TYPE: &[u8] = b"EOL";

/// A record that was read, or made. Whoever reads one calls [`verify`](Self::verify) before believing it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    bytes: Bytes,
    entry: IpnsEntry,
    data: Data,
    validity: SystemTime,
}

impl Record {
    /// Reads a record from its protobuf. Only its form is checked: that it is no longer than [`MAX_RECORD_BYTES`], has
    /// signed data and a V2 signature, and that every field of the data is one.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) names what is wrong;
    /// [`ErrorKind::TooLarge`](ipfrs_core::ErrorKind) over the limit.
    pub fn parse(bytes: impl Into<Bytes>) -> Result<Self> {
        let bytes = bytes.into();
        if bytes.len() > MAX_RECORD_BYTES {
            return Err(Error::too_large(format!(
                "an IPNS record has at most {MAX_RECORD_BYTES} bytes, and this one {}: sign one with a shorter value",
                bytes.len()
            )));
        }
        let entry = IpnsEntry::decode(bytes.clone()).map_err(|e| invalid("it is no protobuf").with_source(e))?;
        if entry.signature_v2().is_empty() || entry.data().is_empty() {
            return Err(invalid("it has no V2 signature: records with V1 signatures only are no longer accepted"));
        }
        let data = Data::decode(entry.data())?;
        let validity = std::str::from_utf8(&data.validity).ok().and_then(timestamp::parse);
        let validity = validity.ok_or_else(|| invalid("its validity is no time of RFC 3339"))?;
        Ok(Self { bytes, entry, data, validity })
    }

    /// Makes a record and signs it, with the fields that implementations before V2 signatures read.
    ///
    /// `value` is a content path (`/ipfs/...`, `/ipns/...`), `validity` when the record ends to be valid, `ttl` how
    /// long whoever resolved the name may go on using the answer (up to 584 years). Of the records of one name, the one
    /// with the highest `sequence` holds.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) for a validity before 1970 or after 9999;
    /// [`ErrorKind::TooLarge`](ipfrs_core::ErrorKind) for a value that no record can hold; what the key fails with.
    pub fn create<V: AsRef<[u8]>>(
        key: &PrivateKey,
        value: V,
        sequence: u64,
        validity: SystemTime,
        ttl: Duration,
    ) -> Result<Self> {
        Self::signed(key, value.as_ref(), sequence, validity, ttl, true)
    }

    /// As [`create`](Self::create), without what only implementations before V2 signatures read: shorter.
    ///
    /// # Errors
    /// As [`create`](Self::create).
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
        let validity = timestamp::format(validity)
            .ok_or_else(|| Error::invalid("the validity of an IPNS record is a time from 1970 to 9999"))?;
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

    /// Checks that the record is `name`'s and is valid at `now`: the key is the name's, it signed the data, the fields
    /// beside the data say the same as it, and the record has not expired.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) names the name and what does not hold.
    pub fn verify(&self, name: &Name, now: SystemTime) -> Result<()> {
        self.verify_signature(name).and_then(|()| self.check_expiry(now)).map_err(|e| {
            Error::invalid(format!("the record is not valid for the IPNS name {name}: {}", e.message())).with_source(e)
        })
    }

    /// Whether the record has ended to be valid at `now`.
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

    /// As [`verify`](Self::verify), whether the record has expired or not.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) says what does not hold.
    pub fn verify_signature(&self, name: &Name) -> Result<()> {
        let key = self.key_of(name)?;
        let message = [V2_PREFIX, self.entry.data()].concat();
        key.verify(&message, self.entry.signature_v2())
            .map_err(|e| Error::invalid("its signature is not that of the name's key").with_source(e))?;
        match self.entry.contradiction(&self.data) {
            Some(field) => Err(Error::invalid(format!("its field {field} is not what the signed data says"))),
            None => Ok(()),
        }
    }

    /// The key that must have signed it: the one in the record, when it is the name's, or the one in the name.
    fn key_of(&self, name: &Name) -> Result<PublicKey> {
        let Some(embedded) = self.entry.public_key.as_deref().filter(|key| !key.is_empty()) else {
            return name.public_key().ok_or_else(|| {
                Error::invalid("neither the name nor the record holds a public key that can be used here")
            });
        };
        let key = PublicKey::from_protobuf(embedded)?;
        if Name::of(&key) != *name {
            return Err(Error::invalid("its public key is that of another name"));
        }
        Ok(key)
    }

    /// The record as it came, or goes out: a protobuf.
    #[must_use]
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// What the name leads to: a content path as text in all records of today, a binary CID in some old ones.
    #[must_use]
    pub fn value(&self) -> &Bytes {
        &self.data.value
    }

    /// When the record ends to be valid.
    #[must_use]
    pub fn validity(&self) -> SystemTime {
        self.validity
    }

    /// Which of the name's records holds: the one with the highest number.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.data.sequence
    }

    /// How long whoever resolved the name may go on using the answer, where the record says it.
    #[must_use]
    pub fn ttl(&self) -> Option<Duration> {
        self.data.ttl.map(Duration::from_nanos)
    }

    /// For how long an answer from this record holds at `now`: its TTL, or `default` where it has none, and never
    /// longer than the record is valid.
    #[must_use]
    pub fn lifetime(&self, now: SystemTime, default: Duration) -> Duration {
        let left = self.validity.duration_since(now).unwrap_or_default();
        self.ttl().unwrap_or(default).min(left)
    }

    /// The validity as the record writes it.
    #[must_use]
    pub fn validity_text(&self) -> String {
        String::from_utf8_lossy(&self.data.validity).into_owned()
    }

    /// The V1 signature, where there is one. Nobody should believe it.
    #[must_use]
    pub fn signature_v1(&self) -> Option<&[u8]> {
        self.entry.signature_v1.as_deref().filter(|signature| !signature.is_empty())
    }

    /// Whether this record holds where both are valid for one name: a higher sequence, then a later validity; then
    /// bytes that sort later, so that everybody who has both keeps the same.
    #[must_use]
    pub fn supersedes(&self, other: &Self) -> bool {
        let rank = |record: &Self| (record.data.sequence, record.validity);
        (rank(self), &self.bytes) > (rank(other), &other.bytes)
    }
}

fn invalid(why: &str) -> Error {
    Error::invalid(format!("invalid IPNS record: {why}"))
}
