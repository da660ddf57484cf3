//! Looks up addresses for the directive `geoip`.

use std::net::IpAddr;
use std::path::Path;

use serde_json::Value;
use thalweg_engine::Context;

#[cfg(feature = "geoip")]
use crate::geoip::{Fact, GeoIp, Lookup};

/// Finds the locations of addresses, as the members that gollum adds.
#[cfg(feature = "geoip")]
pub(super) struct Places {
    lookup: Lookup,
    names: Vec<(&'static str, Fact)>,
}

/// The members that each fact of gollum's becomes.
#[cfg(feature = "geoip")]
const FACTS: [(&str, &[(&str, Fact)]); 6] = [
    ("country", &[("countryCode", Fact::CountryCode), ("country", Fact::Country)]),
    ("city", &[("city", Fact::City)]),
    ("continent", &[("continentCode", Fact::ContinentCode), ("continent", Fact::Continent)]),
    ("timezone", &[("timezone", Fact::Timezone)]),
    ("proxy", &[("proxy", Fact::Proxy), ("satellite", Fact::Satellite)]),
    ("location", &[("geocoord", Fact::Location), ("geohash", Fact::LocationHash)]),
];

#[cfg(feature = "geoip")]
impl Places {
    /// Opens a database, for these facts or for all.
    ///
    /// # Errors
    /// If it cannot be read.
    pub(super) fn open(database: &Path, facts: &[String], context: &Context) -> Result<Self, String> {
        let wanted =
            FACTS.iter().filter(|(name, _)| facts.is_empty() || facts.iter().any(|fact| fact == name));
        let names: Vec<(&str, Fact)> = wanted.flat_map(|(_, members)| members.iter().copied()).collect();
        let config = GeoIp::of(database.to_owned(), names.iter().map(|(_, fact)| *fact).collect());
        let lookup = config.lookup(&context.memory).map_err(|error| error.full())?;
        Ok(Self { lookup, names })
    }

    /// Returns the members about the address that a member holds. None if the database does not know it.
    pub(super) fn of(&mut self, member: &str, address: IpAddr) -> Vec<(String, Value)> {
        let Ok(found) = self.lookup.of(address) else { return Vec::new() };
        let found = self.names.iter().zip(found).filter_map(|((name, fact), text)| {
            let text = text.as_deref()?;
            let value = match fact {
                Fact::Location | Fact::Proxy | Fact::Satellite => serde_json::from_str(text).ok()?,
                _ => Value::String(text.to_owned()),
            };
            Some((format!("{member}_{name}"), value))
        });
        found.collect()
    }
}

/// This build has no reader of databases.
#[cfg(not(feature = "geoip"))]
pub(super) enum Places {}

#[cfg(not(feature = "geoip"))]
impl Places {
    /// Refuses.
    ///
    /// # Errors
    /// Always.
    pub(super) fn open(_: &Path, _: &[String], _: &Context) -> Result<Self, String> {
        Err("this build has no `geoip`".to_owned())
    }

    /// Cannot be called.
    pub(super) fn of(&mut self, _: &str, _: IpAddr) -> Vec<(String, Value)> {
        match *self {}
    }
}
