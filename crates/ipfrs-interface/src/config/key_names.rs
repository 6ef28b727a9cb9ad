//! Names of the keys of a section, obtained from its `Deserialize` implementation so that they are not repeated.

use serde::de::value::Error as NoValue;
use serde::de::{Deserialize, Deserializer, Error as _, Visitor};
use serde::forward_to_deserialize_any;

/// Returns the keys that `T` reads, in the order of its fields.
pub(crate) fn keys_of<T: Deserialize<'static>>() -> &'static [&'static str] {
    let mut probe = Probe { fields: &[] };
    // The probe has no values. It only records the field names that `T` passes to it.
    let _ = T::deserialize(&mut probe);
    probe.fields
}

struct Probe {
    fields: &'static [&'static str],
}

impl<'de> Deserializer<'de> for &mut Probe {
    type Error = NoValue;

    fn deserialize_any<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, NoValue> {
        Err(NoValue::custom("a probe has no value"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, NoValue> {
        self.fields = fields;
        self.deserialize_any(visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}
