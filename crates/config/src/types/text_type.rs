//! Macros for the types that are written as one text.

/// Implements `Serialize`, `JsonSchema` and the format's `check` for a type with `Display` and `FromStr`.
macro_rules! text_type {
    ($type:ident, $schema:tt) => {
        pub(crate) fn check(text: &str) -> Result<(), $crate::FormatError> {
            text.parse::<$type>().map(drop)
        }

        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl schemars::JsonSchema for $type {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }

            fn schema_id() -> std::borrow::Cow<'static, str> {
                concat!("thalweg_config::", stringify!($type)).into()
            }

            fn inline_schema() -> bool {
                true
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!($schema)
            }
        }
    };
}

/// Implements `Deserialize` for a type that is always text. `ByteSize` may also be a number, so it has its
/// own implementation.
macro_rules! read_from_text {
    ($type:ident) => {
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

pub(crate) use {read_from_text, text_type};
