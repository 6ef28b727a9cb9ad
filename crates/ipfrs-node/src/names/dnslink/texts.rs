//! The result of a query for TXT records.

use std::time::Duration;

use hickory_resolver::net::DnsError;
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::{RData, Record};

/// TXT records of a name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Texts {
    /// The text of each record, its strings joined.
    pub(super) texts: Vec<Vec<u8>>,
    /// How long this result may be cached, whether or not there are records.
    pub(super) ttl: Duration,
}

impl Texts {
    /// Extracts the texts from the records of a name and of the aliases that lead to them.
    pub(super) fn of(records: &[Record]) -> Self {
        let mut texts = Vec::new();
        for record in records {
            if let RData::TXT(txt) = &record.data {
                texts.push(txt.txt_data.concat());
            }
        }
        let ttl = records.iter().map(|record| record.ttl).min().unwrap_or_default();
        Self { texts, ttl: Duration::from_secs(ttl.into()) }
    }

    /// Interprets a response without records. Returns `None` if it shows only that the server failed.
    pub(super) fn of_none(error: &DnsError) -> Option<Self> {
        match error {
            DnsError::NoRecordsFound(none)
                if matches!(none.response_code, ResponseCode::NXDomain | ResponseCode::NoError) =>
            {
                let ttl = Duration::from_secs(none.negative_ttl.unwrap_or_default().into());
                Some(Self { texts: Vec::new(), ttl })
            }
            _ => None,
        }
    }
}
