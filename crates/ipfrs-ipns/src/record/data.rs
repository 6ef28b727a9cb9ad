//! The signed part of a record: a map in DAG-CBOR.

use std::collections::BTreeMap;

use bytes::Bytes;
use ipfrs_core::{Error, Result};
use ipld_core::ipld::Ipld;

use super::invalid;

/// The standard fields of the map. A record may contain more fields, which are kept in its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Data {
    pub(super) value: Bytes,
    /// A timestamp in RFC 3339 format.
    pub(super) validity: Bytes,
    pub(super) sequence: u64,
    /// Time to live, in nanoseconds.
    pub(super) ttl: Option<u64>,
}

impl Data {
    /// Parses the map. DAG-CBOR has exactly one encoding for each value. Other encodings are rejected, because other
    /// implementations could read them differently.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self> {
        let value: Ipld = serde_ipld_dagcbor::from_slice(bytes)
            .map_err(|e| invalid("its data is not DAG-CBOR").with_source(Error::invalid(e.to_string())))?;
        if !serde_ipld_dagcbor::to_vec(&value).is_ok_and(|again| again == bytes) {
            return Err(invalid("its data is not DAG-CBOR in its canonical form"));
        }
        let Ipld::Map(map) = value else { return Err(invalid("its data is not a map")) };
        match number(&map, "ValidityType")? {
            Some(0) => {}
            _ => return Err(invalid("its ValidityType is not EOL (0), the only defined type")),
        }
        let missing = |field: &str| invalid(&format!("its data has no {field}"));
        Ok(Self {
            value: field(&map, "Value")?.ok_or_else(|| missing("Value"))?,
            validity: field(&map, "Validity")?.ok_or_else(|| missing("Validity"))?,
            sequence: number(&map, "Sequence")?.ok_or_else(|| missing("Sequence"))?,
            ttl: number(&map, "TTL")?,
        })
    }

    /// Encodes the map, with its keys in the order of DAG-CBOR.
    pub(super) fn encode(&self) -> Result<Vec<u8>> {
        let number = |number: u64| Ipld::Integer(i128::from(number));
        let mut map = BTreeMap::from([
            ("Value".to_owned(), Ipld::Bytes(self.value.to_vec())),
            ("Validity".to_owned(), Ipld::Bytes(self.validity.to_vec())),
            ("ValidityType".to_owned(), number(0)),
            ("Sequence".to_owned(), number(self.sequence)),
        ]);
        if let Some(ttl) = self.ttl {
            map.insert("TTL".to_owned(), number(ttl));
        }
        serde_ipld_dagcbor::to_vec(&Ipld::Map(map))
            .map_err(|e| Error::internal("an IPNS record could not be encoded").with_source(e))
    }
}

fn field(map: &BTreeMap<String, Ipld>, name: &str) -> Result<Option<Bytes>> {
    match map.get(name) {
        None => Ok(None),
        Some(Ipld::Bytes(bytes)) => Ok(Some(Bytes::copy_from_slice(bytes))),
        Some(_) => Err(invalid(&format!("its {name} is not a byte string"))),
    }
}

fn number(map: &BTreeMap<String, Ipld>, name: &str) -> Result<Option<u64>> {
    let not_unsigned = || invalid(&format!("its {name} is not an unsigned 64-bit integer"));
    match map.get(name) {
        None => Ok(None),
        Some(Ipld::Integer(number)) => u64::try_from(*number).map(Some).map_err(|_| not_unsigned()),
        Some(_) => Err(not_unsigned()),
    }
}
