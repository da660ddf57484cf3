//! What the values share that are written as one text.

/// How a type that is shown by `Display` and read by `FromStr` is written and told to a schema; `check` is the
/// meaning of its format.
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

/// Reads a type that is nothing but text; a size, which may be a number as well, reads itself.
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
