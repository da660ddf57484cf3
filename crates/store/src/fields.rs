//! The names of the fields of a struct that serde reads.
//!
//! OpenDAL has no list of the options of a store, and ignores those that it does not know. Serde passes the
//! names to whatever it reads a struct from, before it reads anything.

use std::fmt;

use serde::de::{DeserializeOwned, Deserializer, Error, Visitor};
use serde::forward_to_deserialize_any;

/// Returns the names of the fields of a struct, with their aliases.
pub(crate) fn field_names<T: DeserializeOwned>() -> Vec<&'static str> {
    match T::deserialize(Asked) {
        Err(Names(names)) => names.to_vec(),
        Ok(_) => Vec::new(),
    }
}

/// Reads nothing.
struct Asked;

/// The names, as the error that ends reading.
#[derive(Debug)]
struct Names(&'static [&'static str]);

impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

impl std::error::Error for Names {}

impl Error for Names {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self(&[])
    }
}

impl<'de> Deserializer<'de> for Asked {
    type Error = Names;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Names> {
        Err(Names(&[]))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Names> {
        Err(Names(fields))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Deserialize)]
    #[expect(dead_code, reason = "only its names are read")]
    struct Options {
        #[serde(alias = "zone")]
        region: String,
        endpoint: Option<String>,
    }

    #[test]
    fn names_and_aliases_are_found() {
        let mut names = field_names::<Options>();
        names.sort_unstable();
        assert_eq!(names, ["endpoint", "region", "zone"]);
        assert!(field_names::<String>().is_empty());
    }
}
