//! The protobuf of a record.

use bytes::Bytes;

use super::data::Data;

/// The message `IpnsEntry`. The values that V1 signatures cover are in separate fields, and the signed data repeats
/// them.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(super) struct IpnsEntry {
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub(super) value: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub(super) signature_v1: Option<Bytes>,
    #[prost(int32, optional, tag = "3")]
    pub(super) validity_type: Option<i32>,
    #[prost(bytes = "bytes", optional, tag = "4")]
    pub(super) validity: Option<Bytes>,
    #[prost(uint64, optional, tag = "5")]
    pub(super) sequence: Option<u64>,
    #[prost(uint64, optional, tag = "6")]
    pub(super) ttl: Option<u64>,
    #[prost(bytes = "bytes", optional, tag = "7")]
    pub(super) public_key: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "8")]
    pub(super) signature_v2: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "9")]
    pub(super) data: Option<Bytes>,
}

impl IpnsEntry {
    /// Returns the first field that contradicts the signed data. In a record that also has V1 fields, a missing field
    /// counts as a contradiction, because V1 readers would read it as zero or empty.
    pub(super) fn contradiction(&self, data: &Data) -> Option<&'static str> {
        let is_there = |field: &Option<Bytes>| field.as_ref().is_some_and(|bytes| !bytes.is_empty());
        let is_v1 = is_there(&self.value) || is_there(&self.signature_v1);
        let differs = |field: &Option<Bytes>, signed: &Bytes| match field {
            Some(field) => field != signed,
            None => is_v1 && !signed.is_empty(),
        };
        let differs_number = |field: Option<u64>, signed: u64| match field {
            Some(field) => field != signed,
            None => is_v1 && signed != 0,
        };
        [
            ("value", differs(&self.value, &data.value)),
            ("validity", differs(&self.validity, &data.validity)),
            // The only valid type is 0.
            ("validityType", self.validity_type.is_some_and(|kind| kind != 0)),
            ("sequence", differs_number(self.sequence, data.sequence)),
            ("ttl", differs_number(self.ttl, data.ttl.unwrap_or_default())),
        ]
        .into_iter()
        .find_map(|(field, differs)| differs.then_some(field))
    }
}
